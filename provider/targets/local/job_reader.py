"""Reads the jobs of this machine: their records, status, runs and owners. All state is in files, so any process may read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.lineage import identified
from pulumi_trainer.provider.jobs.manual import STOPPED, SUSPENDED, Override
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.observed_inputs import DATA, PACKAGES, PYTHON
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import (
    NOT_STARTED,
    OUTCOME_UNKNOWN,
    UNKNOWN_END,
    JobStatus,
    Owner,
    Phase,
    Presence,
    may_have_ended,
)
from pulumi_trainer.provider.jobs.submission import Consumer, Submission, another_run, differences
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Unreadable, several
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.lifecycle.usage_report import earlier_runs, recorded_run
from pulumi_trainer.provider.lifecycle.usage_sums import Ran
from pulumi_trainer.provider.targets.local import logs, supervision, volumes
from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder, discard, unreadable


class JobReader:
    """The jobs below one folder, on one host; the arguments are those of `LocalTarget`."""

    tuning = Tuning()

    def __init__(self, root: Path, python: str, environments: Path) -> None:
        self.root = root
        self.python = python
        self.environments = environments
        self.host = host_id()
        self.isolation = ""

    def drift(self, namespace: str, name: str) -> dict[str, object]:  # noqa: ARG002
        """Return {}: only this program changes a job of this machine."""
        return {}

    def is_suspended(self, namespace: str, name: str) -> bool:
        """Return whether a job is suspended, by its program or by a user, also while its processes still end."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        return record is not None and record.suspended

    def suspension(self, namespace: str, name: str) -> Override | None:
        """Return who has suspended or resumed a job with `pulumi-trainer`; None if nobody has."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        return None if record is None else record.override

    def update_secrets(self, submission: Submission) -> None:
        """Do nothing: a job gets the values of its Secrets when it is started or resumed."""

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """Return the current status of a job; None if not found. Ends the processes of a job whose supervisor has died."""
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return None
        record.check_host()
        status = self._current_status(folder, record)
        if status is not None:
            return status
        with folder.guard():
            record = Record.find(folder)
            if record is None:  # deleted before the lock was free
                discard(folder.path, self.root)
                return None
            return self._known_status(folder, record)

    def cached_status(self, namespace: str, name: str, uid: str, phase: str, owner: Owner) -> JobStatus | None:
        """Return the status of a job, with the reason if its files are damaged or gone; None if not found. owner: Owner of the
        job in the state, which counts for a job whose files are damaged or gone."""
        try:
            status = self.status(namespace, name)
        except Unreadable as fault:
            return _lost_status(namespace, name, owner, str(fault), Phase.UNKNOWN)
        if status is None and may_have_ended(phase):
            return replace(_lost_status(namespace, name, owner, UNKNOWN_END), uid=uid)
        return status

    def presence(self, namespace: str, name: str, beside: Collection[str] = ()) -> Presence | None:  # noqa: ARG002
        """Return whether a job exists, and its owner; None if it runs on another host."""
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return Presence()
        if record.host != self.host:
            return None
        status = None
        with suppress(Unreadable):
            status = self._current_status(folder, record)  # a preview writes nothing, not even that a job is lost
        note = ""
        if status is not None and not status.terminal:
            note = record.override_note
        if status is not None and status.reason == STOPPED:
            note = status.message
        return Presence(record.whose, not_started=status is not None and status.reason == NOT_STARTED, note=note)

    def check_adoption(self, submission: Submission) -> str:
        """Return a note about the job that `create` would adopt; empty if it would not adopt one."""
        found = Record.find(JobFolder.of(self.root, submission.namespace, submission.name))
        me = Owner(submission.owner, submission.sweep)
        if found is None or (found.owner == me.id and found.whose.stack in ("", me.stack)):
            return ""
        check_same_objects(found, identified(submission, found.identity))
        return f"belongs to {found.whose.called_by(me)} and is taken over"

    def progress(self, status: JobStatus) -> dict[str, Any] | None:
        """Return what rank 0 of a job has reported. status: The current status of the job."""
        return status.progress

    def runs(self, namespace: str, name: str) -> list[Run]:
        """Return the runs of the job of that name, the newest last; empty if not found."""
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return []
        status = self._current_status(folder, record) or record.status(Phase.FAILED)
        return runs_of(folder, record, status)

    def usage(self, namespace: str, name: str) -> list[Ran]:
        """Return the times for which the job of that name has run; empty if not found.

        A job without a supervisor, because it is suspended or was killed, has run until its status was last written.
        """
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return []
        found = [*earlier_runs(namespace, name, record.earlier, record.created)]
        supervised = folder.supervised()
        status = folder.read_status() or record.status(Phase.PENDING)
        if status.created != record.created:  # `rerun` was interrupted; the run of the status is among the earlier ones
            return found
        if status.started and not status.finished and not supervised:
            status = replace(status, finished=folder.status.stat().st_mtime)
        return [*found, *recorded_run(namespace, name, record.demand, status.started, status.finished)]

    def current_owner(self, namespace: str, name: str) -> Owner | None:
        found = Record.find(JobFolder.of(self.root, namespace, name))
        return None if found is None else found.whose

    def list_all(self) -> list[JobStatus]:
        """Return the status of all jobs of this host; if the files of a job are damaged, the reason is in its status."""
        found: list[JobStatus | None] = []
        mine = [r for r in self.records(found.append) if r.host == self.host]
        found += [self.cached_status(r.namespace, r.name, r.uid, "", r.whose) for r in mine]
        return [status for status in found if status is not None]

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """Return the jobs that were created from a runtime, and a note about jobs that cannot be read."""
        unreadable_jobs: list[JobStatus] = []
        found = []
        for r in self.records(unreadable_jobs.append):
            if r.host == self.host and r.runtime.get("name") == runtime:
                found.append(r.consumer(self.cached_status(r.namespace, r.name, r.uid, "", r.whose)))
        unseen = [f"what job {s.namespace}/{s.name} uses could not be seen: {s.message}" for s in unreadable_jobs]
        return found, several(unseen)

    def runtime_of(self, namespace: str, name: str) -> tuple[str, str]:
        """Return name and release of the runtime that a job was created from; empty strings if unknown."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        if record is None:
            return "", ""
        return str(record.runtime.get("name", "")), str(record.runtime.get("release", ""))

    def records(self, report: Callable[[JobStatus], None] = lambda _: None) -> list[Record]:
        """Return the records of all jobs. report: receives the status of each job whose record is damaged."""
        found = []
        for file in sorted((self.root / "jobs").glob("*/*/record.json")):
            try:
                record = Record.find(JobFolder(file.parent))
            except Unreadable as fault:
                report(_lost_status(file.parent.parent.name, file.parent.name, Owner(""), str(fault), Phase.UNKNOWN))
            else:
                if record is not None:
                    found.append(record)
        return found

    def users(self, namespace: str, claim: str, beside: str = "") -> Iterator[tuple[Record, float]]:
        """Yield the unfinished jobs that mount a claim, and their start. beside: name of a job to leave out."""
        for record in self.records():
            if record.name != beside and record.namespace == namespace and claim in volumes.claims(record.jobset):
                status = self.cached_status(namespace, record.name, record.uid, "", record.whose)
                if status is not None and not status.terminal:
                    yield record, status.started or status.created

    def _known_status(self, folder: JobFolder, record: Record) -> JobStatus:
        """Return the status of a job, and fail it if its supervisor has died. The caller has the lock."""
        return self._current_status(folder, record, locked=True) or supervision.fail_lost_job(folder, record)

    def _current_status(self, folder: JobFolder, record: Record, *, locked: bool = False) -> JobStatus | None:
        """Return the current status of a job; None if its supervisor has died. locked: Whether the caller has the lock."""
        supervised = folder.supervised()
        status = folder.read_status()
        if status is not None:
            status.owner, status.digest = record.owner, record.digest
            status.stack, status.program = record.stack, record.program
            status.output, status.logs = record.result(status.phase), str(folder.logs)
            status.identity = record.identity
            status.run, status.inputs = record.run, {**record.inputs, **only(status.inputs, (*DATA, PACKAGES, PYTHON))}
            if status.terminal:
                if record.ttl is not None and time.time() >= status.finished + record.ttl:
                    if locked:
                        folder.expire()
                    else:
                        _expire(folder, record)
                return status
        if status is None or status.phase == Phase.SUSPENDED:
            if record.suspended:
                suspended = status or record.status(Phase.SUSPENDED, "SuspendedJobs")
                reason = "SuspendedJobs"
                if record.override_note:
                    reason = SUSPENDED
                return replace(suspended, reason=reason, message=record.override_note)
            before = status or record.status(Phase.PENDING)
            if supervised:
                return replace(record.status(Phase.STARTING), attempts=before.attempts)
            if status is None and folder.has_begun():
                raise unreadable(folder.status, "is gone, so it is unknown how the job has ended")
            pending = record.status(Phase.PENDING, NOT_STARTED, self._why_not_started(folder))
            return replace(pending, attempts=before.attempts, started=before.started)
        if not supervised:
            return None
        return status

    def _why_not_started(self, folder: JobFolder) -> str:
        lines = logs.last_lines(folder.supervisor_log, 5)
        return "\n".join(["its supervisor was killed or has never been started; `pulumi up` starts it", *lines])


