"""Volcano: a PodGroup of its own kind for all Pods of a job, with queue, priority and network topology.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/volcano/volcano.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.names import quoted
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline.gang_requests import min_member, min_resources
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob, defaulted_field, metadata
from pulumi_trainer.provider.trainer.pipeline.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforcePodGroupPolicyPlugin,
)

API_VERSION = "scheduling.volcano.sh/v1beta1"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
_HIGHEST = ("system-cluster-critical", "system-node-critical")


class Volcano(EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin, CustomValidationPlugin):
    """Implements `podGroupPolicy.volcano`."""

    name = "Volcano"
    api_version = API_VERSION
    policies = ("podGroupPolicy.volcano",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:  # noqa: ARG002
        if info.gang("volcano") is None:
            return
        if info.annotations.get(QUEUE_ANNOTATION) == "":
            yield Problem(f"spec.annotations[{QUEUE_ANNOTATION}]", "Volcano queue name must not be empty")
        for name in _priorities(info):
            if name in _HIGHEST:
                return  # as upstream: what comes after it is not checked
            if info.exists and not isinstance(name, Unknown) and not info.exists("PriorityClass", "", name):
                missing = f"priorityclasses.scheduling.k8s.io {quoted(name)} not found"
                why = f"PriorityClass {quoted(name)} doesn't exist: {missing}"
                yield Problem("spec.templateSpec.priorityClassName", why)

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        if info.gang("volcano") is not None:
            info.pod_annotations[GROUP_ANNOTATION] = train_job.name

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        policy = info.gang("volcano")
        if policy is None:
            return
        spec: dict[str, Any] = {"minMember": min_member(info), "minResources": min_resources(info)}
        if QUEUE_ANNOTATION in info.annotations:
            spec["queue"] = info.annotations[QUEUE_ANNOTATION]
        if priorities := _priorities(info):
            spec["priorityClassName"] = priorities[-1]
        if (topology := policy.get("networkTopology")) is not None:
            spec["networkTopology"] = _topology(topology)
        name = metadata(train_job.name, train_job)
        yield {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": name, "spec": spec}


def _topology(given: Any) -> Any:
    if isinstance(given, Unknown):
        return given
    highest = defaulted_field(given, "podGroupPolicy.volcano.networkTopology.highestTierAllowed")
    return {"mode": given.get("mode", ""), "highestTierAllowed": highest}


def _priorities(info: Info) -> list[Any]:
    names = (pod_set.pod_spec.get("priorityClassName") for pod_set in info.pod_sets)
    return [name for name in names if name is not None]
