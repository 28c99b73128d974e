"""Checks, compares, creates, updates and deletes a channel of releases.

A channel creates nothing in a cluster: its state is the release in use, and its plan shows what a move does to the jobs that
follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TrainerError
from pulumi_trainer.provider.kubernetes.values.unknown import any_unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.lifecycle.connection import Inputs, Located, with_current_connection
from pulumi_trainer.provider.lifecycle.impact import (
    effect_lines,
    find_impacts,
    impact_lines,
    job_label,
    name_list,
    next_run,
)
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource
from pulumi_trainer.provider.lifecycle.target import Connect
from pulumi_trainer.provider.trainer.catalog.versions import VERSION
from pulumi_trainer.provider.trainer.releases import known_release
from pulumi_trainer.provider.trainer.runtime_releases import (
    Effect,
    carried_releases,
    compare,
    follow_refusal,
    level_of,
    taken_release,
)
from pulumi_trainer.provider.trainer.runtime_rollout import Rollout, is_reached


@dataclass(frozen=True, kw_only=True)
class _Channel(Located):
    """What inputs and outputs of a channel have in common.

    Attributes:
        withdrawn: Release -> why nobody should use it any more.
        force: Whether it may leave the program, and the catalogue a release, although jobs use them.
        rollout: How far it has moved (`Rollout`); empty: all jobs have its release.
    """

    channel: str
    runtime: Any
    release: Any
    releases: Sequence[str] = ()
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    digest: Any = ""
    force: bool = False
    rollout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> list[Any]:
        """Return what an update stores, apart from the connection."""
        stored = [self.channel, self.runtime, self.release, self.releases, self.withdrawn, self.digest, self.force]
        return [*stored, Rollout.from_dict(self.rollout)]


@dataclass(frozen=True, kw_only=True)
class ChannelInputs(_Channel, Inputs):
    """Inputs of a channel.

    Attributes:
        trainer: Version of Trainer whose rules its jobs follow.
        formerly: Set by `check`: "project/stack" of the stack before it was renamed.
        moved: Namespaces, and jobs as NAMESPACE/NAME, that a roll-out has reached.
        document_before: Document of the release before a roll-out; None without one.
        read_release: Release in the state, as the program has read it; None without waves.
    """

    document: Any
    moved: Sequence[str] = ()
    document_before: Any = None
    read_release: str | None = None
    trainer: str = ""
    formerly: Sequence[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return the current and former names of the stack."""
        return [*filter(None, (self.program, *self.formerly))]


@dataclass(frozen=True, kw_only=True)
class ChannelOutputs(_Channel):
    """Outputs of a channel. names: The current and former names of the stack."""

    names: Sequence[str]


class Channels(Resource[ChannelInputs, ChannelOutputs]):
    inputs, outputs = ChannelInputs, ChannelOutputs

    def check(self, olds: ChannelInputs | None, news: ChannelInputs, connect: Connect) -> Checked[ChannelInputs]:
        """Return notes on what a move does to jobs. Rejects the removal of a release that a job uses."""
        if olds is None or any_unknown([news.release, news.document, news.runtime]):
            return Checked(news)
        news = replace(news, formerly=sorted({*olds.formerly, olds.program} - {news.program, ""}))
        where = f"channel {news.channel}"
        if olds.runtime != news.runtime:
            why = f"offers {olds.runtime}, so its jobs would switch to {news.runtime}"
            return Checked(news, (str(Problem(where, why, "create another channel for it")),))
        if news.read_release is not None and news.read_release != olds.release:
            why = f"has {olds.release} in the state, which the program could not read, so it does not know its wave"
            return Checked(news, (str(Problem(where, why, "run the command again")),))
        moved = olds.release != news.release or Rollout.from_dict(olds.rollout) != Rollout.from_dict(news.rollout)
        removed = sorted({*olds.releases} - {*news.releases})
        withdrawn = [each for each in news.withdrawn if each not in olds.withdrawn]
        if not moved and not removed and not withdrawn:
            return Checked(news)
        known, note = find_consumers(news.runtime, news, connect)
        found = known or ()
        lines = list[str]()
        if moved:
            lines = _move_notes(olds, news, known, are_all=not note)
        others = [job for job in found if not moved or not _follows(job, news.channel, news.names)]
        for each in withdrawn:
            lines += [news.withdrawn[each], *_withdrawal_notes(each, news, others)]
        notes = tuple(f"{where}: {line}" for line in (*lines, note) if line)
        users = [c for c in found if c.release in removed]
        if removed and known is None and not news.force:
            why = f"the catalogue no longer has release {', '.join(removed)}, and whether jobs use it is not known: {note}"
            hint = "restore the release, or set force=True"
            return Checked(news, (str(Problem(where, why, hint)),), notes)
        if users and not news.force:
            why = f"the catalogue no longer has release {', '.join(removed)}, but {_usage(users)}"
            hint = "restore the release, give those jobs another release first, or set force=True"
            return Checked(news, (str(Problem(where, why, hint)),), notes)
        return Checked(news, notes=notes)

    def diff(self, olds: ChannelOutputs, news: ChannelInputs) -> Diff:
        renamed = olds.names != news.names
        return Diff(renamed or olds.settings != news.settings or olds.connection != news.connection)

    def create(self, inputs: ChannelInputs, connect: Connect) -> tuple[str, ChannelOutputs]:
        identity = connect(inputs.target).identity()
        return inputs.channel, ChannelOutputs.of(inputs, target={**inputs.location, **identity})

    def update(self, outputs: ChannelOutputs, inputs: ChannelInputs, connect: Connect) -> ChannelOutputs:
        target = {**inputs.target, **with_current_connection(outputs, inputs).target}
        return self.create(replace(inputs, target=target), connect)[1]

    def delete(self, outputs: ChannelOutputs, connect: Connect) -> list[str]:
        """Remove the channel. Raise Refused if a job takes its releases from the channel, which has no `force`."""
        refused = removal_refusals(outputs, connect, lambda _: True)
        if refused:
            raise Refused(*refused)
        return []


