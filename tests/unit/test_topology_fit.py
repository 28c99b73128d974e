"""Room in a topology, without a cluster: tests/cluster/test_teams_preview.py holds it against the real Kueue's words."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import PREFERRED, REQUIRED, SLICE_LEVEL, SLICE_SIZE, UNCONSTRAINED
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import complete_queues
from pulumi_trainer.provider.kueue.topology_fit import find_unfitting_podset
from pulumi_trainer.provider.kueue.workload_reasons import closed_flavors
from test_fitting import GPU, group, kueue, step

Document = dict[str, Any]


def node(name: str, rack: str, gpus: int = 8, **labels: str) -> Document:
    labels = {"pool": "gpu", "rack": rack, "host": name, **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v}},
        "status": {"allocatable": {GPU: str(gpus), "cpu": "96"}},
    }


NODES = [
    node("a", "r1"),
    node("b", "r1"),
    node("c", "r2"),
    node("d", "r2"),
    node("e", "r2", 4),
    node("far", "r9", pool="cpu"),
]


def said(pods: int, notes: dict[str, Any], gpus: int = 8, nodes: list[Document] = NODES, **flavor: Any) -> str:
    queue = kueue("ClusterQueue", "q", resourceGroups=[group(("h100", {GPU: 64}))])
    spec = {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc", **flavor}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "host"}]
    known = complete_queues(
        [queue, kueue("ResourceFlavor", "h100", **spec), kueue("Topology", "dc", levels=levels), *nodes]
    )
    found = find_unfitting_podset(
        pod_sets({"spec": {"replicatedJobs": [step("gpu", pods, notes, gpu=gpus)]}}), queue, known
    )
    return "" if found is None else str(found)


def test_one_domain_has_to_hold_all() -> None:
    assert said(2, {REQUIRED: "rack"}) == ""
    assert said(5, {REQUIRED: "rack"}, gpus=4) == "", "the half node counts"
    assert said(3, {REQUIRED: "rack"}) == (
        "no domain of rack in flavor h100 is large enough: the largest, r1, has room for 2 of 3 pods of gpu"
        f" (8 {GPU} each), even when nothing else runs"
    )
    assert "the largest, a, has room for 1 of 2 pods" in said(2, {REQUIRED: "host"})
    assert "has room for 0 of 1 pods" in said(1, {REQUIRED: "rack"}, gpus=16), "no node is that large"


@pytest.mark.parametrize("notes", [{PREFERRED: "rack"}, {UNCONSTRAINED: "true"}])
def test_anywhere_in_the_topology(notes: dict[str, Any]) -> None:
    assert said(4, notes) == ""
    assert said(5, notes).startswith("the 5 nodes of flavor h100 have room for 4 of 5 pods of gpu")


def test_a_topology_that_the_queue_implies() -> None:
    """All flavors of its queue have one."""
    assert said(4, {}) == ""
    assert said(5, {}).startswith("the 5 nodes of flavor h100 have room for 4 of 5 pods of gpu")
    assert said(5, {}, topologyName=None) == ""
    assert said(5, {SLICE_SIZE: "2"}) == "", "not counted"


def test_a_queue_that_also_has_a_flavor_without_a_topology() -> None:
    levels = kueue("Topology", "dc", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "host"}])
    flavors = [
        kueue("ResourceFlavor", "h100", nodeLabels={"pool": "gpu"}, topologyName="dc"),
        kueue("ResourceFlavor", "net"),
    ]
    groups = [group(("h100", {GPU: 64})), group(("net", {"example.com/net": 64}))]
    for implied, some in ((True, groups[:1]), (False, groups)):
        queue = kueue("ClusterQueue", "q", resourceGroups=some)
        known = complete_queues([queue, levels, *flavors, *NODES])
        found = find_unfitting_podset(pod_sets({"spec": {"replicatedJobs": [step("gpu", 5, {}, gpu=8)]}}), queue, known)
        assert (found is not None) is implied


def test_a_flavor_that_cannot_take_it_for_another_reason() -> None:
    """As Kueue says of one of two flavors; the other one has a topology without room, which its message leaves out."""
    levels = kueue("Topology", "dc", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "host"}])
    flavors = [
        kueue("ResourceFlavor", "h100", nodeLabels={"pool": "gpu"}, topologyName="dc"),
        kueue("ResourceFlavor", "l40s", nodeLabels={"pool": "other"}),
    ]
    queue = kueue("ClusterQueue", "q", resourceGroups=[group(("h100", {GPU: 64}), ("l40s", {GPU: 20}))])
    known = complete_queues([queue, levels, *flavors, *NODES])
    sets = pod_sets({"spec": {"replicatedJobs": [step("gpu", 5, {UNCONSTRAINED: "true"}, gpu=8)]}})
    assert find_unfitting_podset(sets, queue, known) is None
    over = "previously considered podsets requests (0) + current podset request (40) > maximum capacity (20)"
    message = f"couldn't assign flavors to pod set gpu: insufficient quota for {GPU} in flavor l40s, {over}"
    waiting = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    closed = closed_flavors({"status": {"conditions": [waiting]}}, [{"h100", "l40s"}])
    assert closed == {"gpu": {"l40s"}}
    found = find_unfitting_podset(sets, queue, known, closed)
    assert str(found).startswith("the 5 nodes of flavor h100 have room for 4 of 5 pods of gpu")


def test_slices() -> None:
    sliced = {SLICE_LEVEL: "rack", SLICE_SIZE: "2"}
    assert said(4, {UNCONSTRAINED: "true", **sliced}) == ""
    nodes = [node("a", "r1"), node("b", "r1"), node("c", "r1"), node("d", "r2")]
    assert "room for 2 of 4 pods" in said(4, {UNCONSTRAINED: "true", **sliced}, nodes=nodes), (
        "each rack has one to spare"
    )


def test_what_is_not_known_may_have_room() -> None:
    asked = {REQUIRED: "rack"}
    assert said(9, asked, nodes=[]) == "" and said(9, {REQUIRED: "block"}) == ""
    assert said(9, asked, nodes=[{**node("a", "r1"), "status": {}}]) == ""
    assert said(9, asked, nodes=[node("a", "")]) == "", "that is PT204's"
    assert said(9, {REQUIRED: Unknown("later")}) == "" and said(9, asked, topologyName=Unknown("later")) == ""
    assert said(9, {SLICE_SIZE: "x", SLICE_LEVEL: "rack", UNCONSTRAINED: "true"}) == ""
