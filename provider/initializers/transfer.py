"""Transfers files into the staging folder: several at once, large ones in ranged parts, with retries, resumed and verified.

Each of `threads` files has a thread that waits for its parts; the parts of all files share `threads` connections. Memory: one
chunk per connection.

The downloads of the client libraries are not used: the docstrings of `hf` and `s3` list why. Also, a killed fetch continues
after the last complete part, while huggingface_hub 2.4.0 and s3transfer 0.19.3 start the file again.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pulumi_trainer.provider.initializers.manifest import FetchedFile
from pulumi_trainer.provider.initializers.progress import Meter
from pulumi_trainer.provider.initializers.source import MIB, Entry, ServerBusy, Source, Tuning, digests
from pulumi_trainer.provider.initializers.staging import Staging
from pulumi_trainer.provider.kube.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kube.values.quantity import format_bytes

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_WAIT = 60.0
VERIFICATIONS = 3
"""Attempts to transfer a file with a wrong checksum."""
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Stopped(Exception):
    """Another file has failed, so this one is abandoned."""


class Backoff:
    """Waits longer after each failure, and raises after the last attempt."""

    def __init__(self, address: str, tuning: Tuning, stop: threading.Event, mask_secrets: Callable[[str], str]) -> None:
        self._address, self._tuning, self._stop, self._mask = address, tuning, stop, mask_secrets
        self._failures = 0

    def reset(self) -> None:
        """Start counting attempts again, because bytes have arrived."""
        self._failures = 0

    def wait_after(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            TargetFault: This was the last attempt.
            Stopped: Another file has failed.
        """
        self._failures += 1
        reason = self._mask(" ".join(str(error).split())[:500] or type(error).__name__)
        if self._failures >= self._tuning.attempts:
            hint = "run it again later: downloaded data is kept"
            raise TargetFault(Problem(self._address, f"{reason} ({self._failures} attempts)", hint))
        delay = self._tuning.backoff * 2 ** (self._failures - 1) * random.uniform(0.75, 1.25)  # noqa: S311
        if isinstance(error, ServerBusy):
            delay = max(delay, error.after)
        delay = min(MAX_WAIT, delay)
        log.warning("%s: %s; again in %.1f s", self._mask(self._address), reason, delay)
        if self._stop.wait(delay):
            raise Stopped


def retry(call: Callable[[], T], backoff: Backoff) -> T:
    """Return the result of a call.

    Raises:
        TrainerError: Raised by the call; it is not retried.
        TargetFault: The last attempt failed with another error.
    """
    while True:
        try:
            return call()
        except (TrainerError, Stopped):
            raise
        except Exception as error:
            backoff.wait_after(error)


@contextmanager
def disk_errors(output: Path) -> Iterator[None]:
    """Raise TargetFault for an OSError of the file system, because a retry cannot help."""
    try:
        yield
    except OSError as error:
        reason, hint = error.strerror or str(error), "check the volume and its permissions"
        if error.errno in _NO_SPACE:
            existing = next(p for p in (output, *output.parents) if p.is_dir())
            free = format_bytes(shutil.disk_usage(existing).free)
            reason, hint = f"no space left ({reason}; {free} free)", "free some space, or use a larger volume"
        place = str(error.filename or output)
        raise TargetFault(Problem(place, f"{reason}; the fetch is not complete", hint)) from None


