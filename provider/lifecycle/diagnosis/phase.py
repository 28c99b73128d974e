"""Decides what a job is doing, and returns it as a status or as a paragraph for the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.jobs.manual import SUSPENDED
from pulumi_trainer.provider.jobs.observed_inputs import with_observed
from pulumi_trainer.provider.jobs.progress import kept_progress
from pulumi_trainer.provider.jobs.status import JobStatus, Phase, Step
from pulumi_trainer.provider.kubernetes.terminal import lines, plain
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    epoch_seconds,
    listed,
    mappings,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import duration, without_full_stop
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob
from pulumi_trainer.provider.kueue.workload_reasons import DEACTIVATED, Waiting, why_queued
from pulumi_trainer.provider.lifecycle.diagnosis import outcome, pod_faults, stages
from pulumi_trainer.provider.lifecycle.diagnosis.attempts import observed_attempts
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    has_succeeded,
    in_parentheses,
    list_containers,
    observed_inputs,
)
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import JobView, start_times
from pulumi_trainer.provider.trainer.job_status import Observed, derive_phase


def best_finding(view: JobView, now: float) -> Finding:
    if view.main is None and view.awaited:
        return Finding(Phase.PENDING, why="its record was just created, and the job itself follows")
    if view.main is None:
        return outcome.gone_finding(view)
    state = derive_phase(view.jobset, view.train_job)
    if state.phase == Phase.STARTING and _is_ending(view):
        state = Observed(Phase.RUNNING)
    if state.phase == Phase.SUCCEEDED:
        return Finding(state.phase, state.reason, state.message, f"all is done ({without_full_stop(state.message)})")
    if state.phase == Phase.FAILED:
        return outcome.failed_finding(view, state)
    deleting = outcome.deleting_finding(view)
    if deleting:
        return deleting
    if state.phase == Phase.QUEUED:
        return _queued(view, now, state.message)
    if state.phase == Phase.SUSPENDED and view.override:
        return Finding(state.phase, SUSPENDED, view.override, view.override)
    if state.phase == Phase.SUSPENDED:
        why = "it is suspended (suspend is true)" + _suspended_since(view)
        return Finding(
            state.phase, state.reason or "SuspendedJobs", state.message, why, "set suspend to False to continue"
        )
    if view.cluster and view.worker_fault is not None:
        return _unseen(view, state)
    trouble = stages.missing_objects(view, now) or pod_faults.find_fault(view, now)
    restart = stages.restart(view)
    if restart:
        return _with_trouble(restart, trouble)
    ending = outcome.ending_finding(view)
    if ending:
        return ending
    if trouble:
        return trouble
    dependency = stages.pending_dependency(view)
    if dependency:
        return replace(dependency, phase=state.phase)
    whys = {
        Phase.RUNNING: "its pods run",
        Phase.ADMITTED: "Kueue has admitted it, and its pods are being created",
        Phase.STARTING: "its pods are starting: no problem is known",
        Phase.PENDING: "its controller has not created its pods yet: no problem is known",
    }
    return Finding(state.phase, state.reason, state.message, whys.get(state.phase, ""))


def _is_ending(view: JobView) -> bool:
    """Return whether Pods that train have ended and the others run: JobSet counts a Pod that ends as not ready any more."""
    pods = view.pods_of(view.trainer_step)
    phases = {text(section(pod, "status").get("phase")) for pod in pods}
    return phases <= {"Running", "Succeeded"} and any(map(has_succeeded, pods))


def _unseen(view: JobView, state: Observed) -> Finding:
    """Return the finding about a job whose Pods in a worker cluster are not known."""
    assert view.worker_fault is not None
    fault = without_full_stop(view.worker_fault.why)
    why = f"MultiKueue has sent it to {view.cluster}, and its Pods there are not known: {fault}"
    return Finding(state.phase, "WorkerNotReadable", f"{view.cluster}: {fault}", why, view.worker_fault.hint)


def _queued(view: JobView, now: float, message: str) -> Finding:
    kind = "trainer.kubeflow.org/trainjob"
    if view.train_job is None:
        kind = "jobset.x-k8s.io/jobset"
    job = Waiting(
        view.queue,
        view.workload,
        kind=kind,
        age=view.age(now),
        message=message,
        readable="workloads" not in view.unreadable,
        preemptor=view.preemptor,
        no_room=view.no_fit,
        inactive=view.queue_inactive,
        flavors=view.queue_flavors,
        peer=view.peer,
        turn=view.turn,
    )
    found = why_queued(job)
    if view.worker_fault is not None:
        fault = f"{view.worker_fault.where}: {without_full_stop(view.worker_fault.why)}"
        found = replace(
            found, message=f"{found.message}; {fault}", why=f"{found.why}; {fault}", hint=view.worker_fault.hint
        )
    if view.override and found.reason == DEACTIVATED:
        return Finding(Phase.QUEUED, found.reason, view.override, view.override)
    phase = Phase.QUEUED
    if found.admitted:
        phase = Phase.ADMITTED
    return Finding(phase, found.reason, found.message, found.why, found.hint)


def diagnose(view: JobView, now: float) -> JobStatus:
    status = _diagnosed(view, now)
    more = (*view.left, *view.remarks)
    if more:
        status = replace(status, message="; ".join(filter(None, [status.message, *more])))
    return status


def _diagnosed(view: JobView, now: float) -> JobStatus:
    found = best_finding(view, now)
    recorded = view.recorded
    if view.main is None and recorded is not None and not view.awaited:
        return recorded
    if recorded is None:
        status = JobStatus(view.name, view.namespace)
    else:
        status = replace(recorded)
    status.phase, status.reason, status.message = found.phase.value, plain(found.reason), lines(found.message)
    status.cluster = view.cluster
    status.uid = status.uid or text(section(view.main, "metadata").get("uid"))
    status.steps = [_step(view, s, found.phase) for s in view.steps]
    status.restarts = view.restarts
    status.created = status.created or view.created
    status.started = min((s.started for s in status.steps if s.started), default=0.0)
    status.finished = 0.0
    if found.phase in (Phase.SUCCEEDED, Phase.FAILED):
        status.finished = _finished(view)
    before: Sequence[Attempt] = status.attempts
    if view.attempts is not None:
        before = view.attempts
    status.attempts = observed_attempts(view, before, found.phase, status.finished)
    status.checkpoints = saves_checkpoints(view.jobset)
    if recorded is None or recorded.phase not in (Phase.SUCCEEDED, Phase.FAILED):  # the record of an ended job has it
        status.inputs = with_observed(status.inputs, observed_inputs(view.pods))
    status.progress = _newest_progress(view) or status.progress
    return status


def explain(view: JobView, status: JobStatus, now: float) -> str:
    """Return one paragraph: what the job waits for or why it has ended, and what to do."""
    found = best_finding(view, now)
    since = now - (status.finished or _since(view, found.phase, status.started) or status.created or now)
    ago = ""
    if since >= 1 and status.finished:
        ago = f" {duration(since)} ago"
    elif since >= 1 and not found.phase.terminal:
        ago = f" for {duration(since)}"
    reason = in_parentheses(found.reason)
    detail = without_full_stop(found.why or found.message)
    place = ""
    if view.cluster:
        place = f" on {view.cluster}"
    summary = f"{view.namespace}/{view.name} is {found.phase}{reason}{ago}{place}: {detail}"
    if "\n" in detail:  # it ends with lines of a log
        return "\n".join(filter(None, (summary, *map(_sentence, view.remarks), _sentence(found.hint))))
    return " ".join(filter(None, (f"{summary}.", *map(_sentence, view.remarks), _sentence(found.hint))))


def _sentence(text_: str) -> str:
    sentence = f"{text_[:1].upper()}{text_[1:]}"
    if text_[-1:] in (".", "?", "!", ""):
        return sentence
    return f"{sentence}."


def _with_trouble(again: Finding, trouble: Finding | None) -> Finding:
    """Return a restart, together with what delays it."""
    if trouble is None:
        return again
    return replace(
        again,
        message=f"{again.message}; {trouble.reason}: {trouble.message}",
        why=f"{again.why}; now {trouble.why}",
        hint=trouble.hint,
    )


def _suspended_since(view: JobView) -> str:
    at = text(true_condition(conditions(view.main), "Suspended").get("lastTransitionTime"))
    if not at:
        return ""
    return in_parentheses(f"since {at}")


def _since(view: JobView, phase: Phase, started: float) -> float:
    """Return when the job entered the phase, if a condition has the time; 0 otherwise. started: When its Pods started."""
    if phase == Phase.RUNNING:
        return started
    if phase in (Phase.ADMITTED, Phase.PENDING, Phase.STARTING):
        admitted = true_condition(conditions(view.workload), "Admitted")
        resumed = condition(conditions(view.jobset), "Suspended")  # false: a true one is of the phases below
        return epoch_seconds((admitted or resumed).get("lastTransitionTime"))
    if phase == Phase.QUEUED:
        waiting = [c for c in conditions(view.workload) if c.get("type") in ("QuotaReserved", "Evicted")]
        return max((epoch_seconds(c.get("lastTransitionTime")) for c in waiting), default=0.0)
    types = {Phase.SUSPENDED: "Suspended", Phase.RESTARTING: "RestartingJobSet"}
    return epoch_seconds(condition(conditions(view.jobset), types.get(phase, "")).get("lastTransitionTime"))


def _finished(view: JobView) -> float:
    for document, types in ((view.jobset, ("Completed", "Failed")), (view.train_job, ("Complete", "Failed"))):
        for type_ in types:
            found = true_condition(conditions(document), type_)
            if found:
                return epoch_seconds(found.get("lastTransitionTime"))
    return 0.0


def _newest_progress(view: JobView) -> dict[str, Any] | None:
    """Return the newest trainerStatus, otherwise what the training has reported to Trainer's status server; None if nothing."""
    if view.progress:
        return dict(view.progress)
    return kept_progress(section(view.train_job, "status", "trainerStatus"))


