"""The API server's answer to one document, step by step, as it and the webhooks of Trainer, JobSet and Kueue would give it.

`review` is what offline checks and previews call before anything is sent. The steps and their order are those of
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/registry/customresource/strategy.go around the
webhooks; what one step refuses, later ones do not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema import metadata
from pulumi_trainer.provider.kube.schema.field_errors import (
    BLOCKING,
    INVALID,
    TYPE_INVALID,
    Fault,
)
from pulumi_trainer.provider.kube.schema.ratcheting import Before
from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.values.typed import Findings, typed
from pulumi_trainer.provider.kueue import webhook
from pulumi_trainer.provider.pipeline import Mode

from . import (
    jobset_webhook,
    rules,
    runtime,
    trainjob,
)
from .kinds import Kind, kinds, queue_kinds
from .own import laid_aside
from .verdict import NOT_CHECKED, Lookup, Stage, Verdict
from pulumi_trainer.provider.kube.values.accessors import Document

NOW = "2026-01-01T00:00:00Z"
"""What stands for the time of a request, so that the same document always gets the same answer."""


def review(
    document: Any, *, old: Document | None = None, lookup: Lookup | None = None, now: str = NOW, mode: Mode = "jobset"
) -> Verdict:
    """What the server would answer to a ClusterTrainingRuntime, TrainingRuntime, TrainJob or JobSet, or to one of Kueue's
    objects (`api.kueue.KINDS`).

    old: the object as it is stored (`Verdict.stored` of an earlier answer); None: the document is to create it.
    lookup: reads other objects of the cluster (see `Lookup`): runtimes, PriorityClass, JobSet, PersistentVolumeClaim;
    without it, what depends on them is left out. now: the time that is written into runtimePatches without one, as in
    2026-01-31T09:30:00Z. mode: only in mode jobset a runtime may have policies of plugins. Unknown leaves count as right.
    Nothing that is given is changed. Raises nothing.
    """
    unknown: list[str] = []
    try:
        kind = _kind(document)
        document, own = laid_aside(document, refuse=mode == "trainer")
        given = _decoded(document, kind, unknown)
    except Invalid as error:
        return _refused("decode", error.problems, unknown)
    try:
        stored = _mutated(_with_old(given, old), old, now)
    except Invalid as error:
        return _refused("mutating-webhook", error.problems, unknown)
    stored = _without_new_status(stored, old, kind)
    if wrong := [*_schema_problems(stored, old, kind), *own.problems]:
        return _refused("schema", wrong, unknown)
    problems, warnings = _validated(stored, old, lookup)
    if problems:
        return _refused("validating-webhook", problems, unknown, warnings)
    return Verdict(True, warnings=tuple(warnings), unknown=tuple(sorted(unknown)), stored=own.put_back(stored))


def _kind(document: Any) -> Kind:
    if not isinstance(document, dict):
        raise Invalid(Problem("", "must be a mapping with apiVersion, kind, metadata and spec"))
    known = kinds()
    name = document.get("kind")
    kind = (known.get(name) or queue_kinds().get(name)) if isinstance(name, str) else None
    if kind is None:
        raise Invalid(Problem("kind", f"must be one of {', '.join(known)}"))
    if document.get("apiVersion") != kind.api_version:
        raise Invalid(Problem("apiVersion", f"must be {kind.api_version} for a {name}"))
    return kind


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


def _mutated(stored: Document, old: Document | None, now: str) -> Document:
    """What the mutating webhook makes of it, if there is one. Raises Invalid for what its Go types cannot hold."""
    kind = stored["kind"]
    if kind in webhook.MUTATED and old is None:
        return webhook.mutated(stored)
    if kind != "TrainJob" and (kind != "JobSet" or old is not None):
        return stored
    properties = kinds()[kind].schema.properties
    wrong = properties["status"].faults(stored["status"], (None, "status")) if "status" in stored else ()
    if problems := [fault.problem() for fault in wrong if fault.type == TYPE_INVALID]:
        raise Invalid(*problems)
    if kind == "TrainJob":
        return trainjob.mutated(stored, old, now)
    findings = Findings()
    spec = stored.get("spec", {})
    if not isinstance(spec, dict):
        typed("JobSetSpec", spec, (None, "spec"), findings, applied=True)
    else:
        spec = properties["spec"].filled(jobset_webhook.mutated(spec, findings))
    if findings.problems:
        raise Invalid(*findings.problems)
    return {**stored, "spec": spec}


def _schema_problems(stored: Document, old: Document | None, kind: Kind) -> list[Problem]:
    schema = kind.schema
    was = None if old is None else section(old, "metadata")
    rest = {name: value for name, value in stored.items() if name != "metadata"}
    found = [*metadata.faults(stored["metadata"], was), *_new(schema.faults(rest), stored, old, schema)]
    if any(fault.type in BLOCKING for fault in found):
        found.append(Fault(None, INVALID, detail=NOT_CHECKED))
    else:
        found += _new(rules.broken(schema, stored, old), stored, old, schema)
    return [fault.problem() for fault in found]


def _new(faults: Iterable[Fault], stored: Document, old: Document | None, schema: Schema) -> Iterator[Fault]:
    """Without those of values that were stored as they are: the server tolerates what it once took."""
    before = Before(schema, old) if old is not None else None
    for fault in faults:
        if before is None or fault.about == "rule" or not before.tolerates(fault, stored):
            yield fault


def _validated(stored: Document, old: Document | None, lookup: Lookup | None) -> tuple[list[Problem], list[str]]:
    if stored["kind"] == "TrainJob":
        return trainjob.validated(stored, old, lookup)
    if stored["kind"] == "JobSet":
        return [
            *(jobset_webhook.updated(stored, old) if old is not None else jobset_webhook.created(stored, lookup))
        ], []
    if stored["kind"] in queue_kinds():
        return [*webhook.validated(stored, old)], []
    return runtime.validated(stored, update=old is not None)


def _refused(stage: Stage, problems: Iterable[Problem], unknown: list[str], warnings: Iterable[str] = ()) -> Verdict:
    """In an order that does not depend on the order in the document, each only once, as the server does it."""
    errors = sorted(set(problems), key=lambda problem: (problem.where, problem.type, problem.why))
    return Verdict(False, stage, tuple(errors), tuple(warnings), tuple(sorted(unknown)))
