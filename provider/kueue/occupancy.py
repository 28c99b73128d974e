"""Who holds, borrows and waits in Kueue's queues, and why: out of their documents, without asking anybody.

ClusterQueues and Cohorts are those of v1beta2, or v1beta1; a ClusterQueue's status says what is reserved, its Workloads by whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    condition,
    conditions,
    name_of,
    number,
    rows,
    seconds,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.quota import (
    ZERO,
    Node,
    Slot,
    amount,
    tree,
)
from pulumi_trainer.provider.kueue.quota import text as printed
from pulumi_trainer.provider.kueue.workload_reasons import Waiting, why_queued


@dataclass(frozen=True)
class Share:
    """A queue's part of a resource in one flavor, in amounts of Kueue. nominal: its own quota. borrowed: what it uses beyond.
    most: what it could ever have. None: only the ClusterQueue tells."""

    flavor: str
    resource: str
    used: Fraction
    nominal: Fraction | None = None
    borrowed: Fraction | None = None
    most: Fraction | None = None

    def to_dict(self) -> dict[str, str]:
        amounts = {"nominal": self.nominal, "used": self.used, "borrowed": self.borrowed, "most": self.most}
        shown = {name: printed(self.resource, each) for name, each in amounts.items() if each is not None}
        return {"flavor": self.flavor, "resource": self.resource, **shown}


@dataclass(frozen=True)
class Work:
    """A job in a queue. holds: it has its quota; else it waits, and why says for what. asks: resource -> amount. since: when it
    was admitted, or made; 0: not known. priority: that of Kueue, None: none."""

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

    def to_dict(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace, "name": self.name, "kind": self.kind, "queue": self.queue,
            "clusterQueue": self.cluster_queue, "holds": self.holds, "asks": dict(self.asks), "priority": self.priority,
            "priorityClass": self.priority_class, "since": self.since, "reason": self.reason, "why": self.why,
        }  # fmt: skip


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue or LocalQueue. behind: of a ClusterQueue its cohort, of a LocalQueue its ClusterQueue. inactive: why it
    takes no jobs, empty if it does. admitted, pending: Workloads, as the queue itself counts them."""

    name: str
    namespace: str = ""
    behind: str = ""
    inactive: str = ""
    admitted: int = 0
    pending: int = 0
    shares: Sequence[Share] = ()

    def to_dict(self) -> dict[str, Any]:
        place = (
            {"namespace": self.namespace, "clusterQueue": self.behind} if self.namespace else {"cohort": self.behind}
        )
        return {
            "name": self.name, **place, "active": not self.inactive, "message": self.inactive, "admitted": self.admitted,
            "pending": self.pending, "resources": [share.to_dict() for share in self.shares],
        }  # fmt: skip


@dataclass(frozen=True)
class Occupancy:
    """unseen: plurals of kinds that this cluster does not have or that we may not read."""

    cluster_queues: Sequence[Queue] = ()
    local_queues: Sequence[Queue] = ()
    work: Sequence[Work] = ()
    unseen: Sequence[str] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "clusterQueues": [each.to_dict() for each in self.cluster_queues],
            "localQueues": [each.to_dict() for each in self.local_queues],
            "jobs": [each.to_dict() for each in self.work],
            "unseen": list(self.unseen),
        }


def occupancy(documents: Iterable[Document], unseen: Iterable[str]) -> Occupancy:
    """Of ClusterQueues, Cohorts, LocalQueues and Workloads."""
    known = list(documents)
    local = {(text(section(d, "metadata").get("namespace")), name_of(d)): d for d in _of(known, "LocalQueue")}
    nodes = tree(known, {name_of(d): _reserved(d) for d in _of(known, "ClusterQueue")}).queues
    leads = {place: text(section(d, "spec").get("clusterQueue")) for place, d in local.items()}
    work = [found for each in _of(known, "Workload") if (found := _work(each, leads)) is not None]
    return Occupancy(
        [
            _cluster_queue(d, nodes[n])
            for d in sorted(_of(known, "ClusterQueue"), key=name_of)
            if (n := name_of(d)) in nodes
        ],
        [_local_queue(place, local[place]) for place in sorted(local)],
        sorted(work, key=lambda w: (not w.holds, -(w.priority or 0), w.since, w.namespace, w.name)),
        tuple(sorted(set(unseen))),
    )


