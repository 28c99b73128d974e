"""Which jobs occupy Kueue's queues or wait in them, and why, computed from documents.

ClusterQueues and Cohorts are of v1beta2 or v1beta1. A queue's status contains the reserved quota, its Workloads contain the jobs;
Kueue updates the status some seconds after the Workloads. A job that was admitted in a flavor that its ClusterQueue no longer has
counts in the flavor that `GpuQueues` has made in its place: both stand for the same nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    epoch_seconds,
    mappings,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot, amount, quotas, tree
from pulumi_trainer.provider.kueue.quota import format_amount as amount_text
from pulumi_trainer.provider.kueue.workload_reasons import (
    Flavors,
    Judgements,
    Waiting,
    flavors_of,
    job_of,
    local_queue_of,
    owner_of,
    preemptor,
    priority_class,
    why_queued,
)


@dataclass(frozen=True)
class Share:
    """A queue's or cohort's share of a resource in one flavor.

    Args:
        nominal: Its own quota; for a cohort with that of all queues and cohorts below it. None for a LocalQueue.
        borrowed: Used quota beyond its own; for a cohort the sum of its queues. None for a LocalQueue.
        most: The maximum that it can use; only for a ClusterQueue.
        lends: How much of its own quota others may use; only for a ClusterQueue with a cohort.
    """

    flavor: str
    resource: str
    used: Fraction
    nominal: Fraction | None = None
    borrowed: Fraction | None = None
    most: Fraction | None = None
    lends: Fraction | None = None

    def to_dict(self) -> dict[str, str]:
        """Return the share as JSON."""
        amounts = {
            "nominal": self.nominal, "used": self.used, "borrowed": self.borrowed, "most": self.most, "lends": self.lends,
        }  # fmt: skip
        printed = {"flavor": self.flavor, "resource": self.resource}
        for name, value in amounts.items():
            if value is not None:
                printed[name] = amount_text(self.resource, value)
        return printed


@dataclass(frozen=True)
class Work:
    """A job in a queue.

    Args:
        priority: Its priority in Kueue; None for none.
        flavors: Those that Kueue has given it, such as kinds of GPUs; empty if it waits.
        since: When it was admitted, or else created, in seconds since the epoch; 0 if unknown.
        start: Behind whom it waits, and when it starts; empty if it does not wait, or if that is not known.
    """

    namespace: str
    name: str
    kind: str
    queue: str
    holds: bool
    asks: Mapping[str, str]
    cluster_queue: str = ""
    priority: int | None = None
    priority_class: str = ""
    since: float = 0.0
    reason: str = ""
    why: str = ""
    start: str = ""
    flavors: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON."""
        return {
            "namespace": self.namespace, "name": self.name, "kind": self.kind, "queue": self.queue,
            "clusterQueue": self.cluster_queue, "holds": self.holds, "asks": dict(self.asks), "priority": self.priority,
            "priorityClass": self.priority_class, "since": self.since, "reason": self.reason, "why": self.why,
            "start": self.start, "flavors": [*self.flavors],
        }  # fmt: skip


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue or LocalQueue.

    Args:
        behind: The cohort of a ClusterQueue, or the ClusterQueue of a LocalQueue.
        inactive: Why it takes no jobs; empty if it does.
        admitted: How many Workloads it has admitted, by its own status.
        pending: How many Workloads wait, by its own status.
    """

    name: str
    namespace: str = ""
    behind: str = ""
    inactive: str = ""
    admitted: int = 0
    pending: int = 0
    shares: Sequence[Share] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the queue as JSON."""
        if self.namespace:
            place = {"namespace": self.namespace, "clusterQueue": self.behind}
        else:
            place = {"cohort": self.behind}
        return {
            "name": self.name, **place, "active": not self.inactive, "message": self.inactive, "admitted": self.admitted,
            "pending": self.pending, "resources": _to_dicts(self.shares),
        }  # fmt: skip


