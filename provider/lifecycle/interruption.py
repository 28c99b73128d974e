"""What a change or a removal means for an unfinished run: why it is rejected, what it ends, and what the next run continues."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.jobs.manual import SUSPENDED, utc_time
from pulumi_trainer.provider.jobs.status import NOT_STARTED, JobStatus, Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused, TrainerError, several
from pulumi_trainer.provider.kubernetes.values.accessors import items, number, section
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, jobs_of
from pulumi_trainer.provider.lifecycle.continuation import Start, find_start, with_progress
from pulumi_trainer.provider.lifecycle.interruption_cost import interruption_cost, newest_checkpoint, whole_cost
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs, JobOutputs
from pulumi_trainer.provider.lifecycle.target import Cluster, Connect
from pulumi_trainer.provider.trainer.labels import patched_jobs

DEFAULT_GRACE = 30
"""`terminationGracePeriodSeconds` of a Pod that declares none."""
WAIT = 'Wait until it has finished, or set interrupt="allow" on the TrainJob'


@dataclass(frozen=True)
class Interruption:
    """What a change means for an unfinished run: why it is rejected, or what it does to the run."""

    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def interrupt(olds: JobInputs, news: JobInputs, reasons: Sequence[str], connect: Connect) -> Interruption:
    """Return what a change means that starts a new run: it ends the previous one, if that is unfinished."""
    status, fault = _status_before(olds, connect)
    start, resumed = _continuation(olds, news, connect, status)
    if resumed.failures:
        return resumed
    if fault is not None:
        why = f"cannot find out whether {olds.where} is still running: {fault}"
        if news.interrupt == "allow":
            return Interruption(notes=(f"{why}. This change ends it if it is", *resumed.notes))
        if isinstance(fault, Refused):
            why = str(fault)
        return Interruption((why,))
    if status is None or status.terminal or not olds.whose.owns(status.whose):
        return resumed
    if status.reason == NOT_STARTED and not status.started:
        return resumed
    loss = _loss(status, start)
    if may_interrupt(olds, news):
        return Interruption(notes=(_end_note(olds, news, status, start, loss), *resumed.notes))
    shown = several(reasons)
    why = f"{olds.where} is {_unfinished(status)}, but this change would end it and start a new run: {shown}."
    if loss:
        why += f" It {loss}."
    return Interruption((f"{why} {wait_hint(status, olds, news)}",))


def may_interrupt(olds: JobInputs, news: JobInputs) -> bool:
    """Return whether a change may end the run of a job, if it is unfinished."""
    return news.interrupt == "allow" or (news.interrupt == "checkpoint" and saves_checkpoints(olds.documents))


def _status_before(olds: JobInputs, connect: Connect) -> tuple[JobStatus | None, TrainerError | None]:
    """Return the status of the run before a new one, with what it has reported, or why it cannot be read."""
    try:
        target = connect(olds.target)
        status = target.jobs.status(olds.namespace, olds.name)
    except TrainerError as fault:
        return None, fault
    return None if status is None else with_progress(status, target), None


def _loss(status: JobStatus, start: Start) -> str:
    """Return what a job would lose if a new run replaced it, or what it has kept if it is suspended; empty if unknown."""
    step = section(status.progress).get("step")
    if start.unused is None or not isinstance(step, int):
        return ""
    if start.unused:
        return str(whole_cost(status, time.time(), start.unused) or "")
    if status.phase == Phase.RUNNING:
        return str(interruption_cost(status, time.time(), start.checkpoints) or "")
    saved, _ = newest_checkpoint(status, start.checkpoints)
    if saved is not None:
        return f"has a checkpoint of step {saved:,}"
    if status.phase == Phase.SUSPENDED and status.checkpoints:
        none = "has reported no checkpoint" if start.checkpoints is None else "has no complete checkpoint"
        return f"has done {step:,} steps and {none}"
    return ""


def _end_note(olds: JobInputs, news: JobInputs, status: JobStatus, start: Start, loss: str) -> str:
    """Return what a change does to the unfinished run of a job that it may end."""
    ends = f"{olds.where} is {_unfinished(status)}, and this change ends it"
    has_pods = status.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
    may_save = saves_checkpoints(olds.documents) and start.unused == ""
    if has_pods and (may_save or news.interrupt == "checkpoint"):
        grace = max(map(_grace, olds.documents.values()), default=0) or DEFAULT_GRACE
        ends += f": its Pods get SIGTERM, and up to {grace} s to save a checkpoint"
        return f"{ends}; it {loss}" if loss else ends
    return f"{ends}: it {loss}" if loss else ends


def continue_run(olds: JobInputs, news: JobInputs, connect: Connect) -> Interruption:
    """Return which run a new run continues, if the job keeps anything for it, or why it cannot continue the one that it names."""
    return _continuation(olds, news, connect, _status_before(olds, connect)[0])[1]


def _continuation(
    olds: JobInputs, news: JobInputs, connect: Connect, status: JobStatus | None
) -> tuple[Start, Interruption]:
    """Return where a new run starts, and what `continue_run` returns."""
    try:
        start = find_start(olds, news, connect(olds.target), status)
    except Invalid as unknown_run:
        return Start(unused=None), Interruption((f"{olds.where}: {unknown_run}",))
    except TrainerError as fault:
        start = Start(f"{olds.where}: which run the new run continues is not known: {fault}", unused=None)
    lost = _lost_checkpoints(olds, news, start.left)
    if lost:
        return start, Interruption((lost,))
    return start, Interruption(notes=(start.note,) if start.note else ())


def _lost_checkpoints(olds: JobInputs, news: JobInputs, place: str) -> str:
    """Return why a change is rejected that deletes the volume with the checkpoints of a run that may be continued; else empty.
    place: Where the checkpoints of the run are that the new one does not continue; empty if there are none."""
    if news.interrupt == "allow" or not saves_checkpoints(olds.documents):
        return ""
    is_kept = place.startswith("s3://") or place in json.dumps(news.objects, default=str) or olds.retain
    if not place or is_kept:
        return ""
    why = f"{olds.where} keeps its checkpoints in the volume {place}, which would be deleted with this change"
    return f'{why}. Keep the volume (output=True or OutputVolume(retain=True)), or set interrupt="allow"'


def _grace(document: Mapping[str, Any]) -> int:
    """Return the longest grace period that the Pods of a JobSet or the patches of a TrainJob declare in seconds; 0 for none."""
    jobs: list[ReplicatedJob] = []
    if document.get("kind") == "JobSet":
        jobs = jobs_of(document)
    elif document.get("kind") == "TrainJob":
        for patch in items(section(document, "spec"), "runtimePatches"):
            jobs += patched_jobs(patch)
    return max((number(job.pod.spec.get("terminationGracePeriodSeconds")) for job in jobs), default=0)


def wait_hint(status: JobStatus, olds: JobInputs, news: JobInputs) -> str:
    """Return what to do about a change that would end an unfinished run."""
    if news.interrupt == "checkpoint":
        why = 'interrupt="checkpoint" needs a checkpoint policy, which this run does not have'
        return f"{wait_hint(status, olds, replace(news, interrupt='refuse'))}: {why} (checkpoint=)"
    if status.phase == Phase.RUNNING and saves_checkpoints(olds.documents):
        return f'{WAIT}, or interrupt="checkpoint" to save a checkpoint first'
    if status.reason == SUSPENDED:
        return f"Run `pulumi-trainer resume` and `pulumi up` without this change. {WAIT}"
    if status.phase == Phase.SUSPENDED:
        return f"Resume it without this change (suspend=False). {WAIT}"
    if status.reason == NOT_STARTED:
        return f"Run `pulumi up` without this change, which starts it. {WAIT}"
    return WAIT


def removal_notes(outputs: JobOutputs, connect: Connect) -> tuple[str, ...]:
    """Return a note if a job that is removed from the program is unfinished, so that its deletion ends it, or if it cannot be
    deleted.
    """
    if outputs.retain:
        return ()
    silent = silent_workers(outputs, connect)
    if silent:
        why = f"{outputs.where} was removed from the program, but this update cannot delete it"
        return tuple(f"{why}: {problem}" for problem in silent)
    status = status_if_reachable(outputs, connect)
    if status is None or status.terminal or not outputs.whose.owns(status.whose):
        return ()
    return (
        f"{outputs.where} is {_unfinished(status)}, and was removed from the program: this update ends it and"
        " deletes it",
    )


def silent_workers(job: JobInputs | JobOutputs, connect: Any) -> tuple[Problem, ...]:
    """Return which worker clusters do not answer, and may go on with a job that is deleted here."""
    if not job.workers:
        return ()
    try:
        cluster: Cluster = connect(job.target)
        cluster.jobs.check_workers(job.namespace, job.name)
    except TrainerError as fault:
        return fault.problems
    return ()


def status_if_reachable(job: JobInputs | JobOutputs, connect: Connect) -> JobStatus | None:
    """Return the status of a job; None if it is gone or its target cannot be asked."""
    try:
        return connect(job.target).jobs.status(job.namespace, job.name)
    except TrainerError:
        return None


def own_status(olds: JobInputs, connect: Connect) -> JobStatus | None:
    """Return the status of the job; None if it is gone, belongs to another stack, or is not readable."""
    status = status_if_reachable(olds, connect)
    if status is None or not olds.whose.owns(status.whose):
        return None
    return status


def _unfinished(status: JobStatus) -> str:
    """Return the phase of a job, and since when it has it: a suspended one since its Pods have ended."""
    began = status.started or status.created
    if status.phase == Phase.SUSPENDED and status.attempts:
        began = status.attempts[-1].finished
    if not began:
        return status.phase
    return f"{status.phase} since {utc_time(began)}"
