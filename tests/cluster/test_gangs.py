"""Gangs on the real scheduler plugins: all pods or none, stage by stage, and woken when nodes come. Under the least role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.targets.kubernetes import kinds, waking
from pulumi_trainer.provider.targets.kubernetes.access import open_client
from pulumi_trainer.provider.targets.kubernetes.client import Client
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.targets.kubernetes.watch import Observer

from .jobs import until
from .programs import plan, sent

Document = dict[str, Any]
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
SCHEDULER = "scheduler-plugins-scheduler"
MINE = "test/gang"
"""Label of the nodes of a test."""


@pytest.fixture
def root(cluster: Any) -> Client:
    return open_client({"kubeconfig": str(cluster.kubeconfig)})


@pytest.fixture
def target(user_kubeconfig: Path, namespace: str) -> KubernetesTarget:
    client = open_client({"kubeconfig": str(user_kubeconfig)})
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace)


@pytest.fixture
def observer(target: KubernetesTarget, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    monkeypatch.setattr(waking, "LOOK", 0.5)
    monkeypatch.setattr(waking, "AGAIN", 0.5)
    made = Observer(target.client, target.namespace, stack="stack").start()
    yield made
    made.stop()


@pytest.fixture
def add_nodes(root: Client, namespace: str) -> Iterator[Callable[[int], None]]:
    """Adds simulated nodes of 8 GPUs, which only pods of this test may use."""
    made: list[str] = []

    def add(count: int) -> None:
        like = next(n for n in root.list(kinds.NODE)[0] if n["metadata"]["name"] == "gpu-0")
        for _ in range(count):
            name = f"{namespace}-{len(made)}"
            about = like["metadata"]
            labels = {**about["labels"], "kubernetes.io/hostname": name, MINE: namespace}
            metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
            taint = {"key": MINE, "value": namespace, "effect": "NoSchedule"}
            status = {part: like["status"][part] for part in ("allocatable", "capacity")}
            document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}}
            root.create(kinds.NODE, {**document, "status": status})
            made.append(name)

    yield add
    for document in root.list(kinds.JOBSET, namespace)[0]:
        root.delete(kinds.JOBSET, namespace, document["metadata"]["name"], propagation="Background")
    for name in made:
        root.delete(kinds.NODE, "", name)


def step(name: str, namespace: str, *, gpus: int, simulate: Document, **more: Any) -> Document:
    """A replicated job of a runtime, on the nodes of this test."""
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}} if gpus else {}
    pod = {
        "schedulerName": SCHEDULER,
        "nodeSelector": {MINE: namespace},
        "tolerations": [{"key": MINE, "operator": "Exists"}],
        "restartPolicy": "Never",
        "containers": [{"name": name, "image": "trainer:1", "resources": resources}],
    }
    annotations = {f"sim/{key}": value for key, value in simulate.items()}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    ancestor = name if name.endswith("initializer") else "trainer"
    job = {"metadata": {"labels": {ANCESTOR: ancestor}}, "spec": {"backoffLimit": 0, "template": template}}
    return {"name": name, "replicas": 1, "template": job, **more}


def runtime(*steps: Document, nodes: int = 4) -> Document:
    spec = {
        "mlPolicy": {"numNodes": nodes, "torch": {}},
        "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 10}},
        "template": {"spec": {"replicatedJobs": list(steps)}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": spec,
    }


def with_node(root: Client, namespace: str, step: str = "node") -> list[str]:
    """Nodes of the pods of a step that have one."""
    pods, _ = root.list(kinds.POD, namespace, labels=f"jobset.sigs.k8s.io/replicatedjob-name={step}")
    return sorted(p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName"))


def test_nothing_starts_on_too_few_nodes_then_all(
    root: Client,
    target: KubernetesTarget,
    observer: Observer,
    namespace: str,
    add_nodes: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4 nodes of 8 GPUs each: on 3 none starts. The scheduler does not look at a fourth one by itself for minutes; whoever
    waits for the job wakes the gang."""
    add_nodes(3)
    given = runtime(step("node", namespace, gpus=8, simulate={"run": "1s"}))
    target.create(sent(plan(monkeypatch, given, namespace)))
    words = r"^0 of 4 pods of PodGroup job \(\w+\) have a node: .*\d Insufficient nvidia.com/gpu"
    until(lambda: waits(observer, words))
    assert observer.first("job") is not None
    for _ in range(20):
        assert with_node(root, namespace) == []
        time.sleep(0.05)
    assert "start together or not at all" in observer.why("job") and "kubectl annotate" in observer.why("job")
    group = root.get(kinds.POD_GROUP, namespace, "job") or {}
    assert group["spec"]["minMember"] == 4 and waking.WOKEN not in group["metadata"].get("annotations", {})

    add_nodes(1)
    until(lambda: len(with_node(root, namespace)) == 4)
    assert len(set(with_node(root, namespace))) == 4
    until(lambda: (status := observer.status("job")) is not None and status.phase == "Succeeded")
    assert waking.WOKEN in (root.get(kinds.POD_GROUP, namespace, "job") or {})["metadata"]["annotations"]


def waits(observer: Observer, words: str) -> bool:
    import re

    observer.changed()
    status = observer.status("job")
    return status is not None and status.reason == "WaitingForGang" and bool(re.search(words, status.message))
