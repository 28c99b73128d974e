"""Derives the phase of a job from the conditions of its JobSet and TrainJob, and the status that Trainer's controller writes.

Upstream:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/controller/trainjob_controller.go,
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go (Status) and
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go (conditions).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values import accessors
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds
from pulumi_trainer.provider.kueue.labels import QUEUE

__all__ = [
    "DEADLINE_EXCEEDED",
    "Observed",
    "derive_phase",
    "epoch_seconds",
    "exceeded_deadline",
    "forget_failure",
    "is_finished",
    "train_job_status",
]

DEADLINE_EXCEEDED = "DeadlineExceeded"
_COUNTS = ("active", "failed", "ready", "succeeded", "suspended")


@dataclass(frozen=True)
class Observed:
    """A phase, with reason and message of the condition that decided it; empty if no condition did."""

    phase: Phase
    reason: str = ""
    message: str = ""


def derive_phase(jobset: Document | None, train_job: Document | None = None) -> Observed:
    """Return phase, reason and message of a job.

    Failed wins over Complete, as in the state that Trainer prints. Queued and Admitted need a queue's label on either
    document; the reason why a job is queued is in its Workload, which is not read here.

    Args:
        jobset: None if it does not exist (yet, or any longer).
        train_job: None in mode jobset.
    """
    conditions = [*accessors.conditions(train_job), *accessors.conditions(jobset)]
    for types, phase in ((("Failed",), Phase.FAILED), (("Complete", "Completed"), Phase.SUCCEEDED)):
        for condition in conditions:
            if condition.get("type") in types and condition.get("status") == "True":
                return _from_condition(phase, condition)
    queued = any(QUEUE in accessors.section(d, "metadata", "labels") for d in (jobset, train_job))
    if any(accessors.section(d, "spec").get("suspend") is True for d in (jobset, train_job)):
        phase = Phase.SUSPENDED
        if queued:
            phase = Phase.QUEUED
        return _from_condition(phase, accessors.true_condition(conditions, "Suspended"))
    restarting = accessors.true_condition(accessors.conditions(jobset), "RestartingJobSet")
    if restarting:
        return _from_condition(Phase.RESTARTING, restarting)
    replicated_jobs = _replicated_job_statuses(jobset)
    if any(step.get("ready") for step in replicated_jobs):
        return Observed(Phase.RUNNING)
    starting = accessors.true_condition(accessors.conditions(jobset), "StartupPolicyInProgress")
    if starting or any(step.get("active") or step.get("succeeded") for step in replicated_jobs):
        return _from_condition(Phase.STARTING, starting)
    if queued and jobset is not None:
        return Observed(Phase.ADMITTED)
    return Observed(Phase.PENDING)


def forget_failure(train_job: Document) -> Document:
    """Return a TrainJob without the condition Failed, unless a deadline has set it."""
    if exceeded_deadline(train_job):
        return train_job
    kept = [each for each in accessors.conditions(train_job) if each.get("type") != "Failed"]
    return {**train_job, "status": {**accessors.section(train_job, "status"), "conditions": kept}}


def is_finished(train_job: Document) -> bool:
    """Return whether a TrainJob has ended, so that the controller creates nothing for it any more."""
    conditions = accessors.conditions(train_job)
    return bool(accessors.true_condition(conditions, "Complete") or accessors.true_condition(conditions, "Failed"))


def train_job_status(train_job: Document, jobset: Document | None, *, created: float, now: float) -> dict[str, Any]:
    """Return the `status` of a TrainJob after one reconcile of Trainer's controller; times are seconds since the epoch.

    A new condition `Failed` with the reason DeadlineExceeded means that the JobSet is to be deleted.

    Args:
        jobset: As in the cluster after the objects of this reconcile were applied.
    """
    status: dict[str, Any] = copy.deepcopy(dict(accessors.section(train_job, "status")))
    conditions: list[dict[str, Any]] = status.pop("conditions", [])
    suspended = accessors.section(train_job, "spec").get("suspend") is True
    if suspended:
        _set(conditions, "Suspended", "True", "Suspended", "TrainJob is suspended", now)
    elif accessors.true_condition(conditions, "Suspended"):
        _set(conditions, "Suspended", "False", "Resumed", "TrainJob is resumed", now)
    if jobset is not None:
        _copy_outcome(conditions, jobset, now)
        status.pop("jobsStatus", None)
        replicated_jobs = _replicated_job_statuses(jobset)
        if replicated_jobs:
            status["jobsStatus"] = [*map(_counts, replicated_jobs)]
    deadline = accessors.section(train_job, "spec").get("activeDeadlineSeconds") or 0
    if deadline and not suspended and not is_finished({"status": {"conditions": conditions}}):
        resumed = accessors.condition(conditions, "Suspended")
        begun = epoch_seconds(resumed.get("lastTransitionTime"), created)
        if now > begun + deadline:
            _set(conditions, "Failed", "True", DEADLINE_EXCEEDED, "TrainJob exceeded its active deadline", now)
    if not conditions:
        return status
    return {"conditions": conditions, **status}


def _counts(step: dict[str, Any]) -> dict[str, Any]:
    counts = {count: step.get(count, 0) for count in _COUNTS}
    return {"name": step.get("name", ""), **counts}


def exceeded_deadline(train_job: Document) -> bool:
    """Return whether a TrainJob has failed by its own deadline: then its JobSet no longer exists."""
    failed = accessors.true_condition(accessors.conditions(train_job), "Failed")
    return bool(failed) and failed.get("reason") == DEADLINE_EXCEEDED


def _copy_outcome(conditions: list[dict[str, Any]], jobset: Document, now: float) -> None:
    """Copy the JobSet's outcome to the TrainJob; an exceeded deadline stays the reason."""
    ended = accessors.true_condition(conditions, "Failed")
    kept: dict[str, Any] = {}
    if ended.get("reason") == DEADLINE_EXCEEDED:
        kept = dict(ended)
    for jobset_type, train_job_type in (("Completed", "Complete"), ("Failed", "Failed")):
        found = accessors.true_condition(accessors.conditions(jobset), jobset_type)
        if found:
            time = epoch_seconds(found.get("lastTransitionTime"), now)
            _set(conditions, train_job_type, "True", found.get("reason", ""), found.get("message", ""), time)
    if kept:
        _set(conditions, "Failed", "True", kept["reason"], kept["message"], now)


def _set(conditions: list[dict[str, Any]], type_: str, status: str, reason: str, message: str, time: float) -> None:
    """Add or change a condition; its time is that of its last change from True to False or back."""
    condition = accessors.condition(conditions, type_)
    if not condition:
        condition = {"lastTransitionTime": _time(time), "type": type_}
        conditions.append(condition)
    elif condition.get("status") != status:
        condition["lastTransitionTime"] = _time(time)
    condition.update(message=message, reason=reason, status=status)


def _from_condition(phase: Phase, condition: Document) -> Observed:
    return Observed(phase, str(condition.get("reason", "")), str(condition.get("message", "")))


def _replicated_job_statuses(jobset: Document | None) -> list[dict[str, Any]]:
    return accessors.mappings(accessors.section(jobset, "status").get("replicatedJobsStatus"))


def _time(moment: float) -> str:
    return datetime.fromtimestamp(int(moment), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
