"""The manifest `.pulumi-trainer.json` of a folder: what was fetched, at which revision, and that all of it is there.

Written last, so a folder without one, or with `complete: false`, is not complete. Written and read by `fetching`.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .names import MANIFEST, unsafe
from .source import Patterns

VERSION = 1


@dataclass(frozen=True)
class FetchedFile:
    """A file in place. version: the source's name of this content (git blob id, ETag, sha256)."""

    path: str
    size: int
    sha256: str
    version: str


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    revision: commit of the repository (hf), digest of keys, ETags and sizes (s3), of paths, sizes and sha256 (file); an
    unpinned URI keeps it. stale: files of what was there before, while they are being replaced.
    """

    kind: str
    uri: str
    revision: str
    patterns: Patterns
    files: tuple[FetchedFile, ...]
    complete: bool
    stale: tuple[str, ...] = ()

    def same_wish(self, kind: str, uri: str, patterns: Patterns) -> bool:
        return (self.kind, self.uri, self.patterns) == (kind, uri, patterns)

    @property
    def paths(self) -> set[str]:
        """Every file of ours that may be in the folder."""
        return {f.path for f in self.files} | set(self.stale)


def read(output: Path) -> Manifest | None:
    """None: there is none, or it is damaged. What other programs may have written into it leads nowhere."""
    path = output / MANIFEST
    try:
        if path.is_symlink():
            return None
        return _parsed(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _parsed(data: Any) -> Manifest:
    if data["version"] != VERSION or not isinstance(data["complete"], bool):
        raise ValueError("another version")
    files = tuple(
        FetchedFile(str(f["path"]), int(f["size"]), str(f["sha256"]), str(f["version"])) for f in data["files"]
    )
    patterns = Patterns(tuple(map(str, data["patterns"]["allow"])), tuple(map(str, data["patterns"]["ignore"])))
    stale = tuple(map(str, data["stale"]))
    if any(unsafe(path) for path in (*(f.path for f in files), *stale)):
        raise ValueError("a path leads out of the folder")
    return Manifest(
        str(data["kind"]), str(data["uri"]), str(data["revision"]), patterns, files, data["complete"], stale
    )


def write(output: Path, manifest: Manifest, staging: Path) -> None:
    """Atomically, through a file in the staging folder."""
    temporary = staging / MANIFEST
    with temporary.open("w") as file:
        json.dump({"version": VERSION, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(output / MANIFEST)


def in_place(output: Path, file: FetchedFile) -> bool:
    """A plain file of that size is there (its content is not read)."""
    try:
        found = (output / file.path).lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == file.size
