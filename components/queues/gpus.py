"""The component `GpuQueues`, which shares the GPUs of a cluster among teams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import as_mapping, shown_value, walk
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.program import messages, session
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.drift import Drift
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import text, without
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_subdomain
from pulumi_trainer.provider.kueue.flavor_memory import MEMORY
from pulumi_trainer.provider.kueue.objects import BOUNDLESS, quota_rows, quota_table
from pulumi_trainer.provider.kueue.prices import BUDGET, PRICE, read_budget, read_price
from pulumi_trainer.provider.trainer.labels import RENAMED_TO
from pulumi_trainer.queues.arguments import FairSharing, Preemption, ResourceQuota
from pulumi_trainer.queues.component import Composed, current
from pulumi_trainer.queues.flavors import ResourceFlavor, Topology
from pulumi_trainer.queues.objects import ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass, release_problems
from pulumi_trainer.queues.quotas import FlavorQuotas, ResourceGroup
from pulumi_trainer.queues.teams import (
    Team,
    TeamPlace,
    as_team,
    duplicate_problems,
    read_teams,
    team_problems,
    without_invalid,
)

GPU = "nvidia.com/gpu"
PRIORITIES = ("low", "normal", "high")
STEP = 1000
"""Difference between two adjacent priorities; the middle one is 0, the priority of jobs without a class."""


class Queues(dict[str, LocalQueue]):
    """LocalQueues by team; an unknown team ends the program with the problems and without a traceback."""

    def __init__(self, where: str, why: Sequence[str]) -> None:
        self._where, self._why = where, why

    def __missing__(self, team: str) -> LocalQueue:
        current().refuse([])
        lines = [f"{self._where} has no queue of {team!r}:"]
        lines += [f"  {why}" for why in self._why]
        raise messages.failure("\n".join(lines))


class GpuQueuesArgs(ComponentArgs):
    """The arguments of `GpuQueues`."""

    teams: Mapping[str, int | Mapping[str, int] | Team] | Sequence[TeamPlace]
    gpus: Mapping[str, Mapping[str, str] | ResourceFlavor | None] | None = None
    cohort: Cohort | str | bool | None = None
    borrowing: bool | int = True
    priorities: Sequence[str] | Mapping[str, int] = PRIORITIES
    topology: Topology | Sequence[str] | None = None
    resource: str | Mapping[str, str] = GPU
    others: Mapping[str, Any] | None = None
    prices: Mapping[str, float | str] | None = None
    memory: Mapping[str, str] | None = None
    on_delete: Literal["refuse", "drain"] = "refuse"
    drain_seconds: float = 300
    drift: Drift | None = None
    adopt: bool | Literal["existing"] = False
    name: str | None = None
    target: Kubernetes | None = None


class GpuQueues(Composed):
    """Kueue's objects for a cluster whose teams share its GPUs.

    It creates a ResourceFlavor for each kind of GPU, a Cohort, a ClusterQueue and a LocalQueue for each team, and
    WorkloadPriorityClasses. Teams may borrow what others do not use; the owner gets it back at once when it needs it (jobs that
    borrow are suspended and wait), and within a team a job of a higher priority comes first.

    A LocalQueue has the name of its team and is in the team's namespace; no other namespace can use the team's quota.
    ClusterQueues are named `NAME-TEAM`; a renamed team keeps its ClusterQueue (`Team(renamed_from=)`). Names of a Topology,
    and of flavors with one, contain a digest of their immutable fields: other levels or labels create other objects, to
    which the queues move. Outputs: quotas (a list of rows) and table (the same as text).

    Args:
        resource_name: Name of the Pulumi resource.
        teams: Name -> GPUs of the team, or a `Team`; or the `TeamNamespace`s of teams with `share=`, whose queues are made after
            their namespaces.
        gpus: Kind of GPU -> labels of its nodes, or a `ResourceFlavor`; default: one kind, named like the component, on
            any node.
        cohort: A `Cohort`, or the name of a new one; default: a new one named like the component. False: teams
            cannot borrow.
        borrowing: What teams may borrow: True (default): whatever is idle; a number of GPUs of each kind; False:
            nothing. `Team(borrowing=)` has a number for each kind.
        priorities: Names from the lowest to the highest, 1000 apart with 0 in the middle (of two names: -1000 and 0), or
            name -> value; 0 is the priority of jobs without a class. Default: low (-1000), normal (0), high (1000).
        topology: Node labels from the widest to the narrowest, or a `Topology`, so that jobs can request one rack;
            default: none.
        resource: Resource of the GPUs, or kind -> resource for kinds that have another one, such as a profile of MIG:
            {"h100-1g": "nvidia.com/mig-1g.10gb"}; default: nvidia.com/gpu.
        others: Other resource -> quota of each team; default: practically unlimited cpu, memory and ephemeral-storage,
            with `topology` also pods.
        prices: Kind of GPU -> price of an hour of one: a number, in US dollars, or a text such as "3.20 EUR"; default: none.
            Plans and `pulumi-trainer usage` compute costs from it.
        memory: Kind of GPU -> memory of one, such as {"h100": "80Gi"}; default: what labels of its nodes state, such as
            nvidia.com/gpu.memory. Plans warn of jobs that need more.
        on_delete: What happens to jobs of a queue that is deleted, as for `ClusterQueue`: `refuse` (default) or
            `drain`.
        drain_seconds: Seconds until jobs that still use quota stop the deletion with `drain`; default: 300.
        drift: What an update does with objects that were changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over equal objects of the cluster that belong to no stack; `existing`: one that is missing is
            refused, and not created. Default: False.
        name: Name of the cohort and start of other names; default: the resource's name.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        opts: Resource options.
    """

    @constructor(GpuQueuesArgs)
    def __init__(self) -> None: ...

    def construct(self, args: GpuQueuesArgs) -> None:
        self.where = f'GpuQueues("{args.resource_name}") ({session.call_site()})'
        super().__init__("trainer:index:GpuQueues", args.resource_name, None, args.opts)
        name = text(args.name) or args.resource_name
        judged = ("teams", "gpus", "cohort", "borrowing", "priorities", "topology", "others", "prices", "memory")
        given: dict[str, Any] = {field: getattr(args, field) for field in judged}
        given["teams"], self._places, wrong = read_teams(args.teams)
        if args.gpus is None:
            given["gpus"] = {name: None}
        self._resources = _resources_by_kind(args.resource, given["gpus"])
        distributed = [*dict.fromkeys(self._resources.values())]
        if args.others is None:
            given["others"] = without(BOUNDLESS, *distributed)
            if (
                args.topology is None
            ):  # else Kueue would find no flavor for steps that request nothing, such as initializers
                given["others"] = without(given["others"], "pods")
        found = [
            *_text_problems({"name": args.name}),
            *_resource_problems(args.resource, given["gpus"]),
            *wrong,
            *(each for each in team_problems(given, distributed, name) if not wrong or each.where != "teams"),
            *duplicate_problems(given),
            *release_problems(args.on_delete, args.drain_seconds),
        ]
        found = merge_problems(self.misnamed, found)
        valid = without_invalid(given, found)
        teams, kinds, cohort, borrowing = valid["teams"], valid["gpus"], valid["cohort"], valid["borrowing"]
        priorities, topology, beside = valid["priorities"], valid["topology"], valid["others"]
        self._prices = {kind: read_price(price) for kind, price in (valid["prices"] or {}).items()}
        self._memory = valid["memory"] or {}
        self._parts = (name, distributed, teams, [*distributed, *beside])
        self.cohort: Cohort | None = None
        self.topology: Topology | None = None
        self.flavors: dict[str, ResourceFlavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.queues = Queues(self.where, [*map(str, found)] or [f"teams are {', '.join(teams)}"])
        """Team -> LocalQueue for its jobs."""
        self.priorities: dict[str, WorkloadPriorityClass] = {}
        self.quotas: list[dict[str, Any]]
        if found:
            current().refuse(problems_below(self.where, found))
        self._opts = args.opts or pulumi.ResourceOptions()
        own = pulumi.ResourceOptions(
            parent=self,
            depends_on=self._opts.depends_on,
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )
        common: dict[str, Any] = {"target": args.target, "drift": args.drift, "adopt": args.adopt, "opts": own}
        self.making = True
        self.cohort = _cohort(cohort, name, common)
        self.topology = _topology(topology, name, common)
        for kind, labels in kinds.items():
            self.flavors[kind] = self._make_flavor(kind, labels, common)
        if self.flavors:
            release = {"on_delete": args.on_delete, "drain_seconds": args.drain_seconds}
            for team, each in teams.items():
                share = as_team(each)
                quotas = [*self._quotas(share, beside, borrowing)]
                self.cluster_queues[team] = self._make_cluster_queue(team, share, quotas, {**release, **common})
                self.queues[team] = self._make_local_queues(team, share, common)
        for priority, value in _values(self.where, priorities).items():
            self.priorities[priority] = WorkloadPriorityClass(priority, value=value, **common)
        self.making = False
        self.quotas = [*self._rows(distributed)]
        self.table = quota_table(self.quotas)
        self.register_outputs({"quotas": self.quotas, "table": self.table})

    def _rows(self, resources: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table of quotas: of each kind those of its own resource."""
        documents = [queue.document for queue in self.cluster_queues.values()]
        kinds_of = {flavor.name: kind for kind, flavor in self.flavors.items()}
        for resource in resources:
            for row in quota_rows(documents, list(self.queues), resource):
                kind = kinds_of.get(row["flavor"], str(row["flavor"]))
                if self._resources.get(kind) == resource:
                    yield {**row, "flavor": kind}

    def _make_flavor(self, kind: str, labels: Any, common: Mapping[str, Any]) -> ResourceFlavor:
        """Return the flavor of a kind of GPU, from its argument."""
        if isinstance(labels, ResourceFlavor):
            return labels
        name = kind
        if self.topology is not None:
            name = _name_with_digest(kind, [dict(labels or {}), self.topology.name])
        annotations = {PRICE: self._prices[kind].written} if kind in self._prices else {}
        if kind in self._memory:
            annotations[MEMORY] = self._memory[kind]
        return ResourceFlavor(
            kind, node_labels=labels, topology=self.topology, name=name, annotations=annotations or None, **common
        )

    def _make_cluster_queue(
        self, team: str, share: Team, quotas: Sequence[FlavorQuotas], common: Mapping[str, Any]
    ) -> ClusterQueue:
        """Return the ClusterQueue of a team; that of a renamed team keeps its name."""
        reclaim: Literal["Any"] | None = None
        if self.cohort is not None:
            reclaim = "Any"
        fair_sharing = None
        if share.weight is not None:
            fair_sharing = FairSharing(weight=share.weight)
        return ClusterQueue(
            f"{self._parts[0]}-{share.renamed_from or team}",
            resource_groups=[ResourceGroup(flavors=quotas)],
            cohort=self.cohort,
            namespace_selector={"match_labels": {"kubernetes.io/metadata.name": share.namespace or team}},
            preemption=Preemption(reclaim_within_cohort=reclaim, within_cluster_queue="LowerPriority"),
            fair_sharing=fair_sharing,
            **common,
        )

    def _make_local_queues(self, team: str, share: Team, common: Mapping[str, Any]) -> LocalQueue:
        """Return the LocalQueue of a team, and create one of its earlier name too, which leads to the same ClusterQueue."""
        notes: dict[str, dict[str, str]] = {team: {}}
        if share.renamed_from:
            notes[share.renamed_from] = {RENAMED_TO: team}
        stop_policy: Literal["Hold"] | None = None
        if share.hold:
            stop_policy = "Hold"
        if team in self._places:
            after = pulumi.ResourceOptions(depends_on=[self._places[team]])
            common = {**common, "opts": pulumi.ResourceOptions.merge(common["opts"], after)}
        budget = {BUDGET: read_budget(share.budget).written} if share.budget is not None else {}
        made = []
        for name, own_annotations in notes.items():
            queue = LocalQueue(
                f"{self._parts[0]}-{name}",
                name=name,
                namespace=share.namespace or team,
                cluster_queue=self.cluster_queues[team],
                stop_policy=stop_policy,
                annotations={**own_annotations, **budget} or None,
                **common,
            )
            made.append(queue)
        return made[0]

    def argument(self, kind: str, name: str, path: str) -> str:
        """Return the argument that sets an argument of one of the objects."""
        if path.partition(".")[0] in ("target", "on_delete", "drain_seconds", "drift", "adopt"):
            return path
        match kind:
            case "Topology" if path.startswith("levels"):
                return f"topology{path.removeprefix('levels').removesuffix('.node_label')}"
            case "Topology":
                return "topology"
            case "ResourceFlavor" if path.startswith("topology"):
                return "topology"
            case "ResourceFlavor":
                if path != "name":
                    return f"gpus[{name}]{path.removeprefix('node_labels')}"
                return self._argument_of_name(name, "gpus")
            case "Cohort":
                return self._argument_of_name(name, "cohort")
            case "WorkloadPriorityClass":
                return f"priorities[{name}]"
        team = self._current_name(name.removeprefix(f"{self._parts[0]}-"))
        if kind == "LocalQueue" and path == "name":
            return f"teams[{team}]"
        return self._of_team(team, path)

    def _argument_of_name(self, name: str, argument: str) -> str:
        """Return the argument that sets a name: `name` if the object has the component's name."""
        if name == self._parts[0]:
            return "name"
        if argument == "cohort":
            return argument
        return f"{argument}[{name}]"

    def _current_name(self, team: str) -> str:
        """Return the name of a team that has or had this name."""
        for name, share in self._parts[2].items():
            if isinstance(share, Team) and share.renamed_from == team:
                return str(name)
        return team

    def _of_team(self, team: str, path: str) -> str:
        _, distributed, teams, covered = self._parts
        share, at = teams[team], f"teams[{team}]"
        own: Team | None = None
        if isinstance(share, Team):
            own = share
        if path.startswith("namespace"):
            if own and own.namespace:
                return f"{at}.namespace"
            return at
        if path == "cohort":
            return path
        if path.startswith("fair_sharing"):
            return f"{at}.weight"
        if path == "stop_policy":
            return f"{at}.hold"
        if path == "name":
            if dns_1123_subdomain(team):
                return at
            return "name"
        quota = _QUOTA.match(path)
        if quota:
            if quota["resource"] not in distributed:
                return f"others[{quota['resource']}]"
            field = quota["field"].replace("_limit", "")
            if own and field == "nominal_quota":
                return f"{at}.gpus"
            if field == "nominal_quota":
                return at
            if own and getattr(own, field) is not None:
                return f"{at}.{field}"
            return field
        position = _COVERED.match(path)
        if position:
            if int(position["at"]) < len(distributed):
                return "resource"
            return f"others[{covered[int(position['at'])]}]"
        if path.startswith("resource_groups"):
            return "gpus"
        return at

    def _quotas(self, share: Team, others: Mapping[str, Any], borrowing: bool | int) -> Iterator[FlavorQuotas]:
        given: Mapping[str, int | None]
        if isinstance(share.gpus, Mapping):
            given = share.gpus
        else:
            given = dict.fromkeys(self.flavors, share.gpus)
        for kind, flavor in self.flavors.items():
            amount = given.get(kind, 0)
            limits: dict[str, Any] = {}
            limit = borrowing
            if isinstance(share.borrowing, Mapping):
                limit = share.borrowing.get(kind, 0)
            elif share.borrowing is not None:
                limit = share.borrowing
            if self.cohort is not None and limit is not True:
                limits["borrowing_limit"] = int(limit)
            if self.cohort is not None and share.lending is not None:
                limits["lending_limit"] = min(share.lending, amount or 0)
            resources: dict[str, Any] = dict.fromkeys(self._parts[1], 0)
            resources[self._resources[kind]] = ResourceQuota(nominal_quota=amount, **limits)
            yield FlavorQuotas(flavor=flavor, resources={**resources, **others})


