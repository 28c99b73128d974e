"""check, diff, create, update and delete of a channel of releases, on plain data.

A channel makes nothing in a cluster: its state is the release in use, and its plan says what a move does to the jobs that take
releases from it. Inputs: channel, runtime (name), release, document, releases (numbers of all that the catalogue has), target,
component; force where there is one; formerly, set here: "project/stack" of the stack before it was renamed. Outputs: the same,
less the document, and with names, what the stack is and was called (absent in those of earlier versions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.api.submission import Consumer
from pulumi_trainer.provider.kube.errors import Problem, Refused, TrainerError
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.lifecycle.calls import (
    WHERE,
    Checked,
    Diff,
    rerouted,
    way,
)
from pulumi_trainer.provider.lifecycle.identity import program_of
from pulumi_trainer.provider.lifecycle.releases import (
    Effect,
    compare,
    held_back,
    level_of,
)

Props = dict[str, Any]

NAMES = 10
"""Jobs that are told by name; of the others, how many they are."""


class Target(Protocol):
    """What channels ask of a target."""

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]: ...
    def identity(self) -> dict[str, str]: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Says what a move does, and refuses one that takes away a release that a job uses."""
    if not olds or any(isinstance(news.get(k), Unknown) for k in ("release", "document", "runtime")):
        return Checked(news)
    if formerly := {*olds.get("formerly", ()), program_of(str(olds.get("component")))} - {_program(news), ""}:
        news = {**news, "formerly": sorted(formerly)}
    where = f"channel {news['channel']}"
    if olds["runtime"] != news["runtime"]:
        why = f"is of {olds['runtime']}, and its jobs would get {news['runtime']}"
        return Checked(news, (str(Problem(where, why, "make another channel for it")),))
    moved = olds["release"] != news["release"]
    removed = sorted(set(olds.get("releases", ())) - set(news["releases"]))
    if not moved and not removed:
        return Checked(news)
    try:
        found, unseen = connect(news["target"]).consumers(news["runtime"])
    except TrainerError as fault:
        found, unseen = [], f"who uses it elsewhere could not be seen: {fault}"
    notes = [f"{where}: {line}" for line in _move(olds, news, found)] if moved else []
    notes += [f"{where}: {unseen}"] if unseen else []
    users = [c for c in found if c.release in removed]
    failures: tuple[str, ...] = ()
    if users and not news.get("force"):
        why = f"the catalogue has no release {', '.join(removed)} any more, and {_used(users)}"
        mend = "put it back, give those jobs another release first, or set force=True"
        failures = (str(Problem(where, why, mend)),)
    return Checked(news, failures, tuple(notes))


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs, news are checked inputs."""
    renamed = "names" in olds and olds["names"] != _names(news)
    return Diff(renamed or _kept(olds) != _kept(news) or way(olds) != way(news))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    return str(inputs["channel"]), _outputs(inputs, inputs["target"], connect)


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    return _outputs(inputs, {**inputs["target"], **rerouted(outputs, inputs)["target"]}, connect)


def read(outputs: Props, _connect: Connect) -> tuple[Props | None, list[str]]:
    """As it was written: nothing of a channel is anywhere but in its stack."""
    return outputs, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Remove the channel.

    Raises:
        Refused: A job takes its releases from the channel, which has no `force`.
    """
    if refused := removal_refusals(outputs, connect, lambda _: True):
        raise Refused(*refused)
    return []


def removal_refusals(outputs: Props, connect: Connect, uses: Callable[[str], bool]) -> list[Problem]:
    """Return why a channel cannot be removed.

    Args:
        outputs: Of the channel.
        uses: Tells of the namespace/name of a job that uses it now whether it will then.
    """
    if outputs.get("force"):
        return []
    found, _ = connect(outputs["target"]).consumers(outputs["runtime"])
    users = [c for c in found if _takes(c, outputs["channel"], outputs.get("names")) and uses(c.where)]
    hint = "remove those jobs first, or set force=True and run `pulumi up` before it is removed"
    return [Problem(f"channel {outputs['channel']}", _used(users), hint)] if users else []


