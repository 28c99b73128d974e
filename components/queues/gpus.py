"""The common case in one component: the GPUs of a cluster, given out to teams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import said, walk
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.program import session
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.names import dns_1123_subdomain
from pulumi_trainer.provider.kueue.objects import BOUNDLESS, quota_rows, quota_table
from pulumi_trainer.provider.lifecycle.identity import short_digest
from pulumi_trainer.queues.arguments import (
    FairSharing,
    FlavorQuotas,
    Preemption,
    ResourceGroup,
    ResourceQuota,
)
from pulumi_trainer.queues.component import Composed, current
from pulumi_trainer.queues.objects import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
    release_problems,
)
from pulumi_trainer.queues.teams import (
    Team,
    right,
    twice,
    wrong,
)

GPU = "nvidia.com/gpu"
PRIORITIES = ("low", "normal", "high")
STEP = 1000
"""Between one priority and the next; that in the middle is 0, which is what jobs without one have."""


class Queues(dict[str, LocalQueue]):
    """LocalQueues by team. One that is not there ends the program with what is wrong, and without a traceback."""

    def __init__(self, where: str, why: Sequence[str]) -> None:
        self._where, self._why = where, why

    def __missing__(self, team: str) -> LocalQueue:
        current().refuse([])
        raise pulumi.RunError(
            "\n".join([f"{self._where} has no queue of {team!r}:", *(f"  {why}" for why in self._why)])
        )


class GpuQueues(Composed):
    """Kueue's objects for a cluster whose teams share its GPUs: a ResourceFlavor for each kind of GPU, a Cohort, for each team a
    ClusterQueue and a LocalQueue, and WorkloadPriorityClasses.

    What a team does not use others may borrow; it gets it back at once when it needs it (jobs that borrow are suspended and
    wait), and within a team a job of a higher priority comes first.

    teams: name -> the GPUs that are the team's own, or a `Team`. gpus: kind -> labels of its nodes, or a `ResourceFlavor` of
    the program; default: one kind, called like the component, on any node. cohort: a `Cohort`, or the name of one that is
    made; default: called like the component; False: nobody borrows. borrowing: True (default): whatever is idle; a number: at
    most so many of each kind; False: nothing. priorities: names from the lowest to the highest, 1000 apart with 0 in the
    middle, or name -> value; default low (-1000), normal (0), high (1000). topology: node labels from the widest to the
    narrowest, or a `Topology`, so that jobs can ask for one rack. resource: the GPUs' name, default nvidia.com/gpu. others:
    what else jobs ask for -> the quota of each team; default: practically no limit of cpu, memory and ephemeral-storage.
    on_delete, drain_seconds: as of a `ClusterQueue`.

    A LocalQueue is called like its team, in the namespace of the team, and no other namespace can use the team's quota.
    ClusterQueues are called `NAME-TEAM`. A Topology, and flavors with one, have a digest in their names of what never changes of
    them: with other levels or labels there are others, to which the queues move. Outputs: quotas (a list of rows) and table (the
    same to be read, line by line).
    """

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        teams: Mapping[str, int | Mapping[str, int] | Team],
        gpus: Mapping[str, Mapping[str, str] | ResourceFlavor | None] | None = None,
        cohort: Cohort | str | bool | None = None,
        borrowing: bool | int = True,
        priorities: Sequence[str] | Mapping[str, int] = PRIORITIES,
        topology: Topology | Sequence[str] | None = None,
        resource: str = GPU,
        others: Mapping[str, Any] | None = None,
        on_delete: Any = "refuse",
        drain_seconds: float = 300,
        name: str | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        self.where = f'GpuQueues("{resource_name}") ({session.call_site()})'
        super().__init__("trainer:index:GpuQueues", resource_name, None, opts)
        texts = {field: given.pop(field) for field in ("name", "resource")}
        unfit = [
            Problem(f, f"must be text, not {said(t)}") for f, t in texts.items() if not isinstance(t, (str, NoneType))
        ]
        name, resource = (text if isinstance(text, str) else "" for text in texts.values())
        name, resource, target = name or resource_name, resource or GPU, given.pop("target")
        on_delete, drain_seconds = given.pop("on_delete"), given.pop("drain_seconds")
        given["gpus"] = {name: None} if given["gpus"] is None else given["gpus"]
        given["others"] = BOUNDLESS if given["others"] is None else given["others"]
        found = [*unfit, *wrong(given, resource, name), *twice(given), *release_problems(on_delete, drain_seconds)]
        found = merge_problems(self.misnamed, found)
        sound = right(given, found)
        teams, kinds, cohort, borrowing = (sound[name_] for name_ in ("teams", "gpus", "cohort", "borrowing"))
        priorities, topology = sound["priorities"], sound["topology"]
        beside: dict[str, Any] = sound["others"]
        self._parts = (name, resource, teams, [resource, *beside])
        self.cohort: Cohort | None = None
        self.topology = topology if isinstance(topology, Topology) else None
        self.flavors: dict[str, ResourceFlavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.queues = Queues(self.where, [str(p) for p in found] or [f"teams are {', '.join(teams)}"])
        """By team: what its jobs name as their queue."""
        self.priorities: dict[str, WorkloadPriorityClass] = {}
        self.quotas: list[dict[str, Any]] = []
        if found:
            current().refuse(p.below(self.where) for p in found)
        above = opts or pulumi.ResourceOptions()
        own = pulumi.ResourceOptions(
            parent=self, depends_on=above.depends_on, protect=above.protect, retain_on_delete=above.retain_on_delete
        )
        common: dict[str, Any] = {"target": target, "opts": own}
        self.making = True
        self.cohort = _cohort(cohort, name, common)
        if topology is not None and not isinstance(topology, Topology):
            levels: list[Any] = list(topology)
            self.topology = Topology(name, levels=levels, name=_versioned(name, levels), **common)
        for kind, labels in kinds.items():
            if isinstance(labels, ResourceFlavor):
                self.flavors[kind] = labels
            else:
                fixed = (
                    _versioned(kind, [dict(labels or {}), self.topology.name]) if self.topology is not None else kind
                )
                self.flavors[kind] = ResourceFlavor(
                    kind, node_labels=labels, topology=self.topology, name=fixed, **common
                )
        for team, each in teams.items() if self.flavors else ():
            share = each if isinstance(each, Team) else Team(gpus=each)
            queue = f"{name}-{team}"
            self.cluster_queues[team] = ClusterQueue(
                queue,
                resource_groups=[ResourceGroup(flavors=[*self._quotas(share, resource, beside, borrowing)])],
                cohort=self.cohort,
                namespace_selector={"match_labels": {"kubernetes.io/metadata.name": share.namespace or team}},
                preemption=Preemption(
                    reclaim_within_cohort="Any" if self.cohort is not None else None,
                    within_cluster_queue="LowerPriority",
                ),
                fair_sharing=FairSharing(weight=share.weight) if share.weight is not None else None,
                on_delete=on_delete,
                drain_seconds=drain_seconds,
                **common,
            )
            self.queues[team] = LocalQueue(
                queue, name=team, namespace=share.namespace or team, cluster_queue=self.cluster_queues[team], **common
            )
        for priority, value in _values(priorities).items():
            self.priorities[priority] = WorkloadPriorityClass(priority, value=value, **common)
        self.making = False
        self.quotas = quota_rows(
            [queue.document for queue in self.cluster_queues.values()], list(self.queues), resource
        )
        kinds_of = {flavor.name: kind for kind, flavor in self.flavors.items()}
        self.quotas = [{**row, "flavor": kinds_of.get(row["flavor"], row["flavor"])} for row in self.quotas]
        self.table = quota_table(self.quotas)
        self.register_outputs({"quotas": self.quotas, "table": self.table})

    def argument(self, kind: str, name: str, path: str) -> str:
        if path.partition(".")[0] in ("target", "on_delete", "drain_seconds"):
            return path
        match kind:
            case "Topology" if path.startswith("levels"):
                return f"topology{path.removeprefix('levels').removesuffix('.node_label')}"
            case "Topology":
                return "topology"
            case "ResourceFlavor" if path.startswith("topology"):
                return "topology"
            case "ResourceFlavor":
                return (
                    f"gpus[{name}]{path.removeprefix('node_labels')}" if path != "name" else self._named(name, "gpus")
                )
            case "Cohort":
                return self._named(name, "cohort")
            case "WorkloadPriorityClass":
                return f"priorities[{name}]"
        team = name.removeprefix(f"{self._parts[0]}-")
        return f"teams[{team}]" if kind == "LocalQueue" and path == "name" else self._of_team(team, path)

    def _named(self, name: str, argument: str) -> str:
        """Where a name comes from: what is called like the component has its name from there."""
        return "name" if name == self._parts[0] else argument if argument == "cohort" else f"{argument}[{name}]"

    def _of_team(self, team: str, path: str) -> str:
        _, resource, teams, covered = self._parts
        share, at = teams[team], f"teams[{team}]"
        own = share if isinstance(share, Team) else None
        if path.startswith("namespace"):
            return f"{at}.namespace" if own and own.namespace else at
        if path == "cohort":
            return path
        if path.startswith("fair_sharing"):
            return f"{at}.weight"
        if path == "name":
            return "name" if not [*dns_1123_subdomain(team)] else at
        if quota := _QUOTA.match(path):
            if quota["resource"] != resource:
                return f"others[{quota['resource']}]"
            field = quota["field"].replace("_limit", "")
            if field == "nominal_quota":
                return f"{at}.gpus" if own else at
            return f"{at}.{field}" if own and getattr(own, field) is not None else field
        if quota := _COVERED.match(path):
            return f"others[{covered[int(quota['at'])]}]" if int(quota["at"]) else "resource"
        return "gpus" if path.startswith("resource_groups") else at

    def _quotas(
        self, share: Team, resource: str, others: Mapping[str, Any], borrowing: bool | int
    ) -> Iterator[FlavorQuotas]:
        given = share.gpus if isinstance(share.gpus, Mapping) else dict.fromkeys(self.flavors, share.gpus)
        limit = borrowing if share.borrowing is None else share.borrowing
        for kind, flavor in self.flavors.items():
            amount = given.get(kind, 0)
            limits: dict[str, Any] = {}
            if self.cohort is not None and limit is not True:
                limits["borrowing_limit"] = int(limit)
            if self.cohort is not None and share.lending is not None:
                limits["lending_limit"] = min(share.lending, amount or 0)
            quota = ResourceQuota(nominal_quota=amount, **limits)
            yield FlavorQuotas(flavor=flavor, resources={resource: quota, **others})


def _cohort(given: Any, name: str, common: Mapping[str, Any]) -> Cohort | None:
    if given is False:
        return None
    return given if isinstance(given, Cohort) else Cohort(given if isinstance(given, str) else name, **common)


def _versioned(name: str, fixed: Any) -> str:
    """The name of an object with something that never changes: with another value it is another object."""
    known = walk(fixed, lambda _, leaf: leaf if isinstance(leaf, str) else None)
    return f"{name}-{short_digest(known, 6)}"


def _values(priorities: Any) -> dict[str, int]:
    if isinstance(priorities, Mapping):
        return dict(priorities)
    return {each: (i - len(priorities) // 2) * STEP for i, each in enumerate(priorities)}


_QUOTA = re.compile(r"resource_groups\[0\]\.flavors\[\d+\]\.resources\[(?P<resource>[^]]*)\]\.?(?P<field>\w*)")
_COVERED = re.compile(r"resource_groups\[0\]\.covered_resources\[(?P<at>\d+)\]")
