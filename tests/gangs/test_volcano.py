"""Gangs on the real Volcano, whose PodGroups we render or Trainer's controller makes. Under the least role."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.lifecycle.diagnosis import pod_faults
from pulumi_trainer.provider.trainer.kinds import VOLCANO_POD_GROUP

from tests.cluster.jobs import until

from .lab import Gangs

QUEUE = Kind("scheduling.volcano.sh/v1beta1", "Queue", "queues", False)
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
VOLCANO = trainer.VolcanoPolicy(scheduler_name="volcano")


def make_queue(gangs: Gangs, gpus: int) -> str:
    """An open queue that may hold so many GPUs."""
    name = f"{gangs.namespace}-queue"
    spec: dict[str, Any] = {"weight": 1, "capability": {"nvidia.com/gpu": gpus}}
    gangs.root.create(
        QUEUE, {"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    )
    until(lambda: (gangs.root.get(QUEUE, "", name) or {}).get("status", {}).get("state") == "Open")
    return name


def pod_group(gangs: Gangs, name: str = "job") -> dict[str, Any]:
    return gangs.root.get(VOLCANO_POD_GROUP, gangs.namespace, name) or {}


def test_all_pods_start_or_none(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """`why` names what the last pod lacks, not that the others would fit."""
    add_nodes(3)
    gangs.submit(gangs.runtime(VOLCANO, gangs.step()))
    why = gangs.says(r"0 have a node \(Inqueue\): 0/\d+ nodes are unavailable: 3 Insufficient nvidia.com/gpu")
    assert "start together or not at all" in why and "Volcano tries again by itself" in why
    for _ in range(20):
        assert gangs.with_node() == []
        time.sleep(0.05)
    add_nodes(1)
    until(lambda: len(set(gangs.with_node())) == 4)
    gangs.becomes("Succeeded")
    assert pod_group(gangs)["spec"]["minMember"] == 4
    assert pod_group(gangs)["spec"]["minResources"] == {"nvidia.com/gpu": "32"}


def test_a_queue_without_room(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """The nodes are there; the reason is in an event of the PodGroup that is no warning."""
    add_nodes(4)
    queue = make_queue(gangs, 16)
    gangs.submit(gangs.runtime(VOLCANO, gangs.step(), annotations={QUEUE_NAME: queue}))
    why = gangs.says(r"0 have a node \(Pending\): queue resource quota insufficient: insufficient nvidia.com/gpu\.")
    assert f"as soon as its queue {queue} and the cluster have room" in why
    assert pod_group(gangs)["spec"]["queue"] == queue and gangs.with_node() == []
    gangs.root.patch(QUEUE, "", queue, {"spec": {"capability": {"nvidia.com/gpu": 32}}})
    until(lambda: len(gangs.with_node()) == 4)
    gangs.becomes("Succeeded")


def test_a_queue_that_does_not_exist(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """Volcano says nothing about such a gang at all; its webhook, which is not installed here, refuses it."""
    gangs.patch.setattr(pod_faults, "SILENCE", 1.0)
    add_nodes(4)
    gangs.submit(gangs.runtime(VOLCANO, gangs.step(), annotations={QUEUE_NAME: "nosuch"}))
    gangs.says("Is volcano running, and does the queue nosuch exist: kubectl get queues.scheduling.volcano.sh nosuch")
    assert gangs.with_node() == []


def test_the_gang_of_higher_priority_is_first(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """Both wait for the same four nodes, the other one longer."""
    high = gangs.priority("high", 1000)
    add_nodes(3)
    gangs.submit(gangs.runtime(VOLCANO, gangs.step()), "low")
    gangs.says("3 Insufficient nvidia.com/gpu", "low")
    gangs.submit(gangs.runtime(VOLCANO, gangs.step(run="1h", priorityClassName=high)), "high")
    gangs.says("[Ii]nsufficient nvidia.com/gpu", "high")
    assert pod_group(gangs, "high")["spec"]["priorityClassName"] == high
    add_nodes(1)
    until(lambda: len(gangs.with_node("high")) == 4)
    assert gangs.with_node("low") == []


@pytest.mark.parametrize("gangs", ["jobset"], indirect=True)
def test_a_gang_does_not_wait_for_what_comes_first(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    add_nodes(1)
    first = gangs.step("dataset-initializer", 0, "100ms")
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    gangs.submit(gangs.runtime(VOLCANO, first, {**gangs.step(), "dependsOn": after}))
    gangs.says(r"0 have a node \(Inqueue\): 0/\d+ nodes are unavailable: 1 Insufficient nvidia.com/gpu")
    assert len(gangs.with_node(step="dataset-initializer")) == 1 and gangs.with_node() == []
    add_nodes(3)
    gangs.becomes("Succeeded")
    assert pod_group(gangs, "job.node")["spec"]["minMember"] == 4
