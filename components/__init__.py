"""Distributed training as infrastructure code: Kubeflow Trainer's runtimes and TrainJobs as Pulumi resources.

Names are imported when they are used: importing anything below `pulumi_trainer.provider` runs this file, and must load
neither Pulumi nor a client of a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as`: type checkers take only such names for exported
    from .args.builtin import (
        BuiltinTrainer,
        DataFormat,
        DataType,
        LoraConfig,
        Loss,
        TorchTuneConfig,
        TorchTuneInstructDataset,
    )
    from .channel import RuntimeChannel
    from .datasets import DatasetInitializer, ModelInitializer
    from .program.targets import Kubernetes, Local
    from .program.plugins import register_plugin
    from .args.patches import (
        ContainerPatch,
        JobPatch,
        PodPatch,
        RuntimePatch,
    )
    from .podgroups import CoschedulingPodGroup, VolcanoPodGroup
    from .args.policies import (
        CoschedulingPolicy,
        EnvInjectionTarget,
        FluxPolicy,
        JAXPolicy,
        KAIPolicy,
        MPIPolicy,
        PlainPolicy,
        TorchPolicy,
        VolcanoNetworkTopology,
        VolcanoPolicy,
        XGBoostPolicy,
    )
    from .queues.arguments import (
        AdmissionCheckRule,
        BorrowWithinCohort,
        CheckParameters,
        ConcurrentAdmissionPolicy,
        FairSharing,
        FlavorFungibility,
        FlavorQuotas,
        Preemption,
        ResourceGroup,
        ResourceQuota,
        RetryStrategy,
    )
    from .queues.gpus import GpuQueues
    from .queues.teams import Team
    from .queues.checks import (
        AdmissionCheck,
        MultiKueueCluster,
        MultiKueueConfig,
        ProvisioningRequestConfig,
    )
    from .queues.objects import (
        ClusterQueue,
        Cohort,
        LocalQueue,
        ResourceFlavor,
        Topology,
        WorkloadPriorityClass,
    )
    from .runtime import ClusterTrainingRuntime, TrainingRuntime
    from pulumi_trainer.provider.catalog.catalog import RuntimeCatalog
    from .args.sources import (
        DataCacheInitializer,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        Initializer,
        S3DatasetInitializer,
        S3ModelInitializer,
        Source,
    )
    from .args.template import (
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
    from .args.topology import Preferred, Required, Unconstrained
    from .args.trainers import CustomTrainer, Trainer
    from .trainjob import Progress, Timeouts, TrainJob
    from .plan.volume_claims import OutputVolume

_MODULES = {
    "args.builtin": (
        "BuiltinTrainer",
        "DataFormat",
        "DataType",
        "LoraConfig",
        "Loss",
        "TorchTuneConfig",
        "TorchTuneInstructDataset",
    ),
    "channel": ("RuntimeChannel",),
    "datasets": ("DatasetInitializer", "ModelInitializer"),
    "program.targets": ("Kubernetes", "Local"),
    "program.plugins": ("register_plugin",),
    "args.patches": ("ContainerPatch", "JobPatch", "PodPatch", "RuntimePatch"),
    "podgroups": ("CoschedulingPodGroup", "VolcanoPodGroup"),
    "args.policies": (
        "CoschedulingPolicy",
        "EnvInjectionTarget",
        "FluxPolicy",
        "JAXPolicy",
        "KAIPolicy",
        "MPIPolicy",
        "PlainPolicy",
        "TorchPolicy",
        "VolcanoNetworkTopology",
        "VolcanoPolicy",
        "XGBoostPolicy",
    ),
    "queues.arguments": (
        "AdmissionCheckRule",
        "BorrowWithinCohort",
        "CheckParameters",
        "ConcurrentAdmissionPolicy",
        "FairSharing",
        "FlavorFungibility",
        "FlavorQuotas",
        "Preemption",
        "ResourceGroup",
        "ResourceQuota",
        "RetryStrategy",
    ),
    "queues.gpus": ("GpuQueues",),
    "queues.teams": ("Team",),
    "queues.checks": (
        "AdmissionCheck",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
    ),
    "queues.objects": (
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    ),
    "runtime": ("ClusterTrainingRuntime", "TrainingRuntime"),
    "provider.catalog.catalog": ("RuntimeCatalog",),
    "args.sources": (
        "DataCacheInitializer",
        "HuggingFaceDatasetInitializer",
        "HuggingFaceModelInitializer",
        "Initializer",
        "S3DatasetInitializer",
        "S3ModelInitializer",
        "Source",
    ),
    "args.template": (
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
    "args.topology": ("Preferred", "Required", "Unconstrained"),
    "args.trainers": ("CustomTrainer", "Trainer"),
    "trainjob": ("Progress", "Timeouts", "TrainJob"),
    "plan.volume_claims": ("OutputVolume",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: PLE0604
    *_HOME  # pyright: ignore[reportUnsupportedDunderAll]
]


if not TYPE_CHECKING:  # it would make any name right for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            from difflib import get_close_matches  # not with each import of the provider

            near = get_close_matches(name, _HOME, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
