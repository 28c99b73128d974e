"""Admission checks, which run before a job starts: components for Kueue's AdmissionChecks and their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.queues.arguments import CheckParameters, RetryStrategy, Spec, object_name
from pulumi_trainer.queues.component import QueueObject


class ProvisioningRequestConfigArgs(Spec):
    """The arguments of `ProvisioningRequestConfig`."""

    provisioning_class_name: pulumi.Input[str]
    parameters: Mapping[str, pulumi.Input[str]] | None = None
    managed_resources: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    retry_strategy: RetryStrategy | None = None
    node_selector_updates: Mapping[str, pulumi.Input[str]] | None = None
    pod_set_merge_policy: (
        pulumi.Input[Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]] | None
    ) = None

    paths = {"node_selector_updates": "podSetUpdates.nodeSelector"}
    converters = {
        "node_selector_updates": lambda given: [
            {"key": key, "valueFromProvisioningClassDetail": detail} for key, detail in given.items()
        ]
    }


class ProvisioningRequestConfig(QueueObject):
    """How nodes are requested before a job is admitted (ProvisioningRequestConfig).

    Args:
        resource_name: Name of the Pulumi resource.
        provisioning_class_name: Provisioning class of the autoscaler (`provisioningClassName`).
        parameters: Parameters of the requests, at most 100 (`parameters`).
        managed_resources: Only jobs that request one of these resources wait; default: all jobs (`managedResources`).
        retry_strategy: When a failed request is tried again (`retryStrategy`).
        node_selector_updates: Node label -> detail of the request whose value pods get for it
            (`podSetUpdates.nodeSelector`).
        pod_set_merge_policy: Which pods are requested together: `IdenticalPodTemplates` or
            `IdenticalWorkloadSchedulingRequirements`; default: none (`podSetMergePolicy`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "ProvisioningRequestConfig"

    @constructor(ProvisioningRequestConfigArgs)
    def __init__(self) -> None: ...


class MultiKueueClusterArgs(Spec):
    """The arguments of `MultiKueueCluster`."""

    kubeconfig: pulumi.Input[str] | None = None
    location_type: pulumi.Input[Literal["Secret", "Path"]] | None = None
    cluster_profile: pulumi.Input[str] | None = None

    paths = {
        "kubeconfig": "clusterSource.kubeConfig.location",
        "location_type": "clusterSource.kubeConfig.locationType",
        "cluster_profile": "clusterSource.clusterProfileRef.name",
    }

    def document(self) -> dict[str, Any]:
        return {"clusterSource": {}, **super().document()}


class MultiKueueCluster(QueueObject):
    """A cluster that jobs can be sent to (MultiKueueCluster).

    Args:
        resource_name: Name of the Pulumi resource.
        kubeconfig: Secret in Kueue's namespace with the kubeconfig (key `kubeconfig`), or with `location_type="Path"` a
            path in Kueue's pod (`clusterSource.kubeConfig.location`).
        location_type: `Secret` (default) or `Path` (`clusterSource.kubeConfig.locationType`).
        cluster_profile: Name of a ClusterProfile, instead of `kubeconfig` (`clusterSource.clusterProfileRef.name`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "MultiKueueCluster"

    @constructor(MultiKueueClusterArgs)
    def __init__(self) -> None: ...


class MultiKueueConfigArgs(Spec):
    """The arguments of `MultiKueueConfig`."""

    clusters: Sequence[MultiKueueCluster | pulumi.Input[str]]
    quota_management: pulumi.Input[Literal["Manual", "Automated"]] | None = None

    converters = {"clusters": lambda clusters: [*map(object_name, clusters)]}


class MultiKueueConfig(QueueObject):
    """The clusters that a check may send jobs to (MultiKueueConfig).

    Args:
        resource_name: Name of the Pulumi resource.
        clusters: 1 to 20 `MultiKueueCluster`s or their names, in the order in which they are tried (`clusters`).
        quota_management: `Manual` (default) or `Automated` (`quotaManagement`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "MultiKueueConfig"

    @constructor(MultiKueueConfigArgs)
    def __init__(self) -> None: ...


_CONTROLLERS = {
    "MultiKueueConfig": "kueue.x-k8s.io/multikueue",
    "ProvisioningRequestConfig": "kueue.x-k8s.io/provisioning-request",
}


def _parameters(given: Any) -> Any:
    if isinstance(given, QueueObject):
        return {"apiGroup": "kueue.x-k8s.io", "kind": given.kind, "name": given.name}
    if isinstance(given, CheckParameters):
        return given.document()
    return given


class AdmissionCheckArgs(Spec):
    """The arguments of `AdmissionCheck`."""

    controller_name: pulumi.Input[str] | None = None
    parameters: MultiKueueConfig | ProvisioningRequestConfig | CheckParameters | None = None

    converters = {"parameters": _parameters}

    def check(self) -> list[Problem]:
        given = self.parameters
        right = isinstance(given, (MultiKueueConfig, ProvisioningRequestConfig, CheckParameters)) or given is None
        why = "must be a MultiKueueConfig, a ProvisioningRequestConfig or CheckParameters"
        found = super().check()
        if self.controller_name is None:
            found.append(Problem("controller_name", "is required"))
        if not right:
            found.append(Problem("parameters", f"{why}, not a {type(given).__name__}"))
        return found


class AdmissionCheck(QueueObject):
    """A condition for the start of a job (AdmissionCheck): requested nodes exist, or another cluster has accepted the job.

    Args:
        resource_name: Name of the Pulumi resource.
        parameters: A `ProvisioningRequestConfig`, a `MultiKueueConfig`, or `CheckParameters` of another controller's
            object (`parameters`).
        controller_name: Controller of the check; default: Kueue's controller for these parameters. Immutable
            (`controllerName`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "AdmissionCheck"

    @constructor(AdmissionCheckArgs)
    def __init__(self) -> None: ...

    def construct(self, args: AdmissionCheckArgs) -> None:
        """Register the AdmissionCheck."""
        parameters = args.parameters
        if args.controller_name is None and isinstance(parameters, (QueueObject, CheckParameters)):
            args.controller_name = _CONTROLLERS.get(parameters.kind) if isinstance(parameters.kind, str) else None
        super().construct(args)
