"""The answer of an API server with Kueue's webhooks to one of Kueue's objects."""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.review import Webhooks
from pulumi_trainer.provider.kubernetes.schema.review import review as reviewed
from pulumi_trainer.provider.kubernetes.schema.verdict import Verdict
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue import webhook
from pulumi_trainer.provider.kueue.crd_schemas import kinds


def review(document: Document, *, old: Document | None = None) -> Verdict:
    """Return the server's verdict on an object of Kueue; `old` is the stored object, and unknown leaves count as valid."""
    return reviewed(document, kinds()[document["kind"]], Webhooks(webhook.mutate, _validated), old=old)


def _validated(stored: Document, old: Document | None) -> tuple[list[Problem], list[str]]:
    return [*webhook.validate(stored, old)], []
