"""What is wrong with objects of Kueue's that a program says, before a server is asked. Called by the components of queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.unknown import Unknown

from .faults import NOWHERE
from .reading import mapping
from .server import review
from .strict import unknown_fields


def refusals(document: Mapping[str, Any]) -> list[Problem]:
    """What an API server with Kueue's webhooks would refuse of one object, by its fields; unknown fields too."""
    verdict = review(document)
    found = [p for p in verdict.errors if p.where != NOWHERE] or list(verdict.errors)
    found = [*unknown_fields(document["kind"], verdict.unknown), *found]
    return [replace(p, where="") if p.where == NOWHERE else p for p in found]


def conflicts(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Problem]]:
    """(index, problem) of what only shows between objects: two of one name, cohorts whose parents lead in a circle."""
    seen: dict[tuple[Any, ...], int] = {}
    parents: dict[str, str] = {}
    for at, document in enumerate(documents):
        kind, metadata = document.get("kind"), mapping(document, "metadata")
        name, namespace = metadata.get("name"), metadata.get("namespace")
        if isinstance(name, str) and name and not isinstance(namespace, Unknown):
            if (kind, namespace, name) in seen:
                yield (
                    at,
                    Problem("name", f"another {kind} of the program is called {name} too", "give one another name="),
                )
            seen.setdefault((kind, namespace, name), at)
        parent = mapping(document, "spec").get("parentName")
        if kind == "Cohort" and isinstance(name, str) and isinstance(parent, str) and parent:
            parents[name] = parent
    for cycle in _cycles(parents):
        way = " -> ".join((*cycle, cycle[0]))
        yield (
            seen["Cohort", None, cycle[0]],
            Problem("spec.parentName", f"leads in a circle: {way}", "a cohort cannot stand above itself"),
        )


def _cycles(parents: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Each once, from its first member in alphabetical order."""
    told: set[str] = set()
    for start in sorted(parents):
        way = [start]
        while (above := parents.get(way[-1])) is not None and above not in way:
            way.append(above)
        if above is not None:
            cycle = way[way.index(above) :]
            first = cycle.index(min(cycle))
            if not told & set(cycle):
                yield tuple(cycle[first:] + cycle[:first])
            told |= set(cycle)
