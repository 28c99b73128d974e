"""What `review` answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kube.values.accessors import Document

Lookup = Callable[[str, str, str], Document | None]
"""(kind, namespace, name) -> the object as the cluster has it, None where it has none. Cluster-wide: namespace ""."""

NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)

Stage = Literal["decode", "mutating-webhook", "schema", "validating-webhook"]


@dataclass(frozen=True)
class Verdict:
    """What an API server with Trainer's and JobSet's webhooks would answer to a document.

    stage: which of its steps refuses; later ones have not looked. errors: all that this step has against it: `where`
    is the field, `why` the server's own words. warnings: what it would say beside. unknown: paths of fields that
    it drops, sorted. stored: the document as it would be stored, without what the server alone knows (uid, times).
    """

    admitted: bool
    stage: Stage | None = None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stored: Document | None = None

    def problems(self) -> list[Problem]:
        """Return the errors for a reader who sees them all at once: `where` is empty for those of the whole document, and
        the server's notice that it stopped checking is left out."""
        return [replace(p, where="" if p.where == NOWHERE else p.where) for p in self.errors if p.why != NOT_CHECKED]