def find_consumers(runtime: str, located: Located, connect: Connect) -> tuple[Sequence[Consumer] | None, str]:
    """Return the jobs that use a runtime, None if they are not known, and which of them are not known."""
    try:
        return connect(located.target).jobs.consumers(runtime)
    except TrainerError as fault:
        return None, f"could not list the jobs that use it: {fault}"


def removal_refusals(outputs: ChannelOutputs, connect: Connect, uses: Callable[[str], bool]) -> list[Problem]:
    """Return why a channel cannot be removed; empty if it can."""
    if outputs.force:
        return []
    found, _ = connect(outputs.target).jobs.consumers(outputs.runtime)
    users = [c for c in found if _follows(c, outputs.channel, outputs.names) and uses(c.where)]
    if not users:
        return []
    hint = "remove those jobs first, or set force=True and run `pulumi up` before it is removed"
    return [Problem(f"channel {outputs.channel}", _usage(users), hint)]


def _move_notes(
    olds: ChannelInputs, news: ChannelInputs, found: Sequence[Consumer] | None, *, are_all: bool
) -> list[str]:
    """Return what a move does to jobs. found: Users of the runtime; None if unknown. are_all: Whether there are no others."""
    after, trainer = news.release, known_release(news.trainer)
    before, document = _release_before(olds, news)
    own = news.target.get("sweep", "")
    effects = compare(document, news.document, trainer)
    lines = [f"{news.runtime} {before} => {after}: {level_of(effects)} for jobs"]
    lines += effect_lines(effects)
    if found is None:
        return [*lines, "jobs at this target that follow the channel: unknown"]
    following = [job for job in found if _follows(job, news.channel, news.names)]
    done = [job for job in following if job.release == after]
    count = f"jobs at this target that follow the channel: {len(following)}"
    if not are_all:
        count += " of those that may be listed"
    lines.append(count)
    moving = [job for job in following if job.release != after]
    for impact in find_impacts(moving, document, news.document, effects, trainer, partial(_outcome, news)):
        lines += [f"  {line}" for line in impact_lines(impact, effects, own)]
    if done:
        lines += [
            f"  {plural(len(done), 'job')} on {after} already",
            f"    {name_list(job_label(job, own) for job in done)}",
        ]
    others = [job_label(job, own) for job in found if job not in following]
    if others:
        lines.append(f"jobs that use {news.runtime} without the channel, and keep their release: {len(others)}")
        lines.append(f"  {name_list(others)}")
    return lines


def _release_before(olds: ChannelInputs, news: ChannelInputs) -> tuple[str, Any]:
    """Return the release that jobs leave, and its document."""
    for each in (news, olds):
        before = Rollout.from_dict(each.rollout).before
        if before and olds.release == news.release:
            return before, each.document_before
    return olds.release, olds.document


def _withdrawal_notes(release: str, news: ChannelInputs, found: Sequence[Consumer]) -> list[str]:
    """Return what becomes of the jobs that have a release which is withdrawn, by outcome."""
    outcomes: dict[str, list[str]] = {}
    for job in found:
        if job.release != release:
            continue
        outcome = f"keeping {release}: without the channel"
        if _follows(job, news.channel, news.names):
            outcome = _outcome(news, job, [])
        outcomes.setdefault(outcome, []).append(job_label(job, news.target.get("sweep", "")))
    lines = []
    for outcome, jobs in outcomes.items():
        lines += [f"  {plural(len(jobs), 'job')} {outcome}", f"    {name_list(jobs)}"]
    return lines


def _outcome(news: ChannelInputs, job: Consumer, effects: list[Effect]) -> str:
    """Return when a job takes another release of its channel, and which one if not the channel's."""
    level, own = level_of(effects), job.release
    taken, rollout = news.release, Rollout.from_dict(news.rollout)
    if rollout.before and not is_reached(job.where, news.moved):
        return f"staying with {own} until a later wave"
    if VERSION.fullmatch(own) and VERSION.fullmatch(taken):
        carried = carried_releases(news.releases, news.withdrawn)
        taken = taken_release(job.follow, own, taken, carried, news.withdrawn, level)
    elif follow_refusal(job.follow, own, taken, level):
        taken = own
    if taken == own:
        which = f"{own}, which is withdrawn" if own in news.withdrawn else own
        return f'staying with {which} (follow="{job.follow}")'
    when = next_run(job)
    return when if taken == news.release else f'taking {taken} (follow="{job.follow}") {when}'


def _follows(job: Consumer, channel: str, names: Sequence[str]) -> bool:
    """Return whether a job follows a channel of that name, in a stack that has or had one of `names`. A job counts if that is not
    known: a job of another stack."""
    return job.channel == channel and job.channel_of in ("", *names)


def _usage(users: Sequence[Consumer]) -> str:
    running = sum(not c.ended for c in users)
    count = f"{len(users)} jobs use it"
    if len(users) == 1:
        count = "1 job uses it"
    names = name_list(f"{c.where} ({c.release})" for c in users)
    return f"{count}, {running or 'none'} of which may still run: {names}"
