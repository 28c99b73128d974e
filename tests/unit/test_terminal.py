"""Logs on a terminal: colours, and nothing that moves, renames, answers or hides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.provider.commands.terminal import Prefixes, harmless, plain, shown

HOSTILE = st.text(
    st.sampled_from("\x1b\x9b\x9d[]()PX^_;:0123?mhHJKcnq\\\x07\x9c\r\n\t\x00\x08\x7f\x85\u202e\u2066abc "), max_size=40
)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain ä 漢 🚀", "plain ä 漢 🚀"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;38;5;4mblue", "\x1b[1;38;5;4mblue\x1b[0m"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;Y3VybA==\x1b\\text", "text"),
        ("\x1b]8;;https://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP$q\x1b\\x\x1b_y\x1b\\z", "xz"),
        ("\x9b2Jx\x9d0;t\x9cy", "xy"),
        ("\x1b]0;never ends", ""),
        ("\x1b[?1049hx\x1bcy\x1b(0z", "xyz"),
        ("a\x00\x07\x08b\x7f", "ab"),
        ("10%\r20%\r30%", "30%"),
        ("done\r", "done"),
        ("ab\u202edc\u2066", "abdc"),
        ("\x1b", ""),
        ("\x1b[31", ""),
    ],
)
def test_a_line(given: str, shown: str) -> None:
    assert harmless(given) == shown


@given(HOSTILE)
def test_nothing_but_colours_comes_through(text: str) -> None:
    rest = harmless(text)
    colours = rest.count("\x1b[")
    assert rest.count("\x1b") == colours
    assert all(c.isprintable() or c in "\x1b\t" for c in rest)
    assert all(part.split("m")[0].strip("0123456789;:") == "" and "m" in part for part in rest.split("\x1b[")[1:])
    assert not colours or rest.endswith(("\x1b[0m", "\x1b[m"))


@given(HOSTILE)
def test_cells_of_a_table_are_one_line_without_colours(text: str) -> None:
    assert all(c.isprintable() or c == "\t" for c in plain(text))


def test_several_lines() -> None:
    assert shown("a\x1b[2J\nb\r\n") == "a\nb\n"


def test_prefixes() -> None:
    assert Prefixes(coloured=False).of("pod", "side") == "pod/side "
    coloured = Prefixes(coloured=True)
    first, other = coloured.of("a", ""), coloured.of("b", "")
    assert first == coloured.of("a", "") and first.replace("a", "b") != other
