"""Manages the folder `.incomplete` inside the output folder: its lock, the files that have been transferred, and their revision.

It is inside because the output folder may be a mount point, onto which no folder can be renamed. A killed fetch leaves it behind,
and the next fetch continues with the files that are not in it.

    lock      locked while a fetch runs
    fetch     JSON object: kind, URI and revision of the fetch
    data/<id> verified content of one file; the id is a digest of its path, version and size
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.pod.initializers.file_names import STAGING
from pulumi_trainer.provider.pod.initializers.source import Entry

log = logging.getLogger(__name__)


class Staging:
    """The staging folder of an output folder. Created by `locked`, so that only one fetch uses it."""

    def __init__(self, output: Path) -> None:
        self.folder = output / STAGING
        self._data = self.folder / "data"
        self._fetch = self.folder / "fetch"

    def recorded_revision(self, kind: str, uri: str) -> str:
        """Return the revision of an interrupted fetch of a URI; empty if there is none."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            recorded = json.loads(self._fetch.read_text())
            if (recorded["kind"], recorded["uri"]) == (kind, uri):
                return str(recorded["revision"])
        return ""

    def plan(self, kind: str, uri: str, revision: str, entries: Iterable[Entry]) -> None:
        """Record the revision, and remove everything except the content of the entries."""
        if self._data.is_symlink():
            self.clear()
        self._data.mkdir(exist_ok=True)
        _remove_others(self._data, {*map(_identity, entries)})
        self._fetch.unlink(missing_ok=True)
        self._fetch.write_text(json.dumps({"kind": kind, "uri": uri, "revision": revision}))

    def path(self, entry: Entry) -> Path:
        return self._data / _identity(entry)

    def clear(self) -> None:
        """Remove everything except the lock, which `locked` removes."""
        _remove_others(self.folder, {"lock"})


def _remove_others(folder: Path, kept: set[str]) -> None:
    for path in list(folder.iterdir()):
        if path.name in kept and not path.is_symlink():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _identity(entry: Entry) -> str:
    """Return the name of the entry's content in the staging folder."""
    text = json.dumps([entry.path, entry.version, entry.size])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@contextmanager
def locked(output: Path) -> Iterator[Staging]:
    """Wait until no other fetch of any process uses the folder, then lock it. An empty staging folder is removed at the end."""
    folder = output / STAGING
    if folder.is_symlink():
        raise TargetFault(f"{folder}: is a symbolic link, so nothing is written there; remove it")
    fd = _acquire(folder)
    staging = Staging(output)
    try:
        yield staging
    finally:
        with suppress(OSError):
            if not any((folder / "data").glob("*")):
                staging.clear()
                (folder / "lock").unlink()
                folder.rmdir()
        os.close(fd)


def _acquire(folder: Path) -> int:
    """Return a descriptor of the locked file. The file is removed with the folder, so a lock is valid only if the path
    still leads to the locked file."""
    reported = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not reported:
                log.info("another process is fetching into %s; waiting for it", folder.parent)
                reported = True
            fcntl.flock(fd, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == (folder / "lock").stat().st_ino:
                return fd
        os.close(fd)
