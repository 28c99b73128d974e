"""Runs one job as a process that outlives the program: calls the run regularly, writes its status, and exits with it.

Started by `LocalTarget` as `python -m pulumi_trainer.provider.targets.local.supervisor FOLDER LOCK`: FOLDER is the job's,
LOCK the number of the inherited file descriptor of `supervisor.lock`; the values of Secrets come as JSON on stdin, and
stay in memory. It follows `record.json` (suspend, stop, ttlSecondsAfterFinished, whether there is a failurePolicy), and
terminates its job on SIGTERM. It imports the standard library and psutil only, so that a job starts at once.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.attempts import SUSPENDED
from pulumi_trainer.provider.jobs.manual import STOPPED
from pulumi_trainer.provider.kubernetes.errors import TargetFault, TrainerError
from pulumi_trainer.provider.targets.local import process, volumes
from pulumi_trainer.provider.targets.local.logs import Pipe
from pulumi_trainer.provider.targets.local.paths import remove_temporaries, remove_tree
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.run import RESOURCE_SECONDS, RETRY, Run
from pulumi_trainer.provider.targets.local.store import JobFolder, write_json

TICK = 0.1
"""Seconds between two checks of the record, back-offs and deadlines, which cause no event."""
WRITE_EVERY = 0.2
METRICS_EVERY = 2.0
"""Seconds between two writes of the metrics with their history, which are large."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for the processes of a job whose supervisor fails."""


