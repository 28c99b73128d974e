"""What differs between an object of a converted program and one of the files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Findings:
    """What differs.

    Attributes:
        notes: What differs with a reason, and the reason.
        differences: What differs without a reason.
    """

    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
