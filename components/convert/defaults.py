"""Leaves out of documents what the API server adds by itself, so that a program has what a person would write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.admission_review import review
from pulumi_trainer.provider.kueue.crd_schemas import kinds
from pulumi_trainer.provider.trainer.admission.defaults import stored_jobset
from pulumi_trainer.provider.trainer.releases import DEFAULT

_OPTIONAL = ("metadata", "resources")
"""Fields that Go writes although they are empty."""
_EMPTY: tuple[Document, ...] = ({}, {"creationTimestamp": None})


def without_defaults(document: Document) -> Document:
    """Return a document of a runtime, a TrainJob, a JobSet or a Kueue object without the defaults of the server."""
    kind = document["kind"]
    known = DEFAULT.kinds.get(kind) or kinds().get(kind)
    if known is None:
        return document
    made = copy.deepcopy(_bare_document(document, known.schema))
    if kind == "JobSet":
        _remove_defaults_of_webhook(made, lambda: stored_jobset(made, DEFAULT))
    elif kind in kinds():
        _remove_defaults_of_webhook(made, lambda: review(made).stored)
    return made


def _remove_defaults_of_webhook(document: Document, stored: Callable[[], Any]) -> None:
    """Remove the fields that the server would add again. stored: Returns the document as the server would store it."""
    whole = stored()
    if whole is None:  # the server refuses it
        return
    for part in (section(document, "spec"), *(job.job for job in jobs_of(document))):
        for field, value in [*part.items()]:
            del part[field]
            if stored() != whole:
                part[field] = value


def _bare_document(document: Document, schema: Schema) -> Document:
    if "spec" not in document or "spec" not in schema.properties:
        return document
    return {**document, "spec": _bare(document["spec"], schema.properties["spec"])}


def _bare(value: Any, schema: Schema) -> Any:
    if isinstance(value, list) and schema.items is not None:
        return [_bare(each, schema.items) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        field = schema.properties.get(name)
        is_default = field is not None and field.default is not None and each == field.default
        if is_default or (name in _OPTIONAL and each in _EMPTY):
            continue
        if field is not None:
            each = _bare(each, field)
        kept[name] = each
    return kept
