"""Distributed training as infrastructure code: Kubeflow Trainer's runtimes and TrainJobs as Pulumi resources.

Names are imported when they are used: importing anything below `pulumi_trainer.provider` runs this file, and must load
neither Pulumi nor a client of a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasets import DatasetInitializer, ModelInitializer
    from .destinations import Kubernetes, Local
    from .runtime import ClusterTrainingRuntime, TrainingRuntime
    from .sources import (
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        Initializer,
        S3DatasetInitializer,
        S3ModelInitializer,
        Source,
    )
    from .template import (
        DependsOn,
        EnvInjectionTarget,
        FailurePolicy,
        FailurePolicyRule,
        JobSetTemplate,
        Network,
        OnExitCodes,
        OnPodCondition,
        PlainPolicy,
        PodFailurePolicy,
        PodFailurePolicyRule,
        ReplicatedJob,
        SuccessPolicy,
        TorchPolicy,
    )
    from .trainers import CustomTrainer, Trainer
    from .trainjob import Progress, TrainJob
    from .volumes import OutputVolume

_MODULES = {
    "datasets": ("DatasetInitializer", "ModelInitializer"),
    "destinations": ("Kubernetes", "Local"),
    "runtime": ("ClusterTrainingRuntime", "TrainingRuntime"),
    "sources": (
        "HuggingFaceDatasetInitializer",
        "HuggingFaceModelInitializer",
        "Initializer",
        "S3DatasetInitializer",
        "S3ModelInitializer",
        "Source",
    ),
    "template": (
        "DependsOn",
        "EnvInjectionTarget",
        "FailurePolicy",
        "FailurePolicyRule",
        "JobSetTemplate",
        "Network",
        "OnExitCodes",
        "OnPodCondition",
        "PlainPolicy",
        "PodFailurePolicy",
        "PodFailurePolicyRule",
        "ReplicatedJob",
        "SuccessPolicy",
        "TorchPolicy",
    ),
    "trainers": ("CustomTrainer", "Trainer"),
    "trainjob": ("Progress", "TrainJob"),
    "volumes": ("OutputVolume",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: PLE0604
    *_HOME  # pyright: ignore[reportUnsupportedDunderAll]
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
