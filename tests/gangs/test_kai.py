"""Gangs on the real KAI, which makes a PodGroup of its own for each JobSet. Under the least role."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pulumi_trainer as trainer
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tests.cluster.jobs import until

from .lab import Gangs

QUEUE = Kind("scheduling.run.ai/v2", "Queue", "queues", False)
POD_GROUP = Kind("scheduling.run.ai/v2alpha2", "PodGroup", "podgroups")
NO_LIMIT = -1


def policy(gangs: Gangs, gpus: int = NO_LIMIT) -> trainer.KAIPolicy:
    """Of a queue that may hold so many GPUs."""
    parent, name = f"{gangs.namespace}-parent", f"{gangs.namespace}-queue"
    for spec in ({"name": parent}, {"name": name, "parentQueue": parent}):
        limits = {"cpu": NO_LIMIT, "gpu": gpus, "memory": NO_LIMIT}
        resources = {what: {"quota": NO_LIMIT, "limit": most, "overQuotaWeight": 1} for what, most in limits.items()}
        metadata = {"name": spec.pop("name")}
        document = {"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": metadata}
        gangs.root.create(QUEUE, {**document, "spec": {**spec, "resources": resources}})
    return trainer.KAIPolicy(queue=name)


def pod_groups(gangs: Gangs) -> list[dict[str, Any]]:
    return [each["spec"] for each in gangs.root.list(POD_GROUP, gangs.namespace)[0]]


def test_all_pods_start_or_none(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """KAI takes the JobSet for the gang: it must not find the job's record as the topmost owner of the pods."""
    add_nodes(3)
    gangs.submit(gangs.runtime(policy(gangs), gangs.step()))
    why = gangs.says(r"4 of its 4 pods find no node, .*3 node\(s\) didn't have enough resources: GPUs\.")
    assert "Its pods start together or not at all" in why
    for _ in range(20):
        assert gangs.with_node() == []
        time.sleep(0.05)
    (spec,) = pod_groups(gangs)
    assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (4, f"{gangs.namespace}-queue", "train")
    add_nodes(1)
    until(lambda: len(gangs.with_node()) == 4)
    gangs.becomes("Succeeded")


def test_a_queue_without_room(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    add_nodes(4)
    gangs.submit(gangs.runtime(policy(gangs, 16), gangs.step()))
    why = gangs.says("Limit is 16 GPUs, currently 0 GPUs allocated and workload requested 32 GPUs")
    assert "look at its queue in KAI" in why and gangs.with_node() == []
    change = {"spec": {"resources": {"gpu": {"limit": 32}}}}
    for name in ("parent", "queue"):
        gangs.root.patch(QUEUE, "", f"{gangs.namespace}-{name}", change)
    gangs.becomes("Succeeded")


def test_a_queue_that_does_not_exist(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    add_nodes(4)
    gangs.submit(gangs.runtime(trainer.KAIPolicy(queue="nosuch"), gangs.step()))
    gangs.says("Queue 'nosuch' does not exist")
    assert gangs.with_node() == []


def test_the_gang_of_higher_priority_is_first(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    high = gangs.priority("high", 99)
    add_nodes(3)
    given = policy(gangs)
    gangs.submit(gangs.runtime(given, gangs.step()), "low")
    gangs.says("didn't have enough resources: GPUs", "low")
    gangs.submit(gangs.runtime(given, gangs.step(run="1h", priorityClassName=high)), "high")
    gangs.says("didn't have enough resources: GPUs", "high")
    assert {each["priorityClassName"] for each in pod_groups(gangs)} == {"train", high}
    add_nodes(1)
    until(lambda: len(gangs.with_node("high")) == 4)
    assert gangs.with_node("low") == []


def test_nothing_of_a_deleted_job_stays(gangs: Gangs, add_nodes: Callable[[int], None]) -> None:
    """Its JobSet or TrainJob has no owner, so the garbage collector does not delete it with the record."""
    add_nodes(4)
    gangs.submit(gangs.runtime(policy(gangs), gangs.step(run="1h")))
    gangs.becomes("Running")
    assert gangs.target.jobs.delete(gangs.namespace, "job") is None
    for kind in (JOBSET, TRAIN_JOB, kinds.POD):
        until(lambda kind=kind: not gangs.root.list(kind, gangs.namespace)[0])  # type: ignore[misc]
