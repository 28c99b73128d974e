"""The API server's answer to one document of a CRD's kind, step by step.

The steps and their order are those of
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/registry/customresource/strategy.go around the
webhooks, which the caller gives; what one step refuses, later ones do not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema import metadata
from pulumi_trainer.provider.kube.schema.definition import Kind
from pulumi_trainer.provider.kube.schema.field_errors import BLOCKING, INVALID, Fault
from pulumi_trainer.provider.kube.schema.ratcheting import Before
from pulumi_trainer.provider.kube.schema.rules import broken
from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kube.schema.verdict import NOT_CHECKED, Stage, Verdict
from pulumi_trainer.provider.kube.values.accessors import Document, section


@dataclass(frozen=True)
class Webhooks:
    """What the webhooks of a kind do with an object and the stored one, which is None on creation.

    Args:
        mutate: Returns the object as they change it. Raises Invalid for what its Go types cannot hold.
        validate: Returns what they refuse, and their warnings.
    """

    mutate: Callable[[Document, Document | None], Document]
    validate: Callable[[Document, Document | None], tuple[list[Problem], list[str]]]


def review(
    document: Document,
    kind: Kind,
    webhooks: Webhooks,
    *,
    old: Document | None = None,
    problems: Iterable[Problem] = (),
) -> Verdict:
    """Return what the server would answer.

    Args:
        document: What is sent; it is not changed, and unknown leaves count as right.
        kind: Its kind.
        webhooks: Of the kind.
        old: The object as it is stored (`Verdict.stored` of an earlier answer); None: the document is to create it.
        problems: What somebody else has against it, which is told with those of the schema.
    """
    unknown: list[str] = []
    try:
        given = _decoded(document, kind, unknown)
    except Invalid as error:
        return refused("decode", error.problems, unknown)
    try:
        stored = webhooks.mutate(_with_old(given, old), old)
    except Invalid as error:
        return refused("mutating-webhook", error.problems, unknown)
    stored = _without_new_status(stored, old, kind)
    if wrong := [*_schema_problems(stored, old, kind), *problems]:
        return refused("schema", wrong, unknown)
    refusals, warnings = webhooks.validate(stored, old)
    if refusals:
        return refused("validating-webhook", refusals, unknown, warnings)
    return Verdict(True, warnings=tuple(warnings), unknown=tuple(sorted(unknown)), stored=stored)


def _decoded(document: Document, kind: Kind, unknown: list[str]) -> Document:
    found = metadata.decoded(document, kind, unknown)
    if name := metadata.named(found):
        found["name"] = name
    rest = {name: value for name, value in document.items() if name != "metadata"}
    shaped: Document = kind.schema.shaped(rest, None, unknown)
    return {**shaped, "metadata": found}


def _with_old(given: Document, old: Document | None) -> Document:
    """What the server takes over from the stored object: its identity."""
    if old is None:
        return given
    was = {name: value for name, value in section(old, "metadata").items() if name in ("uid", "creationTimestamp")}
    return {**given, "metadata": {**was, **given["metadata"]}}


def _without_new_status(stored: Document, old: Document | None, kind: Kind) -> Document:
    """Where status is a resource of its own, this request cannot set it."""
    if not kind.status:
        return stored
    rest = {name: value for name, value in stored.items() if name != "status"}
    return {**rest, "status": old["status"]} if old is not None and "status" in old else rest


def _schema_problems(stored: Document, old: Document | None, kind: Kind) -> list[Problem]:
    schema = kind.schema
    was = None if old is None else section(old, "metadata")
    rest = {name: value for name, value in stored.items() if name != "metadata"}
    found = [*metadata.faults(stored["metadata"], was), *_new(schema.faults(rest), stored, old, schema)]
    if any(fault.type in BLOCKING for fault in found):
        found.append(Fault(None, INVALID, detail=NOT_CHECKED))
    else:
        found += _new(broken(schema, stored, old), stored, old, schema)
    return [fault.problem() for fault in found]


def _new(faults: Iterable[Fault], stored: Document, old: Document | None, schema: Schema) -> Iterator[Fault]:
    """Without those of values that were stored as they are: the server tolerates what it once took."""
    before = Before(schema, old) if old is not None else None
    for fault in faults:
        if before is None or fault.about == "rule" or not before.tolerates(fault, stored):
            yield fault


def refused(stage: Stage, problems: Iterable[Problem], unknown: list[str], warnings: Iterable[str] = ()) -> Verdict:
    """In an order that does not depend on the order in the document, each only once, as the server does it."""
    errors = sorted(set(problems), key=lambda problem: (problem.where, problem.type, problem.why))
    return Verdict(False, stage, tuple(errors), tuple(warnings), tuple(sorted(unknown)))
