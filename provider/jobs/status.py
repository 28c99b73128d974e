"""Status and owner of jobs and volumes; docs/phases.md explains the phases."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from pulumi_trainer.provider.jobs.attempts import Attempt, ended, read_attempts
from pulumi_trainer.provider.jobs.progress import kept_progress, missing_steps, steps_done, success_note
from pulumi_trainer.provider.jobs.runs import Identity, read_inputs
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.terminal import lines
from pulumi_trainer.provider.kubernetes.values.accessors import only, plausible_seconds
from pulumi_trainer.provider.kubernetes.values.wording import duration

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""Reason of a Deleted or Unknown job whose end nobody has recorded: it only runs again if the program or a user asks for that."""

UNKNOWN_END = "somebody has deleted it, and it is not known whether it had ended"
"""Message of such a job."""

RUN_AGAIN = "give the TrainJob another run= key, or use `pulumi-trainer rerun`, to run it again"
"""Hint for such a job."""

NOT_CREATED = "NotCreated"
"""Reason of a Deleted job whose new run `rerun` has recorded, and not created."""

NOT_STARTED = "NotStarted"
"""Reason of a Pending job that should run, and that only `pulumi up` starts."""


class Phase(str, Enum):
    """The observed phase of a job."""

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
    UNKNOWN = "Unknown"
    """Its files cannot be read, because somebody has edited or damaged them."""

    @property
    def terminal(self) -> bool:
        """Whether the phase only changes with a new run."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED, Phase.UNKNOWN)

    def __str__(self) -> str:
        return self.value


def may_have_ended(phase: str) -> bool:
    """Return whether a job of this machine that is gone, with its record, may have ended since it was seen in that phase."""
    return phase not in ("", Phase.PENDING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)


@dataclass
class Step:
    """One replicated job of the JobSet (dataset-initializer, model-initializer, node, launcher).

    Counts are Pods (upstream: `status.jobsStatus`); times are seconds since the epoch, 0 for "not yet".
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
"""Hint for a job that another stack has adopted."""


@dataclass(frozen=True)
class Owner:
    """The owner of a job or a volume.

    Args:
        id: See `jobs.identity.owner_id`.
        stack: Label of the stack; empty if not recorded.
        program: "project/stack", for messages; empty if not recorded.
    """

    id: str
    stack: str = ""
    program: str = ""

    def owns(self, found: Owner) -> bool:
        """Return whether this owner still owns an object. Stacks of one name in two backends have the same ids."""
        return self.id == found.id and (not self.stack or not found.stack or self.stack == found.stack)

    def adopted_from(self, me: Owner) -> str:
        """Return the message for the previous owner of a job or volume that this owner has adopted. me: The previous owner."""
        if self.id == me.id:
            return f"belongs to {NAMESAKE}"
        return f"belongs to {self} now, which has adopted it"

    def called_by(self, other: Owner) -> str:
        """Return the name of this owner in a message to another owner."""
        if self.stack == other.stack != "":
            return "another TrainJob of this stack"
        label = self.stack.partition("-")[0]
        alike = self.id == other.id or label == other.stack.partition("-")[0] != ""
        if alike:
            return NAMESAKE
        return str(self)

    def __str__(self) -> str:
        if not self.program:
            return "another program"
        return f"the stack {self.program}"


NAMESAKE = "another stack of this name: in another backend, renamed since, or one whose state is lost"
"""Name of an owner whose stack label differs only in the last part."""


class Loss(Enum):
    """The state of a volume whose folder or claim was deleted externally."""

    NONE = ""
    LEAVING = "leaving"
    """It is deleted when no Pod mounts it."""
    GONE = "gone"
    TAKEN = "taken"
    """It is deleted, and another claim has its name."""


@dataclass(frozen=True)
class Presence:
    """The presence of a job and its objects on a target.

    Args:
        owner: Owner in the job's record; None if no record was found.
        deleted: Unique mark of a job that does not exist and has no recorded end, while its record stayed; else empty.
        unsent: Whether such a job was never created: `rerun` was interrupted. Otherwise it is not known whether it had ended.
        missing: "Kind/name" of the job's other objects that were deleted externally before it ended.
        taken: Those of `missing` whose names objects of other owners have now.
        another: Whether another job has its name, since it was deleted.
        alone: Owner of a job that continues although its record was deleted; else None.
        not_started: Whether it is new, and its target has not started it yet.
        note: Who has suspended, resumed or stopped it with `pulumi-trainer`; empty if nobody has.
        fault: What is not valid in its record, from which no new run is made; else empty.
    """

    owner: Owner | None = None
    deleted: str = ""
    missing: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    another: bool = False
    alone: Owner | None = None
    not_started: bool = False
    note: str = ""
    unsent: bool = False
    fault: str = ""


