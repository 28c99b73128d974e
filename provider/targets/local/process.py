"""Processes of a job: starting one as a group of its own, finding all that it has left behind, ending them.

A container is one process group; what leaves its group is found by a mark in its environment, which children inherit. On Linux
the supervisor becomes the parent of what loses both, and ends it with the job.
Each start is also noted in the job's folder by pid and start time, so that whoever comes after a dead supervisor finds
the processes without touching a stranger that has been given the same pid.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "PULUMI_TRAINER_JOB"
"""Variable in the environment of every process of a job: `<uid>/<pod>/<container>`; of its supervisor: `<uid>`."""

SAME_START = 2.0
"""Seconds that two readings of one process's start time may differ by (the clock is set now and then)."""


def start(argv: Sequence[str], env: Mapping[str, str], cwd: Path, umask: int) -> subprocess.Popen[bytes]:
    """A new process group with nothing to read, whose output we read."""
    started = subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
        umask=umask,
        executable=_executable(argv[0], env, cwd),
    )
    _STARTED.add(started.pid)
    return started


_STARTED: set[int] = set()
"""pids of what `start` has started, whose end somebody waits for."""


def _executable(name: str, env: Mapping[str, str], cwd: Path) -> str:
    """As execvp finds it with the container's own PATH; a relative path is one of the container's folder."""
    if "/" in name:
        return str(cwd / name)
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        if folder and os.access(found := Path(folder) / name, os.X_OK) and found.is_file():
            return str(found)
    raise FileNotFoundError(2, "not found on PATH", name)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Where the system can tell, without waiting for it: its pid and group stay its own until then."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def group_lives(leader: int) -> bool:
    """Somebody of its group, besides itself, is still there."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if pid != leader and os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def exit_code(returncode: int) -> int:
    """As a container runtime tells it: 128 + n for signal n."""
    return 128 - returncode if returncode < 0 else returncode


def note(file: Path, pid: int) -> None:
    """Writes down who was started. A full disk must not end a job, and the mark finds the process as well."""
    with suppress(OSError, psutil.Error), file.open("a", encoding="ascii") as lines:
        lines.write(json.dumps({"pid": pid, "started": psutil.Process(pid).create_time()}) + "\n")


def noted(file: Path) -> list[psutil.Process]:
    """Those of the noted processes that still live."""
    found = []
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            if process := identified(json.loads(line)):
                found.append(process)
    return found


def identified(who: Mapping[str, float]) -> psutil.Process | None:
    """The process of that pid, if it is still the one that was started then."""
    with suppress(psutil.Error, ValueError):
        process = psutil.Process(int(who["pid"]))
        if abs(process.create_time() - who["started"]) <= SAME_START and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def marked(mark: str) -> list[psutil.Process]:
    """Processes that carry this mark, or one below it."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError, ValueError):
            process = psutil.Process(pid)
            carried = process.environ().get(MARK, "")
            if (carried == mark or carried.startswith(f"{mark}/")) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return [p for p in found if p.pid != os.getpid()]


def signal_group(pid: int, number: int) -> None:
    """To the process group that `start` has made. The leader must not have been waited for, or the group must live."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def adopt_orphans() -> None:
    """Become the parent of what the descendants of this process leave behind, also where it has left its session and cleared
    its environment. Linux alone can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""


def reap_orphans() -> None:
    """Wait for the adopted children that have ended."""
    with suppress(psutil.Error, OSError):
        for child in psutil.Process().children():
            if child.pid not in _STARTED and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def kill_descendants() -> None:
    """Ends at once everything below this process."""
    _kill_all(lambda: [p for p in psutil.Process().children(recursive=True) if _lives(p)])


def kill_marked(mark: str) -> None:
    """Ends at once what a container has left behind, in its group or out of it."""
    _kill_all(lambda: marked(mark))


def _kill_all(look: Callable[[], Sequence[psutil.Process]]) -> None:
    """Kills what is found, again until nothing more turns up, since a process may have had a child while we looked."""
    for _ in range(100):
        found = look()
        if not found:
            return
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def end(processes: Iterable[psutil.Process], grace: float) -> None:
    """TERM, up to `grace` seconds, KILL; each with its whole group where it leads one."""
    alive = list(processes)
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        for process in alive:
            with suppress(psutil.Error, OSError):
                if os.getpgid(process.pid) == process.pid and process.is_running():
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)
        deadline = time.monotonic() + seconds
        while alive and time.monotonic() < deadline:
            alive = [p for p in alive if _lives(p)]
            time.sleep(0.02 if alive else 0)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
