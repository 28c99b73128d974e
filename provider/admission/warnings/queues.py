"""Rules about Kueue's queues: what is wrong with them, and jobs that they never admit.

The first are about queues alone (`queue_problems`): told of those that a job goes through, and of all of a program. A path of
theirs begins with kind and name, such as `ClusterQueue research: spec.resourceGroups[0]`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.admission.warnings.view import DEFAULT_NAMESPACE, Document, View
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.fit import Never, never
from pulumi_trainer.provider.kueue.labels import (
    MAX_EXECUTION,
    PREFERRED,
    PRIORITY,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.topology_fit import MEND, cramped

_NAMESPACE = "kubernetes.io/metadata.name"
"""The label with its name, which every namespace has."""
_PLACED = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL)

# --- queues alone -----------------------------------------------------------------------------------------------------------


def leads_nowhere(document: Document, queues: Queues) -> Iterator[Problem]:
    """A LocalQueue whose ClusterQueue does not exist."""
    wanted = section(document, "spec").get("clusterQueue")
    if document.get("kind") == "LocalQueue" and queues.lacks("ClusterQueue", wanted):
        why = f"there is no ClusterQueue {wanted}: jobs of this queue wait for ever"
        yield Problem(_at(document, "spec.clusterQueue"), why, _near(wanted, queues.of("ClusterQueue")))


def unmatched_flavor(document: Document, queues: Queues) -> Iterator[Problem]:
    """A flavor that a ClusterQueue has quota in, and that no node has the labels of, or those of its topology."""
    labels = section(document, "spec", "nodeLabels")
    if document.get("kind") != "ResourceFlavor" or not queues.has_all("Node") or not labels or first_unknown(labels):
        return
    users = [str(section(q, "metadata").get("name")) for q in queues.of("ClusterQueue") if _uses(q, document)]
    nodes = [section(node, "metadata", "labels") for node in queues.of("Node")]
    its = [node for node in nodes if all(node.get(k) == v for k, v in labels.items())]
    levels = queues.levels(document) or []
    if users and its and not any(all(level in node for level in levels) for node in its):
        why = f"none of its {len(its)} nodes has all labels of its topology ({', '.join(levels)}): Kueue places nothing there"
        yield Problem(_at(document, "spec.topologyName"), why, "label the nodes, or correct the levels of the Topology")
    if users and not its:
        shown = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()))
        why = f"none of {len(nodes)} nodes has the labels {shown}: jobs that {', '.join(sorted(users))} admits in it find no node"
        alone = [k for k, v in labels.items() if not any(node.get(k) == v for node in nodes)]
        seen = sorted({f"{k}={node[k]}" for k in alone for node in nodes if k in node})
        yield Problem(
            _at(document, "spec.nodeLabels"), why, f"nodes have {', '.join(seen[:5])}" if seen else "label the nodes"
        )


def circles(document: Document, queues: Queues) -> Iterator[Problem]:
    """A cohort that is its own ancestor."""
    name = section(document, "metadata").get("name")
    for cycle in queues.tree.cycles if document.get("kind") == "Cohort" else ():
        if name == cycle[0]:
            shown = " -> ".join((*cycle, cycle[0]))
            why = f"{shown} is a circle: Kueue admits nothing in any of their ClusterQueues"
            yield Problem(_at(document, "spec.parentName"), why, "leave the parentName of one of them out")


def dangling(document: Document, queues: Queues) -> Iterator[Problem]:
    """What a ClusterQueue or a flavor names and is not there: the queue is accepted, and inactive."""
    spec, kind = section(document, "spec"), document.get("kind")
    if kind == "ResourceFlavor" and queues.lacks("Topology", spec.get("topologyName")):
        why = f"there is no Topology {spec['topologyName']}: ClusterQueues with this flavor are inactive"
        yield Problem(_at(document, "spec.topologyName"), why, _near(spec["topologyName"], queues.of("Topology")))
    if kind != "ClusterQueue":
        return
    for i, group in enumerate(listed(spec.get("resourceGroups"))):
        for j, flavor in enumerate(listed(section(group).get("flavors"))):
            name = section(flavor).get("name")
            if queues.lacks("ResourceFlavor", name):
                why = f"there is no ResourceFlavor {name}: the queue is inactive, and admits nothing at all"
                where = _at(document, f"spec.resourceGroups[{i}].flavors[{j}].name")
                yield Problem(where, why, _near(name, queues.of("ResourceFlavor")))
    checks = listed(section(spec, "admissionChecksStrategy").get("admissionChecks"))
    for i, check in enumerate(checks):
        name = section(check).get("name")
        if queues.lacks("AdmissionCheck", name):
            why = f"there is no AdmissionCheck {name}: the queue is inactive, and admits nothing at all"
            where = _at(document, f"spec.admissionChecksStrategy.admissionChecks[{i}].name")
            yield Problem(where, why, _near(name, queues.of("AdmissionCheck")))


QueueRule = Callable[[Document, Queues], Iterator[Problem]]


def of_the_way(rule: QueueRule) -> Callable[[View], Iterator[Problem]]:
    """As a rule about a job: what it finds about the queue, its cohorts and their flavors."""

    def find(view: View) -> Iterator[Problem]:
        for document in _way(view):
            yield from rule(document, view.queues)

    return find


def _way(view: View) -> Iterator[Document]:
    local, behind = _local(view), _behind(view)
    if local is not None:
        yield local
    if behind is None:
        return
    yield behind
    queues = view.queues
    node = queues.tree.queues.get(str(section(behind, "metadata").get("name")))
    above = {each.name for each in node.path[1:]} if node else set()
    cycles = [cycle[0] for cycle in queues.tree.cycles if above & set(cycle)]
    for name in sorted({*above, *cycles}):
        if (cohort := queues.find("Cohort", name)) is not None:
            yield cohort
    for flavor in queues.of("ResourceFlavor"):
        if _uses(behind, flavor):
            yield flavor


# --- jobs in them -----------------------------------------------------------------------------------------------------------


def uncovered(view: View) -> Iterator[Problem]:
    """A resource that the queue has no quota for at all."""
    if (found := _never(view)) and found.cause == "uncovered":
        resource = found.words.rpartition("resource ")[2].partition(" ")[0]
        why = f"its queue has no quota for {resource}, which {found.pod_set.name} asks for, and never admits it: {found.words}"
        yield Problem(_QUEUED, why, "choose another queue, or cover the resource in its ClusterQueue")


def too_large(view: View) -> Iterator[Problem]:
    """A job that needs more than its queue can have with all that it may borrow."""
    if (found := _never(view)) and found.cause == "capacity":
        why = f"it needs more than its queue can ever have, with all that it may borrow: {found.words}"
        yield Problem(_QUEUED, why, "ask for less (fewer nodes, fewer devices a node), or choose another queue")


def no_flavor(view: View) -> Iterator[Problem]:
    """A job that no flavor of its queue is for: taints, node labels, topology."""
    if (found := _never(view)) and found.cause == "flavor":
        yield Problem(_QUEUED, f"none of its queue's flavors is for it: {found.words}", _mend_flavor(view, found))


def no_room(view: View) -> Iterator[Problem]:
    """A job whose topology no domain of the nodes that there are is large enough for."""
    behind = _behind(view)
    if behind is None or not view.jobset or _never(view):
        return
    if found := cramped(pod_sets(view.jobset), behind, view.queues):
        yield Problem(_QUEUED, f"it waits until there are other nodes: {found}", MEND)


def closed(view: View) -> Iterator[Problem]:
    """A ClusterQueue that takes no jobs of this namespace."""
    behind, namespace = _behind(view), _namespace(view)
    if behind is None or not isinstance(namespace, str):
        return
    spec = section(behind, "spec")
    selector = spec.get("namespaceSelector")
    if isinstance(selector, Unknown) or first_unknown(selector) is not None:
        return
    name = section(behind, "metadata").get("name")
    mend = "set its namespaceSelector; {} takes jobs of all namespaces"
    if selector is None:
        yield Problem(_QUEUED, f"its ClusterQueue {name} has no namespaceSelector, and so takes no jobs at all", mend)
    elif section(selector, "matchLabels").get(_NAMESPACE, namespace) != namespace or any(
        section(e).get("operator") == "In" and namespace not in listed(section(e).get("values"))
        for e in listed(section(selector).get("matchExpressions"))
        if section(e).get("key") == _NAMESPACE
    ):
        yield Problem(_QUEUED, f"its ClusterQueue {name} takes no jobs of namespace {namespace}", mend)


def no_priority_class(view: View) -> Iterator[Problem]:
    name = section(view.train_job, "metadata", "labels").get(PRIORITY)
    if view.queues.lacks("WorkloadPriorityClass", name):
        why = f"there is no WorkloadPriorityClass {name}: Kueue makes no Workload for the job, which waits for ever"
        near = _near(name, view.queues.of("WorkloadPriorityClass"))
        yield Problem(f"metadata.labels[{PRIORITY}]", why, near or "make one, or leave the priority out")


def unread(view: View) -> Iterator[Problem]:
    """What only Kueue reads, without a queue."""
    labels = section(view.train_job, "metadata").get("labels")
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping) or labels.get(QUEUE):
        return
    found = {label: f"metadata.labels[{label}]" for label in (PRIORITY, MAX_EXECUTION) if labels.get(label)}
    for pods in pod_sets(view.jobset):
        notes = pods.annotations if isinstance(pods.annotations, Mapping) else {}
        found |= {
            key: f"spec.template.{pods.at}.metadata.annotations[{key}]"
            for key in _PLACED
            if key in notes and key not in found
        }
    for label, where in found.items():
        why = f"without a queue nobody reads {label}, unless the namespace has a LocalQueue named default"
        yield Problem(where, why, "give the job a queue, or leave it out")


_QUEUED = f"metadata.labels[{QUEUE}]"


def _never(view: View) -> Never | None:
    behind = _behind(view)
    return None if behind is None or not view.jobset else never(view.jobset, behind, view.queues)


def _mend_flavor(view: View, found: Never) -> str:
    if "no TAS flavor" in found.words:
        return f"let {found.pod_set.name} ask for something that the queue covers, such as cpu, or let the queue cover pods"
    if "requested level" in found.words or "support" in found.words:
        flavors = [f for f in view.queues.of("ResourceFlavor") if _uses(_behind(view) or {}, f)]
        levels = sorted({level for flavor in flavors for level in view.queues.levels(flavor) or []})
        return (
            f"levels that its flavors have: {', '.join(levels)}"
            if levels
            else "leave the topology out; its flavors have none"
        )
    return "change tolerations or the node selector, or choose another queue"


def _namespace(view: View) -> Any:
    return section(view.train_job, "metadata").get("namespace") or DEFAULT_NAMESPACE


def _local(view: View) -> Document | None:
    name = section(view.train_job, "metadata", "labels").get(QUEUE)
    return view.queues.find("LocalQueue", name, _namespace(view))


def _behind(view: View) -> Document | None:
    """The ClusterQueue of the job."""
    local = _local(view)
    return None if local is None else view.queues.find("ClusterQueue", section(local, "spec").get("clusterQueue"))


def _uses(cluster_queue: Document, flavor: Document) -> bool:
    name = section(flavor, "metadata").get("name")
    groups = listed(section(cluster_queue, "spec").get("resourceGroups"))
    return any(section(f).get("name") == name for group in groups for f in listed(section(group).get("flavors")))


def _at(document: Document, path: str) -> str:
    return f"{document.get('kind')} {section(document, 'metadata').get('name')}: {path}"


def _near(name: Any, others: list[Document]) -> str:
    names = [str(section(d, "metadata").get("name")) for d in others]
    near = difflib.get_close_matches(str(name), names, 1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(names)[:5])}" if names else ""