def another_job(where: str) -> Problem:
    """Return the problem of a job whose name another job has, since it was deleted."""
    why = "somebody has deleted it, and another job has the same name now, which is left alone"
    return Problem(where, why, "delete the other job, or give the TrainJob another name")


@dataclass
class JobStatus:
    """The status of a job on its target. Times are seconds since the epoch, 0 for "not yet".

    Args:
        owner: See `Owner`, as for stack and program.
        restarts: Whole-JobSet restarts (upstream: `status.restarts`).
        progress: The newest `trainerStatus` that rank 0 printed (upstream: `status.trainerStatus`: progressPercentage 0-100,
            estimatedRemainingSeconds, metrics), with metrics by name, step, checkpoint (step, time) and resumedFrom (step); None
            if not found.
        identity: Id, lineage, parent and cause of the run (`runs.Identity`); empty if not recorded.
        inputs: What identifies the inputs of the run (`runs.Run.inputs`).
        cluster: Worker cluster of MultiKueue that has the job; empty if it runs in its own cluster.
        checkpoints: Whether it has a checkpoint policy.
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
    run: str = ""
    identity: Identity = field(default_factory=Identity)
    inputs: dict[str, str] = field(default_factory=dict)
    cluster: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    checkpoints: bool = False

    @property
    def whose(self) -> Owner:
        """The owner of the job."""
        return Owner(self.owner, self.stack, self.program)

    @property
    def terminal(self) -> bool:
        return Phase(self.phase).terminal

    @property
    def unknown_end(self) -> bool:
        """Whether the job is gone or cannot be read, and nobody knows whether it had ended."""
        return self.phase in (Phase.DELETED, Phase.UNKNOWN) and self.reason == OUTCOME_UNKNOWN

    @property
    def record_lost(self) -> bool:
        """Whether its record is gone or cannot be read, which its message explains: not even its creation is known."""
        return self.unknown_end and not self.created

    @property
    def note(self) -> str:
        """Why the run, which has succeeded, may not have trained, as far as its program has reported that; else empty."""
        if self.phase != Phase.SUCCEEDED:
            return ""
        return success_note(self.progress, restarted=self.restarts > 0, rerun=self._started_again)

    @property
    def recorded_note(self) -> str:
        """`note`, or that a run which has failed has done no step, as far as its program has reported steps; else empty."""
        return self.note or (missing_steps(self.progress or {}) if self.terminal and not self._started_again else "")

    @property
    def steps_done(self) -> int | None:
        """How many steps the run has done; None if that is not known."""
        return None if self._started_again else steps_done(self.progress or {})

    @property
    def _started_again(self) -> bool:
        """Whether the run was started again after an interruption: its newest report is that of its last start."""
        return any(each.rerun for each in self.attempts)

    def fail(self, reason: str, message: str, finished: float) -> None:
        """Set phase, reason, message and time of a job that has failed, and fail its unfinished steps."""
        self.phase, self.reason, self.message, self.finished = Phase.FAILED.value, reason, message, finished
        for step in self.steps:
            if not Phase(step.phase).terminal:
                step.phase, step.active, step.ready = Phase.FAILED.value, 0, 0
        self.attempts = ended(self.attempts, finished, reason)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JobStatus:
        """Return the status in a dictionary, without unknown keys (of a newer version)."""
        known = only(data, cls.__dataclass_fields__)
        known["message"] = lines(str(known.get("message", "")))  # a job's own words
        known["steps"] = [Step(**only(s, Step.__dataclass_fields__)) for s in data.get("steps", [])]
        known["attempts"] = read_attempts(data.get("attempts"))
        known["inputs"] = read_inputs(data.get("inputs"))
        known["progress"] = kept_progress(data.get("progress"))
        known["identity"] = Identity.from_dict(data.get("identity"))
        known |= {name: plausible_seconds(known[name]) for name in ("created", "started", "finished") if name in known}
        return cls(**known)


def describe(status: JobStatus, phase: bool = True) -> str:
    """Return a job in one line: phase and reason, progress, metrics, ETA."""
    parts: list[str] = []
    if phase:
        parts.append(status.phase)
    if phase and status.reason and not status.terminal:
        parts.append(f"({status.reason})")
    if phase and status.cluster:
        parts.append(f"on {status.cluster}")
    progress = status.progress
    if progress:
        percent, remaining = progress.get("progressPercentage"), progress.get("estimatedRemainingSeconds")
        if percent is not None:
            parts.append(f"{percent}%")
        parts += [f"{name} {value}" for name, value in [*progress.get("metrics", {}).items()][:6]]
        if remaining and not status.terminal:
            parts.append(f"ETA {duration(remaining)}")
    if phase and status.restarts:
        parts.append(f"restarts {status.restarts}")
    return ", ".join(filter(None, [" ".join(parts), status.note]))