@dataclass(frozen=True)
class Cohort:
    """A cohort, with the sums of all ClusterQueues below it.

    Args:
        shares: What its ClusterQueues have and use of each resource.
    """

    name: str
    parent: str = ""
    shares: Sequence[Share] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the cohort as JSON."""
        return {"name": self.name, "parent": self.parent, "resources": _to_dicts(self.shares)}


@dataclass(frozen=True)
class Occupancy:
    """The state of all queues.

    Args:
        work: Jobs: first those that have their quota, then by priority and time.
        unseen: Plurals of kinds that do not exist in the cluster, or that the user may not read.
    """

    cluster_queues: Sequence[Queue] = ()
    local_queues: Sequence[Queue] = ()
    work: Sequence[Work] = ()
    unseen: Sequence[str] = field(default=())
    cohorts: Sequence[Cohort] = ()

    def cohorts_above(self, queue: Queue) -> list[str]:
        """Return the names of the cohorts of a ClusterQueue, from its own to the root."""
        parents = {cohort.name: cohort.parent for cohort in self.cohorts}
        names: list[str] = []
        name = queue.behind
        while name:
            names.append(name)
            name = parents.get(name, "")
        return names

    def to_dict(self) -> dict[str, Any]:
        """Return the queues as JSON."""
        return {
            "cohorts": _to_dicts(self.cohorts),
            "clusterQueues": _to_dicts(self.cluster_queues),
            "localQueues": _to_dicts(self.local_queues),
            "jobs": _to_dicts(self.work),
            "unseen": list(self.unseen),
        }


def _to_dicts(parts: Iterable[Share | Work | Queue | Cohort]) -> list[dict[str, Any]]:
    """Return parts of the occupancy as JSON."""
    return [part.to_dict() for part in parts]


def occupancy(documents: Iterable[Document], unseen: Iterable[str], gone: Mapping[str, str] | None = None) -> Occupancy:
    """Return the occupancy of queues.

    Args:
        gone: The jobs of Workloads that are not among the documents, by the UIDs of these; default: none are known.
        unseen: Plurals of kinds that could not be read.
    """
    all_ = list(documents)
    workloads = _of_kind(all_, "Workload")
    holding = _holding_quota(workloads)
    queues = sorted(_of_kind(all_, "ClusterQueue"), key=name_of)
    covered = {name_of(d): _slots(d) for d in queues}
    usage = _usage_by_queue(queues, holding)
    reserved_by_queue = {name: reserved for name, (_, reserved) in usage.items()}
    known = tree(all_, reserved_by_queue)

    cluster_queues = []
    for document in queues:
        name = name_of(document)
        if name in known.queues:
            reserving, _ = usage[name]
            cluster_queues.append(_cluster_queue(document, known.queues[name], reserving))

    local = {(text(section(d, "metadata").get("namespace")), name_of(d)): d for d in _of_kind(all_, "LocalQueue")}
    cluster_queue_names = {key: text(section(d, "spec").get("clusterQueue")) for key, d in local.items()}
    local_queues = []
    for key in sorted(local):
        slots = covered.get(cluster_queue_names[key], ())
        workloads_of_queue = [w for w in holding if local_queue_of(w) == key]
        local_queues.append(_local_queue(key, local[key], _usage(local[key], slots, workloads_of_queue)))

    jobs = {**(gone or {}), **{text(section(d, "metadata").get("uid")): job_of(d) for d in workloads}}
    flavors, said = {name_of(d): flavors_of(d) for d in _of_kind(all_, "ClusterQueue")}, Judgements.of(workloads)
    work = []
    for document in workloads:
        if not _is_finished(document):
            behind = admitted_by(document) or cluster_queue_names.get(local_queue_of(document), "")
            work.append(_work(document, behind, jobs, flavors.get(behind), said))
    return Occupancy(
        cluster_queues,
        local_queues,
        sorted(work, key=lambda w: (not w.holds, -(w.priority or 0), w.since, w.namespace, w.name)),
        tuple(sorted(set(unseen))),
        [_cohort(node) for _, node in sorted(known.cohorts.items())],
    )


def _is_finished(workload: Document) -> bool:
    return bool(true_condition(conditions(workload), "Finished"))


def _holding_quota(workloads: Iterable[Document]) -> list[Document]:
    """Return the unfinished Workloads that have their quota."""
    holding = []
    for workload in workloads:
        has_quota = true_condition(conditions(workload), "QuotaReserved")
        if has_quota and not _is_finished(workload):
            holding.append(workload)
    return holding


def _slots(cluster_queue: Document) -> list[Slot]:
    return [slot for slot, _ in quotas(section(cluster_queue, "spec"))]


def _usage_by_queue(
    queues: Iterable[Document], holding: Sequence[Document]
) -> dict[str, tuple[int, dict[Slot, Fraction]]]:
    """Return how many Workloads have quota of each ClusterQueue, and how much."""
    admitted: dict[str, list[Document]] = {}
    for workload in holding:
        admitted.setdefault(admitted_by(workload), []).append(workload)
    return {name_of(d): _usage(d, _slots(d), admitted.get(name_of(d), [])) for d in queues}


def _of_kind(documents: Sequence[Document], kind: str) -> list[Document]:
    return [d for d in documents if d.get("kind") == kind]


def _cluster_queue(document: Document, node: Node, reserving: int) -> Queue:
    spec = section(document, "spec")
    slots = dict.fromkeys([*node.quotas, *node.own])
    shares = [_share(node, slot) for slot in slots]
    cohort = text(spec.get("cohortName")) or text(spec.get("cohort"))
    return Queue(name_of(document), "", cohort, inactive(document), reserving, _pending(document), shares)


def _share(node: Node, slot: Slot) -> Share:
    """Return the share of a ClusterQueue."""
    nominal = node.quota(slot).nominal
    lends = None
    if node.parent is not None:
        lends = nominal - node.guaranteed(slot)
    return Share(*slot, node.usage(slot), nominal, node.borrowed(slot), node.potential(slot), lends)


def _cohort(cohort: Node) -> Cohort:
    members = cohort.members
    queues = [member for member in members if member.queue]
    slots: dict[Slot, None] = {}
    for member in members:
        slots |= dict.fromkeys((*member.quotas, *member.own))
    shares = []
    for slot in slots:
        nominal = sum((member.quota(slot).nominal for member in members), ZERO)
        used = sum((queue.usage(slot) for queue in queues), ZERO)
        borrowed = sum((queue.borrowed(slot) for queue in queues), ZERO)
        shares.append(Share(*slot, used, nominal, borrowed))
    parent = ""
    if cohort.parent:
        parent = cohort.parent.name
    return Cohort(cohort.name, parent, shares)


def _local_queue(key: tuple[str, str], document: Document, usage: tuple[int, Mapping[Slot, Fraction]]) -> Queue:
    reserving, reserved = usage
    shares = [Share(*slot, used) for slot, used in reserved.items()]
    namespace, name = key
    cluster_queue = text(section(document, "spec").get("clusterQueue"))
    return Queue(name, namespace, cluster_queue, inactive(document), reserving, _pending(document), shares)


def _pending(document: Document) -> int:
    return number(section(document, "status").get("pendingWorkloads"))


def inactive(document: Document) -> str:
    """Return why a ClusterQueue or LocalQueue is inactive; empty if it is active."""
    active = condition(conditions(document), "Active")
    if active.get("status") != "False":
        return ""
    return text(active.get("message")) or text(active.get("reason"))


def _usage(queue: Document, covered: Collection[Slot], holding: Sequence[Document]) -> tuple[int, dict[Slot, Fraction]]:
    """Return how many Workloads have quota of a queue, and how much, by its status; by the Workloads if the status is older.

    Args:
        covered: What the ClusterQueue has quota for; empty if unknown.
    """
    reserving, status = number(section(queue, "status").get("reservingWorkloads")), reserved_by_status(queue)
    reserved, reserved_before = _by_time(status.items(), covered)
    total, before = _by_time(chain.from_iterable(map(_assigned, holding)), covered)
    if len(holding) > reserving:  # of a Workload some of whose pods have ended, the status has less
        reserving, reserved = len(holding), _larger(reserved, total)
    for slot, used in _larger(reserved_before, before).items():
        reserved[slot] = reserved.get(slot, ZERO) + used
    return reserving, reserved


def _by_time(
    usage: Iterable[tuple[Slot, Fraction]], covered: Collection[Slot]
) -> tuple[dict[Slot, Fraction], dict[Slot, Fraction]]:
    """Return the usage of flavors that a queue has, and that of the flavors which it had before, by the flavor in their place.

    Kueue's status of a ClusterQueue leaves the latter out.
    """
    present, before = dict[Slot, Fraction](), dict[Slot, Fraction]()
    for slot, used in usage:
        sums, now = present, slot
        if covered and slot not in covered:
            sums, now = before, _slot_in_its_place(slot, covered)
        sums[now] = sums.get(now, ZERO) + used
    return present, before


def _slot_in_its_place(slot: Slot, covered: Collection[Slot]) -> Slot:
    """Return the slot of the same kind of GPU that a ClusterQueue has now; the slot itself if there is not exactly one."""
    flavor, resource = slot
    kind = without_digest(flavor)
    same = [each for each in covered if each[1] == resource and without_digest(each[0]) == kind]
    if len(same) != 1:
        return slot
    return same[0]


def _larger(one: Mapping[Slot, Fraction], other: Mapping[Slot, Fraction]) -> dict[Slot, Fraction]:
    return {slot: max(one.get(slot, ZERO), other.get(slot, ZERO)) for slot in {**one, **other}}


def usage_by_slot(workload: Document, covered: Collection[Slot]) -> dict[Slot, Fraction]:
    """Return the quota that a Workload has reserved, by the flavors that its ClusterQueue has now.

    Args:
        covered: The flavors and resources of which its ClusterQueue has quota now. Quota of a flavor that was replaced counts as
            quota of its successor.
    """
    present, before = _by_time(_assigned(workload), covered)
    return {slot: present.get(slot, ZERO) + before.get(slot, ZERO) for slot in {**present, **before}}


def _assigned(workload: Document) -> Iterator[tuple[Slot, Fraction]]:
    """Yield what the pod sets of a Workload have reserved."""
    for assignment in mappings(section(workload, "status", "admission").get("podSetAssignments")):
        usage = section(assignment, "resourceUsage")
        for resource, flavor in section(assignment, "flavors").items():
            yield (text(flavor), resource), amount(usage.get(resource)) or ZERO


def admitted_by(workload: Document) -> str:
    """Return the ClusterQueue that has admitted a Workload."""
    return text(section(workload, "status", "admission").get("clusterQueue"))


def reserved_by_status(document: Document) -> dict[Slot, Fraction]:
    """Return the reservations in the status of a queue."""
    reserved: dict[Slot, Fraction] = {}
    for flavor in mappings(section(document, "status").get("flavorsReservation")):
        for resource in mappings(flavor.get("resources")):
            reserved[text(flavor.get("name")), text(resource.get("name"))] = amount(resource.get("total")) or ZERO
    return reserved


def _work(
    workload: Document, cluster_queue: str, jobs: Mapping[str, str], flavors: Flavors | None, said: Judgements
) -> Work:
    """Return a Workload's job."""
    found = conditions(workload)
    spec, metadata = section(workload, "spec"), section(workload, "metadata")
    namespace, queue = local_queue_of(workload)
    owner = owner_of(workload)
    name, kind = text(owner.get("name")) or name_of(workload), text(owner.get("kind")) or "Workload"
    quota = true_condition(found, "QuotaReserved")
    reason, why = "", ""
    if not true_condition(found, "Admitted"):
        uid, _ = preemptor(workload) or ("", "")
        preempting_job = ""
        if uid:
            preempting_job = jobs.get(uid, "")
        asked = Waiting(queue, workload, preemptor=preempting_job, flavors=flavors)
        if not condition(found, "QuotaReserved").get("message"):
            asked = replace(asked, peer=said.peer_of(workload))
        waiting = why_queued(asked)
        reason, why = waiting.reason, waiting.why
    since = metadata.get("creationTimestamp")
    if quota:
        since = quota.get("lastTransitionTime")
    return Work(
        namespace, name, kind, queue, bool(quota), _requests(workload), cluster_queue, _priority(spec.get("priority")),
        priority_class(workload), epoch_seconds(since), reason, why,
        flavors=sorted({without_digest(flavor) for (flavor, _), _ in _assigned(workload)}),
    )  # fmt: skip


def _requests(workload: Document) -> dict[str, str]:
    """Return what is reserved for a Workload, or else what it requests as Kueue counts it."""
    status, total = section(workload, "status"), dict[str, Fraction]()
    reserved = mappings(section(status, "admission").get("podSetAssignments"))
    for assignment in reserved:
        _add(total, section(assignment, "resourceUsage"))
    if not reserved:
        for each in mappings(status.get("resourceRequests")):
            _add(total, section(each, "resources"))
    if not total:
        for each in mappings(section(workload, "spec").get("podSets")):
            requests = PodSet("", "", number(each.get("count"), 1), dict(section(each, "template"))).requests()
            for resource, request in (requests or {}).items():
                total[resource] = total.get(resource, ZERO) + request
    return {resource: amount_text(resource, value) for resource, value in sorted(total.items()) if value}


def _add(total: dict[str, Fraction], amounts: Mapping[str, Any]) -> None:
    for resource, quantity in amounts.items():
        total[resource] = total.get(resource, ZERO) + (amount(quantity) or ZERO)


def _priority(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value
