"""Looking into documents that may have anything anywhere, unknown leaves too. Called by the webhooks of this folder."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline.info import section as mapping

__all__ = ["listed", "mapping", "same", "texts"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """The strings of a list."""
    return [each for each in listed(value) if isinstance(each, str)]


def same(one: Any, other: Any) -> bool:
    """Whether what Go has printed is equal, and of the same types. Unknown leaves are equal to everything."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)
