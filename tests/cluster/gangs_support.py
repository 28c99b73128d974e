"""Gangs of any scheduler: nodes of their own, and runtimes whose pods go there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.trainer.kinds import JOBSET

Document = dict[str, Any]
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
SCHEDULER = "scheduler-plugins-scheduler"
MINE = "test/gang"
"""Label of the nodes of a test."""


@pytest.fixture(name="add_nodes")
def made_nodes(root: Client, namespace: str) -> Iterator[Callable[[int], None]]:
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
    for document in root.list(JOBSET, namespace)[0]:
        root.delete(JOBSET, namespace, document["metadata"]["name"], propagation="Background")
    for name in made:
        root.delete(kinds.NODE, "", name)


def step(
    name: str, namespace: str, *, gpus: int, simulate: Document, scheduler: str = SCHEDULER, **more: Any
) -> Document:
    """A replicated job of a runtime, on the nodes of this test."""
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}} if gpus else {}
    pod = {
        "schedulerName": scheduler,
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


def with_node(root: Client, namespace: str, step: str = "node") -> list[str]:
    """Nodes of the pods of a step that have one."""
    pods, _ = root.list(kinds.POD, namespace, labels=f"jobset.sigs.k8s.io/replicatedjob-name={step}")
    return sorted(p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName"))
