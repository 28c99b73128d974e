"""The API server's review of one document of a CRD's kind, step by step: each step stops at its errors.

The order of steps is that of
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/registry/customresource/strategy.go, with the webhooks of
the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema import metadata
from pulumi_trainer.provider.kubernetes.schema.definition import Kind
from pulumi_trainer.provider.kubernetes.schema.field_errors import BLOCKING, INVALID, Fault
from pulumi_trainer.provider.kubernetes.schema.ratcheting import StoredObject
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.schema.validation_rules import broken_rules
from pulumi_trainer.provider.kubernetes.schema.verdict import NOT_CHECKED, Stage, Verdict
from pulumi_trainer.provider.kubernetes.values.accessors import Document, only, section, without


@dataclass(frozen=True)
class Webhooks:
    """The webhooks of a kind: functions of the object and the stored object, which is None on creation.

    Args:
        mutate: Returns the changed object. Raises Invalid if its Go types cannot represent the object.
    """

    mutate: Callable[[Document, Document | None], Document]
    validate: Callable[[Document, Document | None], tuple[list[Problem], list[str]]]


def review(
    document: Document, kind: Kind, webhooks: Webhooks, *, old: Document | None = None, problems: Iterable[Problem] = ()
) -> Verdict:
    """Return the server's verdict on a document.

    Args:
        old: The stored object (`Verdict.stored` of an earlier review); None on creation.
        problems: Further problems, reported with those of the schema.
    """
    unknown: list[str] = []
    try:
        given = _decoded(document, kind, unknown)
    except Invalid as error:
        return rejected("decode", error.problems, unknown)
    try:
        stored = webhooks.mutate(_with_old(given, old), old)
    except Invalid as error:
        return rejected("mutating-webhook", error.problems, unknown)
    stored = _without_new_status(stored, old, kind)
    wrong = [*_schema_problems(stored, old, kind), *problems]
    if wrong:
        return rejected("schema", wrong, unknown)
    refusals, warnings = webhooks.validate(stored, old)
    if refusals:
        return rejected("validating-webhook", refusals, unknown, warnings)
    return Verdict(True, warnings=tuple(warnings), unknown=tuple(sorted(unknown)), stored=stored)


def _decoded(document: Document, kind: Kind, unknown: list[str]) -> Document:
    found = metadata.decode(document, kind, unknown)
    name = metadata.object_name(found)
    if name:
        found["name"] = name
    pruned: Document = kind.schema.pruned(without(document, "metadata"), None, unknown)
    return {**pruned, "metadata": found}


def _with_old(given: Document, old: Document | None) -> Document:
    """Return the document with the identity of the stored object."""
    if old is None:
        return given
    identity = only(section(old, "metadata"), ("uid", "creationTimestamp"))
    return {**given, "metadata": {**identity, **given["metadata"]}}


def _without_new_status(stored: Document, old: Document | None, kind: Kind) -> Document:
    """Return the document with the stored status, if status is a subresource."""
    if not kind.status:
        return stored
    rest = without(stored, "status")
    if old is None or "status" not in old:
        return rest
    return {**rest, "status": old["status"]}


def _schema_problems(stored: Document, old: Document | None, kind: Kind) -> list[Problem]:
    schema = kind.schema
    was = None if old is None else section(old, "metadata")
    rest = without(stored, "metadata")
    found = [*metadata.faults(stored["metadata"], was), *_new(schema.faults(rest), stored, old, schema)]
    if any(fault.type in BLOCKING for fault in found):
        found.append(Fault(None, INVALID, detail=NOT_CHECKED))
    else:
        found += _new(broken_rules(schema, stored, old), stored, old, schema)
    return [fault.problem() for fault in found]


def _new(faults: Iterable[Fault], stored: Document, old: Document | None, schema: Schema) -> Iterator[Fault]:
    """Yield the errors without those that the server tolerates because the value was stored before."""
    before = StoredObject(schema, old) if old is not None else None
    for fault in faults:
        if before is None or fault.about == "rule" or not before.tolerates(fault, stored):
            yield fault


def rejected(stage: Stage, problems: Iterable[Problem], unknown: list[str], warnings: Iterable[str] = ()) -> Verdict:
    """Return a rejecting verdict, with the errors sorted and without duplicates."""
    errors = sorted(set(problems), key=lambda problem: (problem.where, problem.type, problem.why))
    return Verdict(False, stage, tuple(errors), tuple(warnings), tuple(sorted(unknown)))
