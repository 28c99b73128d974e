"""Returns the verdict of an API server with the webhooks of Trainer, JobSet and Kueue on one document, step by step.

Each step stops at its errors. The order of steps is that of
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/registry/customresource/strategy.go, with the webhooks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.definition import Kind
from pulumi_trainer.provider.kubernetes.schema.field_errors import TYPE_INVALID
from pulumi_trainer.provider.kubernetes.schema.review import Webhooks, rejected
from pulumi_trainer.provider.kubernetes.schema.review import review as reviewed
from pulumi_trainer.provider.kubernetes.schema.verdict import Lookup, Verdict
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.kueue.admission_review import review as review_queue_object
from pulumi_trainer.provider.kueue.crd_schemas import kinds as queue_kinds
from pulumi_trainer.provider.trainer.admission import jobset_rules, jobset_webhook, runtime, trainjob
from pulumi_trainer.provider.trainer.admission.author_hints import with_author_hint
from pulumi_trainer.provider.trainer.admission.plugin_policies import remove_policies
from pulumi_trainer.provider.trainer.pipeline import Mode, Release

NOW = "2026-01-01T00:00:00Z"
"""Time of a request, constant so that the same document always gets the same verdict."""


def review(
    document: Any,
    release: Release,
    *,
    old: Document | None = None,
    lookup: Lookup | None = None,
    now: str = NOW,
    mode: Mode = "jobset",
) -> Verdict:
    """Return the server's verdict on a ClusterTrainingRuntime, TrainingRuntime, TrainJob or JobSet, or on an object of Kueue.

    Arguments are not changed; unknown leaves count as valid.

    Args:
        lookup: Reads other objects of the cluster: runtimes, PriorityClass, JobSet, PersistentVolumeClaim. Without it, checks
            that need them are left out.
        now: Time for runtimePatches without one, such as 2026-01-31T09:30:00Z.
        mode: In mode "jobset", a runtime may have policies of plugins.
    """
    try:
        kind = _kind(document, release)
        if kind.name in queue_kinds():
            return review_queue_object(document, old=old)
        document, own = remove_policies(document, release, refuse=mode == "trainer")
    except Invalid as error:
        return rejected("decode", error.problems, [])
    webhooks = Webhooks(
        partial(_mutated, release=release, now=now), partial(_validated, release=release, lookup=lookup)
    )
    verdict = reviewed(document, kind, webhooks, old=old, problems=own.problems)
    if verdict.stored is None:
        return replace(verdict, errors=tuple(map(with_author_hint, verdict.errors)))
    return replace(verdict, stored=own.restore(verdict.stored))


def _kind(document: Any, release: Release) -> Kind:
    if not isinstance(document, dict):
        raise Invalid(Problem("", "must be a mapping with apiVersion, kind, metadata and spec"))
    known = release.kinds
    name = document.get("kind")
    kind = (known.get(name) or queue_kinds().get(name)) if isinstance(name, str) else None
    if kind is None:
        raise Invalid(Problem("kind", f"must be one of {', '.join(known)}"))
    if document.get("apiVersion") != kind.api_version:
        raise Invalid(Problem("apiVersion", f"must be {kind.api_version} for a {name}"))
    return kind


def _mutated(stored: Document, old: Document | None, release: Release, now: str) -> Document:
    """Return the object as the mutating webhook returns it. Raises Invalid if its Go types cannot represent the object."""
    kind = stored["kind"]
    if kind != "TrainJob" and (kind != "JobSet" or old is not None):
        return stored
    properties = release.kinds[kind].schema.properties
    wrong = properties["status"].faults(stored["status"], (None, "status")) if "status" in stored else ()
    problems = [fault.problem() for fault in wrong if fault.type == TYPE_INVALID]
    if problems:
        raise Invalid(*problems)
    if kind == "TrainJob":
        return trainjob.mutate(stored, old, release, now)
    findings = Findings()
    spec = stored.get("spec", {})
    if not isinstance(spec, dict):
        release.go.as_struct("JobSetSpec", spec, (None, "spec"), findings, applied=True)
    else:
        spec = properties["spec"].with_defaults(jobset_webhook.mutated(spec, release.go, findings))
    if findings.problems:
        raise Invalid(*findings.problems)
    return {**stored, "spec": spec}


def _validated(
    stored: Document, old: Document | None, release: Release, lookup: Lookup | None
) -> tuple[list[Problem], list[str]]:
    if stored["kind"] == "TrainJob":
        return trainjob.validate(stored, old, release, lookup)
    if stored["kind"] == "JobSet":
        if old is not None:
            return list(jobset_webhook.updated(stored, old, release.go)), []
        broken = jobset_rules.broken_rules(stored, release.go, lookup)
        return [rule.server_error for rule in broken if rule.type], []
    return runtime.validate(stored, release.go, update=old is not None)
