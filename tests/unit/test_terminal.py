"""Logs on a terminal: colours, and nothing that moves, renames, answers or hides."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import Prefixes, escaped, message, plain, safe_line

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
    assert safe_line(given) == shown


@given(HOSTILE)
def test_nothing_but_colours_comes_through(text: str) -> None:
    rest = safe_line(text)
    colours = rest.count("\x1b[")
    assert rest.count("\x1b") == colours
    assert all(c.isprintable() or c in "\x1b\t" for c in rest)
    assert all(part.split("m")[0].strip("0123456789;:") == "" and "m" in part for part in rest.split("\x1b[")[1:])
    assert not colours or rest.endswith(("\x1b[0m", "\x1b[m"))


@given(HOSTILE)
def test_cells_of_a_table_are_one_line_without_colours(text: str) -> None:
    assert all(c.isprintable() or c == "\t" for c in plain(text))


def test_prefixes() -> None:
    assert Prefixes(coloured=False).of("pod", "side") == "pod/side "
    coloured = Prefixes(coloured=True)
    first, other = coloured.of("a", ""), coloured.of("b", "")
    assert first == coloured.of("a", "") and first.replace("a", "b") != other


def test_a_name_is_one_line() -> None:
    assert plain("real\rhidden\nforged\x85more") == "real hidden forged more"


def test_no_line_of_a_message_passes_for_one_of_ours() -> None:
    told = message("refused\x1b[2J\r\nerror: all is well\u2028TrainJob: Succeeded\n  log line")
    assert told == "refused\n  error: all is well\n  TrainJob: Succeeded\n    log line"
    assert message(told) == told


@given(HOSTILE)
def test_problems_hold_nothing_that_a_terminal_acts_on(text: str) -> None:
    problem = Problem(text, text, text).below(text)
    shown_ = [*str(problem).split("\n"), problem.where, problem.hint]
    assert all(c.isprintable() or c == "\t" for line in shown_ for c in line)
    assert str(TrainerError(text)) == str(Problem("", text))


@given(HOSTILE)
def test_json_stays_the_same_value(text: str) -> None:
    shown_ = escaped(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(shown_) == {text: text}
    assert all(c.isprintable() for c in shown_)


def test_half_a_character_does_not_stop_the_output() -> None:
    for shown_ in (safe_line("a\ud800b"), str(Problem("a\udcff", "b")), escaped('"\ud800"')):
        shown_.encode()
