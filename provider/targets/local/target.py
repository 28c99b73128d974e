"""Implements the Local target: JobSets as processes of this machine.

Calls that end processes take up to their grace period, all others return immediately. All state is in files, so any process may
call.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs.attempts import before_rerun
from pulumi_trainer.provider.jobs.lineage import identified, rerun_identity, started
from pulumi_trainer.provider.jobs.manual import STOPPED, SUSPENDED, Override, not_ended_problem
from pulumi_trainer.provider.jobs.observed_inputs import DATA, PACKAGES, PYTHON
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.runs import Run, metrics_of, read_runs
from pulumi_trainer.provider.jobs.status import (
    NOT_STARTED,
    OUTCOME_UNKNOWN,
    UNKNOWN_END,
    JobStatus,
    Loss,
    Owner,
    Phase,
    Presence,
    may_have_ended,
)
from pulumi_trainer.provider.jobs.submission import Consumer, Draft, Objects, Submission, another_run, differences
from pulumi_trainer.provider.kubernetes.errors import (
    Conflict,
    Invalid,
    Problem,
    Refused,
    TargetFault,
    TrainerError,
    Unreadable,
    several,
)
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.lifecycle.usage_report import Ran, earlier_runs, recorded_run
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.pod.code import with_user_paths
from pulumi_trainer.provider.targets import generated_secrets
from pulumi_trainer.provider.targets.local import isolation, local_limits, logs, places, process, volumes
from pulumi_trainer.provider.targets.local.claims import Claim
from pulumi_trainer.provider.targets.local.environment import inherited
from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.local.paths import (
    EARLIER_LOGS,
    FILE_MODE,
    inside,
    keep_out_of_projects,
    remove_temporaries,
    remove_tree,
    root_problems,
    translate_os_errors,
)
from pulumi_trainer.provider.targets.local.plan import Site
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.record import Record, sweep_label
from pulumi_trainer.provider.targets.local.store import (
    VOLUME,
    JobFolder,
    discard,
    read_json,
    unreadable,
    write_file,
    write_json,
)

LOST_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for processes whose supervisor has died."""

STUCK_SECONDS = 15.0
"""Seconds beyond the grace period after which a supervisor that has not ended its job is killed."""