def runs_of(folder: JobFolder, record: Record, status: JobStatus) -> list[Run]:
    """Return the runs of a job with their metrics, the newest last. status: Status of the current run, or of the one before."""
    found = [replace(run, history_text=folder.read_metrics(run.id)) for run in record.runs(status)]
    if found and not found[-1].metrics:  # the record has those of earlier runs
        found[-1] = replace(found[-1], metrics=Metrics.from_text(found[-1].history_text).summary())
    return found


def _lost_status(namespace: str, name: str, owner: Owner, why: str, phase: Phase = Phase.DELETED) -> JobStatus:
    """Return the status of a job whose files are damaged or gone."""
    return JobStatus(
        name,
        namespace,
        owner=owner.id,
        phase=phase.value,
        reason=OUTCOME_UNKNOWN,
        message=why,
        stack=owner.stack,
        program=owner.program,
    )


def _expire(folder: JobFolder, record: Record) -> None:
    """Remove what the time to live limits, unless another call works on the job or a new run has begun meanwhile."""
    lock = folder.try_guard()
    if lock is None:  # the next call does it
        return
    try:
        now = Record.find(folder)
        if now is not None and now.uid == record.uid:
            folder.expire()
    finally:
        os.close(lock)


def check_same_objects(record: Record, submission: Submission) -> None:
    differing = [*differences(record.objects, submission.objects), *another_run(record.run, submission)]
    if differing:
        where, why = f"{record.namespace}/{record.name}", f"cannot be adopted: it differs in {', '.join(differing)}"
        raise Conflict(Problem(where, why, "make the program match the live job, or give the TrainJob another name"))
