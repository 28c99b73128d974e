"""Kubeflow Trainer v1alpha1: ClusterTrainingRuntime, TrainingRuntime and TrainJob.

Source: pkg/apis/trainer/v1alpha1 of https://github.com/kubeflow/trainer/tree/v2.3.0; bounds as in its CRDs.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pulumi_trainer.provider.api.jobset import JobSetTemplate, Metadata
from pulumi_trainer.provider.api.model import (
    Int32,
    Labels,
    Model,
    Natural,
    Quantity,
)
from pulumi_trainer.provider.kube.values import names
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

StorageUri = Annotated[str, StringConstraints(max_length=2048, pattern=r"^$|^[A-Za-z][A-Za-z0-9+.-]*://.+$")]
EnvName = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[str, StringConstraints(min_length=1, max_length=253)]


def _once(key: str = "") -> BeforeValidator:
    """A list of which no two items may have the same `key`, or be the same."""

    def check(value: Any) -> Any:
        items = value if isinstance(value, list) else []
        names = [item.get(key) if isinstance(item, dict) else item for item in items]
        given = Counter(n for n in names if isinstance(n, str))
        if twice := sorted(name for name, count in given.items() if count > 1):
            raise ValueError(f"{f'{key} ' if key else ''}{', '.join(twice)} stands more than once")
        return value

    return BeforeValidator(check)


class EnvVar(Model):
    """core/v1 EnvVar."""

    name: EnvName
    value: str | None = None
    value_from: dict[str, Any] | None = None


Env = Annotated[list[EnvVar], Field(max_length=128), _once("name")]


class SecretRef(Model):
    """A Secret by name. Field: `initializer.*.secretRef`, whose keys become environment variables."""

    name: str


class InitializerSource(Model):
    """Field: `spec.initializer.dataset` and `spec.initializer.model`."""

    storage_uri: StorageUri | None = None
    env: Env | None = None
    secret_ref: SecretRef | None = None


class Initializer(Model):
    """Field: `spec.initializer`."""

    dataset: InitializerSource | None = None
    model: InitializerSource | None = None


class ResourceRequirements(Model):
    """Field: `spec.trainer.resourcesPerNode`."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None
    claims: list[dict[str, Any]] | None = None


class Trainer(Model):
    """Field: `spec.trainer`."""

    image: Annotated[str, StringConstraints(max_length=500)] | None = None
    command: Annotated[list[str], Field(max_length=128)] | None = None
    args: Annotated[list[str], Field(max_length=128)] | None = None
    env: Env | None = None
    num_nodes: Natural | None = None
    resources_per_node: ResourceRequirements | None = None
    num_proc_per_node: Annotated[Int32, Field(ge=1)] | None = None


class RuntimeRef(Model):
    """Field: `spec.runtimeRef`."""

    name: Names
    api_group: str | None = None
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] | None = None


class Named(Model):
    """An object of core/v1 with a name; its other fields are Kubernetes' own."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, StringConstraints(min_length=1)]


class VolumeMount(Model):
    """core/v1 VolumeMount."""

    name: str
    mount_path: str
    read_only: bool | None = None
    recursive_read_only: str | None = None
    sub_path: str | None = None
    sub_path_expr: str | None = None
    mount_propagation: str | None = None


class ContainerPatch(Model):
    """Field: `containers[]` and `initContainers[]` of a patch."""

    name: Names
    env: Env | None = None
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=128), _once("name")] | None = None
    security_context: dict[str, Any] | None = None


ContainerPatches = Annotated[list[ContainerPatch], Field(max_length=64), _once("name")]


class PodSpecPatch(Model):
    """What of a pod spec a patch may set; volumes, affinity and the like are core/v1's."""

    service_account_name: Annotated[str, StringConstraints(max_length=253)] | None = None
    volumes: Annotated[list[Named], Field(max_length=128), _once("name")] | None = None
    init_containers: ContainerPatches | None = None
    containers: ContainerPatches | None = None
    image_pull_secrets: Annotated[list[SecretRef], Field(max_length=64), _once("name")] | None = None
    security_context: dict[str, Any] | None = None
    node_selector: Labels | None = None
    affinity: dict[str, Any] | None = None
    tolerations: Annotated[list[dict[str, Any]], Field(max_length=128)] | None = None
    scheduling_gates: Annotated[list[Named], Field(max_length=16), _once("name")] | None = None
    termination_grace_period_seconds: Annotated[int, Field(ge=0)] | None = None


class PodTemplatePatch(Model):
    """Field: `spec.template` of a Job's patch."""

    metadata: Metadata | None = None
    spec: PodSpecPatch | None = None


class JobSpecPatch(Model):
    """Field: `spec` of a Job's patch."""

    template: PodTemplatePatch | None = None


class JobTemplatePatch(Model):
    """Field: `replicatedJobs[].template` of a patch."""

    metadata: Metadata | None = None
    spec: JobSpecPatch | None = None


