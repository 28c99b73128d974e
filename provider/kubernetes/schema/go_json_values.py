"""Converts Python values to the values that Go's JSON reader returns."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from numbers import Integral
from pathlib import PurePath
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import At, dotted_path
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

MAX_DEPTH = 100
"""Levels of a value without a schema. The deepest field of the API has about 30."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})\Z")
_INT64 = 2**63


def scalar(value: Any, at: At) -> Any:
    """Return a number as Go's JSON reader returns it, a text of another type (such as a member of an `Enum`) as Python's own,
    other scalars unchanged. Whole numbers may be of any type.

    Raises:
        Invalid: JSON has no such value.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bool, Unknown)) or value is None:
        return value
    if isinstance(value, Integral):
        value = int(value)
        if -_INT64 <= value < _INT64:
            return value
        value = float(value) if abs(value) < 10**308 else math.inf
    if not isinstance(value, float):
        raise Invalid(_no_data(value, at))
    if not math.isfinite(value):
        raise Invalid(Problem(dotted_path(at), "must be plain data, not infinite or NaN"))
    if value.is_integer() and -_INT64 <= value < _INT64:
        return int(value)
    return value


def _no_data(value: Any, at: At) -> Problem:
    why = f"must be plain data (mappings, lists, strings, numbers), not a Python {type(value).__name__}"
    hint = "write it in quotes"
    if isinstance(value, PurePath):
        hint = "pass str(value)"
    return Problem(dotted_path(at), why, hint)


def plain_data(value: Any, at: At, depth: int = MAX_DEPTH) -> Any:
    """Return a copy of a value without a schema."""
    if not depth:
        raise Invalid(Problem(dotted_path(at), f"is nested deeper than {MAX_DEPTH} levels"))
    if isinstance(value, dict):
        return {field_name(name, at): plain_data(item, (at, name), depth - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item, (at, place), depth - 1) for place, item in enumerate(value)]
    return scalar(value, at)


def field_name(name: Any, at: At) -> str:
    """Return the name of a field."""
    if isinstance(name, str):
        return str.__str__(name)
    raise Invalid(Problem(dotted_path((at, str(name))), "the name of a field must be a string", "write it in quotes"))


def is_date_time(text: str) -> bool:
    """Return whether the API server accepts a text for the format date-time."""
    day, _, rest = text.lower().partition("t")
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return _DATE.match(day) is not None and _CLOCK.match(rest.partition("t")[0]) is not None


def without_fields(value: Any, at: At, unknown: list[str] | None, depth: int = MAX_DEPTH) -> Any:
    """Return an item of a list whose items have no schema, without its fields; their paths are added to `unknown`."""
    if not depth:
        raise Invalid(Problem(dotted_path(at), f"is nested deeper than {MAX_DEPTH} levels"))
    if isinstance(value, dict):
        if unknown is not None:
            unknown += (dotted_path((at, str(name))) for name in value)
        return {}
    if isinstance(value, (list, tuple)):
        return [without_fields(item, (at, place), unknown, depth - 1) for place, item in enumerate(value)]
    return scalar(value, at)


def identity(value: Any) -> Any:
    """Return a hashable value that is equal for values that Go treats as equal; None for an unknown value."""
    if isinstance(value, Unknown):
        return None
    if not isinstance(value, (dict, list)):
        return type(value), value
    try:
        return dict, json.dumps(value, sort_keys=True)
    except (TypeError, RecursionError):
        return None
