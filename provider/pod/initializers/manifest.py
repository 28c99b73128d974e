"""The manifest of a folder: which files were fetched at which revision, and whether the fetch is complete.

It is `.FOLDER.pulumi-trainer.json` beside the folder, so that the folder contains only data. It is inside the folder if that is a
mount point, or if its parent is not writable. It is written last: a folder without a manifest, or with `complete: false`, is not
complete.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.pod.code import MANIFEST, manifest_of
from pulumi_trainer.provider.pod.initializers.file_names import path_error
from pulumi_trainer.provider.pod.initializers.source import Patterns

VERSION = 1
_MOST_BYTES = 1 << 29
"""Bytes of the longest manifest: of the most files that a fetch takes, with long names."""


@dataclass(frozen=True)
class FetchedFile:
    """A file in the folder. version: The source's identifier of the content (git blob id, ETag, sha256)."""

    path: str
    size: int
    sha256: str
    version: str


@dataclass(frozen=True)
class Manifest:
    """The content of a folder.

    Attributes:
        revision: Commit of the repository (hf), or digest of keys, ETags and sizes (s3) or of paths, sizes and sha256 (file);
            a later fetch of a URI without a revision uses it again.
        stale: Files of an earlier fetch that are being replaced.
    """

    kind: str
    uri: str
    revision: str
    patterns: Patterns
    files: tuple[FetchedFile, ...]
    complete: bool
    stale: tuple[str, ...] = ()

    @property
    def paths(self) -> set[str]:
        """Return the paths of all files of this and the earlier fetch that may be in the folder."""
        return {f.path for f in self.files} | set(self.stale)


def _path(output: Path) -> Path:
    """Return where the manifest of a folder is written."""
    inside = os.path.ismount(output) or not os.access(output.parent, os.W_OK)
    if inside:
        return output / MANIFEST
    return manifest_of(output)


def read(output: Path) -> Manifest | None:
    """Return the manifest of a folder; None if it is missing or damaged, or if none of its files is in the folder.

    The manifest is untrusted: no path in it leads out of the folder.
    """
    manifest = _read(manifest_of(output)) or _read(output / MANIFEST)
    if manifest and any(os.path.lexists(output / path) for path in manifest.paths):
        return manifest
    return None


def _read(path: Path) -> Manifest | None:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a FIFO may never end
                return None
            return _parse(json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _parse(data: Any) -> Manifest:
    if data["version"] != VERSION or not isinstance(data["complete"], bool):
        raise ValueError("unknown version")
    files = tuple(map(_parse_file, data["files"]))
    patterns = Patterns(tuple(map(str, data["patterns"]["allow"])), tuple(map(str, data["patterns"]["ignore"])))
    stale = tuple(map(str, data["stale"]))
    paths = [*(f.path for f in files), *stale]
    if any(map(path_error, paths)):
        raise ValueError("a path leads out of the folder")
    return Manifest(
        str(data["kind"]), str(data["uri"]), str(data["revision"]), patterns, files, data["complete"], stale
    )


def _parse_file(data: Any) -> FetchedFile:
    return FetchedFile(str(data["path"]), int(data["size"]), str(data["sha256"]), str(data["version"]))


def write(output: Path, manifest: Manifest, staging: Path) -> None:
    """Write the manifest of a folder atomically: after a crash, the previous manifest still exists."""
    path = _path(output)
    if path.parent == output:
        temporary = staging / MANIFEST
    else:
        temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w") as file:
        json.dump({"version": VERSION, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if path.parent != output:
        (output / MANIFEST).unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def has_file(output: Path, file: FetchedFile) -> bool:
    """Return whether the folder has a regular file of that path and size (the content is not read)."""
    try:
        status = (output / file.path).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == file.size
