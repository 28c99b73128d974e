"""ClusterQueues and Workloads as the real Kueue writes them."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
GPU = "nvidia.com/gpu"


def cluster_queue(name: str, used: int = 0, cohort: str = "", **status: Any) -> Document:
    resources = [{"name": GPU, "nominalQuota": 8}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": resources}]}]
    reserved = [{"name": "h100", "resources": [{"name": GPU, "total": str(used), "borrowed": "0"}]}]
    spec = {"resourceGroups": groups, **({"cohortName": cohort} if cohort else {})}
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"flavorsReservation": reserved, **status},
    }


def workload(name: str, *conditions: Document, queue: str = "red", gpus: int = 8, **more: Any) -> Document:
    owner = [{"kind": "JobSet", "name": name, "controller": True}]
    metadata = {"name": f"jobset-{name}-1a2b3", "namespace": "team", "ownerReferences": owner}
    metadata["creationTimestamp"] = "2027-01-15T08:00:00Z"
    container = {"name": "node", "resources": {"limits": {GPU: str(gpus)}}}
    pods = [{"name": "node", "count": 1, "template": {"spec": {"containers": [container]}}}]
    spec = {"queueName": queue, "podSets": pods, **more.pop("spec", {})}
    return {"kind": "Workload", "metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **more}}


def condition(type_: str, status: str, message: str = "", reason: str = "") -> Document:
    return {
        "type": type_,
        "status": status,
        "message": message,
        "reason": reason,
        "lastTransitionTime": "2027-01-15T08:01:00Z",
    }


RESERVED, ADMITTED = condition("QuotaReserved", "True"), condition("Admitted", "True")
NEEDED = "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
WAITS = condition("QuotaReserved", "False", NEEDED, "Pending")
LOCAL = {"kind": "LocalQueue", "metadata": {"name": "red", "namespace": "team"}, "spec": {"clusterQueue": "red"}}
