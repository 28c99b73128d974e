"""The folder of one job: its record, its status and the locks that guard it.

    <root>/jobs/<namespace>/<name>/
        record.json      identity and objects; written by `LocalTarget` alone
        status.json      the JobStatus; written by the supervisor, and by `LocalTarget` where there is none
        lock             held by whoever creates, changes or deletes the job, for as long as the call takes
        supervisor.lock  held by the supervisor for its life, and before it by the call that starts it
        supervisor.json  pid and start time of the supervisor; gone when it has ended its work in good order
        processes.jsonl  pid and start time of each container process
        supervisor.log, logs/<pod>/<container>.log, pods/<pod>/..., errors/<pod>-<container>.json

Called by `LocalTarget` and by the supervisor. Standard library only: the supervisor must start at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.api.status import JobStatus

GUARD_SECONDS = 300.0
"""How long a call waits for another one that works on the same job; ending a job may take its whole grace period."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def name_of(kind: str, value: str) -> str:
    """`value`, if Kubernetes could have it as a name: it becomes part of a path."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or ".." in value:
        raise Invalid(Problem(kind, f"{value!r} is not a name that Kubernetes accepts", "use a-z, 0-9 and -"))
    return value


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Failures of the file system in words."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        mend = "free some space there and run it again" if error.errno in _FULL else "check its owner and permissions"
        raise TargetFault(Problem(where, f"cannot be written: {error.strerror or error}", mend)) from error


_FULL = frozenset({28, 122})  # ENOSPC, EDQUOT


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces a file as a whole, on the disk when this returns; a failure leaves the old one and nothing else."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with faults(path):
        try:
            with fresh.open("w", encoding="utf-8") as file:
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
    """None: there is no such file."""
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        mend = "it is written as a whole, so something else has changed it: remove the folder that holds it"
        raise TargetFault(Problem(str(path), f"cannot be read: {error}", mend)) from None
    if not isinstance(data, dict):
        raise TargetFault(Problem(str(path), "does not hold a JSON object", "remove the folder that holds it"))
    return data


class JobFolder:
    """Where one job lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / "record.json"
        self.status = path / "status.json"
        self.supervisor_lock = path / "supervisor.lock"
        self.supervisor_log = path / "supervisor.log"
        self.supervisor = path / "supervisor.json"
        self.stop = path / "stop.json"
        self.processes = path / "processes.jsonl"
        self.logs = path / "logs"
        self.pods = path / "pods"
        self.errors = path / "errors"

    @classmethod
    def of(cls, root: Path, namespace: str, name: str) -> JobFolder:
        return cls(root / "jobs" / name_of("namespace", namespace) / name_of("name", name))

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
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
        lock = os.open(self.supervisor_lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
        return None if data is None else JobStatus.from_dict(data["status"])

    def read_state(self) -> dict[str, Any] | None:
        """What a supervisor left behind when the job was suspended."""
        return (read_json(self.status) or {}).get("state")

    def write_status(self, status: JobStatus, state: Mapping[str, Any] | None = None) -> None:
        """state: what a supervisor needs to go on after a suspension."""
        write_json(self.status, {"status": status.to_dict(), **({"state": state} if state else {})})

    def expire(self) -> None:
        """What time-to-live removes: all but the record and the outcome."""
        for folder in (self.logs, self.pods, self.errors):
            remove_tree(folder)
        for file in (self.processes, self.supervisor_log):
            file.unlink(missing_ok=True)


def discard(path: Path, trash: Path) -> None:
    """Removes a folder, at once for everybody else; what a crash leaves lies in `trash` and goes with the next call."""
    with faults(path):
        trash.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.rename(trash / secrets.token_hex(8))
    for left in trash.iterdir():
        remove_tree(left)


def remove_tree(path: Path) -> None:
    """Removes a folder, also where a program has taken the write permission from its own folders."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder, _, _ in os.walk(path):
            with suppress(OSError):
                Path(folder).chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
