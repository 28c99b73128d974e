"""The template of a runtime: JobSet v1alpha2 in typed arguments (api/jobset/v1alpha2/jobset_types.go, v0.12.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, as_sequence, metadata, to_document
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.provider.trainer.labels import ANCESTOR

if TYPE_CHECKING:
    from pulumi_kubernetes.core.v1 import PodSpecArgs

    PodSpec = PodSpecArgs | Mapping[str, Any]

Strings = Mapping[str, pulumi.Input[str]]

JOBSET = "ClusterTrainingRuntime.spec.template.spec"
JOB = f"{JOBSET}.replicatedJobs.template.spec"


class DependsOn(Args):
    """Start after another replicated job (`replicatedJobs[].dependsOn[]`).

    Args:
        name: The other replicated job (`name`).
        status: Status that it must have: `Ready` or `Complete` (`status`).
    """

    name: pulumi.Input[str] | None = None
    status: pulumi.Input[Literal["Ready", "Complete"]] | None = None


class OnExitCodes(Args):
    """Exit codes that a rule matches (`podFailurePolicy.rules[].onExitCodes`).

    Args:
        operator: `In` or `NotIn` (`operator`).
        values: Exit codes (`values`).
        container_name: Container; default: all containers (`containerName`).
    """

    operator: pulumi.Input[Literal["In", "NotIn"]] | None = None
    values: pulumi.Input[Sequence[pulumi.Input[int]]] | None = None
    container_name: pulumi.Input[str] | None = None


class OnPodCondition(Args):
    """A pod condition that a rule matches (`podFailurePolicy.rules[].onPodConditions[]`).

    Args:
        type: Type of the condition, such as DisruptionTarget (`type`).
        status: Status of the condition; default: True (`status`).
    """

    type: pulumi.Input[str] | None = None
    status: pulumi.Input[str] | None = None


class PodFailurePolicyRule(Args):
    """A rule for failed pods (`podFailurePolicy.rules[]`); the first that matches decides.

    Args:
        action: `FailJob`, `FailIndex`, `Ignore` or `Count` (`action`).
        on_exit_codes: Exit codes that it matches (`onExitCodes`).
        on_pod_conditions: Pod conditions that it matches (`onPodConditions`).
    """

    action: pulumi.Input[Literal["FailJob", "FailIndex", "Ignore", "Count"]] | None = None
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: pulumi.Input[Sequence[OnPodCondition]] | None = None


class PodFailurePolicy(Args):
    """What a failed pod means for its Job (batch/v1 `podFailurePolicy`); needs restart_policy Never in the pod.

    Args:
        rules: Rules in their order (`rules`).
    """

    rules: pulumi.Input[Sequence[PodFailurePolicyRule]] | None = None


class ReplicatedJob(Args):
    """A replicated job of a runtime (`spec.replicatedJobs[]`), with the fields of its Job (batch/v1) and pod in one place.

    Args:
        name: Name: node, launcher, dataset-initializer, model-initializer, or another one (`name`).
        pod_spec: Its pods: `pulumi_kubernetes.core.v1.PodSpecArgs` or a mapping (`template.spec.template.spec`).
        ancestor: Section of the TrainJob that it takes; default: trainer for `node` if no other replicated job takes
            it, the name for the initializers.
        group_name: Group of replicated jobs (`groupName`).
        replicas: Number of Jobs; default: 1 (`replicas`).
        depends_on: Replicated jobs after which it starts (`dependsOn`).
        labels: Labels of its Jobs.
        annotations: Annotations of its Jobs.
        pod_labels: Labels of its pods.
        pod_annotations: Annotations of its pods.
        parallelism: Pods at a time; default: 1 (`parallelism`).
        completions: Pods that must succeed; default: that of batch/v1 (`completions`).
        completion_mode: `Indexed` or `NonIndexed` (`completionMode`).
        active_deadline_seconds: Seconds that its Jobs may run; default: no limit (`activeDeadlineSeconds`).
        backoff_limit: Failed pods until a Job fails; default: 6 (`backoffLimit`).
        backoff_limit_per_index: Failed pods until an index fails (`backoffLimitPerIndex`).
        max_failed_indexes: Failed indexes until a Job fails (`maxFailedIndexes`).
        pod_failure_policy: What a failed pod means (`podFailurePolicy`).
        pod_replacement_policy: When a pod is replaced: `TerminatingOrFailed` or `Failed` (`podReplacementPolicy`).
    """

    api = JOB
    converters = {"pod_spec": lambda given: api_names(f"{JOB}.template.spec", to_document(given))}

    name: pulumi.Input[str] | None = None
    pod_spec: pulumi.Input[PodSpec] | None = None
    ancestor: pulumi.Input[str] | None = None
    group_name: pulumi.Input[str] | None = None
    replicas: pulumi.Input[int] | None = None
    depends_on: Sequence[DependsOn] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    pod_labels: Strings | None = None
    pod_annotations: Strings | None = None
    parallelism: pulumi.Input[int] | None = None
    completions: pulumi.Input[int] | None = None
    completion_mode: pulumi.Input[Literal["Indexed", "NonIndexed"]] | None = None
    active_deadline_seconds: pulumi.Input[int] | None = None
    backoff_limit: pulumi.Input[int] | None = None
    backoff_limit_per_index: pulumi.Input[int] | None = None
    max_failed_indexes: pulumi.Input[int] | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    pod_replacement_policy: pulumi.Input[Literal["TerminatingOrFailed", "Failed"]] | None = None

    places = {
        "template.spec.template.spec": "pod_spec",
        "template.spec.template.metadata.labels": "pod_labels",
        "template.spec.template.metadata.annotations": "pod_annotations",
        "template.spec.": "",
        "template.metadata.": "",
    }

    def document(self) -> dict[str, Any]:
        given = {k: v for k, v in self.__dict__.items() if k in self.fields and v is not None}
        plain = Args.document(self)
        outer: dict[str, Any] = {k: plain[k] for k in ("name", "groupName", "replicas", "dependsOn") if k in plain}
        inner = {"podSpec", "ancestor", "labels", "annotations", "podLabels", "podAnnotations"}
        job = {k: v for k, v in plain.items() if k not in outer and k not in inner}
        labels = dict(given.get("labels", {}))
        ancestor = given.get("ancestor", _trainer_ancestor(given.get("name")))
        if ancestor is not None:
            labels.setdefault(ANCESTOR, ancestor)
        pod = {**metadata(given.get("pod_labels"), given.get("pod_annotations")), "spec": plain.get("podSpec", {})}
        template = {**metadata(labels, given.get("annotations")), "spec": {**job, "template": pod}}
        return {**outer, "template": template}


class SuccessPolicy(Args):
    """When the JobSet has succeeded (`spec.successPolicy`); default: all Jobs of all replicated jobs.

    Args:
        operator: `All` or `Any` (`operator`).
        target_replicated_jobs: Replicated jobs that count; default: all (`targetReplicatedJobs`).
    """

    operator: pulumi.Input[Literal["All", "Any"]] | None = None
    target_replicated_jobs: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class FailurePolicyRule(Args):
    """A rule for failed Jobs (`spec.failurePolicy.rules[]`); the first that matches decides.

    Args:
        action: What happens, such as FailJobSet or RestartJobSet (`action`).
        name: Name of the rule (`name`).
        on_job_failure_reasons: Reasons that it matches; default: all (`onJobFailureReasons`).
        on_job_failure_message_patterns: Patterns of messages that it matches; default: all
            (`onJobFailureMessagePatterns`).
        target_replicated_jobs: Replicated jobs that it is for; default: all (`targetReplicatedJobs`).
    """

    action: pulumi.Input[str] | None = None
    name: pulumi.Input[str] | None = None
    on_job_failure_reasons: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    on_job_failure_message_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    target_replicated_jobs: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class FailurePolicy(Args):
    """What a failed Job means for the JobSet (`spec.failurePolicy`); without one the JobSet fails.

    Args:
        max_restarts: Restarts until the JobSet fails; default: 0 (`maxRestarts`).
        restart_strategy: `Recreate`, `BlockingRecreate` or `InPlaceRestart` (`restartStrategy`).
        rules: Rules in their order (`rules`).
    """

    max_restarts: pulumi.Input[int] | None = None
    restart_strategy: pulumi.Input[Literal["Recreate", "BlockingRecreate", "InPlaceRestart"]] | None = None
    rules: pulumi.Input[Sequence[FailurePolicyRule]] | None = None


class Network(Args):
    """Network of a JobSet (`spec.network`).

    Args:
        enable_dns_hostnames: Whether pods have hostnames in the DNS (`enableDNSHostnames`).
        subdomain: Subdomain of the pods; default: the name of the JobSet (`subdomain`).
        publish_not_ready_addresses: Whether the DNS has pods that are not ready (`publishNotReadyAddresses`).
    """

    api = f"{JOBSET}.network"

    enable_dns_hostnames: pulumi.Input[bool] | None = None
    subdomain: pulumi.Input[str] | None = None
    publish_not_ready_addresses: pulumi.Input[bool] | None = None


class JobSetTemplate(Args):
    """The JobSet from which jobs are created (`spec.template` of a runtime), with the fields of its spec in one place.

    Args:
        replicated_jobs: Replicated jobs (`replicatedJobs`).
        labels: Labels of the JobSet.
        annotations: Annotations of the JobSet.
        network: Network of the pods (`network`).
        success_policy: When the JobSet has succeeded (`successPolicy`).
        failure_policy: What a failed Job means (`failurePolicy`).
        startup_policy: Order in which replicated jobs start, as the API's mapping (`startupPolicy`).
        ttl_seconds_after_finished: Seconds until a finished JobSet is deleted; default: never
            (`ttlSecondsAfterFinished`).
        coordinator: Pod that coordinates the others, as the API's mapping (`coordinator`).
        managed_by: Controller that manages the JobSet (`managedBy`).
        volume_claim_policies: Volume claims of the JobSet, as the API's mappings (`volumeClaimPolicies`).
    """

    api = JOBSET

    replicated_jobs: Sequence[ReplicatedJob] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: Mapping[str, Any] | None = None
    ttl_seconds_after_finished: pulumi.Input[int] | None = None
    coordinator: Mapping[str, Any] | None = None
    managed_by: pulumi.Input[str] | None = None
    volume_claim_policies: Sequence[Mapping[str, Any]] | None = None

    places = {"spec.": "", "metadata.": ""}

    def document(self) -> dict[str, Any]:
        spec = Args.document(self)
        steps = as_sequence(self.replicated_jobs)
        if all(isinstance(s, ReplicatedJob) for s in steps) and any(s.ancestor == "trainer" for s in steps):
            for step, document in zip(steps, spec["replicatedJobs"], strict=True):
                given = step.ancestor is not None or ANCESTOR in (step.labels or {})
                if step.name == "node" and not given:
                    _without_ancestor(document)
        return {**metadata(spec.pop("labels", None), spec.pop("annotations", None)), "spec": spec}


def _without_ancestor(step: dict[str, Any]) -> None:
    """Remove the ancestor of `node`: with MPI the launcher takes the trainer's section, and `node` keeps its own command."""
    about = step["template"]["metadata"]
    del about["labels"][ANCESTOR]
    if not about["labels"]:
        del about["labels"]
    if not about:
        del step["template"]["metadata"]


def _trainer_ancestor(name: Any) -> str | None:
    if name == "node":
        return "trainer"
    return name if name in ("dataset-initializer", "model-initializer") else None
