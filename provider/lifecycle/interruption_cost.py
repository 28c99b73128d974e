"""What a job would lose if it were stopped now: what it has done since the checkpoint that its next start continues from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.lineage import step_of_fork
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds, number, section
from pulumi_trainer.provider.kubernetes.values.wording import duration


@dataclass(frozen=True)
class InterruptionCost:
    """The work that the next start does again.

    Args:
        steps: How many steps that are.
        seconds: How long they have taken; None if not known.
        checkpoint: Step of the checkpoint that the next start continues from; None if it starts at step 0.
        why: Why it starts at step 0.
        certain: Whether a checkpoint that the program saves when it is stopped changes nothing.
    """

    steps: int
    seconds: float | None
    checkpoint: int | None
    why: str = ""
    certain: bool = False

    @property
    def short(self) -> str:
        """Steps and time; the time alone if no step is whole."""
        if not self.steps and self.seconds and self.seconds >= 1:
            return duration(self.seconds)
        steps = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        return f"{steps} ({duration(self.seconds)})" if self.steps and self.seconds is not None else steps

    def __str__(self) -> str:
        if self.checkpoint is None:
            unless = "" if self.certain else " if it saves nothing when it is stopped"
            return f"would lose all {self.short}{unless}: {self.why}"
        return f"would lose at most {self.short} since the checkpoint of step {self.checkpoint:,}"

    def to_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "seconds": self.seconds, "checkpoint": self.checkpoint}


def interruption_cost(
    status: JobStatus | None, now: float, checkpoints: Mapping[int, float] | None = None
) -> InterruptionCost | None:
    """Return what a job would lose if it were stopped and went on; None if it does not run, or if that is not known.

    Args:
        checkpoints: Those that its next start may continue from, by step, with the time when they were saved, 0 if not known;
            None if they cannot be read, so that what the job has reported counts.
    """
    step = _current_step(status)
    if status is None or status.phase != Phase.RUNNING or step is None:
        return None
    begun = status.attempts[-1].started if status.attempts else status.started
    at, saved = newest_checkpoint(status, checkpoints)
    if at is not None:
        seconds = max(0.0, now - max(saved, begun)) if saved else None
        return InterruptionCost(max(0, step - at), seconds, at)
    if checkpoints is None and not status.checkpoints:
        return None
    why = "it has reported no checkpoint yet" if checkpoints is None else "it has no complete checkpoint yet"
    return InterruptionCost(step, max(0.0, now - begun) if begun else None, None, why)


def whole_cost(status: JobStatus, now: float, why: str) -> InterruptionCost | None:
    """Return all that a job has done; None if it has not reported that."""
    step = _current_step(status)
    if step is None:
        return None
    times = [each.seconds(now) for each in status.attempts]
    seconds = None if None in times else sum(filter(None, times))
    if not times and status.phase == Phase.RUNNING and status.started:
        seconds = now - status.started
    if not seconds or number(section(status.progress).get("resumedFrom")):  # the run before it has taken time as well
        seconds = None
    return InterruptionCost(step, seconds, None, why, certain=True)


def newest_checkpoint(status: JobStatus, checkpoints: Mapping[int, float] | None) -> tuple[int | None, float]:
    """Return the step of the checkpoint that a job's next start continues from, None if there is none, and when it was saved, in
    seconds since the epoch, 0 if not known.
    """
    reported = section(status.progress, "checkpoint")
    at, saved = reported.get("step"), epoch_seconds(reported.get("time"))
    if checkpoints:
        newest = max(checkpoints)
        return newest, checkpoints[newest] or (saved if newest == at else 0.0)
    if checkpoints is None and isinstance(at, int):
        return at, saved
    if status.identity.fork:
        begun = status.attempts[-1].started if status.attempts else status.started
        return step_of_fork(status.identity.fork, status.progress), begun
    return None, 0.0


def _current_step(status: JobStatus | None) -> int | None:
    """Return the step that a job has reported; None if its newest report is of an attempt before the one that runs."""
    if status is None or not status.progress:
        return None
    step, reported = status.progress.get("step"), epoch_seconds(status.progress.get("lastUpdatedTime"))
    begun = status.attempts[-1].started if status.attempts else status.started
    if not isinstance(step, int) or (status.phase == Phase.RUNNING and 0 < reported < int(begun)):
        return None
    return step
