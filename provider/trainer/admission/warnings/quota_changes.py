"""The rule about a change of quota: which jobs hold more than a queue still has, and which never start again.

It compares the ClusterQueues of a program with those of the cluster. Only a preview knows the Workloads of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    epoch_seconds,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.fit import reason_pods_not_fitting
from pulumi_trainer.provider.kueue.occupancy import admitted_by, usage_by_slot
from pulumi_trainer.provider.kueue.podsets import workload_pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot, format_amount, quotas
from pulumi_trainer.provider.kueue.workload_reasons import job_of, local_queue_of

AFFECTS = "PT215"


def affected_jobs(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield which jobs a change of a ClusterQueue or Cohort leaves over quota or without a chance to start.

    Args:
        queues: The objects of the program over those of the cluster, with its LocalQueues and Workloads.
    """
    before = queues.below
    if before is None or document.get("kind") not in ("ClusterQueue", "Cohort") or not queues.of("Workload"):
        return
    for name in _affected_queues(document, queues, before):
        old, new = before.find("ClusterQueue", name), queues.find("ClusterQueue", name)
        if old is not None and new is not None and first_unknown(section(new, "spec")) is None:
            yield from _over_quota(name, new, queues, before)
            yield from _never_fitting(name, new, old, queues, before)


def has_changed_quota(document: Document, before: Queues) -> bool:
    """Return whether a ClusterQueue or Cohort of a program has other quotas than in the cluster; False for other kinds."""
    kind = str(document.get("kind"))
    if kind not in ("ClusterQueue", "Cohort"):
        return False
    old = before.find(kind, name_of(document))
    return old is not None and _quota(old) != _quota(document)


def _quota(document: Document) -> tuple[object, ...]:
    """Return what decides how much quota a ClusterQueue or Cohort has and can borrow."""
    spec = section(document, "spec")
    return dict(quotas(spec)), spec.get("cohortName") or spec.get("cohort") or None, spec.get("parentName") or None


def _affected_queues(document: Document, queues: Queues, before: Queues) -> list[str]:
    """Return the ClusterQueue itself, and if it is changed, those of its cohorts that the program does not have."""
    is_queue = document.get("kind") == "ClusterQueue"
    own: list[str] = []
    if is_queue:
        own.append(name_of(document))
    if not has_changed_quota(document, before):
        return own
    members = set[str]()
    for tree in (before.tree, queues.tree):
        nodes = tree.cohorts
        if is_queue:
            nodes = tree.queues
        node = nodes.get(name_of(document))
        if node is not None:
            members.update(member.name for member in node.path[-1].members if member.queue)
    program = {name_of(each) for each in queues.documents if each.get("kind") == "ClusterQueue"}
    return own + sorted(members - program)


@dataclass(frozen=True)
class _Excess:
    """Quota that jobs hold beyond the nominal quota of their queue.

    Args:
        slot: Flavor and resource.
        jobs: Workloads beyond it, in the order in which Kueue preempts.
    """

    slot: Slot
    used: Fraction
    nominal: Fraction
    jobs: list[Document]


def _over_quota(name: str, queue: Document, queues: Queues, before: Queues) -> Iterator[Problem]:
    """Yield the jobs that hold more than the nominal quota of a queue only after the change."""
    holding = [w for w in _unfinished(queues) if admitted_by(w) == name]
    preempted = _preemption(queues.tree.queues[name], queue, queues)
    for excess in _excesses(holding, queues.tree.queues[name], before.tree.queues[name], queue):
        flavor, resource = excess.slot
        used, nominal = format_amount(resource, excess.used), format_amount(resource, excess.nominal)
        beyond = format_amount(resource, excess.used - excess.nominal)
        jobs = join_names([*map(job_of, excess.jobs)], 5)
        verb = "are"
        if len(excess.jobs) == 1:
            verb = "is"
        why = (
            f"jobs use {used} {resource} in flavor {flavor}, {beyond} more than the new quota of {nominal}: {jobs}"
            f" {verb} over quota; jobs run until they end{preempted}"
        )
        yield Problem(f"ClusterQueue {name}: spec.resourceGroups", why, "lower the quota once these jobs have ended")