class Supervisor:
    def __init__(self, folder: JobFolder, lock: int, secrets: Mapping[str, Mapping[str, str]], umask: int) -> None:
        self.folder, self._lock = folder, lock
        self.record = Record.read(folder)
        self.run = Run(folder, self.record, secrets, self, folder.read_status(), folder.read_state(), umask)
        self._end_requested = False
        self._over = False
        self._record_version = (0, 0)
        self._written: dict[str, Any] = {}
        self._write_at = 0.0
        self._retry_at = 0.0
        self._metrics, self._metrics_at = "", 0.0
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = os.pipe()

    def add(self, pipe: Pipe) -> None:
        self._selector.register(pipe.fd, selectors.EVENT_READ, pipe)

    def drop(self, pipe: Pipe) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(pipe.fd)

    def run_job(self) -> None:
        """Run the job until it has ended, is suspended or is deleted."""
        self._install_signal_handlers()
        self._write_identity()
        stepped = 0.0
        while not self._over:
            try:
                woken = self._pump()
                now = time.time()
                if woken or not stepped <= now < stepped + 0.02:
                    stepped = now
                    self._follow_record()
                    self._step(now)
                    self._save(now)
            except Exception as error:
                self._give_up(error)
        if self._lock >= 0:
            self._finish()

    def _give_up(self, error: Exception) -> None:
        """Fail the job because of an error of this program or of the machine."""
        with suppress(OSError):
            traceback.print_exc()
        self.run.give_up(error, time.time())
        process.end_processes(process.processes_with_mark(self.record.uid, self.folder.path), GRACE)
        self._over = True

    def _write_identity(self) -> None:
        """Write pid and first status of the supervisor. If that fails, the job fails before it starts: it could never end."""
        try:
            self._retry_write(lambda: write_json(self.folder.supervisor, {"pid": os.getpid()}))
            self._retry_write(lambda: self.folder.write_status(self.run.status))
        except TargetFault as fault:
            self.run.fail(fault, time.time())
            self._over = True
        self._written = self.run.status.to_dict()

    def _install_signal_handlers(self) -> None:
        for end in (self._awake, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._awake, selectors.EVENT_READ)

    def _on_term(self, *_: object) -> None:
        self._end_requested = True

    def _pump(self) -> bool:
        """Read the pipes, and return whether a signal or a timeout has occurred."""
        ready = self._selector.select(TICK)
        woken = not ready
        for key, _ in ready:
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._awake, 512)
                process.reap_orphans()
                woken = True
            elif not key.data.pump():
                self.drop(key.data)
        return woken

    def _follow_record(self) -> None:
        try:
            stat = self.folder.record.stat()
        except FileNotFoundError:  # the folder of the job was removed by hand
            self._end_requested = True
            return
        if (stat.st_mtime_ns, stat.st_ino) != self._record_version:
            self._record_version = (stat.st_mtime_ns, stat.st_ino)
            try:
                self.record = Record.read(self.folder)
            except TargetFault as fault:
                _log_fault(fault)
            self.run.record = self.record
            self.run.jobset.spec = self.record.jobset["spec"]
            self.run.status.owner, self.run.status.digest = self.record.owner, self.record.digest

    def _step(self, now: float) -> None:
        self.run.poll_pods(now)
        suspend = self.record.suspended and not self.run.verdict_due
        stop = bool(self.record.stop) and not self.run.verdict_due
        if self._end_requested:
            self.run.stop(now, self._ordered_grace())
            self._over = self.run.pods_gone
        elif stop:
            self.run.attempts.explain(STOPPED, self.record.stop.partition(";")[0], running=True)
            self.run.stop(now)
            if self.run.pods_gone:
                self.run.describe(now, ending=True)
                self.run.status.fail(STOPPED, self.record.stop, now)
                self._over = True
                return
        elif suspend:
            self.run.attempts.explain(SUSPENDED, self.record.suspended_by, running=True)
            self.run.stop(now)
            if self.run.pods_gone:
                self._suspend()
        else:
            self._over = self.run.advance(now)
        self.run.describe(now, ending=suspend or stop or self._end_requested)

    def _ordered_grace(self) -> float | None:
        """Return the grace period of `LocalTarget.delete` in seconds; None for each pod's own."""
        with suppress(OSError, ValueError, KeyError):
            return float(json.loads(self.folder.stop.read_bytes())["grace"])
        return None

    def _suspend(self) -> None:
        """Write the suspended status and end this supervisor, unless the job has been resumed."""
        guard = self.folder.try_guard()
        if guard is None:
            return
        try:
            self.record = Record.read(self.folder)
            if not self.record.suspended:
                return
            self._write_metrics()
            self.folder.write_status(self.run.suspended(), self.run.jobset.state())
            self._clean_up()
            self.folder.supervisor.unlink(missing_ok=True)
            self._over = True
            os.close(self._lock)
            self._lock = -1
        except TrainerError as fault:
            _log_fault(fault)
            time.sleep(RETRY)
        finally:
            os.close(guard)

    def _finish(self) -> None:
        """Write the last status after all processes have ended."""
        self._clean_up()
        remove_tree(volumes.memory_folder(self.record.uid))
        if not self._end_requested:
            with suppress(TargetFault):  # those of some seconds ago stay
                self._write_metrics()
            with suppress(TargetFault):  # the next caller gets this error
                self._retry_write(lambda: self.folder.write_last(self.run.status))
            if self.record.ttl == 0:
                self.folder.expire()
        self.folder.supervisor.unlink(missing_ok=True)

    def _clean_up(self) -> None:
        """Kill and remove what is left of the job. The folder of secret volumes stays, empty, to reserve its name."""
        process.kill_marked(self.record.uid, self.folder.path)
        process.kill_descendants()
        memory = volumes.memory_folder(self.record.uid)
        for secret in memory.iterdir() if memory.is_dir() else ():
            remove_tree(secret)
        remove_temporaries(Path(self.record.temporary), self.record.uid)
        self.run.release()

    def _save(self, now: float) -> None:
        """Write a changed status, at most a few times a second; on a full disk the job continues and the write is retried."""
        if self._end_requested or self._over:
            return
        if now >= self._metrics_at:
            self._metrics_at = now + METRICS_EVERY
            with suppress(TargetFault):  # the status reports that the disk is full
                self._write_metrics()
        new = self.run.status.to_dict()
        due = now >= self._write_at or new["phase"] != self._written["phase"]
        if new == self._written or not due or now < self._retry_at:
            return
        try:
            self.folder.write_status(self.run.status)
            self._written, self._write_at = new, now + WRITE_EVERY
        except TargetFault as fault:
            _log_fault(fault)
            self._retry_at = now + RETRY

    def _write_metrics(self) -> None:
        """Write the metrics of the run, if they have changed."""
        text = self.run.metrics.to_text()
        if text != self._metrics:
            self.folder.write_metrics(self.record.identity.id, text)
            self._metrics = text

    def _retry_write(self, write: Callable[[], None]) -> None:
        """Retry `write` until it succeeds or the job is to be deleted. Raise TargetFault if the write has failed for
        `RESOURCE_SECONDS` seconds."""
        deadline = time.monotonic() + RESOURCE_SECONDS
        while not self._end_requested:
            try:
                write()
                return
            except TargetFault as fault:
                _log_fault(fault)
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)


def _log_fault(fault: TrainerError) -> None:
    with suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), fault, file=sys.stderr, flush=True)


def main() -> None:
    """Supervise the job of the command line."""
    folder, lock = JobFolder(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    secrets = json.loads(sys.stdin.buffer.read())
    sys.stdin.close()
    umask = os.umask(0o077)  # what the supervisor writes is for this user alone; user code keeps the user's own umask
    process.raise_open_files()
    process.adopt_orphans()
    supervisor = Supervisor(folder, lock, secrets, umask)
    if supervisor.record.isolation:
        process.join_session_keyring()
    supervisor.run_job()


if __name__ == "__main__":
    main()
