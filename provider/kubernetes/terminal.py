"""Makes untrusted text safe to print on a terminal.

A log, a name or a server's message may contain sequences that move the cursor, rename the window, send input, or hide text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

RESET = "\x1b[0m"
PALETTE = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""Colours of prefixes, as ANSI codes."""

_ESCAPE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]{0,40}m)"
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"  # strings: window titles, clipboards, links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"  # cursor, screen, modes
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"  # text that is shown in another order than it is in
    r"|[\ud800-\udfff]"  # halves of characters, which no output can encode
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_RAW = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe_line(text: str) -> str:
    """Return a line that is safe to print; of a line that overwrites itself (a progress bar), its last state."""
    if text.isprintable():
        return text
    text = last_state(text)
    shown = _ESCAPE.sub(lambda found: found["colour"] or "", text)
    if "\x1b[" in shown and not shown.endswith((RESET, "\x1b[m")):
        return shown + RESET
    return shown


def last_state(line: str) -> str:
    """Return a line without what it overwrites, such as the earlier states of a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]


def plain(text: str) -> str:
    """Return a text as one line without colours, such as a cell of a table, a name, or a message."""
    if text.isprintable():
        return text
    return _COLOUR.sub("", safe_line(_BREAKS.sub(" ", text).replace("\n", " ")))


def plain_field(value: Any, longest: int) -> str:
    """Return a field of JSON that anybody may have written, as `plain` does; empty if it is neither text nor a whole number."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return ""
    return plain(str(value))[:longest]


def lines(text: str) -> str:
    """Return a text of several lines that is safe to print, without colours."""
    if text.isprintable():
        return text
    return "\n".join(map(plain, _BREAKS.sub("\n", text).split("\n")))


def message(text: str) -> str:
    """Return a message of several lines without colours.

    Further lines are indented, so that none looks like a message of this program; all of them, if one of them is not, so that a
    traceback keeps its form.
    """
    first, *more = lines(text).split("\n")
    if all(line[:1] in ("", " ") for line in more):
        return "\n".join([first, *more])
    indented = [f"  {line}" if line else "" for line in more]
    return "\n".join([first, *indented])


def print_line(text: object = "", *, error: bool = False) -> None:
    """Print a message as one line, its further lines indented; all that commands print goes through here or `print_lines`."""
    print_lines(message(str(text)).split("\n"), error=error)


def print_lines(rows: Iterable[str], *, error: bool = False) -> None:
    """Print each of several texts as one line with its colours, such as the rows of a table."""
    file = sys.stderr if error else sys.stdout
    if error:
        with suppress(OSError):  # the end of the command fails by it, and says so
            sys.stdout.flush()
    for row in rows:
        file.write(f"{safe_line(_BREAKS.sub(' ', row).replace(chr(10), ' '))}\n")
    file.flush()


def escaped(document: str) -> str:
    """Return JSON in which the characters that a terminal interprets are escaped."""
    return _RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def control_character(text: str) -> str:
    """Return the first character of a text that a terminal interprets, as Python writes it; empty if not found.

    Line breaks and tabs do not count.
    """
    if text.isprintable():
        return ""
    found = _CONTROL.search(text)
    return ascii(found[0]) if found else ""


class Prefixes:
    """Prefixes of log lines."""

    def __init__(self, *, coloured: bool, palette: Sequence[int] = PALETTE) -> None:
        self._coloured, self._palette = coloured, palette
        self._known: dict[str, int] = {}

    def of(self, pod: str, container: str) -> str:
        """Return the prefix of a Pod's line."""
        name = plain(f"{pod}/{container}" if container else pod)
        if not self._coloured:
            return f"{name} "
        colour = self._palette[self._known.setdefault(pod, len(self._known)) % len(self._palette)]
        return f"\x1b[{colour}m{name}{RESET} "
