"""How lists, numbers, sentences and times stand in messages."""

from __future__ import annotations


def listed(names: list[str], most: int = 3) -> str:
    """a, b, c and 2 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, what: str) -> str:
    """1 pod, 2 pods."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def ended(sentence: str) -> str:
    """Somebody's sentence without the full stop, to go on after it."""
    return sentence.strip().rstrip(".")


def duration(seconds: float) -> str:
    """90 -> 1m30s."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
