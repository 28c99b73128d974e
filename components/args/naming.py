"""Python's names and the API's: `num_nodes` and `numNodes`, in mappings along the fields that the schema of a kind declares.

Keys that no schema declares are the user's own (labels, resources, parameters of a driver) and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import pulumi
from pulumi_trainer.provider.admission.kinds import schema_of
from pulumi_trainer.provider.kube.schema.schema import Schema


def api_names(path: str, value: Any) -> Any:
    """Return a part of a document with the API's names, where mappings in it have Python's: `volume_mounts`, `volumeMounts`.

    path: where it stands, such as `TrainJob.spec.trainer`. None for a field of the API means that it is not given.
    """
    return _named(schema_at(path), value)


@cache
def schema_at(path: str) -> Schema:
    """Return what the API declares at a path, such as `TrainJob.spec.trainer`."""
    kind, *steps = path.split(".")
    schema = schema_of(kind)
    for step in steps:
        schema = (schema.items or schema).properties[step]
    return schema


def _named(schema: Schema | None, value: Any) -> Any:
    if schema is None or not (schema.properties or schema.items):
        return value
    if isinstance(value, pulumi.Output):
        return value.apply(lambda known: _named(schema, known))
    if isinstance(value, (list, tuple)):
        return [_named(schema.items or schema, item) for item in value]
    value = pulumi._types.input_type_to_dict(value) if pulumi._types.is_input_type(type(value)) else value
    if schema.items or not isinstance(value, Mapping):
        return value
    found = {}
    for key, item in value.items():
        name = _field(schema, key)
        name = key if name != key and name in value else name  # given by both names: one of them is an unknown field
        if item is not None or is_variable(schema, name, value):
            found[name] = _named(schema.properties.get(name), item)
    return found


def is_variable(schema: Schema, name: Any, given: Mapping[Any, Any]) -> bool:
    """Whether a field is the value of an environment variable, which has no other one."""
    other = given.get("valueFrom", given.get("value_from"))
    return name == "value" and "valueFrom" in schema.properties and other is None


def _field(schema: Schema, key: Any) -> Any:
    if key in schema.properties or not isinstance(key, str) or "_" not in key:
        return key
    return _fields(schema).get(key.replace("_", ""), camel(key))


@lru_cache(maxsize=512)
def _fields(schema: Schema) -> dict[str, str]:
    """The fields by their names in small letters, which `host_ip` and `hostIP` have in common."""
    return {name.lower(): name for name in schema.properties}


def camel(name: str) -> str:
    """num_nodes -> numNodes; a name without underscores stays."""
    if "_" not in name.strip("_") or not name.islower():
        return name
    head, *rest = name.split("_")
    return head + "".join(p.capitalize() for p in rest)


def snake(name: str) -> str:
    """numNodes -> num_nodes."""
    text = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return text.lstrip("_") if not name.startswith("_") else text
