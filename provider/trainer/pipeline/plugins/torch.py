"""Torch: the PET_* environment for torchrun.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items
from pulumi_trainer.provider.kubernetes.values.names import quoted
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.trainer.pipeline.apply import env_vars, upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    COMPLETION_INDEX,
    TRAINER_PORT,
    Info,
    TrainJob,
    head_node,
    text,
)
from pulumi_trainer.provider.trainer.pipeline.interface import CustomValidationPlugin, EnforceMLPolicyPlugin
from pulumi_trainer.provider.trainer.pipeline.plugins import torchtune
from pulumi_trainer.provider.trainer.pipeline.resources import claims_devices, cpus, gpus, int32, resources_per_node

NUM_NODES = "PET_NNODES"
NUM_PROC_PER_NODE = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
MASTER_ADDR = "PET_MASTER_ADDR"
MASTER_PORT = "PET_MASTER_PORT"
AUTO = "auto"
"""A process for each GPU that torchrun finds."""
RESERVED = frozenset({NUM_NODES, NUM_PROC_PER_NODE, NODE_RANK, MASTER_ADDR, MASTER_PORT})


class Torch(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Implements `mlPolicy.torch`."""

    name = "Torch"
    policies = ("mlPolicy.torch",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        policy = info.policy("torch")
        if policy is None:
            return
        for job, container in _injection_targets(policy):
            if info.find_container(job, container) is None and not _may_be_there(info, job, container):
                yield Problem("spec.runtimeRef", _no_target(job, container))
        names = {env.get("name") for env in items(train_job.trainer, "env")}
        reserved = sorted(RESERVED & names)
        if reserved:
            why = f"must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
            yield Problem("spec.trainer.env", why)
        if torchtune.is_torchtune(train_job):
            yield from torchtune.validate(info, train_job)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set PET_* variables: in the trainer container only if there is a trainer section; in envInjection targets always."""
        policy = info.policy("torch")
        if policy is None:
            return
        trainer = train_job.trainer
        info.take_nodes(train_job)
        processes = _processes(info, train_job)
        group, master = _group_env(info, processes), _master(train_job)
        container = info.trainer_container
        if trainer is not None and container:
            container.env = upsert(container.env, env_vars(trainer.get("env")), "name")
            container.env = upsert(container.env, group, "name")
            if torchtune.is_torchtune(train_job):
                torchtune.rewrite(info, train_job, processes)
            else:
                container.env = upsert(container.env, master, "name")
            container.ports = upsert_ports(container.ports, [{"containerPort": TRAINER_PORT}])
        for job, name in _injection_targets(policy):
            target = info.find_container(job, name)
            if target:
                target.env = upsert(target.env, [*group, *master], "name")
            elif not _may_be_there(info, job, name):
                raise Invalid(Problem("spec.runtimeRef", _no_target(job, name)))


def _group_env(info: Info, processes: int | str | Unknown) -> list[dict[str, Any]]:
    count: int | Unknown = 1
    if info.trainer_pod_set:
        count = info.trainer_pod_set.count
    return [
        {"name": NUM_NODES, "value": text(count)},
        {"name": NUM_PROC_PER_NODE, "value": text(processes)},
        {"name": NODE_RANK, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
    ]


def _master(train_job: TrainJob) -> list[dict[str, Any]]:
    return [{"name": MASTER_ADDR, "value": head_node(train_job)}, {"name": MASTER_PORT, "value": str(TRAINER_PORT)}]


def _processes(info: Info, train_job: TrainJob) -> int | str | Unknown:
    """Return the processes of a node: the TrainJob's; else "auto", which is one for each GPU; without GPUs, one for each CPU."""
    given: int | Unknown | None = (train_job.trainer or {}).get("numProcPerNode")
    if given is not None:
        return given
    resources = resources_per_node(info, train_job)
    accelerators = gpus(resources)
    if isinstance(accelerators, Unknown):
        return accelerators
    if accelerators or (info.counts_claims and claims_devices(info, train_job)):
        return AUTO
    cores = cpus(resources)
    if isinstance(cores, Unknown):
        return cores
    return int32(max(1, cores))


def _injection_targets(policy: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for target in items(policy.get("envInjection"), "targets"):
        names = target.get("containerNames", [])
        if not isinstance(names, list):
            names = [names]
        for container in names:
            yield target.get("jobName", ""), container


def _may_be_there(info: Info, *wanted: Any) -> bool:
    """Return whether a container that was not found may exist, as not all names are known yet."""
    return any_unknown(wanted) or info.may_have_more()


def _no_target(job: str, container: str) -> str:
    return f"envInjection target podSet {quoted(job)} container {quoted(container)} not found in runtime template"
