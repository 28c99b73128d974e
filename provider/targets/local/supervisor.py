"""One small process a job: gives the run its time, writes its status, and ends with it. It outlives the program that
started it.

Started by `LocalTarget` as `python -m pulumi_trainer.provider.targets.local.supervisor FOLDER LOCK`: FOLDER is the job's,
LOCK the number of the inherited file descriptor of `supervisor.lock`; the values of Secrets come as JSON on stdin, and
are kept in memory alone. It follows `record.json` (suspend, ttlSecondsAfterFinished, whether there is a failurePolicy), and
ends its job on SIGTERM. It imports the standard library and psutil only, so that a job starts at once.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.kube.errors import TargetFault, TrainerError
from pulumi_trainer.provider.targets.local import process, volumes
from pulumi_trainer.provider.targets.local.logs import Pipe
from pulumi_trainer.provider.targets.local.paths import remove_temporaries, remove_tree
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.run import PATIENCE, RETRY, Run
from pulumi_trainer.provider.targets.local.store import JobFolder, write_json

TICK = 0.1
"""Seconds between two looks at what tells nobody that it has changed: the record, back-offs, deadlines."""
WRITE_EVERY = 0.2


class Supervisor:
    """The life of one job."""

    def __init__(self, folder: JobFolder, lock: int, secrets: Mapping[str, Mapping[str, str]], umask: int) -> None:
        self.folder, self._lock = folder, lock
        self.record = Record.read(folder)
        self.run = Run(folder, self.record, secrets, self, folder.read_status(), folder.read_state(), umask)
        self._told_to_end = False
        self._over = False
        self._seen = (0, 0)
        self._written: dict[str, Any] = {}
        self._write_at = 0.0
        self._retry_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = os.pipe()

    def add(self, pipe: Pipe) -> None:
        """Reads the pipe from now on."""
        self._selector.register(pipe.fd, selectors.EVENT_READ, pipe)

    def drop(self, pipe: Pipe) -> None:
        """No longer."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(pipe.fd)

    def live(self) -> None:
        """Until the job is over, suspended or deleted."""
        self._listen()
        self._announce()
        stepped = 0.0
        while not self._over:
            woken = self._pump()
            now = time.time()
            if woken or not stepped <= now < stepped + 0.02:
                stepped = now
                self._follow_record()
                self._step(now)
                self._save(now)
        if self._lock >= 0:
            self._finish()

    def _announce(self) -> None:
        """Says who supervises the job. Where that cannot be written, nobody could end the job: it has failed, and nothing was
        started."""
        me = psutil.Process()
        try:
            self._insist(lambda: write_json(self.folder.supervisor, {"pid": me.pid, "started": me.create_time()}))
            self._insist(lambda: self.folder.write_status(self.run.status))
        except TargetFault as fault:
            self.run.fail(fault, time.time())
            self._over = True
        self._written = self.run.status.to_dict()

    def _listen(self) -> None:
        for end in (self._awake, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._awake, selectors.EVENT_READ)

    def _on_term(self, *_: object) -> None:
        self._told_to_end = True

    def _pump(self) -> bool:
        """Moves output; True: a signal or a quiet moment has come."""
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
        except FileNotFoundError:  # somebody has removed the job's folder by hand
            self._told_to_end = True
            return
        if (stat.st_mtime_ns, stat.st_ino) != self._seen:
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            try:
                self.record = Record.read(self.folder)
            except TargetFault as fault:
                _complain(fault)
            self.run.record = self.record
            self.run.jobset.spec = self.record.jobset["spec"]
            self.run.status.owner, self.run.status.digest = self.record.owner, self.record.digest

    def _step(self, now: float) -> None:
        self.run.look(now)
        suspend = self.record.suspended and not self.run.decided
        if self._told_to_end:
            self.run.stop(now, self._ordered_grace())
            self._over = self.run.gone
        elif suspend:
            self.run.stop(now)
            if self.run.gone:
                self._suspend()
        else:
            self._over = self.run.go_on(now)
        self.run.describe(now, ending=suspend or self._told_to_end)

    def _ordered_grace(self) -> float | None:
        """Seconds that `delete` asks for; None: each pod's own."""
        with suppress(OSError, ValueError, KeyError):
            return float(json.loads(self.folder.stop.read_bytes())["grace"])
        return None

    def _suspend(self) -> None:
        """Ends this supervisor, unless the job has been resumed in the meantime."""
        guard = self.folder.try_guard()
        if guard is None:
            return
        try:
            self.record = Record.read(self.folder)
            if not self.record.suspended:
                return
            self.folder.write_status(self.run.suspended(), self.run.jobset.state())
            self._clean_up()
            self.folder.supervisor.unlink(missing_ok=True)
            self._over = True
            os.close(self._lock)
            self._lock = -1
        except TrainerError as fault:
            _complain(fault)
            time.sleep(RETRY)
        finally:
            os.close(guard)

    def _finish(self) -> None:
        """The end is written when nothing is left of the job."""
        self._clean_up()
        remove_tree(volumes.memory_folder(self.record.uid))
        if not self._told_to_end:
            with suppress(TargetFault):  # who asks next is told that it cannot be written
                self._insist(lambda: self.folder.write_last(self.run.status))
            if self.record.ttl == 0:
                self.folder.expire()
        self.folder.supervisor.unlink(missing_ok=True)

    def _clean_up(self) -> None:
        """Ends what is left, and removes it. The folder of secret volumes stays with a suspended job, empty: others could take
        its name."""
        process.kill_marked(self.record.uid)
        process.kill_descendants()
        memory = volumes.memory_folder(self.record.uid)
        for secret in memory.iterdir() if memory.is_dir() else ():
            remove_tree(secret)
        remove_temporaries(Path(self.record.temporary), self.record.uid)
        self.run.release()

    def _save(self, now: float) -> None:
        """Writes what has changed, a few times a second at most; on a full disk the job runs on and this is tried again."""
        if self._told_to_end or self._over:
            return
        new = self.run.status.to_dict()
        due = now >= self._write_at or new["phase"] != self._written["phase"]
        if new == self._written or not due or now < self._retry_at:
            return
        try:
            self.folder.write_status(self.run.status)
            self._written, self._write_at = new, now + WRITE_EVERY
        except TargetFault as fault:
            _complain(fault)
            self._retry_at = now + RETRY

    def _insist(self, write: Callable[[], None]) -> None:
        """Until it is written, or the job is to be deleted. Raises TargetFault after `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        while not self._told_to_end:
            try:
                write()
                return
            except TargetFault as fault:
                _complain(fault)
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)


def _complain(fault: TrainerError) -> None:
    with suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), fault, file=sys.stderr, flush=True)


def main() -> None:
    folder, lock = JobFolder(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    secrets = json.loads(sys.stdin.buffer.read())
    sys.stdin.close()
    umask = os.umask(0o077)  # what the supervisor writes is for this user alone; user code keeps the user's own umask
    process.adopt_orphans()
    Supervisor(folder, lock, secrets, umask).live()


if __name__ == "__main__":
    main()
