"""What the tests of faults and crashes share: inputs of a job, what is left in a namespace, waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB

from .jobs import STAYS

Document = dict[str, Any]

OWNED = (
    kinds.CONFIG_MAP, kinds.SECRET, kinds.SERVICE, kinds.CLAIM, kinds.JOB, kinds.POD, JOBSET, TRAIN_JOB,
    POD_GROUP, WORKLOAD,
)  # fmt: skip
"""What a job may leave behind."""


def left(admin: Client, namespace: str) -> list[str]:
    """Everything in a namespace but what Kubernetes itself puts there; what is on its way out counts."""
    found = []
    for kind in OWNED:
        for each in admin.list(kind, namespace)[0]:
            if each["metadata"]["name"] not in STAYS:
                found.append(f"{kind.kind}/{each['metadata']['name']}")
    return found


def listed(admin: Client, kind: Kind, namespace: str) -> list[Document]:
    return admin.list(kind, namespace)[0]


def eventually(condition: Callable[[], Any], seconds: float = 120.0, what: str = "") -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"did not happen in {seconds} s: {what or condition}")
        time.sleep(0.05)


def gone(admin: Client, namespace: str, seconds: float = 120.0) -> None:
    """Nothing is left, or the test fails with what is."""
    deadline = time.monotonic() + seconds
    while found := left(admin, namespace):
        if time.monotonic() > deadline:
            pytest.fail(f"left over in {namespace}: {', '.join(found)}")
        time.sleep(0.05)


def inputs(
    namespace: str, name: str, kubeconfig: Path, *, suspend: bool = True, digest: str = "digest-1", owner: str = "",
    secret: str = "", ttl: int | None = None, run: str = "", sweep: str = "stack-1", outcome: str = "forever",
    simulated: dict[str, str] | None = None, adopt: bool = False,
) -> Document:  # fmt: skip
    """Inputs of a job as `lifecycle.calls.check` leaves them: a JobSet of one pod, code, and a Secret where there is a value.

    outcome, simulated: what the simulated node does with the pod."""
    code, keys = f"{name}-code", f"{name}-env"
    container: Document = {"name": "node", "image": "python:3.12", "command": ["python", "/code/main.py"]}
    if secret:
        container["env"] = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": keys, "key": "token"}}}]
    pod = {
        "metadata": {"annotations": {"sim/outcome": outcome, **(simulated or {})}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    job = {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pod}}
    spec: Document = {"suspend": suspend, "replicatedJobs": [{"name": "node", "replicas": 1, "template": job}]}
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    objects = {
        f"ConfigMap/{code}": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": code}, "data": {"main.py": digest}},
        f"JobSet/{name}": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec},
    }  # fmt: skip
    target = {"kind": "kubernetes", "kubeconfig": str(kubeconfig), "namespace": namespace, "sweep": sweep}
    return {
        "namespace": namespace, "name": name, "objects": objects, "digest": digest, "run": run, "target": target,
        "component": f"urn:{name}", "owner": owner or f"owner-{name}", "generation": 1,
        **({"secrets": {keys: {"token": secret}}} if secret else {}), **({"adopt": True} if adopt else {}),
    }  # fmt: skip
