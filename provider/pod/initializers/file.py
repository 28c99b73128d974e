"""`file:///PATH`: a file, or everything below a folder, of the machine on which the initializer runs.

Symbolic links are followed to files inside the folder only. The revision is a digest of paths, sizes and sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.pod.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.pod.initializers.file_names import DEPTH_MAX
from pulumi_trainer.provider.pod.initializers.source import MIB, Count, Entry, FetchRequest, Listing, Patterns, digests

MAX_HASHED = 64 * MIB
"""Bytes of a source that a plan reads to detect changes, which takes less than 0.1 s."""


def check(location: str, kind: Kind) -> list[Problem]:  # noqa: ARG001
    """Return the problems of a location, which must be an absolute path that exists."""
    if not location.startswith("/"):
        why = f"{hide_credentials(f'file://{location}')} is not an absolute path"
        return [Problem(STORAGE_URI, why, "write file:///PATH, with a path on this machine")]
    shown = hide_credentials(location)
    try:
        mode = Path(location).stat().st_mode
    except OSError as error:
        return [Problem(STORAGE_URI, f"{shown}: {error.strerror}", "give a file or folder of this machine")]
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return [Problem(STORAGE_URI, f"{shown} is neither a file nor a folder")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:  # noqa: ARG001
    """Return no patterns: all files are fetched."""
    return Patterns()


def connect(request: FetchRequest) -> _Folder:
    folder = _Folder(request.location, request.tuning.threads, request.patterns)
    folder.refuse_overlap(request.output.resolve())
    return folder


def fingerprint(uri: str, ignore: Iterable[str]) -> str:
    """Return a digest of the files of a `file://` URI.

    Up to `MAX_HASHED` bytes it covers the content. Reading more would slow every plan, so beyond that it covers names, sizes and
    times of last change.
    """
    folder = _Folder(uri.partition("://")[2])
    files = folder.files(Patterns(ignore=tuple(ignore)))
    if _total_size(files) <= MAX_HASHED:
        return _revision(folder.entries(files))
    entries = [Entry(k, k, status.st_size, str(status.st_mtime_ns)) for k, status in files.items()]
    return _revision(entries)


def local_files(uri: str, ignore: Iterable[str]) -> dict[str, tuple[Path, int]]:
    """Return the files of a `file://` URI, by path below it: place and bytes. They are in the order of `Path`."""
    folder = _Folder(uri.partition("://")[2])
    files = folder.files(Patterns(ignore=tuple(ignore)))
    found = {}
    for key in sorted(files, key=lambda key: key.split("/")):
        found[key] = (folder._inside(key), files[key].st_size)
    return found


def _total_size(files: Mapping[str, os.stat_result]) -> int:
    return sum(status.st_size for status in files.values())


def _revision(entries: Iterable[Entry]) -> str:
    text = json.dumps([[e.path, e.size, e.version] for e in entries])
    return hashlib.sha256(text.encode()).hexdigest()


class _Folder:
    def __init__(self, location: str, threads: int = 1, selected: Patterns | None = None) -> None:
        self._given = Path(location)
        self._root = self._given.resolve()
        self._single = self._root.is_file()
        self._threads = threads
        self._selected = selected or Patterns()

    def refuse_overlap(self, output: Path) -> None:
        if self._root == output or self._root in output.parents or output in self._root.parents:
            why = f"overlaps with the output folder {output}"
            raise TargetFault(Problem(f"file://{self._given}", why, "fetch into a folder of its own"))

    def listing(self, recorded: str) -> Listing:  # noqa: ARG002
        """Return all files, so that the revision does not depend on patterns; but not what is ignored and cannot be fetched."""
        with ThreadPoolExecutor(self._threads) as pool:
            found = pool.map(self._acceptable, self._keys(self._selected))
            entries = [entry for entry in found if entry is not None]
        return Listing(_revision(entries), entries)

    def _acceptable(self, key: str) -> Entry | None:
        try:
            return self._entry(key)
        except TargetFault:
            if self._selected.selects(key):
                raise
            return None

    def entries(self, keys: Iterable[str]) -> list[Entry]:
        """Return the files with their digests."""
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(self._entry, keys))

    def files(self, selected: Patterns) -> dict[str, os.stat_result]:
        found = {}
        for key in self._keys(selected):
            if selected.selects(key):
                found[key] = self._stat(key)
        return found

    def _stat(self, key: str) -> os.stat_result:
        """Return the status of a file. A regular file needs no further check: `_names` enters no link, so it is inside."""
        try:
            if self._single:
                status = os.lstat(self._root)
            else:
                status = os.lstat(os.path.join(self._root, key))  # noqa: PTH118  # of many files
        except OSError as error:
            raise self._fault(key, error.strerror or str(error), "fix or remove it") from None
        if stat.S_ISREG(status.st_mode):
            return status
        return self._inside(key).stat()

    def _keys(self, selected: Patterns) -> list[str]:
        if self._single:
            return [self._given.name]
        return sorted(self._names(selected))

    def download(self, entry: Entry, path: Path, count: Count) -> Mapping[str, str]:
        with self._inside(entry.key).open("rb") as content, path.open("wb") as copy:
            while chunk := content.read(MIB):
                count(copy.write(chunk))
        return entry.checks

    def address(self, entry: Entry) -> str:
        return f"file://{self._path(entry.key)}"

    def _path(self, key: str) -> Path:
        if self._single:
            return self._given
        return self._given / key

    def _names(self, selected: Patterns) -> Iterator[str]:
        """Yield the names of all files; links are only checked if they are selected."""

        def refuse(error: OSError) -> None:
            raise TargetFault(Problem(f"file://{error.filename}", f"{error.strerror}", "make it readable"))

        for folder, folders, files in os.walk(self._root, onerror=refuse):
            below = os.path.relpath(folder, self._root)
            if below.count("/") >= DEPTH_MAX:
                raise self._fault(below, f"has more than {DEPTH_MAX} folders", "nest them less deeply")
            prefix = "" if below == "." else f"{below}/"
            keys = {name: f"{prefix}{name}" for name in (*folders, *files)}
            for name, key in keys.items():
                is_link = os.path.islink(os.path.join(folder, name))  # noqa: PTH114, PTH118  # of many files
                if is_link and selected.selects(key) and self._inside(key).is_dir():
                    raise self._fault(key, "is a symbolic link to a folder", "put the folder itself there")
            for name in files:
                yield keys[name]

    def _entry(self, key: str) -> Entry:
        path = self._inside(key)
        try:
            size = path.stat().st_size
            sha256 = digests(path, {"sha256"})["sha256"]
        except PermissionError as error:
            raise self._fault(key, error.strerror or "is not readable", "make it readable") from None
        return Entry(key, key, size, sha256, {"sha256": sha256})

    def _inside(self, key: str) -> Path:
        """Return the regular file (or linked folder) of that name; refuse one outside of the folder."""
        path = self._root if self._single else (self._root / key)
        try:
            target = path.resolve(strict=True)
            mode = target.stat().st_mode
        except (OSError, RuntimeError) as error:
            raise self._fault(key, getattr(error, "strerror", None) or str(error), "fix or remove it") from None
        if target != self._root and self._root not in target.parents:
            raise self._fault(key, "is a symbolic link that leads out of the folder", "put the file itself there")
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise self._fault(key, "is neither a file nor a folder", "leave it out of the folder")
        return target

    def _fault(self, key: str, why: str, hint: str) -> TargetFault:
        return TargetFault(Problem(f"file://{self._path(key)}", why, hint))
