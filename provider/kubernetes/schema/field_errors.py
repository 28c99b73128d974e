"""An error of an API server about a field, before `review` adds its path and makes a `Problem` of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

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
"""The server does not evaluate validation rules if there is an error of these types."""

UNCHECKED = "NotChecked"
"""This project's type for a validation rule that could not be evaluated: the value is neither valid nor invalid."""

NOWHERE = "<nil>"
"""The server's path of the whole document."""

At = tuple[Any, "str | int"] | None
"""Path of a value: the path of its parent, and its key or index there; None for the document."""


@dataclass(frozen=True)
class Fault:
    """An error about a field.

    Args:
        detail: The server's text; None if it is `before`, the path, and `after`.
        nowhere: Whether the server does not name the field.
        about: "items" for items of list-maps and sets, "rule" for a rule that could not be evaluated, else empty. Updates treat
            these differently.
    """

    at: At
    type: str
    detail: str | None = None
    before: str = ""
    after: str = ""
    nowhere: bool = False
    hint: str = ""
    about: str = ""

    def problem(self) -> Problem:
        """Return the error as a problem with its path."""
        path = dotted_path(self.at)
        why = f"{self.before}{path}{self.after}" if self.detail is None else self.detail
        return Problem(NOWHERE if self.nowhere or not path else path, why, self.hint, self.type)


class NoSuchKey(Exception):
    """A validation rule selects a field that does not exist."""


def select(value: Any, *names: str) -> Any:
    """Return the field that a rule selects; one of an unknown value is unknown. Raises NoSuchKey."""
    for name in names:
        if isinstance(value, Unknown):
            return value
        if name not in value:
            raise NoSuchKey(name)
        value = value[name]
    return value


def all_hold(holds: Callable[[Any], bool], items: Iterable[Any]) -> bool:
    """Return CEL's all(): an item that breaks the rule outweighs one in which a key is missing."""
    missing: NoSuchKey | None = None
    for item in items:
        try:
            if not holds(item):
                return False
        except NoSuchKey as error:
            missing = missing or error
    if missing is not None:
        raise missing
    return True


class NotEvaluated(Exception):
    """A validation rule cannot be evaluated, for the reason in the message."""


def dotted_path(at: At) -> str:
    """Return a path as the server writes it: `spec.containers[0].name`."""
    parts: list[str] = []
    while at is not None:
        at, key = at
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(parts)).removeprefix(".")


def path_steps(at: At) -> list[str | int]:
    """Return the keys and indices of a path, outermost first."""
    found: list[str | int] = []
    while at is not None:
        at, key = at
        found.append(key)
    return found[::-1]
