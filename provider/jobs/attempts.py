"""The attempts of a run: each start of its Pods until they ended, why they ended, and which steps were done again.

Goodput is the share of the time since the first start in which a job has trained without doing steps again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.jobs.edited_json import step_number
from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, plausible_seconds
from pulumi_trainer.provider.kubernetes.values.wording import duration, plural

MOST_ATTEMPTS = 100
"""Attempts that a status keeps; the oldest ones become one entry with their sums."""
LONGEST = 300
"""Characters of a detail."""

SUCCEEDED = "Succeeded"
PROGRAM_ERROR = "ProgramError"
KILLED = "Killed"
"""SIGKILL from outside, perhaps of a machine without memory."""
OUT_OF_MEMORY = "OOMKilled"
TERMINATED = "Terminated"
"""SIGTERM from outside."""
DISRUPTED = "Disrupted"
"""A disruption whose kind is not known."""
EVICTED = "Evicted"
PREEMPTED = "Preempted"
NODE_LOST = "NodeLost"
SUSPENDED = "Suspended"
NOT_OBSERVED = "NotObserved"
"""An attempt in a cluster of whose end nothing tells."""
STOPPED = "Stopped"

INTERRUPTED_RULE = "interrupted"
"""Name of the rule of a JobSet with a checkpoint policy that restarts it after a disruption."""


@dataclass(frozen=True)
class Attempt:
    """One start of a job's Pods until all of them have ended. Times are seconds since the epoch, 0 for not yet or not known.

    Args:
        number: The first attempt has 1.
        started: When its first Pod was started.
        finished: When its last Pod had ended.
        cause: Why it ended, in one word; empty while it runs, or if it is not known.
        detail: Who or what has ended it; empty if not known.
        first: Step of its first report; None if it has reported none, or if that is not known.
        last: Step of its newest report.
        redone: Steps that an earlier attempt had done already; None if not known.
        repeating: Seconds that these steps have taken.
        count: How many attempts the entry stands for: 1, or more for the oldest ones of a long history.
        ran: Seconds that the attempts of an entry for several have taken.
        rerun: Whether `pulumi-trainer rerun` followed it. A new JobSet counts its restarts from there on.
    """

    number: int
    started: float = 0.0
    finished: float = 0.0
    cause: str = ""
    detail: str = ""
    first: int | None = None
    last: int | None = None
    redone: int | None = None
    repeating: float = 0.0
    count: int = 1
    ran: float = 0.0
    rerun: bool = False

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return bool(self.finished or self.cause)

    def seconds(self, until: float) -> float | None:
        """Return how long it ran; None if its times are not known. until: The end of an attempt that runs."""
        if not self.started:
            return None
        if self.count > 1:
            return self.ran
        end = self.finished
        if not self.ended:
            end = until
        if not end:
            return None
        return max(0.0, end - self.started)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Attempt:
        """Return an attempt from JSON that anybody may have written."""
        return cls(
            number=step_number(given.get("number")) or 1,
            started=plausible_seconds(given.get("started")),
            finished=plausible_seconds(given.get("finished")),
            cause=plain_field(given.get("cause"), LONGEST),
            detail=plain_field(given.get("detail"), LONGEST),
            first=step_number(given.get("first")),
            last=step_number(given.get("last")),
            redone=step_number(given.get("redone")),
            repeating=plausible_seconds(given.get("repeating")),
            count=step_number(given.get("count")) or 1,
            ran=plausible_seconds(given.get("ran")),
            rerun=given.get("rerun") is True,
        )


def read_attempts(given: Any) -> list[Attempt]:
    """Return attempts from JSON that anybody may have written, the newest last."""
    return bounded([*map(Attempt.from_dict, mappings(given))])


def bounded(attempts: list[Attempt]) -> list[Attempt]:
    """Return at most `MOST_ATTEMPTS` entries: the oldest attempts become one entry."""
    more = len(attempts) - MOST_ATTEMPTS
    if more <= 0:
        return attempts
    return [_merge_attempts(attempts[: more + 1]), *attempts[more + 1 :]]


def _merge_attempts(attempts: Sequence[Attempt]) -> Attempt:
    times = [each.seconds(each.finished) for each in attempts]
    started = attempts[0].started
    if None in times:
        started = 0.0
    redone: int | None = None
    counts = [each.redone for each in attempts if each.redone is not None]
    if counts:
        redone = sum(counts)
    return Attempt(
        number=attempts[-1].number,
        started=started,
        finished=attempts[-1].finished,
        first=next((each.first for each in attempts if each.first is not None), None),
        last=furthest(attempts),
        redone=redone,
        repeating=sum(each.repeating for each in attempts),
        count=sum(each.count for each in attempts),
        ran=sum(filter(None, times)),
        rerun=any(each.rerun for each in attempts),
    )


def furthest(attempts: Sequence[Attempt]) -> int | None:
    """Return the largest step that any attempt has reported; None if none has reported one."""
    return max((each.last for each in attempts if each.last is not None), default=None)


def ended(attempts: list[Attempt], now: float, cause: str, detail: str = "") -> list[Attempt]:
    """Return attempts of which none runs: the newest one ends now if it has not ended. detail: Message about the cause, of
    which `LONGEST` characters are kept; default: none."""
    if not attempts or attempts[-1].ended:
        return attempts
    return [*attempts[:-1], replace(attempts[-1], finished=now, cause=cause, detail=detail[:LONGEST])]


def before_rerun(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts of a run that `pulumi-trainer rerun` starts again; an end that nobody has observed is not known."""
    found = ended([*attempts], 0.0, NOT_OBSERVED)
    return [*found[:-1], *(replace(each, rerun=True) for each in found[-1:])]


