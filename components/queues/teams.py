"""The arguments of `GpuQueues`, and their checks in terms of these arguments, not of the created objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, as_sequence, nested_problems, shown_value
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_subdomain, name_problems, qualified_name
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity, quantity_problems
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.kueue.flavor_memory import MEMORY, read_memory
from pulumi_trainer.provider.kueue.prices import PRICE, read_budget, read_price
from pulumi_trainer.queues.arguments import ResourceQuota
from pulumi_trainer.queues.component import current
from pulumi_trainer.queues.flavors import ResourceFlavor, Topology
from pulumi_trainer.queues.objects import Cohort


class Team(Args):
    """A team's share of the GPUs.

    Args:
        gpus: GPUs of the team; with several kinds of GPU a mapping from kind to number; 0: none of any kind.
        namespace: Namespace of the team's jobs; default: the team's name.
        borrowing: GPUs of each kind that the team may borrow, or True or False; or a mapping from kind to number or True, where
            kinds that are left out are not borrowed. Default: `borrowing` of the component.
        lending: GPUs of each kind that others may borrow; default: all.
        weight: Weight where the cluster shares fairly; default: 1.
        hold: Whether no further jobs of the team start (`stopPolicy: Hold` of its LocalQueue); running jobs continue, and others
            may borrow the team's quota. Default: False.
        renamed_from: Earlier name of the team; it requires `namespace`. The ClusterQueue keeps its name and its quota, and a
            LocalQueue of the earlier name stays, so that jobs that run or wait keep their place; default: none.
        budget: What the team may use in a calendar month (UTC): money such as "20000 USD", or "5000 GPU-hours". A plan that
            goes beyond it is warned of (PT230); nothing stops jobs. Default: no limit.
    """

    gpus: int | Mapping[str, int] | None = None
    namespace: str | None = None
    borrowing: bool | int | Mapping[str, bool | int] | None = None
    lending: int | None = None
    weight: float | str | None = None
    hold: bool | None = None
    renamed_from: str | None = None
    budget: str | None = None


class TeamPlace(pulumi.ComponentResource):
    """The base of `TeamNamespace`: what `GpuQueues` needs of it.

    Attributes:
        name: Name of the team and of its namespace.
        share: Its share of the GPUs; None if it has none.
    """

    name: str
    share: Team | None


def read_teams(given: Any) -> tuple[Any, dict[str, TeamPlace], list[Problem]]:
    """Return teams by name, the `TeamNamespace` of each that was given as one, and what is wrong with a list of these."""
    if not any(isinstance(each, TeamPlace) for each in as_sequence(given)):
        return given, {}, []
    shares, places, found = dict[str, Team](), dict[str, TeamPlace](), list[Problem]()
    for number, each in enumerate(given):
        where = f"teams[{number}]"
        if not isinstance(each, TeamPlace):
            found.append(Problem(where, f"must be a TeamNamespace, not {shown_value(each)}"))
        elif each.name in shares:
            found.append(Problem(where, f"{each.name} is a duplicate"))
        elif not isinstance(each.share, Team | None):
            continue  # its own problem
        elif each.share is None:
            hint = f"give TeamNamespace({each.name!r}, share=Team(gpus=...)), or leave it out here"
            found.append(Problem(where, f"{each.name} has no share of the GPUs", hint))
        else:
            shares[each.name] = Team(**{**vars(each.share), "namespace": each.name})
            places[each.name] = each
    return shares, places, found


def as_team(share: Any) -> Team:
    """Return a team's share of the GPUs as a `Team`."""
    if isinstance(share, Team):
        return share
    return Team(gpus=share)


def team_problems(given: Mapping[str, Any], distributed: Collection[str], own: str) -> Iterator[Problem]:
    """Yield the problems that the created objects could not report in terms of these arguments."""
    teams, kinds, topology, cohort = given["teams"], given["gpus"], given["topology"], given["cohort"]
    yield from _name("name", own)
    for argument in ("gpus", "topology", "others", "priorities"):
        yield from nested_problems(given[argument], argument)
    if not isinstance(teams, Mapping) or not teams:
        yield Problem("teams", "must name at least one team and its GPUs", 'for example teams={"nlp": 16}')
    if not isinstance(kinds, Mapping) or not kinds:
        yield Problem("gpus", "must be a mapping from kinds of GPUs to labels of their nodes")
    if not isinstance(kinds, Mapping):
        kinds = {}
    for kind, labels in kinds.items():
        if not isinstance(labels, ResourceFlavor) and kind != own:
            yield from _name(f"gpus[{kind}]", kind)
        if labels is not None and not isinstance(labels, (Mapping, ResourceFlavor)):
            yield Problem(f"gpus[{kind}]", f"must be labels of nodes or a ResourceFlavor, not {labels!r}")
        elif topology is not None and not labels:
            hint = f'for example gpus={{"{kind}": {{"label": "value"}}}}'
            yield Problem(f"gpus[{kind}]", "needs a label of its nodes, since topology= is set", hint)
    if topology is not None and (isinstance(topology, str) or not isinstance(topology, (Topology, Sequence))):
        yield Problem("topology", f"must be a list of node labels or a Topology, not {topology!r}")
    yield from _limit("borrowing", given["borrowing"])
    if cohort is True or not isinstance(cohort, (Cohort, str, bool, type(None))):
        yield Problem("cohort", f"must be a Cohort, a name or False, not {cohort!r}")
    elif isinstance(cohort, str):
        yield from _name("cohort", cohort)
    yield from _priorities(given["priorities"])
    yield from _other_quota_problems(given["others"], distributed)
    yield from _of_kinds("prices", given["prices"], kinds, f'annotations={{"{PRICE}": "3.20 USD"}}', read_price)
    yield from _of_kinds("memory", given["memory"], kinds, f'annotations={{"{MEMORY}": "80Gi"}}', read_memory)
    if not isinstance(teams, Mapping):
        return
    for team, each in teams.items():
        yield from _name(f"teams[{team}]", team)
        share = as_team(each)
        yield from problems_below(f"teams[{team}]", nested_problems(share))
        yield from problems_below(f"teams[{team}]", _share(share, list(kinds)))
        yield from problems_below(f"teams[{team}]", _renaming(team, share, teams))


