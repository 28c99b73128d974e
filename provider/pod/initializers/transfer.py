"""Transfers files into the staging folder, several at once; a file is there under its name only if its content is verified.

The client libraries of the sources transfer the bytes, and repeat what the network has cut off. Here a file is fetched again if
its content is damaged, or if its library has given up.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.pod.initializers.contract import Mask
from pulumi_trainer.provider.pod.initializers.manifest import FetchedFile
from pulumi_trainer.provider.pod.initializers.progress import Meter
from pulumi_trainer.provider.pod.initializers.source import RUN_AGAIN, Entry, Source, Tuning, digests
from pulumi_trainer.provider.pod.initializers.staging import Staging

log = logging.getLogger(__name__)
T = TypeVar("T")

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Stopped(Exception):
    """Another file has failed, so this one is abandoned."""


class Damaged(Exception):
    """The content of a file is not what its source reports."""


def retry(call: Callable[[], T], address: str, tuning: Tuning, mask_secrets: Mask) -> T:
    """Return the result of a call to a source, which is repeated after a wait unless it raises a TrainerError."""
    failures = 0
    while True:
        try:
            return call()
        except (TrainerError, Stopped):
            raise
        except Exception as error:
            failures += 1
            reason = mask_secrets(" ".join(str(error).split())[:500] or type(error).__name__)
            if failures >= tuning.attempts:
                hint = RUN_AGAIN
                if isinstance(error, Damaged):
                    hint = "the content is damaged at the source or on its way; upload it again"
                raise TargetFault(Problem(address, f"{reason} ({failures} attempts)", hint)) from None
        delay = tuning.backoff * 2 ** (failures - 1)
        log.warning("%s: %s; again in %.1f s", mask_secrets(address), reason, delay)
        time.sleep(delay)


@contextmanager
def disk_errors(output: Path) -> Iterator[None]:
    """Raise TargetFault for an OSError of the file system, because a retry cannot help."""
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, (ConnectionError, TimeoutError)):
            raise  # of the network
        reason, hint = error.strerror or str(error), "check the volume and its permissions"
        if error.errno in _NO_SPACE:
            existing = next(p for p in (output, *output.parents) if p.is_dir())
            free = format_bytes(shutil.disk_usage(existing).free)
            reason, hint = f"no space left ({reason}; {free} free)", "free some space, or use a larger volume"
        place = str(error.filename or output)
        raise TargetFault(Problem(place, f"{reason}; the fetch is not complete", hint)) from None


class Transfer:
    """The transfer of all files of one fetch."""

    def __init__(self, source: Source, staging: Staging, meter: Meter, tuning: Tuning, mask_secrets: Mask) -> None:
        self._source, self._staging, self._meter = source, staging, meter
        self._tuning, self._mask = tuning, mask_secrets
        self._stop = threading.Event()

    def run(self, entries: Sequence[Entry]) -> list[FetchedFile]:
        """Transfer and verify files."""
        pending, done = iter(entries), list[FetchedFile]()

        def fetch_files() -> None:
            for entry in pending:
                if self._stop.is_set():
                    return
                done.append(self._fetch_file(entry))

        with ThreadPoolExecutor(self._tuning.threads) as pool:
            workers = [pool.submit(fetch_files) for _ in range(min(len(entries), self._tuning.threads))]
            try:
                wait(workers, return_when="FIRST_EXCEPTION")
            finally:
                self._stop.set()
        failures = [failure for failure in (worker.exception() for worker in workers) if failure is not None]
        if failures:
            raise next((failure for failure in failures if not isinstance(failure, Stopped)), failures[0])
        return done

    def _fetch_file(self, entry: Entry) -> FetchedFile:
        path, sha256 = self._staging.path(entry), ""
        if path.exists():
            try:
                sha256 = _verified_sha256(path, entry.size, entry.checks)
                self._meter.add_reused_file(entry.size)
            except Damaged:
                path.unlink()
        if not sha256:
            address = self._source.address(entry)
            sha256 = retry(lambda: self._download(entry, path), address, self._tuning, self._mask)
            self._meter.add_file(entry.path, entry.size)
        return FetchedFile(entry.path, entry.size, sha256, entry.version)

    def _download(self, entry: Entry, path: Path) -> str:
        """Return the SHA-256 of a file, which is on the disk before it has its name."""
        part = path.with_suffix(".part")

        def count(size: int) -> None:
            if self._stop.is_set():
                raise Stopped
            self._meter.add(entry.path, size)

        self._meter.reset(entry.path)
        with disk_errors(self._staging.folder.parent):
            checks = self._source.download(entry, part, count)
            sha256 = _verified_sha256(part, entry.size, checks)
            with part.open("rb") as content:
                os.fsync(content.fileno())
            part.rename(path)
        return sha256


def _verified_sha256(path: Path, size: int, checks: Mapping[str, str]) -> str:
    written = path.stat().st_size
    if written != size:
        raise Damaged(f"the downloaded data has {written} bytes, not {size}")
    actual = digests(path, {"sha256", *checks})
    for name, digest in checks.items():
        if actual[name] != digest:
            why = "the downloaded data has another checksum than the source reports"
            raise Damaged(f"{why}: {name} {actual[name]}, not {digest}")
    return actual["sha256"]
