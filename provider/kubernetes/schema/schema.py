"""One field of a custom resource by the schema of its CRD: pruning, defaulting, and validation as in an API server.

Accepts any structural `openAPIV3Schema` and returns the errors of Kubernetes 1.36 in the server's words:
https://github.com/kubernetes/apiextensions-apiserver/tree/v0.36.3/pkg/apiserver (pruning, defaulting, list types) and
https://github.com/kubernetes/kube-openapi/tree/43fb72c5454a/pkg/validation/validate (values). Of combined schemas (`anyOf` and
the like), only int-or-string is checked.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kubernetes.schema import cel
from pulumi_trainer.provider.kubernetes.schema.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    UNCHECKED,
    At,
    Fault,
    NoSuchKey,
    NotEvaluated,
    dotted_path,
)
from pulumi_trainer.provider.kubernetes.schema.go_json_values import (
    field_name,
    identity,
    is_date_time,
    plain_data,
    scalar,
    without_fields,
)
from pulumi_trainer.provider.kubernetes.values import go_regexp
from pulumi_trainer.provider.kubernetes.values.names import quoted
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural

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
"""The format that Go's JSON reader gives a number."""
_NUMERIC_FORMATS = ("int32", "int64")
_TEXT_FORMATS = frozenset([
    "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4",
    "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password",
    "date", "duration", "datetime",
])  # fmt: skip
_MAX_INT = {"int32": 2**31 - 1, "int64": 2**63 - 1}


Predicate = Callable[[Any, Any, "Schema"], bool]
"""Function of (self, oldSelf, schema of self) that returns whether a rule is met. self is known and has the right type."""
Predicates = Mapping[str, Predicate]
"""Predicates by the text of the rule."""


class Rule:
    """One of a schema's `x-kubernetes-validations`."""

    def __init__(self, given: dict[str, Any], predicates: Predicates) -> None:
        self.text: str = given["rule"].strip()
        self.message: str = given.get("message", "").strip()
        self.field: tuple[str, ...] = tuple(filter(None, given.get("fieldPath", "").split(".")))
        self.type: str = given.get("reason", INVALID)
        if self.type not in (FORBIDDEN, REQUIRED, DUPLICATE):
            self.type = INVALID
        self.transition = "oldSelf" in self.text and given.get("optionalOldSelf") is not True
        self.holds = predicates.get(self.text) or COMMON.get(self.text) or cel.predicate(self.text)

    def fault(self, value: Any, old: Any, at: At, schema: Schema) -> Fault | None:
        """Return the error of a rule that is broken, selects a missing field, or cannot be evaluated; None if it is met."""
        if self.transition and (old is None or isinstance(old, Unknown)):
            return None
        try:
            if self.holds(value, old, schema):
                return None
            detail = self.message or f"failed rule: {self.text}"
        except NoSuchKey as error:
            detail = f"no such key: {error} evaluating rule: {self.message or self.text}"
            return Fault(at, INVALID, detail=detail, about="rule")
        except NotEvaluated as error:
            detail = f"validation rule not checked ({error}): {self.message or self.text}"
            return Fault(at, UNCHECKED, detail=detail, about="rule")
        for name in self.field:
            at = (at, name)
        return Fault(at, self.type, detail=detail)