def _priorities(given: Any) -> Iterator[Problem]:
    if isinstance(given, str) or not isinstance(given, (Sequence, Mapping)):
        yield Problem("priorities", f"must be names from the lowest to the highest, or names and values, not {given!r}")
        return
    for i, each in enumerate(given):
        yield from _name(f"priorities[{each}]", each)
        if each in list(given)[:i]:
            yield Problem(f"priorities[{each}]", "is a duplicate", "remove one of them")


def _other_quota_problems(given: Any, distributed: Collection[str]) -> Iterator[Problem]:
    if not isinstance(given, Mapping):
        yield Problem("others", "must be a mapping from resources to quotas")
        return
    for name, quota in given.items():
        where = f"others[{name}]"
        if name in distributed:
            yield Problem(
                where, "is the resource that teams= distributes", "leave it out, or name other GPUs (resource=)"
            )
        yield from name_problems(where, str(name), qualified_name, "resource name", "for example nvidia.com/gpu")
        if isinstance(quota, (ResourceQuota, pulumi.Output)):
            continue
        if isinstance(quota, bool) or not isinstance(quota, (int, float, str)):
            yield Problem(where, f"must be a quantity, not {quota!r}")
            continue
        malformed = quantity_problems(str(quota))
        if malformed:
            yield from problems_below(where, malformed)
        elif Quantity.parse(str(quota)).amount < 0:
            yield Problem(where, f"must be 0 or more, not {quota}")


def _of_kinds(
    argument: str, given: Any, kinds: Mapping[Any, Any], annotation: str, read: Callable[[Any], Any]
) -> Iterator[Problem]:
    """Yield the problems of what kinds of GPUs have: prices or memory, which become annotations of their flavors."""
    if given is not None and not isinstance(given, Mapping):
        yield Problem(argument, f"must be a mapping from kinds of GPUs to {argument}, not {given!r}")
        return
    for kind, value in (given or {}).items():
        where = f"{argument}[{kind}]"
        if kind not in kinds:
            yield Problem(where, "unknown kind of GPU", f"available: {', '.join(map(str, kinds))}")
        elif isinstance(kinds[kind], ResourceFlavor):
            yield Problem(
                where, "that of a ResourceFlavor is one of its annotations", f"give that ResourceFlavor {annotation}"
            )
        yield from _amount_problems(where, value, read)


def _amount_problems(where: str, given: Any, read: Callable[[Any], Any]) -> Iterator[Problem]:
    try:
        read(given)
    except Invalid as error:
        yield from problems_below(where, error.problems)


def _name(where: str, given: Any) -> Iterator[Problem]:
    """Yield why a value is not a valid name of an object."""
    if not isinstance(given, str) or not given:
        yield Problem(where, f"must be a name, not {given!r}")
        return
    yield from name_problems(where, given, dns_1123_subdomain)


