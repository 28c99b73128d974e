"""The validation rules (CEL) of CRDs: which of them a value breaks.

`schema` makes a `Rule` of what a CRD says, with the predicate that its caller has for the rule's text; `broken` is called for
documents that are otherwise right. A rule without a predicate counts as kept.
What a rule's operators do, and which old value a rule may compare with, is as in
https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/cel/common/valuesunstructured.go and
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/schema/cel/validation.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.kube.schema.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    At,
    Fault,
    NoSuchKey,
)
from pulumi_trainer.provider.kube.schema.json_values import identity
from pulumi_trainer.provider.kube.values.unknown import Unknown

if TYPE_CHECKING:
    from pulumi_trainer.provider.kube.schema.schema import Schema

Predicate = Callable[[Any, Any, "Schema"], bool]
"""Whether a rule holds for (self, oldSelf, the schema of self). self is known and of the right type."""
Predicates = Mapping[str, Predicate]
"""By the text of the rule."""


class Rule:
    """One of a schema's `x-kubernetes-validations`."""

    def __init__(self, given: dict[str, Any], predicates: Predicates) -> None:
        self.text: str = given["rule"].strip()
        self.message: str = given.get("message", "").strip()
        self.field: tuple[str, ...] = tuple(filter(None, given.get("fieldPath", "").split(".")))
        self.type: str = given.get("reason", INVALID)
        if self.type not in (FORBIDDEN, REQUIRED, DUPLICATE):
            self.type = INVALID
        self.transition = "oldSelf" in self.text
        self.holds = predicates.get(self.text) or COMMON.get(self.text)

    def fault(self, value: Any, old: Any, at: At, schema: Schema) -> Fault | None:
        """What the server says where the rule is broken, or stumbles over a field that is not there."""
        if self.holds is None or (self.transition and (old is None or isinstance(old, Unknown))):
            return None
        try:
            if self.holds(value, old, schema):
                return None
            detail = self.message or f"failed rule: {self.text}"
        except NoSuchKey as error:
            detail = f"no such key: {error} evaluating rule: {self.message or self.text}"
            return Fault(at, INVALID, detail=detail, about="rule")
        for name in self.field:
            at = (at, name)
        return Fault(at, self.type, detail=detail)


def broken(schema: Schema, value: Any, old: Any, at: At = None) -> Iterator[Fault]:
    """The rules that a shaped value breaks. old: what stood there before, None for nothing comparable."""
    if value is None or isinstance(value, Unknown) or not schema.typed(value):
        return  # a value of a wrong type is there only where it was stored before its CRD forbade it
    for rule in schema.rules:
        fault = rule.fault(value, old, at, schema)
        if fault is not None:
            yield fault
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, each in schema.ruled_properties:
            if name in value:
                yield from broken(each, value[name], before.get(name), (at, name))
        if schema.others is not None and schema.others.ruled:
            for name in value.keys() - schema.properties.keys():
                yield from broken(schema.others, value[name], before.get(name), (at, name))
    elif isinstance(value, list) and schema.items is not None and schema.items.ruled:
        known = by_key(schema, old)
        for place, item in enumerate(value):
            yield from broken(schema.items, item, known.get(schema.key(item)) if known else None, (at, place))


def by_key(schema: Schema, items: Any) -> dict[Any, Any]:
    """The items of a list-map by what identifies them; items of other lists cannot be told from each other."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(schema.key(item), item)
    found.pop(None, None)
    return found


def equal(schema: Schema | None, one: Any, other: Any) -> bool:
    """CEL's ==: the order in list-maps and sets does not count. Unknown leaves are equal to everything."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and schema is not None:
        return len(one) == len(other) and all(
            name in other and equal(schema.properties.get(name, schema.others), item, other[name])
            for name, item in one.items()
        )
    if isinstance(one, list) and schema is not None:
        if len(one) != len(other):
            return False
        if schema.list_type == "set":
            known = {identity(item) for item in one}
            return None in known or {identity(item) for item in other} - {None} <= known
        if schema.list_type == "map":
            before = by_key(schema, one)
            return all(
                (key := schema.key(item)) is None or (key in before and equal(schema.items, before[key], item))
                for item in other
            )
        return all(equal(schema.items, *pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def unchanged(value: Any, old: Any, schema: Schema) -> bool:
    return equal(schema, value, old)


COMMON: Predicates = {"self == oldSelf": unchanged}
"""Rules that CRDs of every project have."""
