"""Documents as Go's typed structs print them: unknown fields pruned, types checked, zero values dropped.

A controller decodes each document into Go types and prints it again, which drops something (`readOnly: false`) and adds something
(`resources: {}`). A table of `GoTypes` lists the fields of each type, `Type field:kind ...`:

    kind      str, bool, int32, int64, quantity, intstr, time, a type, [kind] for a list, {kind} for a map
    kind!     no `omitempty`: written even when it is empty
    kind?     a pointer: an explicit zero value is kept
    kind~key  a strategic merge patch merges the list by this key (a list of scalars: without key, as a set)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

Path = tuple[Any, "str | int"] | None
"""Path of a value: the path of its parent, and its key or index there; None for the root."""


@dataclass(frozen=True, slots=True)
class Field:
    """How Go writes one field.

    Args:
        pointer: Whether Go keeps an explicit zero value.
        merge: Key of a merged list; None for other fields.
    """

    kind: str
    struct: bool
    always: bool
    pointer: bool
    merge: str | None


@dataclass(slots=True)
class Findings:
    """What `GoTypes.as_struct` reports."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


def dotted_path(at: Path) -> str:
    """Return a path as users write it: `spec.containers[0].name`."""
    parts: list[str] = []
    while at is not None:
        at, key = at
        if isinstance(key, str) and _PLAIN.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{key!r}]")
    return "".join(reversed(parts)).removeprefix(".")


class GoTypes:
    """Go types by name. table: A line for each type; lines that start with spaces continue the one before."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._fields: dict[str, Mapping[str, Field]] = {}

    def fields(self, type_: str) -> Mapping[str, Field]:
        """Return the fields of a Go type by name, in the order in which Go prints them."""
        found = self._fields.get(type_)
        if found is None:
            items = (item.split(":") for item in self._lines[type_].split())
            found = self._fields[type_] = {name: self._field(text) for name, text in items}
        return found

    @cached_property
    def _lines(self) -> dict[str, str]:
        lines = (line.partition(" ") for line in self._table.replace("\n    ", " ").splitlines())
        return {name: rest for name, _, rest in lines}

    def _field(self, text: str) -> Field:
        text, merged, key = text.partition("~")
        kind = text.rstrip("!?")
        return Field(kind, kind in self._lines, text.endswith("!"), text.endswith("?"), key if merged else None)

    def as_struct(self, type_: str, value: Any, at: Path, findings: Findings, *, applied: bool) -> dict[str, Any]:
        """Return a new document as Go prints the struct `type_`; nothing of `value` is shared or changed.

        Unknown leaves are kept; wrong values are left out and reported.

        Args:
            applied: Whether to print an apply configuration, without empty lists and maps; else Go's JSON, in which a list
                without `omitempty` is null.
        """
        result = self._struct(type_, value, at, findings, applied)
        return section(result)

    def _struct(self, type_: str, value: Any, at: Path, findings: Findings, applied: bool) -> Any:
        if isinstance(value, Unknown):
            return value
        if not isinstance(value, dict):
            return _report_type("a mapping", value, at, findings)
        known = self.fields(type_)
        out: dict[str, Any] = {}
        for name, how in known.items():
            given = value.get(name)
            if given is None:
                if not how.always:
                    continue
                if how.struct:
                    given = {}
                else:
                    given = _ZERO.get(how.kind)
            result = None
            if given is not None:
                result = self._value(how.kind, given, (at, name), findings, applied)
            if result is _BAD or (result is None and applied):
                continue
            if not result and not how.struct:
                gathers = isinstance(result, (list, dict))
                if (applied and gathers) or not (how.always or how.pointer):
                    continue
            out[name] = result
        if len(value) > len(known) or not value.keys() <= known.keys():
            for name in value:
                if name not in known:
                    findings.notes.append(Problem(dotted_path((at, str(name))), "unknown field, ignored"))
        return out

    def _value(self, kind: str, value: Any, at: Path, findings: Findings, applied: bool) -> Any:
        if isinstance(value, Unknown):
            return value
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            expected, read = scalar
            try:
                return read(value)
            except ValueError as error:
                return _report_type(expected, value, at, findings, str(error))
        if kind[0] == "[":
            if not isinstance(value, list):
                return _report_type("a list", value, at, findings)
            return self._list(kind[1:-1], value, at, findings, applied)
        if kind[0] == "{":
            if not isinstance(value, dict):
                return _report_type("a mapping", value, at, findings)
            if not all(isinstance(name, str) for name in value):
                return _report_type("a mapping by strings", value, at, findings)
            return self._map(kind[1:-1], value, at, findings, applied)
        return self._struct(kind, value, at, findings, applied)

    def _list(self, kind: str, value: list[Any], at: Path, findings: Findings, applied: bool) -> list[Any]:
        zero = _ZERO.get(kind, {})  # what Go makes of a null in a list
        items = []
        for place, given in enumerate(value):
            if given is None:
                given = zero
            item = self._value(kind, given, (at, place), findings, applied)
            if item is not _BAD:
                items.append(item)
        return items

    def _map(self, kind: str, value: dict[str, Any], at: Path, findings: Findings, applied: bool) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for name in sorted(name for name in value if value[name] is not None):
            item = self._value(kind, value[name], (at, name), findings, applied)
            if item is not _BAD:
                items[name] = item
        return items


def over_given(given: Any, printed: Any) -> Any:
    """Return `given` with Go's output merged over it; empty fields that Go omits stay."""
    if isinstance(given, dict) and isinstance(printed, dict):
        merged = dict(given)
        for name, item in printed.items():
            merged[name] = item
            if name in given:
                merged[name] = over_given(given[name], item)
        return merged
    if isinstance(given, list) and isinstance(printed, list) and len(given) == len(printed):
        return [over_given(*pair) for pair in zip(given, printed, strict=True)]
    return printed


