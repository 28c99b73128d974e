"""Splits streams of container logs into lines with times, skips lines that were read before, and merges several streams.

The kubelet returns a time for each line and accepts `sinceTime` in whole seconds, so a new request repeats the lines of the last
second. Rules: https://github.com/kubernetes/cri-client/blob/v0.36.3/pkg/logs/logs.go. All functions are pure.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, NamedTuple

LONGEST = 1 << 16
"""Longest piece in bytes; a longer line is split into several."""
_SECOND = 1_000_000_000
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_RUNTIME_LOST = re.compile(rb"unable to retrieve container logs for |failed to try resolving symlinks in path ")
"""The kubelet's message that the container runtime has removed a log."""


class Line(NamedTuple):
    """One line of a container. time: Nanoseconds since the epoch. alone: Whether its pod has no other container."""

    time: int
    pod: str
    container: str
    text: str
    alone: bool = False


class Piece(NamedTuple):
    """A part of a line; most lines are one piece. first: Whether the line begins with it. end: What follows it."""

    data: bytes
    first: bool
    end: Literal["newline", "more", "nothing"]


def split_lines(chunks: Iterable[bytes], longest: int = LONGEST) -> Iterator[Piece]:
    """Yield the lines of a stream; longer lines as several pieces."""
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


def split_timestamp(line: bytes) -> tuple[int, bytes]:
    """Return the time of a line in nanoseconds since the epoch, and the line without it; time 0 if the line is the kubelet's own
    message."""
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
    """Return seconds since the epoch; cached, because most lines are of the same second as the line before."""
    global _last  # noqa: PLW0603
    known = _last
    if known[0] == moment and known[1] == zone:
        return known[2]
    text = moment.decode() + ("+00:00" if zone == b"Z" else zone.decode())
    seconds = int(datetime.fromisoformat(text).timestamp())
    _last = (moment, zone, seconds)
    return seconds


@dataclass
class Position:
    """How far the log of one container of one pod was read, through all its restarts.

    A log is only appended to, so the lines that a server repeats after `reopen` begin with the same lines in the same order, and
    counting the lines of the newest second is enough. A rotated log has lost some of them: a line newer than all read lines ends
    the counting.
    """

    newest: int = 0
    limited: bool = False
    """Whether the first request was for the end of the log only: earlier lines are never read."""
    _begin: int = 0
    _counted: int = 0
    _again: int = 0
    _open: int = 0
    """Bytes read of a line that has not ended."""
    _skip: int = 0

    @property
    def since(self) -> str:
        """The `sinceTime` of the next request; empty for the beginning."""
        if not self.newest:
            return ""
        return datetime.fromtimestamp(self.newest // _SECOND, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def reopen(self) -> None:
        """Prepare for the next request; call it before each one."""
        self._again = self._counted - bool(self._open)
        self._skip, self._open = self._open, 0

    def take(self, time: int) -> int:
        """Return how many bytes at the beginning of the line were read before; -1 for the whole line."""
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
        """Record how much of the current line was read. size: Bytes including those that were read before. ended: Whether the
        line has ended."""
        self._open = 0 if ended else size


def new_lines(chunks: Iterable[bytes], position: Position, *, complete: bool) -> Iterator[tuple[int, bytes]]:
    """Yield time and text of the lines, or parts of a line, that were not read before.

    Args:
        position: Where the previous request ended; updated.
        complete: Whether the container has ended, so that text without a newline is its last line. Otherwise the next request
            repeats that text.
    """
    position.reopen()
    time, known, size = 0, 0, 0
    for data, first, end in split_lines(chunks):
        if end == "nothing" and not complete:
            return
        if first:
            time, data = split_timestamp(data)
            known, size = -1 if not time and _RUNTIME_LOST.match(data) else position.take(time), 0
        if known < 0:
            continue
        new = data[max(0, known - size) :]
        size += len(data)
        if time:
            position.taken(max(size, known), ended=end != "more")
        if new or not known:
            yield time, new


def merge(streams: Iterable[Iterator[Line]]) -> Iterator[Line]:
    """Yield the lines of several containers by time; lines of one container keep their order, even if its clock was set back."""
    for _, line in heapq.merge(*map(_in_time_order, streams), key=lambda timed: timed[0]):
        yield line


def _in_time_order(lines: Iterator[Line]) -> Iterator[tuple[int, Line]]:
    newest = 0
    for line in lines:
        newest = max(newest, line.time)
        yield newest, line
