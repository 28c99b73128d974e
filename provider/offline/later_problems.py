"""Removes rejected fields from a document, so that the steps of admission after the one that rejects it can be asked as well."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem

Document = dict[str, Any]
Path = tuple[str | int, ...]

_NO_PATH = "<nil>"
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


def about_others(problems: Iterable[Problem], rejected: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are not about a rejected field, a part of it, or what it is a part of.

    Args:
        problems: What a later step rejects. A problem without a path is left out: it summarizes others.
        rejected: What earlier steps have rejected.
    """
    places = {place_of(each.where) for each in rejected} - {()}
    above = set(chain.from_iterable(map(_beginnings, places)))
    found = []
    for problem in problems:
        place = place_of(problem.where)
        if place and problem.where != _NO_PATH and place not in above and places.isdisjoint(_beginnings(place)):
            found.append(problem)
    return found


def _beginnings(place: Path) -> Iterator[Path]:
    return (place[:depth] for depth in range(1, len(place) + 1))


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
