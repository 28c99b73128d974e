"""Starts and ends the supervisors of jobs, and fails jobs whose supervisor has died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.targets import generated_secrets
from pulumi_trainer.provider.targets.local import logs, process, volumes
from pulumi_trainer.provider.targets.local.environment import inherited
from pulumi_trainer.provider.targets.local.paths import FILE_MODE, remove_temporaries, remove_tree, translate_os_errors
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder, read_json, write_json

LOST_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for processes whose supervisor has died."""

STUCK_SECONDS = 15.0
"""Seconds beyond the grace period after which a supervisor that has not ended its job is killed."""

_children: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process has started, so that it reaps them."""
_children_lock = threading.Lock()


def start_if_due(folder: JobFolder, record: Record, submission: Submission) -> None:
    """Start the supervisor of a new or resumed job, or of one whose creator has died. The caller has the lock."""
    status = folder.read_status()
    fresh = status is None or status.phase == Phase.SUSPENDED
    if record.suspended or not fresh:
        return
    folder.reserve()  # before the lock: `has_begun` compares the two
    lock = folder.take_supervisor_lock()
    if lock is None:
        return
    try:
        start(folder, record, submission, lock)
    finally:
        os.close(lock)


def start(folder: JobFolder, record: Record, submission: Submission, lock: int) -> None:
    """Start a supervisor. lock: The lock of the job's supervisor, which it inherits."""
    with _children_lock:
        _children[:] = [child for child in _children if child.poll() is None]
    path = {k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ}
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
    with translate_os_errors(folder.path), os.fdopen(os.open(folder.supervisor_log, flags, FILE_MODE), "ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.supervisor", str(folder.path), str(lock)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder.path,
            env={**inherited(os.environ), **path, process.MARK: record.uid},
            pass_fds=[lock],
            start_new_session=True,
        )
        with _children_lock:
            _children.append(child)
        assert child.stdin
        with suppress(BrokenPipeError), child.stdin:
            child.stdin.write(json.dumps(_secrets(submission)).encode())


def fail_lost_job(folder: JobFolder, record: Record) -> JobStatus:
    """End the processes of a dead supervisor, and write and return the Failed status. The caller has the lock."""
    known = read_json(folder.supervisor)
    who = "ended by a signal"
    if known:
        who = f"pid {known.get('pid')}"
    _end_processes(folder, record, LOST_GRACE)
    status = folder.read_status() or record.status(Phase.FAILED)
    why = "something has ended it"
    if record.created < psutil.boot_time():
        why = "the machine has been restarted"
    message = (
        f"the supervisor of this job ({who}) is gone: {why}. Its processes have been ended; `pulumi-trainer rerun` starts it"
        f" again, from its newest checkpoint if it has any; log: {folder.supervisor_log}"
    )
    lines = logs.last_lines(folder.supervisor_log, 1)
    if lines:
        message += f", which ends with: {lines[0]}"
    status.fail("SupervisorLost", message, time.time())
    folder.write_last(status)
    return status


def end(folder: JobFolder, record: Record, grace: float | None) -> None:
    """End a job, through its living supervisor so that processes can write to their pipes. The caller has the lock."""
    if grace is None:
        seconds = record.grace
    else:
        seconds = grace
        with suppress(TargetFault):
            write_json(folder.stop, {"grace": grace})
    deadline = time.monotonic() + seconds + STUCK_SECONDS
    supervisor: psutil.Process | None = None
    while folder.supervised():
        known = read_json(folder.supervisor) or {}
        found = supervisor or process.find_process(known.get("pid"), record.uid, folder.path)
        if found is not None and supervisor is None:
            with suppress(psutil.Error):
                found.send_signal(signal.SIGTERM)
            supervisor = found
        if time.monotonic() > deadline:
            remaining = [found] if found else process.processes_with_mark(record.uid, folder.path)
            for left in remaining:
                with suppress(psutil.Error):
                    left.kill()
            break
        time.sleep(0.01)
    if not folder.supervisor.exists():
        return
    if grace is None:
        grace = LOST_GRACE
    _end_processes(folder, record, grace)


def _end_processes(folder: JobFolder, record: Record, grace: float) -> None:
    process.end_processes(process.processes_with_mark(record.uid, folder.path), grace)
    process.kill_marked(record.uid, folder.path)
    remove_tree(volumes.memory_folder(record.uid))
    remove_temporaries(Path(record.temporary), record.uid)


def is_unsupervised(folder: JobFolder, seconds: float) -> bool:
    """Return whether the supervisor of a job ends within the time limit."""
    deadline = time.monotonic() + seconds
    while folder.supervised():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _secrets(submission: Submission) -> dict[str, dict[str, str]]:
    """Return Secret -> key -> value of a job, with generated values, which only the supervisor gets."""
    found = {name: dict(values) for name, values in submission.secrets.items()}
    for key, secret in submission.objects.items():
        if key.startswith("Secret/"):
            made = generated_secrets.generate_values(secret.get("data") or {})
            found.setdefault(key.partition("/")[2], {name: value.decode() for name, value in made.items()})
    return found
