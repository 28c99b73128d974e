"""What a person has changed in a job with `pulumi-trainer` and not with the program: suspended, resumed or stopped it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.accessors import plausible_seconds

SUSPENDED = "SuspendedByUser"
"""Reason of a Suspended job that `pulumi-trainer suspend` has suspended."""
STOPPED = "Stopped"
"""Reason of a Failed job that `pulumi-trainer stop` has ended."""


@dataclass(frozen=True)
class Override:
    """A value of `suspend` that replaces the program's until the program has the same value, or the job has ended."""

    suspend: bool
    by: str
    at: float

    @property
    def note(self) -> str:
        """What was done, when, and how to revert it."""
        if self.suspend:
            return f"{_done('suspend', self.by, self.at)}; `pulumi-trainer resume` continues it"
        return f"{_done('resume', self.by, self.at)}, and suspend=True in the program has no effect on it"

    @property
    def since(self) -> str:
        """By whom and since when the job is as it is."""
        return f"by {self.by} since {utc_time(self.at)}"

    def differs(self, suspend: object) -> bool:
        """Return whether this value differs from the program's, which may be absent."""
        return self.suspend != bool(suspend)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> Override | None:
        """Return the override in JSON that may have been edited; None if it is not valid."""
        if not isinstance(data, dict):
            return None
        suspend, by, at = map(data.get, ("suspend", "by", "at"))
        if not isinstance(suspend, bool) or not isinstance(by, str) or not isinstance(at, (int, float)):
            return None
        return cls(suspend, plain(by), plausible_seconds(at))

    @classmethod
    def from_text(cls, text: str) -> Override | None:
        """Return the override in a text; None if it is not valid."""
        return cls.from_dict(parse(text))


def stop_note(by: str, at: float) -> str:
    """Return the message of a job that a user has stopped."""
    return f"{_done('stop', by, at)}; `pulumi-trainer rerun` or another run= key starts it again"


def not_ended_problem(status: JobStatus) -> Problem:
    """Return the problem that a job cannot run again yet."""
    where = f"{status.namespace}/{status.name}"
    return Problem(where, f"is {status.phase}", "`pulumi-trainer stop` ends it; then it can run again")


def _done(verb: str, by: str, at: float) -> str:
    past = {"suspend": "suspended", "resume": "resumed", "stop": "stopped"}[verb]
    return f"{past} by {by} with `pulumi-trainer {verb}` at {utc_time(at)}"


def utc_time(at: float) -> str:
    """Return a time in seconds since the epoch as messages have it."""
    if not plausible_seconds(at):
        return "an unknown time"
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
