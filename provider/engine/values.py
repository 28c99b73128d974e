"""Converts values between Pulumi's engine and the plain data that the lifecycle works with."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


def to_plain(value: Any) -> Any:
    """Return the value with whole floats as ints (every number arrives as a float) and unknown values as `Unknown`."""
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items() if k != "__provider"}
    if isinstance(value, list):
        return [*map(to_plain, value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, type(pulumi.UNKNOWN)):
        return Unknown("")
    return value


def to_engine(value: Any) -> Any:
    """Return a value with `Unknown` as the engine expects it."""
    if isinstance(value, dict):
        return {k: to_engine(v) for k, v in value.items()}
    if isinstance(value, list):
        return [*map(to_engine, value)]
    if isinstance(value, Unknown):
        return pulumi.UNKNOWN
    return value
