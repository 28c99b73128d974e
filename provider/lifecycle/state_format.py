"""The number of the format in which inputs and outputs of a resource are in the state of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, Refused

FORMAT = 1
"""Rises with each change after which this package cannot read what it wrote before."""
_KEY = "format"
FORGET = (
    "`pulumi state delete --target-dependents URN` removes the resource from the state and leaves what it has created alone;"
    " `pulumi-trainer doctor` then shows how to delete that or take it over"
)
"""The way out for a resource whose state cannot be read."""


def with_format(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs or outputs with the number of their format."""
    return {**props, _KEY: FORMAT}


def check_format(resource: str, props: Mapping[str, Any]) -> None:
    """Check the format of inputs or outputs in the state."""
    found = props.get(_KEY)
    if found == FORMAT:
        return
    shown = "without a format number"
    if isinstance(found, (int, float)):
        shown = f"in format {found:g}"
    why = f"its state was written by another version of pulumi-trainer, {shown}; this version reads format {FORMAT}"
    raise Refused(Problem(resource, why, f"use that version, for example to destroy the stack. Without it, {FORGET}"))
