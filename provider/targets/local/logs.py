"""Output of containers: pipes pumped into rotated files, the newest part kept in memory for a failure report.

A line that is a `trainerStatus` of rank 0 is handed on. Writing never stops a job: what a full disk refuses is counted
and left out. `tail` and `follow` read the files again, for the command line.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from pulumi_trainer.provider.api.progress import LONGEST_LINE
from pulumi_trainer.provider.targets.local.paths import FILE_MODE, FOLDER_MODE

CHUNK = 1 << 16
TAIL = 1 << 16
"""Bytes of a container's newest output that are kept in memory."""


class Log:
    """One file, rotated by size: `<name>.log`, `.log.1`, ... (`keep` files of `size` bytes at most)."""

    def __init__(self, path: Path, size: int, keep: int) -> None:
        self.path, self._size, self._keep = path, size, keep
        self._file: int | None = None
        self._written = 0
        self._lost = 0
        self.tail = bytearray()
        self.tail_is_cut = False

    def write(self, data: bytes) -> None:
        self.tail += data
        if len(self.tail) > 2 * TAIL:
            del self.tail[:-TAIL]
            self.tail_is_cut = True
        self.note(data)

    def note(self, data: bytes) -> None:
        """Writes what the container has not said itself, so that it is no part of the tail."""
        try:
            self._make_room(len(data))
            if self._lost:
                self._put(f"\npulumi-trainer: {self._lost} bytes of output are missing: no space\n".encode())
                self._lost = 0
            self._put(data)
        except OSError:
            self._lost += len(data)

    def begin(self) -> None:
        """A new attempt: the tail of the last one is no longer of interest."""
        self.tail.clear()
        self.tail_is_cut = False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            done = os.write(self._file, view)
            self._written += done
            view = view[done:]

    def _make_room(self, more: int) -> None:
        if self._file is None:
            self._open()
        if self._written and self._written + more > self._size:
            self.close()
            for i in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._numbered(i - 1).replace(self._numbered(i))
            self._open()

    def _open(self) -> None:
        self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self.path, flags, FILE_MODE)
        self._written = os.fstat(self._file).st_size

    def _numbered(self, i: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{i}") if i else self.path


class Pipe:
    """One of a container's two outputs. Whole lines go to the log, so that the two do not cut each other's lines."""

    def __init__(self, fd: int, log: Log, on_line: Callable[[bytes], None] | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd, self._log, self._on_line, self._rest = fd, log, on_line, b""

    def pump(self) -> bool:
        """Reads once; False: nothing will come any more."""
        data = self._read()
        if data is not None:
            self._take(data, last=not data)
        return data != b""

    def drain(self) -> None:
        """What is there now, and not more: a stranger may hold the other end."""
        for _ in range(32):
            data = self._read()
            if not data:
                break
            self._take(data)
        self._take(b"", last=True)

    def _read(self) -> bytes | None:
        try:
            return os.read(self.fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _take(self, data: bytes, last: bool = False) -> None:
        data = self._rest + data
        cut = len(data) if last or len(data) > LONGEST_LINE else data.rfind(b"\n") + 1
        whole, self._rest = data[:cut], data[cut:]
        if not whole:
            return
        self._log.write(whole if whole.endswith(b"\n") or not last else whole + b"\n")
        if self._on_line and b'"trainerStatus"' in whole:
            for line in whole.splitlines():
                self._on_line(line)


def files(folder: Path, jobset: str, step: str | None = None) -> list[tuple[str, str, Path]]:
    """(pod, container, file) of every container that has written something, in order."""
    of_step = re.compile(rf"{re.escape(jobset)}-{re.escape(step)}-[0-9]+-[0-9]+" if step else ".*")
    found = [(p.parent.name, p.stem, p) for p in folder.glob("*/*.log") if of_step.fullmatch(p.parent.name)]
    return sorted(found, key=lambda f: ([int(w) if w.isdecimal() else 0 for w in f[0].split("-")], f[:2]))


def last_lines(path: Path, count: int, end: int | None = None) -> list[str]:
    """The newest lines before byte `end`, out of the rotated file before as well where the newest has too few."""
    lines: list[str] = []
    for file in (path, path.with_name(f"{path.name}.1")):
        with suppress(OSError), file.open("rb") as data:
            end = file.stat().st_size if end is None else end
            start = data.seek(max(0, end - 512 * count - CHUNK))
            lines = _lines(data.read(end - start)) + lines
        if len(lines) >= count:
            break
        end = None
    return lines[-count:] if count else []


class Follow:
    """What comes newly into some files, across rotation."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}

    def skip(self, path: Path) -> int:
        """What is there now is shown by other means; how many bytes that is."""
        with suppress(OSError):
            stat = path.stat()
            self._seen[path] = (stat.st_ino, stat.st_size)
            return stat.st_size
        return 0

    def new(self, path: Path) -> Iterator[str]:
        inode, offset = self._seen.get(path, (0, 0))
        with suppress(OSError):
            if inode and path.stat().st_ino != inode:
                older = path.with_name(f"{path.name}.1")
                if older.stat().st_ino == inode:
                    yield from _from(older, offset)[0]
                offset = 0
        with suppress(OSError):
            lines, offset = _from(path, offset)
            self._seen[path] = (path.stat().st_ino, offset)
            yield from lines


def _lines(data: bytes) -> list[str]:
    """A line feed ends a line, and nothing else that Python takes for an end."""
    return data.decode(errors="replace").removesuffix("\n").split("\n") if data else []


def _from(path: Path, offset: int) -> tuple[list[str], int]:
    with path.open("rb") as data:
        data.seek(offset)
        text = data.read()
    whole = text[: text.rfind(b"\n") + 1]
    return _lines(whole), offset + len(whole)


def show(
    listing: Callable[[], list[tuple[str, str, Path]]], lines: int, done: Callable[[], bool] | None
) -> Iterator[tuple[str, str, str]]:
    """(pod, container, line): the last `lines` of each file, then what is added until `done`; done None: no more."""
    follow = Follow()
    for pod, container, path in listing():
        for line in last_lines(path, lines, follow.skip(path)):
            yield pod, container, line
    while done is not None:
        over = done()
        for pod, container, path in listing():
            for line in follow.new(path):
                yield pod, container, line
        if over:
            return
        time.sleep(0.2)
