"""The protocol of a source (listing, download of a file), and helpers that every scheme uses.

A method of a source raises a TrainerError if a retry cannot help (403, 404, invalid names). Any other exception is retried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.pod.initializers.contract import Kind

MIB = 1 << 20
MAX_FILES = 1_000_000
"""Files of a dataset or a model."""

Count = Callable[[int], None]
"""Counts bytes that have arrived."""
RUN_AGAIN = "run it again later: files that have arrived are kept"


@dataclass(frozen=True)
class Tuning:
    """How files are transferred.

    Attributes:
        part: Size of a ranged request to a bucket, in bytes.
        backoff: Seconds before the second attempt; doubled after each attempt.
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
    """

    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        return (not self.allow or _matches_any(name, self.allow)) and not _matches_any(name, self.ignore)


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, f"{p}*" if p.endswith("/") else p) for p in patterns)


@dataclass(frozen=True)
class FetchRequest:
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


class Source(Protocol):
    def listing(self, recorded: str) -> Listing:
        """Return all files. recorded: Revision of an earlier fetch, which is listed again if the source has revisions; empty
        for the newest."""
        ...

    def download(self, entry: Entry, path: Path, count: Count) -> Mapping[str, str]:
        """Write the content of a file, and return its checksums as the source reports them (`Entry.checks`).

        Args:
            path: Where the content is written; names that begin with that of the path may be used for temporary files.
            count: Receives the number of bytes that have arrived. An exception of it ends the download.
        """
        ...

    def address(self, entry: Entry) -> str:
        """Return the URI of the entry, for messages."""
        ...


class Scheme(Protocol):
    """A module that implements a scheme. Importing it loads no client library."""

    def check(self, location: str, kind: Kind) -> list[Problem]: ...

    def patterns(self, location: str, kind: Kind) -> Patterns: ...

    def connect(self, request: FetchRequest) -> Source: ...


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