def _of(documents: Sequence[Document], kind: str) -> list[Document]:
    return [d for d in documents if d.get("kind") == kind]


def _cluster_queue(document: Document, node: Node) -> Queue:
    spec, status = section(document, "spec"), section(document, "status")
    slots = dict.fromkeys([*node.quotas, *node.own])
    shares = [
        Share(*slot, node.usage(slot), node.quota(slot).nominal, node.borrowed(slot), node.potential(slot))
        for slot in slots
    ]
    behind = text(spec.get("cohortName")) or text(spec.get("cohort"))
    return Queue(name_of(document), "", behind, _inactive(document), *_counts(status), shares)


def _local_queue(place: tuple[str, str], document: Document) -> Queue:
    shares = [Share(*slot, used) for slot, used in _reserved(document).items()]
    namespace, name = place
    behind = text(section(document, "spec").get("clusterQueue"))
    return Queue(name, namespace, behind, _inactive(document), *_counts(section(document, "status")), shares)


def _counts(status: Document) -> tuple[int, int]:
    return number(status.get("reservingWorkloads")), number(status.get("pendingWorkloads"))


def _inactive(document: Document) -> str:
    found = condition(conditions(document), "Active")
    return text(found.get("message")) or text(found.get("reason")) if found.get("status") == "False" else ""


def _reserved(document: Document) -> dict[Slot, Fraction]:
    """What a queue's status says of its reservations."""
    return {
        (text(flavor.get("name")), text(resource.get("name"))): amount(resource.get("total")) or ZERO
        for flavor in rows(section(document, "status").get("flavorsReservation"))
        for resource in rows(flavor.get("resources"))
    }


def _work(workload: Document, leads: Mapping[tuple[str, str], str]) -> Work | None:
    """None: it has ended."""
    found = conditions(workload)
    if true(found, "Finished"):
        return None
    spec, metadata = section(workload, "spec"), section(workload, "metadata")
    namespace, queue = text(metadata.get("namespace")), text(spec.get("queueName"))
    owner = next((o for o in rows(metadata.get("ownerReferences")) if o.get("controller")), {})
    name, kind = text(owner.get("name")) or name_of(workload), text(owner.get("kind")) or "Workload"
    quota = true(found, "QuotaReserved")
    behind = text(section(workload, "status", "admission").get("clusterQueue")) or leads.get((namespace, queue), "")
    reason, why = "", ""
    if not true(found, "Admitted"):
        waits = why_queued(Waiting(queue, workload))
        reason, why = waits.reason, waits.why
    since = quota.get("lastTransitionTime") if quota else metadata.get("creationTimestamp")
    return Work(
        namespace, name, kind, queue, bool(quota), _asks(workload), behind, _priority(spec.get("priority")),
        _priority_class(spec), seconds(since), reason, why,
    )  # fmt: skip


def _asks(workload: Document) -> dict[str, str]:
    """What was reserved for it, or as Kueue counts what it asks for."""
    status, total = section(workload, "status"), dict[str, Fraction]()
    reserved = rows(section(status, "admission").get("podSetAssignments"))
    for assignment in reserved:
        _add(total, section(assignment, "resourceUsage"))
    if not reserved:
        for each in rows(status.get("resourceRequests")):
            _add(total, section(each, "resources"))
    if not total:
        for each in rows(section(workload, "spec").get("podSets")):
            requests = PodSet("", "", number(each.get("count"), 1), dict(section(each, "template"))).requests()
            for resource, asked in (requests or {}).items():
                total[resource] = total.get(resource, ZERO) + asked
    return {resource: printed(resource, each) for resource, each in sorted(total.items()) if each}


def _add(total: dict[str, Fraction], amounts: Mapping[str, Any]) -> None:
    for resource, quantity in amounts.items():
        total[resource] = total.get(resource, ZERO) + (amount(quantity) or ZERO)


def _priority(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _priority_class(spec: Document) -> str:
    return text(section(spec, "priorityClassRef").get("name")) or text(spec.get("priorityClassName"))
