"""Kubeflow Trainer v1alpha1: ClusterTrainingRuntime, TrainingRuntime and TrainJob.

Source: pkg/apis/trainer/v1alpha1 of https://github.com/kubeflow/trainer/tree/v2.3.0; bounds as in its CRDs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from .jobset import JobSetTemplate
from .model import Int32, Labels, Model, Natural, Quantity

StorageUri = Annotated[str, StringConstraints(max_length=2048, pattern=r"^$|^[A-Za-z][A-Za-z0-9+.-]*://.+$")]
EnvName = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class EnvVar(Model):
    """core/v1 EnvVar."""

    name: EnvName
    value: str | None = None
    value_from: dict[str, Any] | None = None


class SecretRef(Model):
    """A Secret whose keys become environment variables. Field: `initializer.*.secretRef`."""

    name: str


class InitializerSource(Model):
    """Field: `spec.initializer.dataset` and `spec.initializer.model`."""

    storage_uri: StorageUri | None = None
    env: Annotated[list[EnvVar], Field(max_length=128)] | None = None
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
    env: Annotated[list[EnvVar], Field(max_length=128)] | None = None
    num_nodes: Natural | None = None
    resources_per_node: ResourceRequirements | None = None
    num_proc_per_node: Annotated[Int32, Field(ge=1)] | None = None


class RuntimeRef(Model):
    """Field: `spec.runtimeRef`."""

    name: Names
    api_group: str | None = None
    kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] | None = None


class RuntimePatch(Model):
    """Field: `spec.runtimePatches[]`."""

    manager: Names
    time: str | None = None
    training_runtime_spec: dict[str, Any] | None = None


class TrainJobSpec(Model):
    """Field: `spec` of TrainJob."""

    runtime_ref: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    suspend: bool | None = None
    managed_by: Literal["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"] | None = None
    runtime_patches: Annotated[list[RuntimePatch], Field(max_length=16)] | None = None
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None


class EnvInjectionTarget(Model):
    """Field: `mlPolicy.torch.envInjection.targets[]`."""

    job_name: str
    container_names: Annotated[list[str], Field(min_length=1, max_length=8)]


class EnvInjection(Model):
    """Field: `mlPolicy.torch.envInjection`."""

    targets: Annotated[list[EnvInjectionTarget], Field(max_length=16)] | None = None


class TorchPolicy(Model):
    """Field: `mlPolicy.torch`."""

    env_injection: EnvInjection | None = None


class MLPolicy(Model):
    """Field: `spec.mlPolicy`; at most one framework."""

    num_nodes: Int32 | None = None
    torch: TorchPolicy | None = None
    mpi: dict[str, Any] | None = None
    flux: dict[str, Any] | None = None
    jax: dict[str, Any] | None = None
    xgboost: dict[str, Any] | None = None


class TrainingRuntimeSpec(Model):
    """Field: `spec` of ClusterTrainingRuntime and TrainingRuntime."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: dict[str, Any] | None = None
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
