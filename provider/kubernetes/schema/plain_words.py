"""Checks a document with its schema, and words each problem with the given value and the expected form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import (
    DUPLICATE,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    At,
    Fault,
    path_steps,
)
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.schema.strict import unknown_fields
from pulumi_trainer.provider.kubernetes.schema.validation_rules import all_faults
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.quantity import EXAMPLES
from pulumi_trainer.provider.kubernetes.values.typed import dotted_path
from pulumi_trainer.provider.kubernetes.values.wording import plural, short_repr

_TYPES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}


def problems(schema: Schema, document: Any, more: Sequence[Schema] = (), *, rules: bool = True) -> list[Problem]:
    """Return the problems of a document, one for each path; unknown leaves count as valid.

    Args:
        more: Schemas with further bounds of the same document; they do not decide which fields are unknown.
        rules: Whether to check validation rules (CEL), which are checked only if there is no other problem.
    """
    unknown: list[str] = []
    try:
        pruned = schema.pruned(document, None, unknown)
    except Invalid as error:
        return list(error.problems)
    found: dict[str, Problem] = {}
    for each in (schema, *more):
        for problem in bound_problems(each, pruned, rules=rules):
            found.setdefault(problem.where, problem)
    return [*unknown_fields(schema, unknown), *found.values()]


def bound_problems(schema: Schema, pruned: Any, *, rules: bool = False) -> list[Problem]:
    """Return the problems of a value that `Schema.pruned` has returned."""
    faults = all_faults(schema, pruned) if rules else schema.faults(pruned)
    return [_problem(fault, schema, pruned) for fault in faults]


def _problem(fault: Fault, schema: Schema, value: Any) -> Problem:
    at = fault.at
    if fault.type == DUPLICATE and at is not None and fault.about == "items":
        holder, _ = _reached(schema, value, at[0])
        _, item = _reached(schema, value, at)
        return Problem(dotted_path(at[0]), f"{_identity(holder, item)} is a duplicate")
    if fault.type == REQUIRED:
        return Problem(dotted_path(at), fault.detail or "is required")
    node, given = _reached(schema, value, at)
    return Problem(dotted_path(at), _describe_fault(fault, node, given, _shown(given, at)), fault.hint)


def _describe_fault(fault: Fault, schema: Schema, value: Any, shown_value: str) -> str:
    bounds = schema.bounds
    if fault.type == TYPE_INVALID:
        return f"must be {_expected(schema)}, not {shown_value}"
    if fault.type == NOT_SUPPORTED:
        return f"must be {_alternatives(schema.enum)}, not {shown_value}"
    if fault.type == TOO_LONG and "maxLength" in bounds:
        return f"must have at most {plural(bounds['maxLength'], 'character')}"
    if fault.type == TOO_MANY:
        return f"must have at most {plural(bounds[_size('max', value)], 'item')}, not {len(value)}"
    if fault.detail is not None:  # a validation rule, in the words of the CRD
        return fault.detail
    if isinstance(value, str):
        return _text_words(schema, value, shown_value)
    if schema.int_or_string and not isinstance(value, int):
        return f"must be {_expected(schema)}, not {shown_value}"
    if isinstance(value, (list, dict)):
        return f"must have at least {plural(bounds[_size('min', value)], 'item')}"
    return f"must be {_describe_range(schema, value)}, not {shown_value}"


def _size(bound: str, value: Any) -> str:
    return f"{bound}Items" if isinstance(value, list) else f"{bound}Properties"


def _text_words(schema: Schema, value: str, shown_value: str) -> str:
    least = schema.bounds.get("minLength", 0)
    if len(value) < least:
        return f"must have at least {plural(least, 'character')}"
    expected = f"text that matches {schema.given.get('pattern')}"
    if schema.int_or_string:
        expected = EXAMPLES
    return f"must be {expected}, not {shown_value}"


def _describe_range(schema: Schema, value: Any) -> str:
    bits = 32 if schema.format == "int32" else 64
    least = schema.bounds.get("minimum", -(2 ** (bits - 1)))
    most = schema.bounds.get("maximum", 2 ** (bits - 1) - 1)
    if value < least:
        return f"greater than or equal to {least}"
    return f"less than or equal to {most}"


def _expected(schema: Schema) -> str:
    if schema.int_or_string and schema.pattern:
        return EXAMPLES
    if schema.int_or_string:
        return "a whole number or a string"
    if schema.format == "date-time":
        return "a time such as 2026-01-31T09:30:00Z"
    return " or ".join(_TYPES[each] for each in schema.types)


def _alternatives(values: Sequence[Any]) -> str:
    *others, last = map(repr, values)
    if not others:
        return last
    return f"{', '.join(others)} or {last}"


def _identity(schema: Schema, item: Any) -> str:
    """Return the keys of an item of a list-map or set."""
    if not isinstance(item, dict):
        return str(item)
    return " and ".join(f"{key} {item[key]}" for key in schema.list_keys if key in item)


def _shown(value: Any, at: At) -> str:
    """Return the value as text; only its type for variables and words of a command, which may be secret."""
    path = path_steps(at)
    secret = ("env" in path[:-1] and path[-1] == "value") or "command" in path or "args" in path
    if secret:
        return type(value).__name__
    return short_repr(value)


def _reached(schema: Schema, value: Any, at: At) -> tuple[Schema, Any]:
    """Return the schema and the value at a path."""
    for part in path_steps(at):
        if isinstance(part, int):
            below = schema.items
        else:
            below = schema.properties.get(part, schema.additional_properties)
        schema = below or Schema({})
        value = _item(value, part)
    return schema, value


def _item(value: Any, part: Any) -> Any:
    """Return an item of a list or mapping; None if not found."""
    if isinstance(value, list):
        return value[part]
    return section(value).get(part)
