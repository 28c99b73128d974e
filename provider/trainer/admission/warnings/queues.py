"""Rules about Kueue's queues: errors in queues, and jobs that a queue never admits.

Rules about queues (`queue_warnings`) are reported for the queue of a job, and for all queues of a program. Their paths
begin with kind and name, such as `ClusterQueue research: spec.resourceGroups[0]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import is_made_on_demand
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.kueue.fit import NotFitting, reason_not_fitting
from pulumi_trainer.provider.kueue.labels import (
    MAX_EXECUTION,
    PREFERRED,
    PRIORITY,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.objects import references
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, amount, format_amount
from pulumi_trainer.provider.kueue.topology_fit import find_unfitting_podset
from pulumi_trainer.provider.trainer.admission.warnings.view import View
from pulumi_trainer.provider.trainer.labels import RENAMED_TO

PLACED = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL)

# --- rules about queues -----------------------------------------------------------------------------------------------------


def missing_cluster_queue(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield that the ClusterQueue of a LocalQueue does not exist."""
    wanted = section(document, "spec").get("clusterQueue")
    if document.get("kind") == "LocalQueue" and queues.lacks("ClusterQueue", wanted):
        why = f"ClusterQueue {wanted} does not exist: jobs of this queue never start"
        yield Problem(_at(document, "spec.clusterQueue"), why, _similar_name(wanted, queues.of("ClusterQueue")))


