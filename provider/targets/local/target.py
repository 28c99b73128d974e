"""The Local target: JobSets as processes of this machine.

Every call returns at once, except those
that end processes, which take up to their grace period. State is in files alone, so any process may call.
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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.api.status import (
    OUTCOME_UNKNOWN,
    JobStatus,
    Loss,
    Owner,
    Phase,
    Presence,
)
from pulumi_trainer.provider.api.submission import (
    Consumer,
    Draft,
    Objects,
    Submission,
    another_run,
    differences,
)
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Invalid,
    Problem,
    TargetFault,
    TrainerError,
    Unreadable,
    several,
)
from pulumi_trainer.provider.targets import keys
from pulumi_trainer.provider.targets.local import (
    logs,
    process,
    review,
    volumes,
)
from pulumi_trainer.provider.targets.local.claims import Claim
from pulumi_trainer.provider.targets.local.environment import kept
from pulumi_trainer.provider.targets.local.machine import cache, host_id
from pulumi_trainer.provider.targets.local.paths import (
    FILE_MODE,
    faults,
    remove_temporaries,
    remove_tree,
)
from pulumi_trainer.provider.targets.local.plan import Site
from pulumi_trainer.provider.targets.local.pods import Tuning
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import (
    VOLUME,
    JobFolder,
    discard,
    name_of,
    read_json,
    write_json,
)

LOST_GRACE = 5.0
"""Seconds between TERM and KILL for processes whose supervisor has died."""

STUCK_SECONDS = 15.0
"""How much longer than the grace period a supervisor may take to end its job before it is killed."""

_children: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process has started, so that they leave no zombies while it lives."""
_children_lock = threading.Lock()