def runtime_notes(olds: Props, news: Props, connect: Connect) -> list[str]:
    """What a changed runtime of mode trainer does to jobs, and which were made from it."""
    before, after = olds.get("document"), news["document"]
    if before is None or first_unknown([before, after]) is not None or before.get("spec") == after.get("spec"):
        return []
    where = f"{after['kind']} {after['metadata']['name']}"
    found = compare(before, after)
    lines = [f"it changes: {level_of(found)} for jobs", *_effects(found)]
    try:
        jobs, unseen = connect(news["target"]).consumers(after["metadata"]["name"])
    except TrainerError as fault:
        jobs, unseen = [], f"who uses it could not be seen: {fault}"
    lines += [f"jobs here that keep what they were made with until they run again: {len(jobs)}"] if jobs else []
    lines += [f"  {named(job.where for job in jobs)}"] if jobs else []
    return [f"{where}: {line}" for line in [*lines, *([unseen] if unseen else [])]]


def _effects(found: Sequence[Effect]) -> list[str]:
    shown = [f"  {effect.level} {effect}" for effect in found[:5]]
    return [*shown, f"  and {len(found) - 5} more"] if len(found) > 5 else shown


def named(jobs: Iterable[str]) -> str:
    """The first of them, and how many more."""
    found = sorted(jobs)
    return ", ".join(found[:NAMES]) + (f" and {len(found) - NAMES} more" if len(found) > NAMES else "")


def _move(olds: Props, news: Props, found: Sequence[Consumer]) -> list[str]:
    before, after = olds["release"], news["release"]
    effects = compare(olds["document"], news["document"])
    lines = [f"{news['runtime']} {before} => {after}: {level_of(effects)} for jobs"]
    lines += _effects(effects)
    names = _names(news)
    mine = [c for c in found if _takes(c, news["channel"], names)]
    groups: dict[str, list[str]] = {}
    for job in mine:
        if job.release == after:
            said = f"on {after} already"
        elif held_back(job.follow, job.release, after, level_of(effects)):
            said = f'staying with {job.release} (follow="{job.follow}")'
        else:
            said = "on their next run, or at once where interrupt allows it"
        groups.setdefault(said, []).append(_shown(job, news))
    lines.append(f"jobs here that take releases from it: {len(mine)}")
    lines += [f"  {len(jobs)} {said}: {named(jobs)}" for said, jobs in sorted(groups.items())]
    if others := [_shown(c, news) for c in found if not _takes(c, news["channel"], names)]:
        lines.append(f"jobs with {news['runtime']} and without the channel, which keep what they have: {len(others)}")
        lines.append(f"  {named(others)}")
    return lines


def _takes(job: Consumer, channel: str, names: Sequence[str] | None) -> bool:
    """Return whether a job takes its releases from a channel of that name, and of a stack that is or was called so. What is not
    known counts: jobs and channels of earlier versions, and jobs of another stack than the channel."""
    return job.channel == channel and (not names or job.channel_of in ("", *names))


def _names(props: Props) -> list[str]:
    return [name for name in (_program(props), *props.get("formerly", ())) if name]


def _program(props: Props) -> str:
    return program_of(str(props.get("component") or ""))


def _shown(job: Consumer, news: Props) -> str:
    return f"{job.where} (of this stack)" if job.stack and job.stack == news["target"].get("sweep") else job.where


def _used(users: Sequence[Consumer]) -> str:
    running = sum(not c.ended for c in users)
    count = "1 job uses it" if len(users) == 1 else f"{len(users)} jobs use it"
    return f"{count}, {running or 'none'} of which may still run: {named(f'{c.where} ({c.release})' for c in users)}"


def _kept(props: Props) -> Props:
    return {k: props.get(k) for k in ("channel", "runtime", "release", "releases", "force", "digest")}


def _outputs(inputs: Props, target: Mapping[str, Any], connect: Connect) -> Props:
    identity = connect(target).identity()
    where = {**{k: v for k, v in target.items() if k in WHERE}, **identity}
    return {**_kept(inputs), "names": _names(inputs), "target": where}
