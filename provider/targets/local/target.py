"""The Local target: JobSets as processes of this machine.

Called by the dynamic provider, by the program's watch and by the command line. Every call returns at once, except those
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.api.errors import Conflict, Invalid, Problem, TargetFault
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.api.submission import Consumer, Objects, Submission, differences
from pulumi_trainer.provider.targets import keys

from . import logs, process, review, volumes
from .claims import Claim
from .environment import kept
from .machine import cache, host_id
from .plan import Site
from .pods import Tuning
from .record import Record
from .store import JobFolder, discard, faults, read_json, remove_tree, write_json

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

    def review(self, objects: Objects, secrets: review.Keys | None = None) -> tuple[list[Problem], list[Problem]]:
        """(refusals, warnings). secrets: the Secrets (and their keys) that come with the job; None: not judged here."""
        refused = review.refusals(objects, secrets) + review.too_few_gpus(objects) + review.missing_programs(objects)
        return refused, review.warnings(objects)

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Accepts a job and starts its supervisor; suspended jobs have none. Safe to repeat: what is there with the same
        owner and digest is taken over as it is.

        adopt: take over a job of another owner, if it has the same objects. Raises Invalid, Conflict, Refused, TargetFault.
        """
        refused = review.refusals(submission.objects, submission.secrets)
        if refused:
            raise Invalid(*refused)
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                record = Record.of(submission, self._site(folder), self.tuning)
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
        refused = review.refusals(submission.objects, submission.secrets)
        if refused:
            raise Invalid(*refused)
        folder = JobFolder.of(self.root, submission.namespace, submission.name)
        where = f"{submission.namespace}/{submission.name}"
        if not folder.path.exists():
            raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
        with folder.guard():
            record = Record.find(folder)
            if record is None:
                discard(folder.path, self.root / "trash")
                raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
            record.check_host()
            if record.owner != submission.owner:
                raise Conflict(Problem(where, "belongs to another program", "give the TrainJob another name"))
            if self._seen(folder, record) is None:
                self._bury(folder, record)
            changed = Record.of(submission, self._site(folder, record.uid), record.tuning)
            record = replace(changed, host=record.host, hostname=record.hostname, created=record.created)
            record.write(folder)
            self._start_if_due(folder, record, submission)
            return self._seen(folder, record) or self._bury(folder, record)

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
                discard(folder.path, self.root / "trash")
                return None
            return self._seen(folder, record) or self._bury(folder, record)

    def glance(self, namespace: str, name: str, uid: str, phase: str) -> JobStatus | None:  # noqa: ARG002
        """`status`: here it costs nothing."""
        return self.status(namespace, name)

    def vanished(self, namespace: str, name: str, digest: str) -> str:  # noqa: ARG002
        """Nobody but this program deletes here."""
        return ""

    def delete(self, namespace: str, name: str, *, uid: str = "", grace: float | None = None) -> None:
        """Ends the job's processes (TERM, grace, KILL) and removes its folder. Safe to repeat.

        uid: only this run of it. grace: seconds; default: each pod's terminationGracePeriodSeconds.
        """
        folder = JobFolder.of(self.root, namespace, name)
        if not folder.path.exists():
            return
        with folder.guard():
            record = Record.find(folder)
            if record is not None:
                record.check_host()
                if uid and uid != record.uid:
                    return
                self._end(folder, record, grace)
                for template, goes in volumes.claim_templates(record.jobset):
                    if goes:
                        Claim(self.root, namespace, f"{template}-{name}").remove()
            discard(folder.path, self.root / "trash")

    def jobs(self) -> list[JobStatus]:
        """All jobs of this host."""
        found = [self.status(r.namespace, r.name) for r in self._records() if r.host == self.host]
        return [status for status in found if status is not None]

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """The jobs that were made from a runtime; nothing stays unseen."""
        mine = [r for r in self._records() if r.host == self.host and r.runtime.get("name") == runtime]
        return [record.consumer(self.status(record.namespace, record.name)) for record in mine], ""

    def held(self, namespace: str, name: str) -> tuple[str, str]:
        """Name and release of the runtime that the job there was made from; empty where that is not known."""
        runtime = record.runtime if (record := Record.find(JobFolder.of(self.root, namespace, name))) else {}
        return str(runtime.get("name", "")), str(runtime.get("release", ""))

    def sweep(self, label: str) -> list[str]:
        """Deletes all jobs that carry the label, and its volumes that hold nothing. Returns their names."""
        swept = []
        for record in self._records():
            if label and record.sweep == label:
                self.delete(record.namespace, record.name, uid=record.uid)
                swept.append(f"{record.namespace}/{record.name}")
        for file in sorted((self.root / "volumes").glob("*/*/volume.json")):
            claim = Claim(self.root, file.parent.parent.name, file.parent.name)
            if label and claim.sweep(label):
                swept.append(f"{file.parent.parent.name}/{file.parent.name}")
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

    def update_volume(self, namespace: str, name: str, claim: Mapping[str, Any]) -> None:
        """A folder has neither size nor class."""

    def volume(self, namespace: str, name: str) -> dict[str, str] | None:
        """{"path", "generation"}, or None."""
        return Claim(self.root, namespace, name).read()

    def delete_volume(self, namespace: str, name: str, generation: str) -> None:
        """With all its data. Raises Refused while an unfinished job mounts it."""
        Claim(self.root, namespace, name).delete(generation, self._users(namespace, name))

    def _site(self, folder: JobFolder, uid: str = "") -> Site:
        return Site(
            root=self.root,
            folder=folder.path,
            uid=uid or str(uuid.uuid4()),
            python=self.python,
            environments=self.environments,
            ours={},
        )

    def _records(self) -> list[Record]:
        folders = [JobFolder(p.parent) for p in sorted((self.root / "jobs").glob("*/*/record.json"))]
        return [record for folder in folders if (record := Record.find(folder))]

    def _users(self, namespace: str, claim: str) -> Iterator[tuple[Record, float]]:
        for record in self._records():
            if record.namespace == namespace and claim in volumes.claims(record.jobset):
                status = self.status(namespace, record.name)
                if status is not None and not status.terminal:
                    yield record, status.started or status.created

    def _taken_over(self, folder: JobFolder, record: Record, submission: Submission, adopt: bool) -> Record:
        record.check_host()
        if (record.owner, record.digest) == (submission.owner, submission.digest):
            return record
        where = f"{submission.namespace}/{submission.name}"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        if record.owner == submission.owner:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt:
            why = f"exists since {since} and belongs to another program"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        differing = list(differences(record.objects, submission.objects))
        if differing:
            why = f"cannot be adopted: it differs in {', '.join(differing)}"
            raise Conflict(Problem(where, why, "make the program say what is there, or give the TrainJob another name"))
        record = replace(
            record,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            sweep="" if submission.retain else submission.sweep,
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
        with faults(folder.path), folder.supervisor_log.open("ab") as log:
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
        folder.write_status(status)
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


def _secrets(submission: Submission) -> dict[str, dict[str, str]]:
    """The values of all Secrets of a job: those to be generated are made now, and only its supervisor knows them."""
    found = {name: dict(values) for name, values in submission.secrets.items()}
    for key, secret in submission.objects.items():
        if key.startswith("Secret/"):
            made = keys.generated(secret.get("data") or {})
            found.setdefault(key.partition("/")[2], {name: value.decode() for name, value in made.items()})
    return found
