"""Counts the GPUs and CPUs of a node, from which plugins derive the number of processes.

Sources: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import items
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER, Info, TrainJob


def resources_per_node(info: Info, train_job: TrainJob) -> Any:
    """Return the resources to count: the TrainJob's resourcesPerNode if given, else the node's own resources.

    Args:
        info: The merged job and runtime; the resources of a node are those of the container `node` of its training step.
        train_job: The TrainJob.
    """
    given = (train_job.trainer or {}).get("resourcesPerNode")
    if given is not None:
        return given
    return _of_runtime(info)


def claims_devices(info: Info, train_job: TrainJob) -> bool:
    """Return whether a node claims devices; resourcesPerNode drops the claims of the runtime."""
    dropped = (train_job.trainer or {}).get("resourcesPerNode") is not None
    return not dropped and bool(items(_of_runtime(info), "claims"))


def _of_runtime(info: Info) -> Any:
    for pod_set in info.pod_sets:
        if pod_set.name == NODE or pod_set.ancestor == TRAINER:
            for container in items(pod_set.pod_spec, "containers"):
                if container.get("name") == NODE and "resources" in container:
                    return container["resources"]
    return {}


def gpus(resources: Any) -> int | Unknown:
    """Return the GPUs of requests, else of limits: the first with "gpu" in its name, so nvidia.com/mig-1g.5gb does not count."""
    requested = _amount(resources, "requests", is_gpu)
    if requested:
        return requested
    limit = _amount(resources, "limits", is_gpu)
    if isinstance(limit, Unknown):
        return limit
    return max(limit, 0)


def cpus(resources: Any) -> int | Unknown:
    """Return the requested CPUs, else the limit, rounded up."""
    requested = _amount(resources, "requests", "cpu".__eq__)
    if requested:
        return requested
    return _amount(resources, "limits", "cpu".__eq__)


def int32(number: int) -> int:
    """Return a number as Go converts it to int32 where upstream does: larger numbers wrap around."""
    return (number + 2**31) % 2**32 - 2**31


def is_gpu(name: str) -> bool:
    """Return whether a resource counts as a GPU."""
    return "gpu" in name.lower()


def _amount(resources: Any, part: str, wanted: Callable[[str], bool]) -> int | Unknown:
    amounts = resources
    if isinstance(resources, dict):
        amounts = resources.get(part, {})
    if isinstance(amounts, Unknown):
        return amounts
    amount = next((amounts[name] for name in amounts if wanted(name)), "0")
    if isinstance(amount, Unknown):
        return amount
    return Quantity.parse(amount).value
