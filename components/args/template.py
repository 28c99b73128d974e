"""The template of a runtime: JobSet v1alpha2 in typed arguments (api/jobset/v1alpha2/jobset_types.go, v0.12.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, metadata, to_document
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.provider.api.labels import ANCESTOR

if TYPE_CHECKING:
    from pulumi_kubernetes.core.v1 import PodSpecArgs

    PodSpec = PodSpecArgs | Mapping[str, Any]

Strings = Mapping[str, pulumi.Input[str]]

JOBSET = "ClusterTrainingRuntime.spec.template.spec"
JOB = f"{JOBSET}.replicatedJobs.template.spec"


class DependsOn(Args):
    """Start after another replicated job is Ready or Complete (`replicatedJobs[].dependsOn[]`)."""

    name: pulumi.Input[str] | None = None
    status: pulumi.Input[Literal["Ready", "Complete"]] | None = None


class OnExitCodes(Args):
    """`podFailurePolicy.rules[].onExitCodes`."""

    operator: pulumi.Input[Literal["In", "NotIn"]] | None = None
    values: pulumi.Input[Sequence[pulumi.Input[int]]] | None = None
    container_name: pulumi.Input[str] | None = None


class OnPodCondition(Args):
    """`podFailurePolicy.rules[].onPodConditions[]`."""

    type: pulumi.Input[str] | None = None
    status: pulumi.Input[str] | None = None


class PodFailurePolicyRule(Args):
    """`podFailurePolicy.rules[]`; the first that matches a failed pod decides."""

    action: pulumi.Input[Literal["FailJob", "FailIndex", "Ignore", "Count"]] | None = None
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: Sequence[OnPodCondition] | None = None


class PodFailurePolicy(Args):
    """What a failed pod means for its Job (batch/v1 `podFailurePolicy`); needs restart_policy Never in the pod."""

    rules: Sequence[PodFailurePolicyRule] | None = None


class ReplicatedJob(Args):
    """One step of a runtime (`spec.replicatedJobs[]`), with the fields of its Job and pod in one place.

    name: step name (node, launcher, dataset-initializer, model-initializer). ancestor: the section of the TrainJob that the
    step takes; default: trainer for `node` where no other step takes it, the name for the initializers. pod_spec: its pods
    (`pulumi_kubernetes.core.v1.PodSpecArgs` or a mapping). replicas: Jobs, default 1. Job fields: batch/v1 JobSpec.
    """

    api = JOB
    converters = {"pod_spec": lambda given: api_names(f"{JOB}.template.spec", to_document(given))}
    lists = frozenset({"depends_on"})
    mappings = frozenset({"labels", "annotations", "pod_labels", "pod_annotations"})

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
        if (ancestor := given.get("ancestor", _ancestor(given.get("name")))) is not None:
            labels.setdefault(ANCESTOR, ancestor)
        pod = {
            **metadata(given.get("pod_labels"), given.get("pod_annotations")),
            "spec": plain.get("podSpec", {}),
        }
        template = {**metadata(labels, given.get("annotations")), "spec": {**job, "template": pod}}
        return {**outer, "template": template}


class SuccessPolicy(Args):
    """When the JobSet has succeeded (`spec.successPolicy`); default: all Jobs of all steps."""

    operator: pulumi.Input[Literal["All", "Any"]] | None = None
    target_replicated_jobs: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class FailurePolicyRule(Args):
    """`spec.failurePolicy.rules[]`; the first that matches a failed Job decides."""

    action: pulumi.Input[str] | None = None
    name: pulumi.Input[str] | None = None
    on_job_failure_reasons: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    on_job_failure_message_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    target_replicated_jobs: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class FailurePolicy(Args):
    """What a failed Job means for the JobSet (`spec.failurePolicy`); without one it fails."""

    max_restarts: pulumi.Input[int] | None = None
    restart_strategy: pulumi.Input[Literal["Recreate", "BlockingRecreate", "InPlaceRestart"]] | None = None
    rules: Sequence[FailurePolicyRule] | None = None


class Network(Args):
    """`spec.network`; subdomain: default the name of the JobSet."""

    api = f"{JOBSET}.network"

    enable_dns_hostnames: pulumi.Input[bool] | None = None
    subdomain: pulumi.Input[str] | None = None
    publish_not_ready_addresses: pulumi.Input[bool] | None = None


class JobSetTemplate(Args):
    """`spec.template` of a runtime: the JobSet that jobs are made from, fields of its spec in one place."""

    api = JOBSET
    lists = frozenset({"replicated_jobs", "volume_claim_policies"})
    mappings = frozenset({"labels", "annotations", "startup_policy", "coordinator"})

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
        steps = self.replicated_jobs if isinstance(self.replicated_jobs, (list, tuple)) else ()
        if all(isinstance(s, ReplicatedJob) for s in steps) and any(s.ancestor == "trainer" for s in steps):
            for step, document in zip(steps, spec["replicatedJobs"], strict=True):
                given = step.ancestor is not None or ANCESTOR in (step.labels or {})
                if step.name == "node" and not given:
                    _without_ancestor(document)
        return {**metadata(spec.pop("labels", None), spec.pop("annotations", None)), "spec": spec}


def _without_ancestor(step: dict[str, Any]) -> None:
    """With MPI the launcher takes the trainer's section, and `node` keeps the command of its own."""
    about = step["template"]["metadata"]
    del about["labels"][ANCESTOR]
    if not about["labels"]:
        del about["labels"]
    if not about:
        del step["template"]["metadata"]


def _ancestor(name: Any) -> str | None:
    if name == "node":
        return "trainer"
    return name if name in ("dataset-initializer", "model-initializer") else None