def duplicate_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the objects that another GpuQueues of the program creates as well: they would be one resource of the stack."""
    made = {(m.kind, m.resource_name): m.above.where for m in current().members if m.above is not None}
    priorities, kinds, cohort = given["priorities"], given["gpus"], given["cohort"]
    if isinstance(priorities, (list, tuple, Mapping)):
        again: dict[str, list[str]] = {}
        for name in priorities:
            if isinstance(name, str) and ("WorkloadPriorityClass", name) in made:
                again.setdefault(made["WorkloadPriorityClass", name], []).append(name)
        for where, names in again.items():
            hint = "give this one priorities=(), or other names"
            yield Problem("priorities", f"{where} creates the WorkloadPriorityClasses {', '.join(names)} too", hint)
    if isinstance(kinds, Mapping):
        for kind, labels in kinds.items():
            if not isinstance(labels, ResourceFlavor) and ("ResourceFlavor", kind) in made:
                hint = "choose another name, or create one ResourceFlavor for both"
                yield Problem(f"gpus[{kind}]", f"{made['ResourceFlavor', kind]} creates a flavor {kind} too", hint)
    if isinstance(cohort, str) and ("Cohort", cohort) in made:
        hint = "create one Cohort for both, or choose another name"
        yield Problem("cohort", f"{made['Cohort', cohort]} creates a cohort {cohort} too", hint)


def without_invalid(given: Mapping[str, Any], found: Sequence[Problem]) -> dict[str, Any]:
    """Return the arguments without the invalid ones, so that the others can be checked."""
    instead = {
        "teams": {}, "gpus": {}, "cohort": False, "borrowing": True, "priorities": {}, "topology": None, "others": {},
        "prices": {}, "memory": {},
    }  # fmt: skip
    refused = [p.where for p in found]
    kept: dict[str, Any] = {}
    for name, value in given.items():
        parts = isinstance(value, Mapping)
        unnamed = "name" in refused and name in ("teams", "gpus", "cohort", "topology")  # which are called like it
        about_it = [w for w in refused if w == name or (not parts and w.startswith((f"{name}[", f"{name}.")))]
        if unnamed or about_it:
            kept[name] = instead[name]
        elif parts:
            kept[name] = _valid_parts(name, value, refused)
        else:
            kept[name] = value
    return kept


def _valid_parts(name: str, parts: Mapping[Any, Any], refused: Sequence[str]) -> dict[Any, Any]:
    """Return the entries of an argument that no problem is about."""
    valid = {}
    for key, value in parts.items():
        at = f"{name}[{key}]"
        if not any(where.startswith(at) for where in refused):
            valid[key] = value
    return valid


def _share(share: Team, kinds: list[str]) -> Iterator[Problem]:
    gpus, borrowing, lending = (share.__dict__.get(name) for name in ("gpus", "borrowing", "lending"))
    for argument, given in (("gpus", gpus), ("borrowing", borrowing)):
        for kind in [*given] if isinstance(given, Mapping) else []:
            if kind not in kinds:
                yield Problem(
                    f"{argument}[{kind}]",
                    "unknown kind of GPU",
                    did_you_mean(kind, kinds, f"available: {', '.join(kinds)}"),
                )
    if not isinstance(gpus, Mapping) and len(kinds) > 1 and gpus != 0:
        yield Problem(
            "gpus",
            "must be a mapping from kinds of GPUs to numbers, since gpus= names several kinds",
            f"for example {{{kinds[0]!r}: {gpus!r}}}",
        )
    numbers: Mapping[Any, Any] = {"": gpus}
    if isinstance(gpus, Mapping):
        numbers = gpus
    for kind, number in numbers.items():
        at = "gpus"
        if kind:
            at = f"gpus[{kind}]"
        if isinstance(number, bool) or not isinstance(number, int):
            yield Problem(at, f"must be a number of GPUs, not {number!r}")
        elif number < 0:
            yield Problem(at, f"must be 0 or more, not {number}")
    if isinstance(borrowing, Mapping):
        for kind, number in borrowing.items():
            yield from _limit(f"borrowing[{kind}]", number)
    elif borrowing is not None:
        yield from _limit("borrowing", borrowing)
    if lending is not None:
        if isinstance(lending, bool):
            yield Problem(
                "lending", f"must be a number of GPUs, not {lending}", "0 lends none; leave it out to lend all"
            )
        else:
            yield from _limit("lending", lending)
    if share.__dict__.get("budget") is not None:
        yield from _amount_problems("budget", share.__dict__["budget"], read_budget)
    hold, weight = share.__dict__.get("hold"), share.__dict__.get("weight")
    if not isinstance(hold, bool | None):
        yield Problem("hold", f"must be True or False, not {hold!r}")
    if weight is not None:
        yield from problems_below("weight", quantity_problems(str(weight)))


def _renaming(team: str, share: Team, teams: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield why a team cannot have the earlier name that it gives."""
    earlier = share.__dict__.get("renamed_from")
    if earlier is None:
        return
    yield from _name("renamed_from", earlier)
    if not isinstance(earlier, str):
        return
    if share.__dict__.get("namespace") is None:
        why = "requires namespace=, since the team's jobs stay in their namespace"
        yield Problem("renamed_from", why, f"give Team(namespace={earlier!r}) if the team had no other")
    if earlier in teams:
        yield Problem("renamed_from", f"{earlier} is still one of the teams", f"remove the team {earlier}")
    for other, each in teams.items():
        if other != team and isinstance(each, Team) and each.__dict__.get("renamed_from") == earlier:
            yield Problem("renamed_from", f"{other} is renamed from {earlier} too")


def _limit(where: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, int):
        yield Problem(where, f"must be True, False or a number of GPUs, not {value!r}")
    elif value < 0:
        yield Problem(where, f"must be 0 or more, not {value}")
