"""`file:///PATH`: a file, or everything below a folder, of the machine on which the initializer runs.

Symbolic links are followed to files inside the folder only. The revision is a digest of paths, sizes and sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulumi_trainer.provider.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.initializers.manifest import FetchedFile
from pulumi_trainer.provider.initializers.names import DEPTH_MAX
from pulumi_trainer.provider.initializers.source import (
    MIB,
    Chunks,
    Entry,
    Listing,
    Order,
    Patterns,
    digests,
)
from pulumi_trainer.provider.kube.client.masking import hide_credentials
from pulumi_trainer.provider.kube.errors import Problem, TargetFault

HASHED = 64 * MIB
"""Bytes that a plan reads of a source to see whether it has changed: less than 0.1 s."""


def check(location: str, kind: Kind) -> list[Problem]:  # noqa: ARG001
    """An absolute path that exists."""
    if not location.startswith("/"):
        mend = "write file:///PATH; a path of another machine is no file:// URI"
        return [Problem(STORAGE_URI, f"{hide_credentials(f'file://{location}')} is no absolute path", mend)]
    shown = hide_credentials(location)
    try:
        mode = Path(location).stat().st_mode
    except OSError as error:
        return [Problem(STORAGE_URI, f"{shown}: {error.strerror}", "give a file or folder of this machine")]
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return [Problem(STORAGE_URI, f"{shown} is neither a file nor a folder")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:  # noqa: ARG001
    return Patterns()


def connect(order: Order) -> _Folder:
    folder = _Folder(order.location, order.tuning.threads)
    folder.refuse_overlap(order.output.resolve())
    return folder


def fingerprint(location: str, wanted: Patterns) -> str:
    """Return a digest that differs when the files below `location` do.

    Up to `HASHED` bytes it covers the content. Reading more would slow every plan, so beyond that it covers names, sizes and
    times of last change. Raises TargetFault for what a fetch would refuse.
    """
    folder = _Folder(location)
    files = folder.files(wanted)
    small = sum(found.st_size for found in files.values()) <= HASHED
    entries = folder.entries(files) if small else [Entry(k, k, f.st_size, str(f.st_mtime_ns)) for k, f in files.items()]
    return _revision(entries)


def is_unchanged(location: str, wanted: Patterns, fetched: Sequence[FetchedFile], when: float) -> bool:
    """Return whether the files below `location` are those that were fetched at the time `when`; of more than `HASHED` bytes,
    whether names and sizes are the same and nothing was written since."""
    folder = _Folder(location)
    files = folder.files(wanted)
    if {k: f.st_size for k, f in files.items()} != {f.path: f.size for f in fetched}:
        return False
    if sum(found.st_size for found in files.values()) > HASHED:
        return all(found.st_mtime <= when for found in files.values())
    return {e.path: e.version for e in folder.entries(files)} == {f.path: f.sha256 for f in fetched}


def _revision(entries: Iterable[Entry]) -> str:
    text = json.dumps([[e.path, e.size, e.version] for e in entries])
    return hashlib.sha256(text.encode()).hexdigest()


class _Folder:
    def __init__(self, location: str, threads: int = 1) -> None:
        self._given = Path(location)
        self._root = self._given.resolve()
        self._single = self._root.is_file()
        self._threads = threads

    def refuse_overlap(self, output: Path) -> None:
        if self._root == output or self._root in output.parents or output in self._root.parents:
            why = f"overlaps with the output folder {output}"
            raise TargetFault(Problem(f"file://{self._given}", why, "fetch into a folder of its own"))

    def listing(self, recorded: str) -> Listing:  # noqa: ARG002
        entries = self.entries(self._keys())
        return Listing(_revision(entries), entries)

    def entries(self, keys: Iterable[str]) -> list[Entry]:
        """Return the files with their digests."""
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(self._entry, keys))

    def files(self, wanted: Patterns) -> dict[str, os.stat_result]:
        """Return path -> stat of the files that are wanted."""
        return {key: self._stat(key) for key in self._keys() if wanted.wants(key)}

    def _stat(self, key: str) -> os.stat_result:
        """Of a plain file at once: `_names` enters no link, so it is inside."""
        try:
            found = os.lstat(self._root if self._single else os.path.join(self._root, key))  # noqa: PTH118  # of many files
        except OSError as error:
            raise self._refusal(key, error.strerror or str(error), "mend or remove it") from None
        return found if stat.S_ISREG(found.st_mode) else self._inside(key).stat()

    def _keys(self) -> list[str]:
        return [self._given.name] if self._single else sorted(self._names())

    def inspect(self, entry: Entry) -> Entry:
        return entry

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        return entry, _chunks(self._inside(entry.key), start, stop)

    def where(self, entry: Entry) -> str:
        return f"file://{self._path(entry.key)}"

    def _path(self, key: str) -> Path:
        return self._given if self._single else self._given / key

    def _names(self) -> Iterator[str]:
        def refuse(error: OSError) -> None:
            raise TargetFault(Problem(f"file://{error.filename}", f"{error.strerror}", "make it readable"))

        for folder, folders, files in os.walk(self._root, onerror=refuse):
            below = os.path.relpath(folder, self._root)
            if below.count("/") >= DEPTH_MAX:
                raise self._refusal(below, f"has more than {DEPTH_MAX} folders", "nest them less deeply")
            keys = {name: name if below == "." else f"{below}/{name}" for name in (*folders, *files)}
            for name, key in keys.items():
                if os.path.islink(os.path.join(folder, name)) and self._inside(key).is_dir():  # noqa: PTH114, PTH118  # of many files
                    raise self._refusal(key, "is a symbolic link to a folder", "put the folder itself there")
            yield from (keys[name] for name in files)

    def _entry(self, key: str) -> Entry:
        path = self._inside(key)
        try:
            size = path.stat().st_size
            sha256 = digests(path, {"sha256"})["sha256"]
        except PermissionError as error:
            raise self._refusal(key, error.strerror or "is not readable", "make it readable") from None
        return Entry(key, key, size, sha256, {"sha256": sha256})

    def _inside(self, key: str) -> Path:
        """The plain file (or linked folder) of that name, not outside of what was asked for."""
        path = self._root if self._single else (self._root / key)
        try:
            target = path.resolve(strict=True)
            mode = target.stat().st_mode
        except (OSError, RuntimeError) as error:
            raise self._refusal(key, getattr(error, "strerror", None) or str(error), "mend or remove it") from None
        if target != self._root and self._root not in target.parents:
            raise self._refusal(key, "is a symbolic link that leads out of the folder", "put the file itself there")
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise self._refusal(key, "is neither a file nor a folder", "leave it out of the folder")
        return target

    def _refusal(self, key: str, why: str, mend: str) -> TargetFault:
        return TargetFault(Problem(f"file://{self._path(key)}", why, mend))


def _chunks(path: Path, start: int, stop: int) -> Chunks:
    with path.open("rb") as data:
        data.seek(start)
        while start < stop and (chunk := data.read(min(MIB, stop - start))):
            start += len(chunk)
            yield chunk
