"""The common case in one component: the GPUs of a cluster, given out to teams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.kueue import quota_rows, quota_table
from pulumi_trainer.provider.api.model import quantity_problems

from .. import program
from ..arguments import Args, unknown_fields
from ..destinations import Kubernetes
from .arguments import FairSharing, FlavorQuotas, Preemption, ResourceGroup, ResourceQuota
from .component import current
from .objects import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass

GPU = "nvidia.com/gpu"
PRIORITIES = ("low", "normal", "high")
_FIELDS = (
    "teams", "gpus", "cohort", "borrowing", "priorities", "topology", "resource", "others", "on_delete", "drain_seconds",
    "name", "target", "opts",
)  # fmt: skip
STEP = 1000
"""Between one priority and the next; that in the middle is 0, which is what jobs without one have."""
OTHERS: Mapping[str, str] = {"cpu": "1M", "memory": "1Pi", "ephemeral-storage": "1Pi"}
"""What jobs ask for beside GPUs, more than any cluster has: a queue without a quota of it admits no job that asks for it."""


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


class Queues(dict[str, LocalQueue]):
    """LocalQueues by team. One that is not there ends the program with what is wrong, and without a traceback."""

    def __init__(self, where: str, why: Sequence[str]) -> None:
        self._where, self._why = where, why

    def __missing__(self, team: str) -> LocalQueue:
        current().refuse([])
        raise pulumi.RunError(
            "\n".join([f"{self._where} has no queue of {team!r}:", *(f"  {why}" for why in self._why)])
        )


class GpuQueues(pulumi.ComponentResource):
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
    ClusterQueues are called `NAME-TEAM`. Outputs: quotas (a list of rows) and table (the same to be read).
    """

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
        **unknown: Any,
    ) -> None:
        where = f'GpuQueues("{resource_name}") ({program.call_site()})'
        super().__init__("trainer:index:GpuQueues", resource_name, None, opts)
        self.cohort: Cohort | None = None
        self.topology = topology if isinstance(topology, Topology) else None
        self.flavors: dict[str, ResourceFlavor] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.queues = Queues(where, [f"teams are {', '.join(map(str, teams))}" if isinstance(teams, Mapping) else ""])
        """By team: what its jobs name as their queue."""
        self.priorities: dict[str, WorkloadPriorityClass] = {}
        self.quotas: list[dict[str, Any]] = []
        self.table = ""
        name = name or resource_name
        kinds = {name: None} if gpus is None else gpus
        others = OTHERS if others is None else others
        found = [
            *unknown_fields(unknown, _FIELDS),
            *_wrong(teams, kinds, borrowing, priorities, topology, others, cohort),
        ]
        if found:
            self.queues = Queues(where, [str(p) for p in found])
            current().refuse(p.below(where) for p in found)
            self.register_outputs({})
            return
        above = opts or pulumi.ResourceOptions()
        own = pulumi.ResourceOptions(
            parent=self, depends_on=above.depends_on, protect=above.protect, retain_on_delete=above.retain_on_delete
        )
        common: dict[str, Any] = {"target": target, "opts": own}
        self.cohort = _cohort(cohort, name, common)
        if topology is not None and self.topology is None:
            self.topology = Topology(name, levels=list(topology), **common)  # type: ignore[arg-type]
        for kind, labels in kinds.items():
            if isinstance(labels, ResourceFlavor):
                self.flavors[kind] = labels
            else:
                self.flavors[kind] = ResourceFlavor(kind, node_labels=labels, topology=self.topology, **common)
        for team, given in teams.items():
            share = given if isinstance(given, Team) else Team(gpus=given)
            queue = f"{name}-{team}"
            self.cluster_queues[team] = ClusterQueue(
                queue,
                resource_groups=[ResourceGroup(flavors=[*self._quotas(share, resource, others, borrowing)])],
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
        self.quotas = quota_rows([queue.document for queue in self.cluster_queues.values()], list(teams), resource)
        self.table = quota_table(self.quotas)
        self.register_outputs({"quotas": self.quotas, "table": self.table})

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


def _values(priorities: Any) -> dict[str, int]:
    if isinstance(priorities, Mapping):
        return dict(priorities)
    return {each: (i - len(priorities) // 2) * STEP for i, each in enumerate(priorities)}


def _wrong(
    teams: Any, kinds: Any, borrowing: Any, priorities: Any, topology: Any, others: Any, cohort: Any
) -> Iterator[Problem]:
    """What the objects could not say in the words of this component's arguments."""
    if not isinstance(teams, Mapping) or not teams:
        yield Problem("teams", "must name at least one team and its GPUs", 'for example teams={"nlp": 16}')
    if not isinstance(kinds, Mapping) or not kinds:
        yield Problem("gpus", "must be a mapping from kinds of GPUs to labels of their nodes")
        return
    for kind, labels in kinds.items():
        if labels is not None and not isinstance(labels, (Mapping, ResourceFlavor)):
            yield Problem(f"gpus[{kind}]", f"must be labels of nodes or a ResourceFlavor, not {labels!r}")
        elif topology is not None and not labels:
            mend = f'for example gpus={{"{kind}": {{"label": "value"}}}}'
            yield Problem(f"gpus[{kind}]", "needs a label of its nodes, as there is a topology", mend)
    if topology is not None and (isinstance(topology, str) or not isinstance(topology, (Topology, Sequence))):
        yield Problem("topology", f"must be a list of node labels or a Topology, not {topology!r}")
    yield from _limit("borrowing", borrowing)
    if cohort is True or not isinstance(cohort, (Cohort, str, bool, type(None))):
        yield Problem("cohort", f"must be a Cohort, a name or False, not {cohort!r}")
    if isinstance(priorities, str) or not isinstance(priorities, (Sequence, Mapping)):
        yield Problem(
            "priorities", f"must be names from the lowest to the highest, or names and values, not {priorities!r}"
        )
    if not isinstance(others, Mapping):
        yield Problem("others", "must be a mapping from resources to quotas")
    for team, given in teams.items() if isinstance(teams, Mapping) else ():
        share = given if isinstance(given, Team) else Team(gpus=given)
        yield from (p.below(f"teams[{team}]") for p in share.check())
        yield from (p.below(f"teams[{team}]") for p in _share(share, list(kinds)))


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
