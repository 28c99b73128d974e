"""Manages the folder `.incomplete` inside the output folder: its lock, the transferred content and the journal.

It is inside because the output folder may be a mount point, onto which no folder can be renamed. A killed fetch leaves it behind,
and the next fetch continues from it.

    lock      locked while a fetch runs
    journal   one JSON object per line: the fetch, a part that is on the disk, a file that is verified
    data/<id> content of one file; the id is a digest of its path, version and size
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.initializers.file_names import STAGING
from pulumi_trainer.provider.initializers.source import Entry
from pulumi_trainer.provider.kube.errors import TargetFault

log = logging.getLogger(__name__)


class Staging:
    """The staging folder of an output folder. Created by `locked`, so that only one fetch uses it."""

    def __init__(self, output: Path) -> None:
        self.folder = output / STAGING
        self._data = self.folder / "data"
        self._journal = self.folder / "journal"
        self._writing = threading.Lock()
        self._parts: dict[str, set[int]] = {}
        self._files: dict[str, str] = {}

    def begin(self, header: dict[str, Any]) -> str:
        """Continue an interrupted fetch of the same header, or start a new one.

        Returns:
            The recorded revision; empty for a new fetch.
        """
        lines = self._read_journal()
        first = lines[0] if lines else {}
        revision = first.pop("revision", "")
        if not isinstance(revision, str) or first != header or self._data.is_symlink():
            self.clear()
            return ""
        for line in lines[1:]:
            match line:
                case {"id": str(key), "part": int(index)}:
                    self._parts.setdefault(key, set()).add(index)
                case {"id": str(key), "sha256": str(sha256)}:
                    self._files[key] = sha256
                case {"dropped": str(key)}:
                    self._forget(key)
                case _:
                    pass
        return revision

    def plan(self, header: dict[str, Any], revision: str, entries: Iterable[Entry]) -> None:
        """Record the revision, and remove the content of every file that is not one of the entries.

        Args:
            header: What identifies the fetch; a journal with another header is not continued.
            revision: Revision of the source; empty if it has none.
            entries: The files to fetch.
        """
        self._data.mkdir(exist_ok=True)
        planned = {*map(identity, entries)}
        for path in list(self._data.iterdir()):
            if path.name not in planned:
                path.unlink()
        lines: list[dict[str, Any]] = [{**header, "revision": revision}]
        for key in planned & self._parts.keys():
            lines += ({"id": key, "part": index} for index in sorted(self._parts[key]))
        lines += ({"id": key, "sha256": self._files[key]} for key in planned & self._files.keys())
        temporary = self.folder / "journal.new"
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
        temporary.replace(self._journal)

    def path(self, entry: Entry) -> Path:
        """Return the path of the content of an entry."""
        return self._data / identity(entry)

    def parts(self, entry: Entry) -> set[int]:
        """Return the indices of the parts that are on the disk."""
        if not self._has(entry):
            return set()
        return set(self._parts.get(identity(entry), ()))

    def verified(self, entry: Entry) -> str:
        """Return the SHA-256 of a verified file; empty if it is not verified."""
        if not self._has(entry):
            return ""
        return self._files.get(identity(entry), "")

    def add_part(self, entry: Entry, index: int) -> None:
        """Record a part that is on the disk."""
        self._append({"id": identity(entry), "part": index})

    def add_file(self, entry: Entry, sha256: str) -> None:
        """Record a verified file.

        Args:
            entry: The file.
            sha256: Its SHA-256 in hexadecimal digits.
        """
        self._append({"id": identity(entry), "sha256": sha256})

    def drop(self, entry: Entry) -> None:
        """Remove the content of a file that failed its verification."""
        self._append({"dropped": identity(entry)})
        self._forget(identity(entry))
        self.path(entry).unlink(missing_ok=True)

    def allocated(self, entry: Entry) -> int:
        """Return the bytes that the content of an entry occupies on the disk."""
        with suppress(OSError):
            return self.path(entry).stat().st_blocks * 512
        return 0

    def clear(self) -> None:
        """Remove everything except the lock, which `locked` removes."""
        self._parts, self._files = {}, {}
        for path in list(self.folder.iterdir()):
            if path.name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _has(self, entry: Entry) -> bool:
        try:
            return self.path(entry).stat().st_size == entry.size
        except OSError:
            return False

    def _forget(self, key: str) -> None:
        self._parts.pop(key, None)
        self._files.pop(key, None)

    def _append(self, line: dict[str, Any]) -> None:
        with self._writing, self._journal.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _read_journal(self) -> list[dict[str, Any]]:
        """Return the lines up to the first incomplete one."""
        lines: list[dict[str, Any]] = []
        with suppress(OSError, ValueError, RecursionError):
            for text in self._journal.read_text().splitlines():
                line = json.loads(text)
                if isinstance(line, dict):
                    lines.append(line)
        return lines


def identity(entry: Entry) -> str:
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
