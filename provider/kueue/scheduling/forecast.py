"""When a job that waits starts, if no other job comes: from the time limits of those that run and wait before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pulumi_trainer.provider.kueue.scheduling.cycles import Scheduler
from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender


@dataclass(frozen=True)
class LatestStart:
    """The latest start of a job.

    Args:
        at: In seconds since the epoch; infinite if it is open.
        open_for: Jobs without a time limit, for which it is open.
    """

    at: float
    open_for: tuple[str, ...] = ()


def find_latest_starts(scheduler: Scheduler, now: float) -> dict[str, LatestStart]:
    """Return the latest start of each job that waits, if all jobs run as long as they may and no other job comes.

    Args:
        scheduler: With all that run and wait, after its cycles; it changes.
        now: Seconds since the epoch.
    """
    clock, starts = now, dict[str, LatestStart]()
    waiting = [outcome for outcome in scheduler.outcomes.values() if outcome.admitted is None]
    ends = {each.key: (each.reserved or now) + each.limit for each in _running(scheduler)}
    while True:
        for outcome in waiting:
            if outcome.admitted is not None:
                starts.setdefault(outcome.contender.key, LatestStart(clock))
        due = min(_running(scheduler), key=lambda each: ends[each.key], default=None)
        if due is None or ends[due.key] == math.inf or len(starts) == len(waiting):
            break
        clock = max(clock, ends[due.key])
        scheduler.end(due)
        scheduler.run()
        for each in _running(scheduler):
            ends.setdefault(each.key, clock + each.limit)
    endless = [each for each in _running(scheduler) if ends[each.key] == math.inf]
    for outcome in waiting:
        asked = outcome.contender
        jobs = tuple(each.job for each in endless if _shares_quota(scheduler, each, asked))
        starts.setdefault(asked.key, LatestStart(math.inf, jobs))
    return starts


def _running(scheduler: Scheduler) -> list[Contender]:
    found: list[Contender] = []
    for queue in scheduler.snapshot.running.values():
        found += queue.values()
    return found


def _shares_quota(scheduler: Scheduler, one: Contender, other: Contender) -> bool:
    root = scheduler.snapshot.node(other).path[-1]
    return scheduler.snapshot.node(one).path[-1] is root
