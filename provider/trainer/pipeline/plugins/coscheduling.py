"""Coscheduling: a PodGroup of Kubernetes' scheduler-plugins for all Pods of a job.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/coscheduling/coscheduling.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.trainer.pipeline.gang_requests import min_member, min_resources
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob, defaulted_field, metadata
from pulumi_trainer.provider.trainer.pipeline.interface import ComponentBuilderPlugin, EnforcePodGroupPolicyPlugin

API_VERSION = "scheduling.x-k8s.io/v1alpha1"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


class Coscheduling(EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin):
    """Implements `podGroupPolicy.coscheduling`."""

    name = "CoScheduling"
    api_version = API_VERSION
    policies = ("podGroupPolicy.coscheduling",)

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        if info.gang("coscheduling") is not None:
            info.pod_labels[POD_GROUP_LABEL] = train_job.name

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        policy = info.gang("coscheduling")
        if policy is None:
            return
        spec = {
            "minMember": min_member(info),
            "minResources": min_resources(info),
            "scheduleTimeoutSeconds": defaulted_field(policy, "podGroupPolicy.coscheduling.scheduleTimeoutSeconds"),
        }
        name = metadata(train_job.name, train_job)
        yield {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": name, "spec": spec}
