"""When a job that waits starts, if no other job comes: from the ends of those that run and wait before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pulumi_trainer.provider.kueue.scheduling.cycles import Scheduler
from pulumi_trainer.provider.kueue.scheduling.durations import Ends
from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender


@dataclass(frozen=True)
class Start:
    """The start of a job.

    Args:
        open_for: Jobs whose end is not known, for which it is open.
        after: Jobs that end before, and share quota with it.
    """

    at: float
    open_for: tuple[Contender, ...] = ()
    after: tuple[Contender, ...] = ()


def find_starts(scheduler: Scheduler, now: float, ends: Ends) -> dict[str, Start]:
    """Return the start of each job that waits, if no other job comes."""
    clock, starts, ended = now, dict[str, Start](), list[Contender]()
    waiting = [outcome for outcome in scheduler.outcomes.values() if outcome.admitted is None]
    due_at = {each.key: ends.of(each, each.reserved or now, now) for each in _running(scheduler)}
    while True:
        for outcome in waiting:
            asked = outcome.contender
            if outcome.admitted is not None and asked.key not in starts:
                after = tuple(each for each in ended if _shares_quota(scheduler, each, asked))
                starts[asked.key] = Start(clock, after=after)
        due = min(_running(scheduler), key=lambda each: due_at[each.key], default=None)
        if due is None or due_at[due.key] == math.inf or len(starts) == len(waiting):
            break
        clock = max(clock, due_at[due.key])
        ended.append(due)
        scheduler.end(due)
        scheduler.run()
        for each in _running(scheduler):
            due_at.setdefault(each.key, ends.of(each, clock, clock))
    endless = [each for each in _running(scheduler) if due_at[each.key] == math.inf]
    for outcome in waiting:
        asked = outcome.contender
        jobs = tuple(each for each in endless if _shares_quota(scheduler, each, asked))
        starts.setdefault(asked.key, Start(math.inf, jobs))
    return starts


def _running(scheduler: Scheduler) -> list[Contender]:
    found: list[Contender] = []
    for queue in scheduler.snapshot.running.values():
        found += queue.values()
    return found


def _shares_quota(scheduler: Scheduler, one: Contender, other: Contender) -> bool:
    root = scheduler.snapshot.node(other).path[-1]
    return scheduler.snapshot.node(one).path[-1] is root
