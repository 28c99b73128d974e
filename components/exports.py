"""The names that programs import from `pulumi_trainer`; `as`: type checkers take only such names for exported."""

from pulumi_trainer.args.builtin import (
    BuiltinTrainer as BuiltinTrainer,
    DataFormat as DataFormat,
    DataType as DataType,
    LoraConfig as LoraConfig,
    Loss as Loss,
    TorchTuneConfig as TorchTuneConfig,
    TorchTuneInstructDataset as TorchTuneInstructDataset,
)
from pulumi_trainer.channel import RuntimeChannel as RuntimeChannel
from pulumi_trainer.datasets import DatasetInitializer as DatasetInitializer, ModelInitializer as ModelInitializer
from pulumi_trainer.program.targets import Kubernetes as Kubernetes, Local as Local, Worker as Worker
from pulumi_trainer.program.registered_plugins import register_plugin as register_plugin
from pulumi_trainer.args.patches import (
    ContainerPatch as ContainerPatch,
    JobPatch as JobPatch,
    PodPatch as PodPatch,
    RuntimePatch as RuntimePatch,
)
from pulumi_trainer.args.generation import GenerationServer as GenerationServer
from pulumi_trainer.args.fine_tuning import (
    LlamaFactoryTrainer as LlamaFactoryTrainer,
    TransformersTrainer as TransformersTrainer,
)
from pulumi_trainer.args.torchtune import TorchTuneTrainer as TorchTuneTrainer
from pulumi_trainer.args.trl import TRLTrainer as TRLTrainer
from pulumi_trainer.args.unsloth import UnslothTrainer as UnslothTrainer
from pulumi_trainer.args.registries import (
    KubeflowModelRegistry as KubeflowModelRegistry,
    MLflowRegistry as MLflowRegistry,
)
from pulumi_trainer.model_version import ModelVersion as ModelVersion
from pulumi_trainer.network_policy import Egress as Egress, NetworkPolicy as NetworkPolicy
from pulumi_trainer.policy import JobPolicy as JobPolicy
from pulumi_trainer.provider.trainer.policy.rules import JobRules as JobRules
from pulumi_trainer.team_namespace import TeamNamespace as TeamNamespace
from pulumi_trainer.podgroups import CoschedulingPodGroup as CoschedulingPodGroup, VolcanoPodGroup as VolcanoPodGroup
from pulumi_trainer.args.policies import (
    CoschedulingPolicy as CoschedulingPolicy,
    EnvInjectionTarget as EnvInjectionTarget,
    FluxPolicy as FluxPolicy,
    JAXPolicy as JAXPolicy,
    KAIPolicy as KAIPolicy,
    MPIPolicy as MPIPolicy,
    PaddlePolicy as PaddlePolicy,
    PlainPolicy as PlainPolicy,
    TensorFlowPolicy as TensorFlowPolicy,
    TorchPolicy as TorchPolicy,
    VolcanoNetworkTopology as VolcanoNetworkTopology,
    VolcanoPolicy as VolcanoPolicy,
    XGBoostPolicy as XGBoostPolicy,
)
from pulumi_trainer.queues.arguments import (
    BorrowWithinCohort as BorrowWithinCohort,
    CheckParameters as CheckParameters,
    FairSharing as FairSharing,
    FlavorFungibility as FlavorFungibility,
    Preemption as Preemption,
    ResourceQuota as ResourceQuota,
    RetryStrategy as RetryStrategy,
)
from pulumi_trainer.queues.gpus import GpuQueues as GpuQueues
from pulumi_trainer.queues.teams import Team as Team
from pulumi_trainer.queues.checks import (
    AdmissionCheck as AdmissionCheck,
    MultiKueueCluster as MultiKueueCluster,
    MultiKueueConfig as MultiKueueConfig,
    ProvisioningRequestConfig as ProvisioningRequestConfig,
)
from pulumi_trainer.queues.flavors import ResourceFlavor as ResourceFlavor, Topology as Topology
from pulumi_trainer.queues.quotas import (
    AdmissionCheckRule as AdmissionCheckRule,
    ConcurrentAdmissionPolicy as ConcurrentAdmissionPolicy,
    FlavorQuotas as FlavorQuotas,
    ResourceGroup as ResourceGroup,
)
from pulumi_trainer.queues.objects import (
    ClusterQueue as ClusterQueue,
    Cohort as Cohort,
    LocalQueue as LocalQueue,
    WorkloadPriorityClass as WorkloadPriorityClass,
)
from pulumi_trainer.runtime import ClusterTrainingRuntime as ClusterTrainingRuntime, TrainingRuntime as TrainingRuntime
from pulumi_trainer.provider.trainer.catalog.catalog import RuntimeCatalog as RuntimeCatalog
from pulumi_trainer.args.project import Source as Source
from pulumi_trainer.args.sources import (
    DataCacheInitializer as DataCacheInitializer,
    DataSource as DataSource,
    HuggingFaceDatasetInitializer as HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer as HuggingFaceModelInitializer,
    Initializer as Initializer,
    S3DatasetInitializer as S3DatasetInitializer,
    S3ModelInitializer as S3ModelInitializer,
)
from pulumi_trainer.args.template import (
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
from pulumi_trainer.args.fork import Fork as Fork
from pulumi_trainer.args.topology import Preferred as Preferred, Required as Required, Unconstrained as Unconstrained
from pulumi_trainer.args.tracking import (
    MLflow as MLflow,
    TensorBoard as TensorBoard,
    Trackio as Trackio,
    WandB as WandB,
)
from pulumi_trainer.args.trainers import CustomTrainer as CustomTrainer, Trainer as Trainer
from pulumi_trainer.trainjob import Progress as Progress, TrainJob as TrainJob
from pulumi_trainer.program.watch import Timeouts as Timeouts
from pulumi_trainer.plan.checkpoint_policy import CheckpointPolicy as CheckpointPolicy
from pulumi_trainer.plan.volume_claims import OutputVolume as OutputVolume
