"""What a scheme has to give: a listing with sizes and checksums, and the bytes of a file from any offset.

Implemented by `file`, `s3` and `hf`; used by `fetching` and `transfer`. A method raises a TrainerError for what no
repetition mends (403, 404, bad names); any other exception is tried again.
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
MOST_FILES = 1_000_000
"""Files of a dataset or a model."""
MOST_PAGES = 10_000
"""Requests for one listing; a server gives 1,000 files a page."""
LARGEST_PAGE = 64 * MIB
"""Bytes of one page of a listing."""
MOST_SEPARATORS = 4_000_000
"""Of JSON on one page: an empty object takes three bytes there, and 64 in memory."""
MOST_CHARACTERS = 256 * MIB
"""Of all names and versions of a listing."""

Chunks = Generator[bytes, None, None]


@dataclass(frozen=True)
class Tuning:
    """threads: connections at once. part: bytes of a ranged part. attempts: at one part without progress. backoff:
    seconds before the second attempt, doubled after each. timeout: seconds without a byte."""

    threads: int = 8
    part: int = 32 * MIB
    attempts: int = 5
    backoff: float = 1.0
    timeout: float = 60.0


@dataclass(frozen=True)
class Order:
    """What to open. location: the URI without its scheme. output: where the files will lie."""

    kind: Kind
    location: str
    output: Path
    env: Mapping[str, str] = field(repr=False)
    tuning: Tuning = Tuning()


@dataclass(frozen=True)
class Patterns:
    """allow: names that are fetched, none for all; ignore: those of them that are not. `data/` is `data/*`, as
    huggingface_hub reads it."""

    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        return (not self.allow or _any(name, self.allow)) and not _any(name, self.ignore)


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, f"{p}*" if p.endswith("/") else p) for p in patterns)


@dataclass(frozen=True)
class Entry:
    """One file. path: below the output folder. key: the source's own name for it. version: differs when its content does.

    checks: algorithm (`digests`) -> hexadecimal digest, as far as the source knows them.
    """

    path: str
    key: str
    size: int
    version: str
    checks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """revision: identity of all of it together."""

    revision: str
    entries: list[Entry]


def gathered(entries: Iterable[Entry], refusal: Callable[[str], TargetFault]) -> list[Entry]:
    """All entries of a listing, as far as they fit into memory. refusal: makes an error of what is wrong."""
    found: list[Entry] = []
    characters = 0
    for entry in entries:
        characters += len(entry.path) + len(entry.version)
        if len(found) == MOST_FILES:
            raise refusal(f"has more than {MOST_FILES:,} files")
        if characters > MOST_CHARACTERS:
            raise refusal(f"the names of its files have more than {MOST_CHARACTERS:,} characters")
        if not 0 <= entry.size < 2**63:
            raise refusal(f"a file has no size: {entry.path[:200]}")
        found.append(entry)
    return found


class Source(Protocol):
    """An opened URI."""

    def listing(self, recorded: str) -> Listing:
        """All files. recorded: the revision of an earlier fetch, kept where the source still has it; empty: the newest."""
        ...

    def inspect(self, entry: Entry) -> Entry:
        """The entry with the checksums that cost a request; asked once for a file that comes in several parts."""
        ...

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        """Bytes [start, stop), and the entry with what the answer said about it. Closing the
        generator closes the connection."""
        ...

    def where(self, entry: Entry) -> str:
        """The entry's address, for errors."""
        ...


class Scheme(Protocol):
    """A module that knows a scheme. Importing it loads no client."""

    def check(self, location: str, kind: Kind) -> list[Problem]: ...
    def patterns(self, location: str, kind: Kind) -> Patterns: ...
    def connect(self, order: Order) -> Source: ...


class Busy(Exception):
    """The server asks to come back later. after: seconds that it names, 0 if none."""

    def __init__(self, words: str, after: float = 0) -> None:
        super().__init__(words)
        self.after = after


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of `Retry-After`, 0 where there is none (a date is not read)."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdigit() and len(value) < 6 else 0.0


def window(chunks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Without the first `skip` bytes: for a server that answers a range with everything."""
    for chunk in chunks:
        if skip < len(chunk):
            yield chunk[skip:]
        skip = max(0, skip - len(chunk))


def digests(path: Path, algorithms: set[str]) -> dict[str, str]:
    """Hexadecimal digests of a file; `git` is git's blob id (sha1 with a header)."""
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
