"""Kills the containers that have more memory than their limit, as the kernel does in a cluster.

The supervisor reads the memory of their processes. A cgroup would need a subtree that systemd has delegated to the user, which is
there only in a user's session of Linux.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from pulumi_trainer.provider.targets.local import process
from pulumi_trainer.provider.targets.local.pod_processes import ContainerProcess

EVERY = 0.5
"""Seconds between two checks."""
_CONFIRMED = 3
"""Checks in a row after which shared memory counts: processes are read one after the other, and a page that one of them maps
in the meantime counts twice."""
_PAUSE = 20
"""The pause after a check, in units of its duration: to find the shared pages, the kernel goes through all pages."""


class MemoryLimits:
    """Kills the containers of a job that have reached their memory limits, about twice a second."""

    def __init__(self) -> None:
        self._next = 0.0
        self._over: dict[int, int] = {}

    def enforce(self, containers: Iterable[ContainerProcess]) -> None:
        """Kill the containers whose processes have more memory than their limit."""
        begun = time.monotonic()
        if begun < self._next:
            return
        limited = [each for each in containers if each.memory_limit and each.leader]
        if not limited:
            return
        by_parent = process.processes_by_parent()
        for container in limited:
            processes = process.processes_of_container(container.leader, container.plan.env[process.MARK], by_parent)
            used = memory_of(processes, container.memory_limit)
            over = self._over.pop(id(container), 0) + 1
            if used <= container.memory_limit:
                continue
            if over >= _CONFIRMED or sum(map(_own, processes)) > container.memory_limit:
                container.kill_at_memory_limit(used, processes)
            else:
                self._over[id(container)] = over
        ended = time.monotonic()
        self._next = ended + max(EVERY, _PAUSE * (ended - begun))


def memory_of(processes: Sequence[psutil.Process], limit: int) -> int:
    """Return the bytes of memory that processes have.

    Pages of files do not count on Linux: the kernel takes them back before it kills a container. Pages that processes share count
    once if the sum would be over the limit otherwise.
    """
    used = sum(map(_resident, processes))
    if used <= limit:
        return used
    return sum(map(_share, processes))


def _resident(process: psutil.Process) -> int:
    """Return the bytes of a process without pages of files, with all shared ones; 0 if it has ended."""
    counted = _counted(Path("/proc", str(process.pid), "status"), _OF_PROCESS)
    if counted is not None:
        return counted
    with suppress(psutil.Error, OSError):
        return int(process.memory_info().rss)
    return 0


def _share(process: psutil.Process) -> int:
    """Return the bytes of a process without pages of files, with its share of each shared page."""
    counted = _counted(Path("/proc", str(process.pid), "smaps_rollup"), _OF_SHARE)
    if counted is None:  # another system, or a process that may not be inspected
        return _resident(process)
    return counted


def _own(process: psutil.Process) -> int:
    """Return the bytes of a process that it shares with no other one."""
    counted = _counted(Path("/proc", str(process.pid), "smaps_rollup"), _OF_OWN)
    if counted is None:
        return _resident(process)
    return counted


_OF_PROCESS = re.compile(r"^Rss(?:Anon|Shmem): *(\d+) kB", re.MULTILINE)
_OF_OWN = re.compile(r"^Private_Dirty: *(\d+) kB", re.MULTILINE)
_OF_SHARE = re.compile(r"^Pss_(?:Anon|Shmem): *(\d+) kB", re.MULTILINE)


def _counted(file: Path, amounts: re.Pattern[str]) -> int | None:
    """Return the sum of amounts in a file of /proc, in bytes; None if it has none or cannot be read."""
    found: list[str] = []
    with suppress(OSError):
        found = amounts.findall(file.read_text(encoding="utf-8", errors="replace"))
    if not found:
        return None
    return 1024 * sum(map(int, found))
