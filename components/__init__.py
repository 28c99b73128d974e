"""Distributed training as infrastructure code: Kubeflow Trainer's runtimes and TrainJobs as Pulumi resources.

Names are imported when they are used: importing anything below `pulumi_trainer.provider` runs this file, and must load
neither Pulumi nor a client of a cluster.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as`: type checkers take only such names for exported
    from .args.builtin import (
        BuiltinTrainer as BuiltinTrainer,
        DataFormat as DataFormat,
        DataType as DataType,
        LoraConfig as LoraConfig,
        Loss as Loss,
        TorchTuneConfig as TorchTuneConfig,
        TorchTuneInstructDataset as TorchTuneInstructDataset,
    )
    from .channel import RuntimeChannel as RuntimeChannel
    from .datasets import DatasetInitializer as DatasetInitializer, ModelInitializer as ModelInitializer
    from .program.targets import Kubernetes as Kubernetes, Local as Local, Worker as Worker
    from .program.registered_plugins import register_plugin as register_plugin
    from .args.patches import (
        ContainerPatch as ContainerPatch,
        JobPatch as JobPatch,
        PodPatch as PodPatch,
        RuntimePatch as RuntimePatch,
    )
    from .args.generation import GenerationServer as GenerationServer
    from .args.fine_tuning import LlamaFactoryTrainer as LlamaFactoryTrainer, TransformersTrainer as TransformersTrainer
    from .args.torchtune import TorchTuneTrainer as TorchTuneTrainer
    from .args.trl import TRLTrainer as TRLTrainer
    from .args.unsloth import UnslothTrainer as UnslothTrainer
    from .network_policy import Egress as Egress, NetworkPolicy as NetworkPolicy
    from .podgroups import CoschedulingPodGroup as CoschedulingPodGroup, VolcanoPodGroup as VolcanoPodGroup
    from .args.policies import (
        CoschedulingPolicy as CoschedulingPolicy,
        EnvInjectionTarget as EnvInjectionTarget,
        FluxPolicy as FluxPolicy,
        JAXPolicy as JAXPolicy,
        KAIPolicy as KAIPolicy,
        MPIPolicy as MPIPolicy,
        PlainPolicy as PlainPolicy,
        TorchPolicy as TorchPolicy,
        VolcanoNetworkTopology as VolcanoNetworkTopology,
        VolcanoPolicy as VolcanoPolicy,
        XGBoostPolicy as XGBoostPolicy,
    )
    from .queues.arguments import (
        BorrowWithinCohort as BorrowWithinCohort,
        CheckParameters as CheckParameters,
        FairSharing as FairSharing,
        FlavorFungibility as FlavorFungibility,
        Preemption as Preemption,
        ResourceQuota as ResourceQuota,
        RetryStrategy as RetryStrategy,
    )
    from .queues.gpus import GpuQueues as GpuQueues
    from .queues.teams import Team as Team
    from .queues.checks import (
        AdmissionCheck as AdmissionCheck,
        MultiKueueCluster as MultiKueueCluster,
        MultiKueueConfig as MultiKueueConfig,
        ProvisioningRequestConfig as ProvisioningRequestConfig,
    )
    from .queues.flavors import ResourceFlavor as ResourceFlavor, Topology as Topology
    from .queues.quotas import (
        AdmissionCheckRule as AdmissionCheckRule,
        ConcurrentAdmissionPolicy as ConcurrentAdmissionPolicy,
        FlavorQuotas as FlavorQuotas,
        ResourceGroup as ResourceGroup,
    )
    from .queues.objects import (
        ClusterQueue as ClusterQueue,
        Cohort as Cohort,
        LocalQueue as LocalQueue,
        WorkloadPriorityClass as WorkloadPriorityClass,
    )
    from .runtime import ClusterTrainingRuntime as ClusterTrainingRuntime, TrainingRuntime as TrainingRuntime
    from pulumi_trainer.provider.trainer.catalog.catalog import RuntimeCatalog as RuntimeCatalog
    from .args.project import Source as Source
    from .args.sources import (
        DataCacheInitializer as DataCacheInitializer,
        DataSource as DataSource,
        HuggingFaceDatasetInitializer as HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer as HuggingFaceModelInitializer,
        Initializer as Initializer,
        S3DatasetInitializer as S3DatasetInitializer,
        S3ModelInitializer as S3ModelInitializer,
    )
    from .args.template import (
        DependsOn as DependsOn,
        FailurePolicy as FailurePolicy,
        FailurePolicyRule as FailurePolicyRule,
        JobSetTemplate as JobSetTemplate,
        Network as Network,
        OnExitCodes as OnExitCodes,
        OnPodCondition as OnPodCondition,
        PodFailurePolicy as PodFailurePolicy,
        PodFailurePolicyRule as PodFailurePolicyRule,
        ReplicatedJob as ReplicatedJob,
        SuccessPolicy as SuccessPolicy,
    )
    from .args.fork import Fork as Fork
    from .args.topology import Preferred as Preferred, Required as Required, Unconstrained as Unconstrained
    from .args.trainers import CustomTrainer as CustomTrainer, Trainer as Trainer
    from .trainjob import Progress as Progress, TrainJob as TrainJob
    from .program.watch import Timeouts as Timeouts
    from .plan.checkpoint_policy import CheckpointPolicy as CheckpointPolicy
    from .plan.volume_claims import OutputVolume as OutputVolume

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
    "program.targets": ("Kubernetes", "Local", "Worker"),
    "program.registered_plugins": ("register_plugin",),
    "args.patches": ("ContainerPatch", "JobPatch", "PodPatch", "RuntimePatch"),
    "args.generation": ("GenerationServer",),
    "args.fine_tuning": ("LlamaFactoryTrainer", "TransformersTrainer"),
    "args.trl": ("TRLTrainer",),
    "args.torchtune": ("TorchTuneTrainer",),
    "args.unsloth": ("UnslothTrainer",),
    "network_policy": ("Egress", "NetworkPolicy"),
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
        "BorrowWithinCohort",
        "CheckParameters",
        "FairSharing",
        "FlavorFungibility",
        "Preemption",
        "ResourceQuota",
        "RetryStrategy",
    ),
    "queues.flavors": ("ResourceFlavor", "Topology"),
    "queues.quotas": ("AdmissionCheckRule", "ConcurrentAdmissionPolicy", "FlavorQuotas", "ResourceGroup"),
    "queues.gpus": ("GpuQueues",),
    "queues.teams": ("Team",),
    "queues.checks": ("AdmissionCheck", "MultiKueueCluster", "MultiKueueConfig", "ProvisioningRequestConfig"),
    "queues.objects": ("ClusterQueue", "Cohort", "LocalQueue", "WorkloadPriorityClass"),
    "runtime": ("ClusterTrainingRuntime", "TrainingRuntime"),
    "provider.trainer.catalog.catalog": ("RuntimeCatalog",),
    "args.project": ("Source",),
    "args.sources": (
        "DataCacheInitializer",
        "DataSource",
        "HuggingFaceDatasetInitializer",
        "HuggingFaceModelInitializer",
        "Initializer",
        "S3DatasetInitializer",
        "S3ModelInitializer",
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
    "args.fork": ("Fork",),
    "args.topology": ("Preferred", "Required", "Unconstrained"),
    "args.trainers": ("CustomTrainer", "Trainer"),
    "trainjob": ("Progress", "TrainJob"),
    "program.watch": ("Timeouts",),
    "plan.checkpoint_policy": ("CheckpointPolicy",),
    "plan.volume_claims": ("OutputVolume",),
}
_HOME: dict[str, str] = {}
for _module, _names in _MODULES.items():
    _HOME.update(dict.fromkeys(_names, _module))

__all__ = [  # noqa: PLE0604
    *_HOME  # pyright: ignore[reportUnsupportedDunderAll]
]


if not TYPE_CHECKING:  # it would make any name right for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            from difflib import get_close_matches  # not with each import of the provider

            near = get_close_matches(name, _HOME, n=1)
            hint = f". Hint: did you mean {near[0]}?" if near else ""
            why = f"module {__name__!r} has no attribute {name!r}{hint}"
            if "pulumi" in sys.modules:  # a program, which ends without a traceback
                from .program.session import unknown_name

                raise unknown_name(why, sys._getframe(1))
            raise AttributeError(why)
        return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