class Transfer:
    """The transfer of all files of one fetch."""

    def __init__(
        self, source: Source, staging: Staging, meter: Meter, tuning: Tuning, mask_secrets: Callable[[str], str]
    ) -> None:
        self._source, self._staging, self._meter = source, staging, meter
        self._tuning, self._mask = tuning, mask_secrets
        self._output = staging.folder.parent
        self._stop = threading.Event()
        self._next = threading.Lock()

    def run(self, entries: Sequence[Entry]) -> list[FetchedFile]:
        """Transfer and verify files.

        Args:
            entries: The files.

        Returns:
            The files in the same order; their content is in the staging folder.

        Raises:
            TargetFault: The source or the disk refuses a file.
        """
        pending = iter(enumerate(entries))
        done: dict[int, FetchedFile] = {}

        def transfer_files() -> None:
            while not self._stop.is_set():
                with self._next:
                    index, entry = next(pending, (-1, None))
                if entry is None:
                    return
                done[index] = self._transfer_file(entry)
                self._meter.add_file()

        files = ThreadPoolExecutor(self._tuning.threads)
        self._parts = ThreadPoolExecutor(self._tuning.threads)
        try:
            self._wait_for([files.submit(transfer_files) for _ in range(min(len(entries), self._tuning.threads))])
        finally:
            self._stop.set()
            files.shutdown()
            self._parts.shutdown(cancel_futures=True)
        return [done[i] for i in range(len(entries))]

    def _wait_for(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for all futures. The first failure stops the others and is raised."""
        done, pending = wait(futures, return_when="FIRST_EXCEPTION")
        if pending:
            self._stop.set()
            wait(pending)
        failures = []
        for future in (*done, *pending):
            if future.cancelled():
                continue
            error = future.exception()
            if error is not None:
                failures.append(error)
        if failures:
            self._stop.set()
            raise next((e for e in failures if not isinstance(e, Stopped)), failures[0])

    def _backoff(self, entry: Entry) -> Backoff:
        return Backoff(self._source.address(entry), self._tuning, self._stop, self._mask)

    def _transfer_file(self, entry: Entry) -> FetchedFile:
        path = self._staging.path(entry)
        verified = self._staging.verified(entry)
        if verified and digests(path, {"sha256"})["sha256"] == verified:
            self._meter.add_reused(entry.size)
            return FetchedFile(entry.path, entry.size, verified, entry.version)
        address, mismatch = self._source.address(entry), ""
        for _ in range(VERIFICATIONS):
            expected = self._transfer_content(entry, path)
            actual = digests(path, {"sha256", *expected.checks})
            mismatch = _mismatch(expected.checks, actual)
            if not mismatch:
                self._staging.add_file(entry, actual["sha256"])
                return FetchedFile(entry.path, entry.size, actual["sha256"], entry.version)
            log.warning("%s: what arrived has %s", address, mismatch)
            with disk_errors(self._output):
                self._staging.drop(entry)
            self._meter.add(-entry.size)
            if self._stop.is_set():
                raise Stopped
        why = f"the downloaded data has another checksum than the source reports: {mismatch} ({VERIFICATIONS} attempts)"
        raise TargetFault(Problem(address, why, "the content is damaged at the source or on its way; upload it again"))

    def _transfer_content(self, entry: Entry, path: Path) -> Entry:
        """Write all bytes to the disk and return the entry with all of its checksums."""
        step = self._tuning.part
        starts = range(0, entry.size, step)
        several = len(starts) > 1
        present: set[int] = set()
        expected = entry
        if several:
            present = self._staging.parts(entry)
            expected = retry(lambda: self._source.with_checksums(entry), self._backoff(entry))
        with disk_errors(self._output):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            with disk_errors(self._output):
                os.ftruncate(fd, entry.size)
            futures: list[Future[Entry]] = []
            for index, start in enumerate(starts):
                stop = min(start + step, entry.size)
                if index in present:
                    self._meter.add_reused(stop - start)
                else:
                    futures.append(self._parts.submit(self._transfer_part, entry, fd, start, stop))
            self._wait_for(futures)
            with disk_errors(self._output):
                os.fsync(fd)
        finally:
            os.close(fd)
        if len(starts) == 1:
            return futures[0].result()
        return expected

    def _transfer_part(self, entry: Entry, fd: int, start: int, stop: int) -> Entry:
        """Write the bytes [start, stop). After a failure the next attempt continues where the last one ended."""
        backoff = self._backoff(entry)
        at, expected = start, entry
        while at < stop:
            before = at
            if self._stop.is_set():
                raise Stopped
            try:
                expected, chunks = self._source.read(entry, at, stop)
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
                    backoff.reset()
                backoff.wait_after(error)
        if stop - start < entry.size:
            with disk_errors(self._output):
                os.fdatasync(fd)
                self._staging.add_part(entry, start // self._tuning.part)
        return expected

    def _write(self, fd: int, chunk: bytes, at: int) -> int:
        if self._stop.is_set():
            raise Stopped
        with disk_errors(self._output):
            written = 0
            while written < len(chunk):
                written += os.pwrite(fd, chunk[written:], at + written)
        self._meter.add(len(chunk))
        return len(chunk)


def _mismatch(expected: Mapping[str, str], actual: Mapping[str, str]) -> str:
    """Return the first digest that differs from what the source reports, with both values; empty if all agree."""
    for name, digest in expected.items():
        if actual[name] != digest:
            return f"{name} {actual[name]}, not {digest}"
    return ""
