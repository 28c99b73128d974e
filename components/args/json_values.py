"""JSON values out of Python values: which ones free-form data such as `func_args` may hold, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from numbers import Integral, Real
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import nesting_problems, quoted
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown

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
"""Name of a class -> how to pass such a value. generic: numpy's scalars."""


def in_brackets(path: str, key: Any) -> str:
    """The path of a key of free-form data: `a["b"]`."""
    return f"{path}[{quoted(key)}]"


def json_value(
    value: Any, path: str, below: Callable[[str, Any], str] = in_brackets, above: tuple[int, ...] = ()
) -> tuple[Any, list[Problem]]:
    """Return the value as JSON has it, and what is wrong with it, by its path. below: makes the path of a key.

    Keys, order, None and floats stay. A tuple becomes a list; a number, text or mapping of another type becomes Python's own,
    to which it is equal. Outputs, and values that are not known yet, stay. For any other value there is a problem, and None
    in its place. Problems name types and show no values, as these may be secret.
    """
    if isinstance(value, (Mapping, list, tuple)) and (found := nesting_problems(value, path, above)):
        return None, found
    if isinstance(value, Mapping):
        return _object(value, path, below, (*above, id(value)))
    if isinstance(value, (list, tuple)):
        items = [json_value(item, f"{path}[{i}]", below, (*above, id(value))) for i, item in enumerate(value)]
        return [item for item, _ in items], [p for _, problems in items for p in problems]
    if value is None or isinstance(value, (bool, pulumi.Output, Unknown)):
        return value, []
    if isinstance(value, str):
        return str.__str__(value), []
    if isinstance(value, Awaitable):
        return pulumi.Output.from_input(value), []
    return _number(value, path)


def _object(
    value: Mapping[Any, Any], path: str, below: Callable[[str, Any], str], above: tuple[int, ...]
) -> tuple[dict[str, Any], list[Problem]]:
    plain: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        where = below(path, key)
        if not isinstance(key, str):
            problems.append(Problem(where, f"not a JSON key: {_type(key)} (expected str)", "pass str(key)"))
            continue
        plain[str.__str__(key)], found = json_value(item, where, below, above)
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
    return None, [Problem(path, f"not a JSON value: {_type(value)} ({_EXPECTED})", _hint(value))]


_MOST_DIGITS = 4300
"""Digits of an int that CPython reads, where nobody has changed it."""
_MOST_BITS = int(_MOST_DIGITS * math.log2(10))


def _type(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"the class {name}" if isinstance(value, type) else name


def _hint(value: Any) -> str:
    if isinstance(value, Enum):
        return "pass its .value"
    if is_dataclass(value) and not isinstance(value, type):
        return "pass dataclasses.asdict(value)"
    classes = {kind.__name__ for kind in type(value).__mro__}
    return next((hint for name, hint in _HINTS.items() if name in classes), "")


def whole(value: Any) -> Any:
    """Numbers of other resources and stacks arrive as floats; the API wants whole ones."""
    if isinstance(value, dict):
        return {k: whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [whole(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
