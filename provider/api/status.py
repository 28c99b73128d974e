"""What a job is doing, in the words of docs/architecture.md ("Status"). Written by targets, read by all others."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from pulumi_trainer.provider.kube.terminal import lines
from pulumi_trainer.provider.kube.values.wording import duration

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


TAKE_BACK = (
    "Remove the TrainJob from this program; or to take the job back, set adopt=True, then run `pulumi refresh` and"
    " `pulumi up`"
)
"""What to do about a job that another stack has adopted."""


@dataclass(frozen=True)
class Owner:
    """Whose a job or a volume is.

    id: see `lifecycle.identity.owner_id`. stack: label of the stack. program: "project/stack", for messages. Both are empty where
    they were not written down.
    """

    id: str
    stack: str = ""
    program: str = ""

    def owns(self, found: Owner) -> bool:
        """Return whether what has the owner `found` is still ours. Stacks of one name in two backends have the same ids."""
        return self.id == found.id and (not self.stack or not found.stack or self.stack == found.stack)

    @property
    def adopted(self) -> str:
        """What to tell a stack whose job or volume is theirs by now."""
        return f"belongs to {self} now, which has adopted it"

    def called_by(self, other: Owner) -> str:
        """Return what a message to another owner calls this one."""
        if self.stack == other.stack != "":
            return "another TrainJob of this stack"
        label = self.stack.partition("-")[0]
        alike = self.id == other.id or label == other.stack.partition("-")[0] != ""
        return NAMESAKE if alike else str(self)

    def __str__(self) -> str:
        return f"the stack {self.program}" if self.program else "another program"


NAMESAKE = "another stack of this name: in another backend, renamed since, or one whose state is lost"
"""Whose that is which differs from us in the last part of a stack's label alone."""


class Loss(Enum):
    """What has become of a volume that somebody has deleted, by its folder or claim."""

    NONE = ""
    LEAVING = "leaving"
    """It goes as soon as no Pod mounts it any more."""
    GONE = "gone"
    TAKEN = "taken"
    """It is gone, and another claim has its name."""


@dataclass(frozen=True)
class Presence:
    """What a target has of a job, at a glance.

    owner: as its record says; None: there is no record. deleted: a mark, another one each time, of a job that was deleted before
    it ended while its record stayed; empty: that has not happened. missing: "Kind/name" of other objects of the job that somebody
    has deleted before it ended. taken: those of them whose names others have by now. another: another job has its name, since it
    was deleted. alone: whose the job is that goes on although its record is gone.
    """

    owner: Owner | None = None
    deleted: str = ""
    missing: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    another: bool = False
    alone: Owner | None = None


@dataclass
class JobStatus:
    """A job as its target sees it now.

    restarts: whole-JobSet restarts (upstream: `status.restarts`). progress: the newest `trainerStatus` that rank 0
    printed (upstream: `status.trainerStatus`: progressPercentage 0-100, estimatedRemainingSeconds, metrics), or None.
    uid: identity of this run on the target. owner, stack, program: see `Owner`. Times are seconds since the epoch, 0 for "not
    yet".
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
    stack: str = ""
    program: str = ""

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.stack, self.program)

    @property
    def terminal(self) -> bool:
        return Phase(self.phase).terminal

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JobStatus:
        """Unknown keys (of a newer version) are dropped."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["message"] = lines(str(known.get("message", "")))  # a job's own words
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
