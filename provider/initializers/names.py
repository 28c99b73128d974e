"""Which names may be written below the output folder. Names come from strangers: everything that could land elsewhere,
or on top of something else, is refused before the first byte is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pulumi_trainer.provider.api.code import MANIFEST
from pulumi_trainer.provider.kube.errors import Problem

STAGING = ".incomplete"
NAME_MAX = 255
PATH_MAX = 4096
DEPTH_MAX = 64
"""Folders around a file: each is made, and remembered while names are compared."""


def unsafe(path: str, room: int = PATH_MAX) -> str:
    """Why a relative path cannot be written, empty if it can. room: bytes that the whole path may have."""
    if "\0" in path:
        return "holds a NUL"
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
        return "is no valid text"
    if len(encoded) >= room or max(len(c) for c in encoded.split(b"/")) > NAME_MAX:
        return "is too long for a file name"
    if len(parts) > DEPTH_MAX:
        return f"has more than {DEPTH_MAX} folders"
    if parts[0] in (MANIFEST, STAGING):
        return "is a name that this program uses itself"
    return ""


def problems(paths: Iterable[str], output: Path) -> list[Problem]:
    """What is wrong with a set of files to be written below `output`, at most a few."""
    room = PATH_MAX - len(os.fsencode(output)) - 1
    found: list[Problem] = []
    files: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if reason := unsafe(path, room):
            found.append(Problem(_shown(path), f"{reason}, so it is not fetched"))
        elif path in files:
            found.append(Problem(_shown(path), "is there twice"))
        else:
            files.add(path)
            folders.update(str(p) for p in PurePosixPath(path).parents)
    found += [
        Problem(_shown(p), "is both a file and a folder, which a file system cannot hold") for p in files & folders
    ]
    mend = "rename it at the source, or leave it out with IGNORE_PATTERNS"
    return [Problem(p.where, p.why, mend) for p in found[:3]]


def obstacle(output: Path, path: str) -> str:
    """What stands in the way of writing `output/path`, empty if nothing: a link or a file in place of a folder, or a
    folder in place of the file."""
    place = output
    for part in PurePosixPath(path).parts[:-1]:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return f"{place} is no folder"
    last = output / path
    return f"{last} is a folder" if last.is_dir() and not last.is_symlink() else ""


def _shown(path: str) -> str:
    return repr(path if len(path) <= 120 else f"{path[:117]}...")
