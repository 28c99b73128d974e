"""One field of a custom resource as its CRD describes it: what is unknown in it, what is filled in, what is wrong.

The engine behind `review` and the defaults. It takes any structural `openAPIV3Schema`, a reachable cluster's as well as
the ones of `kinds`, and does what an API server of Kubernetes 1.36 does with it, in its words:
https://github.com/kubernetes/apiextensions-apiserver/tree/v0.36.3/pkg/apiserver (pruning, defaulting, list types) and
https://github.com/kubernetes/kube-openapi/tree/43fb72c5454a/pkg/validation/validate (values). Of combined schemas
(`anyOf` and the like) it knows the one that says int-or-string; it checks no other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kube.schema.field_errors import (
    DUPLICATE,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    At,
    Fault,
    dotted,
)
from pulumi_trainer.provider.kube.schema.json_values import (
    emptied,
    identity,
    is_date_time,
    named,
    plain,
    scalar,
)
from pulumi_trainer.provider.kube.schema.rules import Predicates, Rule
from pulumi_trainer.provider.kube.values import go_regexp
from pulumi_trainer.provider.kube.values.names import quoted
from pulumi_trainer.provider.kube.values.unknown import Unknown

_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_FORMATS: dict[type, str] = {int: "int64", float: "float64"}
"""The format that Go's reader gives a number."""
_NUMERIC_FORMATS = ("int32", "int64")
_TEXT_FORMATS = frozenset(
    [
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
    ]
)
_MAX_INT = {"int32": 2**31 - 1, "int64": 2**63 - 1}


