"""The components for kinds of nodes: ResourceFlavor and Topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.queues.arguments import Spec
from pulumi_trainer.queues.component import QueueObject


class TopologyArgs(Spec):
    """The arguments of `Topology`."""

    levels: Sequence[pulumi.Input[str]]

    converters = {"levels": lambda labels: [{"nodeLabel": label} for label in labels]}
    elsewhere = {
        "required": 'TrainJob(topology=trainer.Required("LABEL"))',
        "preferred": 'TrainJob(topology=trainer.Preferred("LABEL"))',
        "unconstrained": "TrainJob(topology=trainer.Unconstrained())",
    }


class Topology(QueueObject):
    """How far nodes are from each other (Topology). It is immutable: other levels need another name.

    Args:
        resource_name: Name of the Pulumi resource.
        levels: Node labels, the widest first, such as a block, a rack and `kubernetes.io/hostname`, which can only be
            the last (`levels`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "Topology"

    @constructor(TopologyArgs)
    def __init__(self) -> None: ...


class ResourceFlavorArgs(Spec):
    """The arguments of `ResourceFlavor`."""

    node_labels: Mapping[str, pulumi.Input[str]] | None = None
    node_taints: Sequence[Any] | None = None
    tolerations: Sequence[Any] | None = None
    topology: Topology | pulumi.Input[str] | None = None

    refers = {"topology": "Topology"}
    paths = {"topology": "topologyName"}


class ResourceFlavor(QueueObject):
    """One kind of nodes (ResourceFlavor).

    Args:
        resource_name: Name of the Pulumi resource.
        node_labels: Labels of these nodes, at most 8; pods of jobs that get the flavor go there (`nodeLabels`).
        node_taints: Taints of these nodes, at most 8 mappings or `TaintArgs` of pulumi-kubernetes; only jobs that
            tolerate them get the flavor (`nodeTaints`).
        tolerations: Tolerations that jobs get with the flavor, at most 8 mappings or `TolerationArgs` (`tolerations`).
        topology: A `Topology` or its name. It needs `node_labels`, and makes labels and tolerations immutable
            (`topologyName`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "ResourceFlavor"

    @constructor(ResourceFlavorArgs)
    def __init__(self) -> None: ...
