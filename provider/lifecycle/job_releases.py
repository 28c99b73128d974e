"""What another release of its runtime means for a job, and for one that follows a channel."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.lifecycle.connection import with_current_connection
from pulumi_trainer.provider.lifecycle.interruption import interrupt, may_interrupt
from pulumi_trainer.provider.lifecycle.job_changes import new_run
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.resource import Checked
from pulumi_trainer.provider.lifecycle.target import Connect
from pulumi_trainer.provider.trainer.catalog.versions import Level
from pulumi_trainer.provider.trainer.runtime_releases import effects, follow_refusal, level_of


def has_moved(olds: JobInputs, news: JobInputs) -> bool:
    """Return whether the channel that a job follows has another release than the job."""
    return olds.release != news.release and "channel" in news.runtime


def check_channel_move(olds: JobInputs, news: JobInputs, connect: Connect) -> Checked[JobInputs]:
    """Return the checked inputs of a job whose channel has another release: the job stays as it is, or it is replaced if it is
    running and interrupt="allow" is set."""
    found = effects(olds.documents, news.documents)
    summary = _summary(olds, news, found)
    kept = with_current_connection(olds, news)
    if olds.release:
        why = _refusal(olds, news, level_of(found))
        if why:
            return Checked(kept, notes=(f"{summary}. No change: {why}",))
    how = news.interrupt
    if how == "checkpoint" and not saves_checkpoints(olds.documents):
        why = 'it has no checkpoint policy, which interrupt="checkpoint" needs'
        return Checked(kept, notes=(f"{summary}. On its next run: {why}",))
    if not may_interrupt(olds, news):
        return Checked(kept, notes=(f"{summary}. On its next run: another run= key starts one",))
    try:
        status = connect(olds.target).jobs.status(olds.namespace, olds.name)
    except TrainerError as fault:
        return Checked(kept, notes=(f"{summary}. On its next run: it is unknown whether it runs now: {fault}",))
    if status is None or status.terminal or not olds.whose.owns(status.whose):
        phase = "gone"
        if status is not None:
            phase = status.phase
        return Checked(
            kept, notes=(f"{summary}. On its next run: it is {phase}, and a finished job does not run again by itself",)
        )
    replaced = f'{summary}. Replaced: it is {status.phase} and has interrupt="{how}"'
    return Checked(new_run(olds, news), notes=(replaced, *interrupt(olds, news, [], connect).notes))


def _refusal(olds: JobInputs, news: JobInputs, effect: Level = "none") -> str:
    """Return why a job does not take a release of its channel; empty if it does."""
    withdrawn = news.runtime.get("left") == olds.release
    return follow_refusal(news.runtime["follow"], olds.release, news.release, effect, withdrawn=withdrawn)


def _summary(olds: JobInputs, news: JobInputs, found: list[Any]) -> str:
    """Return which release a job has, which one its channel has, and what differs. found: Effects of the release on the job."""
    shown = ""
    if found:
        shown = f": {join_names([*map(str, found)], 1)}"
    summary = f"{olds.where}: {news.runtime['channel']} has {news.runtime['name']} {news.release}"
    return f"{summary}, but this job has {olds.release or 'none of its releases'} ({level_of(found)}{shown})"


def unavailable_release(olds: JobInputs, news: JobInputs) -> str:
    """Return why a new run must not use the release that it was rendered with; empty if it may.

    A program renders a job that does not follow its channel with the job's own release if it can.
    """
    before, after, runtime = olds.release, news.release, news.runtime
    if "channel" not in runtime or not before or olds.runtime.get("name") != runtime["name"]:
        return ""
    why = _refusal(olds, news)
    if not why:
        return ""
    return (
        f"{olds.where}: channel {runtime['channel']} has {runtime['name']} {after}, and {why}. The job's own release"
        f" {before} is not available: either the channel no longer has it, or the job's record could not be read."
        f' Restore the release in the catalogue, or set follow="any", or runtime="{runtime["name"]}@RELEASE"'
    )


def changed_runtime_note(olds: JobInputs, news: JobInputs) -> tuple[str, ...]:
    """Return a note if the runtime has changed since the job was created."""
    before, after = olds.runtime, news.runtime
    if not before or not after or before["digest"] == after.get("digest") or isinstance(after.get("digest"), Unknown):
        return ()
    return (
        f"{olds.where} keeps the runtime that it was created with: {after['name']} has changed"
        " since; give the TrainJob another run= key to run it again with the new one",
    )


def runtime_changes(olds: JobInputs, news: JobInputs) -> list[str]:
    """Return the change of the runtime, as text, unless the job does not follow its channel so far."""
    before, after = olds.runtime, news.runtime
    if before.get("digest") in (None, after.get("digest")) or isinstance(after.get("digest"), Unknown):
        return []
    if has_moved(olds, news):
        level = level_of(effects(olds.documents, news.documents))
        if _refusal(olds, news, level):
            return []
    shown = [f"{each.get('release') or ''} ({each['digest']})".strip() for each in (before, after)]
    return [f"runtime {after['name']} {shown[0]} -> {shown[1]}"]
