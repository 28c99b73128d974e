"""Which warnings refuse a program, and which are only told: the stack's configuration `trainer:warnings` decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pulumi
from pulumi_trainer.provider.admission.warnings import Severities, Warning
from pulumi_trainer.provider.kube.errors import Invalid, Problem


def by_severity(found: Iterable[Warning], train_job: dict[str, Any]) -> tuple[list[Problem], list[Problem]]:
    """Warnings that refuse, and those that are only told, as the stack's configuration has it."""
    try:
        severities = Severities.read(pulumi.Config("trainer").get_object("warnings") or {})
    except Invalid as error:
        mend = "pulumi config set --path 'trainer:warnings.CODE' ignore|warning|error"
        said = [f"trainer:warnings {p.where} of the stack: {p.why}" for p in error.problems]
        return [Problem("", why, mend) for why in said], []
    except pulumi.ConfigTypeError as error:
        return [Problem("", f"trainer:warnings of the stack: {error}")], []
    errors, told = severities.split(found, train_job)
    return [*errors], [*told]