def unmatched_flavor(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield that no node has the labels of a flavor in which a ClusterQueue has quota, or those of its topology."""
    labels = section(document, "spec", "nodeLabels")
    if document.get("kind") != "ResourceFlavor" or not queues.has_all("Node") or not labels or first_unknown(labels):
        return
    users: list[str] = []
    for queue in queues.of("ClusterQueue"):
        if _uses(queue, document):
            users.append(str(section(queue, "metadata").get("name")))
    if not users:
        return
    nodes = [section(node, "metadata", "labels") for node in queues.of("Node")]
    its = [node for node in nodes if all(node.get(k) == v for k, v in labels.items())]
    if not its:
        shown = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()))
        why = (
            f"none of {len(nodes)} nodes has the labels {shown}: jobs that {', '.join(sorted(users))} admits in"
            " this flavor find no node"
        )
        seen = _other_values(labels, nodes)
        hint = "label the nodes"
        if seen:
            hint = f"nodes have {', '.join(seen[:5])}"
        yield Problem(_at(document, "spec.nodeLabels"), why, hint)
        return
    levels = queues.levels(document) or []
    if not any(node.keys() >= {*levels} for node in its):
        why = f"none of its {len(its)} nodes has all labels of its topology ({', '.join(levels)}): Kueue places nothing there"
        yield Problem(_at(document, "spec.topologyName"), why, "label the nodes, or correct the levels of the Topology")


def _other_values(labels: Document, nodes: list[Document]) -> list[str]:
    """Return the labels of nodes that differ only in the value from labels that no node has."""
    seen = set[str]()
    for key, value in labels.items():
        if not any(node.get(key) == value for node in nodes):
            seen.update(f"{key}={node[key]}" for node in nodes if key in node)
    return sorted(seen)


def cohort_cycle(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield that a cohort is its own ancestor."""
    if document.get("kind") != "Cohort":
        return
    name = section(document, "metadata").get("name")
    for cycle in queues.tree.cycles:
        if name == cycle[0]:
            shown = " -> ".join((*cycle, cycle[0]))
            why = f"{shown} is a cycle: Kueue admits nothing in any of their ClusterQueues"
            yield Problem(_at(document, "spec.parentName"), why, "leave the parentName of one of them out")


def missing_references(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield references of a ClusterQueue or a flavor to objects that do not exist: the queue is accepted, but inactive."""
    for kind, name, field in references(document):
        effect = _WITHOUT.get((document.get("kind"), kind))
        if effect and queues.lacks(kind, name):
            yield Problem(
                _at(document, field), f"{kind} {name} does not exist: {effect}", _similar_name(name, queues.of(kind))
            )


_WITHOUT: Mapping[tuple[Any, str], str] = {
    ("ResourceFlavor", "Topology"): "ClusterQueues with this flavor are inactive",
    ("ClusterQueue", "ResourceFlavor"): "the queue is inactive and admits no jobs",
    ("ClusterQueue", "AdmissionCheck"): "the queue is inactive and admits no jobs",
}
"""Kind of an object, and kind of what it refers to -> what follows if the latter does not exist."""


_FAR = 2
"""How many times the resources of its nodes a quota may be: nodes come and go."""


def quota_beyond_nodes(document: Document, queues: Queues) -> Iterator[Problem]:
    """Yield quotas of devices that are far more than the nodes of their flavor have: Kueue admits jobs that find no node."""
    spec = section(document, "spec")
    if document.get("kind") != "ClusterQueue" or not queues.has_all("Node") or first_unknown(spec) is not None:
        return
    if section(spec, "admissionChecksStrategy"):
        return  # a check may make nodes, or send jobs to another cluster
    for i, group in enumerate(map(section, listed(spec.get("resourceGroups")))):
        for j, quotas in enumerate(map(section, listed(group.get("flavors")))):
            nodes = _nodes_of_flavor(quotas.get("name"), queues)
            for k, quota in enumerate(map(section, listed(quotas.get("resources")))):
                nominal, there = amount(quota.get("nominalQuota")), _allocatable(nodes, str(quota.get("name")))
                if nominal is None or not there or nominal <= _FAR * there:
                    continue
                name = quota["name"]
                where = _at(document, f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}].nominalQuota")
                why = (
                    f"is {format_amount(name, nominal)}, but the {len(nodes)} nodes of flavor {quotas['name']} have"
                    f" {format_amount(name, there)} {name}: Kueue admits jobs that find no node"
                )
                yield Problem(where, why, "lower the quota to what the nodes have, or add nodes")


def _nodes_of_flavor(name: Any, queues: Queues) -> list[Document]:
    """Return the nodes of a flavor; none if it is not known, or if an autoscaler may add some."""
    flavor = queues.find("ResourceFlavor", name)
    if flavor is None or first_unknown(flavor) is not None:
        return []
    labels = section(flavor, "spec", "nodeLabels")
    nodes = [node for node in queues.of("Node") if labels.items() <= section(node, "metadata", "labels").items()]
    if any(map(is_made_on_demand, nodes)):
        return []
    return nodes


def _allocatable(nodes: list[Document], resource: str) -> Fraction:
    """Return how many devices of a kind nodes have; 0 for cpu, memory and other resources of every node."""
    if "/" not in resource:
        return Fraction(0)
    total = ZERO
    for node in nodes:
        total += amount(section(node, "status", "allocatable").get(resource)) or ZERO
    return total


QueueRule = Callable[[Document, Queues], Iterator[Problem]]


def for_queue_of_job(rule: QueueRule) -> Callable[[View], Iterator[Problem]]:
    """Return a rule about a queue as a rule about a job: it checks the job's queue, its cohorts and their flavors."""

    def find(view: View) -> Iterator[Problem]:
        for document in _objects_of_queue(view):
            yield from rule(document, view.queues)

    return find


def _objects_of_queue(view: View) -> Iterator[Document]:
    local, behind = local_queue(view), cluster_queue_of_job(view)
    if local is not None:
        yield local
    if behind is None:
        return
    yield behind
    queues = view.queues
    node = queues.tree.queues.get(str(section(behind, "metadata").get("name")))
    above = set[str]()
    if node:
        above = {each.name for each in node.path[1:]}
    cycles = [cycle[0] for cycle in queues.tree.cycles if above & set(cycle)]
    for name in sorted({*above, *cycles}):
        cohort = queues.find("Cohort", name)
        if cohort is not None:
            yield cohort
    for flavor in queues.of("ResourceFlavor"):
        if _uses(behind, flavor):
            yield flavor


# --- rules about jobs -------------------------------------------------------------------------------------------------------


def resource_without_quota(view: View) -> Iterator[Problem]:
    """Yield a resource of a job for which its queue has no quota."""
    found = reason_not_fitting_queue(view)
    if found and found.cause == "uncovered":
        resource = found.words.rpartition("resource ")[2].partition(" ")[0]
        why = (
            f"its queue has no quota for {resource}, which {found.pod_set.name} requests, so Kueue never admits the"
            f" job: {found.words}"
        )
        yield _about_queue(view, why, "choose another queue, or add quota for the resource to its ClusterQueue")


def too_large(view: View) -> Iterator[Problem]:
    """Yield that a job needs more quota than its queue can use and borrow."""
    found = reason_not_fitting_queue(view)
    if found and found.cause == "capacity":
        why = f"it requests more than its queue can ever have, even with everything it may borrow: {found.words}"
        yield _about_queue(view, why, "request less (fewer nodes, or fewer devices per node), or choose another queue")


def no_flavor(view: View) -> Iterator[Problem]:
    """Yield that no flavor of the queue matches a job: taints, node labels, topology."""
    found = reason_not_fitting_queue(view)
    if found and found.cause == "flavor":
        yield _about_queue(
            view, f"none of its queue's flavors matches the job: {found.words}", _hint_flavor(view, found)
        )


def no_topology_domain(view: View) -> Iterator[Problem]:
    """Yield that no topology domain of the existing nodes is large enough for a job."""
    behind = cluster_queue_of_job(view)
    if behind is None or not view.jobset or reason_not_fitting_queue(view):
        return
    found = find_unfitting_podset(pod_sets(view.jobset, view.queues), behind, view.queues)
    if found:
        yield _about_queue(view, f"it does not fit the nodes that exist: {found}", found.hint)


def namespace_not_selected(view: View) -> Iterator[Problem]:
    """Yield that a job's ClusterQueue does not select its namespace."""
    behind, namespace = cluster_queue_of_job(view), view.namespace
    if behind is None or not isinstance(namespace, str):
        return
    spec = section(behind, "spec")
    selector = spec.get("namespaceSelector")
    if isinstance(selector, Unknown) or first_unknown(selector) is not None:
        return
    name = section(behind, "metadata").get("name")
    hint = "set its namespaceSelector; {} admits jobs from all namespaces"
    if selector is None:
        why = f"its ClusterQueue {name} has no namespaceSelector, so it admits no jobs at all"
        yield _about_queue(view, why, hint)
    elif not view.may_select(section(selector), namespace):
        why = f"its ClusterQueue {name} admits no jobs from namespace {namespace}: {_selector_text(section(selector))}"
        yield _about_queue(view, why, f"label the namespace, or {hint}")


def _selector_text(selector: Document) -> str:
    """Return a label selector as `kubectl` prints it."""
    parts = [f"{key}={value}" for key, value in sorted(section(selector, "matchLabels").items())]
    for each in map(section, listed(selector.get("matchExpressions"))):
        values = ",".join(map(str, listed(each.get("values"))))
        part = f"{each.get('key')} {each.get('operator')}"
        if values:
            part += f" ({values})"
        parts.append(part)
    return f"its namespaceSelector is {', '.join(parts)}"


def missing_local_queue(view: View) -> Iterator[Problem]:
    """Yield that the LocalQueue of a job does not exist in its namespace."""
    name, namespace = view.queue, view.namespace
    if isinstance(namespace, str) and view.queues.lacks("LocalQueue", name, namespace):
        why = f"LocalQueue {name} does not exist in namespace {namespace}: Kueue never admits the job"
        near = _similar_name(name, view.queues.inside("LocalQueue", namespace))
        yield _about_queue(view, why, near or "create it, or name another queue")


def renamed_queue(view: View) -> Iterator[Problem]:
    """Yield that the team of a job's LocalQueue has another name now."""
    local = local_queue(view)
    now = section(local, "metadata", "annotations").get(RENAMED_TO)
    if local is not None and isinstance(now, str):
        why = (
            f"LocalQueue {section(local, 'metadata').get('name')} has been renamed to {now}, and the old LocalQueue"
            " may be deleted"
        )
        hint = f'set queue="{now}": a waiting job moves without a new run; let a running job end first'
        yield _about_queue(view, why, hint)


def refused_workload(view: View) -> Iterator[Problem]:
    """Yield why the CRD of Kueue's Workload refuses that of a job. Kueue's webhooks do not check it, and the job waits for ever.

    Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go
    """
    if not view.queue:
        return
    sets = pod_sets(view.jobset)
    if len(sets) > MOST_PODSETS:
        why = f"spec.podSets: Too many: {len(sets)}: must have at most {MOST_PODSETS} items (a replicated job is one)"
        yield Problem("spec.template.spec.replicatedJobs", why, "fewer replicated jobs with more replicas")
    limit = labels_of(view.queued).get(MAX_EXECUTION)
    if isinstance(limit, str) and limit.isascii() and limit.isdigit() and int(limit[:20]) > _MOST_SECONDS:
        why = f"{limit} s are more than the maximum of a Workload, {_MOST_SECONDS} s: another limit would apply"
        yield Problem(f"metadata.labels[{MAX_EXECUTION}]", why, "give a shorter time, or none")
    for each in sets:
        notes = section(each.template, "metadata", "annotations")
        for key, most in _LONGEST_NOTES.items():
            value = notes.get(key)
            if isinstance(value, str) and len(value) > most:
                why = f"Too long: may not be more than {most} bytes"
                yield Problem(f"{_in_runtime(each.at)}.metadata.annotations[{key}]", why, "a label with a shorter key")


def many_steps(view: View) -> Iterator[Problem]:
    """Yield that only newer versions of Kueue take a job with so many replicated jobs."""
    count = len(view.steps)
    if view.queue and _OLDER_PODSETS[0] < count <= MOST_PODSETS:
        most, later = _OLDER_PODSETS
        why = (
            f"has {count} replicated jobs, but a Workload of older versions of Kueue has at most {most} (0.18: {later})"
        )
        yield Problem("spec.template.spec.replicatedJobs", why, "use Kueue 0.19 or newer, then ignore this warning")


MOST_PODSETS = 18
_OLDER_PODSETS = (8, 10)
_MOST_SECONDS = 2**31 - 1
_LONGEST_NOTES = {REQUIRED: 63, PREFERRED: 63, SLICE_LEVEL: 63, TOGETHER: 256}


def _in_runtime(at: str) -> str:
    """Return the path in a runtime of a path in a JobSet."""
    return at.replace("spec.", "spec.template.spec.", 1)


def stopped_queue(document: Document, _queues: Queues) -> Iterator[Problem]:
    """Yield that a queue is stopped. The preview reports the condition of a queue in a cluster by itself."""
    policy, kind = section(document, "spec").get("stopPolicy"), document.get("kind")
    if kind not in ("ClusterQueue", "LocalQueue") or policy in (None, "None"):
        return
    if policy not in ("Hold", "HoldAndDrain"):
        if first_unknown(policy) is None:
            why = f"is {policy!r}, so the API server rejects the queue"
            yield Problem(_at(document, "spec.stopPolicy"), why, "write None, Hold or HoldAndDrain")
        return
    if section(document, "status").get("conditions"):
        return
    drains = ""
    if policy == "HoldAndDrain":
        drains = " and suspends those that it has admitted"
    why = f"is {policy}: the queue admits no jobs{drains} until that is changed"
    yield Problem(_at(document, "spec.stopPolicy"), why, "leave it out, or set it to None, to let its jobs start")


def no_priority_class(view: View) -> Iterator[Problem]:
    """Yield that a job's WorkloadPriorityClass does not exist."""
    name = labels_of(view.queued).get(PRIORITY)
    if view.queues.lacks("WorkloadPriorityClass", name):
        why = f"WorkloadPriorityClass {name} does not exist: Kueue creates no Workload for the job, which never starts"
        near = _similar_name(name, view.queues.of("WorkloadPriorityClass"))
        yield Problem(f"metadata.labels[{PRIORITY}]", why, near or "create it, or leave the priority out")


def unused_queue_fields(view: View) -> Iterator[Problem]:
    """Yield labels and annotations that only Kueue reads, on a job without a queue."""
    if view.queue:
        return
    labels, found = labels_of(view.queued), dict[str, str]()
    for label in (PRIORITY, MAX_EXECUTION):
        if labels.get(label):
            found[label] = f"metadata.labels[{label}]"
    for pods in pod_sets(view.jobset):
        notes = pods.annotations
        if not isinstance(notes, Mapping):
            continue
        for key in PLACED:
            if key in notes:
                found.setdefault(key, f"spec.template.{pods.at}.metadata.annotations[{key}]")
    unless = ", unless the namespace has a LocalQueue named default"
    if view.queues.has_all("LocalQueue"):
        unless = ""
    for label, where in found.items():
        why = f"{label} has no effect without a queue{unless}"
        yield Problem(where, why, "give the job a queue, or leave it out")


QUEUED = f"metadata.labels[{QUEUE}]"


def _about_queue(view: View, why: str, hint: str) -> Problem:
    """Return a problem of a job with its queue, which is named if the job does not name it."""
    if not labels_of(view.queued).get(QUEUE):
        why = f"is missing, so its queue is LocalQueue {view.queue} of the namespace: {why}"
    return Problem(QUEUED, why, hint)


def reason_not_fitting_queue(view: View) -> NotFitting | None:
    """Return why the queue of the job never admits it; None if it may."""
    behind = cluster_queue_of_job(view)
    if behind is None or not view.jobset:
        return None
    return reason_not_fitting(view.jobset, behind, view.queues)


def _hint_flavor(view: View, found: NotFitting) -> str:
    if "no TAS flavor" in found.words:
        return (
            f"add a request of {found.pod_set.name} for a resource that the queue covers, such as cpu, or let the"
            " queue cover pods"
        )
    if "requested level" in found.words or "support" in found.words:
        behind = cluster_queue_of_job(view) or {}
        levels = set[str]()
        for flavor in view.queues.of("ResourceFlavor"):
            if _uses(behind, flavor):
                levels.update(view.queues.levels(flavor) or ())
        if not levels:
            return "leave the topology out: the flavors of the queue have none"
        return f"use a level that the flavors of the queue have: {', '.join(sorted(levels))}"
    return "change tolerations or the node selector, or choose another queue"


def local_queue(view: View) -> Document | None:
    """Return the LocalQueue of the job; None if unknown."""
    return view.queues.find("LocalQueue", view.queue, view.namespace)


def cluster_queue_of_job(view: View) -> Document | None:
    """Return the ClusterQueue of the job; None if unknown."""
    return view.queues.find("ClusterQueue", section(local_queue(view), "spec").get("clusterQueue"))


def _uses(cluster_queue: Document, flavor: Document) -> bool:
    name = section(flavor, "metadata").get("name")
    return any(reference[:2] == ("ResourceFlavor", name) for reference in references(cluster_queue))


def _at(document: Document, path: str) -> str:
    return f"{document.get('kind')} {section(document, 'metadata').get('name')}: {path}"


def _similar_name(name: Any, others: list[Document]) -> str:
    names = [str(section(d, "metadata").get("name")) for d in others]
    if not names:
        return ""
    return did_you_mean(str(name), names, f"there are: {', '.join(sorted(names)[:5])}")
