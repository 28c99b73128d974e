"""Removes rejected fields from a document, so that the steps of admission after the one that rejects it can be asked as well."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem

Document = dict[str, Any]
Path = tuple[str | int, ...]

_NAME = ("metadata", "name")
_VALID_NAME = "name"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def without_rejected(document: Document, problems: Iterable[Problem]) -> Document | None:
    """Return a copy of a document without the fields that problems are about; None if it has none of them.

    A value that has to be a string becomes one, because other fields may refer to it by its text. A name becomes a valid one.

    Args:
        document: The document.
        problems: Problems with paths such as `spec.trainer.numNodes`.
    """
    kept = copy.deepcopy(document)
    places = {place_of(problem.where): problem for problem in problems if problem.where}
    for place in sorted(places, key=_deepest_and_last_first):
        parent, last = _find(kept, place[:-1]), place[-1]
        if not _has(parent, last):
            continue
        if place == _NAME:
            parent[last] = _VALID_NAME
        elif "string" in places[place].why and isinstance(parent[last], (int, float)):
            parent[last] = str(parent[last])
        else:
            del parent[last]
    return None if kept == document else kept


def is_about(problem: Problem, others: Iterable[Problem]) -> bool:
    """Return whether a problem is about a field of other problems, a part of it, or what it is a part of."""
    place = place_of(problem.where)
    for other in others:
        shorter = min(len(place), len(place_of(other.where)))
        if other.where and place[:shorter] == place_of(other.where)[:shorter]:
            return True
    return False


def place_of(path: str) -> Path:
    """Return the keys and indices in a path such as `spec.containers[0].env[1].name`."""
    return tuple(key or (int(index) if index.isdecimal() else index) for key, index in _STEP.findall(path))


def _deepest_and_last_first(place: Path) -> tuple[Any, ...]:
    indices = tuple(-step for step in place if isinstance(step, int))
    return -len(place), indices, *map(str, place)


def _find(document: Any, place: Sequence[str | int]) -> Any:
    for step in place:
        if not _has(document, step):
            return None
        document = document[step]
    return document


def _has(parent: Any, step: str | int) -> bool:
    if isinstance(parent, list):
        return isinstance(step, int) and step < len(parent)
    return isinstance(parent, dict) and step in parent
