"""The metadata of a whole object: how the API server decodes and validates it. Templates inside an object belong to `schema`.

Sources: https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/api/validation/objectmeta.go and
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/schema/objectmeta/coerce.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.definition import Kind
from pulumi_trainer.provider.kubernetes.schema.field_errors import INVALID, REQUIRED, TOO_LONG, At, Fault
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, texts
from pulumi_trainer.provider.kubernetes.values.names import (
    dns_1123_label,
    dns_1123_subdomain,
    label_value,
    qualified_name,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

_TEXT: Document = {"type": "string"}
_TEXTS: Document = {"type": "object", "additionalProperties": _TEXT}
_WHOLE: Document = {"type": "integer", "format": "int64"}
_TIME: Document = {
    "type": "string",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$",
}
_FLAG: Document = {"type": "boolean"}
_OWNER = {
    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
    "controller": _FLAG,
    "blockOwnerDeletion": _FLAG,
}
_MANAGED = {
    **dict.fromkeys(("manager", "operation", "apiVersion", "fieldsType", "subresource"), _TEXT),
    "time": _TIME,
    "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
OBJECT_META = Schema(
    {
        "type": "object",
        "properties": {
            **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
            **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _WHOLE),
            **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TIME),
            **dict.fromkeys(("labels", "annotations"), _TEXTS),
            "finalizers": {"type": "array", "items": _TEXT},
            "ownerReferences": {"type": "array", "items": {"type": "object", "properties": _OWNER}},
            "managedFields": {"type": "array", "items": {"type": "object", "properties": _MANAGED}},
        },
    }
)
"""ObjectMeta of https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/apis/meta/v1/types.go"""

_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations together."""
_LONGEST_BASE = 58
_GENERATED = "xxxxx"
"""Placeholder for the five random characters that the server appends to generateName."""
_AT: At = (None, "metadata")


def decode(document: Document, kind: Kind, unknown: list[str]) -> Document:
    """Return `metadata` as the server decodes it, without empty fields. A missing namespace becomes `default`."""
    given = document.get("metadata")
    if isinstance(given, dict):
        given = {name: _without_nulls(name, value) for name, value in given.items()}
    elif given is None:
        given = {}
    pruned = OBJECT_META.pruned(given, _AT, unknown)
    wrong = [fault.problem() for fault in OBJECT_META.faults(pruned, _AT)]
    if wrong:
        raise Invalid(*wrong)
    if isinstance(pruned, Unknown):
        raise Invalid(Problem("metadata", "is not known yet", "only its fields may be"))
    metadata: Document = {name: value for name, value in pruned.items() if value or isinstance(value, Unknown)}
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif "namespace" not in metadata:
        metadata["namespace"] = "default"
    return metadata


def _without_nulls(name: Any, value: Any) -> Any:
    """Return a value with nulls replaced as Go does: by an empty text or an empty owner."""
    if name in ("labels", "annotations") and isinstance(value, dict):
        return {key: _unless_null(text, "") for key, text in value.items()}
    if isinstance(value, list):
        empty: Any = "" if name == "finalizers" else {}
        return [_unless_null(item, empty) for item in value]
    return value


def _unless_null(value: Any, empty: Any) -> Any:
    return empty if value is None else value


def object_name(metadata: Document) -> str | Unknown:
    """Return the name, or one like the server would generate; empty if both fields are empty."""
    base = metadata.get("generateName", "")
    generated: str | Unknown = base
    if not isinstance(base, Unknown) and base:
        generated = base[:_LONGEST_BASE] + _GENERATED
    return metadata.get("name") or generated


def faults(metadata: Document, old: Document | None) -> Iterator[Fault]:
    """Yield the errors of decoded metadata."""
    if old is None:
        yield from _names(metadata)
    else:
        for field in ("name", "namespace", "uid"):
            before, now = old.get(field), metadata.get(field)
            if now and before and before != now and not isinstance(before, Unknown) and not isinstance(now, Unknown):
                yield Fault((_AT, field), INVALID, detail="field is immutable")
    generation = metadata.get("generation")
    if isinstance(generation, int) and generation < 0:
        yield Fault((_AT, "generation"), INVALID, detail="must be greater than or equal to 0")
    yield from _labels(metadata)
    yield from _annotations(metadata)
    yield from _owners(metadata)
    if old is None:
        for finalizer in texts(metadata.get("finalizers", [])):
            yield from _each((_AT, "finalizers"), qualified_name(finalizer))


def _names(metadata: Document) -> Iterator[Fault]:
    base, name = metadata.get("generateName"), object_name(metadata)
    if isinstance(base, str):
        masked = base
        if len(base) > 1 and base.endswith("-"):
            masked = base[:-2] + "a"
        yield from _each((_AT, "generateName"), dns_1123_subdomain(masked))
    if not name:
        yield Fault((_AT, "name"), REQUIRED, detail="name or generateName is required")
    elif isinstance(name, str):
        yield from _each((_AT, "name"), dns_1123_subdomain(name))
    namespace = metadata.get("namespace")
    if isinstance(namespace, str):
        yield from _each((_AT, "namespace"), dns_1123_label(namespace))


def _labels(metadata: Document) -> Iterator[Fault]:
    labels = metadata.get("labels")
    if isinstance(labels, dict):
        for name, value in labels.items():
            hint = f"correct the label {name[:80]!r}"
            yield from _each((_AT, "labels"), qualified_name(name), hint)
            if isinstance(value, str):
                yield from _each((_AT, "labels"), label_value(value), hint)


def _annotations(metadata: Document) -> Iterator[Fault]:
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return
    for name in annotations:
        yield from _each((_AT, "annotations"), qualified_name(name.lower()), f"the annotation {name[:80]}")
    size = sum(len(text.encode(errors="replace")) for text in texts([*annotations, *annotations.values()]))
    if size > _ANNOTATIONS:
        detail = f"may not be more than {_ANNOTATIONS} bytes"
        yield Fault((_AT, "annotations"), TOO_LONG, detail=detail, hint=f"all together have {size}")


def _owners(metadata: Document) -> Iterator[Fault]:
    at = (_AT, "ownerReferences")
    owners = metadata.get("ownerReferences", [])
    controller = ""
    for owner in listed(owners):
        if not isinstance(owner, dict):
            continue
        version = owner.get("apiVersion", "")
        if isinstance(version, str) and (version.count("/") > 1 or not version.rpartition("/")[2]):
            yield Fault((at, "apiVersion"), INVALID, detail="version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield Fault((at, field), INVALID, detail="must not be empty")
        if version == "v1" and owner.get("kind") == "Event":
            yield Fault(at, INVALID, detail="/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller") is True:
            this = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                both = f"{controller} and {this}"
                why = f'Only one reference can have Controller set to true. Found "true" in references for {both}'
                yield Fault(at, INVALID, detail=why)
            else:
                controller = this


def _each(at: At, wrong: list[str], hint: str = "") -> Iterator[Fault]:
    for detail in wrong:
        yield Fault(at, INVALID, detail=detail, hint=hint)