def _resources_by_kind(given: Any, kinds: Any) -> dict[str, str]:
    """Return the resource of each kind of GPU; `GPU` in place of what is not valid."""
    found: dict[str, str] = {}
    for kind in as_mapping(kinds):
        found[kind] = text(as_mapping(given).get(kind) if isinstance(given, Mapping) else given) or GPU
    return found


def _resource_problems(given: Any, kinds: Any) -> Iterator[Problem]:
    if isinstance(given, Mapping):
        for kind, resource in given.items():
            if kind not in as_mapping(kinds):
                hint = f"available: {', '.join(map(str, as_mapping(kinds)))}"
                yield Problem(f"resource[{kind}]", "unknown kind of GPU", hint)
            yield from _text_problems({f"resource[{kind}]": resource})
    else:
        yield from _text_problems({"resource": given})


def _text_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the arguments that must be text, but are not."""
    for argument, value in given.items():
        if not isinstance(value, (str, NoneType)):
            yield Problem(argument, f"must be text, not {shown_value(value)}")


def _cohort(given: Any, name: str, common: Mapping[str, Any]) -> Cohort | None:
    if given is False:
        return None
    if isinstance(given, Cohort):
        return given
    if isinstance(given, str):
        name = given
    return Cohort(name, **common)


def _topology(given: Any, name: str, common: Mapping[str, Any]) -> Topology | None:
    if given is None or isinstance(given, Topology):
        return given
    levels: list[Any] = list(given)
    return Topology(name, levels=levels, name=_name_with_digest(name, levels), **common)


def _name_with_digest(name: str, fixed: Any) -> str:
    """Return the name of an object with a digest of its immutable fields: other fields make another object."""
    return f"{name}-{short_digest(walk(fixed, _text_or_none), 6)}"


def _text_or_none(_: str, leaf: Any) -> str | None:
    if isinstance(leaf, str):
        return leaf
    return None


def _values(where: str, priorities: Any) -> dict[str, int]:
    """Return the value of each priority. where: Path of the component, for a warning."""
    if isinstance(priorities, Mapping):
        return dict(priorities)
    values = {each: (i - len(priorities) // 2) * STEP for i, each in enumerate(priorities)}
    if values and len(values) % 2 == 0:
        _warn_of_priority_zero(where, values)
    return values


def _warn_of_priority_zero(where: str, values: Mapping[str, int]) -> None:
    """Log that one of an even number of priorities equals that of jobs without one. The values stay, as jobs use them."""
    name = next(each for each, value in values.items() if value == 0)
    without_zero = []
    for each, value in values.items():
        if value >= 0:
            value += STEP
        without_zero.append(f"{each!r}: {value}")
    why = f"{name!r} has the value 0, like jobs without a priority class"
    hint = f"set the values yourself: priorities={{{', '.join(without_zero)}}}"
    messages.warn(Problem(f"{where}.priorities", why, hint))


_QUOTA = re.compile(r"resource_groups\[0\]\.flavors\[\d+\]\.resources\[(?P<resource>[^]]*)\]\.?(?P<field>\w*)")
_COVERED = re.compile(r"resource_groups\[0\]\.covered_resources\[(?P<at>\d+)\]")
