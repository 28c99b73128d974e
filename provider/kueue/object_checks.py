"""Checks of Kueue's objects in a program that need no cluster."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kubernetes.schema.strict import unknown_fields
from pulumi_trainer.provider.kubernetes.values.accessors import equal_as_go, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.admission_review import review
from pulumi_trainer.provider.kueue.crd_schemas import kinds
from pulumi_trainer.provider.kueue.objects import NEWEST, VERSIONS
from pulumi_trainer.provider.kueue.quota import find_cycles


def refusals(document: Mapping[str, Any]) -> list[Problem]:
    """Return what an API server with Kueue's webhooks rejects of an object, unknown fields included.

    A server stops at the first step that rejects. Here the rejected fields count as valid in the following steps.
    """
    found: list[Problem] = []
    while True:
        verdict = review(dict(document))
        errors = [p for p in verdict.errors if p.where != NOWHERE] or list(verdict.errors)
        if not found:
            found += unknown_fields(kinds()[document["kind"]].schema, verdict.unknown)
        new = [p for p in errors if p not in found]
        found += new
        wrong = [p.where for p in new if p.where != NOWHERE]
        if verdict.stage in (None, "validating-webhook") or not wrong:
            break
        document = functools.reduce(_without, wrong, document)
    reported = []
    for problem in found:
        if problem.where == NOWHERE:
            problem = replace(problem, where="")
        reported.append(problem)
    return reported


def _without(value: Any, where: str) -> Any:
    """Return a copy of a value in which the value at a path is unknown."""
    step = _STEP.match(where)
    if step is None:
        return Unknown(where)
    name, rest = step["name"] or step["at"], where[step.end() :]
    if isinstance(value, dict):
        return {**value, name: _without(value.get(name), rest)}
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        at = int(name)
        return [*value[:at], _without(value[at], rest), *value[at + 1 :]]
    return Unknown(where)


_STEP = re.compile(r"\.?(?:(?P<name>[\w-]+)|\[(?P<at>[^]]*)\])")


def immutable_changes(
    document: Mapping[str, Any], live: Mapping[str, Any], versions: Collection[str] = VERSIONS
) -> Iterator[Problem]:
    """Yield a problem for each immutable field that a document changes.

    Source: the rules with `oldSelf` in https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta2, and the
    webhook of ClusterQueues. LocalQueues are not included: their component replaces them.

    Args:
        live: The object in the cluster, in any known version.
        versions: API versions that the cluster serves. Kueue 0.20 does not serve v1beta1; some fields may change there, and
            whether a change is valid is left to its API server.
    """
    kind, was = document["kind"], section(live, "spec")
    names = [name for name in FROZEN.get(kind, ()) if name in was or name in section(document, "spec")]
    if "v1beta1" not in versions:
        names = [name for name in names if name not in _MUTABLE_SINCE_0_20]
    stored = document
    if names:
        stored = review(dict(document)).stored or document
    for name in names:
        now = section(stored, "spec").get(name)
        if (kind == "ResourceFlavor" and "topologyName" not in was) or equal_as_go(now, was.get(name)):
            continue
        if kind == "ClusterQueue" and name not in was and not str(live.get("apiVersion")).endswith(NEWEST):
            continue  # a version that does not have it
        why = "is immutable"
        if kind == "ResourceFlavor":
            why = "is immutable while the flavor has a topology"
        if name in _MUTABLE_SINCE_0_20:
            why += " before Kueue 0.20"
        value = "is not set"
        if name in was:
            value = f"is {_shown(was[name])}"
        hint = _RENAME_KIND.get(kind, _RENAME).format(kind=kind)
        yield Problem(f"spec.{name}", f"{why}, and {value} in the cluster", hint)


FROZEN = {
    "Topology": ("levels",),
    "ResourceFlavor": ("topologyName", "nodeLabels", "tolerations"),
    "AdmissionCheck": ("controllerName",),
    "ClusterQueue": ("concurrentAdmissionPolicy",),
}
"""Kind -> immutable fields of the spec; those of a flavor only once it has a topology."""
_MUTABLE_SINCE_0_20 = {"levels", "nodeLabels", "tolerations"}
"""Source: the rules with `oldSelf` in https://github.com/kubernetes-sigs/kueue/tree/ff69552e/apis/kueue/v1beta2; `levels` only
while the last one is kubernetes.io/hostname."""
_RENAME = (
    "give this {kind} another name (name=): the update creates the new {kind}, moves this program's references to"
    " it, and deletes the old one"
)
_RENAME_KIND = {
    "Topology": f"{_RENAME}; its flavors need another name too",
    "ResourceFlavor": f"{_RENAME}; running jobs continue",
}


def _shown(value: Any) -> str:
    """Return a value for a message; levels of a topology as their labels."""
    if isinstance(value, list) and all(isinstance(each, dict) and [*each] == ["nodeLabel"] for each in value):
        return ", ".join(str(each["nodeLabel"]) for each in value)
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)


def conflicts(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Problem]]:
    """Yield index and problem of objects that conflict: two of one name, or cohorts that form a cycle."""
    first: dict[tuple[Any, ...], int] = {}
    parents: dict[str, str] = {}
    for i, document in enumerate(documents):
        kind, metadata = document.get("kind"), section(document, "metadata")
        name, namespace = metadata.get("name"), metadata.get("namespace")
        if isinstance(name, str) and name and isinstance(namespace, (str, NoneType)):
            if (kind, namespace, name) in first:
                why = f"another {kind} of the program has the name {name} too"
                yield i, Problem("name", why, "give one of them another name")
            first.setdefault((kind, namespace, name), i)
        parent = section(document, "spec").get("parentName")
        if kind == "Cohort" and isinstance(name, str) and isinstance(parent, str) and parent:
            parents[name] = parent
    for cycle in find_cycles(parents):
        first_member = cycle.index(min(cycle))
        cycle = (*cycle[first_member:], *cycle[:first_member])
        path = " -> ".join((*cycle, cycle[0]))
        problem = Problem("spec.parentName", f"is a cycle: {path}", "a cohort cannot be its own ancestor")
        yield first["Cohort", None, cycle[0]], problem
