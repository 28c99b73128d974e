"""What a job is doing, out of the conditions of its JobSet and TrainJob; and the status that Trainer's controller writes.

Pure functions on plain documents: targets on a cluster and the command line call them. Upstream:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/controller/trainjob_controller.go,
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go (Status) and
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go (conditions).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.api.status import Phase
from pulumi_trainer.provider.kube.values import accessors
from pulumi_trainer.provider.kube.values.accessors import Document, seconds
from pulumi_trainer.provider.kueue.labels import QUEUE

__all__ = ["DEADLINE_EXCEEDED", "Observed", "exceeded_deadline", "finished", "observed", "seconds", "train_job_status"]

DEADLINE_EXCEEDED = "DeadlineExceeded"
_COUNTS = ("active", "failed", "ready", "succeeded", "suspended")


@dataclass(frozen=True)
class Observed:
    """reason, message: the words of the condition that decided; empty where none did."""

    phase: Phase
    reason: str = ""
    message: str = ""


def observed(jobset: Document | None, train_job: Document | None = None) -> Observed:
    """Phase, reason and message of a job. jobset: None if there is none (yet, or any more).

    Failed wins over Complete, as in the state that Trainer prints. Queued and Admitted need a queue's label on either
    document; why a job is queued stands in its Workload, which is not read here.
    """
    conditions = [*accessors.conditions(train_job), *accessors.conditions(jobset)]
    for types, phase in ((("Failed",), Phase.FAILED), (("Complete", "Completed"), Phase.SUCCEEDED)):
        for condition in conditions:
            if condition.get("type") in types and condition.get("status") == "True":
                return _told(phase, condition)
    queued = any(QUEUE in accessors.section(d, "metadata", "labels") for d in (jobset, train_job))
    if any(accessors.section(d, "spec").get("suspend") is True for d in (jobset, train_job)):
        return _told(Phase.QUEUED if queued else Phase.SUSPENDED, accessors.true(conditions, "Suspended"))
    if restarting := accessors.true(accessors.conditions(jobset), "RestartingJobSet"):
        return _told(Phase.RESTARTING, restarting)
    counts = _steps(jobset)
    if any(step.get("ready") for step in counts):
        return Observed(Phase.RUNNING)
    starting = accessors.true(accessors.conditions(jobset), "StartupPolicyInProgress")
    if starting or any(step.get("active") or step.get("succeeded") for step in counts):
        return _told(Phase.STARTING, starting)
    return Observed(Phase.ADMITTED if queued and jobset is not None else Phase.PENDING)


def finished(train_job: Document) -> bool:
    """Whether the controller builds nothing for it any more."""
    return bool(
        accessors.true(accessors.conditions(train_job), "Complete")
        or accessors.true(accessors.conditions(train_job), "Failed")
    )


def train_job_status(train_job: Document, jobset: Document | None, *, created: float, now: float) -> dict[str, Any]:
    """The `status` of a TrainJob after one round of Trainer's controller; what it was stands in the document.

    jobset: as it is in the cluster after that round's objects were applied. created, now: seconds since the epoch.
    A `Failed` with the reason DeadlineExceeded that was not there before means that the JobSet is to be deleted.
    """
    status: dict[str, Any] = copy.deepcopy(dict(accessors.section(train_job, "status")))
    conditions: list[dict[str, Any]] = status.pop("conditions", [])
    suspended = accessors.section(train_job, "spec").get("suspend") is True
    if suspended:
        _set(conditions, "Suspended", "True", "Suspended", "TrainJob is suspended", now)
    elif accessors.true(conditions, "Suspended"):
        _set(conditions, "Suspended", "False", "Resumed", "TrainJob is resumed", now)
    if jobset is not None:
        _copy_outcome(conditions, jobset, now)
        status.pop("jobsStatus", None)
        if steps := _steps(jobset):
            status["jobsStatus"] = [
                {"name": step.get("name", ""), **{count: step.get(count, 0) for count in _COUNTS}} for step in steps
            ]
    deadline = accessors.section(train_job, "spec").get("activeDeadlineSeconds") or 0
    if deadline and not suspended and not finished({"status": {"conditions": conditions}}):
        resumed = accessors.condition(conditions, "Suspended")
        begun = seconds(resumed.get("lastTransitionTime"), created) if resumed else created
        if now > begun + deadline:
            _set(conditions, "Failed", "True", DEADLINE_EXCEEDED, "TrainJob exceeded its active deadline", now)
    return {**({"conditions": conditions} if conditions else {}), **status}


def exceeded_deadline(train_job: Document) -> bool:
    """Whether it has failed by its own deadline: then there is no JobSet any more."""
    failed = accessors.true(accessors.conditions(train_job), "Failed")
    return bool(failed) and failed.get("reason") == DEADLINE_EXCEEDED


def _copy_outcome(conditions: list[dict[str, Any]], jobset: Document, now: float) -> None:
    """The JobSet's outcome over the TrainJob's; but a deadline that has ended it stays the reason."""
    ended = accessors.true(conditions, "Failed")
    kept = dict(ended) if ended and ended.get("reason") == DEADLINE_EXCEEDED else None
    for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        if found := accessors.true(accessors.conditions(jobset), theirs):
            time = seconds(found.get("lastTransitionTime"), now)
            _set(conditions, ours, "True", found.get("reason", ""), found.get("message", ""), time)
    if kept:
        _set(conditions, "Failed", "True", kept["reason"], kept["message"], now)


def _set(conditions: list[dict[str, Any]], type_: str, status: str, reason: str, message: str, time: float) -> None:
    """A condition put or changed; its time is that of its last change from True to False or back."""
    condition = accessors.condition(conditions, type_)
    if not condition:
        condition = {"lastTransitionTime": _time(time), "type": type_}
        conditions.append(condition)
    elif condition.get("status") != status:
        condition["lastTransitionTime"] = _time(time)
    condition.update(message=message, reason=reason, status=status)


def _told(phase: Phase, condition: Document) -> Observed:
    return Observed(phase, str(condition.get("reason", "")), str(condition.get("message", "")))


def _steps(jobset: Document | None) -> list[dict[str, Any]]:
    return accessors.rows(accessors.section(jobset, "status").get("replicatedJobsStatus"))


def _time(moment: float) -> str:
    return datetime.fromtimestamp(int(moment), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
