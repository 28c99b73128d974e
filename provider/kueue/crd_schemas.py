"""The kinds of Kueue that can be reviewed, with the schemas of their CRDs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pulumi_trainer.provider.kubernetes.schema.definition import Kind, read_kinds
from pulumi_trainer.provider.kueue.cel_rules import PREDICATES


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds by name."""
    return read_kinds(Path(__file__).with_name("schemas.json"), PREDICATES)
