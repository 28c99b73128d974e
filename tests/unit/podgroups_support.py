"""PodGroups that a server takes, and such that it refuses: for our verdict, and for the real one's."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"


def pod_group(api_version: str = COSCHEDULING, /, about: Document | None = None, **spec: Any) -> Document:
    metadata = {"name": "group", "namespace": "default", **(about or {})}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


GOOD: dict[str, Document] = {
    "least": pod_group(minMember=1),
    "all fields": pod_group(
        minMember=4, minResources={"nvidia.com/gpu": 32, "memory": "1Ti", "cpu": "500m"}, scheduleTimeoutSeconds=30
    ),
    "no members": pod_group(),
    "negative time": pod_group(minMember=1, scheduleTimeoutSeconds=-1),
    "negative resources": pod_group(minMember=1, minResources={"cpu": -1}),
    "a name with a dot": pod_group(about={"name": "job.node"}, minMember=1),
    "labels": pod_group(about={"labels": {"a": "b"}, "annotations": {"c": "d"}}, minMember=1),
}

BAD: dict[str, tuple[Document, str]] = {
    "zero members": (pod_group(minMember=0), "spec.minMember"),
    "negative members": (pod_group(minMember=-1), "spec.minMember"),
    "members in words": (pod_group(minMember="4"), "spec.minMember"),
    "half a member": (pod_group(minMember=1.5), "spec.minMember"),
    "too many members": (pod_group(minMember=2**31), "spec.minMember"),
    "time in words": (pod_group(minMember=1, scheduleTimeoutSeconds="1m"), "spec.scheduleTimeoutSeconds"),
    "resources in a list": (pod_group(minMember=1, minResources=["cpu"]), "spec.minResources"),
    "no quantity": (pod_group(minMember=1, minResources={"cpu": "many"}), "spec.minResources.cpu"),
    "true as a quantity": (pod_group(minMember=1, minResources={"cpu": True}), "spec.minResources.cpu"),
    "no name": (pod_group(about={"name": ""}, minMember=1), "metadata.name"),
    "a name of 254": (pod_group(about={"name": "x" * 254}, minMember=1), "metadata.name"),
    "a name in capitals": (pod_group(about={"name": "Group"}, minMember=1), "metadata.name"),
    "a label": (pod_group(about={"labels": {"a b": "c"}}, minMember=1), "metadata.labels"),
    "a label's value": (pod_group(about={"labels": {"a": "-"}}, minMember=1), "metadata.labels"),
    "unknown field": (pod_group(minMember=1, minMembers=2), "spec.minMembers"),
}
