"""Brings files into the staging folder: several at once, big ones in ranged parts, tried again, resumed, verified.

One thread each for `threads` files, which wait for the parts; the parts of all files share
`threads` connections. Memory: one chunk a connection.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pulumi_trainer.provider.initializers.manifest import FetchedFile
from pulumi_trainer.provider.initializers.progress import Meter
from pulumi_trainer.provider.initializers.source import (
    MIB,
    Busy,
    Entry,
    Source,
    Tuning,
    digests,
)
from pulumi_trainer.provider.initializers.staging import Staging
from pulumi_trainer.provider.kube.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kube.values.quantity import human

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_WAIT = 60.0
VERIFICATIONS = 3
"""How often a file whose checksum is wrong is fetched."""
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Stopped(Exception):
    """Another file has failed for good."""


class Patience:
    """What happens when something fails: a wait that grows, and an error in the end. Where: for the user's eyes."""

    def __init__(self, where: str, tuning: Tuning, stop: threading.Event, scrub: Callable[[str], str]) -> None:
        self._where, self._tuning, self._stop, self._scrub = where, tuning, stop, scrub
        self._failures = 0

    def progress(self) -> None:
        self._failures = 0

    def failed(self, error: Exception) -> None:
        self._failures += 1
        words = self._scrub(_words(error))
        if self._failures >= self._tuning.attempts:
            mend = "run it again when the server is well: what has arrived is kept"
            raise TargetFault(Problem(self._where, f"{words} ({self._failures} attempts)", mend))
        delay = self._tuning.backoff * 2 ** (self._failures - 1) * random.uniform(0.75, 1.25)  # noqa: S311
        delay = min(LONGEST_WAIT, max(delay, error.after if isinstance(error, Busy) else 0))
        log.warning("%s: %s; again in %.1f s", self._scrub(self._where), words, delay)
        if self._stop.wait(delay):
            raise Stopped


def retried(call: Callable[[], T], patience: Patience) -> T:
    """The call's result; its TrainerErrors at once, other errors when patience ends."""
    while True:
        try:
            return call()
        except (TrainerError, Stopped):
            raise
        except Exception as error:
            patience.failed(error)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


