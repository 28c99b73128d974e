"""TensorFlow's distributed strategies as a framework of pulumi-trainer: TF_CONFIG for chief, worker, ps and evaluator.

https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pulumi_trainer.plugins import (
    COMPLETION_INDEX,
    Container,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    Info,
    PodSet,
    Policy,
    PreComponentBuilderPlugin,
    Problem,
    TrainJob,
    env_vars,
    first_unknown,
    items,
    upsert,
    upsert_ports,
)
from pydantic import Field

CLUSTER = ("chief", "worker", "ps")
ROLES = (*CLUSTER, "evaluator")  # an evaluator knows the cluster and is no part of it


class TensorFlowPolicy(Policy):
    """`mlPolicy.tensorflow`. port: on which every task listens. parameter_servers: pods of the replicated job ps."""

    serves = "mlPolicy.tensorflow"
    port: Annotated[int, Field(ge=1024, le=65535)] = 2222
    parameter_servers: Annotated[int, Field(ge=1)] = 1


class TensorFlow(CustomValidationPlugin, EnforceMLPolicyPlugin, PreComponentBuilderPlugin):
    """A role is a replicated job of that name, with a container `node`. `numNodes` counts the workers."""

    name = "TensorFlow"
    policies = (TensorFlowPolicy,)
    launcher = ("python3",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        if TensorFlowPolicy.read(info) is None:
            return
        if "worker" not in _tasks(info):
            yield Problem("spec.runtimeRef", "must have a replicated job worker with a container node")
        if any(env.get("name") == "TF_CONFIG" for env in items(train_job.trainer, "env")):
            yield Problem("spec.trainer.env", "TF_CONFIG comes from the runtime", "leave it out")

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        policy = TensorFlowPolicy.read(info)
        counts = {"chief": 1, "ps": policy.parameter_servers, "evaluator": 1} if policy else {}
        for pods in info.pod_sets:
            pods.count = counts.get(pods.name, pods.count)

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:
        policy, tasks = TensorFlowPolicy.read(info), _tasks(info)
        if policy is None or "worker" not in tasks:
            return
        unknown = first_unknown([policy.port, *(pods.count for pods, _ in tasks.values())])
        cluster = {
            role: [f"{host}:{policy.port}" for host in tasks[role][0].endpoints()] for role in CLUSTER if role in tasks
        }
        for role, (pods, container) in tasks.items():
            _same_program(pods, container, *tasks["worker"], train_job.trainer or {})
            task = f'{{"type": "{role}", "index": $(TASK_INDEX)}}'
            config = f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'
            env = [
                {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
                {"name": "TF_CONFIG", "value": unknown or config},
            ]
            container.env = upsert(container.env, env, "name")
            container.ports = upsert_ports(container.ports, [{"containerPort": policy.port}])


def _tasks(info: Info) -> dict[str, tuple[PodSet, Container]]:
    return {
        pods.name: (pods, container)
        for pods in info.pod_sets
        if pods.name in ROLES and (container := pods.container("node"))
    }


def _same_program(
    pods: PodSet, container: Container, workers: PodSet, worker: Container, trainer: dict[str, Any]
) -> None:
    """Image, command, args, env and volumes that a TrainJob gives to its workers are for all roles. Resources are not:
    ps and evaluator keep what the runtime gives them."""
    pods.volumes = upsert(pods.volumes, workers.volumes, "name")
    container.volume_mounts = upsert(container.volume_mounts, worker.volume_mounts, "mountPath")
    container.env = upsert(container.env, env_vars(trainer.get("env")), "name")
    container.image = trainer.get("image") or container.image
    container.command = trainer.get("command") or container.command
    if trainer.get("args"):
        next(c for c in pods.pod_spec["containers"] if c["name"] == "node")["args"] = trainer["args"]
