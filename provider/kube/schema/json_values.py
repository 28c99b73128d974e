"""Plain data as a reader of JSON has it, whatever Python objects a document is made of."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from typing import Any

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema.field_errors import At, dotted
from pulumi_trainer.provider.kube.values.unknown import Unknown

MAX_DEPTH = 100
"""Levels of a value that the schema leaves open. The deepest field of the API lies at about 30."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})\Z")
_INT64 = 2**63


def scalar(value: Any, at: At) -> Any:
    """A number as Go's reader of JSON takes it. Raises Invalid for what is no JSON."""
    if isinstance(value, (str, bool, Unknown)) or value is None:
        return value
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return int(value)
        value = float(value) if abs(value) < 10**308 else math.inf
    if not isinstance(value, float) or not math.isfinite(value):
        why = "must be plain data, not infinite or NaN" if isinstance(value, float) else _no_data(value)
        raise Invalid(Problem(dotted(at), why, "write it in quotes" if not isinstance(value, float) else ""))
    return int(value) if value.is_integer() and -_INT64 <= value < _INT64 else value


def _no_data(value: Any) -> str:
    return f"must be plain data (mappings, lists, strings, numbers), not a Python {type(value).__name__}"


def plain(value: Any, at: At, depth: int = MAX_DEPTH) -> Any:
    """A copy of any plain data. Raises Invalid as `Schema.shaped` does."""
    if not depth:
        raise Invalid(Problem(dotted(at), f"is nested deeper than {MAX_DEPTH} levels"))
    if isinstance(value, dict):
        return {named(name, at): plain(item, (at, name), depth - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, (at, place), depth - 1) for place, item in enumerate(value)]
    return scalar(value, at)


def named(name: Any, at: At) -> str:
    """The name of a field. Raises Invalid if it is no string."""
    if isinstance(name, str):
        return name
    raise Invalid(Problem(dotted((at, str(name))), "the name of a field must be a string", "write it in quotes"))


def is_date_time(text: str) -> bool:
    """Format date-time as the API server checks it."""
    day, _, rest = text.lower().partition("t")
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return _DATE.match(day) is not None and _CLOCK.match(rest.partition("t")[0]) is not None


def emptied(value: Any, at: At, unknown: list[str] | None, depth: int = MAX_DEPTH) -> Any:
    """An item of a list that should not be one: what it holds is nowhere in the schema."""
    if not depth:
        raise Invalid(Problem(dotted(at), f"is nested deeper than {MAX_DEPTH} levels"))
    if isinstance(value, dict):
        if unknown is not None:
            unknown += (dotted((at, str(name))) for name in value)
        return {}
    if isinstance(value, (list, tuple)):
        return [emptied(item, (at, place), unknown, depth - 1) for place, item in enumerate(value)]
    return scalar(value, at)


def identity(value: Any) -> Any:
    """Something hashable that is equal where Go's values are; None for what is not known yet."""
    if isinstance(value, Unknown):
        return None
    if not isinstance(value, (dict, list)):
        return type(value), value
    try:
        return dict, json.dumps(value, sort_keys=True)
    except (TypeError, RecursionError):
        return None
