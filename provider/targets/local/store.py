"""Reads, writes and locks the folder of one job.

    <root>/jobs/<namespace>/<name>/
        record.json      identity and objects; written by `LocalTarget` alone
        status.json      the JobStatus; written by the supervisor, and by `LocalTarget` without a supervisor
        lock             locked by each call that creates, changes or deletes the job
        supervisor.lock  locked by the supervisor, and before by the call that starts the supervisor
        supervisor.json  pid of the supervisor, which removes it when it exits normally
        metrics/<run>.json  the metrics of each run with their history; written by the supervisor of the run
        spare            space for the last status, so that it can be written to a full disk
        supervisor.log, logs/<pod>/<container>.log, pods/<pod>/..., errors/<pod>-<container>.json
    <root>/earlier-logs/<namespace>/<name>/<run>/<pod>/<container>.log
        what earlier runs have printed; it stays when a new run replaces the job

Standard library only: the supervisor must start at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.metrics import MOST_BYTES
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused, TargetFault, Unreadable
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.targets.local.paths import (
    EARLIER_LOGS,
    FILE_MODE,
    inside,
    is_locked,
    make_folder,
    open_lock,
    read_beginning,
    remove_tree,
    translate_os_errors,
)

GUARD_SECONDS = 300.0
"""How long a call waits for another one on the same job, whose termination may take its whole grace period."""

INSTALLED = ".installed"
"""Suffix of a container's file in `errors/`, which `layer` makes when the packages are there: the path of their environment."""

VOLUME = "volume.json"
"""The record of a volume, in its folder."""

SPARE = 32 << 10
"""Bytes of `spare`, enough for nearly every status."""

