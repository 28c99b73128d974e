"""The arguments of `GpuQueues`, and what is wrong with them, in their own words and not in those of the objects they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, nested_problems
from pulumi_trainer.provider.api.model import quantity_problems
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.names import dns_1123_subdomain, qualified_name
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.queues.arguments import ResourceQuota
from pulumi_trainer.queues.component import current
from pulumi_trainer.queues.objects import Cohort, ResourceFlavor, Topology


class Team(Args):
    """A team's share.

    gpus: its own GPUs; of several kinds, a mapping from the kind to the number. namespace: of its jobs, default its name.
    borrowing: how many more it may borrow, of each kind; default: what the component says. lending: how many of its own it
    lends; default: all. weight: of what can be borrowed, where the cluster shares fairly; default 1.
    """

    gpus: int | Mapping[str, int] | None = None
    namespace: str | None = None
    borrowing: bool | int | None = None
    lending: int | None = None
    weight: float | str | None = None


def wrong(given: Mapping[str, Any], resource: str, own: str) -> Iterator[Problem]:
    """What the objects could not say in the words of this component's arguments. own: what the component is called."""
    teams, kinds, topology, cohort = given["teams"], given["gpus"], given["topology"], given["cohort"]
    yield from _name("name", own)
    for argument in ("gpus", "topology", "others", "priorities"):
        yield from nested_problems(given[argument], argument)
    if not isinstance(teams, Mapping) or not teams:
        yield Problem("teams", "must name at least one team and its GPUs", 'for example teams={"nlp": 16}')
    if not isinstance(kinds, Mapping) or not kinds:
        yield Problem("gpus", "must be a mapping from kinds of GPUs to labels of their nodes")
    kinds = kinds if isinstance(kinds, Mapping) else {}
    for kind, labels in kinds.items():
        if not isinstance(labels, ResourceFlavor) and kind != own:
            yield from _name(f"gpus[{kind}]", kind)
        if labels is not None and not isinstance(labels, (Mapping, ResourceFlavor)):
            yield Problem(f"gpus[{kind}]", f"must be labels of nodes or a ResourceFlavor, not {labels!r}")
        elif topology is not None and not labels:
            mend = f'for example gpus={{"{kind}": {{"label": "value"}}}}'
            yield Problem(f"gpus[{kind}]", "needs a label of its nodes, as there is a topology", mend)
    if topology is not None and (isinstance(topology, str) or not isinstance(topology, (Topology, Sequence))):
        yield Problem("topology", f"must be a list of node labels or a Topology, not {topology!r}")
    yield from _limit("borrowing", given["borrowing"])
    if cohort is True or not isinstance(cohort, (Cohort, str, bool, type(None))):
        yield Problem("cohort", f"must be a Cohort, a name or False, not {cohort!r}")
    elif isinstance(cohort, str):
        yield from _name("cohort", cohort)
    yield from _priorities(given["priorities"])
    yield from _others(given["others"], resource)
    for team, share in teams.items() if isinstance(teams, Mapping) else ():
        yield from _name(f"teams[{team}]", team)
        share = share if isinstance(share, Team) else Team(gpus=share)
        yield from (p.below(f"teams[{team}]") for p in nested_problems(share))
        yield from (p.below(f"teams[{team}]") for p in _share(share, list(kinds)))


def _priorities(given: Any) -> Iterator[Problem]:
    if isinstance(given, str) or not isinstance(given, (Sequence, Mapping)):
        yield Problem("priorities", f"must be names from the lowest to the highest, or names and values, not {given!r}")
        return
    for i, each in enumerate(given):
        yield from _name(f"priorities[{each}]", each)
        if each in list(given)[:i]:
            yield Problem(f"priorities[{each}]", "is there twice")


def _others(given: Any, resource: str) -> Iterator[Problem]:
    if not isinstance(given, Mapping):
        yield Problem("others", "must be a mapping from resources to quotas")
        return
    for name, quota in given.items():
        where = f"others[{name}]"
        if name == resource:
            yield Problem(where, "is what `teams` give out", "leave it out, or name other GPUs (resource=)")
        yield from (Problem(where, f"{name!r} can be no resource: {why}") for why in qualified_name(str(name)))
        if isinstance(quota, (ResourceQuota, pulumi.Output)):
            continue
        if isinstance(quota, bool) or not isinstance(quota, (int, float, str)):
            yield Problem(where, f"must be a quantity, not {quota!r}")
        elif unread := quantity_problems(str(quota)):
            yield from (p.below(where) for p in unread)
        elif Quantity.parse(str(quota)).amount < 0:
            yield Problem(where, f"must be 0 or more, not {quota}")