def _step(view: JobView, step: ReplicatedJob, phase: Phase) -> Step:
    name = text(step.name)
    jobs = view.jobs_of(name)
    replicated_jobs = mappings(section(view.jobset, "status").get("replicatedJobsStatus"))
    counts = next((r for r in replicated_jobs if r.get("name") == name), {})
    restarts = sum(map(number, listed(counts.get("jobRestarts"))))
    for pod in view.pods_of(name):
        restarts += sum(c.restarts for c in list_containers(pod))
    found = Step(
        name,
        count=step.pods or 0,
        active=_sum_of(jobs, "active"),
        ready=_sum_of(jobs, "ready"),
        succeeded=_sum_of(jobs, "succeeded"),
        failed=_sum_of(jobs, "failed"),
        restarts=restarts,
        started=min(start_times(jobs), default=0.0),
    )
    if number(counts.get("failed")):
        found.phase = Phase.FAILED.value
    elif step.replicas and number(counts.get("succeeded")) >= step.replicas:
        found.phase = Phase.SUCCEEDED.value
    elif number(counts.get("suspended")) and phase in (Phase.SUSPENDED, Phase.QUEUED):
        found.phase = Phase.SUSPENDED.value
    elif found.active and found.ready:
        found.phase = Phase.RUNNING.value
    elif found.active:
        found.phase = Phase.STARTING.value
    if found.phase in (Phase.FAILED, Phase.SUCCEEDED):
        found.finished = max(map(_end_of, jobs), default=0.0)
    return found


def _sum_of(jobs: Sequence[Document], count: str) -> int:
    """Return the sum of a count in the status of Jobs, such as `active`."""
    return sum(number(section(job, "status").get(count)) for job in jobs)


def _end_of(job: Document) -> float:
    """Return when a Job completed or failed; 0 if it has not ended."""
    failed = true_condition(conditions(job), "Failed")
    return epoch_seconds(section(job, "status").get("completionTime")) or epoch_seconds(
        failed.get("lastTransitionTime")
    )
