"""The mark for a value that is not known yet, such as a Pulumi output during a preview.

It may stand wherever a document has a scalar. Layers carry it on unchanged; what would have to be computed
from it becomes unknown too. `components` writes it, and puts the original output back where the mark arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Unknown:
    """A leaf without a value yet. token: tells one unknown value from another; two marks are equal by it."""

    token: str

    def __repr__(self) -> str:
        return "Unknown"


def first_unknown(document: Any) -> Unknown | None:
    """A leaf that is not known yet, if there is one: what is computed from the document is this unknown too."""
    if isinstance(document, dict):
        document = [*document.values()]
    if isinstance(document, (list, tuple)):
        return next((found for item in document if (found := first_unknown(item))), None)
    return document if isinstance(document, Unknown) else None