class Schema:
    """A schema whose nested schemas are built when needed.

    Args:
        given: The schema as in the CRD; neither it nor its parts may change afterwards.
        made: The Schemas of this tree by the id of their parts, so that equal parts share one Schema.
    """

    def __init__(
        self, given: dict[str, Any], predicates: Predicates | None = None, made: dict[int, Schema] | None = None
    ) -> None:
        self.given = given
        self._predicates = predicates or {}
        self._made = {} if made is None else made
        self.int_or_string: bool = given.get("x-kubernetes-int-or-string") is True
        kind = given.get("type")
        self.types: tuple[str, ...] = ()
        if self.int_or_string:
            self.types = ("integer", "string")
        elif kind:
            self.types = (kind,)
        self.nullable: bool = given.get("nullable") is True
        self.default: Any = given.get("default")
        self.preserves_unknown_fields: bool = given.get("x-kubernetes-preserve-unknown-fields") is True
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
        return self._nested("items")

    @cached_property
    def additional_properties(self) -> Schema | None:
        """The schema of properties that are not named in `properties`."""
        return self._nested("additionalProperties")

    def _nested(self, keyword: str) -> Schema | None:
        """Return the schema of a keyword; None if the schema has none there: the keyword is missing, or a boolean."""
        given = self.given.get(keyword)
        if not isinstance(given, dict):
            return None
        return self._of(given)

    def _of(self, given: dict[str, Any]) -> Schema:
        made = self._made.get(id(given))
        if made is None:
            made = self._made[id(given)] = Schema(given, self._predicates, self._made)
        return made

    @cached_property
    def defaults(self) -> tuple[tuple[str, Schema], ...]:
        """Names and schemas of the properties with a default."""
        return tuple((name, each) for name, each in self.properties.items() if each.default is not None)

    @cached_property
    def child_schemas(self) -> tuple[Schema, ...]:
        """The schemas of properties and items."""
        schemas = (*self.properties.values(), self.items, self.additional_properties)
        return tuple(each for each in schemas if each is not None)

    @cached_property
    def has_defaults(self) -> bool:
        """Whether a nested schema has a default."""
        return any(each.default is not None or each.has_defaults for each in self.child_schemas)

    @cached_property
    def has_rules(self) -> bool:
        """Whether this schema, or a nested one, has validation rules."""
        return bool(self.rules) or any(each.has_rules for each in self.child_schemas)

    @cached_property
    def properties_with_rules(self) -> tuple[tuple[str, Schema], ...]:
        """Names and schemas of the properties with validation rules."""
        return tuple((name, each) for name, each in self.properties.items() if each.has_rules)

    def pruned(self, value: Any, at: At = None, unknown: list[str] | None = None) -> Any:
        """Return a copy of a value as the API server decodes it: without unknown fields and nulls, and with the defaults.

        Whole floats become ints. Values of wrong types stay.

        Raises:
            Invalid: JSON cannot represent a part: NaN, keys that are not strings, Python objects, too deep nesting.
        """
        kind = type(value)
        if kind is str or kind is bool or kind is Unknown or value is None:
            return value
        if kind is dict or isinstance(value, dict):
            return self._pruned_object(value, at, unknown)
        if kind is list or isinstance(value, (list, tuple)):
            return self._pruned_list(value, at, unknown)
        return scalar(value, at)

    def _pruned_list(self, value: list[Any] | tuple[Any, ...], at: At, unknown: list[str] | None) -> Any:
        items = self.items
        if items is None:
            if self.preserves_unknown_fields:
                return plain_data(value, at)
            return [without_fields(v, (at, i), unknown) for i, v in enumerate(value)]
        null_is_default = items.default is not None and not items.nullable
        pruned = []
        for place, given in enumerate(value):
            item = items.pruned(given, (at, place), unknown)
            if item is None and null_is_default:
                item = copy.deepcopy(items.default)
            pruned.append(item)
        return pruned

    def _pruned_object(self, value: dict[Any, Any], at: At, unknown: list[str] | None) -> dict[str, Any]:
        properties, others = self.properties, self.additional_properties
        pruned: dict[str, Any] = {}
        for name, item in value.items():
            schema = properties.get(name, others)
            if type(name) is not str:
                name = field_name(name, at)
            if schema is None:
                if self.preserves_unknown_fields:
                    pruned[name] = plain_data(item, (at, name))
                elif unknown is not None:
                    unknown.append(dotted_path((at, name)))
            elif item is not None or schema.nullable:
                pruned[name] = schema.pruned(item, (at, name), unknown)
            elif schema.default is not None and schema is others:
                pruned[name] = copy.deepcopy(schema.default)
        for name, schema in self.defaults:
            if name not in pruned:
                pruned[name] = schema.pruned(copy.deepcopy(schema.default))
        return pruned

    def with_defaults(self, value: Any) -> Any:
        """Return a value with the defaults that it lacks; unknown fields, nulls without a default and wrong values stay.

        A new value is returned if a default is added.
        """
        if not self.has_defaults:
            return value
        if isinstance(value, list) and self.items is not None:
            return [*map(self.items.with_defaults, value)]
        if not isinstance(value, dict):
            return value
        properties, others = self.properties, self.additional_properties
        found: dict[str, Any] = {}
        for name, item in value.items():
            schema = properties.get(name, others)
            found[name] = item
            if schema is not None:
                found[name] = schema.with_defaults(item)
        for name, schema in self.defaults:
            if found.get(name) is None and not (schema.nullable and name in found):
                found[name] = schema.with_defaults(copy.deepcopy(schema.default))
        return found

    def faults(self, value: Any, at: At = None) -> Iterator[Fault]:
        """Yield the errors of a pruned value, without those of validation rules; unknown leaves count as valid."""
        kind = type(value)
        if kind is Unknown:
            return
        wrong = self._type_fault(value)
        if wrong is not None:
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
            shown = map(_alternative, self.enum)
            yield Fault(at, NOT_SUPPORTED, detail=f"supported values: {', '.join(shown)}")

    def has_type(self, value: Any) -> bool:
        """Return whether a known value has the right type."""
        return self._type_fault(value) is None

    def _type_fault(self, value: Any) -> str | None:
        """Return expected and actual type in the server's words; None if the type is right."""
        types, kind = self.types, type(value)
        actual = _NAMES[kind]
        if actual in types or (actual == "integer" and "number" in types):
            return None
        if value is None:
            if types and not self.nullable:
                return f'{",".join(types)}: "null"'
            return None
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
        properties, others = self.properties, self.additional_properties
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
            for place in _repeated([*map(identity, value)]):
                hint = f"{_shown(value[place])} is a duplicate"
                yield Fault((at, place), DUPLICATE, detail="", hint=hint, about="items")

    def _same_keys(self, value: list[Any], at: At) -> Iterator[Fault]:
        for place, item in enumerate(value):
            if not isinstance(item, (dict, Unknown, type(None))):
                detail = "must be an object for an array of list-type map"
                yield Fault((at, place), INVALID, detail=detail, about="items")
                return
        if len(value) > 1:
            for place in _repeated([*map(self.key, value)]):
                hint = f"another item has {self._shown_keys(value[place]) or 'no name'} too"
                yield Fault((at, place), DUPLICATE, detail="", hint=hint, about="items")

    def _shown_keys(self, item: dict[str, Any] | None) -> str:
        """Return the keys of an item of a list-map as text; empty if it has none."""
        given = item or {}
        return " and ".join(f"{name} {_shown(given[name])}" for name in self.list_keys if name in given)

    def key(self, item: Any) -> Any:
        """Return the keys that identify an item of a list-map; None if they cannot be read."""
        if item is None:
            item = {}
        if not isinstance(item, dict):
            return None
        key = tuple(_key(item, name) for name in self.list_keys)
        if None in key:
            return None
        return key

    def _text_faults(self, value: str, at: At) -> Iterator[Fault]:
        bounds = self.bounds
        if len(value) > bounds.get("maxLength", len(value)):
            most = bounds["maxLength"]
            yield Fault(at, TOO_LONG, detail=f"may not be more than {plural(most, 'byte')}")
        elif len(value) < bounds.get("minLength", 0):
            yield Fault(at, INVALID, after=f" in body should be at least {bounds['minLength']} chars long")
        elif self.pattern and not go_regexp.matches(self.pattern, value):
            yield Fault(at, INVALID, after=f" in body should match '{self.given['pattern']}'")
        if self.format == "date-time" and not is_date_time(value):
            yield Fault(at, TYPE_INVALID, after=f" in body must be of type date-time: {quoted(value)}")

    def _number_faults(self, value: int | float, at: At) -> Iterator[Fault]:
        if self.types == ("integer",) and not (type(value) is int and _fits(value, self.format or "int64")):
            how = "(default format)"
            if self.format:
                how = f"with format {self.format}"
            yield Fault(at, INVALID, before=f"Checked value must be of type integer {how} in ", nowhere=True)
        least, most = self.bounds.get("minimum"), self.bounds.get("maximum")
        if most is not None and value > most:
            yield Fault(at, INVALID, after=f" in body should be less than or equal to {most}")
        if least is not None and value < least:
            yield Fault(at, INVALID, after=f" in body should be greater than or equal to {least}")


