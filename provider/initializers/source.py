"""The protocol of a source (listing, checksums, bytes of a file), its limits, and helpers that every scheme uses.

A method of a source raises a TrainerError if a retry cannot help (403, 404, invalid names). Any other exception is retried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.initializers.contract import Kind
from pulumi_trainer.provider.kube.errors import Problem, TargetFault

CHUNK = 1 << 16
MIB = 1 << 20
MAX_FILES = 1_000_000
"""Files of a dataset or a model."""
MAX_PAGES = 10_000
"""Requests of one listing; a server returns 1,000 files per page."""
MAX_PAGE_BYTES = 64 * MIB
MAX_PAGE_VALUES = 4_000_000
"""JSON separators on one page of a listing: an empty object takes 3 bytes on the page and 64 in memory."""
MAX_NAME_CHARACTERS = 256 * MIB
"""Characters of all names and versions of a listing."""

Chunks = Generator[bytes, None, None]


@dataclass(frozen=True)
class Tuning:
    """How files are transferred.

    Attributes:
        threads: Connections open at once.
        part: Size of a ranged request, in bytes.
        attempts: Attempts at one part without progress.
        backoff: Seconds before the second attempt; doubled after each attempt.
        timeout: Seconds to wait for the next byte.
    """

    threads: int = 8
    part: int = 32 * MIB
    attempts: int = 5
    backoff: float = 1.0
    timeout: float = 60.0


@dataclass(frozen=True)
class Patterns:
    """Which files are fetched.

    Attributes:
        allow: fnmatch patterns of the names to fetch; empty for all. As in huggingface_hub, `data/` means `data/*`.
        ignore: Patterns of the names to leave out.
    """

    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        """Return whether a file of that name is fetched."""
        return (not self.allow or _matches_any(name, self.allow)) and not _matches_any(name, self.ignore)


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, f"{p}*" if p.endswith("/") else p) for p in patterns)


@dataclass(frozen=True)
class FetchRequest:
    """What a scheme opens.

    Attributes:
        kind: Kind of the initializer.
        location: The URI without its scheme.
        output: The folder that the files are written to.
        env: The variables of `contract`.
        tuning: Connections, part size, retries and timeout.
        patterns: Which files are fetched; a listing may have others too.
    """

    kind: Kind
    location: str
    output: Path
    env: Mapping[str, str] = field(repr=False)
    tuning: Tuning = Tuning()
    patterns: Patterns = Patterns()


@dataclass(frozen=True)
class Entry:
    """A file of a listing.

    Attributes:
        path: Path below the output folder.
        key: The source's identifier of the file.
        size: Size in bytes.
        version: Differs if the content differs.
        checks: Algorithm (see `digests`) -> hexadecimal digest, for the digests that the source knows.
    """

    path: str
    key: str
    size: int
    version: str
    checks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """All files of a source; `revision` identifies the content of all of them."""

    revision: str
    entries: list[Entry]


def collect_entries(entries: Iterable[Entry], fault: Callable[[str], TargetFault]) -> list[Entry]:
    """Return the entries of a listing.

    Args:
        entries: The entries.
        fault: Returns the error for a reason.

    Raises:
        TargetFault: The listing exceeds a limit, or has a file without a valid size.
    """
    collected: list[Entry] = []
    characters = 0
    for entry in entries:
        characters += len(entry.path) + len(entry.version)
        if len(collected) == MAX_FILES:
            raise fault(f"has more than {MAX_FILES:,} files")
        if characters > MAX_NAME_CHARACTERS:
            raise fault(f"the names of its files have more than {MAX_NAME_CHARACTERS:,} characters")
        if not 0 <= entry.size < 2**63:
            raise fault(f"a file has no valid size: {entry.path[:200]}")
        collected.append(entry)
    return collected


class Source(Protocol):
    """An opened URI."""

    def listing(self, recorded: str) -> Listing:
        """Return all files.

        Args:
            recorded: Revision of an earlier fetch, which is listed again if the source has revisions; empty for the newest.
        """
        ...

    def with_checksums(self, entry: Entry) -> Entry:
        """Return the entry with the checksums that cost a request; called once for a file of several parts."""
        ...

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        """Return the entry with the checksums of the response, and the bytes [start, stop).

        Closing the generator closes the connection.

        Args:
            entry: The file, as the source lists it.
            start: First byte.
            stop: Byte after the last one.
        """
        ...

    def address(self, entry: Entry) -> str:
        """Return the URI of the entry, for messages."""
        ...


class Scheme(Protocol):
    """A module that implements a scheme. Importing it loads no client library."""

    def check(self, location: str, kind: Kind) -> list[Problem]:
        """Return the problems of a location.

        Args:
            location: The part of the URI after `SCHEME://`.
            kind: Whether it is a dataset or a model.
        """
        ...

    def patterns(self, location: str, kind: Kind) -> Patterns:
        """Return the default patterns of a location.

        Args:
            location: The part of the URI after `SCHEME://`.
            kind: Whether it is a dataset or a model.
        """
        ...

    def connect(self, request: FetchRequest) -> Source:
        """Return the source of a location."""
        ...


class ServerBusy(Exception):
    """The server asks for a later attempt; `after`: seconds of its `Retry-After`, 0 if not set."""

    def __init__(self, reason: str, headers: Mapping[str, str]) -> None:
        super().__init__(reason)
        value = headers.get("retry-after", "")
        self.after = 0.0
        if value.isdigit() and len(value) < 6:  # a date is not parsed
            self.after = float(value)


def skip_bytes(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield the chunks without their first `count` bytes, for a server that answers a range with the whole file."""
    for chunk in chunks:
        if count < len(chunk):
            yield chunk[count:]
        count = max(0, count - len(chunk))


def digests(path: Path, algorithms: set[str]) -> dict[str, str]:
    """Return the hexadecimal digests of a file. `git` is git's blob id: SHA-1 with a header."""
    running: dict[str, Any] = {}
    for name in algorithms:
        running[name] = hashlib.new("sha1" if name == "git" else name, usedforsecurity=False)
    with path.open("rb") as data:
        if "git" in running:
            running["git"].update(b"blob %d\0" % path.stat().st_size)
        while chunk := data.read(MIB):
            for digest in running.values():
                digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in running.items()}
