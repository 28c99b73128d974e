"""Writes a folder to standard output as a tar archive, with a list before it and SHA-256 checksums behind it.

Runs as a program of its own: on this machine, and with `python3 -c` in a pod with the image of a job. So it needs nothing but
Python 3.7. No link is followed. Members of the archive:

    start   {"paths": ["log.txt", …] of files and links, "bytes": 1200, "skipped": [["fifo", "is not a file, …"]]}
    data/…  folders, links, and files with the content that they had when they were read
    end     {"sha256": ["9f86…", …] of the files in order, "changed": ["log.txt"], "gone": ["tmp"]}
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import IO, Any


class Content:
    """Reads exactly `size` bytes of a file that may change, and hashes them; what is missing is filled with zeros."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left, self.digest, self.short = file, size, hashlib.sha256(), False

    def read(self, size: int) -> bytes:
        data = self.file.read(min(size, self.left))
        if not data and self.left:
            self.short = True
            data = bytes(min(size, self.left))
        self.left -= len(data)
        self.digest.update(data)
        return data


def walk(root: str) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Yield path, descriptor of the folder, name and status of all that is below a folder, sorted; folders first."""
    for folder, names, files, descriptor in os.fwalk(root, onerror=fail):
        names.sort()
        for name in names + sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            try:
                yield path, descriptor, name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue


def fail(error: OSError) -> None:
    """End with an error, because a copy without what cannot be read would not be whole."""
    if not isinstance(error, FileNotFoundError):
        sys.exit(f"{error.filename} cannot be read: {error.strerror}")


def describe(root: str) -> dict[str, Any]:
    paths: list[str] = []
    skipped: list[list[str]] = []
    size = 0
    for path, _, _, found in walk(root):
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            paths.append(path)
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
        elif not stat.S_ISDIR(found.st_mode):
            skipped.append([path, "is not a file, a folder or a link"])
    return {"paths": paths, "bytes": size, "skipped": skipped}


def member(path: str, found: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo("data/" + path)
    info.mode, info.mtime = stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime)
    return info


def add_file(tar: tarfile.TarFile, path: str, descriptor: int, name: str, end: dict[str, Any]) -> None:
    """Add a file; opened without following a link, nor waiting for a pipe that has replaced the file."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except FileNotFoundError:
        end["gone"].append(path)
        return
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}")
    with open(opened, "rb") as file:
        before = os.fstat(opened)
        if not stat.S_ISREG(before.st_mode):
            end["gone"].append(path)
            return
        info = member(path, before)
        info.size = before.st_size
        content = Content(file, info.size)
        tar.addfile(info, content)  # type: ignore[arg-type]
        after = os.fstat(opened)
    end["sha256"].append(content.digest.hexdigest())
    if content.short or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        end["changed"].append(path)


def add_json(tar: tarfile.TarFile, name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document).encode()
    info = tarfile.TarInfo(name)
    info.size = len(text)
    tar.addfile(info, io.BytesIO(text))


def send(root: str, out: IO[bytes]) -> None:
    end: dict[str, list[str]] = {"sha256": [], "changed": [], "gone": []}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        add_json(tar, "start", describe(root))
        for path, descriptor, name, found in walk(root):
            if stat.S_ISDIR(found.st_mode):
                info = member(path, found)
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif stat.S_ISLNK(found.st_mode):
                info = member(path, found)
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=descriptor)
                tar.addfile(info)
            elif stat.S_ISREG(found.st_mode):
                add_file(tar, path, descriptor, name, end)
            tar.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them
        add_json(tar, "end", end)


if __name__ == "__main__":
    if not os.path.isdir(sys.argv[1]) or os.path.islink(sys.argv[1]):
        sys.exit(f"{sys.argv[1]} is not a folder")
    try:
        send(sys.argv[1], sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)
