"""The mark for a value that is not known yet, such as a Pulumi output during a preview.

It may stand wherever a document has a scalar. Layers carry it on unchanged; what would have to be computed
from it becomes unknown too. `components` writes it, and puts the original output back where the mark arrived.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Unknown:
    """A leaf without a value yet. token: tells one unknown value from another; two marks are equal by it."""

    token: str

    def __repr__(self) -> str:
        return "Unknown"
