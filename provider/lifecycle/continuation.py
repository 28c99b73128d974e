"""Which run the new run of a job continues, in one sentence of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pulumi_trainer.provider.api.checkpoints import saves_checkpoints
from pulumi_trainer.provider.api.lineage import CHANGED, CREATED, Continuation, choose_continued, find_run, follower
from pulumi_trainer.provider.api.retention import outdated_lineages
from pulumi_trainer.provider.api.runs import BATCH, Identity, Run
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.saved_checkpoints import saved_checkpoints
from pulumi_trainer.provider.lifecycle.target import Target


def new_identity_input(inputs: JobInputs) -> dict[str, Any]:
    """Return what is known of the first run of a job."""
    return {"cause": CREATED, "place": inputs.place}


def identity_input(inputs: JobInputs, earlier: list[Run]) -> dict[str, Any]:
    """Return what is known of a new run of a job, before its target creates it.

    Args:
        earlier: The earlier runs of the job, the newest last.

    Raises:
        Invalid: `resume` or `fork` names a run that the job does not have.
    """
    if isinstance(inputs.place, Unknown):
        return {"cause": CHANGED, "place": inputs.place}
    return _choose(earlier, inputs).identity(CHANGED, inputs.place).to_dict()


def _choose(earlier: list[Run], inputs: JobInputs) -> Continuation:
    return choose_continued(earlier, inputs.resume, inputs.place, inputs.fork)


def continuation_note(olds: JobInputs, news: JobInputs, target: Target) -> tuple[str, str]:
    """Return which run a new run of a job continues, and from which step, as its target shows it now.

    Returns:
        The sentence, empty if the job keeps nothing for its next run; and where the checkpoints are of an unfinished run that
        the new one does not continue because it looks elsewhere, else empty.

    Raises:
        Invalid: `resume` or `fork` names a run that the job does not have.
    """
    where, other, place = olds.where, news.where, news.place
    if not place and not olds.place:
        return "", ""
    if where == other and isinstance(place, Unknown):
        return f"{where}: which run the new run continues is known when the place of its checkpoints is", ""
    try:
        earlier = target.jobs.runs(olds.namespace, olds.name)
    except TrainerError as fault:
        return f"{where}: which run the new run continues is not known: {fault}", ""
    if where != other and news.fork is not None:
        find_run([], news.fork["run"], "fork.run")
    if where != other:
        has_succeeded = bool(earlier) and earlier[-1].phase == Phase.SUCCEEDED
        left = "" if has_succeeded else text(olds.place)
        return f"{other} starts anew: the runs of {where} belong to a job of another name", left
    found = _choose(earlier, news)
    removal = _removal(earlier, found.identity(CHANGED, place), news)
    _check_batch(found.forked or found.run, news)
    if found.forked is not None and news.fork is not None:
        return (
            f"{where}: the new run starts anew {_fork_step(news.fork, found.forked, earlier, olds, target)}{removal}",
            "",
        )
    if found.run is not None:
        return (
            f"{where}: the new run continues run {found.run.id} {_from_step(olds, found.run, earlier, target)}{removal}",
            "",
        )
    why = found.why or "no earlier run is recorded"
    return f"{where}: the new run starts anew: {why}{removal}", found.left


def _removal(earlier: list[Run], identity: Identity, news: JobInputs) -> str:
    """Return whose folders a new run removes, as a sentence; empty for none."""
    if news.workers:  # they are in the volumes of other clusters
        return ""
    outdated = outdated_lineages(earlier, identity, news.kept_runs)
    if not outdated:
        return ""
    runs = dict.fromkeys(run.id for run in earlier if run.lineage in outdated)
    whose = ", ".join(runs)  # all of them, since what goes does not come back
    return f". It removes output and checkpoints of {plural(len(runs), 'run')}: {whose} (keep_runs={news.kept_runs})"


def _check_batch(run: Run | None, news: JobInputs) -> None:
    """Raise an error if a run takes a checkpoint whose step would be another place in its data.

    Raises:
        Invalid: Epochs decide how many steps there are, and the batch has changed.
    """
    before = run.inputs.get(BATCH) if run is not None else None
    now = section(news.run_inputs).get(BATCH)
    if run is None or not before or not now or before == now:
        return
    why = f"run {run.id} had batches of {before}, this one has {now}, and epochs decide how many steps there are"
    hint = "keep ranks, batch size and accumulation, or give max_steps in place of epochs; resume=False starts anew"
    raise Invalid(
        Problem("trainer.config", f"{why}: the step of its checkpoint would be another place in the data", hint)
    )


def _from_step(olds: JobInputs, run: Run, earlier: list[Run], target: Target) -> str:
    """Return from which step a run continues another one."""
    if not saves_checkpoints(olds.documents):
        return "in its folder, where a program that looks finds the files of that run. resume=False starts anew"
    status: JobStatus | None = None
    if run == earlier[-1]:
        with suppress(TrainerError):
            status = target.jobs.status(olds.namespace, olds.name)
    try:
        steps = [*saved_checkpoints(olds, run, target)]
    except TargetFault as fault:
        return f"{_reported_step(status, target)}: {fault}. resume=False starts anew"
    if not steps and run.fork:
        return f"in its folder, which has no complete checkpoint: training starts from {_checkpoint_of(run.fork)}"
    if not steps:
        return "in its folder, which has no complete checkpoint: training starts at step 0"
    newest = f"from its newest checkpoint, which is of step {steps[-1]:,}"
    progress = (status.progress or {}) if status is not None else {}
    if (progress.get("step"), progress.get("progressPercentage")) == (steps[-1], 100):
        return f"{newest} and its last: unless this run has more steps or epochs, nothing is left to do. resume=False starts anew"
    now = " now" if status is not None and not status.terminal else ""
    return f"{newest}{now}. resume=False starts anew"


def _reported_step(status: JobStatus | None, target: Target) -> str:
    """Return from which step a run continues one whose checkpoints cannot be read from here, as far as that one has reported."""
    progress: dict[str, Any] | None = None
    if status is not None:
        with suppress(TrainerError):
            progress = target.jobs.progress(status)
        progress = progress or status.progress
    saved = section(progress, "checkpoint").get("step")
    if saved is None:
        return "from its newest checkpoint; whether it has one is not known"
    return f"from its newest checkpoint, of step {saved:,} as far as the job has reported"


def _checkpoint_of(fork: str) -> str:
    """Return the checkpoint that a fork starts from, as text. fork: `Run.fork`."""
    run, _, step = fork.partition("@")
    return f"the checkpoint of step {step} of run {run}" if step else f"the newest checkpoint of run {run}"


def _fork_step(fork: Mapping[str, Any], run: Run, earlier: list[Run], olds: JobInputs, target: Target) -> str:
    """Return from which checkpoint a fork starts: one that its run has saved, and none of those that came after it.

    Raises:
        Invalid: The run has no such checkpoint.
    """
    step = fork.get("step")
    which = "the newest checkpoint" if step is None else f"the checkpoint of step {step:,}"
    later = follower(earlier, run)
    if later and step is None and (run.place.startswith("s3://") or olds.target.get("kind") != "local"):
        why = f"run {later.id} went on in the folder of run {run.id}, and its newest checkpoint may be of that one"
        raise Invalid(Problem("fork.step", why, f"give the step of a checkpoint that run {run.id} has saved"))
    try:
        saved = saved_checkpoints(olds, run, target)
    except TargetFault as fault:
        return f"from {which} of run {run.id}, if it is there: {fault}"
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
    return f"from {which} of run {run.id}"


def _shown_steps(steps: list[int]) -> str:
    return ", ".join(f"{each:,}" for each in steps) or "none is there"
