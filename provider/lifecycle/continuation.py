"""Which run the new run of a job continues, in one sentence of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.jobs.lineage import (
    CHANGED,
    CREATED,
    UNFINISHED,
    Continuation,
    choose_continued,
    find_run,
    follower,
)
from pulumi_trainer.provider.jobs.retention import removal
from pulumi_trainer.provider.jobs.runs import BATCH, Identity, Run
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import number, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.saved_checkpoints import saved_checkpoints
from pulumi_trainer.provider.lifecycle.target import Target


def new_identity_input(inputs: JobInputs) -> dict[str, Any]:
    """Return what is known of the first run of a job."""
    return {"cause": CREATED, "place": inputs.place}


def identity_input(inputs: JobInputs, earlier: list[Run]) -> dict[str, Any]:
    """Return what is known of a new run of a job, before its target creates it."""
    if isinstance(inputs.place, Unknown):
        return {"cause": CHANGED, "place": inputs.place}
    return _choose(earlier, inputs).identity(CHANGED, inputs.place).to_dict()


def _choose(earlier: list[Run], inputs: JobInputs) -> Continuation:
    return choose_continued(earlier, inputs.resume, inputs.place, inputs.fork)


@dataclass(frozen=True)
class Start:
    """Where a new run of a job starts.

    Args:
        note: Which run it continues, and from which step, as a sentence; empty if the job keeps nothing for its next run.
        left: Where the checkpoints are of an unfinished run that it does not continue because it looks elsewhere; else empty.
        unused: Why it uses nothing of the run before it; empty if it continues that one, None if that is not known.
        checkpoints: Those of the run before it from which it starts, by step, with the time when they were saved, 0 if not
            known; None if they cannot be read.
    """

    note: str = ""
    left: str = ""
    unused: str | None = ""
    checkpoints: Mapping[int, float] | None = None


def find_start(olds: JobInputs, news: JobInputs, target: Target, status: JobStatus | None) -> Start:
    """Return where a new run of a job starts, as its target shows it now."""
    where, other, place = olds.where, news.where, news.place
    if where == other and not place and not olds.place:
        with suppress(TrainerError):
            removed = _removal(target.jobs.runs(olds.namespace, olds.name), Identity(), news)
            return Start(f"{where}: the new run {removed}" if removed else "")
    if not place and not olds.place:
        return Start()
    if where == other and isinstance(place, Unknown):
        return Start(
            f"{where}: which run the new run continues is known when the place of its checkpoints is", unused=None
        )
    try:
        earlier = target.jobs.runs(olds.namespace, olds.name)
    except TrainerError as fault:
        return Start(f"{where}: which run the new run continues is not known: {fault}", unused=None)
    if where != other and news.fork is not None:
        find_run([], news.fork["run"], "fork.run")
    if where != other:
        has_succeeded = bool(earlier) and earlier[-1].phase == Phase.SUCCEEDED
        left = "" if has_succeeded else text(olds.place)
        return Start(f"{other} starts anew: the runs of {where} belong to a job of another name", left, _ANEW)
    if not earlier:
        return _start_without_record(where, news)
    found = _choose(earlier, news)
    removed = _removal(earlier, found.identity(CHANGED, place), news)
    also = f". It {removed}" if removed else ""
    _check_batch(found.forked or found.run, news)
    before = found.forked or found.run
    if before is None:
        fork = ""
        if found.succeeded and saves_checkpoints(news.documents):
            fork = f'; fork=Fork("{found.succeeded}", step, reset=["lr"]) starts anew from its checkpoint'
        return Start(f"{where}: the new run starts anew: {found.why}{fork}{also}", found.left, _ANEW)
    if found.forked is not None and news.fork is not None:
        start = _fork_step(news.fork, before, earlier, olds, target)
        does = "starts anew"
    else:
        start = _from_step(olds, before, target, status if before == earlier[-1] else None, news)
        does = f"continues run {before.id}"
    unused = "" if before.lineage == earlier[-1].lineage else f"the new run {does}"
    return replace(start, note=f"{where}: the new run {does} {start.note}{also}", unused=unused)


_ANEW = "the new run starts anew"


def _start_without_record(where: str, news: JobInputs) -> Start:
    """Return that a new run of a job that has run before starts anew, since the record of its runs is gone."""
    gone = "the record of the earlier runs is gone"
    for asked, is_asked in (("fork", news.fork is not None), ("resume", news.resume not in (False, UNFINISHED))):
        if is_asked:
            raise Invalid(Problem(asked, f"cannot be followed: {gone}", f"without {asked}= the new run starts anew"))
    return Start(f"{where}: the new run starts anew: {gone}, and with it which checkpoints they have", unused=_ANEW)


def _removal(earlier: list[Run], identity: Identity, news: JobInputs) -> str:
    """Return what a new run removes, without a subject; empty for nothing. Folders in volumes of other clusters stay."""
    return removal(earlier, identity, news.kept_runs, removes_folders=not news.workers)


def _check_batch(run: Run | None, news: JobInputs) -> None:
    """Raise an error if a run takes a checkpoint whose step would be another place in its data."""
    before = run.inputs.get(BATCH) if run is not None else None
    now = section(news.run_inputs).get(BATCH)
    if run is None or not before or not now or before == now:
        return
    why = f"run {run.id} had batches of {before}, this one has {now}, and epochs decide how many steps there are"
    hint = "keep ranks, batch size and accumulation, or give max_steps in place of epochs; resume=False starts anew"
    raise Invalid(
        Problem("trainer.config", f"{why}: the step of its checkpoint would be another place in the data", hint)
    )


def _from_step(olds: JobInputs, run: Run, target: Target, status: JobStatus | None, news: JobInputs) -> Start:
    """Return from which step a run continues another one."""
    if not saves_checkpoints(olds.documents):
        return Start("in its folder, where a program that looks finds the files of that run. resume=False starts anew")
    try:
        saved = saved_checkpoints(olds, run, target)
    except TargetFault as fault:
        return Start(f"{_reported_step(status)}: {fault}. resume=False starts anew")
    if not saved:
        begins = f"from {_checkpoint_of(run.fork)}{_reset(news.fork)}" if run.fork else "at step 0"
        return Start(f"in its folder, which has no complete checkpoint: training starts {begins}", checkpoints=saved)
    last = max(saved)
    newest = f"from its newest checkpoint, which is of step {last:,}"
    progress, most = section(status.progress) if status is not None else {}, _most_steps(news)
    if most is not None and most > last:
        newest += f" of {most:,}"
    if status is not None and not status.terminal:
        newest += " now"
    if most is not None and most <= last:
        newest += f", but max_steps is {most:,}: nothing is left to do"
    elif most is None and (progress.get("step"), progress.get("progressPercentage")) == (last, 100):
        newest += " and its last: unless this run has more steps or epochs, nothing is left to do"
    return Start(f"{newest}. resume=False starts anew", checkpoints=saved)


def _most_steps(inputs: JobInputs) -> int | None:
    """Return the argument `max_steps` of a job, also in the `config` of a tool; None if it does not limit the steps."""
    with suppress(ValueError, RecursionError):
        arguments = section(json.loads(section(inputs.run_inputs).get("arguments") or "{}"))
        steps = number({**arguments, **section(arguments, "config")}.get("max_steps"))
        return steps if steps > 0 else None
    return None


def _reported_step(status: JobStatus | None) -> str:
    """Return from which step a run continues one whose checkpoints cannot be read from here, as far as that one has reported."""
    saved = section(status.progress, "checkpoint").get("step") if status is not None else None
    if saved is None:
        return "from its newest checkpoint; whether it has one is not known"
    return f"from its newest checkpoint, of step {saved:,} as far as the job has reported"


def _checkpoint_of(fork: str) -> str:
    """Return the checkpoint that a fork starts from, as text. fork: `Run.fork`."""
    run, _, step = fork.partition("@")
    return f"the checkpoint of step {step} of run {run}" if step else f"the newest checkpoint of run {run}"


def with_progress(status: JobStatus, target: Target) -> JobStatus:
    """Return a status with what the job has reported by now, as far as its target shows that."""
    with suppress(TrainerError):
        return replace(status, progress=target.jobs.progress(status) or status.progress)
    return status


def _reset(fork: Mapping[str, Any] | None) -> str:
    """Return what a run leaves out of the checkpoint that it forks, as the end of a sentence; empty for nothing."""
    names = ", ".join((fork or {}).get("reset", ()))
    return f", without its {names}" if names else ""


def _fork_step(fork: Mapping[str, Any], run: Run, earlier: list[Run], olds: JobInputs, target: Target) -> Start:
    """Return from which checkpoint a fork starts: one that its run has saved, and none of those that came after it."""
    step = fork.get("step")
    which = "the newest checkpoint" if step is None else f"the checkpoint of step {step:,}"
    reset = _reset(fork)
    later = follower(earlier, run)
    if later and step is None and (run.place.startswith("s3://") or olds.target.get("kind") != "local"):
        why = f"run {later.id} went on in the folder of run {run.id}, and its newest checkpoint may be of that one"
        raise Invalid(Problem("fork.step", why, f"give the step of a checkpoint that run {run.id} has saved"))
    try:
        saved = saved_checkpoints(olds, run, target)
    except TargetFault as fault:
        known = None if step is None else {step: 0.0}
        return Start(f"from {which} of run {run.id}{reset}, if it is there: {fault}", checkpoints=known)
    steps = [each for each, at in saved.items() if later is None or at < later.created]
    others = saved.keys() - {*steps}
    if later and steps and step is None and others:
        why = f"run {later.id} went on in the folder of run {run.id}, which has checkpoints of both"
        raise Invalid(Problem("fork.step", why, f"step={steps[-1]} is the newest of run {run.id}"))
    if later and step in others:
        why = (
            f"the checkpoint of step {step:,} was saved after run {run.id}, by run {later.id} or one that continues it"
        )
        raise Invalid(Problem("fork.step", why, f"name that run, or a step of run {run.id}: {_shown_steps(steps)}"))
    if not steps:
        raise Invalid(Problem("fork.run", f"run {run.id} has no complete checkpoint", "fork=None starts without one"))
    if step is not None and step not in steps:
        why = f"run {run.id} has no complete checkpoint of step {step:,}"
        raise Invalid(Problem("fork.step", why, f"it has those of steps {_shown_steps(steps)}"))
    if step is None:
        which = f"the newest checkpoint, of step {steps[-1]:,},"
    at = steps[-1] if step is None else step
    return Start(f"from {which} of run {run.id}{reset}", checkpoints={at: saved[at]})


def _shown_steps(steps: list[int]) -> str:
    return ", ".join(f"{each:,}" for each in steps) or "none is there"
