"""Lines of container logs: cut out of a stream, with their times; what was seen before is left out; several are merged.

The kubelet tells a time for each line and takes `sinceTime` in whole seconds, so whoever attaches again gets the lines of
the last second once more. Rules: https://github.com/kubernetes/cri-client/blob/v0.36.3/pkg/logs/logs.go. Pure; called by
`podlogs`.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, NamedTuple

LONGEST = 1 << 16
"""Bytes; a longer line comes in pieces."""
_SECOND = 1_000_000_000
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_RUNTIME_LOST = re.compile(rb"unable to retrieve container logs for |failed to try resolving symlinks in path ")


class Line(NamedTuple):
    """One line of a container. time: nanoseconds since the epoch. alone: its pod has no other container."""

    time: int
    pod: str
    container: str
    text: str
    alone: bool = False


class Piece(NamedTuple):
    """Of a line; most lines are one piece. first: the line begins with it. end: what comes after it."""

    data: bytes
    first: bool
    end: Literal["newline", "more", "nothing"]


def pieces(chunks: Iterable[bytes], longest: int = LONGEST) -> Iterator[Piece]:
    """The lines of a stream."""
    rest, first = b"", True
    for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            rest += line
            while len(rest) > longest:
                yield Piece(rest[:longest], first, "more")
                rest, first = rest[longest:], False
            yield Piece(rest, first, "newline")
            rest, first = b"", True
        rest += tail
        while len(rest) > longest:
            yield Piece(rest[:longest], first, "more")
            rest, first = rest[longest:], False
    if rest:
        yield Piece(rest, first, "nothing")


def stamped(line: bytes) -> tuple[int, bytes]:
    """(nanoseconds since the epoch, the line without its time); 0 for one that has none: words of the kubelet's own."""
    found = _STAMP.match(line)
    if found is None:
        return 0, line
    moment, fraction, zone = found.groups()
    try:
        seconds = _seconds(moment, zone)
    except ValueError:
        return 0, line
    return seconds * _SECOND + int((fraction or b"0").ljust(9, b"0")), line[found.end() :]


_last: tuple[bytes, bytes, int] = (b"", b"", 0)


def _seconds(moment: bytes, zone: bytes) -> int:
    """Most lines are of the same second as the one before."""
    global _last  # noqa: PLW0603
    known = _last
    if known[0] == moment and known[1] == zone:
        return known[2]
    text = moment.decode() + ("+00:00" if zone == b"Z" else zone.decode())
    seconds = int(datetime.fromisoformat(text).timestamp())
    _last = (moment, zone, seconds)
    return seconds


def lost(line: bytes) -> bool:
    """The kubelet says so in place of a log that the container runtime has removed."""
    return bool(_RUNTIME_LOST.match(line))


@dataclass
class Position:
    """How far the log of one container of one pod has been read, through all its restarts.

    What a server sends again after `reopen` begins with the same lines in the same order, as a log is only appended to; so
    counting those of the newest second is enough. A log that was rotated in between has lost some of them: a line newer than
    all that were seen ends the counting.
    """

    newest: int = 0
    limited: bool = False
    """The first request asked for the end of the log only: what is before the first line taken never comes."""
    _begin: int = 0
    _counted: int = 0
    _again: int = 0
    _open: int = 0
    """Bytes taken of a line that has not ended."""
    _skip: int = 0

    @property
    def since(self) -> str:
        """`sinceTime` for the next request; empty: from the beginning."""
        if not self.newest:
            return ""
        return datetime.fromtimestamp(self.newest // _SECOND, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def reopen(self) -> None:
        """Before each request."""
        self._again = self._counted - bool(self._open)
        self._skip, self._open = self._open, 0

    def take(self, time: int) -> int:
        """How many bytes at the beginning of the line are known already; -1: all of it."""
        if not time or (self._again and time < self._begin):
            return -1 if self._again else 0
        if time > self.newest:
            self._again = self._skip = 0
        elif self._again:
            self._again -= 1
            return -1
        elif self._skip:  # the line that had not ended; it is counted
            known, self._skip = self._skip, 0
            return known
        if time // _SECOND > self.newest // _SECOND:
            self._counted = 1
        elif time // _SECOND == self.newest // _SECOND:
            self._counted += 1
        self.newest = max(self.newest, time)
        if self.limited:
            self._begin = self._begin or time
        return 0

    def taken(self, size: int, *, ended: bool) -> None:
        """Bytes of the current line so far, with those known already, and whether it has ended."""
        self._open = 0 if ended else size


def fresh(chunks: Iterable[bytes], position: Position, *, complete: bool) -> Iterator[tuple[int, bytes]]:
    """(time, line or piece of one) of what was not seen before. complete: the container has ended, so that what has no
    newline is all there is of its line; else it comes again with the next request."""
    position.reopen()
    time, known, size = 0, 0, 0
    for data, first, end in pieces(chunks):
        if end == "nothing" and not complete:
            return
        if first:
            time, data = stamped(data)
            known, size = -1 if not time and lost(data) else position.take(time), 0
        if known < 0:
            continue
        new = data[max(0, known - size) :]
        size += len(data)
        if time:
            position.taken(max(size, known), ended=end != "more")
        if new or not known:
            yield time, new


def merged(streams: Iterable[Iterator[Line]]) -> Iterator[Line]:
    """Lines of several containers by time; those of one stay in their order, also where its clock was set back."""
    for _, line in heapq.merge(*map(_rising, streams), key=lambda timed: timed[0]):
        yield line


def _rising(lines: Iterator[Line]) -> Iterator[tuple[int, Line]]:
    newest = 0
    for line in lines:
        newest = max(newest, line.time)
        yield newest, line
