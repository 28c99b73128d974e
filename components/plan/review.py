"""The review of a program's documents by the rules of an API server and its webhooks, before any request.

Fields that a server would drop are rejected as well, with the most likely intended field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.args.arguments import child_path
from pulumi_trainer.args.naming import is_variable, schema_at
from pulumi_trainer.program.severities import by_severity
from pulumi_trainer.provider.jobs.gpu_memory import Training
from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.schema.verdict import Verdict
from pulumi_trainer.provider.kueue.job_webhook import queued_problems
from pulumi_trainer.provider.trainer.admission import Lookup, review
from pulumi_trainer.provider.trainer.admission.removed_fields import unknown_field_problems
from pulumi_trainer.provider.trainer.admission.warnings import CLOSED_NETWORK, Queues, warnings
from pulumi_trainer.provider.trainer.pipeline import Mode, Release


def refusals(document: dict[str, Any], release: Release, lookup: Lookup | None = None) -> list[Problem]:
    """Return the problems of a runtime or a TrainJob, by path."""
    verdict = review(document, release, lookup=lookup)
    return [*unknown_field_problems(document, release, verdict.unknown), *verdict.problems()]


def train_job_verdict(train_job: dict[str, Any], runtime: dict[str, Any], release: Release) -> Verdict:
    """Return the server's answer to a TrainJob made from `runtime`; other objects of a cluster are unknown here."""

    def lookup(kind: str, _namespace: str, name: str) -> dict[str, Any] | None:
        own = (kind, name) == (runtime["kind"], runtime["metadata"]["name"])
        return runtime if own else {}

    return review(train_job, release, lookup=lookup)


def classified_warnings(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    objects: Objects,
    siblings: list[dict[str, Any]],
    release: Release,
    *,
    cluster: bool,
    queues: Queues | None = None,
    mode: Mode = "jobset",
    opens_network: bool = False,
    training: Training | None = None,
) -> tuple[list[Problem], list[Problem]]:
    """Return the problems that pass admission and fail later, as errors and warnings.

    The stack's configuration `trainer:warnings` decides, such as {"PT105": "error", "PT112": "ignore"}.

    Args:
        opens_network: Whether the program makes NetworkPolicies, which may admit what those of the cluster do not.
        training: Size of the training, as far as it is known.
    """
    found = warnings(
        runtime, train_job, objects, release, siblings=siblings, cluster=cluster, queues=queues, mode=mode,
        training=training,
    )  # fmt: skip
    if opens_network:
        found = tuple(warning for warning in found if warning.code != CLOSED_NETWORK)
    return by_severity(found, train_job, lenient=not cluster)


def queue_refusals(job: dict[str, Any], jobset: dict[str, Any]) -> list[Problem]:
    """Return the problems that Kueue's webhooks report, if the job has a queue.

    The arguments are already checked (`queue_labels`), except their effect with a runtime and its patches.
    """
    return [p for p in queued_problems(job, jobset) if not p.where.startswith("metadata.labels")]


def none_problems(path: str, value: Any, where: str) -> list[Problem]:
    """Return a problem for each None that an API server would drop silently: under a key of the user's own, and as the value of
    an environment variable.

    Args:
        path: Path of the value in the API, such as `TrainJob.spec`.
        where: Path of the value in a message.
    """
    return [*_null_values(schema_at(path), value, where)]


def _null_values(schema: Schema | None, value: Any, where: str) -> Iterator[Problem]:
    if schema is None:
        return
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _null_values(schema.items, item, f"{where}[{i}]")
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        at = child_path(where, key)
        if item is not None:
            yield from _null_values(schema.properties.get(key, schema.additional_properties), item, at)
        elif not schema.properties or is_variable(schema, key, value):
            yield Problem(at, "must have a value, not None", 'leave it out, or give ""')
