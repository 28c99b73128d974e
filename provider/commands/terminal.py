"""What others have written, on a terminal: colours and nothing else. Pure; called by all commands that print logs and messages.

A log may hold anything that a program, or somebody who talks to it, has put there: sequences that move the cursor, rename the
window, answer as if typed, or hide text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

RESET = "\x1b[0m"
PALETTE = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""Colours of prefixes."""

_ESCAPE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]{0,40}m)"
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"  # strings: window titles, clipboards, links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"  # cursor, screen, modes
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"  # text that is shown in another order than it is in
)


def harmless(text: str) -> str:
    """One line, as it may be shown. Of a line that overwrites itself (a progress bar) what would stay is left."""
    if text.isprintable():
        return text
    text = text.rstrip("\r")
    text = text[text.rfind("\r") + 1 :]
    shown = _ESCAPE.sub(lambda found: found["colour"] or "", text)
    return shown + RESET if "\x1b[" in shown and not shown.endswith((RESET, "\x1b[m")) else shown


def shown(text: str) -> str:
    """Several lines."""
    return "\n".join(map(harmless, text.split("\n")))


def plain(text: str) -> str:
    """One line without colours, for a cell of a table."""
    return re.sub(r"\x1b\[[0-9;:]*m", "", harmless(text.replace("\n", " ")))


class Prefixes:
    """What stands before the lines of each pod. coloured: each pod in another colour."""

    def __init__(self, *, coloured: bool, palette: Sequence[int] = PALETTE) -> None:
        self._coloured, self._palette = coloured, palette
        self._known: dict[str, int] = {}

    def of(self, pod: str, container: str) -> str:
        """container: empty where it goes without saying."""
        name = f"{pod}/{container}" if container else pod
        if not self._coloured:
            return f"{name} "
        colour = self._palette[self._known.setdefault(pod, len(self._known)) % len(self._palette)]
        return f"\x1b[{colour}m{name}{RESET} "
