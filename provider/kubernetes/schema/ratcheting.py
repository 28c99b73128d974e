"""Ratcheting: the server tolerates errors in values that an update does not change.

Source: https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/validation/ratcheting.go
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import Fault, path_steps
from pulumi_trainer.provider.kubernetes.schema.schema import Schema, by_key
from pulumi_trainer.provider.kubernetes.values.accessors import Document


class StoredObject:
    """The stored object of an update, with cached comparisons."""

    def __init__(self, schema: Schema, stored: Document) -> None:
        self.schema = schema
        self.stored = stored
        self._keys: dict[int, dict[Any, Any]] = {}
        self._same: dict[tuple[int, int], bool] = {}

    def tolerates(self, fault: Fault, document: Document) -> bool:
        """Return whether the stored object has the value of an error already. Duplicate items count for the whole object."""
        if fault.about == "items":
            return self._had_equal_items
        value, old, schema = document, self.stored, self.schema
        for step in path_steps(fault.at):
            below = self._below(schema, value, old, step) if schema is not None else None
            if below is None:
                break
            value, old, schema = below
        return self._unchanged(schema, value, old)

    @cached_property
    def _had_equal_items(self) -> bool:
        return any(fault.about == "items" for fault in self.schema.faults(self.stored))

    def _below(self, schema: Schema, value: Any, old: Any, step: str | int) -> tuple[Any, Any, Any] | None:
        """Return the new and the old value at a key or index, with their schema; None if one of them does not exist."""
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            was = self._item(schema, value[step], old)
            if was is None:
                return None
            return value[step], was, schema.items
        if isinstance(value, dict) and isinstance(old, dict) and step in value and step in old:
            return value[step], old[step], schema.properties.get(str(step), schema.additional_properties)
        return None

    def _item(self, schema: Schema, item: Any, old: Any) -> Any:
        """Return the old item of a list-map with the same keys; None if not found, or if the keys cannot be read."""
        if schema.list_type != "map" or not isinstance(old, list):
            return None
        key = schema.key(item)
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
            self._same[pair] = self._equal_below(schema, value, old)
        return self._same[pair]

    def _equal_below(self, schema: Schema | None, value: Any, old: Any) -> bool:
        if isinstance(value, dict) and isinstance(old, dict):
            if value.keys() != old.keys():
                return False
            for name in value:
                below = schema and schema.properties.get(name, schema.additional_properties)
                if not self._unchanged(below, value[name], old[name]):
                    return False
            return True
        if type(value) is not type(old) or len(value) != len(old):
            return False
        if schema is None or schema.list_type != "map":
            return all(self._unchanged(None, *pair) for pair in zip(value, old, strict=True))
        for item in value:
            was = self._item(schema, item, old)
            if was is None or not self._unchanged(schema.items, item, was):
                return False
        return True
