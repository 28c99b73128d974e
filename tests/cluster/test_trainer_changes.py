"""What may change in a live TrainJob: what we say against what the real server and Trainer's webhook take."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import TRAIN_JOB

from .jobs import submission, until
from .test_lifecycle import at, both, suspended

Document = dict[str, Any]
MANAGER = "pulumi-trainer.dev/job"


def patch(manager: str = MANAGER, **pod: Any) -> Document:
    """A runtimePatch of the pods of `node`."""
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


FOREVER = {"metadata": {"annotations": {"sim/outcome": "forever"}}}
SELECTED = {**FOREVER, "spec": {"nodeSelector": {"zone": "a"}}}
PATCHES = "spec.runtimePatches"
CHANGES: dict[str, Callable[[Document], None]] = {
    "suspend": suspended,
    "labels": at("metadata.labels", {"team": "a"}),
    "annotations": at("metadata.annotations", {"team": "a"}),
    "node selector": at(PATCHES, [patch(**SELECTED)]),
    "pod labels": at(PATCHES, [patch(metadata={**FOREVER["metadata"], "labels": {"team": "a"}})]),
    "suspend, and node selector": both(suspended, at(PATCHES, [patch(**SELECTED)])),
    "a patch of another": at(PATCHES, [patch(**FOREVER), patch("example.com/me", **SELECTED)]),
    "no patch": lambda d: d["spec"].pop("runtimePatches"),
    "nodes": at("spec.trainer.numNodes", 3),
    "image": at("spec.trainer.image", "trainer:2"),
    "command": at("spec.trainer.command", ["other"]),
    "arguments": at("spec.trainer.args", ["other"]),
    "env": at("spec.trainer.env", [{"name": "A", "value": "1"}]),
    "resources": at("spec.trainer.resourcesPerNode", {"limits": {"cpu": "1"}}),
    "processes": at("spec.trainer.numProcPerNode", 4),
    "initializer": at("spec.initializer", {"dataset": {"storageUri": "hf://a/b"}}),
    "runtime": at("spec.runtimeRef.name", "deepspeed-distributed"),
    "managed by": at("spec.managedBy", "kueue.x-k8s.io/multikueue"),
    "deadline": at("spec.activeDeadlineSeconds", 60),
}


@pytest.fixture(scope="module")
def live(cluster: Any) -> tuple[Client, str]:
    """A suspended and a running one, that stay as they are: changes are dry runs."""
    root = open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})
    namespace = f"changes-{int(time.time() * 1000)}"
    root.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    target = KubernetesTarget(root, cluster=lambda: "", namespace=namespace, mode="trainer")
    for name in ("torch-distributed", "deepspeed-distributed"):
        made = runtimes.load(name)
        metadata = {**made["metadata"], "namespace": namespace}
        target.runtimes.apply({**made, "kind": "TrainingRuntime", "metadata": metadata}, "owner", "stack")
    for state in ("held", "runs"):
        target.jobs.create(submission(namespace, train_job(state), code=False))
    until(lambda: len(root.list(kinds.POD, namespace)[0]) == 2)
    return root, namespace


def train_job(name: str) -> Document:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch-distributed"},
            "trainer": {"numNodes": 2, "command": ["train"]},
            "runtimePatches": [patch(**FOREVER)],
            **({"suspend": True} if name == "held" else {}),
        },
    }


@pytest.mark.parametrize("state", ["held", "runs"])
@pytest.mark.parametrize("field", CHANGES)
def test_the_server_takes_what_we_call_an_update_and_nothing_else(
    live: tuple[Client, str], field: str, state: str
) -> None:
    root, namespace = live
    old = train_job(state)
    new = copy.deepcopy(old)
    CHANGES[field](new)
    effects = {c.effect for c in compare({f"TrainJob/{state}": old}, {f"TrainJob/{state}": new})}
    new["metadata"]["namespace"] = namespace
    try:
        root.apply(TRAIN_JOB, new, dry_run=True, force=True)
        accepted = True
    except ApiError as error:
        assert error.code == 422 or "denied the request" in error.message, str(error)
        accepted = False
    assert ("replace" not in effects) == accepted, effects


def test_a_deadline_is_fixed_as_long_as_there_is_one(live: tuple[Client, str]) -> None:
    root, namespace = live
    old = train_job("held")
    old["metadata"] = {"name": "late", "namespace": namespace}
    old["spec"]["activeDeadlineSeconds"] = 60
    root.apply(TRAIN_JOB, old)
    for seconds, effect in ((90, "replace"), (None, "update")):
        new = copy.deepcopy(old)
        del new["spec"]["activeDeadlineSeconds"]
        new["spec"] |= {"activeDeadlineSeconds": seconds} if seconds else {}
        (change,) = compare({"TrainJob/late": old}, {"TrainJob/late": new})
        try:
            root.apply(TRAIN_JOB, new, dry_run=True, force=True)
            accepted = True
        except ApiError as error:
            assert "spec.activeDeadlineSeconds: Invalid value" in error.message
            accepted = False
        assert change.effect == effect == ("update" if accepted else "replace")
