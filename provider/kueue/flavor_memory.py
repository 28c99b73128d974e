"""The memory of a GPU of the flavors and nodes that a job may get: an annotation of ResourceFlavors, and labels of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import selects
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, name_of, section
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.fit import flavor_names, off_node
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.queue_state import Queues

MEMORY = "pulumi-trainer.dev/gpu-memory"
"""Annotation of a ResourceFlavor: the memory of one of its GPUs, such as "80Gi"."""
_LEAST, _MOST = 2**28, 2**44
_MIB_LABELS = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")
"""Labels of nodes with the memory of a GPU in MiB: of NVIDIA's GPU feature discovery, and of Karpenter on AWS."""
_NAME_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
"""Labels of nodes with the name of a GPU, which often ends with its memory: NVIDIA-H100-80GB-HBM3, nvidia-h100-80gb."""
_GIGABYTES = re.compile(r"(?<![0-9])(\d{1,4})gb(?![a-z])", re.IGNORECASE)


def read_memory(given: Any) -> int:
    """Return the bytes of the memory of a GPU, such as "80Gi". Raises Invalid."""
    try:
        found = Quantity.parse(given).value
    except ValueError:
        found = 0
    if not _LEAST <= found <= _MOST:
        raise Invalid(Problem("", f"must be the memory of one GPU, not {given!r}", 'for example "80Gi"'))
    return found


def memory_of_part(resource: str) -> int | None:
    """Return the memory of a part of a GPU by the profile in its resource, such as nvidia.com/mig-3g.40gb; None for others."""
    return _in_name(resource) if "/mig-" in resource else None


def memory_by_place(pods: PodSet, resource: str, cluster_queue: Document | None, queues: Queues) -> dict[str, int]:
    """Return the memory of a GPU in each flavor that Pods may get, or of the nodes that they select; without what is not known.

    Args:
        resource: The GPUs that the Pods request.
        cluster_queue: That of the job; None for a job without a queue.
    """
    if cluster_queue is None:
        memory = _of_nodes(node for node in queues.of("Node") if selects(pods.spec, node))
        return {} if memory is None else {"": memory}
    found = {}
    for name in _flavors(pods, resource, cluster_queue, queues):
        memory = _of_flavor(name, queues)
        if memory is not None:
            found[without_digest(name)] = memory
    return found


def _flavors(pods: PodSet, resource: str, cluster_queue: Document, queues: Queues) -> Iterator[str]:
    """Yield the flavors of a ClusterQueue in which it may have quota for Pods, in Kueue's order."""
    node = queues.tree.queues.get(name_of(cluster_queue))
    for group in map(section, listed(section(cluster_queue, "spec").get("resourceGroups"))):
        for name in flavor_names(group):
            flavor = queues.find("ResourceFlavor", name)
            if flavor is not None and (first_unknown(flavor) is not None or off_node(name, flavor, pods)):
                continue
            if node is not None and node.potential((name, resource)) > 0:
                yield name


def _of_flavor(name: str, queues: Queues) -> int | None:
    """Return the memory of a GPU of a flavor: its annotation, its labels, else the largest of its nodes."""
    flavor = queues.find("ResourceFlavor", name) or {}
    given, labels = section(flavor, "metadata", "annotations").get(MEMORY), section(flavor, "spec", "nodeLabels")
    try:
        return read_memory(given)
    except Invalid:
        pass
    nodes = (node for node in queues.of("Node") if selects({"nodeSelector": labels}, node))
    return _of_labels(labels) or _of_nodes(nodes if labels else ())


def _of_nodes(nodes: Iterable[Document]) -> int | None:
    """Return the largest memory of a GPU; None if a node with GPUs does not tell its own."""
    found = []
    for node in nodes:
        if any("gpu" in str(name) for name in section(node, "status", "allocatable")):
            found.append(_of_labels(section(node, "metadata", "labels")))
    return None if None in found else max(filter(None, found), default=None)


def _of_labels(labels: Mapping[str, Any]) -> int | None:
    for key in _MIB_LABELS:
        if re.fullmatch(r"\d{3,8}", str(labels.get(key))):
            return int(labels[key]) * 2**20
    for key in _NAME_LABELS:
        found = _in_name(str(labels.get(key)))
        if found is not None:
            return found
    return None


def _in_name(name: str) -> int | None:
    """Return the memory at the end of a name, which of a part of a GPU has that of the part last."""
    found = _GIGABYTES.findall(name)
    return int(found[-1]) * 2**30 if found else None
