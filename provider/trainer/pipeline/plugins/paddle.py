"""PaddlePaddle: the variables of `paddle.distributed.launch` for collective training. Kubeflow Trainer does not have this policy.

https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/distributed/launch/context/args_envs.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.trainer.pipeline.apply import upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import COMPLETION_INDEX, Info, TrainJob, text
from pulumi_trainer.provider.trainer.pipeline.interface import CustomValidationPlugin, PreComponentBuilderPlugin
from pulumi_trainer.provider.trainer.pipeline.policy import Policy
from pulumi_trainer.provider.trainer.pipeline.resources import claims_devices, resources_per_node
from pydantic import Field


class PaddlePolicy(Policy):  # type: ignore[metaclass]  # that of pydantic has no public name
    """`mlPolicy.paddle`. port: At which the launchers meet on the first node."""

    serves = "mlPolicy.paddle"
    port: Annotated[int, Field(ge=1024, le=32767)] = 6170


class Paddle(CustomValidationPlugin, PreComponentBuilderPlugin):
    """Implements `mlPolicy.paddle`."""

    name = "Paddle"
    policies = (PaddlePolicy,)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        if PaddlePolicy.read(info) is None:
            return
        own = {env["name"] for env in _variables(1, "", "", 1)}
        given = {env.get("name", "") for env in items(train_job.trainer, "env")}
        taken = sorted(own & given)
        if taken:
            yield Problem("spec.trainer.env", f"{', '.join(taken)} come from the runtime's policy", "leave them out")

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:
        policy, pods, container = PaddlePolicy.read(info), info.trainer_pod_set, info.trainer_container
        if policy is None or pods is None or container is None:
            return
        hosts, processes = [*pods.endpoints()], (train_job.trainer or {}).get("numProcPerNode")
        if not _may_have_devices(info, train_job):
            container.env = upsert(container.env, [{"name": "PADDLE_DISTRI_BACKEND", "value": "gloo"}], "name")
        own: Any = first_unknown(pods.count)
        first: Any = own
        if hosts:
            name, _, domain = hosts[0].partition(".")
            own = f"{name.removesuffix('0')}$(PADDLE_RANK).{domain}"
            first = first_unknown(policy.port) or f"{hosts[0]}:{policy.port}"
        variables = _variables(pods.count, own, first, processes)
        pods.remove_env(container, {each["name"] for each in variables})
        container.env = upsert(container.env, variables, "name")
        container.ports = upsert_ports(container.ports, [{"containerPort": policy.port}])


def _may_have_devices(info: Info, train_job: TrainJob) -> bool:
    """Return whether nodes ask for a device. For others the launcher gets its backend by name.

    It takes an empty CUDA_VISIBLE_DEVICES, by which GPUs are hidden on this machine, for one GPU.
    """
    resources = resources_per_node(info, train_job)
    if first_unknown(resources) or claims_devices(info, train_job):
        return True
    names = [*section(resources, "limits"), *section(resources, "requests")]
    return any("/" in name for name in names)


def _variables(nodes: Any, own: Any, first: Any, processes: Any) -> list[dict[str, Any]]:
    """Return the launcher's variables.

    The launcher serves as master where PADDLE_MASTER starts with POD_IP, its `--host`: the Pod's name is this host on all nodes.
    """
    found: list[dict[str, Any]] = [
        {"name": "PADDLE_RANK", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
        {"name": "PADDLE_NNODES", "value": text(nodes)},
        {"name": "PADDLE_MASTER", "value": first},
        {"name": "POD_IP", "value": own},
    ]
    if processes is not None:
        found.append({"name": "PADDLE_NPROC_PER_NODE", "value": text(processes)})
    return found
