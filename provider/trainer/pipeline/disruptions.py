"""Renders how a JobSet ends or goes on: disruptions (eviction, drain, preemption, lost nodes) restart it without using
`maxRestarts`, and an error that would come again fails it at once.

A Pod that a disruption ends gets the condition DisruptionTarget; one whose program had to stop ends with `TERMINATED`. Both
fail the Job at once, and a rule of the JobSet restarts all Jobs. Errors of the program fail the Job with another reason, which
counts.

Rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy (Kubernetes 1.31, batch/v1), and
`failurePolicy` of https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.attempts import INTERRUPTED_RULE
from pulumi_trainer.provider.kubernetes.values import go_regexp
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, section, texts
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, jobs_of
from pulumi_trainer.provider.trainer.labels import ancestor_of
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER

TERMINATED = 143
"""Exit code of a container whose program had to stop: 128 + SIGTERM. `pod/scripts/run_with_checkpoints.py` ends with it."""

FINAL = 65
"""Exit code of a container whose program would fail again: EX_DATAERR. `provider/pod/scripts/run_program.py` ends with it."""

_REASON = "PodFailurePolicy"
_MESSAGE = "Pod default/job-node-0-0-abcde has condition DisruptionTarget matching FailJob rule at index 0"
"""How Kubernetes reports a Job that `DISRUPTED` has failed."""

DISRUPTED = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
STOPPED = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [TERMINATED]}}
RESTART: Mapping[str, Any] = {
    "name": INTERRUPTED_RULE,
    "action": "RestartJobSetAndIgnoreMaxRestarts",
    "onJobFailureReasons": [_REASON],
    "onJobFailureMessagePatterns": [
        "has condition DisruptionTarget matching FailJob rule",
        f"failed with exit code {TERMINATED} matching FailJob rule",
    ],
}
USELESS = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FINAL]}}
FAIL: Mapping[str, Any] = {
    "name": "final_error",
    "action": "FailJobSet",
    "onJobFailureReasons": [_REASON],
    "onJobFailureMessagePatterns": [f"failed with exit code {FINAL} matching FailJob rule"],
}
"""The messages are those of `matchPodFailurePolicy` in
https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/job/pod_failure_policy.go.
"""

MAX_RESTARTS = 3
"""Restarts after errors of the program, if neither the job nor its runtime declares them."""


@dataclass(frozen=True)
class Disruptions:
    """How a job goes on after disruptions.

    Args:
        max_restarts: Restarts after errors of the program; None: those of the runtime, else `MAX_RESTARTS`.
    """

    max_restarts: int | None = None


def tolerate_disruptions(jobset: Document, disruptions: Disruptions) -> Document:
    """Return a rendered JobSet with the rules for disruptions. What the runtime declares stays.

    A replicated job whose Pods restart containers in place (`restartPolicy: OnFailure`) stays as it is, since Kubernetes
    allows no `podFailurePolicy` there.
    """
    jobs: list[Document] = []
    for job in jobs_of(jobset):
        if may_tolerate(job):
            document = _with_pod_rules(job, DISRUPTED, STOPPED)
            spec = {"backoffLimit": 0, **document["template"]["spec"]}
            jobs.append({**document, "template": {**document["template"], "spec": spec}})
        else:
            jobs.append(job.document)
    own = section(jobset, "spec", "failurePolicy")
    rules = [rule for rule in items(own, "rules") if rule.get("name") != INTERRUPTED_RULE]
    policy = {
        "maxRestarts": MAX_RESTARTS,
        "restartStrategy": "BlockingRecreate",
        **own,
        "rules": [dict(RESTART), *rules],
    }
    if disruptions.max_restarts is not None:
        policy["maxRestarts"] = disruptions.max_restarts
    return {**jobset, "spec": {**jobset["spec"], "replicatedJobs": jobs, "failurePolicy": policy}}


def fail_at_final_errors(jobset: Document) -> Document:
    """Return a rendered JobSet that fails at once if a container ends with `FINAL`: neither its Jobs nor the JobSet try again.

    Pods that restart containers in place stay as they are, as for disruptions.
    """
    jobs = [_with_pod_rules(job, USELESS) if may_tolerate(job) else job.document for job in jobs_of(jobset)]
    spec = {**jobset["spec"], "replicatedJobs": jobs}
    own = spec.get("failurePolicy")
    if isinstance(own, dict):
        spec["failurePolicy"] = {**own, "rules": [dict(FAIL), *items(own, "rules")]}
    return {**jobset, "spec": spec}


def trains(job: ReplicatedJob) -> bool:
    """Return whether the Pods of a replicated job run user code."""
    return ancestor_of(job) not in (DATASET_INITIALIZER, MODEL_INITIALIZER)


def may_tolerate(job: ReplicatedJob) -> bool:
    """Return whether a replicated job runs user code, and its Pods may have a podFailurePolicy."""
    restart = job.pod.spec.get("restartPolicy", "Never")
    return trains(job) and not isinstance(restart, Unknown) and restart in ("", None, "Never")


def tolerates(job: ReplicatedJob) -> bool:
    """Return whether the first rule for disruptions of a replicated job fails its Job at once."""
    for rule in items(job.job.get("podFailurePolicy"), "rules"):
        conditions = {condition.get("type") for condition in items(rule, "onPodConditions")}
        if "DisruptionTarget" in conditions:
            return rule.get("action") == "FailJob"
    return False


def action_after_disruption(jobset: Document, job: ReplicatedJob) -> str:
    """Return what JobSet does when `DISRUPTED` has failed a Job: the action of the first rule that applies to it.

    Source: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/failure_policy.go
    """
    policy = jobset.get("spec", {}).get("failurePolicy")
    if not isinstance(policy, dict):
        return "FailJobSet"
    applying = (rule for rule in items(policy, "rules") if _applies(rule, job))
    return str(next(applying, {}).get("action", "RestartJobSet"))


def _applies(rule: Document, job: ReplicatedJob) -> bool:
    reasons, targets, patterns = (
        texts(rule.get(field))
        for field in ("onJobFailureReasons", "targetReplicatedJobs", "onJobFailureMessagePatterns")
    )
    return (
        (not reasons or _REASON in reasons)
        and (not targets or job.name in targets)
        and (not patterns or any(map(_reported, patterns)))
    )


def _reported(pattern: str) -> bool:
    try:
        return go_regexp.matches(pattern, _MESSAGE)
    except ValueError:  # JobSet logs it and goes on
        return False


def _with_pod_rules(job: ReplicatedJob, *added: Mapping[str, Any]) -> Document:
    """Return a replicated job with more rules for failed Pods, which Kubernetes allows only if their containers never restart."""
    spec, pod = {**job.job}, {**job.pod.spec, "restartPolicy": "Never"}
    rules = [*items(job.job.get("podFailurePolicy"), "rules"), *map(dict, added)]
    spec["podFailurePolicy"] = {**section(job.job, "podFailurePolicy"), "rules": rules}
    spec["template"] = {**job.template, "spec": pod}
    return {**job.document, "template": {**job.document["template"], "spec": spec}}