def _excesses(holding: list[Document], node: Node, node_before: Node, queue: Document) -> Iterator[_Excess]:
    covered = [slot for slot, _ in quotas(section(queue, "spec"))]
    amounts = [(workload, usage_by_slot(workload, covered)) for workload in sorted(holding, key=_preemption_order)]
    for slot in dict.fromkeys([*node.quotas, *node_before.quotas]):
        used = sum((usage.get(slot, ZERO) for _, usage in amounts), ZERO)
        nominal = node.quota(slot).nominal
        if used <= nominal or nominal >= node_before.quota(slot).nominal:
            continue
        jobs, left = [], used
        for workload, usage in amounts:
            if usage.get(slot) and left > nominal:
                jobs.append(workload)
                left -= usage[slot]
        yield _Excess(slot, used, nominal, jobs)


def _preemption_order(workload: Document) -> tuple[int, float, str]:
    """Return a key that sorts Workloads as Kueue preempts them: low priorities first, and the newest of equal ones."""
    reserved = true_condition(conditions(workload), "QuotaReserved")
    return (
        number(section(workload, "spec").get("priority")),
        -epoch_seconds(reserved.get("lastTransitionTime")),
        name_of(workload),
    )


def _preemption(node: Node, queue: Document, queues: Queues) -> str:
    """Return for whom Kueue may preempt jobs of a queue that are over quota."""
    others = reclaiming_queues(node, queues)
    causes: list[str] = []
    if others:
        causes.append(f"jobs of {join_names(others)}, which take back their quota")
    if preemption_policy(queue, "withinClusterQueue") != "Never":
        causes.append("jobs of a higher priority in the queue itself")
    if not causes:
        return "; Kueue preempts none of them"
    return f", unless Kueue preempts them for {', or for '.join(causes)}"


def reclaiming_queues(node: Node, queues: Queues) -> list[str]:
    """Return the other queues of its cohort that may preempt jobs of a queue which borrow their quota."""
    names = set[str]()
    for other in node.path[-1].members:
        if not other.queue or other is node:
            continue
        document = queues.find("ClusterQueue", other.name) or {}
        if preemption_policy(document, "reclaimWithinCohort") != "Never":
            names.add(other.name)
    return sorted(names)


def preemption_policy(queue: Document, field: str) -> str:
    """Return a field of a ClusterQueue's `spec.preemption`."""
    return text(section(queue, "spec", "preemption").get(field)) or "Never"


def _never_fitting(name: str, new: Document, old: Document, queues: Queues, before: Queues) -> Iterator[Problem]:
    """Yield the jobs that fit a queue before the change, and never after it."""
    waiting, running = dict[str, str](), dict[str, str]()
    for workload in _unfinished(queues):
        admitted = admitted_by(workload)
        if name != (admitted or _cluster_queue_of(workload, queues)):
            continue
        pods = workload_pod_sets(workload)
        found = reason_pods_not_fitting(pods, new, queues)
        if found is not None and reason_pods_not_fitting(pods, old, before) is None:
            jobs = waiting
            if admitted:
                jobs = running
            jobs[job_of(workload)] = found.words
    for jobs, what in (
        (waiting, "waiting jobs would never fit"),
        (running, "running jobs would never start again after a suspension"),
    ):
        if jobs:
            first, *_ = names = sorted(jobs)
            why = f"{what}: {join_names(names, 5)} ({jobs[first]})"
            hint = "keep more quota, or move these jobs to another queue"
            yield Problem(f"ClusterQueue {name}: spec.resourceGroups", why, hint)


def _unfinished(queues: Queues) -> list[Document]:
    return [workload for workload in queues.of("Workload") if not true_condition(conditions(workload), "Finished")]


def _cluster_queue_of(workload: Document, queues: Queues) -> str:
    """Return the ClusterQueue for which a Workload waits; empty if its LocalQueue is not known."""
    namespace, name = local_queue_of(workload)
    return text(section(queues.find("LocalQueue", name, namespace), "spec").get("clusterQueue"))
