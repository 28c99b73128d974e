"""Every value of a runtime and a TrainJob in turn not known yet: nothing breaks, nothing is refused, no text is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plugin_support import container, job, problems, runtime, train_job, with_unknowns
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import render, validate

NAME = "torchtune-llama3.2-1b"
RESOURCES = {"requests": {"cpu": "1", "nvidia.com/gpu": 2}, "limits": {"cpu": 2}}
MOUNT = {"name": "initializer", "mountPath": "/w"}
POD = {
    "initContainers": [container("first", restartPolicy="Always", resources=RESOURCES)],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "overhead": {"cpu": "1m"},
    "resources": {"requests": {"cpu": "3"}},
    "priorityClassName": "high",
}
PATCH = {
    "manager": "a.io/b",
    "trainingRuntimeSpec": {
        "template": {
            "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "q"}},
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}
                ]
            },
        }
    },
}
TRAIN_JOB = train_job(
    {
        "numNodes": 2,
        "numProcPerNode": 2,
        "image": "i",
        "command": ["tune", "run"],
        "args": ["model.lora_attn_modules=[x]", "k=v"],
        "env": [{"name": "FLUX_QUEUE_POLICY", "value": "x"}],
        "resourcesPerNode": RESOURCES,
    },
    runtime=NAME,
    runtimePatches=[PATCH],
    initializer={"dataset": {"storageUri": "hf://a", "env": [{"name": "Z", "value": "1"}], "secretRef": {"name": "s"}}},
)


def jobs(policy: str) -> list[dict[str, Any]]:
    first = job("dataset-initializer", "dataset-initializer", container("dataset-initializer", volumeMounts=[MOUNT]))
    ports = [{"containerPort": 1, "name": "a"}]
    trains = container(env=[{"name": "A", "value": "1"}], command=["output_dir=/x"], ports=ports, resources=RESOURCES)
    node = {**job("node", "" if policy == "mpi" else None, trains, container("side"), **POD), "replicas": 1}
    return [first, *([job("launcher")] if policy == "mpi" else []), node]


@pytest.mark.parametrize(
    ("name", "policy", "gang"),
    [
        (
            "torch",
            {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}},
            {"coscheduling": {}},
        ),
        ("mpi", {"runLauncherAsNode": True}, {"volcano": {"networkTopology": {}}}),
        ("jax", {}, {"coscheduling": {}}),
        ("xgboost", {}, {"volcano": {}}),
        ("flux", {}, {"coscheduling": {}}),
    ],
)
def test_any_value(name: str, policy: Any, gang: Any) -> None:
    rt = runtime({"numNodes": 2, name: policy}, *jobs(name), name=NAME, gang=gang, network={"subdomain": "sub"})
    told = {(p.where, p.why) for p in problems(rt, TRAIN_JOB, lambda *_: True)}
    tried = 0
    for changed, tj, place in with_unknowns(rt, TRAIN_JOB):
        objects = render(changed, tj, mode="trainer", status_server_ca="CA").objects
        assert "Unknown" not in json.dumps(
            objects, default=lambda value: "" if isinstance(value, Unknown) else value
        ), place
        found = {(p.where, p.why) for p in validate(changed, tj, exists=lambda *_: True)}
        assert found <= told, place
        tried += 1
    assert tried > 100