@contextmanager
def disk(output: Path) -> Iterator[None]:
    """What the file system refuses is the user's to mend, and no repetition helps."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_SPACE:
            there = next(p for p in (output, *output.parents) if p.is_dir())
            free = human(shutil.disk_usage(there).free)
            reason, mend = f"no space left ({reason}; {free} free)", "make room, or use a larger volume"
        else:
            mend = "look at the volume and at who may write there"
        raise TargetFault(
            Problem(str(error.filename or output), f"{reason}; the fetch is not complete", mend)
        ) from None


class Transfer:
    """One fetch's download."""

    def __init__(
        self, source: Source, staging: Staging, meter: Meter, tuning: Tuning, scrub: Callable[[str], str]
    ) -> None:
        self._source, self._staging, self._meter, self._tuning, self._scrub = source, staging, meter, tuning, scrub
        self._output = staging.folder.parent
        self._stop = threading.Event()
        self._next = threading.Lock()

    def run(self, entries: Sequence[Entry]) -> list[FetchedFile]:
        """All of them verified in the staging folder, in the order of `entries`."""
        pending = iter(enumerate(entries))
        done: dict[int, FetchedFile] = {}

        def worker() -> None:
            while not self._stop.is_set():
                with self._next:
                    index, entry = next(pending, (-1, None))
                if entry is None:
                    return
                done[index] = self._file(entry)
                self._meter.file()

        files = ThreadPoolExecutor(self._tuning.threads)
        self._parts = ThreadPoolExecutor(self._tuning.threads)
        try:
            self._all([files.submit(worker) for _ in range(min(len(entries), self._tuning.threads))])
        finally:
            self._stop.set()
            files.shutdown()
            self._parts.shutdown(cancel_futures=True)
        return [done[i] for i in range(len(entries))]

    def _all(self, futures: list[Future[Any]]) -> None:
        """Waits for all; the first real error stops the rest and is raised."""
        pending: set[Future[Any]] = set(futures)
        while pending:
            done, pending = wait(pending, return_when="FIRST_EXCEPTION")
            errors = [e for f in done if (e := f.exception())]
            if errors:
                self._stop.set()
                wait(pending)
                errors += [e for f in pending if not f.cancelled() and (e := f.exception())]
                raise next((e for e in errors if not isinstance(e, Stopped)), errors[0])

    def _file(self, entry: Entry) -> FetchedFile:
        path = self._staging.path(entry)
        if (known := self._staging.verified(entry)) and digests(path, {"sha256"})["sha256"] == known:
            self._meter.kept(entry.size)
            return FetchedFile(entry.path, entry.size, known, entry.version)
        where, wrong = self._source.where(entry), ""
        for _ in range(VERIFICATIONS):
            expected = self._content(entry, path)
            found = digests(path, {"sha256", *expected.checks})
            wrong = next((f"{n} {found[n]}, not {v}" for n, v in expected.checks.items() if found[n] != v), "")
            if not wrong:
                self._staging.add_file(entry, found["sha256"])
                return FetchedFile(entry.path, entry.size, found["sha256"], entry.version)
            log.warning("%s: what arrived has %s", where, wrong)
            with disk(self._output):
                self._staging.drop(entry)
            self._meter.add(-entry.size)
            if self._stop.is_set():
                raise Stopped
        why = f"what arrived has another checksum than the source says: {wrong} ({VERIFICATIONS} attempts)"
        raise TargetFault(Problem(where, why, "the content is damaged at the source or on its way; upload it again"))

    def _content(self, entry: Entry, path: Path) -> Entry:
        """All bytes on the disk; returns the entry with all checksums that are known of it."""
        step = self._tuning.part
        starts = range(0, entry.size, step)
        present = self._staging.parts(entry) if len(starts) > 1 else set()
        if len(starts) > 1:
            patience = Patience(self._source.where(entry), self._tuning, self._stop, self._scrub)
            refined = retried(lambda: self._source.inspect(entry), patience)
        else:
            refined = entry
        with disk(self._output):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            with disk(self._output):
                os.ftruncate(fd, entry.size)
            futures: list[Future[Entry]] = []
            for index, start in enumerate(starts):
                stop = min(start + step, entry.size)
                if index in present:
                    self._meter.kept(stop - start)
                else:
                    futures.append(self._parts.submit(self._part, entry, fd, start, stop))
            self._all([*futures])
            with disk(self._output):
                os.fsync(fd)
        finally:
            os.close(fd)
        return futures[0].result() if len(starts) == 1 else refined

    def _part(self, entry: Entry, fd: int, start: int, stop: int) -> Entry:
        """Bytes [start, stop); after a failure it goes on where the last attempt ended."""
        patience = Patience(self._source.where(entry), self._tuning, self._stop, self._scrub)
        at, refined = start, entry
        while at < stop:
            before = at
            if self._stop.is_set():
                raise Stopped
            try:
                refined, chunks = self._source.read(entry, at, stop)
                with closing(chunks):
                    for chunk in chunks:
                        at += self._write(fd, chunk[: stop - at], at)
                        if at == stop:
                            break
                if at < stop:
                    raise ConnectionError(f"the connection ended after {at - before} of {stop - before} bytes")
            except (TrainerError, Stopped):
                raise
            except Exception as error:
                if at - before >= MIB:
                    patience.progress()
                patience.failed(error)
        if stop - start < entry.size:
            with disk(self._output):
                os.fdatasync(fd)
                self._staging.add_part(entry, start // self._tuning.part)
        return refined

    def _write(self, fd: int, chunk: bytes, at: int) -> int:
        if self._stop.is_set():
            raise Stopped
        with disk(self._output):
            written = 0
            while written < len(chunk):
                written += os.pwrite(fd, chunk[written:], at + written)
        self._meter.add(len(chunk))
        return len(chunk)
