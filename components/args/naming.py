"""Conversion between Python's names and the API's, `managed_by` and `managedBy`, along the fields in the schema of a kind.

Keys that no schema declares are the user's own (labels, resources, parameters of a driver) and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import pulumi
from pulumi_trainer.provider.engine.pulumi_compat import fields_of_input_type, is_input_type
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kueue.crd_schemas import kinds as queue_kinds
from pulumi_trainer.provider.trainer.releases import NEWEST


def api_names(path: str, value: Any) -> Any:
    """Return a part of a document with the API's names where mappings have Python's: `volume_mounts` -> `volumeMounts`.

    Args:
        path: Path of the part, such as `TrainJob.spec.trainer`.
        value: The part; a field of the API that is None is left out.
    """
    return _with_api_names(schema_at(path), value)


@cache
def schema_at(path: str) -> Schema:
    """Return the schema of a path of the newest API, such as `TrainJob.spec.trainer`."""
    kind, *steps = path.split(".")
    schema = (NEWEST.kinds.get(kind) or queue_kinds()[kind]).schema
    for step in steps:
        schema = (schema.items or schema).properties[step]
    return schema


def _with_api_names(schema: Schema | None, value: Any) -> Any:
    if schema is None or not (schema.properties or schema.items):
        return value
    if isinstance(value, pulumi.Output):
        return value.apply(lambda known: _with_api_names(schema, known))
    if isinstance(value, (list, tuple)):
        return [_with_api_names(schema.items or schema, item) for item in value]
    if is_input_type(value):
        value = fields_of_input_type(value)
    if schema.items or not isinstance(value, Mapping):
        return value
    found = {}
    for key, item in value.items():
        name = _api_field(schema, key)
        if name != key and name in value:  # given by both names: one of them is an unknown field
            name = key
        if item is not None or is_variable(schema, name, value):
            found[name] = _with_api_names(schema.properties.get(name), item)
    return found


def is_variable(schema: Schema, name: Any, given: Mapping[Any, Any]) -> bool:
    """Return whether a field is the `value` of an environment variable without `valueFrom`.

    Args:
        given: The object as the user wrote it, with names of the API or of Python (`valueFrom`, `value_from`).
    """
    other = given.get("valueFrom", given.get("value_from"))
    return name == "value" and "valueFrom" in schema.properties and other is None


def _api_field(schema: Schema, key: Any) -> Any:
    if key in schema.properties or not isinstance(key, str) or "_" not in key:
        return key
    return _fields(schema).get(key.replace("_", ""), camel(key))


@lru_cache(maxsize=512)
def _fields(schema: Schema) -> dict[str, str]:
    """Return the fields by lower-case name, which is the same for `host_ip` and `hostIP`."""
    return {name.lower(): name for name in schema.properties}


def camel(name: str) -> str:
    """Return a name in camelCase: managed_by -> managedBy; a name without underscores stays."""
    if "_" not in name.strip("_") or not name.islower():
        return name
    head, *rest = name.split("_")
    return head + "".join(p.capitalize() for p in rest)


def snake(name: str) -> str:
    """Return a name in snake_case: managedBy -> managed_by."""
    if name.startswith("_"):
        return underscored(name)
    return underscored(name).lstrip("_")


def underscored(name: str) -> str:
    """Return a name in lower case, with an underscore before each capital: ManagedBy -> _managed_by."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
