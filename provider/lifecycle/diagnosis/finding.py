"""Defines the result of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from pulumi_trainer.provider.jobs.status import Phase


@dataclass(frozen=True)
class Finding:
    """What a diagnosis has found.

    Args:
        reason: One word, the server's if it has one.
        message: The messages of the objects, with their names.
        why: The same as a sentence, without its beginning ("JOB is PHASE: ...") and full stop.
    """

    phase: Phase
    reason: str = ""
    message: str = ""
    why: str = ""
    hint: str = ""
