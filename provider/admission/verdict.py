"""What `review` answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pulumi_trainer.provider.api.errors import Problem

Document = dict[str, Any]

Lookup = Callable[[str, str, str], Document | None]
"""(kind, namespace, name) -> the object as the cluster has it, None where it has none. Cluster-wide: namespace ""."""

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
