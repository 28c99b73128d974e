"""Removes rejected fields from a document, so that the steps of admission after the one that rejects it can be asked as well."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kubernetes.values.documents import split_path

Path = tuple[str, ...]

_NO_PATH = "<nil>"
_NAME = ("metadata", "name")
_VALID_NAME = "name"


def without_rejected(document: Document, problems: Iterable[Problem]) -> Document | None:
    """Return a copy of a document without the fields that problems are about; None if it has none of them.

    A value that has to be a string becomes one, because other fields may refer to it by its text. A name becomes a valid one.
    """
    kept = copy.deepcopy(document)
    places = {split_path(problem.where): problem for problem in problems if problem.where}
    for place in sorted(places, key=_depth_and_order, reverse=True):
        parent = _find(kept, place[:-1])
        at = _key_in(parent, place[-1])
        if at is None:
            continue
        if place == _NAME:
            parent[at] = _VALID_NAME
        elif "string" in places[place].why and isinstance(parent[at], (int, float)):
            parent[at] = str(parent[at])
        else:
            del parent[at]
    if kept == document:
        return None
    return kept


def about_others(problems: Iterable[Problem], rejected: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are not about a rejected field, a part of it, or what it is a part of.

    Args:
        problems: What a later step rejects. A problem without a path is left out: it summarizes others.
    """
    places = {split_path(each.where) for each in rejected} - {()}
    above = set(chain.from_iterable(map(_beginnings, places)))
    found = []
    for problem in problems:
        place = split_path(problem.where)
        if place and problem.where != _NO_PATH and place not in above and places.isdisjoint(_beginnings(place)):
            found.append(problem)
    return found


def _beginnings(place: Path) -> Iterator[Path]:
    return (place[:depth] for depth in range(1, len(place) + 1))


def _depth_and_order(place: Path) -> tuple[int, list[str]]:
    """Return a key that sorts places by their depth, and the items of a list by their index."""
    return len(place), [step.zfill(9) for step in place]


def _find(document: Any, place: Path) -> Any:
    for step in place:
        at = _key_in(document, step)
        if at is None:
            return None
        document = document[at]
    return document


def _key_in(parent: Any, step: str) -> str | int | None:
    """Return the key or index of a step in its parent; None if not found."""
    if isinstance(parent, list) and step.isdecimal() and int(step) < len(parent):
        return int(step)
    if isinstance(parent, dict) and step in parent:
        return step
    return None
