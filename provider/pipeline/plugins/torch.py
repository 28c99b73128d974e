"""Torch: what torchrun needs to find its peers, as PET_* environment.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.api.errors import Invalid, Problem
from pulumi_trainer.provider.api.unknown import Unknown

from ..apply import env_vars, upsert, upsert_ports
from ..info import COMPLETION_INDEX, NODE, TRAINER_PORT, Info, TrainJob, items
from ..interface import CustomValidationPlugin, EnforceMLPolicyPlugin
from ..resources import cpus, gpus, resources_per_node

NUM_NODES = "PET_NNODES"
NUM_PROC_PER_NODE = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
MASTER_ADDR = "PET_MASTER_ADDR"
MASTER_PORT = "PET_MASTER_PORT"
RESERVED = frozenset({NUM_NODES, NUM_PROC_PER_NODE, NODE_RANK, MASTER_ADDR, MASTER_PORT})

TORCHTUNE = ["tune", "run"]


class Torch(EnforceMLPolicyPlugin, CustomValidationPlugin):
    name = "Torch"
    policies = ("mlPolicy.torch",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        policy = info.policy("torch")
        if policy is None:
            return
        for job, container in _injection_targets(policy):
            if info.find_container(job, container) is None and not _names_unknown(info, job, container):
                yield Problem("spec.runtimeRef", _no_target(job, container))
        if _is_torchtune(train_job):
            yield _NO_TORCHTUNE
        names = {env.get("name") for env in items(train_job.trainer, "env")}
        if reserved := sorted(RESERVED & names):
            why = f"must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
            yield Problem("spec.trainer.env", why)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """PET_* in the trainer container only if there is a trainer section; in envInjection targets always."""
        policy = info.policy("torch")
        if policy is None:
            return
        if _is_torchtune(train_job):
            raise Invalid(_NO_TORCHTUNE)
        trainer = train_job.trainer
        pod_set = info.trainer_pod_set
        if pod_set and trainer is not None and trainer.get("numNodes") is not None:
            pod_set.count = trainer["numNodes"]
        env = _torchrun_env(info, train_job)
        if trainer is not None and (container := info.trainer_container):
            container.env = upsert(container.env, env_vars(trainer.get("env")), "name")
            container.env = upsert(container.env, env, "name")
            container.ports = upsert_ports(container.ports, [{"containerPort": TRAINER_PORT}])
        for job, name in _injection_targets(policy):
            if target := info.find_container(job, name):
                target.env = upsert(target.env, env, "name")
            elif not _names_unknown(info, job, name):
                raise Invalid(Problem("spec.runtimeRef", _no_target(job, name)))


_NO_TORCHTUNE = Problem(
    "spec.trainer.command",
    "torchtune (the command [tune, run]) is not supported by this version",
    "give a command of your own",
)


def _is_torchtune(train_job: TrainJob) -> bool:
    return (train_job.trainer or {}).get("command") == TORCHTUNE


def _torchrun_env(info: Info, train_job: TrainJob) -> list[dict[str, Any]]:
    """The address is that of Pod 0 of a job called node, whatever the trainer's job or the subdomain is called."""
    count = info.trainer_pod_set.count if info.trainer_pod_set else 1
    master = f"{train_job.name}-{NODE}-0-0.{train_job.name}"
    return [
        {"name": NUM_NODES, "value": _text(count)},
        {"name": NUM_PROC_PER_NODE, "value": _text(_processes(info, train_job))},
        {"name": NODE_RANK, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
        {"name": MASTER_ADDR, "value": master},
        {"name": MASTER_PORT, "value": str(TRAINER_PORT)},
    ]


def _processes(info: Info, train_job: TrainJob) -> int | str | Unknown:
    """Per node: as the TrainJob says; else "auto", which is one a GPU; else, without GPUs, one a CPU."""
    given: int | Unknown | None = (train_job.trainer or {}).get("numProcPerNode")
    if given is not None:
        return given
    resources = resources_per_node(info, train_job)
    accelerators = gpus(resources)
    if isinstance(accelerators, Unknown):
        return accelerators
    if accelerators:
        return "auto"
    cores = cpus(resources)
    return cores if isinstance(cores, Unknown) else max(1, cores)


def _injection_targets(policy: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for target in items(policy.get("envInjection"), "targets"):
        names = target.get("containerNames", [])
        for container in names if isinstance(names, list) else [names]:
            yield target.get("jobName", ""), container


def _names_unknown(info: Info, *wanted: Any) -> bool:
    """Whether a container that was not found may be there, under a name that is not known yet."""
    pod_sets = info.pod_sets
    containers = (c for ps in pod_sets for c in (*ps.containers, *ps.init_containers))
    names = (*wanted, *(ps.name for ps in pod_sets), *(c.name for c in containers))
    return any(isinstance(name, Unknown) for name in names)


def _no_target(job: str, container: str) -> str:
    return f'envInjection target podSet "{job}" container "{container}" not found in runtime template'


def _text(value: int | str | Unknown) -> str | Unknown:
    return value if isinstance(value, Unknown) else str(value)
