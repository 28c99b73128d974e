"""Limits how many jobs of one root run at once: first come, first served.

    <root>/queue/
        limit                   max_parallel of the program; missing: the default
        lock                    locked while a job joins, advances or leaves
        <order>-<uid>.waits     name of a job that waits
        <order>-<uid>.runs      name of a job that has a place

The supervisor of a job holds the lock of its file. A file whose lock is free belongs to a supervisor that has died, and the next
one removes it; no process has to run for that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.targets.local.machine import cpus, gpus
from pulumi_trainer.provider.targets.local.paths import (
    is_locked,
    make_folder,
    open_lock,
    read_beginning,
    translate_os_errors,
)
from pulumi_trainer.provider.targets.local.store import write_file

FEWEST = 4
"""Default on a machine with fewer CPUs: jobs that work together, such as a server and its client, must not wait for each
other."""
_LONGEST_NAME = 300


def default_limit() -> int:
    """Return how many jobs run at once by default: one for each CPU or GPU, whichever are more, and at least `FEWEST`.

    A training process uses a whole CPU or GPU, so more jobs only slow each other down. What a job requests is not added up: few
    jobs on one machine request CPUs, and GPUs are leased anyway.
    """
    return max(FEWEST, cpus(), gpus())


def set_limit(root: Path, limit: int | None) -> None:
    """Record `max_parallel` of the program. None: the default."""
    file = root / "queue" / "limit"
    if limit is None:
        with translate_os_errors(file), suppress(NotADirectoryError):
            file.unlink(missing_ok=True)
        return
    with translate_os_errors(file):
        make_folder(file.parent, root)
    write_file(file, str(int(limit)).encode())


@dataclass(frozen=True)
class Wait:
    """Why a job waits. default: Whether the program sets no limit. earlier: The jobs that wait since before."""

    limit: int
    default: bool
    running: list[str]
    earlier: list[str]

    def __str__(self) -> str:
        places = "the only place"
        if self.limit > 1:
            places = f"one of {self.limit} places"
        limit = f"max_parallel={self.limit}"
        if self.default:
            limit += ", the default"
        return f"waits for {places} ({limit}): behind {join_names([*self.running, *self.earlier])}"


class Place:
    """The place of one job among the jobs of its root."""

    def __init__(self, root: Path, name: str, uid: str, since: float) -> None:
        self._root, self._name = root, name
        self._folder = root / "queue"
        self._key = f"{int(since * 1e6):020d}-{uid}"
        self._lock = -1

    def take(self) -> Wait | None:
        """Take a place, if there is one for this job and for those that wait since before; otherwise return why the job waits."""
        make_folder(self._folder, self._root)
        with self._locked():
            others = [*self._others()]
            running = [name for key, name, runs in others if runs]
            earlier = [name for key, name, runs in others if not runs and key < self._key]
            limit = self._limit()
            if len(running) + len(earlier) >= (limit or self._default):
                self._write("waits")
                return Wait(limit or self._default, limit is None, running, earlier)
            self._write("runs")
            return None

    def release(self) -> None:
        """Give the place back, or stop waiting for one."""
        if self._lock < 0:
            return
        with suppress(OSError), self._locked():
            for state in ("waits", "runs"):
                self._file(state).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1

    @cached_property
    def _default(self) -> int:
        return default_limit()

    def _limit(self) -> int | None:
        """Return the recorded limit; None if there is none, or not a valid one."""
        try:
            found = int(read_beginning(self._folder / "limit", 20))
        except (OSError, ValueError):
            return None
        if found <= 0:
            return None
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = open_lock(self._folder / "lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _others(self) -> Iterator[tuple[str, str, bool]]:
        """Yield key, name and whether it has a place of each other job, in the order in which they came."""
        for file in sorted(self._folder.iterdir()):
            key, _, state = file.name.partition(".")
            if state not in ("waits", "runs") or key == self._key:
                continue
            if is_locked(file):
                yield key, read_beginning(file, _LONGEST_NAME).decode(errors="replace"), state == "runs"
            else:
                file.unlink(missing_ok=True)

    def _file(self, state: str) -> Path:
        return self._folder / f"{self._key}.{state}"

    def _write(self, state: str) -> None:
        if self._lock < 0:
            lock = open_lock(self._file("waits"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.pwrite(lock, self._name.encode()[:_LONGEST_NAME], 0)
            except OSError:
                os.close(lock)
                raise
            self._lock = lock
        if state == "runs":
            self._file("waits").rename(self._file("runs"))
