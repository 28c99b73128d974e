"""The identity of a run, and the lineage that it belongs to: a run that started anew, and all runs that continue from it.

The runs of a lineage share one folder below output and checkpoints. Rendered objects have placeholders for the names that only a
target can give, when it creates the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_FOLDER, CHECKPOINT_REMOVE, FORK_FOLDER
from pulumi_trainer.provider.jobs.manual import STOPPED
from pulumi_trainer.provider.jobs.retention import REMOVED, outdated_lineages, shorten_runs
from pulumi_trainer.provider.jobs.runs import Identity, Run, resumed_step
from pulumi_trainer.provider.jobs.status import NOT_CREATED, OUTCOME_UNKNOWN, Phase
from pulumi_trainer.provider.jobs.submission import MAIN, Objects, Submission
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, join_names

RUN_ID_ENV = "TRAINER_RUN_ID"
"""Environment variable with the id of the run."""
ASSIGNED = "assigned-when-created"
"""Stands in rendered objects for the id of the run, and for the folder of its lineage."""
FORKED = "forked-when-created"
"""Stands in rendered objects for the folder of the lineage that a fork takes its first checkpoint from."""
UNFINISHED = "unfinished"
"""Value of `resume`: a new run continues from the run before it, unless that has succeeded."""
CREATED, CHANGED, RERUN = "created", "changed", "rerun"
"""Causes of a run: it is the first one of its job, a change of the program needs it, or `pulumi-trainer rerun` started it."""
INTERRUPTED = (STOPPED, "SupervisorLost", OUTCOME_UNKNOWN, NOT_CREATED)
"""Reasons of runs that have ended without an end of their program, or that `rerun` has recorded and not created."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_identity(earlier: Sequence[Run], now: float, wanted: Identity) -> Identity:
    """Return the identity of a new run. wanted: What is known of the run: without a lineage it starts anew; with an id it is
    that run, which goes on."""
    newest = max((int(run.id or "0", 36) for run in earlier), default=0)
    name = wanted.id or _base36(max(int(now), newest + 1))
    return replace(wanted, id=name, lineage=wanted.lineage or name)


def started(submission: Submission, now: float) -> Submission:
    """Return the submission of a run that is created now, with its identity, and with what its record keeps of earlier runs."""
    keep, identity = submission.keep_runs, new_identity(submission.earlier, now, submission.identity)
    outdated = outdated_lineages(submission.earlier, identity, keep) if submission.removes_folders else []
    removed = dict.fromkeys((*identity.removed_lineages, *outdated))  # a run that goes on has removed some before
    identity = replace(identity, removed=",".join(removed))
    earlier = shorten_runs(submission.earlier, identity, keep)
    return identified(replace(submission, earlier=earlier), identity)


def identified(submission: Submission, identity: Identity) -> Submission:
    """Return the submission of a run with its identity, which its rendered objects contain as well."""
    return replace(submission, identity=identity, objects=with_identity(submission.objects, identity))


def with_identity(objects: Objects, identity: Identity) -> Objects:
    """Return rendered objects with the id of the run and the folder of its lineage in place of `ASSIGNED`."""
    return {
        key: _fill_in_identity(document, identity) if key.partition("/")[0] in MAIN else document
        for key, document in objects.items()
    }


