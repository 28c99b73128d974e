"""What one look at a job has found. Made by all files of this folder, told by `phase`."""

from __future__ import annotations

from dataclasses import dataclass

from pulumi_trainer.provider.api.status import Phase


@dataclass(frozen=True)
class Finding:
    """reason: one word, the server's where it has one. message: the objects' own words, and whose they are. why: the same
    for people, a sentence without its beginning and full stop ("JOB is PHASE: ..."). mend: what to do; empty if nothing."""

    phase: Phase
    reason: str = ""
    message: str = ""
    why: str = ""
    mend: str = ""
