"""Rules about the nodes of a cluster, and what Kueue and autoscalers do with them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import NoNode, selects, shown_taint, untolerated
from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, section, texts
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import Container, ReplicatedJob
from pulumi_trainer.provider.kueue.podsets import PodSet, pod_sets
from pulumi_trainer.provider.trainer.admission.namespace_limits import pods_without_node
from pulumi_trainer.provider.trainer.admission.warnings.placing import untolerated_taints
from pulumi_trainer.provider.trainer.admission.warnings.queues import (
    cluster_queue_of_job,
    reason_not_fitting_queue,
    unmatched_flavor,
)
from pulumi_trainer.provider.trainer.admission.warnings.view import View

_HOSTNAME = "kubernetes.io/hostname"
_RDMA = ("rdma/", "nvidia.com/hostdev", "nvidia.com/mlnxnics")
"""Beginnings of the resources of RDMA devices in the documentation of their device plugins."""
_LOCKS = {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"}
_KARPENTER, _CAPACITY = "karpenter.sh/nodepool", "karpenter.sh/capacity-type"
_KEPT = "karpenter.sh/do-not-disrupt"


def no_node(view: View) -> Iterator[Problem]:
    """Yield Pods that the nodes of the cluster do not take, in no flavor of their queue; PT211 is about room in topologies."""
    if not view.patches_known:
        return
    for step, found, queued in _pods_without_node(view):
        at = f"spec.template.{step.pod.at}"
        if found.tainted and f"{at}.tolerations" in {problem.where for problem in untolerated_taints(view)}:
            continue  # PT111 is about these
        hint = "request less per node, or correct node selector, affinity and tolerations"
        waits = "never start"
        if found.on_demand:
            waits = "wait until the cluster's autoscaler adds such nodes"
            hint = "ignore this warning if the autoscaler can add them"
        why = f"some Pods of {step.name} fit no node of the cluster and {waits}: {found.why}{queued}"
        yield Problem(at, why, hint)


def _pods_without_node(view: View) -> Iterator[tuple[ReplicatedJob, NoNode, str]]:
    """Yield steps without a node, each with what Kueue does with such a job."""
    queues, behind = view.queues, cluster_queue_of_job(view)
    if behind is None:
        if not view.queue:
            for step, found in pods_without_node(view.jobset, queues):
                yield step, found, ""
        return
    if section(behind, "spec", "admissionChecksStrategy") or reason_not_fitting_queue(view):
        return  # a check may make nodes, or send the job to another cluster
    for group in _groups(view, behind):
        flavors = _matched_flavors(view, group)
        levels = [queues.levels(flavor) or [] for flavor in flavors]
        if not flavors:
            continue
        for step, found in pods_without_node(view.jobset, queues, flavors):
            if found.tainted or not any(levels):  # PT211 is about room in a topology
                yield step, found, _admission(levels, found)


def _admission(levels: list[list[str]], found: NoNode) -> str:
    """Return what Kueue does with Pods that do not tolerate the taints of all nodes; empty if flavors differ in that."""
    if not all(levels) or not found.tainted:
        return ""
    by_host = {_HOSTNAME in each for each in levels}
    if by_host == {True}:
        return ". Kueue checks the taints of nodes in a topology by kubernetes.io/hostname, and never admits the job"
    if by_host == {False}:
        return (
            f". Up to 0.19 Kueue ignores taints in a topology without {_HOSTNAME}, admits the job, and its Pods hold the"
            " quota; 0.20 never admits it, with the gate TASNodeFeasibilityForAllLevels"
        )
    return ""


def _groups(view: View, cluster_queue: Document) -> Iterator[Document]:
    """Yield the resource groups of a ClusterQueue with a resource that the job requests."""
    requested = set[str]()
    for pods in pod_sets(view.jobset, view.queues):
        requested.update(pods.quota_requests() or ())
    for group in map(section, listed(section(cluster_queue, "spec").get("resourceGroups"))):
        if requested & {*texts(group.get("coveredResources"))}:
            yield group


def _matched_flavors(view: View, group: Document) -> list[Document]:
    """Return the flavors of a resource group that match a node; empty if one of the group, or its topology, is not known."""
    matched: list[Document] = []
    for each in listed(group.get("flavors")):
        flavor = view.queues.find("ResourceFlavor", section(each).get("name"))
        if flavor is None or view.queues.levels(flavor) is None:
            return []
        if not any(unmatched_flavor(flavor, view.queues)):  # PT204 is about the others
            matched.append(flavor)
    return matched


def replaced_tolerations(view: View) -> Iterator[Problem]:
    """Yield that Kueue replaces the tolerations of Pods by those of flavors, which it writes into a TrainJob's runtimePatches.

    Kueue adds them to those of a JobSet. Source: https://github.com/kubernetes-sigs/kueue/pull/15162, in Kueue 0.20.
    """
    behind = cluster_queue_of_job(view)
    if view.mode != "trainer" or behind is None or not view.patches_known:
        return
    groups = [*_groups(view, behind)]
    for pods in pod_sets(view.jobset, view.queues):
        for group in groups:
            if (pods.quota_requests() or {}).keys() & {*texts(group.get("coveredResources"))}:
                others: list[Document] = []
                for other in groups:
                    if other is not group:
                        others += _flavors(view, other)
                for flavor in _flavors(view, group):
                    yield from _replaced(view, pods, flavor, others)


def _flavors(view: View, group: Document) -> Iterator[Document]:
    for each in listed(group.get("flavors")):
        flavor = view.queues.find("ResourceFlavor", section(each).get("name"))
        if flavor is not None and first_unknown(flavor) is None:
            yield flavor


def _replaced(view: View, pods: PodSet, flavor: Document, others: list[Document]) -> Iterator[Problem]:
    """Yield that a flavor replaces tolerations. others: Flavors of other resource groups, which may add some."""
    given, instead = mappings(pods.spec.get("tolerations")), _tolerations_of(flavor)
    added = list(chain.from_iterable(map(_tolerations_of, others)))
    lost = [each for each in given if each not in [*instead, *added]]
    if not instead or not lost or _suffices(view, pods, flavor, [*instead, *added]):
        return
    name = section(flavor, "metadata").get("name")
    effect = "the Pods may find no node, and hold the quota"
    if view.queues.of("Node"):
        effect = "no node of the flavor takes the Pods, which hold the quota"
    why = (
        f"before Kueue 0.20 the tolerations of flavor {name} replace these of {pods.name} when Kueue admits the TrainJob,"
        f" without {', '.join(map(_shown, lost))}: {effect}"
    )
    hint = f"give flavor {name} all of these tolerations, use Kueue 0.20, or mode jobset"
    yield Problem(f"spec.template.{pods.at}.spec.tolerations", why, hint)


def _tolerations_of(flavor: Document) -> list[Document]:
    return mappings(section(flavor, "spec").get("tolerations"))


def _suffices(view: View, pods: PodSet, flavor: Document, tolerations: list[Document]) -> bool:
    """Return whether a node of the flavor takes the Pods with these tolerations alone."""
    labels = section(flavor, "spec", "nodeLabels")
    spec = {**pods.spec, "nodeSelector": {**section(pods.spec, "nodeSelector"), **labels}}
    if first_unknown(spec) is not None:
        return True
    alone = Tolerations(tolerations)
    return any(selects(spec, node) and not untolerated(alone, node) for node in view.queues.of("Node"))


def _shown(toleration: Document) -> str:
    if not toleration.get("key"):
        return "that of all taints"
    return shown_taint({"effect": "any effect", **toleration})


def unlocked_memory(view: View) -> Iterator[Problem]:
    """Yield containers with an RDMA device that may not lock memory, which registers buffers at the device."""
    for step in view.steps:
        for container in step.pod.all_containers:
            devices = [name for name in section(container.document, "resources", "limits") if name.startswith(_RDMA)]
            if devices and not _may_lock(container):
                why = (
                    f"the container {container.name} has {devices[0]}, but not the capability IPC_LOCK: registering memory"
                    " fails (ibv_reg_mr: Cannot allocate memory), unless the container runtime of the nodes sets no limit"
                    " of locked memory"
                )
                hint = 'securityContext: {"capabilities": {"add": ["IPC_LOCK"]}} of the container'
                yield Problem(f"{container.at}.securityContext", why, hint)


def _may_lock(container: Container) -> bool:
    context = container.document.get("securityContext", {})
    if first_unknown(context) is not None or section(context).get("privileged") is True:
        return True
    return bool(_LOCKS & {*texts(section(context, "capabilities").get("add"))})


def consolidated_nodes(view: View) -> Iterator[Problem]:
    """Yield that Karpenter may move the Pods of a job to other nodes while they train."""
    worker = view.worker
    if worker is None or not view.patches_known:
        return
    if first_unknown([worker.template.get("metadata"), worker.pod.spec]) is not None:
        return
    kept = section(worker.template, "metadata", "annotations").get(_KEPT) == "true"
    if not kept and _is_on_karpenter(view, worker):
        why = (
            f"Karpenter may replace the nodes of {worker.name} to save costs while the job trains, and ends its Pods: a"
            " NodePool's default consolidationPolicy is WhenEmptyOrUnderutilized"
        )
        hint = f'annotate the Pods with {_KEPT}: "true", or use a NodePool with consolidationPolicy: WhenEmpty'
        yield Problem(f"{worker.at}.template.spec.template.metadata.annotations", why, hint)


def _is_on_karpenter(view: View, step: ReplicatedJob) -> bool:
    """Return whether a step selects nodes of Karpenter, or all nodes that it selects are Karpenter's."""
    if {_KARPENTER, _CAPACITY} & section(step.pod.spec, "nodeSelector").keys():
        return True
    found = False
    for node in view.queues.of("Node"):
        if selects(step.pod.spec, node):
            if _KARPENTER not in section(node, "metadata", "labels"):
                return False
            found = True
    return found
