"""What can be asked for before a job starts: components of Kueue's AdmissionChecks and of their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.queues.arguments import (
    CheckParameters,
    Labels,
    RetryStrategy,
    Spec,
    named,
)
from pulumi_trainer.queues.component import QueueObject


class _ProvisioningRequestConfig(Spec):
    provisioning_class_name: pulumi.Input[str] | None = None
    parameters: Mapping[str, pulumi.Input[str]] | None = None
    managed_resources: Sequence[pulumi.Input[str]] | None = None
    retry_strategy: RetryStrategy | None = None
    node_selector_updates: Mapping[str, pulumi.Input[str]] | None = None
    pod_set_merge_policy: pulumi.Input[str] | None = None

    needs = ("provisioning_class_name",)
    wraps = {"node_selector_updates": "podSetUpdates.nodeSelector"}
    converters = {
        "node_selector_updates": lambda given: [
            {"key": key, "valueFromProvisioningClassDetail": detail} for key, detail in given.items()
        ],
    }
    mappings = frozenset({"labels", "annotations", "parameters", "node_selector_updates"})


class ProvisioningRequestConfig(QueueObject):
    """How nodes are asked for before a job is admitted (ProvisioningRequestConfig).

    provisioning_class_name: of the autoscaler. parameters: of the requests, at most 100. managed_resources: only jobs that
    ask for one of these wait; default: all. retry_strategy: see `RetryStrategy`. node_selector_updates: node label -> detail
    of the request whose value pods get for it. pod_set_merge_policy: IdenticalPodTemplates or
    IdenticalWorkloadSchedulingRequirements: which pods are asked for together; default: none.
    """

    kind = "ProvisioningRequestConfig"
    arguments = _ProvisioningRequestConfig

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        provisioning_class_name: pulumi.Input[str],
        parameters: Mapping[str, pulumi.Input[str]] | None = None,
        managed_resources: Sequence[pulumi.Input[str]] | None = None,
        retry_strategy: RetryStrategy | None = None,
        node_selector_updates: Mapping[str, pulumi.Input[str]] | None = None,
        pod_set_merge_policy: pulumi.Input[Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]]
        | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


class _MultiKueueCluster(Spec):
    kubeconfig: pulumi.Input[str] | None = None
    location_type: pulumi.Input[str] | None = None
    cluster_profile: pulumi.Input[str] | None = None

    wraps = {
        "kubeconfig": "clusterSource.kubeConfig.location",
        "location_type": "clusterSource.kubeConfig.locationType",
        "cluster_profile": "clusterSource.clusterProfileRef.name",
    }

    def document(self) -> dict[str, Any]:
        return {"clusterSource": {}, **super().document()}


class MultiKueueCluster(QueueObject):
    """A cluster that jobs can be sent to (MultiKueueCluster).

    kubeconfig: name of the Secret in Kueue's namespace that holds it (key `kubeconfig`), or with location_type="Path" a path in
    Kueue's pod. cluster_profile: instead, the name of a ClusterProfile.
    """

    kind = "MultiKueueCluster"
    arguments = _MultiKueueCluster

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        kubeconfig: pulumi.Input[str] | None = None,
        location_type: pulumi.Input[Literal["Secret", "Path"]] | None = None,
        cluster_profile: pulumi.Input[str] | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


class _MultiKueueConfig(Spec):
    clusters: Sequence[MultiKueueCluster | pulumi.Input[str]] | None = None
    quota_management: pulumi.Input[str] | None = None

    needs = ("clusters",)
    lists = frozenset({"clusters"})
    converters = {"clusters": lambda clusters: [named(each) for each in clusters]}


class MultiKueueConfig(QueueObject):
    """The clusters that a check may send jobs to (MultiKueueConfig).

    clusters: 1 to 20 `MultiKueueCluster`s or their names, in the order in which they are tried. quota_management: Manual
    (default) or Automated.
    """

    kind = "MultiKueueConfig"
    arguments = _MultiKueueConfig

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        clusters: Sequence[MultiKueueCluster | pulumi.Input[str]],
        quota_management: pulumi.Input[Literal["Manual", "Automated"]] | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


_CONTROLLERS = {
    "MultiKueueConfig": "kueue.x-k8s.io/multikueue",
    "ProvisioningRequestConfig": "kueue.x-k8s.io/provisioning-request",
}


def _parameters(given: Any) -> Any:
    if isinstance(given, QueueObject):
        return {"apiGroup": "kueue.x-k8s.io", "kind": given.kind, "name": given.name}
    return given.document() if isinstance(given, CheckParameters) else given


class _AdmissionCheck(Spec):
    controller_name: pulumi.Input[str] | None = None
    parameters: MultiKueueConfig | ProvisioningRequestConfig | CheckParameters | None = None

    needs = ("controller_name",)
    converters = {"parameters": _parameters}

    def check(self) -> list[Problem]:
        given = self.parameters
        right = isinstance(given, (MultiKueueConfig, ProvisioningRequestConfig, CheckParameters)) or given is None
        why = "must be a MultiKueueConfig, a ProvisioningRequestConfig or CheckParameters"
        return super().check() + ([] if right else [Problem("parameters", f"{why}, not a {type(given).__name__}")])


class AdmissionCheck(QueueObject):
    """Something that has to be true before a job starts (AdmissionCheck): nodes that were asked for are there, another cluster
    has taken it.

    parameters: a `ProvisioningRequestConfig`, a `MultiKueueConfig`, or `CheckParameters` of another controller's object.
    controller_name: who checks; default: Kueue's controller for these parameters. It never changes.
    """

    kind = "AdmissionCheck"
    arguments = _AdmissionCheck

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        parameters: MultiKueueConfig | ProvisioningRequestConfig | CheckParameters | None = None,
        controller_name: pulumi.Input[str] | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        parameters = given["parameters"]
        if given["controller_name"] is None and isinstance(parameters, (QueueObject, CheckParameters)):
            given["controller_name"] = _CONTROLLERS.get(parameters.kind) if isinstance(parameters.kind, str) else None
        super().construct(resource_name, given, opts)