def _fill_in_identity(value: Any, identity: Identity) -> Any:
    if isinstance(value, list):
        return [_fill_in_identity(each, identity) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("name") == RUN_ID_ENV and value.get("value") == ASSIGNED:
        return {**value, "value": identity.id}
    if value.get("name") == CHECKPOINT_REMOVE and value.get("value") == ASSIGNED:
        return {**value, "value": identity.removed}
    if value.get("name") in (CHECKPOINT_FOLDER, FORK_FOLDER) and isinstance(value.get("value"), str):
        return {**value, "value": _in_folder(value["value"], identity)}
    if value.get("subPath") in (ASSIGNED, FORKED):
        return {**value, "subPath": _in_folder(value["subPath"], identity)}
    return {name: _fill_in_identity(each, identity) for name, each in value.items()}


def _in_folder(path: str, identity: Identity) -> str:
    """Return a path whose last part may stand for the folder of a lineage, with that folder."""
    above, slash, name = path.rpartition("/")
    found = {ASSIGNED: identity.lineage, FORKED: identity.origin}.get(name, name)
    return f"{above}{slash}{found}"


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text


@dataclass(frozen=True)
class Continuation:
    """Which run a new run continues.

    Args:
        why: Why it starts anew, and how it could continue; empty if it continues.
        succeeded: Id of the run that it does not continue because that one has succeeded; else empty.
        left: Place of the checkpoints of the run that it does not continue because it looks elsewhere; else empty.
        forked: The run that it starts anew from; None if it is no fork.
        fork: Run and step of that, as text.
    """

    run: Run | None = None
    why: str = ""
    left: str = ""
    forked: Run | None = None
    fork: str = ""
    succeeded: str = ""

    def identity(self, cause: str, place: str) -> Identity:
        """Return what is known of the new run before it is created. cause: `CREATED`, `CHANGED` or `RERUN`."""
        if self.forked is not None:
            origin = self.forked
            return Identity(parent=origin.id, cause=cause, place=place, fork=self.fork, origin=origin.lineage)
        if self.run is None:
            return Identity(cause=cause, place=place)
        run = self.run
        return Identity(lineage=run.lineage, parent=run.id, cause=cause, place=place, fork=run.fork, origin=run.origin)


def rerun_identity(run: Identity, phase: str, reason: str) -> Identity:
    """Return what is known of the run that `pulumi-trainer rerun` starts.

    A run that something has interrupted goes on, whatever `resume` says; one that its program has failed is continued by another
    one; and one that has succeeded is followed by one that starts anew.
    """
    if phase == Phase.SUCCEEDED:
        return replace(run, id="", lineage="", parent=run.fork.partition("@")[0], cause=RERUN, removed="")
    if reason in INTERRUPTED:
        return run
    return replace(run, id="", parent=run.id, cause=RERUN, removed="")


def choose_continued(
    earlier: Sequence[Run], resume: bool | str, place: str, fork: Mapping[str, Any] | None = None
) -> Continuation:
    """Return which run a new run continues.

    Args:
        fork: `run` and `step` of the argument `fork` of the job; None without one.

    Raises:
        Invalid: `resume` or `fork` names a run that the job does not have, or `fork` one that kept its checkpoints elsewhere.
    """
    if fork is not None:
        return _choose_fork(earlier, place, fork)
    if isinstance(resume, str) and resume != UNFINISHED:
        run = _newest_of_lineage(earlier, find_run(earlier, resume, "resume"))
    elif not earlier or not earlier[-1].id:
        return Continuation()
    else:
        run = earlier[-1]
    if resume is False:
        return Continuation(why="resume=False")
    if resume == UNFINISHED and run.phase == Phase.SUCCEEDED:
        hint = 'resume=True continues it, for more steps or epochs of the same training, and resume="ID" another run'
        return Continuation(why=f"run {run.id} has succeeded; {hint}", succeeded=run.id)
    if run.place != place:
        return Continuation(why=_why_not_there(run, earlier), left=run.place)
    return Continuation(run)


def _newest_of_lineage(earlier: Sequence[Run], run: Run) -> Run:
    """Return the last of the runs that share the folder of a run: who continues there continues that one."""
    return next((each for each in reversed(earlier) if each.lineage and each.lineage == run.lineage), run)


def follower(earlier: Sequence[Run], run: Run) -> Run | None:
    """Return the run that came next into the folder of a run; None if it is the last there."""
    later = [
        each for each in earlier if each.lineage == run.lineage and each.id != run.id and each.created > run.created
    ]
    return later[0] if later else None


def _choose_fork(earlier: Sequence[Run], place: str, fork: Mapping[str, Any]) -> Continuation:
    """Return which run a new run forks, or that it continues the run before it, which is the same fork and has not succeeded."""
    run = find_run(earlier, fork["run"], "fork.run")
    name = fork_name(fork)
    last = earlier[-1]
    if last.fork == name and last.phase != Phase.SUCCEEDED and last.place == place:
        return Continuation(last)
    if run.place != place:
        hint = "" if REMOVED in run.note else "keep output= and checkpoint= as that run had them"
        raise Invalid(Problem("fork.run", _why_not_there(run, earlier), hint))
    return Continuation(forked=run, fork=name)


def _why_not_there(run: Run, earlier: Sequence[Run]) -> str:
    """Return why a new run does not find the checkpoints of an earlier one."""
    if REMOVED not in run.note:
        return f"run {run.id} kept its checkpoints in {run.place or 'no volume'}, which this run does not use"
    left = [*dict.fromkeys(each.id for each in earlier if each.place)]
    return (
        f"output and checkpoints of run {run.id} were removed (keep_runs); there are those of runs {join_names(left)}"
    )


def fork_name(fork: Mapping[str, Any]) -> str:
    """Return run and step of a fork as text: RUN@STEP, or RUN for its newest checkpoint."""
    step = fork.get("step")
    return fork["run"] if step is None else f"{fork['run']}@{step}"


def step_of_fork(fork: str, progress: Mapping[str, Any] | None) -> int | None:
    """Return the step of the checkpoint that a fork starts from; None if neither its argument nor its program has named it."""
    step = fork.partition("@")[2]
    return int(step) if step.isdecimal() else resumed_step(progress)


def find_run(runs: Sequence[Run], name: str, where: str) -> Run:
    for run in runs:
        if run.id == name:
            return run
    known = [*dict.fromkeys(run.id for run in runs if run.id)]
    hint = "the job has not run yet: leave it out"
    if known:
        hint = f"{did_you_mean(name, known)} the job has the runs {', '.join(known)}".strip()
    raise Invalid(Problem(where, f"no run {name!r} is recorded for this job", hint))


def result_of(output: str, lineage: str, phase: str, earlier: Sequence[Run]) -> str:
    """Return the folder with the result of a job: that of the newest lineage that has succeeded; if none has, that of its run."""
    if phase == Phase.SUCCEEDED or not lineage or output.rpartition("/")[2] != lineage:
        return output
    best = next((run.lineage for run in reversed(earlier) if run.phase == Phase.SUCCEEDED), lineage)
    return folder_of(output, best)


def folder_of(output: str, lineage: str) -> str:
    """Return the folder of another lineage beside that of an output."""
    return f"{output.rpartition('/')[0]}/{lineage}"
