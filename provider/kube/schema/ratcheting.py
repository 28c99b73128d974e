"""What an update has not changed, and the server therefore tolerates.

As in https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/validation/ratcheting.go
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kube.schema.field_errors import Fault, parts
from pulumi_trainer.provider.kube.schema.rules import by_key
from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kube.values.accessors import Document


class Before:
    """The object as it is stored. It remembers what it has compared, so that many faults take no more than one."""

    def __init__(self, schema: Schema, stored: Document) -> None:
        self.schema = schema
        self.stored = stored
        self._keys: dict[int, dict[Any, Any]] = {}
        self._same: dict[tuple[int, int], bool] = {}

    def tolerates(self, fault: Fault, document: Document) -> bool:
        """Whether what is wrong with the new document was there before. Equal items count for the whole object."""
        if fault.about == "items":
            return self._had_equal_items
        value, old, schema = document, self.stored, self.schema
        for step in parts(fault.at):
            below = self._below(schema, value, old, step) if schema is not None else None
            if below is None:
                break
            value, old, schema = below
        return self._unchanged(schema, value, old)

    @cached_property
    def _had_equal_items(self) -> bool:
        return any(fault.about == "items" for fault in self.schema.faults(self.stored))

    def _below(self, schema: Schema, value: Any, old: Any, step: str | int) -> tuple[Any, Any, Any] | None:
        """What stands at a key or an index now and before, with its schema; None where one of them has nothing."""
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            was = self._item(schema, value[step], old)
            return None if was is None else (value[step], was, schema.items)
        if isinstance(value, dict) and isinstance(old, dict) and step in value and step in old:
            return value[step], old[step], schema.properties.get(str(step), schema.others)
        return None

    def _item(self, schema: Schema, item: Any, old: Any) -> Any:
        """The old item of a list-map that has the same keys; None: there is none, or it cannot be told."""
        key = schema.key(item) if schema.list_type == "map" and isinstance(old, list) else None
        if key is None:
            return None
        if id(old) not in self._keys:
            self._keys[id(old)] = by_key(schema, old)
        return self._keys[id(old)].get(key)

    def _unchanged(self, schema: Schema | None, value: Any, old: Any) -> bool:
        if not isinstance(value, (dict, list)) or not isinstance(old, (dict, list)):
            return type(value) is type(old) and bool(value == old)
        pair = id(value), id(old)
        if pair not in self._same:
            self._same[pair] = self._compared(schema, value, old)
        return self._same[pair]

    def _compared(self, schema: Schema | None, value: Any, old: Any) -> bool:
        if isinstance(value, dict) and isinstance(old, dict):
            below = {name: schema and schema.properties.get(name, schema.others) for name in value}
            return value.keys() == old.keys() and all(self._unchanged(below[n], value[n], old[n]) for n in value)
        if type(value) is not type(old) or len(value) != len(old):
            return False
        if schema is None or schema.list_type != "map":
            return all(self._unchanged(None, *pair) for pair in zip(value, old, strict=True))
        pairs = ((item, self._item(schema, item, old)) for item in value)
        return all(was is not None and self._unchanged(schema.items, item, was) for item, was in pairs)