_BEFORE_RECORD = re.compile(r"lock|source-[0-9a-f]+\.tar\.gz|\.record\.json\..*")
"""Files in the folder of a job that has no record yet."""
_TRASH = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def name_of(kind: str, value: str) -> str:
    """Return `value`, a name that becomes part of a path."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or ".." in value:
        raise Invalid(Problem(kind, f"{value!r} is not a name that Kubernetes accepts", "use a-z, 0-9 and -"))
    return value


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file atomically by JSON and flush it to the disk."""
    write_file(path, json.dumps(data, separators=(",", ":")).encode())


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, as `write_json` does."""
    with translate_os_errors(path):
        replace_file(path, content, FILE_MODE)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if not found."""
    try:
        data = json.loads(read_beginning(path, -1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(data, dict):
        raise unreadable(path, "does not hold a JSON object")
    return data


def unreadable(path: Path, why: str) -> Unreadable:
    """Return the error that a file is damaged, which something else must have changed: this program writes it atomically."""
    what = "it: what the volume holds stays" if path.name == VOLUME else f"{path.parent} with all that is in it"
    return Unreadable(Problem(str(path), why, f"something else has changed it: put it back, or remove {what}"))


class JobFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.parent.parent.parent
        self.record = path / "record.json"
        self.status = path / "status.json"
        self.supervisor_lock = path / "supervisor.lock"
        self.supervisor_log = path / "supervisor.log"
        self.supervisor = path / "supervisor.json"
        self.spare = path / "spare"
        self.stop = path / "stop.json"
        self.logs = path / "logs"
        self.earlier_logs = self.root / EARLIER_LOGS / path.parent.name / path.name
        self.pods = path / "pods"
        self.errors = path / "errors"
        self.metrics = path / "metrics"

    @classmethod
    def of(cls, root: Path, namespace: str, name: str) -> JobFolder:
        return cls(root / "jobs" / name_of("namespace", namespace) / name_of("name", name))

    def source(self, digest: str) -> Path:
        """Return the path of the archive of the job's project."""
        return inside(self.path, f"source-{digest[:16]}.tar.gz")

    def check_is_job(self) -> None:
        """Check that the folder is the folder of a job, because an edited state can name any folder. Raise Refused for one
        without a record that has more files than a crash leaves before the record is written."""
        inside(self.root, *self.path.relative_to(self.root).parts)
        others = self._files_without_record()
        # Twice, because another process may create or delete the job meanwhile.
        if others and self._files_without_record():
            why = f"has no record.json of a job, and holds {min(others)!r}; nothing there was changed or removed"
            hint = "if it is the folder of a job, remove it by hand, then run `pulumi refresh`"
            raise Refused(Problem(str(self.path), why, hint))

    def _files_without_record(self) -> list[str]:
        """Return the files that a folder without a record should not have; none if it has a record or does not exist."""
        with translate_os_errors(self.path), suppress(FileNotFoundError):
            found = [each.name for each in self.path.iterdir() if not _BEFORE_RECORD.fullmatch(each.name)]
            return [] if self.record.is_file() else found
        return []

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Lock the job against other calls, and create its folder; a folder without a record means that the job does not exist.
        Raise TargetFault if another call has not finished within `GUARD_SECONDS`."""
        deadline = time.monotonic() + GUARD_SECONDS
        with translate_os_errors(self.path):
            while (lock := self.try_guard()) is None:
                if time.monotonic() > deadline:
                    why = "another process has been working on this job for 5 minutes"
                    raise TargetFault(Problem(str(self.path), why, "end it (see `fuser -v lock` there)"))
                time.sleep(0.01)
        try:
            yield
        finally:
            os.close(lock)

    def try_guard(self) -> int | None:
        """Return the file descriptor of the lock, which the caller closes; None if another process has the lock."""
        try:
            make_folder(self.path, self.root)
            lock = open_lock(self.path / "lock")
        except (FileNotFoundError, FileExistsError):  # another process has just removed the folder
            if not self.root.is_dir() or (self.path.exists() and not self.path.is_dir()):
                raise
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (self.path / "lock").stat().st_ino == os.fstat(lock).st_ino:
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(lock)
        return None

    def supervised(self) -> bool:
        """Return whether a supervisor lives or is being started."""
        with suppress(FileNotFoundError):
            return is_locked(self.supervisor_lock)
        return False

    def environments(self) -> list[Path]:
        """Return the environments that `layer` has named to the containers of the job."""
        found = []
        for file in self.errors.glob(f"*{INSTALLED}"):
            with suppress(OSError):
                found.append(Path(read_beginning(file, 4096).decode(errors="replace")))
        return found

    def has_begun(self) -> bool:
        """Return whether a supervisor has started a Pod, or has written a last status, which removes `spare`."""
        ended = self.supervisor_lock.exists() and not self.spare.exists()
        return ended or self.pods.exists()

    def take_supervisor_lock(self) -> int | None:
        """Return the file descriptor of the lock for a new supervisor; None if another supervisor has it.

        Several attempts are made, because `supervised` locks the file for a moment.
        """
        lock = open_lock(self.supervisor_lock)
        for _ in range(50):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                time.sleep(0.01)
        os.close(lock)
        return None

    def read_status(self) -> JobStatus | None:
        data = read_json(self.status)
        try:
            return None if data is None else JobStatus.from_dict(data["status"])
        except (KeyError, TypeError, AttributeError):
            raise unreadable(self.status, "is not the status of a job") from None

    def read_metrics(self, run: str) -> str:
        """Return the metrics of a run as JSON; empty if not found. run: Id of the run."""
        with suppress(OSError):
            return read_beginning(self.metrics / f"{run}.json", MOST_BYTES).decode(errors="replace")
        return ""

    def write_metrics(self, run: str, text: str) -> None:
        """Write the metrics of a run, as JSON; nothing for a run without an id or metrics. run: Id of the run."""
        if run and text:
            make_folder(self.metrics, self.root)
            write_file(self.metrics / f"{run}.json", text.encode())

    def keep_metrics(self, runs: Sequence[Run]) -> None:
        """Write the metrics of earlier runs that the folder does not have, and remove those of all other runs."""
        for run in runs:
            if not self.read_metrics(run.id):
                self.write_metrics(run.id, run.history_text)
        known = {run.id for run in runs}
        for file in self.metrics.glob("*.json"):
            if file.stem not in known:
                file.unlink(missing_ok=True)

    def read_state(self) -> dict[str, Any] | None:
        """Return the state of the JobSet when the job was suspended; None if not found."""
        return (read_json(self.status) or {}).get("state")

    def write_status(self, status: JobStatus, state: Mapping[str, Any] | None = None) -> None:
        """Write the status, and the state that a supervisor needs to continue after a suspension."""
        write_json(self.status, {"status": status.to_dict(), **({"state": state} if state else {})})

    def reserve(self) -> None:
        """Reserve space on the disk for `write_last`."""
        with translate_os_errors(self.spare):
            made = os.open(self.spare, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(made, "wb") as file:
                file.write(b" " * SPARE)

    def write_last(self, status: JobStatus) -> None:
        """Write the status of a job that has ended; on a full disk into the space that `reserve` has reserved."""
        try:
            self.write_status(status)
        except TargetFault:
            shorter = replace(status, message=status.message[: SPARE // 16], progress=None, attempts=[])
            texts = (
                json.dumps({"status": s.to_dict()}).encode() for s in (status, shorter, replace(shorter, steps=[]))
            )
            text = next(text for text in texts if len(text) <= SPARE)
            with translate_os_errors(self.spare), self.spare.open("r+b") as file:
                file.write(text.ljust(SPARE))
                file.flush()
                os.fsync(file.fileno())
                self.spare.replace(self.status)
        self.spare.unlink(missing_ok=True)

    def expire(self) -> None:
        """Remove the files that the time to live limits: all but the record and the status."""
        self.forget_logs()
        for folder in (self.logs, self.pods, self.errors):
            remove_tree(folder)
        self.supervisor_log.unlink(missing_ok=True)

    def forget_run(self, run: str, following: str) -> None:
        """Remove what the last run of an ended job has left, so that the job counts as new. The caller has the lock.

        The status goes last: until then the job counts as ended.

        Args:
            following: Id of the new run; if it is the same, the run goes on, and so do its logs.
        """
        if run != following:
            self.keep_logs(run)
        for folder in (self.pods, self.errors):
            remove_tree(folder)
        for file in (self.supervisor_log, self.stop, self.supervisor_lock, self.status):
            file.unlink(missing_ok=True)

    def keep_logs(self, run: str) -> None:
        """Move the logs of a run that has ended to those of the earlier runs; without an id they are removed."""
        if not run:
            remove_tree(self.logs)
        if not self.logs.is_dir():
            return
        with translate_os_errors(self.earlier_logs):
            kept = inside(make_folder(self.earlier_logs, self.root), run)
            remove_tree(kept)
            self.logs.rename(kept)

    def forget_logs(self) -> None:
        """Remove the logs of earlier runs; what a link has elsewhere stays."""
        with suppress(Refused):
            inside(self.root, EARLIER_LOGS, self.path.parent.name)
            remove_tree(self.earlier_logs)

    def limit_logs(self, runs: Collection[str], most: int) -> None:
        """Remove logs of earlier runs, the oldest first. most: Bytes that all of them may take for each container of the newest
        one, which stays in any case."""
        with translate_os_errors(self.earlier_logs), suppress(FileNotFoundError, Refused):
            inside(self.root, *self.earlier_logs.relative_to(self.root).parts)
            newest_first = sorted(
                self.earlier_logs.iterdir(), key=lambda kept: (len(kept.name), kept.name), reverse=True
            )
            allowed = size = 0
            for kept in newest_first:
                size += sum(file.lstat().st_size for file in kept.glob("*/*"))
                allowed = allowed or most * len([*kept.glob("*/*.log")])
                if kept.name not in runs or (kept != newest_first[0] and size > allowed):
                    remove_tree(kept)


def discard(path: Path, root: Path) -> None:
    """Remove a folder below `root` atomically, by moving it to `trash`; the next call removes what a crash leaves there."""
    inside(root, *path.relative_to(root).parts)
    with translate_os_errors(path):
        trash = make_folder(root / "trash", root)
        with suppress(FileNotFoundError):
            path.rename(trash / secrets.token_hex(8))
    for left in trash.iterdir():
        if _TRASH.fullmatch(left.name):
            remove_tree(left)
