"""The severity of warnings, which the stack's configuration `trainer:warnings` sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pulumi
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.trainer.admission.warnings import Severities, Warning


def by_severity(
    found: Iterable[Warning], train_job: dict[str, Any], *, lenient: bool = False
) -> tuple[list[Problem], list[Problem]]:
    """Return the warnings that are errors, by the stack's configuration or by themselves, and the others.

    Args:
        lenient: Whether only the configuration makes errors: no API server sees the objects of a job of this machine.
    """
    try:
        severities = Severities.read(pulumi.Config("trainer").get_object("warnings") or {})
    except Invalid as error:
        hint = "pulumi config set --path 'trainer:warnings.CODE' ignore|warning|error"
        reasons = [f"trainer:warnings {p.where} of the stack: {p.why}" for p in error.problems]
        return [Problem("", why, hint) for why in reasons], []
    except pulumi.ConfigTypeError as error:
        return [Problem("", f"trainer:warnings of the stack: {error}")], []
    errors, warnings = replace(severities, lenient=lenient).split(found, train_job)
    return [*errors], [*warnings]
