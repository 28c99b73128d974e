"""Decides what a job is doing, and tells it: as a status, and as a paragraph for people. Called from outside this folder."""

from __future__ import annotations

from dataclasses import replace

from pulumi_trainer.provider.api.status import JobStatus, Phase, Step
from pulumi_trainer.provider.kube.terminal import lines, plain
from pulumi_trainer.provider.kube.values.accessors import (
    condition,
    conditions,
    labels_of,
    number,
    rows,
    seconds,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kube.values.wording import duration, ended
from pulumi_trainer.provider.kueue.workload_reasons import Waiting, why_queued
from pulumi_trainer.provider.lifecycle.diagnosis import outcome, pods, stages
from pulumi_trainer.provider.lifecycle.diagnosis.containers import containers
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    STEP,
    Seen,
    pods_of,
    replicas_of,
)
from pulumi_trainer.provider.lifecycle.status import observed


def find(seen: Seen, now: float) -> Finding:
    """The one thing that says most about the job. now: seconds since the epoch."""
    if seen.main is None:
        why = "its record was just made, and the job itself follows"
        return Finding(Phase.PENDING, why=why) if seen.awaited else outcome.gone(seen)
    glance = observed(seen.jobset, seen.train_job)
    if glance.phase == Phase.SUCCEEDED:
        return outcome.succeeded(glance)
    if glance.phase == Phase.FAILED:
        return outcome.failed(seen, glance)
    if found := outcome.deleting(seen):
        return found
    if glance.phase == Phase.QUEUED:
        return _queued(seen, now, glance.message)
    if glance.phase == Phase.SUSPENDED:
        why = "its suspend is true" + _by_hand(seen)
        return Finding(
            glance.phase, glance.reason or "SuspendedJobs", glance.message, why, "set suspend to False to go on"
        )
    trouble = stages.held(seen, now) or pods.fault(seen, now)
    if again := stages.restart(seen):
        return _beside(again, trouble)
    if ending := outcome.ending(seen):
        return ending
    if trouble:
        return trouble
    if waits := stages.depends(seen):
        return replace(waits, phase=glance.phase)
    whys = {
        Phase.RUNNING: "its pods run",
        Phase.ADMITTED: "Kueue has admitted it, and its pods are being made",
        Phase.STARTING: "its pods are starting: nothing is known to be wrong",
        Phase.PENDING: "its controller has not made its pods yet: nothing is known to be wrong",
    }
    return Finding(glance.phase, glance.reason, glance.message, whys.get(glance.phase, ""))


def _queued(seen: Seen, now: float, message: str) -> Finding:
    job = Waiting(
        seen.queue,
        seen.workload,
        kind="jobset.x-k8s.io/jobset" if seen.train_job is None else "trainer.kubeflow.org/trainjob",
        age=seen.age(now),
        message=message,
        readable="workloads" not in seen.unseen,
        preemptor=seen.preemptor,
        no_room=seen.cramped,
    )
    found = why_queued(job)
    return Finding(
        Phase.ADMITTED if found.admitted else Phase.QUEUED, found.reason, found.message, found.why, found.hint
    )


def diagnose(seen: Seen, now: float) -> JobStatus:
    """The status of a job. now: seconds since the epoch."""
    status = _diagnosed(seen, now)
    return replace(status, message="; ".join([status.message, *seen.losses])) if seen.losses else status


def _diagnosed(seen: Seen, now: float) -> JobStatus:
    found = find(seen, now)
    known = seen.remembered
    if seen.main is None and known is not None and not seen.awaited:
        return known
    status = JobStatus(seen.name, seen.namespace) if known is None else replace(known)
    status.phase, status.reason, status.message = found.phase.value, plain(found.reason), lines(found.message)
    status.uid = status.uid or text(section(seen.main, "metadata").get("uid"))
    status.steps = [_step(seen, s, found.phase) for s in seen.steps]
    status.restarts = number(section(seen.jobset, "status").get("restarts"))
    status.created = status.created or seen.created
    status.started = min((s.started for s in status.steps if s.started), default=0.0)
    status.finished = _finished(seen) if found.phase in (Phase.SUCCEEDED, Phase.FAILED) else 0.0
    status.progress = dict(seen.progress) if seen.progress else _reported(seen) or status.progress
    return status


