"""The placeholder for a value that is not known yet, such as a Pulumi output during a preview.

It replaces any scalar of a document. Functions pass it on unchanged, and return it for what they would compute from it.
`components` creates it, and restores the original output wherever it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Unknown:
    """A leaf without a value yet. token: Identifies the value; two placeholders are equal if their tokens are."""

    token: str

    def __repr__(self) -> str:
        return "Unknown"


def first_unknown(document: Any) -> Unknown | None:
    """Return the first unknown leaf of a document; None if not found."""
    if isinstance(document, dict):
        document = [*document.values()]
    if isinstance(document, (list, tuple)):
        return next(filter(None, map(first_unknown, document)), None)
    return document if isinstance(document, Unknown) else None


def any_unknown(values: Iterable[Any]) -> bool:
    """Return whether one of the values is unknown; the contents of values do not count."""
    return any(isinstance(value, Unknown) for value in values)
