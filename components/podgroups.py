"""PodGroups as components: for pods without a TrainJob, or for a TrainJob in one gang with others.

A runtime with `pod_group_policy` needs none: its jobs contain theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_trainer.args.policies import VolcanoNetworkTopology
from pulumi_trainer.kubernetes_object import KubernetesObject, ObjectArgs
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.trainer.admission.podgroups import mistakes, refusals
from pulumi_trainer.provider.trainer.kinds import POD_GROUP, VOLCANO_POD_GROUP
from pulumi_trainer.provider.trainer.pipeline.plugins import coscheduling, volcano

Amounts = Mapping[str, pulumi.Input[int] | pulumi.Input[str]]
"""Resource -> quantity of Kubernetes: 16, "128Gi"."""


class PodGroupArgs(ObjectArgs):
    """The arguments that PodGroups of all schedulers have."""

    min_resources: Amounts | None = None


class CoschedulingPodGroupArgs(PodGroupArgs):
    """The arguments of `CoschedulingPodGroup`."""

    min_member: pulumi.Input[int]
    schedule_timeout_seconds: pulumi.Input[int] | None = None


class VolcanoPodGroupArgs(PodGroupArgs):
    """The arguments of `VolcanoPodGroup`."""

    min_member: pulumi.Input[int] | None = None
    min_task_member: Mapping[str, pulumi.Input[int]] | None = None
    queue: pulumi.Input[str] | None = None
    priority_class_name: pulumi.Input[str] | None = None
    network_topology: VolcanoNetworkTopology | None = None


class _PodGroup(KubernetesObject):
    """Base of the PodGroups."""

    @property
    def pod_labels(self) -> dict[str, str]:
        """Return the labels for the template of its pods."""
        return {}

    @property
    def pod_annotations(self) -> dict[str, str]:
        """Return the annotations for the template of its pods."""
        return {}

    def affects(self, job: Mapping[str, Any]) -> bool:
        """Return whether a JobSet has pods of the group."""
        own = {"labels": self.pod_labels, "annotations": self.pod_annotations}
        for each in items(section(job, "spec"), "replicatedJobs"):
            about = section(each, "template", "spec", "template", "metadata")
            if all(wanted.items() <= section(about, part).items() for part, wanted in own.items()):
                return True
        return False

    def content(self, args: PodGroupArgs) -> Mapping[str, Any]:
        return {"spec": args.document()}

    def object_problems(self, document: Mapping[str, Any]) -> list[Problem]:
        return refusals(document) or mistakes(document)


class CoschedulingPodGroup(_PodGroup):
    """A PodGroup of Kubernetes' scheduler-plugins (scheduling.x-k8s.io/v1alpha1,
    https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/apis/scheduling/v1alpha1/types.go).

    Its pods name the scheduler, and have `pod_labels`.

    Args:
        resource_name: Name of the Pulumi resource.
        min_member: Pods that start together, at least 1 (`minMember`).
        min_resources: Resources that the cluster must have before single pods are scheduled, such as {"nvidia.com/gpu":
            32} (`minResources`).
        schedule_timeout_seconds: Seconds that pods keep their nodes while they wait for the others; default: the
            scheduler's (`scheduleTimeoutSeconds`).
        namespace: Namespace; default: that of the target.
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        opts: Resource options.
    """

    resource = POD_GROUP
    kind = "CoschedulingPodGroup"

    @constructor(CoschedulingPodGroupArgs)
    def __init__(self) -> None: ...

    @property
    def pod_labels(self) -> dict[str, str]:
        """Return `scheduling.x-k8s.io/pod-group`, for the template of its pods."""
        return {coscheduling.POD_GROUP_LABEL: self.name}


class VolcanoPodGroup(_PodGroup):
    """A PodGroup of Volcano (scheduling.volcano.sh/v1beta1,
    https://github.com/volcano-sh/apis/blob/v1.13.0/pkg/apis/scheduling/v1beta1/types.go).

    Its pods name the scheduler, and have `pod_annotations`.

    Args:
        resource_name: Name of the Pulumi resource.
        min_member: Pods that start together (`minMember`).
        min_task_member: Pods that start together, by task (annotation `volcano.sh/task-spec` of the pods;
            `minTaskMember`).
        min_resources: Resources that the queue must have for them (`minResources`).
        queue: Queue of Volcano; default: `default`.
        priority_class_name: PriorityClass (`priorityClassName`).
        network_topology: How far apart its nodes may be (`networkTopology`).
        namespace: Namespace; default: that of the target.
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        opts: Resource options.
    """

    resource = VOLCANO_POD_GROUP
    kind = "VolcanoPodGroup"

    @constructor(VolcanoPodGroupArgs)
    def __init__(self) -> None: ...

    @property
    def pod_annotations(self) -> dict[str, str]:
        """Return `scheduling.k8s.io/group-name`, for the template of its pods."""
        return {volcano.GROUP_ANNOTATION: self.name}
