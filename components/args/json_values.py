"""Conversion of Python values to JSON, and the types that free-form data such as `func_args` may contain."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from numbers import Integral, Real
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import nesting_problems, plain_value, quoted
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

_EXPECTED = "expected str, int, float, bool, None, list or dict"
_HINTS = {
    "date": "pass value.isoformat()",
    "time": "pass value.isoformat()",
    "timedelta": "pass value.total_seconds()",
    "set": "pass sorted(value)",
    "frozenset": "pass sorted(value)",
    "bytes": "pass text, such as base64.b64encode(value).decode()",
    "PurePath": "pass str(value)",
    "Decimal": "pass str(value)",
    "ndarray": "pass value.tolist()",
    "generic": "pass value.item()",
    "Tensor": "pass value.tolist()",
}
"""Name of a class -> how to pass such a value; `generic` is numpy's scalars."""


def in_brackets(path: str, key: Any) -> str:
    """Return the path of a key of free-form data: `a["b"]`, never `a.b`, since such keys are not names of fields."""
    return f"{path}[{quoted(key)}]"


def json_value(
    value: Any, path: str, key_path: Callable[[str, Any], str] = in_brackets, above: tuple[int, ...] = ()
) -> tuple[Any, list[Problem]]:
    """Return the value as JSON data, and its problems by path.

    Keys, order, None and floats stay. A tuple becomes a list; a number, text or mapping of another type becomes the equal value
    of Python's own type. Outputs and unknown values stay. Any other value is a problem, with None in its place. Problems name
    types and show no values, as these may be secret.
    """
    if isinstance(value, (Mapping, list, tuple)):
        found = nesting_problems(value, path, above)
        if found:
            return None, found
    if isinstance(value, Mapping):
        return _object(value, path, key_path, (*above, id(value)))
    if isinstance(value, (list, tuple)):
        items: list[Any] = []
        found = []
        for place, inner in enumerate(value):
            item, problems = json_value(inner, f"{path}[{place}]", key_path, (*above, id(value)))
            items.append(item)
            found += problems
        return items, found
    if value is None or isinstance(value, (pulumi.Output, Unknown)):
        return value, []
    value = plain_value(value)
    if isinstance(value, (str, bool)):
        return value, []
    if isinstance(value, Awaitable):
        return pulumi.Output.from_input(value), []
    return _number(value, path)


def _object(
    value: Mapping[Any, Any], path: str, key_path: Callable[[str, Any], str], above: tuple[int, ...]
) -> tuple[dict[str, Any], list[Problem]]:
    plain: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        where = key_path(path, key)
        if not isinstance(key, str):
            problems.append(Problem(where, f"not a JSON key: {_json_type(key)} (expected str)", "pass str(key)"))
            continue
        plain[str.__str__(key)], found = json_value(item, where, key_path, above)
        problems += found
    return plain, problems


def _number(value: Any, path: str) -> tuple[Any, list[Problem]]:
    if isinstance(value, Integral):
        whole = int(value)
        if whole.bit_length() > _MOST_BITS:
            why = f"not a JSON value: an int of more than {_MOST_DIGITS} digits, which Python does not read"
            return None, [Problem(path, why, "pass hex(value)")]
        return whole, []
    if isinstance(value, Real) and (float(value) == value or math.isnan(value)):
        return float(value), []
    return None, [Problem(path, f"not a JSON value: {_json_type(value)} ({_EXPECTED})", _hint(value))]


_MOST_DIGITS = 4300
"""Digits of an int that CPython reads by default."""
_MOST_BITS = int(_MOST_DIGITS * math.log2(10))


def _json_type(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {_class_name(value)}"
    return _class_name(type(value))


def _class_name(cls: type) -> str:
    if cls.__module__ in ("builtins", "__main__"):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def _hint(value: Any) -> str:
    if isinstance(value, Enum):
        return "pass its .value"
    if is_dataclass(value) and not isinstance(value, type):
        return "pass dataclasses.asdict(value)"
    classes = {kind.__name__ for kind in type(value).__mro__}
    return next((hint for name, hint in _HINTS.items() if name in classes), "")


def to_whole_number(value: Any) -> Any:
    """Return a value with integral floats as ints: numbers of other resources and stacks are floats, the API expects ints."""
    if isinstance(value, dict):
        return {k: to_whole_number(v) for k, v in value.items()}
    if isinstance(value, list):
        return [*map(to_whole_number, value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
