"""What is wrong with objects of Kueue's that a program says, before a server is asked."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kube.schema.strict import unknown_fields
from pulumi_trainer.provider.kube.values.accessors import same, section
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.kinds import kinds
from pulumi_trainer.provider.kueue.objects import NEWEST
from pulumi_trainer.provider.kueue.review import review


def refusals(document: Mapping[str, Any]) -> list[Problem]:
    """What an API server with Kueue's webhooks would refuse of one object, by its fields; unknown fields too.

    A server ends at the first step that refuses; here, what that step refuses counts as right for the steps after it."""
    found: list[Problem] = []
    while True:
        verdict = review(dict(document))
        errors = [p for p in verdict.errors if p.where != NOWHERE] or list(verdict.errors)
        found += unknown_fields(kinds()[document["kind"]].schema, verdict.unknown) if not found else ()
        new = [p for p in errors if p not in found]
        found += new
        wrong = [p.where for p in new if p.where != NOWHERE]
        if verdict.stage in (None, "validating-webhook") or not wrong:
            break
        document = functools.reduce(_without, wrong, document)
    return [replace(p, where="") if p.where == NOWHERE else p for p in found]


def _without(value: Any, where: str) -> Any:
    """A copy in which what stands at a path is not known."""
    step = _STEP.match(where)
    if step is None:
        return Unknown(where)
    name, rest = step["name"] or step["at"], where[step.end() :]
    if isinstance(value, dict):
        return {**value, name: _without(value.get(name), rest)}
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return [_without(each, rest) if i == int(name) else each for i, each in enumerate(value)]
    return Unknown(where)


_STEP = re.compile(r"\.?(?:(?P<name>[\w-]+)|\[(?P<at>[^]]*)\])")


def frozen(document: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Problem]:
    """What a server never lets change of the object that it has: it would have to be another one.

    Source: the rules with `oldSelf` in https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta2, and the
    webhook of ClusterQueues. live: in any version that we know. A LocalQueue is made anew, see its component."""
    kind, was = document["kind"], section(live, "spec")
    names = [name for name in FROZEN.get(kind, ()) if name in was or name in section(document, "spec")]
    stored = (review(dict(document)).stored or document) if names else document
    for name in names:
        now = section(stored, "spec").get(name)
        if (kind == "ResourceFlavor" and "topologyName" not in was) or same(now, was.get(name)):
            continue
        if kind == "ClusterQueue" and name not in was and not str(live.get("apiVersion")).endswith(NEWEST):
            continue  # a version that does not have it
        why = f"never changes{' while the flavor has a topology' if kind == 'ResourceFlavor' else ''}"
        there = f", and {'is ' + _shown(was[name]) if name in was else 'is not set'} in the cluster"
        yield Problem(f"spec.{name}", why + there, _ANEW.get(kind, _OTHER).format(kind=kind))


FROZEN = {
    "Topology": ("levels",),
    "ResourceFlavor": ("topologyName", "nodeLabels", "tolerations"),
    "AdmissionCheck": ("controllerName",),
    "ClusterQueue": ("concurrentAdmissionPolicy",),
}
"""Kind -> fields of the spec; of a flavor, once it has a topology."""
_OTHER = "give this {kind} another name (name=): the update makes that one, moves to it what refers to it here, and deletes this"
_ANEW = {
    "Topology": f"{_OTHER}; flavors of it need another name as well",
    "ResourceFlavor": f"{_OTHER}; jobs that run go on",
}


def _shown(value: Any) -> str:
    """A value in a message; of the levels their labels."""
    if isinstance(value, list) and all(isinstance(each, dict) and [*each] == ["nodeLabel"] for each in value):
        return ", ".join(str(each["nodeLabel"]) for each in value)
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def conflicts(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Problem]]:
    """(index, problem) of what only shows between objects: two of one name, cohorts whose parents lead in a circle."""
    seen: dict[tuple[Any, ...], int] = {}
    parents: dict[str, str] = {}
    for at, document in enumerate(documents):
        kind, metadata = document.get("kind"), section(document, "metadata")
        name, namespace = metadata.get("name"), metadata.get("namespace")
        if isinstance(name, str) and name and isinstance(namespace, (str, NoneType)):
            if (kind, namespace, name) in seen:
                yield (
                    at,
                    Problem(
                        "name", f"another {kind} of the program is called {name} too", "give one of them another name"
                    ),
                )
            seen.setdefault((kind, namespace, name), at)
        parent = section(document, "spec").get("parentName")
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
