"""JobSet v1alpha2: the fields that we write and read.

Source: api/jobset/v1alpha2/jobset_types.go of https://github.com/kubernetes-sigs/jobset/tree/v0.12.0. Pod templates are
plain mappings here; their structure is Kubernetes' own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pulumi_trainer.provider.api.model import (
    Int32,
    Labels,
    Model,
    Natural,
    Pod,
)
from pydantic import Field


class Metadata(Model):
    """metadata of a template: what is copied to the object made from it."""

    name: str | None = None
    namespace: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    finalizers: list[str] | None = None


class DependsOn(Model):
    """Start after another replicated job is Ready or Complete. Field: `replicatedJobs[].dependsOn[]`."""

    name: str
    status: Literal["Ready", "Complete"]


class Network(Model):
    """Field: `spec.network`."""

    enable_dns_hostnames: Annotated[bool | None, Field(alias="enableDNSHostnames")] = None
    subdomain: str | None = None
    publish_not_ready_addresses: bool | None = None


class SuccessPolicy(Model):
    """When the JobSet has succeeded. Field: `spec.successPolicy`; default: All jobs of all replicated jobs."""

    operator: Literal["All", "Any"]
    target_replicated_jobs: list[str] | None = None


class FailurePolicyRule(Model):
    """Field: `spec.failurePolicy.rules[]`; the first that matches decides."""

    name: str | None = None
    action: Literal[
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
    ]
    on_job_failure_reasons: (
        list[
            Literal[
                "BackoffLimitExceeded",
                "DeadlineExceeded",
                "FailedIndexes",
                "MaxFailedIndexesExceeded",
                "PodFailurePolicy",
            ]
        ]
        | None
    ) = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None


class FailurePolicy(Model):
    """Field: `spec.failurePolicy`; without one the first failed Job fails the JobSet."""

    max_restarts: Int32 | None = None
    restart_strategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] | None = None
    rules: list[FailurePolicyRule] | None = None


class StartupPolicy(Model):
    """Field: `spec.startupPolicy` (deprecated upstream in favour of dependsOn)."""

    startup_policy_order: Literal["AnyOrder", "InOrder"]


class Coordinator(Model):
    """Field: `spec.coordinator`."""

    replicated_job: str
    job_index: Natural | None = None
    pod_index: Natural | None = None


class RetentionPolicy(Model):
    """Field: `volumeClaimPolicies[].retentionPolicy`."""

    when_deleted: Literal["Delete", "Retain"] | None = None


class VolumeClaimPolicy(Model):
    """Field: `spec.volumeClaimPolicies[]`."""

    templates: list[dict[str, Any]]
    retention_policy: RetentionPolicy | None = None


class OnExitCodes(Model):
    """Field: `podFailurePolicy.rules[].onExitCodes` of batch/v1."""

    container_name: str | None = None
    operator: Literal["In", "NotIn"]
    values: list[Int32]


class OnPodCondition(Model):
    """Field: `podFailurePolicy.rules[].onPodConditions[]` of batch/v1."""

    type: str
    status: str | None = None


class PodFailurePolicyRule(Model):
    """Field: `podFailurePolicy.rules[]` of batch/v1."""

    action: Literal["FailJob", "FailIndex", "Ignore", "Count"]
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: list[OnPodCondition] | None = None


class PodFailurePolicy(Model):
    """Field: `podFailurePolicy` of batch/v1; needs `restartPolicy: Never`."""

    rules: list[PodFailurePolicyRule]


class PodTemplate(Model):
    """Field: `template` of batch/v1 Job."""

    metadata: Metadata | None = None
    spec: Pod


class JobSpec(Model):
    """The Job of a replicated job (batch/v1 JobSpec)."""

    parallelism: Natural | None = None
    completions: Natural | None = None
    completion_mode: Literal["Indexed", "NonIndexed"] | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: Natural | None = None
    backoff_limit_per_index: Natural | None = None
    max_failed_indexes: Natural | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    pod_replacement_policy: Literal["TerminatingOrFailed", "Failed"] | None = None
    suspend: bool | None = None
    ttl_seconds_after_finished: Natural | None = None
    manual_selector: bool | None = None
    selector: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    managed_by: str | None = None
    template: PodTemplate


class JobTemplate(Model):
    """Field: `replicatedJobs[].template`."""

    metadata: Metadata | None = None
    spec: JobSpec


class ReplicatedJob(Model):
    """One group of equal Jobs. Field: `spec.replicatedJobs[]`."""

    name: str
    group_name: str | None = None
    replicas: Natural | None = None
    depends_on: list[DependsOn] | None = None
    template: JobTemplate


class JobSetSpec(Model):
    """Field: `spec` of JobSet v1alpha2."""

    replicated_jobs: list[ReplicatedJob] | None = None
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None
    ttl_seconds_after_finished: Natural | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    volume_claim_policies: list[VolumeClaimPolicy] | None = None


class JobSetTemplate(Model):
    """Field: `spec.template` of a training runtime."""

    metadata: Metadata | None = None
    spec: JobSetSpec | None = None
