"""Workloads, ClusterQueues and the quota in use, as Kueue's scheduler sees them at the beginning of a cycle.

Not seen: AdmissionFairSharing, ConcurrentAdmission, priority boosts, elastic jobs, usage of topologies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain

from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    epoch_seconds,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kueue.fit import FlavorSearch, PodGroup, group_pod_sets
from pulumi_trainer.provider.kueue.occupancy import admitted_by, usage_by_slot
from pulumi_trainer.provider.kueue.podsets import PodSet, workload_pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot, Tree, amount, quotas, tree
from pulumi_trainer.provider.kueue.workload_reasons import local_queue_of, owner_of, priority_class

NEVER = "Never"
ANY = "Any"


@dataclass(frozen=True)
class Contender:
    """A Workload that has quota, or wants it.

    Args:
        key: Unique among all contenders; the UID of the Workload.
        created: When it was created, which is its place among those of its priority, in seconds since the epoch.
        reserved: When it got its quota, in seconds since the epoch.
        evicted: Whether it is being evicted.
        preempting: Whether it waits for Workloads that were preempted for it.
        judged: Whether Kueue has found no room for it: it is tried again when something ends, unless its queue is StrictFIFO.
        job: Namespace and name of its job.
        rank: Name of its priority class; empty for none.
        limit: Seconds that it may have quota; Kueue takes the quota away then. Infinite without a limit.
    """

    key: str
    queue: str
    sets: tuple[PodSet, ...] = ()
    priority: int = 0
    created: float = 0.0
    held: Mapping[Slot, Fraction] = field(default_factory=dict)
    reserved: float = 0.0
    evicted: bool = False
    preempting: bool = False
    judged: bool = False
    job: str = ""
    rank: str = ""
    limit: float = math.inf

    @property
    def order(self) -> tuple[int, float, str]:
        """Its place in a queue."""
        return (-self.priority, self.created, self.key)


@dataclass(frozen=True)
class Policy:
    """Settings of a ClusterQueue that decide about preemption and the choice of flavors.

    Args:
        within: `preemption.withinClusterQueue`.
        reclaim: `preemption.reclaimWithinCohort`.
        borrowing: `preemption.borrowWithinCohort.policy`.
        threshold: `preemption.borrowWithinCohort.maxPriorityThreshold`; None for none.
        try_next_to_borrow: Whether a flavor in which quota has to be borrowed is left for the next one.
        try_next_to_preempt: Whether a flavor in which others have to be preempted is left for the next one.
        prefers_preemption: Whether a flavor with preemption is better than one with borrowed quota.
        strict: Whether a Workload that waits stops those behind it.
        weight: Weight for fair sharing.
    """

    within: str = NEVER
    reclaim: str = NEVER
    borrowing: str = NEVER
    threshold: int | None = None
    try_next_to_borrow: bool = False
    try_next_to_preempt: bool = True
    prefers_preemption: bool = False
    strict: bool = False
    weight: Fraction = Fraction(1)

    @staticmethod
    def of(spec: Document) -> Policy:
        """Return the settings in the spec of a ClusterQueue."""
        preemption, fungibility = section(spec, "preemption"), section(spec, "flavorFungibility")
        while_borrowing = section(preemption, "borrowWithinCohort")
        threshold = while_borrowing.get("maxPriorityThreshold")
        return Policy(
            within=text(preemption.get("withinClusterQueue")) or NEVER,
            reclaim=text(preemption.get("reclaimWithinCohort")) or NEVER,
            borrowing=text(while_borrowing.get("policy")) or NEVER,
            threshold=threshold if isinstance(threshold, int) else None,
            try_next_to_borrow=fungibility.get("whenCanBorrow") == "TryNextFlavor",
            try_next_to_preempt=fungibility.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
            prefers_preemption=fungibility.get("preference") == "PreemptionOverBorrowing",
            strict=spec.get("queueingStrategy") == "StrictFIFO",
            weight=fair_weight(spec),
        )


def fair_weight(spec: Document) -> Fraction:
    """Return the weight of a ClusterQueue or Cohort for fair sharing."""
    weight = amount(section(spec, "fairSharing").get("weight"))
    return Fraction(1) if weight is None else weight


@dataclass
class Snapshot:
    """The state of all queues. Usage changes while a decision is simulated.

    Args:
        fair: Whether Kueue shares fairly: preempts by dominant resource shares.
        running: Contenders that have quota, by ClusterQueue and key.
    """

    queues: Queues
    tree: Tree
    fair: bool = False
    running: dict[str, dict[str, Contender]] = field(default_factory=dict)
    _policies: dict[str, Policy] = field(default_factory=dict, repr=False)
    _searches: dict[str, FlavorSearch] = field(default_factory=dict, repr=False)
    _groups: dict[str, list[PodGroup] | None] = field(default_factory=dict, repr=False)
    _lendable: dict[int, Mapping[str, Fraction]] = field(default_factory=dict, repr=False)

    def policy(self, queue: str) -> Policy:
        """Return the settings of a ClusterQueue."""
        if queue not in self._policies:
            self._policies[queue] = Policy.of(section(self.queues.find("ClusterQueue", queue), "spec"))
        return self._policies[queue]

    def search(self, queue: str) -> FlavorSearch:
        """Return the flavors of a ClusterQueue."""
        if queue not in self._searches:
            document = self.queues.find("ClusterQueue", queue) or {}
            self._searches[queue] = FlavorSearch(document, self.tree.queues[queue], self.queues)
        return self._searches[queue]

    def groups(self, contender: Contender) -> list[PodGroup] | None:
        """Return the pod sets of a contender that get flavors together; None if their requests are not known."""
        if contender.key not in self._groups:
            self._groups[contender.key] = group_pod_sets(list(contender.sets), self.search(contender.queue))
        return self._groups[contender.key]

    def node(self, contender: Contender) -> Node:
        """Return the ClusterQueue of a contender."""
        return self.tree.queues[contender.queue]

    def take(self, contender: Contender, held: Mapping[Slot, Fraction]) -> Contender:
        """Let a contender have quota."""
        holding = replace(contender, held=held)
        self.add(holding)
        return holding

    def add(self, contender: Contender) -> None:
        """Add a contender that has quota."""
        self.add_usage(contender.queue, contender.held)
        self.running.setdefault(contender.queue, {})[contender.key] = contender

    def remove(self, contender: Contender) -> None:
        """Take a contender and its quota out."""
        self.remove_usage(contender.queue, contender.held)
        del self.running[contender.queue][contender.key]

    def add_usage(self, queue: str, usage: Mapping[Slot, Fraction]) -> None:
        """Add usage of a ClusterQueue."""
        for slot, amount_ in usage.items():
            self.tree.queues[queue].add(slot, amount_)

    def remove_usage(self, queue: str, usage: Mapping[Slot, Fraction]) -> None:
        """Remove usage of a ClusterQueue."""
        for slot, amount_ in usage.items():
            self.tree.queues[queue].remove(slot, amount_)

    def lendable(self, cohort: Node) -> Mapping[str, Fraction]:
        """Return what a cohort can use of each resource while nothing is in use."""
        if id(cohort) not in self._lendable:
            sums: dict[str, Fraction] = {}
            for slot in slots_below(cohort.path[-1]):
                sums[slot[1]] = sums.get(slot[1], ZERO) + cohort.potential(slot)
            self._lendable[id(cohort)] = sums
        return self._lendable[id(cohort)]

    @cached_property
    def weights(self) -> Mapping[int, Fraction]:
        """Weights for fair sharing of queues and cohorts, by the id of their node."""
        found = {id(node): self.policy(name).weight for name, node in self.tree.queues.items()}
        for name, node in self.tree.cohorts.items():
            found[id(node)] = fair_weight(section(self.queues.find("Cohort", name), "spec"))
        return found


def slots_below(node: Node) -> set[Slot]:
    """Return the slots of which a queue or cohort, or one below it, has quota."""
    return set(chain.from_iterable(member.quotas for member in node.members))


def take_snapshot(
    queues: Queues, workloads: Iterable[Document], *, fair: bool = False
) -> tuple[Snapshot, list[Contender]]:
    """Return the state of the queues, and the contenders that wait in them."""
    snapshot = Snapshot(queues, tree([*queues.of("ClusterQueue"), *queues.of("Cohort")]), fair)
    covered = {
        name: [slot for slot, _ in quotas(section(queues.find("ClusterQueue", name), "spec"))]
        for name in snapshot.tree.queues
    }
    waiting = []
    for workload in workloads:
        contender = read_contender(workload, queues, covered)
        if contender is None or contender.queue not in snapshot.tree.queues:
            continue
        if contender.reserved or contender.held:
            snapshot.add(contender)
        else:
            waiting.append(contender)
    return snapshot, waiting


def read_contender(workload: Document, queues: Queues, covered: Mapping[str, list[Slot]]) -> Contender | None:
    """Return the contender of a Workload; None if it has ended or is deactivated, or if its queue is not known."""
    found, spec, metadata = conditions(workload), section(workload, "spec"), section(workload, "metadata")
    if true_condition(found, "Finished") or spec.get("active") is False:
        return None
    namespace, local = local_queue_of(workload)
    leads_to = text(section(queues.find("LocalQueue", local, namespace), "spec").get("clusterQueue"))
    quota = true_condition(found, "QuotaReserved")
    queue = admitted_by(workload) if quota else leads_to
    if not queue:
        return None
    return Contender(
        text(metadata.get("uid")) or f"{namespace}/{name_of(workload)}",
        queue,
        tuple(workload_pod_sets(workload)),
        number(spec.get("priority")),
        _queue_time(workload),
        usage_by_slot(workload, covered.get(queue, [])) if quota else {},
        epoch_seconds(quota.get("lastTransitionTime")) if quota else 0.0,
        bool(true_condition(found, "Evicted")),
        _is_preempting(found),
        bool(condition(found, "QuotaReserved")) and not _is_in_turn(found),
        f"{namespace}/{text(owner_of(workload).get('name')) or name_of(workload)}",
        priority_class(workload),
        _time_left(workload),
    )


def _time_left(workload: Document) -> float:
    """Return the seconds that a Workload may have quota from its last admission on."""
    limit = number(section(workload, "spec").get("maximumExecutionTimeSeconds"))
    if not limit:
        return math.inf
    return max(0.0, float(limit - number(section(workload, "status").get("accumulatedPastExecutionTimeSeconds"))))


def _is_preempting(found: list[Document]) -> bool:
    """Return whether a Workload waits for those that were preempted for it."""
    waits = condition(found, "QuotaReserved")
    return waits.get("status") == "False" and "Pending the preemption of" in text(waits.get("message"))


def _is_in_turn(found: list[Document]) -> bool:
    """Return whether Kueue tries a Workload again at once: it waits for those that it preempts, or another one was before it in
    the last cycle. Source: setSkipped in https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/scheduler
    """
    message = text(condition(found, "QuotaReserved").get("message"))
    skipped = ("Workload no longer fits after", "Workload has overlapping preemption targets")
    return _is_preempting(found) or message.startswith(skipped)


def _queue_time(workload: Document) -> float:
    """Return the time by which a Workload is ordered in its queue: a later one if it was evicted by a check or for slow Pods."""
    created = epoch_seconds(section(workload, "metadata").get("creationTimestamp"))
    evicted = true_condition(conditions(workload), "Evicted")
    if evicted.get("reason") in ("AdmissionCheck", "PodsReadyTimeout"):
        return epoch_seconds(evicted.get("lastTransitionTime"), created)
    return created
