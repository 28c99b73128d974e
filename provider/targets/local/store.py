"""The folder of one job: its record, its status and the locks that guard it.

    <root>/jobs/<namespace>/<name>/
        record.json      identity and objects; written by `LocalTarget` alone
        status.json      the JobStatus; written by the supervisor, and by `LocalTarget` where there is none
        lock             held by whoever creates, changes or deletes the job, for as long as the call takes
        supervisor.lock  held by the supervisor for its life, and before it by the call that starts it
        supervisor.json  pid and start time of the supervisor; gone when it has ended its work in good order
        spare            room for the last status, so that a full disk cannot hide how the job has ended
        processes.jsonl  pid and start time of each container process
        supervisor.log, logs/<pod>/<container>.log, pods/<pod>/..., errors/<pod>-<container>.json

Standard library only: the supervisor must start at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.kube.errors import (
    Invalid,
    Problem,
    Refused,
    TargetFault,
    Unreadable,
)
from pulumi_trainer.provider.targets.local.paths import (
    FILE_MODE,
    faults,
    inside,
    make_folder,
    read_beginning,
    remove_tree,
)

GUARD_SECONDS = 300.0
"""How long a call waits for another one that works on the same job; ending a job may take its whole grace period."""

VOLUME = "volume.json"
"""The record of a volume, in its folder."""

SPARE = 32 << 10
"""Bytes: more than the status of all but the oddest jobs has."""

_BEFORE_RECORD = re.compile(r"lock|\.record\.json\..*")
"""What is in the folder of a job that has no record yet."""
_TRASH = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def name_of(kind: str, value: str) -> str:
    """`value`, if Kubernetes could have it as a name: it becomes part of a path."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or ".." in value:
        raise Invalid(Problem(kind, f"{value!r} is not a name that Kubernetes accepts", "use a-z, 0-9 and -"))
    return value


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces a file as a whole, on the disk when this returns; a failure leaves the old one and nothing else."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with faults(path):
        try:
            made = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(made, "w", encoding="utf-8") as file:
                json.dump(data, file, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """None: there is no such file. Raises Unreadable."""
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
    """Return the error that a file which is always written as a whole is not what was written."""
    what = "it: what the volume holds stays" if path.name == VOLUME else f"{path.parent} with all that is in it"
    return Unreadable(Problem(str(path), why, f"something else has changed it: put it back, or remove {what}"))


class JobFolder:
    """Where one job lies."""

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
        self.processes = path / "processes.jsonl"
        self.logs = path / "logs"
        self.pods = path / "pods"
        self.errors = path / "errors"

    @classmethod
    def of(cls, root: Path, namespace: str, name: str) -> JobFolder:
        return cls(root / "jobs" / name_of("namespace", namespace) / name_of("name", name))

    def check_ours(self) -> None:
        """Refuse a folder that is not that of a job: it has no record, and holds more than what a crash leaves before there is
        one. A state that somebody has changed can name any folder."""
        inside(self.root, *self.path.relative_to(self.root).parts)
        with faults(self.path):
            if self.record.is_file() or not self.path.exists():
                return
            others = [each.name for each in self.path.iterdir() if not _BEFORE_RECORD.fullmatch(each.name)]
        if others:
            why = f"has no record.json of a job, and holds {min(others)!r}; nothing there was changed or removed"
            mend = "if it is the folder of a job, remove it by hand, then run `pulumi refresh`"
            raise Refused(Problem(str(self.path), why, mend))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """One call at a time for this job. Makes the folder; a folder without a record means that there is no job."""
        deadline = time.monotonic() + GUARD_SECONDS
        with faults(self.path):
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
        """The guard's file descriptor, to be closed; None while somebody else has it."""
        try:
            make_folder(self.path, self.root)
            lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        except (FileNotFoundError, FileExistsError):  # somebody has just removed the folder
            if self.path.exists() and not self.path.is_dir():
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
        """A supervisor lives, or is being started."""
        try:
            lock = os.open(self.supervisor_lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    def take_supervisor_lock(self) -> int | None:
        """The lock that a new supervisor inherits; None while another one holds it. `supervised` holds it for a moment."""
        lock = os.open(self.supervisor_lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
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

    def read_state(self) -> dict[str, Any] | None:
        """What a supervisor left behind when the job was suspended."""
        return (read_json(self.status) or {}).get("state")

    def write_status(self, status: JobStatus, state: Mapping[str, Any] | None = None) -> None:
        """state: what a supervisor needs to go on after a suspension."""
        write_json(self.status, {"status": status.to_dict(), **({"state": state} if state else {})})

    def reserve(self) -> None:
        """Keep room on the disk for `write_last`. Raises TargetFault where there is none."""
        with faults(self.spare):
            made = os.open(self.spare, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(made, "wb") as file:
                file.write(b" " * SPARE)

    def write_last(self, status: JobStatus) -> None:
        """Write the status of a job that is over; on a full disk into the room that `reserve` has kept."""
        try:
            self.write_status(status)
        except TargetFault:
            shorter = replace(status, message=status.message[: SPARE // 16], progress=None)
            texts = (
                json.dumps({"status": s.to_dict()}).encode() for s in (status, shorter, replace(shorter, steps=[]))
            )
            text = next(text for text in texts if len(text) <= SPARE)
            with faults(self.spare), self.spare.open("r+b") as file:
                file.write(text.ljust(SPARE))
                file.flush()
                os.fsync(file.fileno())
                self.spare.replace(self.status)
        self.spare.unlink(missing_ok=True)

    def expire(self) -> None:
        """What time-to-live removes: all but the record and the outcome."""
        for folder in (self.logs, self.pods, self.errors):
            remove_tree(folder)
        for file in (self.processes, self.supervisor_log):
            file.unlink(missing_ok=True)


def discard(path: Path, root: Path) -> None:
    """Removes a folder of `root`, at once for everybody else; what a crash leaves lies in `trash` and goes with the next call."""
    inside(root, *path.relative_to(root).parts)
    with faults(path):
        trash = make_folder(root / "trash", root)
        with suppress(FileNotFoundError):
            path.rename(trash / secrets.token_hex(8))
    for left in trash.iterdir():
        if _TRASH.fullmatch(left.name):
            remove_tree(left)