_BAD: Any = object()
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a decimal number",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
}


def _report_type(expected: str, value: Any, at: Path, findings: Findings, why: str = "") -> Any:
    # The value itself is not shown: it may be a secret that slipped into the wrong place.
    got = _NAMES.get(type(value), type(value).__name__)
    hint = ""
    if expected == "a string" and isinstance(value, (int, float)):
        hint = "write it in quotes"
    findings.problems.append(Problem(dotted_path(at), why or f"must be {expected}, not {got}", hint))
    return _BAD


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError


def _bounded(bits: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if -(2 ** (bits - 1)) <= _integer(value) < 2 ** (bits - 1):
            return int(value)
        raise ValueError(f"must fit into {bits} bits")

    return read


def _quantity(value: Any) -> str:
    if isinstance(value, float):
        value = repr(value)
    elif not isinstance(value, str):
        value = _integer(value)
    return canonical(value)


def _int_or_string(value: Any) -> str | int:
    if isinstance(value, str):
        return value
    return _int32(value)


def _time(value: Any) -> str:
    """Return a time in UTC and without fractions of a second, as Kubernetes prints it."""
    match = _RFC_3339.fullmatch(_string(value))
    try:
        if match is None:
            raise ValueError
        ahead = timedelta(hours=int(match["hours"] or 0), minutes=int(match["minutes"] or 0))
        if match["sign"] == "-":
            ahead = -ahead
        day, clock = map(int, match["day"].split("-")), map(int, match["clock"].split(":"))
        return f"{(datetime(*day, *clock) - ahead).isoformat()}Z"  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        raise ValueError("must be a time such as 2026-01-31T09:30:00Z") from None


_RFC_3339 = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})T(?P<clock>[0-9]{1,2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]+)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)
_int32 = _bounded(32)

_SCALARS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "str": ("a string", _string),
    "bool": ("true or false", _bool),
    "int32": ("a whole number", _int32),
    "int64": ("a whole number", _bounded(64)),
    "quantity": ("a quantity such as 3, 500m or 4Gi", _quantity),
    "intstr": ("a whole number or a string", _int_or_string),
    "time": ("a time", _time),
}


_ZERO = {"str": "", "bool": False, "int32": 0, "int64": 0, "quantity": "0", "intstr": 0}
"""What Go writes for a field that is missing; null for all other kinds."""