class Attempts:
    """Keeps the attempts of a job whose Pods one process starts and ends.

    Args:
        before: Attempts before this process; the newest one has ended.
    """

    def __init__(self, before: Sequence[Attempt]) -> None:
        self.all = [*before]
        self.runs = False
        self._pending: tuple[str, str] | None = None
        self._open = False
        self._mark: int | None = None
        self._first_at = self._newest_at = 0.0
        self._caught_up = False

    def begin(self, now: float) -> None:
        """Begin an attempt, unless one runs."""
        if self.runs:
            return
        number = 1
        if self.all:
            number = self.all[-1].number + 1
        self._mark, self._caught_up, self._pending = furthest(self.all), False, None
        self.all = bounded([*self.all, Attempt(number, now)])
        self.runs, self._open = True, False

    def report(self, step: int, now: float) -> None:
        """Take note of a step that the attempt which runs has reported."""
        if not self.runs:
            return
        attempt = self.all[-1]
        if attempt.first is None:
            self._first_at = self._newest_at = now
            attempt = replace(attempt, first=step, redone=0)
        attempt = self._with_redone(attempt, step, now)
        self.all = [*self.all[:-1], replace(attempt, last=step)]
        self._newest_at = now

    def _with_redone(self, attempt: Attempt, step: int, now: float) -> Attempt:
        """Return the attempt with the steps done again up to a report, and the time that they have taken."""
        first, mark = attempt.first, self._mark
        if mark is None or first is None or self._caught_up:
            return attempt
        self._caught_up = step >= mark
        redone = max(0, min(step, mark) - first)
        if not redone:
            return replace(attempt, redone=0, repeating=0.0)
        until = now
        if step > mark and attempt.last is not None:  # the mark was passed between two reports
            share = max(0, mark - attempt.last) / (step - attempt.last)
            until = self._newest_at + share * (now - self._newest_at)
        return replace(attempt, redone=redone, repeating=until - self._first_at)

    def explain(self, cause: str, detail: str = "", *, running: bool = False) -> None:
        """Say why the newest attempt ends, or has ended if only its last Pods said why. The first reason counts. running:
        Whether to do nothing for an attempt that has ended already."""
        if self.runs:
            self._pending = self._pending or (cause, detail)
        elif self._open and not running and self.all:
            self._open = False
            self.all = [*self.all[:-1], replace(self.all[-1], cause=cause, detail=detail[:LONGEST])]

    def end(self, now: float, cause: str, detail: str = "") -> None:
        """End the attempt that runs."""
        if not self.runs:
            return
        self._open = self._pending is None
        cause, detail = self._pending or (cause, detail)
        self.all = ended(self.all, now, cause, detail)
        self.runs, self._pending = False, None


@dataclass(frozen=True)
class Goodput:
    """How much of its time a job has trained.

    Args:
        training: Seconds of all attempts.
        repeating: Seconds of steps that were done again.
        wall: Seconds since the first start.
        exact: Whether the steps that were done again are known; otherwise goodput is an upper bound.
    """

    training: float
    repeating: float
    redone: int
    wall: float
    exact: bool

    @property
    def share(self) -> float:
        """The share of the wall time, 0 to 1."""
        if self.wall <= 0:
            return 1.0
        return min(1.0, max(0.0, self.training - self.repeating) / self.wall)

    def __str__(self) -> str:
        useful = duration(min(self.wall, max(0.0, self.training - self.repeating)))
        text = f"{100 * self.share:.0f}%: {useful} of training in {duration(self.wall)}"
        if not self.exact:
            return f"at most {text}; how many steps were done again is not known"
        if not self.redone:
            return text
        return f"{text}; {plural(self.redone, 'step')} done again ({duration(self.repeating)})"


def goodput(attempts: Sequence[Attempt], until: float) -> Goodput | None:
    """Return the goodput of a job; None if it has not started, or if the times of an attempt are not known."""
    times = [each.seconds(until) for each in attempts]
    if not attempts or None in times or not attempts[0].started:
        return None
    again = [*attempts]
    if attempts[0].count == 1:
        again = [each for each in attempts[1:] if each.started]
    return Goodput(
        training=sum(filter(None, times)),
        repeating=sum(each.repeating for each in attempts),
        redone=sum(each.redone or 0 for each in attempts),
        wall=until - attempts[0].started,
        exact=all(each.redone is not None for each in again),
    )
