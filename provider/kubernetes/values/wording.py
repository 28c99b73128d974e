"""Formats lists, numbers, sentences and times for messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any


def join_names(names: list[str], most: int = 3) -> str:
    """Return the first names and the number of the others: "a, b, c and 2 more"."""
    text = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        text += f" and {more} more"
    return text


def plural(number: int, what: str) -> str:
    """Return a number with its noun: "1 pod", "2 pods"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def without_full_stop(sentence: str) -> str:
    """Return a sentence without its full stop, so that a message can continue after it."""
    return sentence.strip().rstrip(".")


def duration(seconds: float) -> str:
    """Return a duration as text: 90 becomes "1m30s"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def parse_duration(text: str) -> int | None:
    """Return the seconds of a duration such as 90s, 5m, 2h, 1d or 1h30m; None for another text."""
    if not text or not re.fullmatch(r"(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?", text):
        return None
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """Return a question for the known name that is most similar; `otherwise` if none is similar enough.

    Args:
        cutoff: Least similarity, from 0 (any name) to 1 (the same name), as for `difflib.get_close_matches`.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def short_repr(value: Any) -> str:
    """Return the repr of a value, at most 60 characters, with its type unless the repr shows it."""
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, (str, int, float, bool, type(None))):
        return text
    return f"{text} ({type(value).__name__})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, in which each cell is as wide as its column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
