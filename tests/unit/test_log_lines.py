"""Lines out of container logs: pieces, times, what is left out when a log is read again, merging."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import (
    LONGEST,
    Line,
    Piece,
    Position,
    merge,
    new_lines,
    split_lines,
    split_timestamp,
)


def at(seconds: float, text: str = "") -> bytes:
    """A line as the kubelet writes it."""
    whole, part = divmod(round(seconds * 1000), 1000)
    return f"2026-11-21T12:00:{whole:02}.{part:03}000000Z {text or seconds}\n".encode()


def served(log: list[bytes], position: Position, tail: int | None = None) -> bytes:
    """What a kubelet sends: whole seconds, line by line, in the order of the file."""
    since = position.since
    lines = log if tail is None else log[-tail:]
    return b"".join(line for line in lines if not since or line[:19].decode() >= since[:19])


def read(log: list[bytes], position: Position, cut: int | None = None, tail: int | None = None) -> list[str]:
    return [text.decode() for _, text in new_lines([served(log, position, tail)[:cut]], position, complete=False)]


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 7), st.integers(1, 9))
def test_pieces_are_the_lines_however_the_stream_is_chunked(lines: list[bytes], size: int, longest: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    text = b"".join(line + b"\n" for line in lines)
    found: list[bytes] = []
    for piece in split_lines((text[i : i + size] for i in range(0, len(text), size)), longest):
        assert len(piece.data) <= longest
        if piece.first:
            found.append(b"")
        found[-1] += piece.data
    assert found == lines


def test_the_end_of_a_stream_is_not_the_end_of_a_line() -> None:
    assert list(split_lines([b"a\nb"])) == [Piece(b"a", True, "newline"), Piece(b"b", True, "nothing")]


@pytest.mark.parametrize(
    ("line", "time", "rest"),
    [
        (b"1970-01-01T00:00:01.5Z text", 1_500_000_000, b"text"),
        (b"1970-01-01T01:00:01.000000007+01:00 ", 1_000_000_007, b""),
        (b"1970-01-01T00:00:02Z 2 ", 2_000_000_000, b"2 "),
        (b"1970-13-01T00:00:02Z no", 0, b"1970-13-01T00:00:02Z no"),
        (b"plain", 0, b"plain"),
    ],
)
def test_times(line: bytes, time: int, rest: bytes) -> None:
    assert split_timestamp(line) == (time, rest)


@given(st.lists(st.integers(0, 4000), max_size=40), st.randoms(use_true_random=False))
def test_reading_again_neither_repeats_nor_loses(times: list[int], chance: random.Random) -> None:
    """Times of stdout and stderr may be a little out of order."""
    times = sorted(times, key=lambda t: t // 1000)
    log = [at(t / 1000, f"line {i}") for i, t in enumerate(times)]
    position, found = Position(), []
    for end in [*sorted(chance.choices(range(len(log) + 1), k=4)), len(log)]:
        whole = len(served(log[:end], position))
        found += read(log[:end], position, cut=chance.randint(0, whole))
    found += read(log, position)
    assert found == [f"line {i}" for i in range(len(log))]


def test_lines_before_the_tail_do_not_come_later() -> None:
    log = [at(1.1), at(1.2), at(1.3)]
    position = Position(limited=True)
    assert read(log, position, tail=1) == ["1.3"]
    assert read([*log, at(1.4)], position) == ["1.4"]


def test_a_log_rotated_in_between() -> None:
    log = [at(1.1), at(1.2), at(1.3)]
    position = Position()
    assert len(read(log, position)) == 3
    assert read([at(1.3), at(1.4), at(1.5)], position) == ["1.4", "1.5"]


def test_a_long_line_that_has_not_ended_is_continued() -> None:
    long = at(1.1, "x" * (2 * LONGEST) + "end")
    position = Position()
    first = read([long], position, cut=LONGEST + 100)
    second = read([long], position, cut=len(long) - 1)
    third = read([long, at(1.2)], position)
    assert "".join([*first, *second, *third]) == "x" * (2 * LONGEST) + "end" + "1.2"
    assert first and second and len(third) == 2


def test_what_has_no_newline_comes_when_the_container_has_ended() -> None:
    position = Position()
    cut = at(1.1, "half a li")[:-1]
    assert list(new_lines([cut], position, complete=False)) == []
    assert [text for _, text in new_lines([cut], position, complete=True)] == [b"half a li"]


def test_empty_lines_are_lines_and_the_runtimes_excuses_are_none() -> None:
    log = [at(1, " ").replace(b"  ", b" "), b"unable to retrieve container logs for containerd://1f", at(2, "b")]
    assert [text for _, text in new_lines([log[0], log[1], b"\n", log[2]], Position(), complete=True)] == [b"", b"b"]


def test_merging_is_by_time_and_keeps_the_order_of_each() -> None:
    def of(pod: str, *times: int) -> Iterator[Line]:
        return (Line(t, pod, "node", str(t)) for t in times)

    assert [line.text for line in merge([of("a", 1, 5, 3, 9), of("b", 2, 4, 7)])] == list("1245379")
