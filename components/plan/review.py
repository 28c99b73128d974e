"""What an API server and the webhooks would have against a program's documents: asked before anything is sent.

Fields that a server would drop are refused as well, with what may be meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.args.arguments import below
from pulumi_trainer.args.naming import is_variable, schema_at
from pulumi_trainer.program.severities import by_severity
from pulumi_trainer.provider.admission import Lookup, review, review_jobset
from pulumi_trainer.provider.admission.kinds import schema_of
from pulumi_trainer.provider.admission.warnings import (
    Queues,
    warnings,
)
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kube.schema.strict import unknown_fields
from pulumi_trainer.provider.kueue.job_webhook import queued_problems


def refusals(document: dict[str, Any], lookup: Lookup | None = None) -> list[Problem]:
    """Of a runtime or a TrainJob, by their paths."""
    verdict = review(document, lookup=lookup)
    return [*unknown_fields(schema_of(document["kind"]), verdict.unknown), *verdict.problems()]


def train_job_refusals(train_job: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """Of a TrainJob that is made from `runtime`; what else a cluster has is not known here."""

    def lookup(kind: str, _namespace: str, name: str) -> dict[str, Any] | None:
        own = (kind, name) == (runtime["kind"], runtime["metadata"]["name"])
        return runtime if own else {}

    return refusals(train_job, lookup)


def cautions(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    objects: Objects,
    siblings: list[dict[str, Any]],
    *,
    cluster: bool,
    queues: Queues | None = None,
) -> tuple[list[Problem], list[Problem]]:
    """What passes admission and then fails: which of it refuses the job, and which is only told. The stack's configuration
    `trainer:warnings` decides, such as {"PT105": "error", "PT112": "ignore"}. siblings: the program's other JobSets. queues:
    what is known of Kueue's objects."""
    found = warnings(runtime, train_job, objects, siblings=siblings, cluster=cluster, queues=queues)
    return by_severity(found, train_job)


def jobset_refusals(jobset: dict[str, Any]) -> list[Problem]:
    """Of a rendered JobSet, and what would keep its Pods from being made."""
    return review_jobset(jobset) or refusals(jobset)


def queue_refusals(job: dict[str, Any], jobset: dict[str, Any]) -> list[Problem]:
    """Of Kueue's webhooks, if the job has a queue. job: the TrainJob, whose labels are the JobSet's as well; the arguments
    are known to be right (`queueing`), but for what they come to with a runtime and its patches."""
    return [p for p in queued_problems(job, jobset) if not p.where.startswith("metadata.labels")]


def none_problems(path: str, value: Any, where: str) -> list[Problem]:
    """Return a problem for each None that an API server would drop in silence: under a key of the user's own, and as the value
    of an environment variable.

    path: where the value stands in the API, such as `TrainJob.spec`. where: the same in a message.
    """
    return [*_nones(schema_at(path), value, where)]


def _nones(schema: Schema | None, value: Any, where: str) -> Iterator[Problem]:
    if schema is None:
        return
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _nones(schema.items, item, f"{where}[{i}]")
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        at = below(where, key)
        if item is not None:
            yield from _nones(schema.properties.get(key, schema.others), item, at)
        elif not schema.properties or is_variable(schema, key, value):
            yield Problem(at, "must have a value, not None", 'leave it out, or give ""')
