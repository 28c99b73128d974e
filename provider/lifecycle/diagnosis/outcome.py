"""Explains how a job has ended: which pod, on which node, with which exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pulumi_trainer.provider.jobs.manual import STOPPED
from pulumi_trainer.provider.jobs.status import RUN_AGAIN, JobStatus, Phase
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    labels_of,
    name_of,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import without_full_stop
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    ContainerStatus,
    describe_pod,
    exit_hint,
    exit_text,
    failure_order,
    in_parentheses,
    list_containers,
)
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import summarize_exception
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import (
    JOB_NAME,
    STEP,
    JobView,
    last_observed,
    node_index,
    pod_name,
)
from pulumi_trainer.provider.lifecycle.diagnosis.pod_faults import last_lines
from pulumi_trainer.provider.trainer.job_status import Observed

_FIRST = re.compile(r"\(first failed job: (\S+?)\)")


def failed_finding(view: JobView, found: Observed) -> Finding:
    """Return which pod has caused the failure, or what its Job reports if the pod is no longer known."""
    view = view.of_attempt(view.restarts)
    guilty = culprit(view, found.message)
    if guilty is not None:
        failure = guilty.failure
        error = summarize_exception("\n".join(view.lines.get(pod_name(guilty.pod), ())))
        how = f"{guilty.place()}: {exit_text(failure)}{f': {error}' if error else ''}{_disrupted(guilty.pod)}"
        lines = last_lines(view, guilty.pod)
        hint = exit_hint(failure) or _AGAIN
        return Finding(
            Phase.FAILED, found.reason, f"{found.message}\n{how}{lines}", f"{found.message}; {how}{lines}", hint
        )
    lost = next(_failed_pods(view), "")
    more = lost or _job_message(view, found.message)
    message, why, hint = found.message, without_full_stop(found.message), _AGAIN
    if more:
        message, why = f"{message}\n{more}", f"{why}; {more}"
    known = view.recorded
    if not lost and known is not None and known.phase == Phase.FAILED and len(known.message) > len(message):
        return Finding(Phase.FAILED, found.reason, known.message, known.message, _AGAIN)
    if not lost and _deleted_with_logs(view, found.message):
        why = f"{why}; Kubernetes has deleted the Pods and their logs at that limit (restartPolicy OnFailure)"
        hint = f"{_AGAIN}; a waiting `pulumi up` records the output, and restartPolicy Never in the runtime keeps failed Pods"
    return Finding(Phase.FAILED, found.reason, message, why, hint)


_AGAIN = "fix the cause, and run the job again (run=)"


def _deleted_with_logs(view: JobView, message: str) -> bool:
    """Return whether a Job has failed at its backoffLimit and its Pods restart containers in place: then they are deleted."""
    job = _first_failed_job(view, message)
    if view.pods or text(true_condition(conditions(job), "Failed").get("reason")) != "BackoffLimitExceeded":
        return False
    step = text(labels_of(job).get(STEP))
    return any(each.name == step and each.pod.spec.get("restartPolicy") != "Never" for each in view.steps)


def culprit(view: JobView, message: str = "") -> ContainerStatus | None:
    """Return the container that has failed first: preferably of the Job that JobSet names, and not because another one failed."""
    return next(iter(_failures(view, message)), None)


def _failures(view: JobView, message: str) -> list[ContainerStatus]:
    """Return the failed containers in the order in which they explain the failure of the job."""
    first = _FIRST.search(message)
    found: list[ContainerStatus] = []
    for pod in (*view.pods, *view.gone):
        found += [c for c in list_containers(pod) if c.failure]
    if first:
        found = [c for c in found if labels_of(c.pod).get(JOB_NAME) == first[1]] or found
    return sorted(found, key=lambda c: failure_order(c, view.lines))


def _disrupted(pod: Document) -> str:
    """Return why a pod was disrupted, for example evicted; empty if it was not."""
    found = true_condition(conditions(pod), "DisruptionTarget")
    if not found:
        return ""
    return f"; {text(found.get('reason'))}: {without_full_stop(text(found.get('message')))}"


def _failed_pods(view: JobView) -> Iterator[str]:
    """Yield pods that failed although no container did: evicted, or never admitted by their node."""
    for pod in (*view.pods, *view.gone):
        status = section(pod, "status")
        if status.get("phase") == "Failed":
            reason, reported = text(status.get("reason")), text(status.get("message"))
            failed = f"{describe_pod(pod)} failed{in_parentheses(reason)}"
            if reported:
                failed += f": {reported}"
            yield failed + _disrupted(pod)


def _job_message(view: JobView, message: str) -> str:
    job = _first_failed_job(view, message)
    found = true_condition(conditions(job), "Failed")
    if not found:
        return ""
    where = f"Job {name_of(job)}: {without_full_stop(text(found.get('message')))} ({text(found.get('reason'))})"
    events = view.warnings("Pod", "Failed", "BackOff", "Evicted", "Killing")
    oldest = min(events, key=last_observed, default={})
    output = text(oldest.get("message"))
    if not output:
        return where
    return f"{where}; output of a pod: {without_full_stop(output)}"


def _first_failed_job(view: JobView, message: str) -> Document:
    """Return the failed Job that JobSet names, otherwise any that has failed; empty if none is known."""
    first = _FIRST.search(message)
    for job in view.jobs:
        if true_condition(conditions(job), "Failed") and (not first or name_of(job) == first[1]):
            return job
    return {}


def ending_finding(view: JobView) -> Finding | None:
    """Return that a Job has failed and JobSet has not yet decided what follows; None if no Job has failed."""
    for job in view.jobs:
        found = true_condition(conditions(job), "Failed") or true_condition(conditions(job), "FailureTarget")
        if found:
            why = without_full_stop(text(found.get("message")))
            message = f"Job {name_of(job)} has failed: {why} ({text(found.get('reason'))})"
            return Finding(
                Phase.RUNNING, "Ending", message, f"{message}, and JobSet is deciding whether to restart the job"
            )
    return None


def gone_finding(view: JobView) -> Finding:
    """Return the last known state of a job whose objects are gone."""
    known = view.recorded
    left = "".join(f"; {each}" for each in view.left)
    if known is None:
        why = f"the job and its record do not exist{left}"
        return Finding(
            Phase.DELETED, "NotFound", "the job does not exist", why, "`pulumi preview` shows what happens next"
        )
    if known.reason == STOPPED:
        return Finding(Phase(known.phase), known.reason, known.message, known.message)
    why = "it no longer exists"
    if known.message:
        why = f"it no longer exists ({without_full_stop(known.message)})"
    return Finding(Phase(known.phase), known.reason, known.message, why + left, _again(view, known))


def _again(view: JobView, known: JobStatus) -> str:
    """Return how a deleted job runs again; empty if it has succeeded."""
    if known.phase == Phase.SUCCEEDED:
        return ""
    if view.left:
        return "delete it in that cluster, or wait until Kueue has, before it runs again"
    if view.another and known.phase == Phase.DELETED:
        return "delete the other job, or give the TrainJob another name"
    if known.phase != Phase.DELETED or known.unknown_end:
        return RUN_AGAIN
    return "`pulumi up` creates it again"


def deleting_finding(view: JobView) -> Finding | None:
    """Return that the job is being deleted, and which finalizers block that; None if it is not."""
    meta = section(view.main, "metadata")
    if not meta.get("deletionTimestamp"):
        return None
    finalizers = [f for f in meta.get("finalizers") or [] if isinstance(f, str)]
    message = f"it is being deleted since {meta['deletionTimestamp']}"
    if finalizers:
        message += f"; waiting for the finalizer {', '.join(finalizers)}"
    return Finding(Phase.DELETED, "Deleting", message, message)


@dataclass(frozen=True)
class FailedContainer:
    """A container whose log explains a failure. previous: Whether its previous run has failed, and not the newest."""

    pod: str
    container: str
    node: str
    restarts: int
    previous: bool

    @classmethod
    def of(cls, found: ContainerStatus) -> FailedContainer:
        return cls(pod_name(found.pod), found.name, node_index(found.pod), found.restarts, found.failed_before)


def failed_containers(view: JobView) -> list[FailedContainer]:
    """Return the failed containers of the newest attempt whose Pods exist, those that explain most first."""
    view = view.of_attempt(view.restarts)
    failures = _failures(replace(view, gone=()), text(true_condition(conditions(view.jobset), "Failed").get("message")))
    return [*map(FailedContainer.of, failures)]
