"""Starts the processes of a job, each as a process group, and finds and ends those that are left.

A container is one process group; processes that leave it are found by a mark in their environment, which children inherit. On
Linux the supervisor becomes the parent of processes that lose both, and ends them with the job.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from pulumi_trainer.provider.targets.local import isolation

MARK = "PULUMI_TRAINER_JOB"
"""Variable in the environment of every process of a job: `<uid>/<pod>/<container>`; of its supervisor: `<uid>`."""


def start(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, umask: int, isolated: Sequence[str | isolation.Source] = ()
) -> subprocess.Popen[bytes]:
    """Start a process as a new process group, with pipes for its output and no input.

    Args:
        isolated: Options of bubblewrap; empty for a process that sees the whole machine.

    Raises:
        ValueError: An argument contains a NUL.
    """
    program = _executable(argv[0], env, cwd)
    if not isolated:
        return _start(argv, env, cwd, umask, executable=program)
    with isolation.wrapped([program, *argv[1:]], env, cwd, isolated) as (wrapped, files):
        return _start(wrapped, {MARK: env.get(MARK, "")}, cwd, umask, pass_fds=files)


def _start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    umask: int,
    executable: str | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
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
        preexec_fn=_restore_open_files if _OPEN_FILES else None,  # noqa: PLW1509  the supervisor has no threads
        executable=executable,
        pass_fds=pass_fds,
    )
    _STARTED.add(started.pid)
    return started


_OPEN_FILES: list[tuple[int, int]] = []
"""The original limits of open files of this process, if they have been raised."""


def raise_open_files() -> None:
    """Raise the limit of open files of this process to the maximum; processes of `start` get the original limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (before[1], _MOST_OPEN_FILES):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
            _OPEN_FILES[:] = [before]
            return


_MOST_OPEN_FILES = 10240
"""Limit on macOS, where the maximum may be infinite, which cannot be set."""


def _restore_open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, _OPEN_FILES[0])


_STARTED: set[int] = set()
"""pids of the processes of `start`, which their `Container` waits for."""


def _executable(name: str, env: Mapping[str, str], cwd: Path) -> str:
    """Return the path of a program, as execvp finds it with the container's PATH; relative paths start at `cwd`."""
    if "/" in name:
        return str(cwd / name)
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        found = Path(folder) / name
        if folder and os.access(found, os.X_OK) and found.is_file():
            return str(found)
    raise FileNotFoundError(2, "not found on PATH", name)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended; where possible, without reaping it, so that its pid stays reserved."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def group_lives(leader: int) -> bool:
    """Return whether a process group has other living processes than its leader."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if pid != leader and os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def exit_code(returncode: int) -> int:
    """Return the exit code of a container runtime: 128 + n for signal n."""
    if returncode < 0:
        return 128 - returncode
    return returncode


def ended_by(returncode: int, *, isolated: bool) -> int:
    """Return the signal that ended a process, 0 for none. bubblewrap exits with 128 + n where its process ended by signal n."""
    if isolated and returncode > _BY_SIGNAL:
        return returncode - _BY_SIGNAL
    return max(0, -returncode)


_BY_SIGNAL = 128


def find_process(pid: object, mark: str, folder: Path) -> psutil.Process | None:
    """Return the living process with a pid that a file of a job names, if it is one of the job; None if not found."""
    with suppress(psutil.Error, OSError, ValueError, TypeError):
        process = psutil.Process(int(str(pid)))
        if _belongs(process, mark, folder):
            return process
    return None


def processes_with_mark(mark: str, folder: Path | None = None) -> list[psutil.Process]:
    """Return the processes with a mark, or one below it, except this process. folder: Folder of the job, by which those are
    found that have overwritten their mark; default: they are left out."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError, ValueError):
            process = psutil.Process(pid)
            if pid != os.getpid() and _belongs(process, mark, folder):
                found.append(process)
    return found


def processes_by_parent() -> dict[int, list[psutil.Process]]:
    """Return the processes of this machine by the pid of their parent."""
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        found.setdefault(process.info["ppid"], []).append(process)
    return found


def processes_of_container(
    leader: int, mark: str, by_parent: Mapping[int, Sequence[psutil.Process]]
) -> list[psutil.Process]:
    """Return the processes of a container: its first one, those that this process has adopted, and their descendants. leader:
    pid of the process of `start`."""
    due = [p for p in by_parent.get(os.getpid(), ()) if p.pid == leader or _is_adopted_from(p, leader, mark)]
    found = []
    while due:
        process = due.pop()
        found.append(process)
        due += by_parent.get(process.pid, ())
    return found


def _is_adopted_from(process: psutil.Process, leader: int, mark: str) -> bool:
    """Return whether a child of this process is an orphan of a container, by its session or its mark."""
    if process.pid in _STARTED:
        return False
    with suppress(psutil.Error, OSError, ValueError):
        return os.getsid(process.pid) == leader or _belongs(process, mark, None)
    return False


def _belongs(process: psutil.Process, mark: str, folder: Path | None) -> bool:
    """Return whether a living process is one of a job.

    setproctitle, which Ray and vLLM call, overwrites the variables of a process. Without any, it is one of the job if it works
    in the job's folder.
    """
    if not mark:
        return False
    variables: Mapping[str, str] = {}
    with suppress(psutil.AccessDenied):  # macOS shows those of its own programs to nobody
        variables = process.environ()
    carried = variables.get(MARK)
    if carried is not None:
        ours = carried == mark or carried.startswith(f"{mark}/")
    elif folder is not None and "PATH" not in variables:
        ours = Path(process.cwd()).is_relative_to(folder.resolve())
    else:
        ours = False
    return ours and process.status() != psutil.STATUS_ZOMBIE


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a process group of `start`, whose leader is not reaped yet or which has other processes."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, also of those with another session (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2)."""


def join_session_keyring() -> None:
    """Give this process and its children a session keyring of their own (Linux only).

    That of the user may hold keys and Kerberos tickets, and no namespace separates it.
    """
    number = _KEYCTL.get(platform.machine())
    if sys.platform == "linux" and number:
        ctypes.CDLL(None).syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""Machine -> number of the system call keyctl(2), of which the C library has no function."""
_KEYCTL_JOIN_SESSION_KEYRING = 1


def reap_orphans() -> None:
    """Reap the adopted children that have ended."""
    with suppress(psutil.Error, OSError):
        for child in psutil.Process().children():
            if child.pid not in _STARTED and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def kill_descendants() -> None:
    _kill_all(lambda: [*filter(_lives, psutil.Process().children(recursive=True))])


def kill_marked(mark: str, folder: Path | None = None) -> None:
    """Kill the processes with a mark, or one below it; the arguments are those of `processes_with_mark`."""
    _kill_all(lambda: processes_with_mark(mark, folder))


def _kill_all(find: Callable[[], Sequence[psutil.Process]]) -> None:
    """Kill the processes that `find` returns until it returns none, because a process may start a child during the search."""
    for _ in range(100):
        found = find()
        if not found:
            return
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def end_processes(processes: Iterable[psutil.Process], grace: float) -> None:
    """Send SIGTERM, and SIGKILL after `grace` seconds, to processes; to the whole group of a process that leads one."""
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
            alive = [*filter(_lives, alive)]
            time.sleep(0.02 if alive else 0)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
