"""Who holds, borrows and waits, out of documents as the real Kueue writes them (tests/cluster/test_teams.py asks that)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from pulumi_trainer.provider.commands.queues import _MISSED, _cluster_table
from pulumi_trainer.provider.kueue.occupancy import occupancy

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


def test_who_holds_borrows_and_waits() -> None:
    assigned = {
        "admission": {"clusterQueue": "red", "podSetAssignments": [{"name": "node", "resourceUsage": {GPU: "16"}}]}
    }
    found = occupancy(
        [
            cluster_queue("red", 16, "all", reservingWorkloads=1, pendingWorkloads=1), cluster_queue("blue", 0, "all"), LOCAL,
            workload("holds", RESERVED, ADMITTED, spec={"priority": 7, "priorityClassRef": {"name": "high"}}, **assigned),
            workload("waits", WAITS), workload("over", RESERVED, ADMITTED, condition("Finished", "True")),
        ], (),
    )  # fmt: skip
    blue, red = found.cluster_queues
    assert (red.admitted, red.pending, red.behind) == (1, 1, "all")
    assert red.shares[0].to_dict() == {
        "flavor": "h100", "resource": GPU, "nominal": "8", "used": "16", "borrowed": "8", "most": "16",
    }  # fmt: skip
    assert blue.shares[0].used == 0 and blue.shares[0].most == Fraction(16)
    holds, waits = found.work
    assert (holds.name, holds.kind, holds.holds, dict(holds.asks)) == ("holds", "JobSet", True, {GPU: "16"})
    assert (holds.priority, holds.priority_class, holds.why, holds.cluster_queue) == (7, "high", "", "red")
    assert (waits.name, waits.holds, dict(waits.asks), waits.cluster_queue) == ("waits", False, {GPU: "8"}, "red")
    assert waits.why == "it waits in the LocalQueue red: 8 more of nvidia.com/gpu must become free in flavor h100"


def test_what_is_stopped_says_so() -> None:
    held = condition("Active", "False", "Can't admit new workloads: is stopped.", "Stopped")
    found = occupancy(
        [cluster_queue("red", conditions=[held]), {**LOCAL, "status": {"conditions": [held]}}], ["cohorts"]
    )
    assert (
        found.cluster_queues[0].inactive == found.local_queues[0].inactive == "Can't admit new workloads: is stopped."
    )
    assert found.to_dict()["clusterQueues"][0]["active"] is False and found.unseen == ("cohorts",)


def test_what_holds_its_quota_and_is_not_admitted_yet() -> None:
    checks = {"admissionChecks": [{"name": "budget", "state": "Pending", "message": "asked"}]}
    found = occupancy([workload("job", RESERVED, **checks)], ["clusterqueues"])
    (job,) = found.work
    assert job.holds and "admission checks of its ClusterQueue: budget is Pending (asked)" in job.why


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "Workload"}, {"kind": "Workload", "metadata": 3, "spec": [], "status": {"conditions": [None, {}]}},
        {"kind": "Workload", "spec": {"podSets": [{"count": "x", "template": {"spec": {"containers": [{"resources": 7}]}}}]}},
        {"kind": "ClusterQueue"}, {"kind": "ClusterQueue", "metadata": {"name": "q"}, "status": {"flavorsReservation": [{}]}},
        {"kind": "LocalQueue"}, {"kind": "Cohort"}, {},
    ],
)  # fmt: skip
def test_documents_may_hold_anything(broken: Document) -> None:
    occupancy([broken], []).to_dict()


def test_each_kind_that_may_be_missed_is_explained() -> None:
    assert set(_MISSED) == {"workloads", "localqueues", "clusterqueues", "cohorts"}


def test_what_has_no_limit_is_shown_once_it_is_used() -> None:
    queue = cluster_queue("red")
    resources = [{"name": "cpu", "nominalQuota": "1M"}, {"name": "memory", "nominalQuota": "1Pi"}]
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] += [*resources, {"name": "nic", "nominalQuota": 0}]
    reserved = queue["status"]["flavorsReservation"][0]["resources"]
    reserved.append({"name": "memory", "total": "4Gi"})
    found = occupancy([queue], [])
    assert [share.resource for share in found.cluster_queues[0].shares] == [GPU, "cpu", "memory", "nic"]
    assert [*_cluster_table(found.cluster_queues).columns[3].cells] == [GPU, "memory", "nic"]
