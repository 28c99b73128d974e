"""The manifest of a folder: what was fetched, at which revision, and that all of it is there.

It lies beside the folder, as `.FOLDER.pulumi-trainer.json`, so that the folder holds data alone; in the folder where nothing can
lie beside it (a mount point, for one), and where an earlier version has put it. Written last, so a folder without one, or with
`complete: false`, is not complete. Written and read by `fetching`.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.code import MANIFEST, manifest_of
from pulumi_trainer.provider.initializers.names import unsafe
from pulumi_trainer.provider.initializers.source import Patterns

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


def place(output: Path) -> Path:
    """Return where the manifest of a folder is to be written."""
    inside = os.path.ismount(output) or not os.access(output.parent, os.W_OK)
    return output / MANIFEST if inside else manifest_of(output)


def read(output: Path) -> Manifest | None:
    """None: there is none, it is damaged, or nothing that it names is there. What other programs may have written into it leads
    nowhere."""
    found = _read(manifest_of(output)) or _read(output / MANIFEST)
    return found if found and any(os.path.lexists(output / path) for path in found.paths) else None


def _read(path: Path) -> Manifest | None:
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


def written(output: Path) -> float:
    """Return when the manifest was written, in seconds since the epoch."""
    path = manifest_of(output)
    return (path if path.exists() else output / MANIFEST).lstat().st_mtime


def write(output: Path, manifest: Manifest, staging: Path) -> None:
    """Atomically, so that a crash leaves the one of before."""
    path = place(output)
    temporary = staging / MANIFEST if path.parent == output else path.with_name(f"{path.name}.new")
    with temporary.open("w") as file:
        json.dump({"version": VERSION, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if path.parent != output:
        (output / MANIFEST).unlink(missing_ok=True)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Puts the names in a folder on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def in_place(output: Path, file: FetchedFile) -> bool:
    """A plain file of that size is there (its content is not read)."""
    try:
        found = (output / file.path).lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == file.size
