"""The result of `review`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kubernetes.values.accessors import Document

Lookup = Callable[[str, str, str], Document | None]
"""(kind, namespace, name) -> the object in the cluster, None if not found. The namespace of cluster-wide kinds is ""."""

NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)

Stage = Literal["decode", "mutating-webhook", "schema", "validating-webhook"]


@dataclass(frozen=True)
class Verdict:
    """The answer of an API server with its webhooks to a document.

    Args:
        stage: The step that rejects it, after which no step runs; None if it is admitted.
        errors: All errors of this step: `where` is the field, `why` the server's text.
        stored: The document as it would be stored, without fields that only a server can set (uid, times).
    """

    admitted: bool
    stage: Stage | None = None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stored: Document | None = None

    def problems(self) -> list[Problem]:
        """Return the errors as problems for a list: `where` is empty for those of the whole document.

        The server's notice that it stopped checking is left out.
        """
        return [replace(p, where="" if p.where == NOWHERE else p.where) for p in self.errors if p.why != NOT_CHECKED]