class Schema:
    """A schema, ready for use. `given` and what it holds must not change afterwards; nested ones are made when needed.

    predicates: of its validation rules. made: the Schemas of this tree, by what they were made of: equal parts are one object.
    """

    def __init__(
        self, given: dict[str, Any], predicates: Predicates | None = None, made: dict[int, Schema] | None = None
    ) -> None:
        self.given = given
        self._predicates = predicates or {}
        self._made = {} if made is None else made
        self.int_or_string: bool = given.get("x-kubernetes-int-or-string") is True
        kind = given.get("type")
        self.types: tuple[str, ...] = ("integer", "string") if self.int_or_string else (kind,) if kind else ()
        self.nullable: bool = given.get("nullable") is True
        self.default: Any = given.get("default")
        self.preserving: bool = given.get("x-kubernetes-preserve-unknown-fields") is True
        self.required: tuple[str, ...] = tuple(given.get("required", ()))
        self.enum: list[Any] = given.get("enum") or []
        self.list_type: str | None = given.get("x-kubernetes-list-type")
        self.list_keys: tuple[str, ...] = tuple(given.get("x-kubernetes-list-map-keys", ()))
        self.format = _known_format(kind, given.get("format", ""))
        self.bounds = {name: given[name] for name in _BOUNDS if name in given}
        self.pattern = _known_pattern(given.get("pattern", ""))
        self.rules = tuple(Rule(each, self._predicates) for each in given.get("x-kubernetes-validations", ()))

    @cached_property
    def properties(self) -> dict[str, Schema]:
        return {name: self._of(each) for name, each in self.given.get("properties", {}).items()}

    @cached_property
    def items(self) -> Schema | None:
        items = self.given.get("items")
        return self._of(items) if isinstance(items, dict) else None

    @cached_property
    def others(self) -> Schema | None:
        """The schema of every property that is not named in `properties`."""
        others = self.given.get("additionalProperties")
        return self._of(others) if isinstance(others, dict) else None

    def _of(self, given: dict[str, Any]) -> Schema:
        made = self._made.get(id(given))
        if made is None:
            made = self._made[id(given)] = Schema(given, self._predicates, self._made)
        return made

    @cached_property
    def defaults(self) -> tuple[tuple[str, Schema], ...]:
        return tuple((name, each) for name, each in self.properties.items() if each.default is not None)

    @cached_property
    def held(self) -> tuple[Schema, ...]:
        return tuple(each for each in (*self.properties.values(), self.items, self.others) if each is not None)

    @cached_property
    def defaulting(self) -> bool:
        """Whether anything below this schema has a default."""
        return any(each.default is not None or each.defaulting for each in self.held)

    @cached_property
    def ruled(self) -> bool:
        """Whether this schema, or one that it holds, has validation rules."""
        return bool(self.rules) or any(each.ruled for each in self.held)

    @cached_property
    def ruled_properties(self) -> tuple[tuple[str, Schema], ...]:
        return tuple((name, each) for name, each in self.properties.items() if each.ruled)

    def shaped(self, value: Any, at: At = None, unknown: list[str] | None = None) -> Any:
        """`value` as the API server reads it: a copy without unknown fields and nulls, with the defaults.

        The paths of unknown fields are added to `unknown`. Whole floats become ints. Wrong values stay as they are.
        Raises Invalid for what JSON has not: NaN, keys that are no strings, Python objects, endless nesting.
        """
        kind = type(value)
        if kind is str or kind is bool or kind is Unknown or value is None:
            return value
        if kind is dict or isinstance(value, dict):
            return self._shaped_object(value, at, unknown)
        if kind is list or isinstance(value, (list, tuple)):
            if self.items is None:
                return (
                    plain(value, at) if self.preserving else [emptied(v, (at, i), unknown) for i, v in enumerate(value)]
                )
            items = self.items
            shaped = (items.shaped(v, (at, i), unknown) for i, v in enumerate(value))
            if items.default is None or items.nullable:
                return list(shaped)
            return [copy.deepcopy(items.default) if v is None else v for v in shaped]
        return scalar(value, at)

    def _shaped_object(self, value: dict[Any, Any], at: At, unknown: list[str] | None) -> dict[str, Any]:
        properties, others = self.properties, self.others
        shaped: dict[str, Any] = {}
        for name, item in value.items():
            schema = properties.get(name, others)
            if type(name) is not str:
                name = named(name, at)
            if schema is None:
                if self.preserving:
                    shaped[name] = plain(item, (at, name))
                elif unknown is not None:
                    unknown.append(dotted((at, name)))
            elif item is not None or schema.nullable:
                shaped[name] = schema.shaped(item, (at, name), unknown)
            elif schema.default is not None and schema is others:
                shaped[name] = copy.deepcopy(schema.default)
        for name, schema in self.defaults:
            if name not in shaped:
                shaped[name] = schema.shaped(copy.deepcopy(schema.default))
        return shaped

    def filled(self, value: Any) -> Any:
        """The value with the defaults that it has not yet; a new one where anything is added.

        Nothing else is looked at: unknown fields, nulls without a default and wrong values stay.
        """
        if not self.defaulting:
            return value
        if isinstance(value, list) and self.items is not None:
            return [self.items.filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        properties, others = self.properties, self.others
        found: dict[str, Any] = {}
        for name, item in value.items():
            schema = properties.get(name, others)
            found[name] = item if schema is None else schema.filled(item)
        for name, schema in self.defaults:
            if found.get(name) is None and not (schema.nullable and name in found):
                found[name] = schema.filled(copy.deepcopy(schema.default))
        return found

    def faults(self, value: Any, at: At = None) -> Iterator[Fault]:
        """What is wrong with a shaped value, but for validation rules; unknown leaves are right."""
        kind = type(value)
        if kind is Unknown:
            return
        if (wrong := self._type_fault(value)) is not None:
            yield Fault(at, TYPE_INVALID, after=f" in body must be of type {wrong}")
            if self.int_or_string and kind is not type(None):
                yield from _not_int_or_string(value, at)
        if kind is dict:
            yield from self._object_faults(value, at)
        elif kind is list:
            yield from self._list_faults(value, at)
        elif kind is str:
            yield from self._text_faults(value, at)
        elif kind is int or kind is float:
            yield from self._number_faults(value, at)
        if self.enum and not any(type(each) is kind and each == value for each in self.enum):
            shown = (f'"{each}"' if isinstance(each, str) else json.dumps(each) for each in self.enum)
            yield Fault(at, NOT_SUPPORTED, detail=f"supported values: {', '.join(shown)}")

    def typed(self, value: Any) -> bool:
        """Whether a known value has the right type."""
        return self._type_fault(value) is None

    def _type_fault(self, value: Any) -> str | None:
        """What the type should be and is, in the server's words; None: it is right."""
        types, kind = self.types, type(value)
        actual = _NAMES[kind]
        if actual in types or (actual == "integer" and "number" in types):
            return None
        if value is None:
            return f'{",".join(types)}: "null"' if types and not self.nullable else None
        if self.format and kind is not str and kind is not list and _FORMATS.get(kind) != self.format:
            return f'{self.format}: "{_FORMATS.get(kind, "")}"'
        textual = self.format and not ("number" in types or "integer" in types)
        if not types or (textual and (kind is str or kind is list)):
            return None
        return f'{",".join(types)}: "{actual}"'

    def _object_faults(self, value: dict[str, Any], at: At) -> Iterator[Fault]:
        bounds = self.bounds
        if bounds:
            least, most = bounds.get("minProperties", 0), bounds.get("maxProperties")
            if len(value) < least:
                yield Fault(at, INVALID, after=f" in body should have at least {least} properties")
            if most is not None and len(value) > most:
                yield Fault(at, TOO_MANY, detail=_at_most(most))
        properties, others = self.properties, self.others
        for name, item in value.items():
            schema = properties.get(name, others)
            if schema is not None:
                yield from schema.faults(item, (at, name))
        for name in self.required:
            if name not in value:
                yield Fault((at, name), REQUIRED, detail="")

    def _list_faults(self, value: list[Any], at: At) -> Iterator[Fault]:
        items, bounds = self.items, self.bounds
        if items is not None:
            for place, item in enumerate(value):
                yield from items.faults(item, (at, place))
        if bounds:
            least, most = bounds.get("minItems", 0), bounds.get("maxItems")
            if len(value) < least:
                yield Fault(at, INVALID, after=f" in body should have at least {least} items")
            if most is not None and len(value) > most:
                yield Fault(at, TOO_MANY, detail=_at_most(most))
        if self.list_type == "map":
            yield from self._same_keys(value, at)
        elif self.list_type == "set" and len(value) > 1:
            for place in _repeated([identity(item) for item in value]):
                mend = f"{_shown(value[place])} is there twice"
                yield Fault((at, place), DUPLICATE, detail="", mend=mend, about="items")

    def _same_keys(self, value: list[Any], at: At) -> Iterator[Fault]:
        for place, item in enumerate(value):
            if not isinstance(item, (dict, Unknown, type(None))):
                detail = "must be an object for an array of list-type map"
                yield Fault((at, place), INVALID, detail=detail, about="items")
                return
        if len(value) > 1:
            for place in _repeated([self.key(item) for item in value]):
                same = " and ".join(
                    f"{name} {_shown(value[place][name])}" for name in self.list_keys if name in (value[place] or ())
                )
                mend = f"another item has {same or 'no name'} too"
                yield Fault((at, place), DUPLICATE, detail="", mend=mend, about="items")

    def key(self, item: Any) -> Any:
        """What tells an item of a list-map from the others; None: it cannot be told."""
        item = {} if item is None else item
        if not isinstance(item, dict):
            return None
        key = tuple(identity(item[name]) if name in item else "" for name in self.list_keys)
        return None if None in key else key

    def _text_faults(self, value: str, at: At) -> Iterator[Fault]:
        bounds = self.bounds
        if len(value) > bounds.get("maxLength", len(value)):
            most = bounds["maxLength"]
            yield Fault(at, TOO_LONG, detail=f"may not be more than {most} byte{'' if most == 1 else 's'}")
        elif len(value) < bounds.get("minLength", 0):
            yield Fault(at, INVALID, after=f" in body should be at least {bounds['minLength']} chars long")
        elif self.pattern and not go_regexp.matches(self.pattern, value):
            yield Fault(at, INVALID, after=f" in body should match '{self.given['pattern']}'")
        if self.format == "date-time" and not is_date_time(value):
            yield Fault(at, TYPE_INVALID, after=f" in body must be of type date-time: {quoted(value)}")

    def _number_faults(self, value: int | float, at: At) -> Iterator[Fault]:
        if self.types == ("integer",) and not (type(value) is int and _fits(value, self.format or "int64")):
            how = f"with format {self.format}" if self.format else "(default format)"
            yield Fault(at, INVALID, before=f"Checked value must be of type integer {how} in ", nowhere=True)
        least, most = self.bounds.get("minimum"), self.bounds.get("maximum")
        if most is not None and value > most:
            yield Fault(at, INVALID, after=f" in body should be less than or equal to {most}")
        if least is not None and value < least:
            yield Fault(at, INVALID, after=f" in body should be greater than or equal to {least}")


_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def _known_pattern(pattern: str) -> str:
    """The pattern; empty for one that cannot be read, which is not checked."""
    try:
        return pattern if go_regexp.compiled(pattern) else ""
    except ValueError:
        return ""


def _known_format(kind: str | None, given: str) -> str:
    if kind == "integer":
        return given if given in _NUMERIC_FORMATS else ""
    if kind in (None, "string"):
        return given if given.replace("-", "") in _TEXT_FORMATS else ""
    return ""


def _not_int_or_string(value: Any, at: At) -> Iterator[Fault]:
    """What the server adds where neither of two alternatives fits: the faults of the first."""
    yield Fault(at, INVALID, before='"', after='" must validate at least one schema (anyOf)', nowhere=True)
    yield Fault(at, TYPE_INVALID, after=f' in body must be of type integer: "{_NAMES[type(value)]}"')
    if type(value) is float:
        where = "Checked value must be of type integer (default format) in "
        yield Fault(at, INVALID, before=where, nowhere=True)


def _fits(value: int, format_: str) -> bool:
    return -_MAX_INT[format_] - 1 <= value <= _MAX_INT[format_]


def _repeated(identities: list[Any]) -> Iterator[int]:
    """Where something is for the second time; a third time is not told."""
    times: dict[Any, int] = {}
    for place, each in enumerate(identities):
        if each is not None:
            times[each] = times.get(each, 0) + 1
            if times[each] == 2:
                yield place


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (str, int, float)) else "the same value"


def _at_most(most: int) -> str:
    return f"must have at most {most} item{'' if most == 1 else 's'}"