class LocalTarget:
    """Jobs and volumes below one folder, on one host.

    root: `<project>/.pulumi-trainer`. python: interpreter that stands in for the images (its folder comes first in PATH).
    environments: cached Python environments, default `~/.cache/pulumi-trainer/environments`.
    """

    tuning = Tuning()

    def __init__(self, root: str | Path, *, python: str = sys.executable, environments: Path | None = None) -> None:
        self.root = Path(root).absolute()
        self.python = python
        self.environments = environments or cache() / "environments"
        self.host = host_id()

    def review(
        self, objects: Objects, secrets: review.Keys | None = None, made: Callable[[], bool] = lambda: False
    ) -> tuple[list[Problem], list[Problem]]:
        """(refusals, warnings). secrets: the Secrets (and their keys) that come with the job; None: not judged here. made:
        whether the job is there already: what the machine lacks now is nothing that it still needs.
        """
        refused = [*review.refusals(objects, secrets), *review.too_many_pods(objects)]
        warnings = review.warnings(objects)
        missing, unsure = review.missing_programs(objects, self.python)
        lacking = review.missing_interpreter(objects, self.python) or missing
        lacking += [*review.too_few_gpus(objects), *review.missing_packages(objects)]
        if (lacking or unsure) and made():
            lacking, unsure = [], []
        return [*refused, *lacking, *self._claimed_elsewhere(objects)], warnings + unsure

    def has(self, draft: Draft) -> bool:
        """Whether the job is there already, as the program wants it."""
        if not isinstance(draft.namespace, str) or not isinstance(draft.digest, str):
            return False
        with suppress(TrainerError):
            record = Record.find(JobFolder.of(self.root, draft.namespace, draft.name))
            return record is not None and record.digest == draft.digest
        return False

    def other_interpreter(self, draft: Draft) -> list[Problem]:
        """Return that the job has failed with another interpreter than that of now, which only another run takes."""
        if not isinstance(draft.namespace, str) or not isinstance(draft.digest, str):
            return []
        with suppress(TrainerError):
            folder = JobFolder.of(self.root, draft.namespace, draft.name)
            status = folder.read_status()
            record = Record.find(folder) if status is not None and status.phase == Phase.FAILED else None
            if record is not None and record.digest == draft.digest and record.python != self.python:
                why = f"has failed with the interpreter {record.python}, and target.python is {self.python} now"
                return [Problem(f"{record.namespace}/{record.name}", why, 'run="2" runs it again with that one')]
        return []

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Accepts a job and starts its supervisor; suspended jobs have none. Safe to repeat: what is there with the same
        owner and digest is taken over as it is.

        adopt: take over a job of another owner, if it has the same objects. Raises Invalid, Conflict, Refused, TargetFault.
        """
        refused = [*review.bad_names(submission.objects), *review.refusals(submission.objects, submission.secrets)]
        if refused:
            raise Invalid(*refused)
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                record = Record.of(submission, self._site(folder), self.tuning)
                self._create_claims(record)
                record.write(folder)
            else:
                record = self._taken_over(folder, record, submission, adopt)
            self._start_if_due(folder, record, submission)
            return self._seen(folder, record) or self._bury(folder, record)

    def identity(self) -> dict[str, str]:
        """Nothing that is not known before: `host` says which machine this is."""
        return {}

    def drift(self, namespace: str, name: str) -> dict[str, object]:  # noqa: ARG002
        """Nobody but this program writes here."""
        return {}

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:  # noqa: ARG002
        """Changes in place: suspend, ttlSecondsAfterFinished, and metadata; a suspended job may change as a whole.

        Raises TargetFault if there is no such job, Conflict if it is not ours.
        """
        refused = [*review.bad_names(submission.objects), *review.refusals(submission.objects, submission.secrets)]
        if refused:
            raise Invalid(*refused)
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        where = f"{submission.namespace}/{submission.name}"
        if not folder.path.exists():
            raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
        folder.check_ours()
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                discard(folder.path, self.root)
                raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
            record.check_host()
            if not (me := Owner(submission.owner, submission.sweep)).owns(record.whose):
                why = f"belongs to {record.whose.called_by(me)}"
                raise Conflict(Problem(where, why, "give the TrainJob another name"))
            if self._seen(folder, record) is None:
                self._bury(folder, record)
            changed = Record.of(submission, self._site(folder, record.uid), record.tuning)
            record = replace(changed, host=record.host, hostname=record.hostname, created=record.created)
            self._create_claims(record)
            record.write(folder)
            self._start_if_due(folder, record, submission)
            return self._seen(folder, record) or self._bury(folder, record)

    def update_secrets(self, submission: Submission) -> None:
        """Nothing is kept here: a job gets the values whenever it is started or resumed."""

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """The job now; None: nothing is known of it. Ends the processes of a job whose supervisor has died.

        Raises Refused for a job of another host.
        """
        folder = JobFolder.of(self.root, namespace, name)
        record = Record.find(folder)
        if record is None:
            return None
        record.check_host()
        status = self._seen(folder, record)
        if status is not None:
            return status
        with folder.guard():
            record = Record.find(folder)
            if record is None:  # deleted while we waited
                discard(folder.path, self.root)
                return None
            return self._seen(folder, record) or self._bury(folder, record)

    def glance(self, namespace: str, name: str, uid: str, phase: str, owner: Owner) -> JobStatus | None:  # noqa: ARG002
        """`status`, which costs nothing here; of a job that cannot be read, why."""
        try:
            return self.status(namespace, name)
        except Unreadable as fault:
            return _unknown(namespace, name, owner, fault)

    def seen(self, namespace: str, name: str, beside: Collection[str] = ()) -> Presence | None:  # noqa: ARG002
        """Whether there is such a job, and whose it is; None: it ran on another host. beside: other objects, which are in its
        record."""
        record = Record.find(JobFolder.of(self.root, namespace, name))
        if record is None:
            return Presence()
        return Presence(record.whose) if record.host == self.host else None

    def check_adoption(self, submission: Submission) -> None:
        """Raises Conflict where a job of others is not what the program says."""
        found = Record.find(JobFolder.of(self.root, submission.namespace, submission.name))
        if found is not None and found.owner != submission.owner:
            _check_alike(found, submission)

    def holder(self, namespace: str, name: str) -> Owner | None:
        """Return who has a job of that name; None: nobody."""
        found = Record.find(JobFolder.of(self.root, namespace, name))
        return found.whose if found is not None else None

    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, grace: float | None = None
    ) -> Owner | str | None:
        """Ends the job's processes (TERM, grace, KILL) and removes its folder and the claims that were made for it. Safe to
        repeat. Returns what was in those claims.

        uid: only this run of it. owner: only while it is theirs; whose it is by now is returned, and nothing is touched then.
        grace: seconds; default: each pod's terminationGracePeriodSeconds.
        """
        told: list[str] = []
        folder = JobFolder.of(self.root, namespace, name)
        if not folder.path.exists():
            return None
        folder.check_ours()
        with folder.guard():
            record = Record.find(folder)
            if record is not None:
                record.check_host()
                if owner is not None and not owner.owns(record.whose):
                    return record.whose
                if uid and uid != record.uid:
                    return None
                self._end(folder, record, grace)
                remove_tree(volumes.memory_folder(record.uid))
                for claim, goes in volumes.template_claims(record.jobset, name):
                    if goes:
                        users = self._users(namespace, claim, beside=name)
                        told.append(Claim(self.root, namespace, claim).delete_with_job(f"{namespace}/{name}", users))
            discard(folder.path, self.root)
        mounted = volumes.claims(record.jobset) if record is not None else set()
        for file in volumes.claim_folder(self.root, namespace, "").glob(f"*/{VOLUME}") if mounted else ():
            if (claim := file.parent.name) in mounted:
                Claim(self.root, namespace, claim).remove_left(self._users(namespace, claim))
        return "; ".join(filter(None, told)) or None

    def jobs(self) -> list[JobStatus]:
        """All jobs of this host, and those that cannot be read, with the reason."""
        found: list[JobStatus | None] = []
        mine = [r for r in self._records(found.append) if r.host == self.host]
        found += [self.glance(r.namespace, r.name, r.uid, "", r.whose) for r in mine]
        return [status for status in found if status is not None]

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """The jobs that were made from a runtime, and what could not be seen: jobs that cannot be read."""
        unseen: list[JobStatus] = []
        mine = [r for r in self._records(unseen.append) if r.host == self.host and r.runtime.get("name") == runtime]
        found = [r.consumer(self.glance(r.namespace, r.name, r.uid, "", r.whose)) for r in mine]
        return found, several([f"what job {s.namespace}/{s.name} uses could not be seen: {s.message}" for s in unseen])

    def held(self, namespace: str, name: str) -> tuple[str, str]:
        """Name and release of the runtime that the job there was made from; empty where that is not known."""
        runtime = record.runtime if (record := Record.find(JobFolder.of(self.root, namespace, name))) else {}
        return str(runtime.get("name", "")), str(runtime.get("release", ""))

    def sweep(self, label: str, tell: Callable[[str], None] = lambda _: None) -> list[str]:
        """Deletes all jobs that carry the label, and its volumes that hold nothing or were left to a job. Returns their names.

        tell: called with what is in a volume that goes.
        """
        swept = []
        for record in self._records():
            if label and record.sweep == label:
                left = self.delete(record.namespace, record.name, uid=record.uid, owner=record.whose)
                swept.append(f"{record.namespace}/{record.name}")
                if isinstance(left, str):
                    tell(left)
        for file in sorted((self.root / "volumes").glob(f"*/*/{VOLUME}")):
            claim, held = Claim(self.root, file.parent.parent.name, file.parent.name), None
            with suppress(Unreadable):
                held = claim.sweep(label) if label else None
            if held is not None:
                swept.append(f"{file.parent.parent.name}/{file.parent.name}")
                if held:
                    tell(f"volume {swept[-1]} is deleted with what is in it: {held}")
        return swept

    def log_files(self, namespace: str, name: str, step: str | None = None) -> list[tuple[str, str, Path]]:
        """(pod, container, file) of every container of the job, or of one step, that has written something."""
        return logs.files(JobFolder.of(self.root, namespace, name).logs, name, step)

    def tail(
        self, namespace: str, name: str, step: str | None = None, *, lines: int = 100, follow: bool = False
    ) -> Iterator[tuple[str, str, str]]:
        """(pod, container, line): the last lines of each log; follow: then what is added, until the job has ended or is
        suspended."""

        def over() -> bool:
            status = self.status(namespace, name)
            return status is None or status.terminal or status.phase == Phase.SUSPENDED

        return logs.show(lambda: self.log_files(namespace, name, step), lines, over if follow else None)

    def create_volume(
        self,
        namespace: str,
        name: str,
        owner: str,
        sweep: str,
        claim: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> dict[str, str]:
        """A folder for that claim: {"path", "generation"}. Safe to repeat; data stays. Raises Conflict if it is not ours."""
        return Claim(self.root, namespace, name).create(owner, sweep)

    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """A folder has neither size nor class."""

    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """{"path", "generation"}, and whose it is; None: there is none."""
        return Claim(self.root, namespace, name).read()

    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss:  # noqa: ARG002
        """What has become of a volume that was made before."""
        return Loss.NONE if self.volume(namespace, name) is not None else Loss.GONE

    def folders(self, namespace: str, revision: str) -> list[Path]:
        """Return the folders of the volumes whose names end with a digest."""
        return sorted(volumes.claim_folder(self.root, name_of("namespace", namespace), "").glob(f"*-{revision}/data"))

    def describe_volume(self, namespace: str, name: str) -> str:
        """Return how much it holds, and since when; empty if that is nothing."""
        return Claim(self.root, namespace, name).describe()

    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str:
        """With all its data; whose another generation is is returned. One that an unfinished job mounts is left to it; returns
        that."""
        return Claim(self.root, namespace, name).delete(generation, self._users(namespace, name))

    def _site(self, folder: JobFolder, uid: str = "") -> Site:
        return Site(
            root=self.root,
            folder=folder.path,
            uid=uid or str(uuid.uuid4()),
            python=self.python,
            environments=self.environments,
            ours={},
        )

    def _records(self, tell: Callable[[JobStatus], None] = lambda _: None) -> list[Record]:
        """tell: called with each job that has another record than one that can be read: it costs itself alone."""
        found = []
        for file in sorted((self.root / "jobs").glob("*/*/record.json")):
            try:
                record = Record.find(JobFolder(file.parent))
            except Unreadable as fault:
                tell(_unknown(file.parent.parent.name, file.parent.name, Owner(""), fault))
            else:
                found += [record] if record is not None else []
        return found

    def _create_claims(self, record: Record) -> None:
        for claim, goes in volumes.template_claims(record.jobset, record.name):
            Claim(self.root, record.namespace, claim).create_for_job(f"{record.namespace}/{record.name}", goes=goes)

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
        """Yield the unfinished jobs that mount a claim, and since when. beside: a job that does not count."""
        for record in self._records():
            if record.name != beside and record.namespace == namespace and claim in volumes.claims(record.jobset):
                status = self.glance(namespace, record.name, record.uid, "", record.whose)
                if status is not None and not status.terminal:
                    yield record, status.started or status.created

    def _taken_over(self, folder: JobFolder, record: Record, submission: Submission, adopt: bool) -> Record:
        record.check_host()
        me = Owner(submission.owner, submission.sweep)
        ours = me.owns(record.whose)
        if ours and record.digest == submission.digest:
            return record
        where = f"{submission.namespace}/{submission.name}"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        if ours:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt:
            why = f"exists since {since} and belongs to {record.whose.called_by(me)}"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        _check_alike(record, submission)
        record = replace(
            record,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            sweep="" if submission.retain else submission.sweep,
            program=submission.program,
        )
        record.write(folder)
        return record

    def _start_if_due(self, folder: JobFolder, record: Record, submission: Submission) -> None:
        """Guarded. Starts what should run and does not: new jobs, resumed ones, and those whose creator has died."""
        status = folder.read_status()
        fresh = status is None or status.phase == Phase.SUSPENDED
        if record.suspended or not fresh:
            return
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
        folder.reserve()
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        with faults(folder.path), os.fdopen(os.open(folder.supervisor_log, flags, FILE_MODE), "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.supervisor", str(folder.path), str(lock)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder.path,
                env={**kept(os.environ), **path, process.MARK: record.uid},
                pass_fds=[lock],
                start_new_session=True,
            )
            with _children_lock:
                _children.append(child)
            assert child.stdin
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps(_secrets(submission)).encode())

    def _seen(self, folder: JobFolder, record: Record) -> JobStatus | None:
        """The job's status; None: its supervisor has died."""
        supervised = folder.supervised()
        status = folder.read_status()
        if status is not None:
            status.owner, status.digest = record.owner, record.digest
            status.stack, status.program = record.sweep, record.program
            if status.terminal:
                if record.ttl is not None and time.time() >= status.finished + record.ttl:
                    folder.expire()
                return status
        if status is None or status.phase == Phase.SUSPENDED:
            if record.suspended:
                return status or record.status(Phase.SUSPENDED, "SuspendedJobs")
            if supervised:
                return record.status(Phase.STARTING)
            return record.status(Phase.PENDING, "NotStarted", self._why_not_started(folder))
        return status if supervised else None

    def _why_not_started(self, folder: JobFolder) -> str:
        said = logs.last_lines(folder.supervisor_log, 5)
        return "\n".join(["its supervisor has not been started; `pulumi up` starts it", *said])

    def _bury(self, folder: JobFolder, record: Record) -> JobStatus:
        """Guarded. Ends what a dead supervisor has left behind; the job has failed."""
        known = read_json(folder.supervisor)
        who = f"pid {known.get('pid')}" if known else "ended by a signal"
        self._end_processes(folder, record, LOST_GRACE)
        status = folder.read_status() or record.status(Phase.FAILED)
        status.phase, status.reason, status.finished = Phase.FAILED.value, "SupervisorLost", time.time()
        why = "the machine has been restarted" if record.created < psutil.boot_time() else "something has ended it"
        status.message = (
            f"the supervisor of this job ({who}) is gone: {why}. Its processes have been ended; log:"
            f" {folder.supervisor_log}. Give the TrainJob another run= key to run it again"
        )
        for step in status.steps:
            if not Phase(step.phase).terminal:
                step.phase, step.active, step.ready = Phase.FAILED.value, 0, 0
        folder.write_last(status)
        return status

    def _end(self, folder: JobFolder, record: Record, grace: float | None) -> None:
        """Guarded. Through the supervisor where it lives, so that processes can still write to their pipes."""
        if grace is not None:
            with suppress(TargetFault):
                write_json(folder.stop, {"grace": grace})
        deadline = time.monotonic() + (record.grace if grace is None else grace) + STUCK_SECONDS
        told: psutil.Process | None = None
        while folder.supervised():
            found = told or process.identified(read_json(folder.supervisor) or {"pid": -1, "started": 0.0})
            if found is not None and told is None:
                with suppress(psutil.Error):
                    found.send_signal(signal.SIGTERM)
                told = found
            if time.monotonic() > deadline:
                for left in [found] if found else process.marked(record.uid):
                    with suppress(psutil.Error):
                        left.kill()
                break
            time.sleep(0.01)
        if folder.supervisor.exists():
            self._end_processes(folder, record, LOST_GRACE if grace is None else grace)

    def _end_processes(self, folder: JobFolder, record: Record, grace: float) -> None:
        found = {p.pid: p for p in (*process.noted(folder.processes), *process.marked(record.uid))}
        process.end(found.values(), grace)
        process.kill_marked(record.uid)
        remove_tree(volumes.memory_folder(record.uid))
        remove_temporaries(Path(record.temporary), record.uid)


def _unknown(namespace: str, name: str, owner: Owner, fault: Unreadable) -> JobStatus:
    """What can be said of a job that cannot be read."""
    return JobStatus(
        name,
        namespace,
        owner=owner.id,
        phase=Phase.DELETED.value,
        reason=OUTCOME_UNKNOWN,
        message=str(fault),
        stack=owner.stack,
        program=owner.program,
    )


def _secrets(submission: Submission) -> dict[str, dict[str, str]]:
    """The values of all Secrets of a job: those to be generated are made now, and only its supervisor knows them."""
    found = {name: dict(values) for name, values in submission.secrets.items()}
    for key, secret in submission.objects.items():
        if key.startswith("Secret/"):
            made = keys.generated(secret.get("data") or {})
            found.setdefault(key.partition("/")[2], {name: value.decode() for name, value in made.items()})
    return found


def _check_alike(record: Record, submission: Submission) -> None:
    differing = [*differences(record.objects, submission.objects), *another_run(record.run, submission)]
    if differing:
        where, why = f"{record.namespace}/{record.name}", f"cannot be adopted: it differs in {', '.join(differing)}"
        raise Conflict(Problem(where, why, "make the program say what is there, or give the TrainJob another name"))
