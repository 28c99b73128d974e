"""Reads the archive of `send_output`, which is not trusted, into a destination."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.pod.scripts import send_output

RECORD = "run.json"
OTHER_RECORD = "run.pulumi-trainer.json"
"""Name of the record if the output has a file `run.json` of its own."""
_CHUNK = 2**20
_LONGEST_LIST = 2**28
"""Bytes of a list in the archive."""


@dataclass(frozen=True)
class CopiedFile:
    """A file of a copy, with a relative path."""

    path: str
    size: int
    sha256: str


@dataclass
class Copied:
    """What was copied. links: Path -> path of the target. notes: What was left out, and what had changed."""

    files: list[CopiedFile] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(each.size for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the record about the copy."""
        files = [{"path": each.path, "size": each.size, "sha256": each.sha256} for each in self.files]
        return {"files": files, "links": self.links, "notes": self.notes}


class Destination(Protocol):
    """Where a copy goes. Nothing that looks like a whole copy is there before `finish`."""

    def begin(self, size: int, paths: set[str]) -> None:
        """Check that so many bytes fit, and that nothing of others is at the paths of the files and links."""

    def add_folder(self, path: str, mode: int) -> None: ...
    def add_file(self, path: str, content: IO[bytes], size: int, mode: int, modified: float) -> None: ...
    def finish(self, name: str, record: bytes, copied: Copied) -> None:
        """Add the links and the record, and complete the copy."""


def receive(pieces: Iterator[bytes], destination: Destination, roots: Sequence[str]) -> Copied:
    """Copy an archive.

    Args:
        roots: Paths of the output for its job: absolute links below them stay inside.

    Raises:
        TargetFault: The archive is not whole, or not what `send_output` writes; or the destination cannot be written.
    """
    stream = _Pieces(pieces)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            copied, end = _read_members(archive, destination, roots)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, TypeError) as error:
        stream.drain()  # raises what has ended it
        raise TargetFault(Problem("archive", f"is incomplete: {error}", "copy it again")) from None
    stream.drain()
    _verify(copied, end)
    return copied


def _read_members(
    archive: tarfile.TarFile, destination: Destination, roots: Sequence[str]
) -> tuple[Copied, dict[str, Any]]:
    copied, end = Copied(), dict[str, Any]()
    begun = False
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them
        if member.name in ("start", "end"):
            known = _read_list(archive, member)
            if member.name == "end":
                end = known
            else:
                destination.begin(_number(known.get("bytes")), {*map(str, listed(known.get("paths")))})
                copied.notes += [f"{path} is left out: it {why}" for path, why in _pairs(known.get("skipped"))]
                begun = True
            continue
        path = _safe_path(member.name)
        if not begun or end:
            raise TargetFault(Problem("archive", "is not an archive of the output"))
        if member.isdir():
            destination.add_folder(path, member.mode & 0o777)
        elif member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            hashed = _Hashed(content)
            destination.add_file(path, hashed, member.size, member.mode & 0o777, member.mtime)  # type: ignore[arg-type]
            if hashed.size != member.size:
                raise TargetFault(Problem(path, f"{hashed.size} of {member.size} bytes have arrived", "copy it again"))
            copied.files.append(CopiedFile(path, member.size, hashed.digest.hexdigest()))
        elif member.issym():
            target = _link_target(path, member.linkname, roots)
            if target is None:
                copied.notes.append(f"{path} is left out: it is a link that leads out of the output")
            else:
                copied.links[path] = target
    return copied, end


def _read_list(archive: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    content = archive.extractfile(member)
    if content is None or member.size > _LONGEST_LIST:
        raise TargetFault(Problem("archive", "its list of files is too long"))
    try:
        return {"": None, **section(json.loads(content.read()))}
    except (ValueError, RecursionError):
        raise TargetFault(Problem("archive", "its list of files cannot be read")) from None


def _safe_path(name: str) -> str:
    """Return the relative path of a member."""
    path = name.removeprefix("data/").rstrip("/")
    if not name.startswith("data/") or not path or path.startswith("/") or "\0" in path:
        raise TargetFault(Problem("archive", f"{name!r} is not a path in the output"))
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise TargetFault(Problem("archive", f"{name!r} leads out of the output"))
    return path


def _link_target(path: str, target: str, roots: Sequence[str]) -> str | None:
    """Return the path in the output that a link leads to; None if it leads out of the output."""
    for root in roots:
        if target == root or target.startswith(f"{root}/"):
            inside = posixpath.normpath(target[len(root) :].lstrip("/") or ".")
            break
    else:
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if inside.startswith(("/", "../")) or inside in ("..", ".") or "\0" in inside:
        return None
    return inside


def _verify(copied: Copied, end: dict[str, Any]) -> None:
    """Check that all files have arrived as they were read, and note those that changed meanwhile."""
    if not end:
        raise TargetFault(Problem("archive", "is incomplete: its end is missing", "copy it again"))
    if end.get("sha256") != [each.sha256 for each in copied.files]:
        raise TargetFault(Problem("archive", "SHA-256 of received files differs from the source", "copy it again"))
    for key, what in (("changed", "changed while it was copied"), ("gone", "was deleted while it was copied")):
        names = [*map(str, listed(end.get(key)))]
        if names:
            copied.notes.append(f"{join_names(names, 5)}: {what}")


def record_name(copied: Copied) -> str:
    """Return the name of the record, which no file of the output has.

    A file `OTHER_RECORD` of a copy is always its record: a job could forge another one.
    """
    paths = [*(each.path for each in copied.files), *copied.links]
    taken = {path.partition("/")[0] for path in paths}
    if OTHER_RECORD not in taken:
        return OTHER_RECORD if RECORD in taken else RECORD
    why, hint = f"has a file {OTHER_RECORD}, which is a name of the record of a copy", "rename it"
    if RECORD in taken:
        why = f"has files {RECORD} and {OTHER_RECORD}, and the record of the copy needs one of these names"
        hint = f"rename one of them, {OTHER_RECORD}"
    raise TargetFault(Problem("output", why, hint))


@contextmanager
def read_folder(folder: str) -> Iterator[Iterator[bytes]]:
    """Provide the archive of a folder of this machine."""
    argv = [sys.executable, "-I", str(Path(send_output.__file__)), folder]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield _process_output(process, folder)
        finally:
            process.kill()


def _process_output(process: subprocess.Popen[bytes], folder: str) -> Iterator[bytes]:
    assert process.stdout is not None and process.stderr is not None
    while data := process.stdout.read(_CHUNK):
        yield data
    words = process.stderr.read().decode(errors="replace").strip()
    if process.wait():
        why = words.splitlines()[-1] if words else "cannot be read"
        raise TargetFault(Problem(folder, why))


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP, unless `nohup` ignores it, end the block as Ctrl-C does, so that nothing is left behind."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ended_by = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in ended_by}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def drain(self) -> None:
        """Read to the end, where the exit code of the sender is."""
        for _ in self._pieces:
            pass


class _Hashed:
    """A file that counts and hashes what is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest, self.size = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    for each in listed(value):
        if isinstance(each, list) and len(each) == 2:
            yield str(each[0]), str(each[1])


def relative_link(path: str, target: str) -> str:
    """Return the text of a link at `path` to `target`, both relative to the copy."""
    return os.path.relpath(target, posixpath.dirname(path) or ".")
