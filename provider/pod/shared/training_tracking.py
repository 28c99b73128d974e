"""Forwards the progress of a program to the tracker of its job, in a process of its own, unless the program logs there itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_SECONDS = 15
"""Time that the tracker has at the end of the program for metrics that it does not have yet."""


@dataclass
class _Forwarding:
    """The process that writes to the tracker.

    Attributes:
        line: The latest line that it got.
        over: Whether nothing is forwarded any more: the program logs itself, or the process has ended.
    """

    process: subprocess.Popen[bytes] | None = None
    line: bytes = b""
    over: bool = False


_now = _Forwarding()


def logs_itself(tracker: str) -> bool:
    """Return whether the program logs to a tracker itself: it has loaded the package that does, or has a run of its own there.

    The packages of W&B and Trackio are also loaded by libraries that do not use them.
    """
    if tracker == "wandb":
        return getattr(sys.modules.get("wandb"), "run", None) is not None
    if tracker == "trackio":
        variables = sys.modules.get("trackio.context_vars")
        return variables is not None and variables.current_run.get() is not None
    names = {"mlflow": ("mlflow",), "tensorboard": ("tensorboard", "tensorboardX")}[tracker]
    return any(name in sys.modules for name in names)


def forward(status: Mapping[str, Any]) -> None:
    """Forward the metrics of a report; what fails is printed by the process, and ends nothing here."""
    tracker = os.environ["TRAINER_TRACKING"]
    if tracker == "mlflow" and "TRAINER_TRACKING_RUN" not in os.environ:  # the server has not answered
        return
    numbers = _numbers(status["metrics"])
    if not numbers or _now.over:
        return
    if logs_itself(tracker):
        finish()
        return
    if _now.process is None:
        program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "track_run.py")
        try:
            _now.process = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE)
        except OSError as error:
            _now.over = True
            print(f"pulumi-trainer: the tracker gets no metrics: {error}", file=sys.stderr, flush=True)
            return
        assert _now.process.stdin is not None
        os.set_blocking(_now.process.stdin.fileno(), False)
    line = _line({"step": status["step"], "metrics": numbers})
    if line != _now.line:  # the end of a program reports a newer checkpoint of the same step
        _now.line = line
        _now.over = not _write(_now.process, line)


def finish() -> None:
    """Forward nothing more, and wait for what is on its way."""
    process, _now.process, _now.over = _now.process, None, True
    if process is None or process.stdin is None:
        return
    _write(process, _line({"end": int(hasattr(sys, "last_value"))}))
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        text = f"pulumi-trainer: the tracker has not taken the last metrics within {_SECONDS} seconds"
        print(text, file=sys.stderr, flush=True)


def _line(given: Mapping[str, Any]) -> bytes:
    return json.dumps(given).encode() + b"\n"


def _write(process: subprocess.Popen[bytes], line: bytes) -> bool:
    """Return whether the process still reads. A pipe that is full loses the line: training does not wait."""
    assert process.stdin is not None
    try:
        os.write(process.stdin.fileno(), line)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def _numbers(metrics: Iterable[Mapping[str, str]]) -> dict[str, float]:
    """Return the metrics that are numbers, by name."""
    found = {}
    for each in metrics:
        with suppress(ValueError):
            found[each["name"]] = float(each["value"])
    return found
