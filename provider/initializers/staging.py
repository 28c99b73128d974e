"""The folder `.incomplete` inside the output folder: its lock, what has arrived so far, and the journal of it.

It lies inside since the output folder may be a mount point, which nothing can be renamed onto. A killed fetch leaves it
behind; the next one goes on from there.

    lock      held while a fetch runs
    journal   one line of JSON each: the fetch, a part that is on the disk, a file that is verified
    data/<id> content of one file, id from its path, version and size
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

from pulumi_trainer.provider.initializers.names import STAGING
from pulumi_trainer.provider.initializers.source import Entry
from pulumi_trainer.provider.kube.errors import TargetFault

log = logging.getLogger(__name__)


class Staging:
    """Made by `locked`, so there is one at a time for a folder."""

    def __init__(self, output: Path) -> None:
        self.folder = output / STAGING
        self._data = self.folder / "data"
        self._journal = self.folder / "journal"
        self._writing = threading.Lock()
        self._parts: dict[str, set[int]] = {}
        self._files: dict[str, str] = {}

    def begin(self, header: dict[str, Any]) -> str:
        """Goes on with what an interrupted fetch of the same header has left, or starts anew.

        Returns the revision that was recorded, or "".
        """
        lines = self._lines()
        first = lines[0] if lines else {}
        revision = first.pop("revision", "")
        if not isinstance(revision, str) or first != header or self._data.is_symlink():
            self._clean()
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
        """Records the revision, once it is known, and drops what belongs to none of the entries."""
        self._data.mkdir(exist_ok=True)
        wanted = {identity(e) for e in entries}
        for path in list(self._data.iterdir()):
            if path.name not in wanted:
                path.unlink()
        temporary = self.folder / "journal.new"
        with temporary.open("w") as file:
            for line in ({**header, "revision": revision}, *self._known(wanted)):
                file.write(json.dumps(line) + "\n")
        temporary.replace(self._journal)

    def path(self, entry: Entry) -> Path:
        return self._data / identity(entry)

    def parts(self, entry: Entry) -> set[int]:
        """Indices of the parts that are on the disk."""
        return set(self._parts.get(identity(entry), ())) if self._has(entry) else set()

    def verified(self, entry: Entry) -> str:
        """The sha256 with which the file was complete and right, or ""."""
        return self._files.get(identity(entry), "") if self._has(entry) else ""

    def add_part(self, entry: Entry, index: int) -> None:
        self._append({"id": identity(entry), "part": index})

    def add_file(self, entry: Entry, sha256: str) -> None:
        self._append({"id": identity(entry), "sha256": sha256})

    def drop(self, entry: Entry) -> None:
        """What has arrived of this file is wrong."""
        self._append({"dropped": identity(entry)})
        self._forget(identity(entry))
        self.path(entry).unlink(missing_ok=True)

    def held(self, entry: Entry) -> int:
        """Bytes of the disk that this entry has taken already."""
        with suppress(OSError):
            return self.path(entry).stat().st_blocks * 512
        return 0

    def remove(self) -> None:
        """Everything but the lock, which `locked` removes."""
        self._clean()

    def _has(self, entry: Entry) -> bool:
        try:
            return self.path(entry).stat().st_size == entry.size
        except OSError:
            return False

    def _forget(self, key: str) -> None:
        self._parts.pop(key, None)
        self._files.pop(key, None)

    def _known(self, wanted: set[str]) -> Iterator[dict[str, Any]]:
        for key, parts in self._parts.items():
            if key in wanted:
                yield from ({"id": key, "part": index} for index in sorted(parts))
        yield from ({"id": key, "sha256": sha256} for key, sha256 in self._files.items() if key in wanted)

    def _append(self, line: dict[str, Any]) -> None:
        with self._writing, self._journal.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        """A torn last line is none."""
        found: list[dict[str, Any]] = []
        with suppress(OSError, ValueError):
            for text in self._journal.read_text().splitlines():
                line = json.loads(text)
                if isinstance(line, dict):
                    found.append(line)
        return found

    def _clean(self) -> None:
        self._parts, self._files = {}, {}
        for path in list(self.folder.iterdir()):
            if path.name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def identity(entry: Entry) -> str:
    text = json.dumps([entry.path, entry.version, entry.size])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@contextmanager
def locked(output: Path) -> Iterator[Staging]:
    """Waits until no other fetch, of any process, works on this folder. What is of no more use is removed at the end."""
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
                staging.remove()
                (folder / "lock").unlink()
                folder.rmdir()
        os.close(fd)


def _acquire(folder: Path) -> int:
    """The lock's file goes with the folder, so holding it counts only while it is still the one that others will open."""
    said = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not said:
                log.info("another process is fetching into %s; waiting for it", folder.parent)
                said = True
            fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if os.fstat(fd).st_ino == (folder / "lock").stat().st_ino:
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)
