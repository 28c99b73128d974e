"""Validates the names of files before the first byte is fetched: a listing is untrusted, and no name may lead out of the output
folder or collide with another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.pod.code import MANIFEST

STAGING = ".incomplete"
NAME_MAX = 255
PATH_MAX = 4096
DEPTH_MAX = 64
"""Folders around a file: each one is created, and remembered while names are compared."""
_HINT = "rename it at the source, or leave it out with IGNORE_PATTERNS"


def path_error(path: str, max_bytes: int = PATH_MAX) -> str:
    """Return why a relative path of a file cannot be written; empty if it can."""
    if "\0" in path:
        return "contains a NUL byte"
    parts = path.split("/")
    if path.startswith("/"):
        return "is absolute"
    if ".." in parts:
        return "leads out of the folder (..)"
    if "" in parts or "." in parts:
        return "has an empty or '.' component"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    if len(encoded) >= max_bytes or max(map(len, encoded.split(b"/"))) > NAME_MAX:
        return "is too long for a file name"
    if len(parts) > DEPTH_MAX:
        return f"has more than {DEPTH_MAX} folders"
    if parts[0] in (MANIFEST, STAGING):
        return "is a name reserved for this program"
    return ""


def check_paths(paths: Iterable[str], output: Path) -> list[Problem]:
    """Return the first three problems of a set of paths that are to be written below `output`."""
    max_bytes = PATH_MAX - len(os.fsencode(output)) - 1
    problems: list[Problem] = []
    files: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if reason := path_error(path, max_bytes):
            problems.append(Problem(_abbreviate(path), f"{reason}, so it is not fetched", _HINT))
        elif path in files:
            problems.append(Problem(_abbreviate(path), "is listed twice", _HINT))
        else:
            files.add(path)
            folders.update(map(str, PurePosixPath(path).parents))
    both = "is both a file and a folder, which a file system cannot hold"
    return [*problems, *(Problem(_abbreviate(p), both, _HINT) for p in files & folders)][:3]


def find_obstacle(output: Path, path: str) -> str:
    """Return what prevents writing `output/path`: a link or a file in place of a folder, or a folder in place of the file;
    empty if nothing does."""
    parent = output
    for part in PurePosixPath(path).parts[:-1]:
        parent /= part
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            return f"{parent} is not a folder"
    target = output / path
    if target.is_dir() and not target.is_symlink():
        return f"{target} is a folder"
    return ""


def _abbreviate(path: str) -> str:
    return repr(path if len(path) <= 120 else f"{path[:117]}...")
