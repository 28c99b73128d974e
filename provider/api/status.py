"""What a job is doing, in the words of docs/architecture.md ("Status"). Written by targets, read by all others."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""Reason of a Deleted job that has ended, and nobody saw how: it is not run again."""


class Phase(str, Enum):
    """What a job is doing, never a guess."""

    PENDING = "Pending"
    QUEUED = "Queued"
    ADMITTED = "Admitted"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"

    @property
    def terminal(self) -> bool:
        """Nothing will change any more without a new run."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED)

    def __str__(self) -> str:
        return self.value


@dataclass
class Step:
    """One replicated job of the JobSet, under its own name (dataset-initializer, model-initializer, node, launcher).

    Counts are pods (upstream: `status.jobsStatus`); times are seconds since the epoch, 0 for "not yet".
    """

    name: str
    phase: str = Phase.PENDING.value
    count: int = 0
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    restarts: int = 0
    started: float = 0.0
    finished: float = 0.0


@dataclass
class JobStatus:
    """A job as its target sees it now.

    restarts: whole-JobSet restarts (upstream: `status.restarts`). progress: the newest `trainerStatus` that rank 0
    printed (upstream: `status.trainerStatus`: progressPercentage 0-100, estimatedRemainingSeconds, metrics), or None.
    uid: identity of this run on the target. Times are seconds since the epoch, 0 for "not yet".
    """

    name: str
    namespace: str
    uid: str = ""
    owner: str = ""
    digest: str = ""
    phase: str = Phase.PENDING.value
    reason: str = ""
    message: str = ""
    steps: list[Step] = field(default_factory=list)
    restarts: int = 0
    created: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    progress: dict[str, Any] | None = None
    output: str = ""
    logs: str = ""

    @property
    def terminal(self) -> bool:
        return Phase(self.phase).terminal

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JobStatus:
        """Unknown keys (of a newer version) are dropped."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["steps"] = [
            Step(**{k: v for k, v in s.items() if k in Step.__dataclass_fields__}) for s in data.get("steps", [])
        ]
        return cls(**known)


def describe(status: JobStatus, phase: bool = True) -> str:
    """A job in one line: phase and reason (unless shown elsewhere), progress, metrics, ETA."""
    parts = [status.phase] if phase else []
    if phase and status.reason and not status.terminal:
        parts.append(f"({status.reason})")
    if progress := status.progress:
        if (percent := progress.get("progressPercentage")) is not None:
            parts.append(f"{percent}%")
        parts += [f"{m['name']} {m['value']}" for m in progress.get("metrics", [])[:6]]
        if (eta := progress.get("estimatedRemainingSeconds")) and not status.terminal:
            parts.append(f"ETA {duration(eta)}")
    if phase and status.restarts:
        parts.append(f"restarts {status.restarts}")
    return " ".join(parts)


def duration(seconds: float) -> str:
    """90 -> 1m30s."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
