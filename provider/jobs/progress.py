"""Parses the progress that user code prints: a line of JSON on stdout of rank 0."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, TypeGuard

from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds, mappings, only, section, without

LONGEST_LINE = 1 << 16
"""Maximum bytes of a line with a trainerStatus."""
_MOST_METRICS = 256
_LONGEST_METRIC = 64
"""Characters of the name and of the value of a metric."""

NOTHING_LEFT = "nothing was left to do"
"""Of a run that has resumed from the last step of its training."""
NOTHING_REPORTED = "no step was reported: whether it trained is not known"
"""Of a run that was to report its progress, and has not."""
_NOT_REPORTED = frozenset({"tracking", "lastUpdatedTime"})
"""Fields of a report that say nothing of the training."""
_OF_SINGLE_STEPS = re.compile(r"(^|[^a-z0-9])norm([^a-z0-9]|$)", re.IGNORECASE)
"""In names of metrics that may be infinite at the last step of a sound training: a scaler of fp16 skips it."""
_RUN_OF_TRACKER = re.compile(r"[\w-]{1,64}/[\w-]{1,64}", re.ASCII)
"""Experiment and run of MLflow."""
_LOCAL_RANK_0 = re.compile(rb"^\[[a-zA-Z_]{1,32}0\]: ?")
"""torchrun's prefix of the lines of the first process of a node (`--tee`)."""


def progress(line: bytes, now: float) -> dict[str, Any] | None:
    """Return the `trainerStatus` in a line of output; None for any other line.

    Bounds: TrainerStatus in https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go
    """
    line = _LOCAL_RANK_0.sub(b"", line)
    if not line.startswith(b'{"trainerStatus"') or len(line) > LONGEST_LINE:
        return None
    try:
        given = json.loads(line)["trainerStatus"]
    except (ValueError, RecursionError):
        return None
    found = read_progress(given)
    if not found:
        return None
    return {**found, "lastUpdatedTime": timestamp(now)}


def read_progress(given: Any) -> dict[str, Any]:
    """Return what is valid in a `trainerStatus` that anybody may have written, without its time."""
    found: dict[str, Any] = {}
    if not isinstance(given, dict):
        return found
    percent, remaining = _whole(given.get("progressPercentage")), _whole(given.get("estimatedRemainingSeconds"))
    if _is_int(percent) and 0 <= percent <= 100:
        found["progressPercentage"] = percent
    if _is_int(remaining) and 0 <= remaining < 1 << 31:
        found["estimatedRemainingSeconds"] = remaining
    if isinstance(given.get("metrics"), (list, dict)):
        found["metrics"] = read_metrics(given["metrics"])
    for name in ("step", "resumedFrom"):
        step = _whole(given.get(name))
        if _is_int(step) and 0 <= step < 1 << 63:
            found[name] = step
    tracking = given.get("tracking")
    if isinstance(tracking, str) and _RUN_OF_TRACKER.fullmatch(tracking):
        found["tracking"] = tracking
    checkpoint = _checkpoint(given.get("checkpoint"))
    if checkpoint:
        found["checkpoint"] = checkpoint
    return found


def read_metrics(given: Any) -> dict[str, str]:
    """Return the values of metrics by name, as texts; values and names that are not valid are left out. given: Trainer's list
    of `name` and `value`, or values by name."""
    pairs = [(each.get("name"), each.get("value")) for each in mappings(given)]
    if isinstance(given, Mapping):
        pairs = [*given.items()]
    found: dict[str, str] = {}
    for name, value in pairs[:_MOST_METRICS]:
        known = metric_text(value)
        if isinstance(name, str) and name and known is not None and metric_text(name) is not None:
            found[name] = known
    return found


def kept_progress(given: Any) -> dict[str, Any] | None:
    """Return a report with its time from JSON that anybody may have written; None if nothing in it is valid."""
    found, updated = read_progress(given), section(given).get("lastUpdatedTime")
    if isinstance(updated, str) and metric_text(updated) is not None:
        found["lastUpdatedTime"] = updated
    return found or None


def with_kept(earlier: dict[str, Any] | None, newest: dict[str, Any]) -> dict[str, Any]:
    """Return the newest report with step, checkpoint and tracker's run of an earlier one, if it has none: a program need not
    repeat them.

    The run began at the step from which the first attempt that reported steps has resumed.
    """
    kept = only(earlier or {}, ("step", "checkpoint", "resumedFrom", "tracking"))
    if earlier and "step" in kept and is_empty(newest):  # of the next attempt
        return earlier
    if "step" in kept:
        newest = without(newest, "resumedFrom")
    return {**kept, **newest}


def is_empty(progress: Mapping[str, Any]) -> bool:
    """Return whether a report has nothing, such as the one before the start of a program that should report (`bootstrap.py`)."""
    return not progress.get("metrics") and progress.keys() <= {"metrics", *_NOT_REPORTED}


def success_note(progress: Mapping[str, Any] | None, *, restarted: bool, rerun: bool = False) -> str:
    """Return why a run that has succeeded may not have trained; empty if it has, or if its program has nothing to report.

    Args:
        restarted: Whether it is that of the last attempt alone.
        rerun: Whether the run was started again after an interruption, before which it may have done steps.
    """
    if progress is None or progress.keys() <= _NOT_REPORTED:
        return ""
    if is_empty(progress):
        return "" if restarted or rerun else NOTHING_REPORTED
    return ("" if rerun else missing_steps(progress)) or _not_finite(progress)


def _not_finite(progress: Mapping[str, Any]) -> str:
    """Return which metric of the newest report is not finite; empty if all are."""
    for name, value in section(progress, "metrics").items():
        with suppress(ValueError):
            found = float(value)
            if not math.isfinite(found) and not _OF_SINGLE_STEPS.search(name):
                return f"its last {name} is {'NaN' if math.isnan(found) else 'infinite'}"
    return ""


def missing_steps(progress: Mapping[str, Any]) -> str:
    """Return that a run has done no step; empty if it has, or if its program has reported no steps."""
    first = progress.get("resumedFrom", 0)
    if steps_done(progress) != 0:
        return ""
    if first and progress.get("progressPercentage") == 100:
        return f"{NOTHING_LEFT} (0 steps)"
    if first:
        return f"0 steps were done after the checkpoint of step {first:,}"
    return "0 steps were done"


def steps_done(progress: Mapping[str, Any]) -> int | None:
    """Return how many steps a run has done; None if its program has reported no steps."""
    step = progress.get("step")
    return None if step is None else max(0, int(step) - int(progress.get("resumedFrom", 0)))


def timestamp(seconds: float) -> str:
    """Return a time in seconds since the epoch as Kubernetes writes it."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _whole(value: object) -> object:
    """Return a number without its fraction, as the bounds are of whole numbers; any other value stays."""
    return math.floor(value) if isinstance(value, float) and math.isfinite(value) else value


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _checkpoint(given: object) -> dict[str, Any] | None:
    """Return the newest checkpoint of a program: its step, and when it was saved."""
    if not isinstance(given, Mapping):
        return None
    step, time = given.get("step"), given.get("time")
    if not _is_int(step) or not 0 <= step < 1 << 63:
        return None
    if not isinstance(time, str) or len(time) > 64 or not epoch_seconds(time):
        return None
    return {"step": step, "time": time}


def metric_text(value: object) -> str | None:
    """Return the value of a metric as text; None if it is not valid."""
    if _is_int(value) or isinstance(value, float):
        value = str(value)
    if not isinstance(value, str) or len(value) > _LONGEST_METRIC or not value.isprintable():
        return None
    return value
