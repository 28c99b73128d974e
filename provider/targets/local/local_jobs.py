"""The jobs of this machine: JobSets as processes.

Calls that end processes take up to their grace period, all others return immediately. All state is in files, so any process may
call.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs.attempts import before_rerun
from pulumi_trainer.provider.jobs.lineage import identified, rerun_identity, started
from pulumi_trainer.provider.jobs.manual import STOPPED, Override, not_ended_problem
from pulumi_trainer.provider.jobs.output_facts import Content
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.jobs.submission import Draft, Objects, Submission
from pulumi_trainer.provider.kubernetes.errors import (
    Conflict,
    Invalid,
    Problem,
    Refused,
    TargetFault,
    TrainerError,
    Unreadable,
)
from pulumi_trainer.provider.pod.scripts import digest_output
from pulumi_trainer.provider.targets.local import isolation, local_limits, supervision, volumes
from pulumi_trainer.provider.targets.local.claims import Claim
from pulumi_trainer.provider.targets.local.job_reader import JobReader, check_same_objects, runs_of
from pulumi_trainer.provider.targets.local.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.local.paths import keep_out_of_projects, remove_tree, root_problems
from pulumi_trainer.provider.targets.local.plan import Site, output_folder
from pulumi_trainer.provider.targets.local.record import Record, sweep_label
from pulumi_trainer.provider.targets.local.store import VOLUME, JobFolder, discard, write_file


class LocalJobs(JobReader):
    """The jobs of this machine, and what changes them."""

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
        """Create a job and start its supervisor, unless it is suspended. Idempotent for the same owner and digest. first_uid:
        UID by which the stack's state knows the job; empty for that of its record."""
        _check_limits(submission)
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
            supervision.start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:  # noqa: ARG002
        """Update suspend, ttlSecondsAfterFinished and metadata of a job, or all of a suspended job."""
        _check_limits(submission)
        owner = Owner(submission.owner, submission.sweep)
        with self._locked(submission.namespace, submission.name, owner) as (folder, record):
            self._known_status(folder, record)
            submission = identified(submission, record.identity)
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
            record = replace(changed, **kept).with_override(record.override)
            self._create_claims(record)
            _store_source(folder, submission)
            record.write(folder)
            supervision.start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def set_suspend(
        self, namespace: str, name: str, owner: Owner, override: Override, submission: Submission | None = None
    ) -> JobStatus:
        """Suspend or resume a job, whatever its program has. If it is so already, the override stays."""
        with self._locked(namespace, name, owner) as (folder, record):
            status = self._known_status(folder, record)
            if status.terminal:
                return status
            if record.suspended != override.suspend:  # keep who has suspended or resumed it first
                record = record.with_override(override)
                record.write(folder)
            if submission is not None:
                supervision.start_if_due(folder, record, submission)
            return self._known_status(folder, record)

    def stop(self, namespace: str, name: str, owner: Owner, message: str) -> JobStatus:
        """End a job for good within its grace period; its record, logs and volumes stay."""
        with self._locked(namespace, name, owner) as (folder, record):
            status = self._known_status(folder, record)
            if status.terminal:
                return status
            record = replace(record, stop=message)
            record.write(folder)
            if not supervision.is_unsupervised(folder, record.grace + supervision.STUCK_SECONDS):
                supervision.end(folder, record, None)
            status = folder.read_status() or record.status(Phase.PENDING)
            if not status.terminal:
                status.fail(STOPPED, message, time.time())
                folder.write_last(status)
            return self._known_status(folder, record)

    def rerun(self, submission: Submission, uid: str = "") -> JobStatus:
        """Run a job that has ended again. Its volumes stay, and the logs of its earlier runs. uid: UID by which the stack's
        state knows the job, which is created again if its folder is gone."""
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
            supervision.is_unsupervised(folder, supervision.STUCK_SECONDS)
            identity, attempts = record.identity, record.attempts
            if status.created == record.created:  # else `rerun` was interrupted, and the recorded run has not begun
                identity = rerun_identity(identity, status.phase, status.reason)
                attempts = before_rerun(status.attempts) if identity.id else []
            submission = replace(submission, earlier=runs_of(folder, record, status), identity=identity)
            submission = started(submission, time.time())
            again = Record.of(submission, self._site(folder), record.tuning, self.isolation)
            again = replace(again, first_uid=record.resource_uid, attempts=attempts)
            self._create_claims(again)
            _store_source(folder, submission)
            again.write(folder)
            folder.keep_metrics(submission.earlier)
            folder.forget_run(_newest_run(record, status), again.identity.id)
            _limit_logs(folder, again)
            with suppress(TrainerError):  # the record has it
                again.write_run_manifest(again.inputs)
            remove_outdated_folders(again)
            supervision.start_if_due(folder, again, submission)
            return self._known_status(folder, again)

    @contextmanager
    def _locked(self, namespace: str, name: str, owner: Owner) -> Iterator[tuple[JobFolder, Record]]:
        """Lock an existing job of an owner, and yield its folder and record."""
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

    def relabel(self, submission: Submission, was: Owner) -> None:
        """Write the label of the program's stack into the record of a job that was moved from another stack."""
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        with folder.guard():
            record = Record.read(folder)
            record.check_host()
            me = Owner(submission.owner, submission.sweep)
            if not was.owns(record.whose) and not me.owns(record.whose):
                where, why = f"{submission.namespace}/{submission.name}", f"belongs to {record.whose.called_by(me)}"
                raise Conflict(Problem(where, why, "give the TrainJob another name"))
            replace(record, stack=sweep_label(submission), program=submission.program).write(folder)

    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False,
        grace: float | None = None,
    ) -> Owner | str | None:  # fmt: skip
        """Terminate a job's processes and remove its folder and the claims that were created for it. Idempotent. grace: Seconds
        between SIGTERM and SIGKILL; default: each Pod's terminationGracePeriodSeconds."""
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
                supervision.end(folder, record, grace)
                remove_tree(volumes.memory_folder(record.uid))
                for claim, deleted in volumes.template_claims(record.jobset, name):
                    if deleted:
                        users = self.users(namespace, claim, beside=name)
                        notes.append(Claim(self.root, namespace, claim).delete_with_job(f"{namespace}/{name}", users))
                if replaced:
                    status = None
                    with suppress(Unreadable):
                        status = folder.read_status()
                    folder.keep_logs(_newest_run(record, status))
            if not replaced:
                folder.forget_logs()
            discard(folder.path, self.root)
        if record is not None:
            mounted = volumes.claims(record.jobset)
            for file in volumes.claim_folder(self.root, namespace, "").glob(f"*/{VOLUME}"):
                claim = file.parent.name
                if claim in mounted:
                    Claim(self.root, namespace, claim).remove_left(self.users(namespace, claim))
        return "; ".join(filter(None, notes)) or None

    def output_of(self, submission: Submission) -> str:
        """Return the folder of the output of a run; empty if it has none."""
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        return output_folder(submission.jobset, submission.objects, self._site(folder))

    def output_content(self, namespace: str, name: str, folder: str) -> Content:
        """Return what identifies the content of a job's output."""
        try:
            return Content(**digest_output.digest(folder))
        except OSError as error:
            raise TargetFault(Problem(f"output of {namespace}/{name}", f"{error.filename}: {error.strerror}")) from None

    def _site(self, folder: JobFolder, uid: str = "") -> Site:
        return Site(
            root=self.root,
            folder=folder.path,
            uid=uid or str(uuid.uuid4()),
            python=self.python,
            environments=self.environments,
            user_environment={},
        )

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
            # Unknown leaves, and what admission refuses.
            with suppress(TypeError, KeyError, AttributeError, TrainerError):
                if key.startswith("JobSet/"):
                    namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
                    for claim, _ in volumes.template_claims(jobset, name):
                        found += Claim(self.root, namespace, claim).conflicts(f"{namespace}/{name}")
        return found

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
        check_same_objects(record, identified(submission, record.identity))
        record = replace(
            record,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            stack=sweep_label(submission),
            program=submission.program,
        )
        record.write(folder)
        return record


def _check_limits(submission: Submission) -> None:
    """Raise Invalid if this machine cannot run a job."""
    names = local_limits.invalid_names(submission.objects)
    refused = [*names, *local_limits.refusals(submission.objects, submission.secrets)]
    if refused:
        raise Invalid(*refused)


def _newest_run(record: Record, status: JobStatus | None) -> str:
    """Return the id of the run that has written the status and the logs; that of the record if there is no status."""
    if status is None:
        return record.identity.id
    return next((run.id for run in reversed(record.runs(status))), "")


def _limit_logs(folder: JobFolder, record: Record) -> None:
    """Remove the logs of earlier runs that the record of the new run does not have, and those that take too much space."""
    known = {run.id for run in record.earlier if run.inputs}
    folder.limit_logs(known, record.tuning.bytes_of_container)


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
