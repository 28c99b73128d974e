"""`file:///PATH`: a file, or everything below a folder, of the machine on which the initializer runs.

Symbolic links are followed to files inside the folder only. The revision is a digest of paths, sizes and sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulumi_trainer.provider.api.errors import Problem, TargetFault

from .contract import STORAGE_URI, Kind
from .source import MIB, Chunks, Entry, Listing, Order, Patterns, digests


def check(location: str, kind: Kind) -> list[Problem]:  # noqa: ARG001
    """An absolute path that exists."""
    if not location.startswith("/"):
        mend = "write file:///PATH; a path of another machine is no file:// URI"
        return [Problem(STORAGE_URI, f"file://{location} is no absolute path", mend)]
    try:
        mode = Path(location).stat().st_mode
    except OSError as error:
        return [Problem(STORAGE_URI, f"{location}: {error.strerror}", "give a file or folder of this machine")]
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return [Problem(STORAGE_URI, f"{location} is neither a file nor a folder")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:  # noqa: ARG001
    return Patterns()


def connect(order: Order) -> _Folder:
    return _Folder(order)


class _Folder:
    def __init__(self, order: Order) -> None:
        self._given = Path(order.location)
        self._root = self._given.resolve()
        self._threads = order.tuning.threads
        output = order.output.resolve()
        if self._root == output or self._root in output.parents or output in self._root.parents:
            why = f"overlaps with the output folder {output}"
            raise TargetFault(Problem(f"file://{self._given}", why, "fetch into a folder of its own"))

    def listing(self, recorded: str) -> Listing:  # noqa: ARG002
        single = self._root.is_file()
        found = [self._given.name] if single else sorted(self._names())
        with ThreadPoolExecutor(self._threads) as pool:
            entries = list(pool.map(self._entry, found))
        text = json.dumps([[e.path, e.size, e.version] for e in entries])
        return Listing(hashlib.sha256(text.encode()).hexdigest(), entries)

    def inspect(self, entry: Entry) -> Entry:
        return entry

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        return entry, _chunks(self._inside(entry.key), start, stop)

    def where(self, entry: Entry) -> str:
        return f"file://{self._path(entry.key)}"

    def _path(self, key: str) -> Path:
        return self._given if self._root.is_file() else self._given / key

    def _names(self) -> Iterator[str]:
        def refuse(error: OSError) -> None:
            raise TargetFault(Problem(f"file://{error.filename}", f"{error.strerror}", "make it readable"))

        for folder, folders, files in os.walk(self._root, onerror=refuse):
            for name in (*folders, *files):
                path = Path(folder, name)
                key = str(path.relative_to(self._root))
                if path.is_symlink() and self._inside(key).is_dir():
                    raise self._refusal(key, "is a symbolic link to a folder", "put the folder itself there")
                if name not in folders:
                    yield key

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
        path = self._root if self._root.is_file() else (self._root / key)
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
