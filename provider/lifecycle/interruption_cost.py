"""What a job would lose if it were stopped now: the steps since its newest checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds, section
from pulumi_trainer.provider.kubernetes.values.wording import duration


@dataclass(frozen=True)
class InterruptionCost:
    """The work since a checkpoint.

    Args:
        steps: Steps that the next attempt would do again.
        seconds: How long they have taken.
        checkpoint: Step of the newest checkpoint; None if the job has reported none.
    """

    steps: int
    seconds: float
    checkpoint: int | None

    @property
    def short(self) -> str:
        """Steps and time."""
        noun = "step" if self.steps == 1 else "steps"
        return f"{self.steps:,} {noun} ({duration(self.seconds)})"

    def __str__(self) -> str:
        if self.checkpoint is None:
            return f"would lose all {self.short}: it has reported no checkpoint yet"
        return f"would lose {self.short} since the checkpoint of step {self.checkpoint:,}"

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        return asdict(self)


def interruption_cost(status: JobStatus | None, now: float) -> InterruptionCost | None:
    """Return what a job would lose if it were stopped; None if it does not run, or has not reported what that depends on.

    Args:
        now: Seconds since the epoch.
    """
    if status is None or status.phase != Phase.RUNNING or not status.progress:
        return None
    step, saved = status.progress.get("step"), section(status.progress, "checkpoint")
    begun = status.started
    if status.attempts:
        begun = status.attempts[-1].started
    if not isinstance(step, int) or 0 < epoch_seconds(status.progress.get("lastUpdatedTime")) < int(begun):
        return None  # the newest report is of an earlier attempt
    at, before = saved.get("step"), epoch_seconds(saved.get("time"))
    if isinstance(at, int):
        return InterruptionCost(max(0, step - at), max(0.0, now - max(before, begun)), at)
    if not status.checkpoints:
        return None
    if not begun:
        return InterruptionCost(step, 0.0, None)
    return InterruptionCost(step, max(0.0, now - begun), None)
