"""Processes of a cluster, found by a mark in their environment: no file says which they are, so none can be out of date.

Whoever started them may have been killed at any moment; their parents, names and numbers tell nothing. Signals go to a
descriptor of the process, not to a number that may have become another's. Linux only. Called by cluster.py and nodes.py.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLUSTER, NAME, OWNER = "PULUMI_TRAINER_CLUSTER", "PULUMI_TRAINER_COMPONENT", "PULUMI_TRAINER_OWNER"
KEPT = ("PATH", "LANG", "TZ")
"""All that a component gets of our own environment: it may hold secrets."""


@dataclass(frozen=True)
class Found:
    """A process of some cluster."""

    pid: int
    folder: Path
    name: str
    owner: str
    """Pid and start of the process that the cluster must not outlive; empty where there is none."""


def start(
    folder: Path, name: str, argv: Sequence[str | Path], log: Path, *,
    env: Mapping[str, str] | None = None, owner: str = "", keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:  # fmt: skip
    """A marked process in a session of its own, so that neither Ctrl-C nor the end of its parent ends it.

    log: it is appended to.
    keep: descriptors that stay open in it.
    """
    marks = {CLUSTER: str(folder), NAME: name, OWNER: owner}
    inherited = {key: os.environ[key] for key in KEPT if key in os.environ}
    with log.open("ab") as out:
        child = subprocess.Popen(
            [str(a) for a in argv], env={**inherited, **(env or {}), **marks}, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True, pass_fds=keep,
        )  # fmt: skip
    while not _look(child.pid) and child.poll() is None:
        time.sleep(0.001)  # the kernel shows the environment a moment after the program has begun
    return child


def found(folder: Path | None = None) -> list[Found]:
    """What runs of the cluster in this folder, or of all clusters of this user."""
    answer = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 (a hundred times a second)
        if entry.isdigit() and (process := _look(int(entry))) and folder in (None, process.folder):
            answer.append(process)
    return answer


def _look(pid: int) -> Found | None:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None  # it has ended, or is somebody else's
    if CLUSTER.encode() not in content:
        return None
    env = dict(part.split("=", 1) for part in content.decode(errors="surrogateescape").split("\0") if "=" in part)
    if CLUSTER not in env:
        return None
    return Found(pid, Path(env[CLUSTER]), env.get(NAME, ""), env.get(OWNER, ""))


def send(processes: Iterable[Found], number: signal.Signals, patience: float = 0) -> list[Found]:
    """Sends a signal to each and waits, in seconds, until they have ended; returns those that have not."""
    opened: dict[int, Found] = {}
    try:
        for process in processes:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            opened[descriptor] = process
            if _look(process.pid) == process:  # still the one that was found
                try:
                    signal.pidfd_send_signal(descriptor, number)
                except ProcessLookupError:
                    pass
            else:
                del opened[descriptor]
                os.close(descriptor)
        return _wait(dict(opened), time.monotonic() + patience)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _wait(running: dict[int, Found], deadline: float) -> list[Found]:
    poll = select.poll()
    for descriptor in running:
        poll.register(descriptor, select.POLLIN)
    while running and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            del running[descriptor]
    return list(running.values())


def end(processes: Iterable[Found], patience: float) -> None:
    """TERM, and KILL to what has not ended after so many seconds."""
    send(send(processes, signal.SIGTERM, patience), signal.SIGKILL, 10)


def me() -> str:
    """This process as the owner of a cluster."""
    return _identity(os.getpid())


def alive(owner: str) -> bool:
    """Whether that owner still runs; its pid alone may be another's by now."""
    pid = owner.partition(":")[0]
    try:
        return _identity(int(pid)) == owner
    except (OSError, ValueError):
        return False


def _identity(pid: int) -> str:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{pid}:{fields[19]}"  # when it started, in ticks since the machine did