_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def _known_pattern(pattern: str) -> str:
    """Return the pattern; empty if it is not a valid one, and then not checked."""
    try:
        if not go_regexp.compiled(pattern):
            return ""
    except ValueError:
        return ""
    return pattern


def _known_format(kind: str | None, given: str) -> str:
    """Return the format; empty if the server does not check it for values of this kind."""
    checked = False
    if kind == "integer":
        checked = given in _NUMERIC_FORMATS
    elif kind in (None, "string"):
        checked = given.replace("-", "") in _TEXT_FORMATS
    if not checked:
        return ""
    return given


def _not_int_or_string(value: Any, at: At) -> Iterator[Fault]:
    """Yield the errors that the server adds if neither alternative matches: those of the first."""
    yield Fault(at, INVALID, before='"', after='" must validate at least one schema (anyOf)', nowhere=True)
    yield Fault(at, TYPE_INVALID, after=f' in body must be of type integer: "{_NAMES[type(value)]}"')
    if type(value) is float:
        where = "Checked value must be of type integer (default format) in "
        yield Fault(at, INVALID, before=where, nowhere=True)


def _fits(value: int, format_: str) -> bool:
    return -_MAX_INT[format_] - 1 <= value <= _MAX_INT[format_]


def _repeated(identities: list[Any]) -> Iterator[int]:
    """Yield the index of the second occurrence of each identity; further ones are not reported."""
    times: dict[Any, int] = {}
    for place, each in enumerate(identities):
        if each is not None:
            times[each] = times.get(each, 0) + 1
            if times[each] == 2:
                yield place


