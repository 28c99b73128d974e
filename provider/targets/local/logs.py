"""Writes the output of containers from pipes into rotated files, and reads these files for the command line.

The newest output stays in memory for a failure report. A line with a `trainerStatus` of rank 0 is passed on. Writing never stops
a job: bytes that a full disk rejects are counted and left out.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import IO, NamedTuple

from pulumi_trainer.provider.jobs.progress import LONGEST_LINE
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.targets.local.paths import FILE_MODE, FOLDER_MODE

CHUNK = 1 << 16
TAIL = 1 << 16
"""Bytes of a container's newest output that stay in memory."""


class Log:
    """A log file, rotated by size: `<name>.log`, `.log.1`, ... (at most `keep` files of `size` bytes)."""

    def __init__(self, path: Path, size: int, keep: int) -> None:
        self.path, self._size, self._keep = path, size, keep
        self._file: int | None = None
        self._written = 0
        self._unreported_bytes = 0
        self.lost_bytes = 0
        """Bytes that could not be written."""
        self.tail = bytearray()
        self.tail_is_cut = False

    def write(self, data: bytes) -> None:
        """Write output of the container to the file and the tail."""
        self.tail += data
        if len(self.tail) > 2 * TAIL:
            del self.tail[:-TAIL]
            self.tail_is_cut = True
        self.write_note(data)

    def write_note(self, data: bytes) -> None:
        """Write a line of this program to the file, but not to the tail."""
        try:
            self._rotate_for(len(data))
            if self._unreported_bytes:
                self._put(
                    f"\npulumi-trainer: {self._unreported_bytes} bytes of output are missing: no space\n".encode()
                )
                self._unreported_bytes = 0
            self._put(data)
        except OSError:
            self._unreported_bytes += len(data)
            self.lost_bytes += len(data)

    def begin_attempt(self) -> None:
        """Clear the tail, because a new attempt starts."""
        self.tail.clear()
        self.tail_is_cut = False

    def close(self) -> None:
        """Close the file, after a line about missing bytes if the disk has space now."""
        if self._unreported_bytes:
            self.write_note(b"")
        self._close()

    def _close(self) -> None:
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

    def _rotate_for(self, more: int) -> None:
        if self._file is None:
            self._open()
        if self._written and self._written + more > self._size:
            self._close()
            self._count_dropped()
            for i in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._numbered(i - 1).replace(self._numbered(i))
            self._open()

    def _count_dropped(self) -> None:
        """Add the size of the oldest file, which is replaced now, to the bytes that `dropped_bytes` returns."""
        with suppress(OSError):
            more = self._numbered(self._keep - 1).stat().st_size
            replace_file(_dropped_file(self.path), str(dropped_bytes(self.path) + more).encode(), FILE_MODE)

    def _open(self) -> None:
        self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self.path, flags, FILE_MODE)
        self._written = os.fstat(self._file).st_size

    def _numbered(self, i: int) -> Path:
        if i == 0:
            return self.path
        return self.path.with_name(f"{self.path.name}.{i}")


