"""Moves a channel to another release wave by wave: which jobs have it already, and why the next ones do not get it yet."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import several
from pulumi_trainer.provider.kubernetes.values.accessors import plausible_seconds, section, text
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.trainer.catalog.versions import VERSION, by_version

SECONDS = "seconds"
"""Name of the time of a run among the metrics of `max_regression`."""


@dataclass(frozen=True)
class Rollout:
    """How far a channel has moved, in its state.

    Attributes:
        before: Release of the jobs that it has not reached; empty: all have the same one.
        wave: Number of waves that have the new release.
        since: When the last of them got it, in seconds since the epoch.
        left: Release that was taken back; jobs that have it go back, as from a withdrawn one.
    """

    before: str = ""
    wave: int = 0
    since: float = 0.0
    left: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_dict(cls, given: Any) -> Rollout:
        known = section(given)
        wave, since = int(plausible_seconds(known.get("wave"))), plausible_seconds(known.get("since"))
        return cls(text(known.get("before")), wave, since, text(known.get("left")))


@dataclass(frozen=True)
class Waves:
    """How the program wants a channel to move.

    Attributes:
        groups: Namespaces, and jobs as NAMESPACE/NAME, of each wave; all others come last.
        soak: Seconds between two waves.
        limits: Metric -> how many times its value before it may be.
        longest: Seconds that a run of a job that is named may take on the new release.
    """

    groups: Sequence[Sequence[str]] = ()
    soak: float = 0.0
    limits: Mapping[str, float] | None = None
    longest: float = math.inf

    def moved(self, rollout: Rollout) -> list[str]:
        """Return the namespaces and jobs that have the new release."""
        found = list[str]()
        for group in self.groups[: rollout.wave]:
            found += group
        return found

    def called(self, wave: int) -> str:
        """Return a wave in a message. wave: From 1."""
        if wave > len(self.groups):
            return "the last wave (all others)"
        return f"wave {wave} of {len(self.groups) + 1} ({join_names([*self.groups[wave - 1]])})"


def begin_or_go_on(recorded: str, rollout: Rollout, release: str, waves: Waves, now: float) -> Rollout:
    """Return the roll-out after a change of the release; the same one if the release has not changed.

    Args:
        recorded: Release of the channel in the state; empty for a new channel.
    """
    if recorded == release or not recorded:
        return rollout
    if not waves.groups:
        return Rollout()
    if VERSION.fullmatch(recorded) and VERSION.fullmatch(release) and by_version(release) < by_version(recorded):
        return Rollout(left=recorded)
    left = rollout.left
    if left == release:
        left = ""
    return Rollout(rollout.before or recorded, 1, now, left)


def next_wave(rollout: Rollout, waves: Waves, now: float) -> Rollout:
    """Return the roll-out after its next wave."""
    if rollout.wave >= len(waves.groups):
        return Rollout(left=rollout.left)
    return Rollout(rollout.before, rollout.wave + 1, now, rollout.left)


def is_reached(where: str, moved: Collection[str]) -> bool:
    """Return whether a job has the new release. where: NAMESPACE/NAME."""
    return where in moved or where.partition("/")[0] in moved


def progress_note(rollout: Rollout, release: str, waves: Waves, reasons: Sequence[str], due: str) -> str:
    """Return how far a roll-out is, and what the next wave waits for. due: When it may move."""
    done = f"{release} has reached {join_names(waves.moved(rollout))}; all others get {rollout.before}"
    following = waves.called(rollout.wave + 1)
    if reasons:
        return f"{done}; {following} does not move: {several(reasons)}"
    return f"{done}; {following} moves with the first `pulumi up` after {due}"