def _key(item: dict[str, Any], name: str) -> Any:
    """Return the identity of a key of an item; a missing key counts as an empty text."""
    if name not in item:
        return ""
    return identity(item[name])


def _alternative(value: Any) -> str:
    """Return a value of an `enum` as text."""
    if isinstance(value, str):
        return f'"{value}"'
    return json.dumps(value)


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return "the same value"
    return json.dumps(value)


def _at_most(most: int) -> str:
    return f"must have at most {plural(most, 'item')}"


def by_key(schema: Schema, items: Any) -> dict[Any, Any]:
    """Return the items of a list-map by their keys; empty for other lists, whose items have no identity."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(schema.key(item), item)
    found.pop(None, None)
    return found


def equal(schema: Schema | None, one: Any, other: Any) -> bool:
    """Return the result of CEL's ==, which ignores the order of list-maps and sets. Unknown leaves are equal to everything."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and schema is not None:
        return _equal_objects(schema, one, other)
    if isinstance(one, list) and schema is not None:
        return _equal_lists(schema, one, other)
    return bool(one == other)


def _equal_objects(schema: Schema, one: dict[str, Any], other: dict[str, Any]) -> bool:
    if len(one) != len(other):
        return False
    for name, item in one.items():
        if name not in other:
            return False
        below = schema.properties.get(name, schema.additional_properties)
        if not equal(below, item, other[name]):
            return False
    return True


def _equal_lists(schema: Schema, one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    if schema.list_type == "set":
        identities = {*map(identity, one)}
        return None in identities or {*map(identity, other)} - {None} <= identities
    if schema.list_type == "map":
        before = by_key(schema, one)
        for item in other:
            key = schema.key(item)
            if key is not None and not (key in before and equal(schema.items, before[key], item)):
                return False
        return True
    return all(equal(schema.items, *pair) for pair in zip(one, other, strict=True))


COMMON: Predicates = {"self == oldSelf": lambda value, old, schema: equal(schema, value, old)}
"""Rules that CRDs of all projects use."""
