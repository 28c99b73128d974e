"""One thing that an API server has against a document, before it is put into words with its path.

`schema`, `rules` and `metadata` find them; `review` makes `Problem`s of those that remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem

INVALID = "FieldValueInvalid"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
INTERNAL = "InternalError"
NOT_SUPPORTED = "FieldValueNotSupported"
REQUIRED = "FieldValueRequired"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
BLOCKING = frozenset((NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID))
"""While there is one of these, the server does not look at validation rules."""

NOWHERE = "<nil>"
"""How the server writes the path of the whole document."""

At = tuple[Any, "str | int"] | None
"""Where a value stands: the path of what holds it, and its key or index there; None: the document."""


@dataclass(frozen=True)
class Fault:
    """at: where. type: the server's. detail: its words; without them, they are `before`, the path, `after`.
    nowhere: the server does not name the field. mend: ours. about: "items" of list-maps and sets, a "rule" that could
    not be evaluated, else empty: on an update these count differently.
    """

    at: At
    type: str
    detail: str | None = None
    before: str = ""
    after: str = ""
    nowhere: bool = False
    mend: str = ""
    about: str = ""

    def problem(self) -> Problem:
        path = dotted(self.at)
        why = f"{self.before}{path}{self.after}" if self.detail is None else self.detail
        return Problem(NOWHERE if self.nowhere or not path else path, why, self.mend, self.type)


class NoSuchKey(Exception):
    """A validation rule has selected a field that is not there."""


def dotted(at: At) -> str:
    """A path as the server writes it: `spec.containers[0].name`."""
    parts: list[str] = []
    while at is not None:
        at, key = at
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}" if at else key)
    return "".join(reversed(parts))


def parts(at: At) -> list[str | int]:
    """The keys and indices of a path, outermost first."""
    found: list[str | int] = []
    while at is not None:
        at, key = at
        found.append(key)
    return found[::-1]