def _name(where: str, given: Any) -> Iterator[Problem]:
    """Of an object that is called like this."""
    if not isinstance(given, str) or not given:
        yield Problem(where, f"must be a name, not {given!r}")
    else:
        yield from (Problem(where, f"{given!r} can be no name: {why}") for why in dns_1123_subdomain(given))


def twice(given: Mapping[str, Any]) -> Iterator[Problem]:
    """What another GpuQueues of the program makes: they would be one resource of the stack."""
    made = {(m.kind, m.resource_name): m.above.where for m in current().members if m.above is not None}
    priorities, kinds, cohort = given["priorities"], given["gpus"], given["cohort"]
    if isinstance(priorities, (list, tuple, Mapping)):
        names = [p for p in priorities if isinstance(p, str)]
        both = [(made["WorkloadPriorityClass", p], p) for p in names if ("WorkloadPriorityClass", p) in made]
        for where in dict.fromkeys(where for where, _ in both):
            again = ", ".join(p for w, p in both if w == where)
            mend = "give the second one priorities=(), or other names"
            yield Problem("priorities", f"{where} makes {again} too", mend)
    for kind, labels in kinds.items() if isinstance(kinds, Mapping) else ():
        if not isinstance(labels, ResourceFlavor) and ("ResourceFlavor", kind) in made:
            mend = "call it otherwise, or make a ResourceFlavor and give it to both"
            yield Problem(f"gpus[{kind}]", f"{made['ResourceFlavor', kind]} makes a flavor {kind} too", mend)
    if isinstance(cohort, str) and ("Cohort", cohort) in made:
        mend = "make a Cohort and give it to both, or call it otherwise"
        yield Problem("cohort", f"{made['Cohort', cohort]} makes a cohort {cohort} too", mend)


def right(given: Mapping[str, Any], found: Sequence[Problem]) -> dict[str, Any]:
    """The arguments without what is wrong, so that the rest can be checked as well."""
    instead = {
        "teams": {}, "gpus": {}, "cohort": False, "borrowing": True, "priorities": {}, "topology": None, "others": {},
    }  # fmt: skip
    told = [p.where for p in found]
    kept: dict[str, Any] = {}
    for name, value in given.items():
        parts = isinstance(value, Mapping)
        unnamed = "name" in told and name in ("teams", "gpus", "cohort", "topology")  # which are called like it
        whole = unnamed or [w for w in told if w == name or (not parts and w.startswith((f"{name}[", f"{name}.")))]
        kept[name] = instead[name] if whole else value
        if parts and not whole:
            at = {key: f"{name}[{key}]" for key in value}
            kept[name] = {k: v for k, v in value.items() if not any(w.startswith(at[k]) for w in told)}
    return kept


def _share(share: Team, kinds: list[str]) -> Iterator[Problem]:
    gpus = share.__dict__.get("gpus")
    if isinstance(gpus, Mapping):
        for kind in gpus.keys() - set(kinds):
            yield Problem(f"gpus[{kind}]", "is no kind of GPU here", f"known: {', '.join(kinds)}")
    elif len(kinds) > 1:
        yield Problem("gpus", "must say how many of each kind", f"for example {{{kinds[0]!r}: {gpus!r}}}")
    for where, number in gpus.items() if isinstance(gpus, Mapping) else (("", gpus),):
        at = f"gpus[{where}]" if where else "gpus"
        if isinstance(number, bool) or not isinstance(number, int):
            yield Problem(at, f"must be a number of GPUs, not {number!r}")
        elif number < 0:
            yield Problem(at, f"must be 0 or more, not {number}")
    if (borrowing := share.__dict__.get("borrowing")) is not None:
        yield from _limit("borrowing", borrowing)
    if (lending := share.__dict__.get("lending")) is not None:
        yield from _limit("lending", lending)
    if (weight := share.__dict__.get("weight")) is not None:
        yield from (p.below("weight") for p in quantity_problems(str(weight)))


def _limit(where: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, int):
        yield Problem(where, f"must be True, False or a number of GPUs, not {value!r}")
    elif value < 0:
        yield Problem(where, f"must be 0 or more, not {value}")
