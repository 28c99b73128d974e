"""How many GPUs and CPUs a node has, as plugins count them to choose the number of processes.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import items
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline.info import (
    NODE,
    TRAINER,
    Info,
    TrainJob,
)


def resources_per_node(info: Info, train_job: TrainJob) -> Any:
    """What is counted: the TrainJob's resourcesPerNode alone if given, else the node's own resources."""
    given = (train_job.trainer or {}).get("resourcesPerNode")
    if given is not None:
        return given
    for pod_set in info.pod_sets:
        if pod_set.name == NODE or pod_set.ancestor == TRAINER:
            for container in items(pod_set.pod_spec, "containers"):
                if container.get("name") == NODE and "resources" in container:
                    return container["resources"]
    return {}


def gpus(resources: Any) -> int | Unknown:
    """Of requests, else of limits: the first with "gpu" in its name, so nvidia.com/mig-1g.5gb is none."""
    requested = _amount(resources, "requests", _is_gpu)
    if requested:
        return requested
    limit = _amount(resources, "limits", _is_gpu)
    return limit if isinstance(limit, Unknown) else max(limit, 0)


def cpus(resources: Any) -> int | Unknown:
    """Requested CPUs, else the limit, rounded up."""
    requested = _amount(resources, "requests", "cpu".__eq__)
    return requested if requested else _amount(resources, "limits", "cpu".__eq__)


def int32(number: int) -> int:
    """As Go narrows a number where upstream does: more than it can hold wraps around."""
    return (number + 2**31) % 2**32 - 2**31


def _is_gpu(name: str) -> bool:
    return "gpu" in name.lower()


def _amount(resources: Any, part: str, wanted: Callable[[str], bool]) -> int | Unknown:
    amounts = resources.get(part, {}) if isinstance(resources, dict) else resources
    if isinstance(amounts, Unknown):
        return amounts
    amount = next((amounts[name] for name in amounts if wanted(name)), "0")
    return amount if isinstance(amount, Unknown) else Quantity.parse(amount).value
