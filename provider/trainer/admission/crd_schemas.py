"""The kinds of Trainer and JobSet that can be reviewed, with the schemas of their CRDs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pulumi_trainer.provider.kubernetes.schema.definition import Kind, read_kinds
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kueue.crd_schemas import kinds as queue_kinds
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds by name."""
    return read_kinds(Path(__file__).with_name("schemas.json"), PREDICATES)


def schema_of(kind: str) -> Schema:
    """Return the schema of a kind of Trainer, JobSet or Kueue."""
    return (kinds().get(kind) or queue_kinds()[kind]).schema
