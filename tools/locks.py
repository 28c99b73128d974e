"""What a killed CLI leaves beside a stack: its lock, and operations that it had begun. Used by stack.py, in `.venv`.

The backend's lock names the process that holds it. Source: pkg/backend/diy/lock.go of Pulumi 3.246.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil
from clone import Clone

CLOCKS = 2.0
"""Seconds by which a process may seem younger than the lock that it wrote."""


@dataclass(frozen=True)
class Lock:
    """One file below .pulumi/locks of the backend."""

    file: Path
    pid: int
    host: str
    since: datetime

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host} since {self.since.astimezone():%Y-%m-%d %H:%M:%S}"

    @property
    def dead(self) -> bool:
        """Whether its process on this host is gone; the number may be another process's by now."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            gone = process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("pulumi")
            return gone or process.create_time() > self.since.timestamp() + CLOCKS
        except psutil.NoSuchProcess:
            return True

    def remove(self) -> None:
        """Together with what the backend keeps beside it."""
        for file in (self.file, self.file.with_name(f"{self.file.name}.attrs")):
            file.unlink(missing_ok=True)


def locks(clone: Clone, stack: str) -> list[Lock]:
    """The locks of a stack that we understand; of any other the CLI says what it thinks."""
    found = []
    for file in (clone.state / ".pulumi" / "locks" / "organization" / clone.project / stack).glob("*.json"):
        try:
            held = json.loads(file.read_text())
            since = re.sub(r"\.\d+", "", held["timestamp"]).replace("Z", "+00:00")
            found.append(Lock(file, int(held["pid"]), str(held["hostname"]), datetime.fromisoformat(since)))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def clear_dead(clone: Clone, stack: str, say: Callable[[str], None]) -> list[Lock]:
    """Removes the locks whose process on this host is dead; returns those that hold."""
    holding = []
    for lock in locks(clone, stack):
        if lock.dead:
            say(f"stack {stack}: the lock of {lock} is removed, that process is gone")
            lock.remove()
        else:
            holding.append(lock)
    return holding


def without_pending(exported: str) -> str:
    """An exported stack without the operations that a killed CLI had begun. Our creates are idempotent: they find what
    they made, so that nothing need be asked.
    """
    state = json.loads(exported)
    state["deployment"].pop("pending_operations", None)
    return json.dumps(state)
