"""Decides what a job is doing, and returns it as a status or as a paragraph for the user."""

from __future__ import annotations

from dataclasses import replace

from pulumi_trainer.provider.api.checkpoints import saves_checkpoints
from pulumi_trainer.provider.api.manual import SUSPENDED
from pulumi_trainer.provider.api.status import JobStatus, Phase, Step
from pulumi_trainer.provider.kube.terminal import lines, plain
from pulumi_trainer.provider.kube.values.accessors import (
    condition,
    conditions,
    epoch_seconds,
    labels_of,
    mappings,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kube.values.wording import duration, without_full_stop
from pulumi_trainer.provider.kube.views import ReplicatedJob
from pulumi_trainer.provider.kueue.workload_reasons import DEACTIVATED, Waiting, why_queued
from pulumi_trainer.provider.lifecycle.diagnosis import outcome, pod_faults, stages
from pulumi_trainer.provider.lifecycle.diagnosis.attempts import observed_attempts
from pulumi_trainer.provider.lifecycle.diagnosis.containers import list_containers
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import STEP, JobView
from pulumi_trainer.provider.lifecycle.job_status import Observed, derive_phase


def best_finding(view: JobView, now: float) -> Finding:
    """Return the finding that explains the job best.

    Args:
        view: The documents of the job.
        now: Seconds since the epoch.
    """
    if view.main is None:
        why = "its record was just created, and the job itself follows"
        return Finding(Phase.PENDING, why=why) if view.awaited else outcome.gone_finding(view)
    state = derive_phase(view.jobset, view.train_job)
    if state.phase == Phase.SUCCEEDED:
        return outcome.succeeded_finding(state)
    if state.phase == Phase.FAILED:
        return outcome.failed_finding(view, state)
    if found := outcome.deleting_finding(view):
        return found
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
    if again := stages.restart(view):
        return _with_trouble(again, trouble)
    if ending := outcome.ending_finding(view):
        return ending
    if trouble:
        return trouble
    if waits := stages.pending_dependency(view):
        return replace(waits, phase=state.phase)
    whys = {
        Phase.RUNNING: "its pods run",
        Phase.ADMITTED: "Kueue has admitted it, and its pods are being created",
        Phase.STARTING: "its pods are starting: no problem is known",
        Phase.PENDING: "its controller has not created its pods yet: no problem is known",
    }
    return Finding(state.phase, state.reason, state.message, whys.get(state.phase, ""))


def _unseen(view: JobView, state: Observed) -> Finding:
    """Return the finding about a job whose Pods in a worker cluster are not known."""
    assert view.worker_fault is not None
    fault = without_full_stop(view.worker_fault.why)
    why = f"MultiKueue has sent it to {view.cluster}, and its Pods there are not known: {fault}"
    return Finding(state.phase, "WorkerNotReadable", f"{view.cluster}: {fault}", why, view.worker_fault.hint)


def _queued(view: JobView, now: float, message: str) -> Finding:
    job = Waiting(
        view.queue,
        view.workload,
        kind="jobset.x-k8s.io/jobset" if view.train_job is None else "trainer.kubeflow.org/trainjob",
        age=view.age(now),
        message=message,
        readable="workloads" not in view.unreadable,
        preemptor=view.preemptor,
        no_room=view.no_fit,
        inactive=view.queue_inactive,
    )
    found = why_queued(job)
    if view.worker_fault is not None:
        fault = f"{view.worker_fault.where}: {without_full_stop(view.worker_fault.why)}"
        found = replace(
            found, message=f"{found.message}; {fault}", why=f"{found.why}; {fault}", hint=view.worker_fault.hint
        )
    if view.override and found.reason == DEACTIVATED:
        return Finding(Phase.QUEUED, found.reason, view.override, view.override)
    return Finding(
        Phase.ADMITTED if found.admitted else Phase.QUEUED, found.reason, found.message, found.why, found.hint
    )


def diagnose(view: JobView, now: float) -> JobStatus:
    """Return the status of a job.

    Args:
        view: The documents of the job.
        now: Seconds since the epoch.
    """
    status = _diagnosed(view, now)
    if view.losses:
        status = replace(status, message="; ".join(filter(None, [status.message, *view.losses])))
    return status


def _diagnosed(view: JobView, now: float) -> JobStatus:
    found = best_finding(view, now)
    recorded = view.recorded
    if view.main is None and recorded is not None and not view.awaited:
        return recorded
    status = JobStatus(view.name, view.namespace) if recorded is None else replace(recorded)
    status.phase, status.reason, status.message = found.phase.value, plain(found.reason), lines(found.message)
    status.cluster = view.cluster
    status.uid = status.uid or text(section(view.main, "metadata").get("uid"))
    status.steps = [_step(view, s, found.phase) for s in view.steps]
    status.restarts = number(section(view.jobset, "status").get("restarts"))
    status.created = status.created or view.created
    status.started = min((s.started for s in status.steps if s.started), default=0.0)
    status.finished = _finished(view) if found.phase in (Phase.SUCCEEDED, Phase.FAILED) else 0.0
    before = status.attempts if view.attempts is None else view.attempts
    status.attempts = observed_attempts(view, before, found.phase, status.finished)
    status.checkpoints = saves_checkpoints(view.jobset)
    status.progress = dict(view.progress) if view.progress else _reported(view) or status.progress
    return status


def explain(view: JobView, status: JobStatus, now: float) -> str:
    """Return one paragraph: what the job waits for or why it has ended, and what to do.

    Args:
        view: The documents of the job.
        status: The result of `diagnose`.
        now: Seconds since the epoch.
    """
    found = best_finding(view, now)
    since = now - (status.finished or _since(view, found.phase, status.started) or status.created or now)
    ago = ""
    if since >= 1 and status.finished:
        ago = f" {duration(since)} ago"
    elif since >= 1 and not found.phase.terminal:
        ago = f" for {duration(since)}"
    reason = f" ({found.reason})" if found.reason else ""
    detail = without_full_stop(found.why or found.message)
    place = f" on {view.cluster}" if view.cluster else ""
    summary = f"{view.namespace}/{view.name} is {found.phase}{reason}{ago}{place}: {detail}"
    if "\n" in detail:  # it ends with lines of a log
        return "\n".join(filter(None, (summary, *map(_sentence, view.losses), _sentence(found.hint))))
    return " ".join(filter(None, (f"{summary}.", *map(_sentence, view.losses), _sentence(found.hint))))


def _sentence(text_: str) -> str:
    return f"{text_[:1].upper()}{text_[1:]}" + ("" if text_[-1:] in (".", "?", "!", "") else ".")


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
    """Return when the job was suspended."""
    at = text(true_condition(conditions(view.main), "Suspended").get("lastTransitionTime"))
    return f" (since {at})" if at else ""


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
            if found := true_condition(conditions(document), type_):
                return epoch_seconds(found.get("lastTransitionTime"))
    return 0.0


def _reported(view: JobView) -> dict[str, object] | None:
    """Return what the training has reported to Trainer's status server."""
    found = section(view.train_job, "status", "trainerStatus")
    return dict(found) if found else None


def _step(view: JobView, step: ReplicatedJob, phase: Phase) -> Step:
    name = text(step.name)
    jobs = view.jobs_of(name)
    replicated_jobs = mappings(section(view.jobset, "status").get("replicatedJobsStatus"))
    counts = next((r for r in replicated_jobs if r.get("name") == name), {})
    states = [section(j, "status") for j in jobs]
    pods = [p for p in view.pods if labels_of(p).get(STEP) == name]
    again = counts.get("jobRestarts")
    restarts = sum(map(number, again)) if isinstance(again, list) else 0
    for pod in pods:
        restarts += sum(c.restarts for c in list_containers(pod))
    starts = [epoch_seconds(s.get("startTime")) for s in states if s.get("startTime")]
    found = Step(
        name,
        count=step.pods or 0,
        active=sum(number(s.get("active")) for s in states),
        ready=sum(number(s.get("ready")) for s in states),
        succeeded=sum(number(s.get("succeeded")) for s in states),
        failed=sum(number(s.get("failed")) for s in states),
        restarts=restarts,
        started=min(filter(None, starts), default=0.0),
    )
    if number(counts.get("failed")):
        found.phase = Phase.FAILED.value
    elif step.replicas and number(counts.get("succeeded")) >= step.replicas:
        found.phase = Phase.SUCCEEDED.value
    elif number(counts.get("suspended")) and phase in (Phase.SUSPENDED, Phase.QUEUED):
        found.phase = Phase.SUSPENDED.value
    elif found.active:
        found.phase = (Phase.RUNNING if found.ready else Phase.STARTING).value
    if found.phase in (Phase.FAILED, Phase.SUCCEEDED):
        ends = [
            epoch_seconds(s.get("completionTime"))
            or epoch_seconds(true_condition(conditions(j), "Failed").get("lastTransitionTime"))
            for j, s in zip(jobs, states, strict=True)
        ]
        found.finished = max(ends, default=0.0)
    return found
