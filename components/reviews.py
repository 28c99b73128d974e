"""What an API server and the webhooks would have against a program's documents: asked before anything is sent.

Used by `runtime`, `composition` and `job`. Fields that a server would drop are refused as well, with what may be meant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.admission import Lookup, review, review_jobset
from pulumi_trainer.provider.admission.faults import NOWHERE
from pulumi_trainer.provider.admission.strict import unknown_fields
from pulumi_trainer.provider.api.errors import Problem


def refusals(document: dict[str, Any], lookup: Lookup | None = None) -> list[Problem]:
    """Of a runtime or a TrainJob, by their paths."""
    verdict = review(document, lookup=lookup)
    found = [p for p in verdict.errors if p.where != NOWHERE] or list(verdict.errors)
    found = [*unknown_fields(document["kind"], verdict.unknown), *found]
    return [replace(p, where="" if p.where == NOWHERE else p.where) for p in found]


def train_job_refusals(train_job: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """Of a TrainJob that is made from `runtime`; what else a cluster has is not known here."""

    def lookup(kind: str, _namespace: str, name: str) -> dict[str, Any] | None:
        own = (kind, name) == (runtime["kind"], runtime["metadata"]["name"])
        return runtime if own else {}

    return refusals(train_job, lookup)


def jobset_refusals(jobset: dict[str, Any]) -> list[Problem]:
    """Of a rendered JobSet, and what would keep its Pods from being made."""
    return review_jobset(jobset) or refusals(jobset)