class Pipe:
    """One of the two outputs of a container. Only whole lines are written, so that the outputs do not mix within a line."""

    def __init__(self, fd: int, log: Log, on_line: Callable[[bytes], None] | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd, self._log, self._on_line, self._rest = fd, log, on_line, b""

    def pump(self) -> bool:
        """Read once and return whether the pipe is still open."""
        data = self._read()
        if data is not None:
            self._take(data, last=not data)
        return data != b""

    def drain(self) -> None:
        """Read the available output, without waiting: another process may have the other end open."""
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
        if last or len(data) > LONGEST_LINE:
            cut = len(data)
        else:
            cut = data.rfind(b"\n") + 1
        whole, self._rest = data[:cut], data[cut:]
        if not whole:
            return
        if last and not whole.endswith(b"\n"):
            whole += b"\n"
        self._log.write(whole)
        if self._on_line and b'"trainerStatus"' in whole:
            for line in whole.splitlines():
                self._on_line(line)


def files(folder: Path, jobset: str, step: str | None = None) -> list[tuple[str, str, Path]]:
    """Return (pod, container, file) of every container with output, in order."""
    pattern = ".*"
    if step:
        pattern = rf"{re.escape(jobset)}-{re.escape(step)}-[0-9]+-[0-9]+"
    pods = re.compile(pattern)
    found = [(p.parent.name, p.stem, p) for p in folder.glob("*/*.log") if pods.fullmatch(p.parent.name)]
    return sorted(found, key=lambda f: (_numbers_in(f[0]), f[:2]))


def _numbers_in(pod: str) -> list[int]:
    """Return the numbers in the name of a pod, with 0 for every other word, so that 2 precedes 10."""
    numbers = []
    for word in pod.split("-"):
        number = 0
        if word.isdecimal():
            number = int(word)
        numbers.append(number)
    return numbers


def dropped_bytes(path: Path) -> int:
    """Return the bytes at the beginning of a log whose files were replaced by newer ones."""
    try:
        return int(_dropped_file(path).read_text()[:20])
    except (OSError, ValueError):
        return 0


def _dropped_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.dropped")


def _numbered(path: Path) -> Iterator[Path]:
    """Yield the names of the files of a log, the newest first, whether they exist or not."""
    yield path
    for i in count(1):
        yield path.with_name(f"{path.name}.{i}")


LineFilter = Callable[[str], bool]
"""Returns whether a line is wanted."""


def last_lines(path: Path, wanted: int, end: int | None = None, matches: LineFilter | None = None) -> list[str]:
    """Return the newest `wanted` lines before byte `end`, from rotated files as well if the newest has too few. end: Bytes of
    the newest file to read; None for all."""
    lines: list[str] = []
    for file in takewhile(Path.is_file, _numbered(path)):
        with suppress(OSError):
            lines = _last_of(file, wanted - len(lines), end, matches) + lines
        if len(lines) >= wanted:
            break
        end = None
    return lines[-wanted:] if wanted else []


def _last_of(file: Path, wanted: int, end: int | None, matches: LineFilter | None) -> list[str]:
    """Return at least the newest `wanted` matching lines of a file before byte `end`, or all that it has."""
    size = 512 * wanted + CHUNK
    with file.open("rb") as data:
        if end is None:
            end = os.fstat(data.fileno()).st_size
        while True:
            start = data.seek(max(0, end - size))
            lines = _lines(data.read(end - start))
            if start:  # the first line may be cut
                del lines[0]
            if matches is not None:
                lines = [*filter(matches, lines)]
            if start == 0 or len(lines) >= wanted:
                return lines
            size *= 2


class Follow:
    """Reads new lines of some files, across rotation."""

    def __init__(self) -> None:
        self._positions: dict[Path, _Position] = {}

    def skip(self, path: Path) -> int:
        """Skip the current content of a file and return its size in bytes."""
        with suppress(OSError), path.open("rb") as data:
            position = _Position.of(data, os.fstat(data.fileno()).st_size)
            self._positions[path] = position
            return position.offset
        return 0

    def new_lines(self, path: Path) -> Iterator[str]:
        """Yield the lines that were written since the last call, after a note if the log does not have all of them any more."""
        before = self._positions.get(path)
        with suppress(OSError), ExitStack() as opened:
            unread: list[IO[bytes]] = []
            offset = 0
            for data in _open_rotated(path, opened):
                unread.insert(0, data)
                if before is not None and before == _Position.of(data, before.offset):
                    offset = before.offset
                    break
            else:
                dropped = dropped_bytes(path)
                if unread and dropped:
                    yield (
                        f"pulumi-trainer: output is missing here: the first {dropped:,} bytes of this log were replaced"
                        " by newer ones"
                    )
            for data in unread:
                lines, offset = _from(data, offset)
                self._positions[path] = _Position.of(data, offset)
                yield from lines
                offset = 0


class _Position(NamedTuple):
    """A place in a file of a log. The text before it identifies the file: a new file may have the inode of a removed one."""

    inode: int
    offset: int
    before: bytes

    @classmethod
    def of(cls, data: IO[bytes], offset: int) -> _Position:
        data.seek(max(0, offset - _BEFORE))
        return cls(os.fstat(data.fileno()).st_ino, offset, data.read(min(offset, _BEFORE)))


_BEFORE = 256
"""Bytes before a place that identify its file."""


def _open_rotated(path: Path, opened: ExitStack) -> Iterator[IO[bytes]]:
    """Open the files of a log, the newest first. A file that is rotated meanwhile is opened once."""
    inodes = set[int]()
    absent = 0
    for file in _numbered(path):
        try:
            data = opened.enter_context(file.open("rb"))
        except FileNotFoundError:
            absent += 1
            if file == path or absent == 2:  # a rotation leaves one gap, while it renames one file after the other
                return
            continue
        absent = 0
        inode = os.fstat(data.fileno()).st_ino
        if inode not in inodes:
            inodes.add(inode)
            yield data


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text. Only a line feed ends a line, unlike in `str.splitlines`."""
    return data.decode(errors="replace").removesuffix("\n").split("\n") if data else []


def _from(data: IO[bytes], offset: int) -> tuple[list[str], int]:
    """Return the whole lines of a file from an offset on, and the offset behind them."""
    data.seek(offset)
    text = data.read()
    whole = text[: text.rfind(b"\n") + 1]
    return _lines(whole), offset + len(whole)


def show(
    listing: Callable[[], list[tuple[str, str, Path]]],
    lines: int,
    done: Callable[[], bool] | None,
    filter_of: Callable[[str], LineFilter | None] = lambda _: None,
) -> Iterator[tuple[str, str, str]]:
    """Yield (pod, container, line) of log files: the last lines of each, then new lines.

    Args:
        listing: Returns the files, as `files` does.
        filter_of: Returns the filter of the last lines of a pod; None for all lines.
    """
    follow = Follow()
    for pod, container, path in listing():
        for line in last_lines(path, lines, follow.skip(path), filter_of(pod)):
            yield pod, container, line
    while done is not None:
        over = done()
        for pod, container, path in listing():
            for line in follow.new_lines(path):
                yield pod, container, line
        if over:
            return
        time.sleep(0.2)