def why(seen: Seen, status: JobStatus, now: float) -> str:
    """One paragraph: what the job waits for or why it has ended, and what to do. status: what `diagnose` has said of it."""
    found = find(seen, now)
    since = now - (status.finished or _since(seen, found.phase) or status.created or now)
    ago = f" for {duration(since)}" if since >= 1 and not found.phase.terminal else ""
    ago = f" {duration(since)} ago" if since >= 1 and status.finished else ago
    reason = f" ({found.reason})" if found.reason else ""
    said = ended(found.why or found.message)
    told = f"{seen.namespace}/{seen.name} is {found.phase}{reason}{ago}: {said}"
    if "\n" in said:  # lines of a log end it, each on one of its own
        return "\n".join(filter(None, (told, *map(_sentence, seen.losses), _sentence(found.mend))))
    return " ".join(filter(None, (f"{told}.", *map(_sentence, seen.losses), _sentence(found.mend))))


def _sentence(text_: str) -> str:
    return f"{text_[:1].upper()}{text_[1:]}" + ("" if text_[-1:] in (".", "?", "!", "") else ".")


def _beside(again: Finding, trouble: Finding | None) -> Finding:
    """A restart, and what holds it up."""
    if trouble is None:
        return again
    return replace(
        again,
        message=f"{again.message}; {trouble.reason}: {trouble.message}",
        why=f"{again.why}; now {trouble.why}",
        mend=trouble.mend,
    )


def _by_hand(seen: Seen) -> str:
    """When it was suspended."""
    at = text(true(conditions(seen.main), "Suspended").get("lastTransitionTime"))
    return f" (since {at})" if at else ""


def _since(seen: Seen, phase: Phase) -> float:
    """When it came into that phase, as far as a condition says so."""
    if phase == Phase.QUEUED:
        times = [
            c.get("lastTransitionTime")
            for c in conditions(seen.workload)
            if c.get("type") in ("QuotaReserved", "Evicted")
        ]
        return max((seconds(t) for t in times), default=0.0)
    types = {Phase.SUSPENDED: "Suspended", Phase.RESTARTING: "RestartingJobSet"}
    return seconds(condition(conditions(seen.jobset), types.get(phase, "")).get("lastTransitionTime"))


def _finished(seen: Seen) -> float:
    for document, types in ((seen.jobset, ("Completed", "Failed")), (seen.train_job, ("Complete", "Failed"))):
        for type_ in types:
            if found := true(conditions(document), type_):
                return seconds(found.get("lastTransitionTime"))
    return 0.0


def _reported(seen: Seen) -> dict[str, object] | None:
    """What the training has told Trainer's own status server."""
    found = section(seen.train_job, "status", "trainerStatus")
    return dict(found) if found else None


def _step(seen: Seen, step: dict[str, object], phase: Phase) -> Step:
    name = text(step.get("name"))
    jobs = seen.jobs_of(name)
    counts = next(
        (r for r in rows(section(seen.jobset, "status").get("replicatedJobsStatus")) if r.get("name") == name), {}
    )
    states = [section(j, "status") for j in jobs]
    here = [p for p in seen.pods if labels_of(p).get(STEP) == name]
    again = counts.get("jobRestarts")
    restarted = sum(map(number, again)) if isinstance(again, list) else 0
    found = Step(
        name,
        count=pods_of(step),
        active=sum(number(s.get("active")) for s in states),
        ready=sum(number(s.get("ready")) for s in states),
        succeeded=sum(number(s.get("succeeded")) for s in states),
        failed=sum(number(s.get("failed")) for s in states),
        restarts=restarted + sum(c.restarts for p in here for c in containers(p)),
        started=min((t for s in states if (t := seconds(s.get("startTime")))), default=0.0),
    )
    size = replicas_of(step)
    if number(counts.get("failed")):
        found.phase = Phase.FAILED.value
    elif size and number(counts.get("succeeded")) >= size:
        found.phase = Phase.SUCCEEDED.value
    elif number(counts.get("suspended")) and phase in (Phase.SUSPENDED, Phase.QUEUED):
        found.phase = Phase.SUSPENDED.value
    elif found.active:
        found.phase = (Phase.RUNNING if found.ready else Phase.STARTING).value
    if found.phase in (Phase.FAILED, Phase.SUCCEEDED):
        ends = [
            seconds(s.get("completionTime")) or seconds(true(conditions(j), "Failed").get("lastTransitionTime"))
            for j, s in zip(jobs, states, strict=True)
        ]
        found.finished = max(ends, default=0.0)
    return found
