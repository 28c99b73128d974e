"""How long a job is expected to keep its quota, by the progress that it reports, else by its earlier runs; what its end loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender

SPREAD = (0.75, 1.5)
"""The real rest of a run is expected between these shares of the rest that its progress says."""
CLOCKS = 60.0
"""Seconds by which the clocks of Kueue and of a plan may differ."""


@dataclass(frozen=True)
class Expectation:
    """What is known of how long a job runs.

    Args:
        reported: When it reported its progress, in seconds since the epoch; 0 if it has reported none.
        remaining: Seconds that it had left then.
        runs: Seconds of its earlier runs that have succeeded.
        saved: When it saved its newest checkpoint, in seconds since the epoch; 0 if that is not known.
    """

    reported: float = 0.0
    remaining: float = 0.0
    runs: Sequence[float] = ()
    saved: float = 0.0


Expectations = Mapping[str, Expectation]
"""By namespace/name of the job."""
Expect = Callable[[Sequence[str]], Expectations]
"""Returns what is known of jobs; of the given ones, which run and decide, it may ask more than of others."""


def expect_nothing(_: Sequence[str]) -> Expectations:
    """Return that nothing is known."""
    return {}


@dataclass(frozen=True)
class Ends:
    """When jobs give their quota back, by one reading of what is known: at the earliest, as late as expected, or at the latest.

    Args:
        bound: 0 for the earliest end that is expected, 1 for the last.
        latest: Whether time limits alone count.
    """

    expected: Expectations
    bound: int = 1
    latest: bool = False

    def of(self, contender: Contender, admitted: float, now: float) -> float:
        """Return when a job gives its quota back, in seconds since the epoch; infinite if nothing tells.

        Args:
            now: Seconds since the epoch; a run of before does not end before that.
        """
        limit = admitted + contender.limit
        if limit < now - CLOCKS or admitted > now + CLOCKS:
            limit = math.inf  # Kueue would have ended it, or by its own clock it has not begun: its times tell nothing
        if self.latest:
            return limit
        end = self._expected(self._known(contender), admitted, now)
        if end == math.inf and not self.bound:
            return now  # nothing tells that it does not end at once
        return min(end, limit)

    def basis(self, contender: Contender, now: float) -> str:
        """Return what tells about when a job ends: progress or runs; empty for nothing but a time limit."""
        admitted, known = contender.reserved or now, self._known(contender)
        if self._expected(known, admitted, now) == math.inf:
            return ""
        return "progress" if known.reported >= admitted else "runs"

    def _known(self, contender: Contender) -> Expectation:
        return self.expected.get(contender.job, Expectation())

    def _expected(self, known: Expectation, admitted: float, now: float) -> float:
        if known.reported >= admitted:
            return max(now, known.reported + SPREAD[self.bound] * known.remaining)
        if not known.runs:
            return math.inf
        if self.bound:
            longest = admitted + max(known.runs)
            return longest if longest > now else math.inf  # longer than ever before: they tell nothing any more
        return max(now, admitted + min(known.runs))


LIMITS = Ends({}, latest=True)
