"""What another release of a runtime does to the jobs that use it: jobs with the same difference and the same outcome together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.values.wording import join_names, plural
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.runtime_releases import Effect, effects_on, level_of

NAMES = 10
"""How many jobs a note names; of the others it gives the number."""
NEXT_RUN = "on the next run"
REPLACED_OR_NEXT_RUN = "on the next run (with interrupt=, at the next `pulumi up` of the job's stack)"
"""When an unfinished job takes another release of its channel, if its record has no `interrupt`."""
_EFFECTS = 5


@dataclass(frozen=True)
class Impact:
    """What becomes of some jobs.

    Args:
        outcome: When their objects change.
        effects: What differs in their objects, the largest difference first.
        exact: Whether `effects` are those of their own objects; otherwise these are gone or cannot be read.
    """

    outcome: str
    effects: tuple[Effect, ...]
    exact: bool
    jobs: Sequence[Consumer]

    @property
    def difference(self) -> str:
        """Return the level of the difference."""
        words = level_of([*self.effects]) if self.effects else "nothing changes in their objects"
        return words if self.exact else f"{words} for jobs in general, as theirs cannot be read"


def next_run(job: Consumer) -> str:
    """Return when a job takes another release of its channel: its own program decides, by `interrupt=`."""
    if job.ended or job.interrupt == "refuse":
        return NEXT_RUN
    if not job.interrupt or job.runs is None:
        return REPLACED_OR_NEXT_RUN
    return f'at the next `pulumi up` of its stack, which ends its run (interrupt="{job.interrupt}")'


def find_impacts(
    jobs: Iterable[Consumer],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    general: Sequence[Effect],
    trainer: Release,
    outcome: Callable[[Consumer, list[Effect]], str],
) -> list[Impact]:
    """Return what another release does to jobs; the largest group first.

    Args:
        before, after: The runtime in both releases.
        general: What that changes for jobs in general, for those whose objects are gone.
        trainer: Release of Trainer whose rules the jobs follow.
        outcome: Returns when a job changes, from what differs in its objects.
    """
    groups: dict[tuple[str, tuple[Effect, ...], bool], list[Consumer]] = {}
    for job in jobs:
        own = effects_on({**job.jobset}, {**before}, {**after}, trainer) if job.jobset else None
        found = [*general] if own is None else own
        groups.setdefault((outcome(job, found), tuple(found), own is not None), []).append(job)
    return sorted(
        (Impact(*key, found) for key, found in groups.items()), key=lambda each: (-len(each.jobs), each.outcome)
    )


def impact_lines(impact: Impact, general: Sequence[Effect], own: str = "") -> list[str]:
    """Return the lines of a group: how many jobs, when, what differs, and their names.

    Args:
        general: What changes for jobs in general, which is shown already.
        own: Label of this stack.
    """
    head = f"{plural(len(impact.jobs), 'job')} {impact.outcome}: {impact.difference}"
    shown = [] if impact.effects == tuple(general) else effect_lines(impact.effects)
    return [head, *shown, f"  {name_list(job_label(job, own) for job in impact.jobs)}"]


def effect_lines(found: Sequence[Effect]) -> list[str]:
    """Return the first effects of a release, and the number of the others."""
    lines = [f"  {effect.level} {effect}" for effect in found[:_EFFECTS]]
    if len(found) > _EFFECTS:
        lines.append(f"  and {len(found) - _EFFECTS} more")
    return lines


def name_list(jobs: Iterable[str]) -> str:
    """Return the first jobs, and the number of the others."""
    return join_names(sorted(jobs), NAMES)


def job_label(job: Consumer, own: str = "") -> str:
    """Return a job with its stack, its queue, its GPUs and whether it runs now, as far as they are known."""
    parts = [job.program and f"of {job.program}", job.queue and f"queue {job.queue}", job.gpus and f"{job.gpus:g} GPUs"]
    if own and job.stack == own:
        parts[0] = "of this stack"
    known = [*filter(None, parts), *(["runs now"] if job.runs else [])]
    return f"{job.where} ({', '.join(map(str, known))})" if known else job.where