_children: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process has started, so that it reaps them."""
_children_lock = threading.Lock()


class LocalTarget:
    """Jobs and volumes below one folder, on one host.

    Args:
        root: Folder of the jobs and volumes, such as `<project>/.pulumi-trainer`.
        python: Interpreter that replaces the images; its folder is the first in PATH. Default: the interpreter of this process.
        environments: Folder of the cached Python environments. Default: `~/.cache/pulumi-trainer/environments`.
    """

    tuning = Tuning()

    def __init__(self, root: str | Path, *, python: str = sys.executable, environments: Path | None = None) -> None:
        self.root = Path(root).absolute()
        self.python = python
        self.environments = environments or cache_folder() / "environments"
        self.host = host_id()
        self.isolation = ""

    def review(
        self, objects: Objects, secrets: local_limits.Keys | None = None, exists: Callable[[], bool] = lambda: False
    ) -> tuple[list[Problem], list[Problem]]:
        """Return why this machine refuses jobs, and its warnings.

        Args:
            secrets: The Secrets, with their keys, that are submitted with the jobs; None to skip their review.
            exists: Returns whether the job exists, so that it does not need what the machine lacks now.
        """
        refused = [*local_limits.refusals(objects, secrets), *local_limits.too_many_pods(objects)]
        warnings = local_limits.warnings(objects)
        missing, unsure = local_limits.missing_programs(objects, self.python)
        lacking = local_limits.missing_interpreter(objects, self.python) or missing
        lacking += [*root_problems(self.root), *local_limits.invalid_arguments(objects)]
        lacking += [*local_limits.too_few_gpus(objects), *local_limits.too_many_files(objects)]
        lacking += local_limits.missing_packages(objects)
        if self.isolation:
            lacking += isolation.problems()
        if (lacking or unsure) and exists():
            lacking, unsure = [], []
        return [*refused, *lacking, *self._claimed_elsewhere(objects)], warnings + unsure

    def has_job(self, draft: Draft) -> bool:
        """Return whether the job exists with the digest of the draft."""
        if not isinstance(draft.namespace, str) or not isinstance(draft.digest, str):
            return False
        with suppress(TrainerError):
            record = Record.find(JobFolder.of(self.root, draft.namespace, draft.name))
            return record is not None and record.digest == draft.digest
        return False

    def other_settings(self, draft: Draft) -> list[Problem]:
        """Return warnings that the job failed with another interpreter, or is isolated otherwise; only a new run takes these."""
        if not isinstance(draft.namespace, str) or not isinstance(draft.digest, str):
            return []
        with suppress(TrainerError):
            folder = JobFolder.of(self.root, draft.namespace, draft.name)
            record = Record.find(folder)
            if record is not None and record.digest == draft.digest:
                return [*self._differences(record, folder.read_status())]
            if record is not None and record.isolation and not self.isolation:
                why = (
                    f"ran with isolation={record.isolation!r}, but its next run would have access to everything"
                    " that you can access"
                )
                return [Problem(f"{record.namespace}/{record.name}", why, "give Local(isolation=...) again")]
        return []

    def _differences(self, record: Record, status: JobStatus | None) -> Iterator[Problem]:
        where = f"{record.namespace}/{record.name}"
        if status is not None and status.phase == Phase.FAILED and record.python != self.python:
            why = f"failed with the interpreter {record.python}, but target.python is {self.python} now"
            yield Problem(where, why, 'run="2" runs it again with the new one')
        if record.isolation != self.isolation:
            was, now = _shown_isolation(record.isolation), _shown_isolation(self.isolation)
            yield Problem(
                where, f"was created with {was}, but the program has {now}", 'run="2" runs it again with the new value'
            )

    def create(self, submission: Submission, *, adopt: bool = False, first_uid: str = "") -> JobStatus:
        """Create a job and start its supervisor, unless it is suspended. Idempotent for the same owner and digest.

        Args:
            adopt: Whether to take over a job of another owner that has the same objects.
            first_uid: UID by which the stack's state knows the job; empty for that of its record.

        Returns:
            The status of the job.

        Raises:
            Invalid: This machine cannot run the job.
            Conflict: Another job has the name, or it differs.
            Refused: A path is not safe, or the job runs on another host.
            TargetFault: The folder of the job cannot be written.
        """
        refused = [
            *local_limits.invalid_names(submission.objects),
            *local_limits.refusals(submission.objects, submission.secrets),
        ]
        if refused:
            raise Invalid(*refused)
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                submission = started(submission, time.time())
                record = Record.of(submission, self._site(folder), self.tuning, self.isolation)
                record = replace(record, first_uid=first_uid)
                _limit_logs(folder, record)
                self._create_claims(record)
                _store_source(folder, submission)
                record.write(folder)
                folder.keep_metrics(submission.earlier)
                keep_out_of_projects(self.root)
                record.write_run_manifest(record.inputs)
                remove_outdated_folders(record)
            else:
                record = self._take_over(folder, record, submission, adopt)
            self._start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def identity(self) -> dict[str, str]:
        """Return {}: `host` in the `target` input identifies this machine."""
        return {}

    def limit_jobs(self, limit: int | None) -> None:
        """Set how many jobs of the root run at once, also for those that wait already. None: the default.

        Raises:
            TargetFault: The root cannot be written.
        """
        places.set_limit(self.root, limit)

    def drift(self, namespace: str, name: str) -> dict[str, object]:  # noqa: ARG002
        """Return {}: only this program changes a job of this machine."""
        return {}

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:  # noqa: ARG002
        """Update suspend, ttlSecondsAfterFinished and metadata of a job, or all of a suspended job.

        Args:
            force: Has no effect: only this program changes the job.

        Returns:
            The status of the job.

        Raises:
            Invalid: This machine cannot run the job.
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        refused = [
            *local_limits.invalid_names(submission.objects),
            *local_limits.refusals(submission.objects, submission.secrets),
        ]
        if refused:
            raise Invalid(*refused)
        owner = Owner(submission.owner, submission.sweep)
        with self._locked(submission.namespace, submission.name, owner) as (folder, record):
            self._known_status(folder, record)
            submission = identified(submission, record.known_identity)
            changed = Record.of(submission, self._site(folder, record.uid), record.tuning, record.isolation)
            names = (
                "host",
                "hostname",
                "created",
                "temporary",
                "visible_gpus",
                "earlier",
                "first_uid",
                "stop",
                "attempts",
            )
            kept = {name: getattr(record, name) for name in names}
            record = replace(changed, **kept).with_override(Override.from_dict(record.override))
            self._create_claims(record)
            _store_source(folder, submission)
            record.write(folder)
            self._start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def set_suspend(
        self, namespace: str, name: str, owner: Owner, override: Override, submission: Submission | None = None
    ) -> JobStatus:
        """Suspend or resume a job, whatever its program has. If it is so already, the override stays.

        Args:
            override: The value of `suspend`.
            submission: For a resumption, the job as its stack has it, with the values of its Secrets.

        Returns:
            The status; of a job that has ended the unchanged one.

        Raises:
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        with self._locked(namespace, name, owner) as (folder, record):
            status = self._known_status(folder, record)
            if status.terminal:
                return status
            if record.suspended != override.suspend:  # keep who has suspended or resumed it first
                record = record.with_override(override)
                record.write(folder)
            if submission is not None:
                self._start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def is_suspended(self, namespace: str, name: str) -> bool:
        """Return whether a job is suspended, by its program or by a user, also while its processes still end."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        return record is not None and record.suspended

    def suspension(self, namespace: str, name: str) -> Override | None:
        """Return who has suspended or resumed a job with `pulumi-trainer`; None if nobody has."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        return None if record is None else Override.from_dict(record.override)

    def stop(self, namespace: str, name: str, owner: Owner, message: str) -> JobStatus:
        """End a job for good within its grace period; its record, logs and volumes stay.

        Returns:
            The status; of a job that has ended before the unchanged one.

        Raises:
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        with self._locked(namespace, name, owner) as (folder, record):
            status = self._known_status(folder, record)
            if status.terminal:
                return status
            record = replace(record, stop=message)
            record.write(folder)
            if not _is_unsupervised(folder, record.grace + STUCK_SECONDS):
                self._end(folder, record, None)
            status = folder.read_status() or record.status(Phase.PENDING)
            if not status.terminal:
                status.fail(STOPPED, message, time.time())
                folder.write_last(status)
            return self._known_status(folder, record)

    def rerun(self, submission: Submission, uid: str = "") -> JobStatus:
        """Run a job that has ended again. Its volumes stay, and the logs of its earlier runs.

        Args:
            submission: The job as its stack has it, with the values of its Secrets.
            uid: UID by which the stack's state knows the job, which is created again if its folder is gone.

        Raises:
            Refused: The job has not ended, or a volume that it mounts is gone.
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        owner = Owner(submission.owner, submission.sweep)
        if uid and Record.find(JobFolder.of(self.root, submission.namespace, submission.name)) is None:
            return self.create(submission, first_uid=uid)
        with self._locked(submission.namespace, submission.name, owner) as (folder, record):
            status = self._known_status(folder, record)
            if not status.terminal:
                raise Refused(not_ended_problem(status))
            lost = self._lost_claims(record, status)
            if lost:
                raise Refused(*lost)
            _is_unsupervised(folder, STUCK_SECONDS)
            identity, attempts = record.known_identity, record.attempts
            if (
                status.created == record.created
            ):  # else `rerun` was interrupted, and the run of the record has not begun
                identity = rerun_identity(identity, status.phase, status.reason)
                attempts = [asdict(each) for each in before_rerun(status.attempts)] if identity.id else []
            submission = replace(submission, earlier=_runs(folder, record, status), identity=identity)
            submission = started(submission, time.time())
            again = Record.of(submission, self._site(folder), record.tuning, self.isolation)
            again = replace(again, first_uid=record.resource_uid, attempts=attempts)
            self._create_claims(again)
            _store_source(folder, submission)
            again.write(folder)
            folder.keep_metrics(submission.earlier)
            folder.forget_run(_newest_run(record, status), again.known_identity.id)
            _limit_logs(folder, again)
            with suppress(TrainerError):  # the record has it
                again.write_run_manifest(again.inputs)
            remove_outdated_folders(again)
            self._start_if_due(folder, again, submission)
            return self._known_status(folder, again)

    @contextmanager
    def _locked(self, namespace: str, name: str, owner: Owner) -> Iterator[tuple[JobFolder, Record]]:
        """Lock an existing job of an owner, and yield its folder and record.

        Raises:
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        folder = JobFolder.of(self.root, namespace, name)
        where = f"{namespace}/{name}"
        if not folder.path.exists():
            raise TargetFault(Problem(where, "is gone", "`pulumi preview` shows what happens next"))
        folder.check_is_job()
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                discard(folder.path, self.root)
                raise TargetFault(Problem(where, "is gone", "`pulumi preview` shows what happens next"))
            record.check_host()
            if not owner.owns(record.whose):
                why = f"belongs to {record.whose.called_by(owner)}"
                raise Conflict(Problem(where, why, "give the TrainJob another name"))
            yield folder, record

    def _known_status(self, folder: JobFolder, record: Record) -> JobStatus:
        """Return the status of a job, and fail it if its supervisor has died. The caller has the lock."""
        return self._current_status(folder, record, locked=True) or self._fail_lost_job(folder, record)

    def update_secrets(self, submission: Submission) -> None:
        """Do nothing: a job gets the values of its Secrets when it is started or resumed."""

    def relabel(self, submission: Submission, was: Owner) -> None:
        """Write the label of the program's stack into the record of a job that was moved from another stack.

        Args:
            was: Owner of the job in the stack's state.

        Raises:
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner.
        """
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        with folder.guard():
            record = Record.read(folder)
            record.check_host()
            me = Owner(submission.owner, submission.sweep)
            if not was.owns(record.whose) and not me.owns(record.whose):
                where, why = f"{submission.namespace}/{submission.name}", f"belongs to {record.whose.called_by(me)}"
                raise Conflict(Problem(where, why, "give the TrainJob another name"))
            replace(record, sweep=sweep_label(submission), program=submission.program).write(folder)

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """Return the current status of a job; None if not found. Ends the processes of a job whose supervisor has died.

        Raises:
            Refused: The job runs on another host.
            Unreadable: A file of the job is damaged.
        """
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
        """Return the status of a job, with the reason if its files are damaged or gone; None if not found.

        Args:
            uid: UID of the job in the state of its stack; empty without one.
            phase: Phase of the job in the state of its stack; empty without one.
            owner: Owner of the job in the state, which counts for a job whose files are damaged or gone.
        """
        try:
            status = self.status(namespace, name)
        except Unreadable as fault:
            return _lost_status(namespace, name, owner, str(fault))
        if status is None and may_have_ended(phase):
            return replace(_lost_status(namespace, name, owner, UNKNOWN_END), uid=uid)
        return status

    def presence(self, namespace: str, name: str, beside: Collection[str] = ()) -> Presence | None:  # noqa: ARG002
        """Return whether a job exists, and its owner; None if it runs on another host.

        Args:
            beside: Other objects of the job; they are part of its record.
        """
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
        """Return a note about the job that `create` would adopt; empty if it would not adopt one.

        Raises:
            Conflict: The job differs from the submission.
        """
        found = Record.find(JobFolder.of(self.root, submission.namespace, submission.name))
        me = Owner(submission.owner, submission.sweep)
        if found is None or (found.owner == me.id and found.whose.stack in ("", me.stack)):
            return ""
        _check_same_objects(found, identified(submission, found.known_identity))
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
        return _runs(folder, record, status)

    def job_usage(self, namespace: str, name: str) -> list[Ran]:
        """Return the times for which the job of that name has run; empty if not found.

        A job without a supervisor, because it is suspended or was killed, has run until its status was last written.
        """
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return []
        found = [*earlier_runs(namespace, name, read_runs(record.earlier), record.created)]
        supervised = folder.supervised()
        status = folder.read_status() or record.status(Phase.PENDING)
        if status.created != record.created:  # `rerun` was interrupted; the run of the status is among the earlier ones
            return found
        if status.started and not status.finished and not supervised:
            status = replace(status, finished=folder.status.stat().st_mtime)
        return [*found, *recorded_run(namespace, name, record.demand, status.started, status.finished)]

    def current_owner(self, namespace: str, name: str) -> Owner | None:
        """Return the owner of the job of that name; None if not found."""
        found = Record.find(JobFolder.of(self.root, namespace, name))
        if found is None:
            return None
        return found.whose

    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False,
        grace: float | None = None,
    ) -> Owner | str | None:  # fmt: skip
        """Terminate a job's processes and remove its folder and the claims that were created for it. Idempotent.

        Args:
            uid: Delete only this run of the job; default: any run.
            owner: Delete only a job of this owner; default: any owner.
            replaced: Whether a new run of the job follows, so that the logs stay.
            grace: Seconds between SIGTERM and SIGKILL; default: each pod's terminationGracePeriodSeconds.

        Returns:
            The owner if the job belongs to another one and is not deleted; otherwise what the claims contained, or None.
        """
        notes: list[str] = []
        folder = JobFolder.of(self.root, namespace, name)
        if not folder.path.exists():
            if not replaced:
                folder.forget_logs()
            return None
        folder.check_is_job()
        with folder.guard():
            record = Record.find(folder)
            if record is not None:
                record.check_host()
                if owner is not None and not owner.owns(record.whose):
                    return record.whose
                if uid and uid != record.resource_uid:
                    return None
                self._end(folder, record, grace)
                remove_tree(volumes.memory_folder(record.uid))
                for claim, deleted in volumes.template_claims(record.jobset, name):
                    if deleted:
                        users = self._users(namespace, claim, beside=name)
                        notes.append(Claim(self.root, namespace, claim).delete_with_job(f"{namespace}/{name}", users))
                if replaced:
                    folder.keep_logs(_newest_run(record, _written_status(folder)))
            if not replaced:
                folder.forget_logs()
            discard(folder.path, self.root)
        mounted: set[str] = set()
        if record is not None:
            mounted = volumes.claims(record.jobset)
        if mounted:
            for file in volumes.claim_folder(self.root, namespace, "").glob(f"*/{VOLUME}"):
                claim = file.parent.name
                if claim in mounted:
                    Claim(self.root, namespace, claim).remove_left(self._users(namespace, claim))
        return "; ".join(filter(None, notes)) or None

    def jobs(self) -> list[JobStatus]:
        """Return the status of all jobs of this host; if the files of a job are damaged, the reason is in its status."""
        found: list[JobStatus | None] = []
        mine = [r for r in self._records(found.append) if r.host == self.host]
        found += [self.cached_status(r.namespace, r.name, r.uid, "", r.whose) for r in mine]
        return [status for status in found if status is not None]

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """Return the jobs that were created from a runtime, and a note about jobs that cannot be read."""
        unreadable_jobs: list[JobStatus] = []
        mine = [
            r for r in self._records(unreadable_jobs.append) if r.host == self.host and r.runtime.get("name") == runtime
        ]
        found = [r.consumer(self.cached_status(r.namespace, r.name, r.uid, "", r.whose)) for r in mine]
        return found, several(
            [f"what job {s.namespace}/{s.name} uses could not be seen: {s.message}" for s in unreadable_jobs]
        )

    def runtime_of_job(self, namespace: str, name: str) -> tuple[str, str]:
        """Return name and release of the runtime that a job was created from; empty strings if unknown."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        if record is None:
            return "", ""
        return str(record.runtime.get("name", "")), str(record.runtime.get("release", ""))

    def sweep(self, label: str, report: Callable[[str], None] = lambda _: None) -> list[str]:
        """Delete all jobs with a label, and the volumes with that label that are empty or were left to a job.

        Args:
            report: Receives a note about the content of each deleted volume.

        Returns:
            NAMESPACE/NAME of all that was deleted.
        """
        swept = []
        for record in self._records():
            if label and record.sweep == label:
                left = self.delete(record.namespace, record.name, uid=record.resource_uid, owner=record.whose)
                swept.append(f"{record.namespace}/{record.name}")
                if isinstance(left, str):
                    report(left)
        for kept in (self.root / EARLIER_LOGS).glob("*/*"):  # of jobs that a failed replacement has deleted
            if label and not (self.root / "jobs" / kept.parent.name / kept.name).exists():
                JobFolder.of(self.root, kept.parent.name, kept.name).forget_logs()
        for file in sorted((self.root / "volumes").glob(f"*/*/{VOLUME}")):
            claim, content = Claim(self.root, file.parent.parent.name, file.parent.name), None
            with suppress(Unreadable):
                if label:
                    content = claim.sweep(label)
            if content is not None:
                swept.append(f"{file.parent.parent.name}/{file.parent.name}")
                if content:
                    report(f"volume {swept[-1]} is deleted with what is in it: {content}")
        return swept

    def steps(self, namespace: str, name: str) -> list[str]:
        """Return the names of a job's steps; [] if the job is not found."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        if record is None:
            return []
        return [str(step["name"]) for step in record.jobset["spec"]["replicatedJobs"]]

    def log_files(
        self, namespace: str, name: str, step: str | None = None, earlier: str = ""
    ) -> list[tuple[str, str, Path]]:
        """Return (pod, container, file) of every container with output of a job.

        Args:
            step: The only step; default: all.
            earlier: Id of an earlier run; empty for the current one.
        """
        folder = JobFolder.of(self.root, namespace, name)
        place = inside(folder.earlier_logs, earlier) if earlier else folder.logs
        return logs.files(place, name, step)

    def dropped_logs(
        self, namespace: str, name: str, step: str | None = None, earlier: str = ""
    ) -> list[tuple[str, int]]:
        """Return pod and bytes of the logs whose beginning was replaced by newer lines.

        Args:
            step: Name of the step; None for all.
            earlier: Id of an earlier run; empty for the current one.
        """
        sizes = [(pod, logs.dropped_bytes(path)) for pod, _, path in self.log_files(namespace, name, step, earlier)]
        return [(pod, size) for pod, size in sizes if size]

    def tail(
        self,
        namespace: str,
        name: str,
        step: str | None = None,
        *,
        earlier: str = "",
        lines: int = 100,
        follow: bool = False,
        filter_of: Callable[[str], logs.LineFilter | None] = lambda _: None,
    ) -> Iterator[tuple[str, str, str]]:
        """Yield (pod, container, line) of the last lines of each log, which name files of the user's code as the project does.

        Args:
            step: Default: all steps.
            earlier: Id of an earlier run, which has ended; empty for the current one.
            lines: Number of last lines of each log.
            follow: Whether to continue with new lines until the job has ended, is suspended, or was never started.
            filter_of: Returns the filter of the last lines of a pod; None for all lines.
        """

        def over() -> bool:
            status = self.status(namespace, name)
            if status is None or status.terminal:
                return True
            return status.phase == Phase.SUSPENDED or status.reason == NOT_STARTED

        until: Callable[[], bool] | None = None
        if follow and not earlier:
            until = over
        listing = partial(self.log_files, namespace, name, step, earlier)
        for pod, container, line in logs.show(listing, lines, until, filter_of):
            yield pod, container, with_user_paths(line)

    def create_volume(
        self,
        namespace: str,
        name: str,
        owner: str,
        sweep: str,
        claim: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> dict[str, str]:
        """Create the folder of a claim, or take over an existing one with its data.

        Args:
            sweep: Label of the stack; empty if a sweep must not delete the volume.
            claim: The PersistentVolumeClaim; a folder has neither size nor class.

        Returns:
            `path` and `generation` of the volume.

        Raises:
            Conflict: The volume belongs to another owner.
        """
        return Claim(self.root, namespace, name).create(owner, sweep)

    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """Record whether the folder is retained; a folder has neither size nor class.

        Args:
            generation: Generation in the state; a volume of another generation is not changed.
            claim: The desired settings, of which only `retain` counts.
        """
        Claim(self.root, namespace, name).retain(generation, retain=bool(claim.get("retain")))

    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """Return `path` and `generation` of a volume, and its owner; None if not found."""
        return Claim(self.root, namespace, name).read()

    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss:  # noqa: ARG002
        """Return whether a volume that was created before is lost.

        Args:
            owner: Ignored: only whether the folder exists counts.
        """
        if self.volume(namespace, name) is None:
            return Loss.GONE
        return Loss.NONE

    def owned_volumes(self) -> list[tuple[str, str, str, str]]:
        """Return namespace, name, label of the stack, and generation of each volume that a program has created."""
        found = []
        for file in sorted((self.root / "volumes").glob(f"*/*/{VOLUME}")):
            with suppress(Unreadable):
                known = read_json(file) or {}
                if not known.get("job"):
                    place = file.parent.parent.name, file.parent.name
                    found.append((*place, str(known.get("sweep", "")), str(known.get("generation", ""))))
        return found

    def describe_volume(self, namespace: str, name: str) -> str:
        """Return the number of files of a volume, their size and the last change; empty if it has no files."""
        return Claim(self.root, namespace, name).describe()

    def output(self, path: str) -> Output | None:
        """Return the facts about the output folder of a job; None for a folder that is not in a volume of this target."""
        folder = Path(path)
        if not path or (self.root / "volumes") not in folder.parents:
            return None
        namespace, claim = folder.relative_to(self.root / "volumes").parts[:2]
        return Claim(self.root, namespace, claim).output(folder)

    def relabel_volume(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
        """Record owner and label for a generation of a volume that was moved from another stack.

        Args:
            generation: Generation in the state; a volume of another generation is not changed.
            sweep: Label of our stack; a retained volume keeps none.
        """
        Claim(self.root, namespace, name).relabel(generation, owner, sweep)

    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str:
        """Delete a generation of a volume with its data; a volume that an unfinished job mounts is deleted when the job ends.

        Args:
            generation: Generation in the state; a volume of another generation is not deleted.

        Returns:
            The owner if the volume has another generation; why it is not deleted yet; empty if it is deleted.
        """
        return Claim(self.root, namespace, name).delete(generation, self._users(namespace, name))

    def _site(self, folder: JobFolder, uid: str = "") -> Site:
        return Site(
            root=self.root,
            folder=folder.path,
            uid=uid or str(uuid.uuid4()),
            python=self.python,
            environments=self.environments,
            user_environment={},
        )

    def _records(self, report: Callable[[JobStatus], None] = lambda _: None) -> list[Record]:
        """Return the records of all jobs. report: receives the status of each job whose record is damaged."""
        found = []
        for file in sorted((self.root / "jobs").glob("*/*/record.json")):
            try:
                record = Record.find(JobFolder(file.parent))
            except Unreadable as fault:
                report(_lost_status(file.parent.parent.name, file.parent.name, Owner(""), str(fault)))
            else:
                if record is not None:
                    found.append(record)
        return found

    def _create_claims(self, record: Record) -> None:
        for claim, deleted in volumes.template_claims(record.jobset, record.name):
            Claim(self.root, record.namespace, claim).create_for_job(
                f"{record.namespace}/{record.name}", deleted_with_job=deleted
            )

    def _lost_claims(self, record: Record, status: JobStatus) -> list[Problem]:
        """Return the volumes of the last run that do not exist, of which another run would get empty ones.

        A step that has not started may have volumes that nobody has made yet.
        """
        own = {claim for claim, _ in volumes.template_claims(record.jobset, record.name)}
        started = [step.name for step in status.steps if step.started]
        found = []
        for claim in sorted(volumes.claims(record.jobset, started) - own):
            if not Claim(self.root, record.namespace, claim).data.is_dir():
                why = f"volume {claim} was deleted or replaced after the last run, and the job would get an empty one"
                hint = (
                    "set another run= key, and run `pulumi up`: the new run mounts the volumes that the program has now"
                )
                found.append(Problem(f"{record.namespace}/{record.name}", why, hint))
        return found

    def _claimed_elsewhere(self, objects: Objects) -> list[Problem]:
        """Return which claims of volumeClaimPolicies belong to others."""
        found = []
        for key, jobset in objects.items():
            with suppress(
                TypeError, KeyError, AttributeError, TrainerError
            ):  # unknown leaves, and what admission refuses
                if key.startswith("JobSet/"):
                    namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
                    for claim, _ in volumes.template_claims(jobset, name):
                        found += Claim(self.root, namespace, claim).conflicts(f"{namespace}/{name}")
        return found

    def _users(self, namespace: str, claim: str, beside: str = "") -> Iterator[tuple[Record, float]]:
        """Yield the unfinished jobs that mount a claim, and their start. beside: name of a job to leave out."""
        for record in self._records():
            if record.name != beside and record.namespace == namespace and claim in volumes.claims(record.jobset):
                status = self.cached_status(namespace, record.name, record.uid, "", record.whose)
                if status is not None and not status.terminal:
                    yield record, status.started or status.created

    def _take_over(self, folder: JobFolder, record: Record, submission: Submission, adopt: bool) -> Record:
        record.check_host()
        me = Owner(submission.owner, submission.sweep)
        is_owner = me.owns(record.whose)
        if is_owner and record.digest == submission.digest:
            return record
        where = f"{submission.namespace}/{submission.name}"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        if is_owner:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt:
            why = f"exists since {since} and belongs to {record.whose.called_by(me)}"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        _check_same_objects(record, identified(submission, record.known_identity))
        record = replace(
            record,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            sweep=sweep_label(submission),
            program=submission.program,
        )
        record.write(folder)
        return record

    def _start_if_due(self, folder: JobFolder, record: Record, submission: Submission) -> None:
        """Start the supervisor of a new or resumed job, or of one whose creator has died. The caller has the lock."""
        status = folder.read_status()
        fresh = status is None or status.phase == Phase.SUSPENDED
        if record.suspended or not fresh:
            return
        folder.reserve()  # before the lock: `has_begun` compares the two
        lock = folder.take_supervisor_lock()
        if lock is None:
            return
        try:
            self._start(folder, record, submission, lock)
        finally:
            os.close(lock)

    def _start(self, folder: JobFolder, record: Record, submission: Submission, lock: int) -> None:
        with _children_lock:
            _children[:] = [child for child in _children if child.poll() is None]
        path = {k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ}
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        with translate_os_errors(folder.path), os.fdopen(os.open(folder.supervisor_log, flags, FILE_MODE), "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.supervisor", str(folder.path), str(lock)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder.path,
                env={**inherited(os.environ), **path, process.MARK: record.uid},
                pass_fds=[lock],
                start_new_session=True,
            )
            with _children_lock:
                _children.append(child)
            assert child.stdin
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps(_secrets(submission)).encode())

    def _current_status(self, folder: JobFolder, record: Record, *, locked: bool = False) -> JobStatus | None:
        """Return the current status of a job; None if its supervisor has died. locked: Whether the caller has the lock."""
        supervised = folder.supervised()
        status = folder.read_status()
        if status is not None:
            status.owner, status.digest = record.owner, record.digest
            status.stack, status.program = record.sweep, record.program
            status.output, status.logs = record.result(status.phase), str(folder.logs)
            status.identity = record.known_identity
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

    def _fail_lost_job(self, folder: JobFolder, record: Record) -> JobStatus:
        """End the processes of a dead supervisor, and write and return the Failed status. The caller has the lock."""
        known = read_json(folder.supervisor)
        who = "ended by a signal"
        if known:
            who = f"pid {known.get('pid')}"
        self._end_processes(folder, record, LOST_GRACE)
        status = folder.read_status() or record.status(Phase.FAILED)
        why = "something has ended it"
        if record.created < psutil.boot_time():
            why = "the machine has been restarted"
        message = (
            f"the supervisor of this job ({who}) is gone: {why}. Its processes have been ended; `pulumi-trainer rerun` starts it"
            f" again, from its newest checkpoint if it has any; log: {folder.supervisor_log}"
        )
        lines = logs.last_lines(folder.supervisor_log, 1)
        if lines:
            message += f", which ends with: {lines[0]}"
        status.fail("SupervisorLost", message, time.time())
        folder.write_last(status)
        return status

    def _end(self, folder: JobFolder, record: Record, grace: float | None) -> None:
        """End a job, through its living supervisor so that processes can write to their pipes. The caller has the lock."""
        if grace is None:
            seconds = record.grace
        else:
            seconds = grace
            with suppress(TargetFault):
                write_json(folder.stop, {"grace": grace})
        deadline = time.monotonic() + seconds + STUCK_SECONDS
        supervisor: psutil.Process | None = None
        while folder.supervised():
            known = read_json(folder.supervisor) or {}
            found = supervisor or process.find_process(known.get("pid"), record.uid, folder.path)
            if found is not None and supervisor is None:
                with suppress(psutil.Error):
                    found.send_signal(signal.SIGTERM)
                supervisor = found
            if time.monotonic() > deadline:
                remaining: Iterable[psutil.Process]
                if found:
                    remaining = [found]
                else:
                    remaining = process.processes_with_mark(record.uid, folder.path)
                for left in remaining:
                    with suppress(psutil.Error):
                        left.kill()
                break
            time.sleep(0.01)
        if not folder.supervisor.exists():
            return
        if grace is None:
            grace = LOST_GRACE
        self._end_processes(folder, record, grace)

    def _end_processes(self, folder: JobFolder, record: Record, grace: float) -> None:
        process.end_processes(process.processes_with_mark(record.uid, folder.path), grace)
        process.kill_marked(record.uid, folder.path)
        remove_tree(volumes.memory_folder(record.uid))
        remove_temporaries(Path(record.temporary), record.uid)


def _runs(folder: JobFolder, record: Record, status: JobStatus) -> list[Run]:
    """Return the runs of a job with their metrics, the newest last. status: Status of the current run, or of the one before."""
    found = [replace(run, history=folder.read_metrics(run.id)) for run in record.runs(status)]
    return [*found[:-1], *(replace(run, metrics=metrics_of(run)) for run in found[-1:])]


def _lost_status(namespace: str, name: str, owner: Owner, why: str) -> JobStatus:
    """Return the status of a job whose files are damaged or gone."""
    return JobStatus(
        name,
        namespace,
        owner=owner.id,
        phase=Phase.DELETED.value,
        reason=OUTCOME_UNKNOWN,
        message=why,
        stack=owner.stack,
        program=owner.program,
    )


def _newest_run(record: Record, status: JobStatus | None) -> str:
    """Return the id of the run that has written the status and the logs; that of the record if there is no status."""
    if status is None:
        return record.known_identity.id
    return next((run.id for run in reversed(record.runs(status))), "")


def _written_status(folder: JobFolder) -> JobStatus | None:
    with suppress(Unreadable):
        return folder.read_status()
    return None


def _limit_logs(folder: JobFolder, record: Record) -> None:
    """Remove the logs of earlier runs that the record of the new run does not have, and those that take too much space."""
    known = {run.id for run in read_runs(record.earlier) if run.inputs}
    folder.limit_logs(known, record.tuning.bytes_of_container)


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


def _is_unsupervised(folder: JobFolder, seconds: float) -> bool:
    """Return whether the supervisor of a job ends within the time limit."""
    deadline = time.monotonic() + seconds
    while folder.supervised():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _store_source(folder: JobFolder, submission: Submission) -> None:
    """Copy the archive of the job's project into the job's folder, from which each node reads it.

    A copy of an earlier run is replaced, since it may be damaged; it is kept if the archive is not in the cache any more.
    """
    for digest in filter(None, map(source_archives.digest_of, submission.objects.values())):
        try:
            archive = source_archives.read(digest)
        except TargetFault:
            if not folder.source(digest).is_file():
                raise
            continue
        write_file(folder.source(digest), archive)


def _shown_isolation(name: str) -> str:
    """Return an isolation as it is written in a program."""
    if not name:
        return "no isolation"
    return f"isolation={name!r}"


def _secrets(submission: Submission) -> dict[str, dict[str, str]]:
    """Return Secret -> key -> value of a job, with generated values, which only the supervisor gets."""
    found = {name: dict(values) for name, values in submission.secrets.items()}
    for key, secret in submission.objects.items():
        if key.startswith("Secret/"):
            made = generated_secrets.generate_values(secret.get("data") or {})
            found.setdefault(key.partition("/")[2], {name: value.decode() for name, value in made.items()})
    return found


def _check_same_objects(record: Record, submission: Submission) -> None:
    differing = [*differences(record.objects, submission.objects), *another_run(record.run, submission)]
    if differing:
        where, why = f"{record.namespace}/{record.name}", f"cannot be adopted: it differs in {', '.join(differing)}"
        raise Conflict(Problem(where, why, "make the program match the live job, or give the TrainJob another name"))
