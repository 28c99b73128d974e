"""Evaluates the validation rules (CEL) of CRDs. A rule that cannot be evaluated is an error of the type UNCHECKED.

Operators, and which old value a rule may compare with, are as in
https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/cel/common/valuesunstructured.go and
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/schema/cel/validation.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import BLOCKING, At, Fault
from pulumi_trainer.provider.kubernetes.schema.schema import Schema, by_key
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


def all_faults(schema: Schema, value: Any) -> list[Fault]:
    """Return all errors of a new pruned value: the rules count only if the value itself has no error of a blocking type."""
    found = [*schema.faults(value)]
    if not any(fault.type in BLOCKING for fault in found):
        found += broken_rules(schema, value, None)
    return found


def broken_rules(schema: Schema, value: Any, old: Any, at: At = None) -> Iterator[Fault]:
    """Yield the errors of the rules that a pruned value breaks.

    Args:
        old: The stored value; None if no value is comparable.
    """
    if value is None or isinstance(value, Unknown) or not schema.has_type(value):
        return  # a value of a wrong type was stored before its CRD forbade it
    for rule in schema.rules:
        fault = rule.fault(value, old, at, schema)
        if fault is not None:
            yield fault
    if isinstance(value, dict):
        before = section(old)
        for name, each in schema.properties_with_rules:
            if name in value:
                yield from broken_rules(each, value[name], before.get(name), (at, name))
        if schema.additional_properties is not None and schema.additional_properties.has_rules:
            for name in value.keys() - schema.properties.keys():
                yield from broken_rules(schema.additional_properties, value[name], before.get(name), (at, name))
    elif isinstance(value, list) and schema.items is not None and schema.items.has_rules:
        known = by_key(schema, old)
        for place, item in enumerate(value):
            yield from broken_rules(schema.items, item, known.get(schema.key(item)) if known else None, (at, place))
