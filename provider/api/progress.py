"""The progress that user code prints: a line of JSON on stdout of rank 0. Read by all targets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeGuard

LONGEST_LINE = 1 << 16
"""A longer line is no trainerStatus."""


def progress(line: bytes, now: float) -> dict[str, Any] | None:
    """The `trainerStatus` that a line of output is; None for every other line, however odd.

    Bounds: TrainerStatus in https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go
    """
    if not line.startswith(b'{"trainerStatus"') or len(line) > LONGEST_LINE:
        return None
    try:
        given = json.loads(line)["trainerStatus"]
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    found: dict[str, Any] = {}
    percent, remaining = given.get("progressPercentage"), given.get("estimatedRemainingSeconds")
    if _is_int(percent) and 0 <= percent <= 100:
        found["progressPercentage"] = percent
    if _is_int(remaining) and 0 <= remaining < 1 << 31:
        found["estimatedRemainingSeconds"] = remaining
    metrics = given.get("metrics")
    if isinstance(metrics, list):
        found["metrics"] = [m for m in map(_metric, metrics[:256]) if m]
    return {**found, "lastUpdatedTime": written(now)} if found else None


def written(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _metric(given: object) -> dict[str, str] | None:
    if not isinstance(given, Mapping):
        return None
    name, value = given.get("name"), given.get("value")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if _is_int(value) or isinstance(value, float):
        value = str(value)
    if not isinstance(name, str) or not isinstance(value, str) or not name or len(name) > 64 or len(value) > 64:
        return None
    if not name.isprintable() or not value.isprintable():
        return None
    return {"name": name, "value": value}
