"""Distributed training as infrastructure code: Kubeflow Trainer's runtimes and TrainJobs as Pulumi resources.

Names are imported when they are used: importing anything below `pulumi_trainer.provider` runs this file, and must load
neither Pulumi nor a client of a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builtin import (
        BuiltinTrainer,
        DataFormat,
        DataType,
        LoraConfig,
        Loss,
        TorchTuneConfig,
        TorchTuneInstructDataset,
    )
    from .datasets import DatasetInitializer, ModelInitializer
    from .destinations import Kubernetes, Local
    from .frameworks import register_plugin
    from .patches import ContainerPatch, JobPatch, PodPatch, RuntimePatch
    from .policies import (
        CoschedulingPolicy,
        EnvInjectionTarget,
        FluxPolicy,
        JAXPolicy,
        MPIPolicy,
        PlainPolicy,
        TorchPolicy,
        VolcanoNetworkTopology,
        VolcanoPolicy,
        XGBoostPolicy,
    )
    from .runtime import ClusterTrainingRuntime, TrainingRuntime
    from .sources import (
        DataCacheInitializer,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        Initializer,
        S3DatasetInitializer,
        S3ModelInitializer,
        Source,
    )
    from .template import (
        DependsOn,
        FailurePolicy,
        FailurePolicyRule,
        JobSetTemplate,
        Network,
        OnExitCodes,
        OnPodCondition,
        PodFailurePolicy,
        PodFailurePolicyRule,
        ReplicatedJob,
        SuccessPolicy,
    )
    from .trainers import CustomTrainer, Trainer
    from .trainjob import Progress, TrainJob
    from .volumes import OutputVolume

_MODULES = {
    "builtin": (
        "BuiltinTrainer",
        "DataFormat",
        "DataType",
        "LoraConfig",
        "Loss",
        "TorchTuneConfig",
        "TorchTuneInstructDataset",
    ),
    "datasets": ("DatasetInitializer", "ModelInitializer"),
    "destinations": ("Kubernetes", "Local"),
    "frameworks": ("register_plugin",),
    "patches": ("ContainerPatch", "JobPatch", "PodPatch", "RuntimePatch"),
    "policies": (
        "CoschedulingPolicy",
        "EnvInjectionTarget",
        "FluxPolicy",
        "JAXPolicy",
        "MPIPolicy",
        "PlainPolicy",
        "TorchPolicy",
        "VolcanoNetworkTopology",
        "VolcanoPolicy",
        "XGBoostPolicy",
    ),
    "runtime": ("ClusterTrainingRuntime", "TrainingRuntime"),
    "sources": (
        "DataCacheInitializer",
        "HuggingFaceDatasetInitializer",
        "HuggingFaceModelInitializer",
        "Initializer",
        "S3DatasetInitializer",
        "S3ModelInitializer",
        "Source",
    ),
    "template": (
        "DependsOn",
        "FailurePolicy",
        "FailurePolicyRule",
        "JobSetTemplate",
        "Network",
        "OnExitCodes",
        "OnPodCondition",
        "PodFailurePolicy",
        "PodFailurePolicyRule",
        "ReplicatedJob",
        "SuccessPolicy",
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
