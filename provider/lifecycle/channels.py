"""Checks, compares, creates, updates and deletes a channel of releases, on plain data.

A channel creates nothing in a cluster: its state is the release in use, and its plan shows what a move does to the jobs that
follow it. Inputs: channel, runtime (name), release, document, releases (numbers of all releases in the catalogue), target,
component; force where there is one; formerly, set here: "project/stack" of the stack before it was renamed. Outputs: the same,
without the document, and with names, the current and former names of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.lifecycle.crud import LOCATION, Checked, Diff, connection_of, with_current_connection
from pulumi_trainer.provider.trainer.runtime_releases import Effect, compare, follow_refusal, level_of

Props = dict[str, Any]

NAMES = 10
"""How many jobs a note names; of the others it gives the number."""


class Target(Protocol):
    """The methods that channels need of a target."""

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]: ...
    def identity(self) -> dict[str, str]: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Return notes on what a move does to jobs. Rejects the removal of a release that a job uses.

    Args:
        olds: Previous inputs; empty for a new channel.
        news: Current inputs; leaves may be unknown.
        connect: Returns the target of an input `target`.
    """
    if not olds or any(isinstance(news.get(k), Unknown) for k in ("release", "document", "runtime")):
        return Checked(news)
    formerly = {*olds.get("formerly", ()), program_of(str(olds.get("component")))} - {_program(news), ""}
    if formerly:
        news = {**news, "formerly": sorted(formerly)}
    where = f"channel {news['channel']}"
    if olds["runtime"] != news["runtime"]:
        why = f"offers {olds['runtime']}, so its jobs would switch to {news['runtime']}"
        return Checked(news, (str(Problem(where, why, "create another channel for it")),))
    moved = olds["release"] != news["release"]
    removed = sorted(set(olds.get("releases", ())) - set(news["releases"]))
    if not moved and not removed:
        return Checked(news)
    try:
        found, note = connect(news["target"]).consumers(news["runtime"])
    except TrainerError as fault:
        found, note = [], f"could not list the jobs that use it: {fault}"
    lines: list[str] = []
    if moved:
        lines = _move_notes(olds, news, found)
    if note:
        lines.append(note)
    notes = tuple(f"{where}: {line}" for line in lines)
    users = [c for c in found if c.release in removed]
    if users and not news.get("force"):
        why = f"the catalogue no longer has release {', '.join(removed)}, but {_usage(users)}"
        hint = "restore the release, give those jobs another release first, or set force=True"
        return Checked(news, (str(Problem(where, why, hint)),), notes)
    return Checked(news, notes=notes)


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the channel changes.

    Args:
        news: Checked inputs; in a refresh, the stored inputs.
    """
    renamed = olds["names"] != _names(news)
    return Diff(renamed or _stored(olds) != _stored(news) or connection_of(olds) != connection_of(news))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Return id and outputs of the channel; nothing is created in the target.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.
    """
    return str(inputs["channel"]), _outputs(inputs, inputs["target"], connect)


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Return the outputs with the current release and connection settings.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.
    """
    return _outputs(inputs, {**inputs["target"], **with_current_connection(outputs, inputs)["target"]}, connect)


def read(outputs: Props, _connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the outputs as stored: a channel exists only in its stack.

    Args:
        outputs: Outputs of the channel in the state.
        _connect: Ignored: nothing of a channel is in its target.
    """
    return outputs, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Remove the channel.

    Args:
        outputs: Outputs of the channel in the state.
        connect: Returns the target of an input `target`.

    Raises:
        Refused: A job takes its releases from the channel, which has no `force`.
    """
    refused = removal_refusals(outputs, connect, lambda _: True)
    if refused:
        raise Refused(*refused)
    return []


def removal_refusals(outputs: Props, connect: Connect, uses: Callable[[str], bool]) -> list[Problem]:
    """Return why a channel cannot be removed; empty if it can.

    Args:
        connect: Returns the target of a `target` input.
        uses: Returns whether the job (namespace/name) that uses the channel now still uses it after the removal.
    """
    if outputs.get("force"):
        return []
    found, _ = connect(outputs["target"]).consumers(outputs["runtime"])
    users = [c for c in found if _follows(c, outputs["channel"], outputs["names"]) and uses(c.where)]
    if not users:
        return []
    hint = "remove those jobs first, or set force=True and run `pulumi up` before it is removed"
    return [Problem(f"channel {outputs['channel']}", _usage(users), hint)]


def runtime_notes(olds: Props, news: Props, connect: Connect) -> list[str]:
    """Return what a changed runtime of mode trainer does to jobs, and which jobs were created from it.

    Args:
        olds: Outputs of the runtime in the state; without a document, nothing is known of the change.
        connect: Returns the target of a `target` input.
    """
    before, after = olds.get("document"), news["document"]
    if before is None or first_unknown([before, after]) is not None or before.get("spec") == after.get("spec"):
        return []
    where = f"{after['kind']} {after['metadata']['name']}"
    found = compare(before, after)
    lines = [f"it changes: {level_of(found)} for jobs", *_effects(found)]
    try:
        jobs, note = connect(news["target"]).consumers(after["metadata"]["name"])
    except TrainerError as fault:
        jobs, note = [], f"could not list the jobs that use it: {fault}"
    if jobs:
        lines.append(f"jobs in this cluster that keep their current version until they run again: {len(jobs)}")
        lines.append(f"  {name_list(job.where for job in jobs)}")
    if note:
        lines.append(note)
    return [f"{where}: {line}" for line in lines]


def _effects(found: Sequence[Effect]) -> list[str]:
    lines = [f"  {effect.level} {effect}" for effect in found[:5]]
    if len(found) > 5:
        lines.append(f"  and {len(found) - 5} more")
    return lines


def name_list(jobs: Iterable[str]) -> str:
    """Return the first jobs, and the number of the others."""
    return join_names(sorted(jobs), NAMES)


def _move_notes(olds: Props, news: Props, found: Sequence[Consumer]) -> list[str]:
    before, after = olds["release"], news["release"]
    effects = compare(olds["document"], news["document"])
    lines = [f"{news['runtime']} {before} => {after}: {level_of(effects)} for jobs"]
    lines += _effects(effects)
    followers: list[Consumer] = []
    others: list[str] = []
    names = _names(news)
    for job in found:
        if _follows(job, news["channel"], names):
            followers.append(job)
        else:
            others.append(_label(job, news))
    groups: dict[str, list[str]] = {}
    for job in followers:
        if job.release == after:
            outcome = f"on {after} already"
        elif follow_refusal(job.follow, job.release, after, level_of(effects)):
            outcome = f'staying with {job.release} (follow="{job.follow}")'
        else:
            outcome = "on their next run, or at once where interrupt allows it"
        groups.setdefault(outcome, []).append(_label(job, news))
    lines.append(f"jobs at this target that follow the channel: {len(followers)}")
    for outcome, jobs in sorted(groups.items()):
        lines.append(f"  {len(jobs)} {outcome}: {name_list(jobs)}")
    if others:
        lines.append(f"jobs that use {news['runtime']} without the channel, and keep their release: {len(others)}")
        lines.append(f"  {name_list(others)}")
    return lines


def _follows(job: Consumer, channel: str, names: Sequence[str]) -> bool:
    """Return whether a job follows a channel of that name, in a stack that has or had one of `names`. A job counts if that is not
    known: a job of another stack."""
    return job.channel == channel and job.channel_of in ("", *names)


def _names(props: Props) -> list[str]:
    return [name for name in (_program(props), *props.get("formerly", ())) if name]


def _program(props: Props) -> str:
    return program_of(str(props.get("component") or ""))


def _label(job: Consumer, news: Props) -> str:
    if job.stack and job.stack == news["target"].get("sweep"):
        return f"{job.where} (of this stack)"
    return job.where


def _usage(users: Sequence[Consumer]) -> str:
    running = sum(not c.ended for c in users)
    count = f"{len(users)} jobs use it"
    if len(users) == 1:
        count = "1 job uses it"
    names = name_list(f"{c.where} ({c.release})" for c in users)
    return f"{count}, {running or 'none'} of which may still run: {names}"


def _stored(props: Props) -> Props:
    return {k: props.get(k) for k in ("channel", "runtime", "release", "releases", "force", "digest")}


def _outputs(inputs: Props, target: Mapping[str, Any], connect: Connect) -> Props:
    identity = connect(target).identity()
    where = {**only(target, LOCATION), **identity}
    return {**_stored(inputs), "names": _names(inputs), "target": where}
