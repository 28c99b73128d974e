"""The API server's answer to one of Kueue's objects, as it and Kueue's webhooks would give it."""

from __future__ import annotations

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.review import Webhooks
from pulumi_trainer.provider.kube.schema.review import review as reviewed
from pulumi_trainer.provider.kube.schema.verdict import Verdict
from pulumi_trainer.provider.kube.values.accessors import Document
from pulumi_trainer.provider.kueue import webhook
from pulumi_trainer.provider.kueue.kinds import kinds


def review(document: Document, *, old: Document | None = None) -> Verdict:
    """Return what the server would answer.

    Args:
        document: An object of one of `kinds`; it is not changed, and unknown leaves count as right.
        old: The object as it is stored; None: the document is to create it.
    """
    return reviewed(document, kinds()[document["kind"]], Webhooks(_mutated, _validated), old=old)


def _mutated(stored: Document, old: Document | None) -> Document:
    return webhook.mutated(stored) if stored["kind"] in webhook.MUTATED and old is None else stored


def _validated(stored: Document, old: Document | None) -> tuple[list[Problem], list[str]]:
    return [*webhook.validated(stored, old)], []