class ReplicatedJobPatch(Model):
    """Field: `replicatedJobs[]` of a patch."""

    name: Names
    template: JobTemplatePatch | None = None


class JobSetSpecPatch(Model):
    """Field: `template.spec` of a patch."""

    replicated_jobs: Annotated[list[ReplicatedJobPatch], Field(max_length=100), _once("name")] | None = None


class JobSetTemplatePatch(Model):
    """Field: `trainingRuntimeSpec.template`."""

    metadata: Metadata | None = None
    spec: JobSetSpecPatch | None = None


class TrainingRuntimeSpecPatch(Model):
    """Field: `runtimePatches[].trainingRuntimeSpec`."""

    template: JobSetTemplatePatch | None = None


def _manager(value: str) -> str:
    if wrong := names.domain_prefixed_path(value):
        raise ValueError("; ".join(wrong))
    return value


class RuntimePatch(Model):
    """Field: `spec.runtimePatches[]`."""

    manager: Annotated[Names, AfterValidator(_manager)]
    time: str | None = None
    training_runtime_spec: TrainingRuntimeSpecPatch | None = None


class TrainJobSpec(Model):
    """Field: `spec` of TrainJob."""

    runtime_ref: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    suspend: bool | None = None
    managed_by: Literal["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"] | None = None
    runtime_patches: Annotated[list[RuntimePatch], Field(max_length=16), _once("manager")] | None = None
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None


def _not_node(value: str) -> str:
    if value == "node":
        raise ValueError("must not be node, which gets the variables always")
    return value


ContainerName = Annotated[str, StringConstraints(max_length=63), AfterValidator(_not_node)]


class EnvInjectionTarget(Model):
    """Field: `mlPolicy.torch.envInjection.targets[]`."""

    job_name: Names
    container_names: Annotated[list[ContainerName], Field(min_length=1, max_length=8), _once()]


class EnvInjection(Model):
    """Field: `mlPolicy.torch.envInjection`."""

    targets: Annotated[list[EnvInjectionTarget], Field(max_length=16), _once("jobName")] | None = None


class TorchPolicy(Model):
    """Field: `mlPolicy.torch`."""

    env_injection: EnvInjection | None = None


class MPIPolicy(Model):
    """Field: `mlPolicy.mpi`. An empty implementation is a value of the API that no job can run with."""

    num_proc_per_node: Annotated[Int32, Field(ge=1)] | None = None
    mpi_implementation: Literal["OpenMPI", ""] | None = None
    ssh_auth_mount_path: Annotated[str, StringConstraints(max_length=4096)] | None = None
    run_launcher_as_node: bool | None = None


class FluxPolicy(Model):
    """Field: `mlPolicy.flux`."""

    num_proc_per_node: Annotated[Int32, Field(ge=1)] | None = None


class JAXPolicy(Model):
    """Field: `mlPolicy.jax`; it has no fields."""


class XGBoostPolicy(Model):
    """Field: `mlPolicy.xgboost`; it has no fields."""


class MLPolicy(Model):
    """Field: `spec.mlPolicy`; at most one framework."""

    num_nodes: Int32 | None = None
    torch: TorchPolicy | None = None
    mpi: MPIPolicy | None = None
    flux: FluxPolicy | None = None
    jax: JAXPolicy | None = None
    xgboost: XGBoostPolicy | None = None

    @model_validator(mode="before")
    @classmethod
    def one(cls, value: Any) -> Any:
        """At most one framework."""
        given = [k for k, v in value.items() if k != "numNodes" and v is not None] if isinstance(value, dict) else []
        if len(given) > 1:
            raise ValueError(f"only one framework can be configured, not {' and '.join(given)}")
        return value


class CoschedulingPolicy(Model):
    """Field: `podGroupPolicy.coscheduling`."""

    schedule_timeout_seconds: Int32 | None = None


class VolcanoNetworkTopology(Model):
    """Field: `podGroupPolicy.volcano.networkTopology`."""

    mode: Literal["hard", "soft"] | None = None
    highest_tier_allowed: int | None = None


class VolcanoPolicy(Model):
    """Field: `podGroupPolicy.volcano`."""

    network_topology: VolcanoNetworkTopology | None = None


class PodGroupPolicy(Model):
    """Field: `spec.podGroupPolicy`. The API takes both at once and makes two PodGroups."""

    coscheduling: CoschedulingPolicy | None = None
    volcano: VolcanoPolicy | None = None


class TrainingRuntimeSpec(Model):
    """Field: `spec` of ClusterTrainingRuntime and TrainingRuntime."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate | None = None


class ObjectMeta(Model):
    """metadata as we write it."""

    name: str
    namespace: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    uid: str | None = None


class TrainJob(Model):
    """trainer.kubeflow.org/v1alpha1 TrainJob."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["TrainJob"]
    metadata: ObjectMeta
    spec: TrainJobSpec


class Runtime(Model):
    """trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime or TrainingRuntime."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"]
    metadata: ObjectMeta
    spec: TrainingRuntimeSpec
