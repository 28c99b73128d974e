"""The API server's answer to one document, step by step, as it and the webhooks of Trainer, JobSet and Kueue would give it.

`review` is what offline checks and previews call before anything is sent. The steps and their order are those of
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/registry/customresource/strategy.go around the
webhooks; what one step refuses, later ones do not see.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.admission import jobset_webhook, runtime, trainjob
from pulumi_trainer.provider.admission.kinds import kinds
from pulumi_trainer.provider.admission.own import laid_aside
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema.definition import Kind
from pulumi_trainer.provider.kube.schema.field_errors import TYPE_INVALID
from pulumi_trainer.provider.kube.schema.review import Webhooks, refused
from pulumi_trainer.provider.kube.schema.review import review as reviewed
from pulumi_trainer.provider.kube.schema.verdict import Lookup, Verdict
from pulumi_trainer.provider.kube.values.accessors import Document
from pulumi_trainer.provider.kube.values.typed import Findings, typed
from pulumi_trainer.provider.kueue.kinds import kinds as queue_kinds
from pulumi_trainer.provider.kueue.review import review as review_queue_object
from pulumi_trainer.provider.pipeline import Mode

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
    try:
        kind = _kind(document)
        if kind.name in queue_kinds():
            return review_queue_object(document, old=old)
        document, own = laid_aside(document, refuse=mode == "trainer")
    except Invalid as error:
        return refused("decode", error.problems, [])
    webhooks = Webhooks(partial(_mutated, now=now), partial(_validated, lookup=lookup))
    verdict = reviewed(document, kind, webhooks, old=old, problems=own.problems)
    return verdict if verdict.stored is None else replace(verdict, stored=own.put_back(verdict.stored))


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


def _mutated(stored: Document, old: Document | None, now: str) -> Document:
    """What the mutating webhook makes of it, if there is one. Raises Invalid for what its Go types cannot hold."""
    kind = stored["kind"]
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


def _validated(stored: Document, old: Document | None, lookup: Lookup | None) -> tuple[list[Problem], list[str]]:
    if stored["kind"] == "TrainJob":
        return trainjob.validated(stored, old, lookup)
    if stored["kind"] == "JobSet":
        return [
            *(jobset_webhook.updated(stored, old) if old is not None else jobset_webhook.created(stored, lookup))
        ], []
    return runtime.validated(stored, update=old is not None)
