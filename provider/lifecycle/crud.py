"""Checks, compares, creates, reads, updates and deletes one job, on plain data.

Inputs of a job (as `components.trainjob` writes them, frozen by `check`):
  namespace, name  of the JobSet
  objects          rendered objects, keyed "Kind/name", as `submission.to_state` has them
  digest           of what the user wrote; an equal digest means that nothing changes
  run              the user's `run` key
  fork             {run, step} of the checkpoint that a new run starts from (absent: none)
  resume           which run a new run continues: True, False or an id (absent: the one before it, unless that has succeeded)
  keepRuns         how many runs are kept in full (absent: the default)
  place            where the job keeps output and checkpoints, without the folder of a lineage (absent: nowhere)
  identity         set here: parent, lineage, cause and place of the run, as far as they are known before it is created
  runtime          {name, digest} of the runtime that was rendered; release where it has one, channel and follow of a job that
                   takes its releases from a channel: they decide whether it moves with it; of: "project/stack" of a
                   channel of the same program
  secrets          Secret name -> key -> value (absent where there are none)
  target           where the job runs: kind, identity, connection, sweep label
  interrupt        "allow": a change may replace unfinished work; "checkpoint": only that of a job with a checkpoint policy
                   (absent: it may not)
  adopt            true: adopt an equal object of that name that belongs to another owner (else absent)
  retain           true: a sweep leaves it alone (else absent)
  data             "dataset" or "model" -> {name, version} of the data that the job reads (absent where no version is known)
  arguments        JSON of the function's arguments without what is secret, where all of them travel in a Secret (else absent)
  runInputs        what identifies the inputs of the run: name -> short text
  summary          what the rendered objects ask for, for plans and policy packs
  rerunOn          the user's rerun_on (absent where it is the default)
  withoutCode      digest of what the user wrote apart from the code (absent where a change of the code starts a new run)
  earlierRuns      set here: the runs before this one, from the record of the previous one (absent where there are none)
  fills            generation of the volume that a fetch fills: in a volume that was made anew it runs again (else absent)
  component        URN of the TrainJob component
  owner            set here: identity of the job in its target
  generation       set here: counts the runs; a change that needs another run raises it
  secretRevisions  set here: "Secret/key" -> how often that value has changed in place, which a plan shows where it hides the
                   value itself (absent while none has)
  again            set here: marks that the job was deleted externally and is to be created again, or that nothing has started it
                   and `update` is to do that (else absent)
Outputs contain what diff, read and delete need, because these only receive old outputs. `drift` (path -> current value) is
present if a refresh found that the job was changed externally.

A job belongs to its owner. After another stack has adopted a job, nothing here reads, changes or deletes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.jobs.identity import owner_id, program_of
from pulumi_trainer.provider.jobs.manual import SUSPENDED
from pulumi_trainer.provider.jobs.retention import KEPT_RUNS
from pulumi_trainer.provider.jobs.runs import COMMIT, MOST_RUNS, UNKNOWN, Identity, Run, read_inputs, read_runs
from pulumi_trainer.provider.jobs.status import (
    NOT_STARTED,
    TAKE_BACK,
    UNKNOWN_END,
    JobStatus,
    Owner,
    Phase,
    Presence,
    another_job,
    may_have_ended,
)
from pulumi_trainer.provider.jobs.submission import WORKERS, Submission, from_state, main_key, secret_name
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, Refused, TrainerError, Unreadable
from pulumi_trainer.provider.kubernetes.values.accessors import items, number, only, section, text, texts, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, jobs_of
from pulumi_trainer.provider.lifecycle.changes import compare, queue_of
from pulumi_trainer.provider.lifecycle.continuation import (
    Start,
    find_start,
    identity_input,
    kept_runs,
    new_identity_input,
    with_progress,
)
from pulumi_trainer.provider.lifecycle.data import data_changes, data_notes, next_run, with_mounted_versions
from pulumi_trainer.provider.lifecycle.interruption_cost import interruption_cost, newest_checkpoint, whole_cost
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs
from pulumi_trainer.provider.lifecycle.source_changes import source_notes
from pulumi_trainer.provider.trainer.labels import patched_jobs
from pulumi_trainer.provider.trainer.runtime_releases import effects, follow_refusal, level_of

Props = dict[str, Any]

FROZEN = ("namespace", "name", "owner", "digest", "generation")
REVISIONS = "secretRevisions"
LOCATION = (
    "kind",
    "host",
    "root",
    "cluster",
    "namespace",
    "mode",
    "kubeconfig",
    "context",
    "content",
    WORKERS,
    "sweep",
)
"""Keys of `target` that identify where a job is, the connection, and the stack that the job belongs to."""
CONNECTION = ("kubeconfig", "context", "content", WORKERS)
"""Keys of `target` that only describe the connection. A change is stored; only the identity of the cluster is checked."""

MALFORMED_STATE = (KeyError, TypeError, AttributeError)
"""What functions of the lifecycle raise for a state that was edited."""
MAX_PARALLEL = "maxParallel"
"""Key of the `target` of a Target resource on this machine: how many jobs run at once. Absent: the default."""
LOG_BYTES = "logBytes"
"""Key of `target` on this machine: bytes of the log that is kept of each container. Absent: the default."""
ISOLATION = "isolation"
"""Key of `target` on this machine: what isolates containers. Absent: nothing does."""


class Target(Protocol):
    """The methods that the lifecycle needs of a target. They raise `TrainerError` if the target fails."""

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus: ...
    def check_adoption(self, submission: Submission) -> str: ...
    def update(self, submission: Submission, *, force: bool = False) -> JobStatus: ...
    def update_secrets(self, submission: Submission) -> None: ...
    def relabel(self, submission: Submission, was: Owner) -> None: ...
    def drift(self, namespace: str, name: str) -> dict[str, Any]: ...
    def identity(self) -> dict[str, str]: ...
    def status(self, namespace: str, name: str) -> JobStatus | None: ...
    def presence(self, namespace: str, name: str, beside: Collection[str]) -> Presence | None: ...
    def current_owner(self, namespace: str, name: str) -> Owner | None: ...
    def runs(self, namespace: str, name: str) -> list[Run]: ...
    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None: ...
    def progress(self, status: JobStatus) -> dict[str, Any] | None: ...
    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False
    ) -> Owner | str | None: ...


Connect = Callable[[Mapping[str, Any]], Target]


@dataclass(frozen=True)
class Checked:
    """The result of `check`.

    Args:
        inputs: Inputs to store.
        failures: Reasons to reject the change.
        notes: Notes for the user.
    """

    inputs: Props
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """The result of `diff`.

    Args:
        changes: Whether the resource changes; None if that depends on an unknown value.
        replaces: Inputs that require a new run.
        notes: Notes for the user.
    """

    changes: bool | None
    replaces: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(olds: Props, news: Props, connect: Connect, labels: Collection[str] = ()) -> Checked:
    """Return the inputs to store: everything that the user did not change stays exactly as it was.

    Rejects a change that would end an unfinished run, and every change of a job that belongs to another stack, before anything
    is touched.

    Args:
        olds: Previous inputs; empty for a new job.
        connect: Returns the target of an input `target`.
    """
    news = with_mounted_versions(olds, news)
    if "owner" not in olds:
        owner: Any = Unknown("owner")
        if not any(isinstance(news.get(k), Unknown) for k in ("component", "digest")):
            owner = owner_id(news["component"], news["digest"], news["run"])
        identity = new_identity_input(news)
        return _check_new({**news, "owner": owner, "generation": 1, "identity": identity}, connect, labels)
    presence = _presence(olds, news, connect)
    olds = _with_recorded_label(olds, news, presence)
    changed = _changed_secrets(olds, news)
    if presence is not None and presence.owner is not None and not _owner(olds).owns(presence.owner):
        inputs = with_current_connection(olds, news)
        if olds["digest"] == news["digest"] and not changed:
            return Checked(inputs)
        return Checked(inputs, failures=(f"{_where(olds)} {presence.owner.adopted_from(_owner(olds))}. {TAKE_BACK}",))
    checked = _check_existing(olds, news, presence, connect)
    same_run = checked.inputs["digest"] == olds["digest"] and checked.inputs["generation"] == olds["generation"]
    if same_run and presence is not None and presence.not_started:
        checked = replace(checked, inputs={**checked.inputs, "again": f"{_NOT_STARTED}{_next_number(olds)}"})
    if "fills" in news and checked.inputs["generation"] == olds["generation"] and "again" not in checked.inputs:
        checked = _check_fetch(olds, news, checked, changed, connect)
    secrets = _secret_inputs(olds, news, changed)
    of_source = source_notes(olds, news)
    notes = (*checked.notes, *of_source)
    if checked.inputs["generation"] != olds["generation"]:
        notes = (*_changed_inputs_note(olds, news, "code" if of_source else ""), *notes)
    if same_run and presence is not None and presence.note:
        notes = (*notes, f"{_where(olds)} was {presence.note}")
    if not checked.failures and checked.inputs["generation"] != olds["generation"]:
        if presence is not None and presence.note.startswith("suspended"):
            notes = (*notes, f"{_where(olds)} was {presence.note}; the new run starts nevertheless")
    elif not checked.failures:
        if changed:
            notes = (*notes, _secret_note(olds, changed, connect))
        if isinstance(news["digest"], Unknown):
            notes = (*notes, _unknown_note(olds, news, connect))
    inputs = {**without(checked.inputs, "retain", *CURRENT), **secrets, **only(news, CURRENT)}
    if news.get("retain"):
        inputs["retain"] = True
    failures = checked.failures or _name_conflicts(olds, inputs) or _moved_root_refusals(olds, news, inputs, presence)
    if not failures and inputs["generation"] != olds["generation"]:
        failures = tuple(f"{_where(olds)} is not replaced: {problem}" for problem in _silent_workers(olds, connect))
    if presence is not None and presence.fault:
        is_new_run = inputs["generation"] != olds["generation"]
        failures, notes = (*failures, *[presence.fault] * is_new_run), (*notes, *[presence.fault] * (not is_new_run))
    if inputs["generation"] == olds["generation"]:
        inputs = _with_label(olds, news, inputs, presence)
    return Checked(inputs, failures, notes)


def _silent_workers(props: Props, connect: Connect) -> tuple[Problem, ...]:
    """Return which worker clusters do not answer, and may go on with a job that is deleted here. props: Inputs or outputs."""
    if not workers_of(props):
        return ()
    try:
        there: Any = connect(props["target"])
        there.check_workers(props["namespace"], props["name"])
    except TrainerError as fault:
        return fault.problems
    return ()


def _secret_inputs(olds: Props, news: Props, changed: Collection[str]) -> Props:
    """Return the current secrets, and the revisions of those that have changed in place."""
    inputs: Props = {}
    if news.get("secrets"):
        inputs["secrets"] = news["secrets"]
    revisions = {**_revisions(olds)}
    for key in changed:
        revisions[key] = revisions.get(key, 0) + 1
    if revisions:
        inputs[REVISIONS] = revisions
    return inputs


def _with_recorded_label(olds: Props, news: Props, presence: Presence | None) -> Props:
    """Return the inputs of a job with the label of its target, if its record has that one: an interrupted update may have stored
    another one."""
    label = label_of(news)
    if not label or presence is None or presence.owner is None:
        return olds
    if (presence.owner.id, presence.owner.stack) != (olds["owner"], label):
        return olds
    return {**olds, "target": {**olds["target"], "sweep": label}}


def _with_label(olds: Props, news: Props, inputs: Props, presence: Presence | None) -> Props:
    """Return the inputs of a run that goes on, with the label that its objects have, also if the job has another Target resource
    now. A job that came from another stack gets a label of this one: it would otherwise be deleted with that stack's last
    target."""
    if presence is not None and presence.owner is not None:
        return with_current_label(olds, news, _with_previous_label(olds, inputs))
    return _with_previous_label(olds, inputs)


def _with_previous_label(olds: Props, inputs: Props) -> Props:
    label = olds["target"].get("sweep")
    if not label:
        return inputs
    return {**inputs, "target": {**inputs["target"], "sweep": label}}


def with_current_label(olds: Props, news: Props, inputs: Props) -> Props:
    """Return inputs with the current label and component, if the resource came from another stack (`pulumi state move`)."""
    programs = [program_of(str(each.get("component") or "")) for each in (olds, news)]
    before, now = label_of(olds), news["target"].get("sweep")
    if "" in programs or programs[0] == programs[1] or not before or not now or before == now:
        return inputs
    return {**inputs, "target": {**inputs["target"], "sweep": now}, "component": news["component"]}


def label_of(props: Props) -> str:
    """Return the label of the stack's target in inputs or outputs; empty if it has none or is not known yet."""
    return text(props["target"].get("sweep"))


def has_other_label(outputs: Props, inputs: Props) -> bool:
    """Return whether what is in the target is to get another label, perhaps one that is not known yet."""
    label = inputs["target"].get("sweep")
    return bool(label and label_of(outputs)) and label != label_of(outputs)


def _moved_root_refusals(olds: Props, news: Props, inputs: Props, presence: Presence | None) -> tuple[str, ...]:
    """Return why a new run on this machine cannot use another root folder: the previous one has its volumes, or the record of the
    previous run."""
    before, now = root(olds), root(news)
    if inputs["generation"] == olds["generation"] or not before or not now or before == now:
        return ()
    if Path(before).exists():
        if not _mounts_claims(inputs):
            return ()
        why = f"{_where(olds)} has its volumes in {before}, but the new run would be in {now}, without these volumes"
        return (f"{why}: {keep_root_hint(olds, news)}",)
    if presence is None or presence.owner is None:
        return ()
    return (
        f"{_where(olds)} has moved with its folder, from {before} to {now}: run `pulumi up` without the new run first",
    )


def keep_root_hint(olds: Props, news: Props) -> str:
    """Return what to do if the program names another root folder while the previous one still exists."""
    hint = f"keep target=Local(root={root(olds)!r})"
    if Path(root(news)).exists():
        return f"{hint}; the folder cannot be moved because {root(news)} already exists"
    return f"{hint}, or end its jobs and move the folder to {root(news)!r}"


def _mounts_claims(inputs: Props) -> bool:
    return "persistentVolumeClaim" in json.dumps(inputs["objects"], default=str)


def _name_conflicts(olds: Props, inputs: Props) -> tuple[str, ...]:
    """Return why a new run cannot have the name of the previous one, which is retained."""
    same_name = (olds["namespace"], olds["name"]) == (inputs["namespace"], inputs["name"])
    if inputs["generation"] == olds["generation"] or not same_name or not (olds.get("retain") or inputs.get("retain")):
        return ()
    hint = "give the new run another name (name=), or first remove retain_on_delete in a separate `pulumi up`"
    return (f"{_where(olds)} is kept (retain_on_delete), but a new run would have the same name: {hint}",)


def _check_new(inputs: Props, connect: Connect, labels: Collection[str]) -> Checked:
    """Return the checked inputs of a job that is new to the stack.

    They are rejected if `create` would fail because the name belongs to another job. A note says which job is adopted. If the
    target does not answer, neither is checked.
    """
    target = None
    if not any(isinstance(inputs[key], Unknown) for key in ("owner", "namespace", "name", "target")):
        target = known_target(inputs)
    if target is None:
        return Checked(inputs)
    try:
        there = connect(target)
        current_owner = there.current_owner(inputs["namespace"], inputs["name"])
        if current_owner is not None and _is_previous_run(inputs, current_owner, labels):
            return Checked(_with_earlier_runs(inputs, there.runs(inputs["namespace"], inputs["name"])))
        if isinstance(inputs.get("resume"), str) or "fork" in inputs:
            _with_earlier_runs(inputs, [])
        if inputs.get("adopt"):
            taken = there.check_adoption(submission_of({**inputs, "target": target}))
            if not taken:
                return Checked(inputs)
            return Checked(inputs, notes=(f"{_where(inputs)}: {taken}",))
    except (Conflict, Invalid) as refused:
        return Checked(inputs, (str(refused),))
    except TrainerError:
        return Checked(inputs)
    if current_owner is None:
        return Checked(inputs)
    why = f"exists and belongs to {current_owner.called_by(_owner(inputs))}"
    return Checked(inputs, (str(Problem(_where(inputs), why, _OTHER_NAME)),))


def _is_previous_run(inputs: Props, current_owner: Owner, labels: Collection[str]) -> bool:
    """Return whether a job of this stack has the name: the engine checks a replacement without its old inputs, while the previous
    run still exists."""
    label = label_of(inputs)
    if current_owner.id == inputs["owner"] and current_owner.stack in ("", label):
        return True
    if not current_owner.stack:  # a retained job
        return bool(inputs.get("retain")) and not inputs.get("adopt")
    return current_owner.stack in (label, *labels)


def recorded_runs(olds: Props, inputs: Props) -> Props:
    """Return the input `earlierRuns` of a new run from previous inputs, for a job whose record is gone: a replacement has failed
    after its deletion. How the last of these runs has ended, and when it was created, is not known.

    Args:
        olds: Previous inputs; empty for a new job.
    """
    same_name = all(olds.get(key) == inputs.get(key) for key in ("namespace", "name"))
    if not olds.get("runInputs") or not same_name or olds.get("generation") == inputs.get("generation"):
        return {}
    last = Run(olds["run"], UNKNOWN, inputs=read_inputs(olds["runInputs"]))
    return {"earlierRuns": [*olds.get("earlierRuns", []), last.to_dict()][-MOST_RUNS:]}


def _with_earlier_runs(inputs: Props, found: list[Run]) -> Props:
    """Return the inputs of a new run with the runs before it, which its record keeps. A run that has not ended is ended by it.

    Raises:
        Invalid: `resume` or `fork` names a run that the job does not have.
    """
    earlier = []
    for run in found:
        if run.phase not in _ENDS:
            run = replace(run, phase="Interrupted")
        earlier.append(run)
        _histories[inputs["owner"], run.id] = run.history
    recorded = [run.to_dict() for run in earlier]
    return {**inputs, "earlierRuns": recorded, "identity": identity_input(inputs, earlier)}


_histories: dict[tuple[str, str], str] = {}
"""Owner and id of a run -> its metrics with their history (`Run.history`), which is too large for the state of the stack.

They are kept from the check of the next run until its creation, since the record is deleted between the two."""
_OTHER_NAME = "give the TrainJob another name, or take the job over with adopt=True"


def known_target(inputs: Props) -> Props | None:
    """Return the known part of `target`, or None if the connection is not known yet."""
    target: Props = inputs["target"]
    if any(isinstance(target.get(k), Unknown) for k in CONNECTION):
        return None
    return {k: v for k, v in target.items() if not isinstance(v, Unknown)}


def conflict_message(ask: Callable[[], None]) -> str:
    """Return why a target rejects a request; empty if it accepts the request or does not answer."""
    try:
        ask()
    except Conflict as refused:
        return str(refused)
    except TrainerError:
        pass
    return ""


def _check_existing(olds: Props, news: Props, presence: Presence | None, connect: Connect) -> Checked:
    """Return the checked inputs of a job that belongs to this stack. Values of secrets are not compared: they change in place.

    Args:
        presence: What the target has of the job; None if it cannot be asked.
    """
    refills = olds.get("fills", news.get("fills")) != news.get("fills")
    code_note = _kept_code_note(olds, news)
    same = (olds["digest"] == news["digest"] or bool(code_note)) and not refills
    changed_data: list[str] = []
    if same:
        changed_data = data_changes(olds, news)
    stale_data = data_notes(olds, changed_data)
    stale = (*stale_data, *code_note)
    if presence is not None and presence.another:
        return Checked(_same_run(olds, news), failures=(str(another_job(_where(olds))),))
    again = ""
    if presence is not None and (not _has_unknown_end(presence) or _may_interrupt(olds, news)):
        again = _recreate_mark(olds, presence)
        if again.startswith(_NO_RECORD) and _may_interrupt(olds, news):
            again = _ASKED + again.removeprefix(_NO_RECORD)
    may_run = again.startswith((_MISSING, _TAKEN))
    if again and presence is not None and (same or not may_run):
        if same and not stale_data:
            return Checked({**with_current_connection(olds, news), "again": again}, notes=code_note)
        if same:  # the previous volume may have been deleted
            recreated = {**_same_run(olds, news), "again": again}
            if again.startswith(_NO_RECORD):  # the job may have ended: then it is not created again
                return Checked(_with_data(olds, recreated), notes=stale)
            return Checked(recreated)
        if again.startswith(_NO_RECORD) and _is_local(olds) and not _replacement_reasons(olds, news, connect):
            return Checked({**_same_run(olds, news), "again": again})
        new_run = _new_run(olds, news)
        if presence.alone is None or not _owner(olds).owns(presence.alone) or _may_interrupt(olds, news):
            _, continued = _continuation(olds, news, connect, _status_before(olds, connect)[0])
            return Checked(new_run, failures=continued.failures, notes=continued.notes)
        shown = "; ".join(_replacement_reasons(olds, news, connect))
        why = (
            f"{_where(olds)} is still running although its record is gone, but this change would end it and start a"
            f" new run: {shown}"
        )
        return Checked(new_run, failures=(f"{why}. {_WAIT}",))
    rerun_on = news.get("rerunOn", ())
    changes: list[str] = []
    if "data" in rerun_on:
        changes += changed_data
    if same and "runtime" in rerun_on:
        changes += _runtime_changes(olds, news)
    if changes:
        return _rerun(olds, news, changes, connect)
    if same and _release(olds) != _release(news) and "channel" in news.get("runtime", {}):
        checked = _check_channel_move(olds, news, connect)
        if checked.inputs["generation"] != olds["generation"]:
            return checked
        return replace(checked, notes=(*checked.notes, *stale))
    if same:
        stale = (*_runtime_note(olds, news), *stale)
        return Checked(with_current_connection(olds, news), notes=stale)
    why = _unavailable_release(olds, news)
    if why:
        return Checked(_same_run(olds, news), failures=(why,))
    reasons = _replacement_reasons(olds, news, connect)
    if not reasons:
        return Checked(_with_data(olds, _same_run(olds, news)), notes=_moved_queue_note(olds, news))
    interruption = _interruption(olds, news, reasons, connect)
    return Checked(_new_run(olds, news), failures=interruption.failures, notes=interruption.notes)


CURRENT = ("rerunOn", "withoutCode", KEPT_RUNS)
"""Inputs that are always those of the program: no run depends on them before the next one."""


def _has_unknown_end(presence: Presence) -> bool:
    """Return whether a job is gone and may have ended: it only runs again if its program or a user asks for that."""
    return bool(presence.deleted) and not presence.unsent


def _kept_code_note(olds: Props, news: Props) -> tuple[str, ...]:
    """Return a note if nothing but the code has changed, and a change of the code does not run the job again."""
    rest = news.get("withoutCode")
    if not rest or olds.get("withoutCode") != rest or olds["digest"] == news["digest"]:
        return ()
    before, after = read_inputs(olds.get("runInputs")), read_inputs(news.get("runInputs"))
    changes = changed_inputs(before, after)
    shown = ", ".join(f"{name} {changes[name]}" for name in _OF_CODE if name in changes) or "its code has changed"
    return (f"{_where(olds)}: {shown}; {next_run(olds['run'])} runs the new code (rerun_on)",)


def _changed_inputs_note(olds: Props, news: Props, shown: str) -> tuple[str, ...]:
    """Return a note with the inputs in which a new run differs from the one before. shown: Name of one that has its own note."""
    before, after = read_inputs(olds.get("runInputs")), read_inputs(news.get("runInputs"))
    if isinstance(news["digest"], Unknown):  # what a preview does not know yet is left out of the inputs
        before = only(before, after)
    changes = changed_inputs(without(before, COMMIT, shown), without(after, COMMIT, shown))
    if not changes:
        return ()
    return (f"{_where(olds)}: {'; '.join(f'{name} {change}' for name, change in changes.items())}",)


_OF_CODE = ("code", "arguments", "packages")
"""Inputs of a run that are part of its code."""


def _runtime_changes(olds: Props, news: Props) -> list[str]:
    """Return the change of the runtime, as text, unless the job does not follow its channel so far."""
    before, after = olds.get("runtime") or {}, news.get("runtime") or {}
    if before.get("digest") in (None, after.get("digest")) or isinstance(after.get("digest"), Unknown):
        return []
    if "channel" in after and _release(olds) != _release(news):
        level = level_of(effects(from_state(olds["objects"]), from_state(news["objects"])))
        if follow_refusal(after["follow"], _release(olds), _release(news), level):
            return []
    shown = [f"{each.get('release') or ''} ({each['digest']})".strip() for each in (before, after)]
    return [f"runtime {after['name']} {shown[0]} -> {shown[1]}"]


def _rerun(olds: Props, news: Props, changes: list[str], connect: Connect) -> Checked:
    """Return the checked inputs of a job that runs again because of a change that its `rerun_on` names."""
    new_run = _new_run(olds, news)
    interruption = _interruption(olds, news, changes, connect)
    if interruption.failures:
        return Checked(new_run, failures=interruption.failures)
    again = f"{_where(olds)}: {'; '.join(changes)}: runs again (rerun_on)"
    return Checked(new_run, notes=(again, *interruption.notes))


def _same_run(olds: Props, news: Props) -> Props:
    kept = only(olds, ("earlierRuns", "identity"))
    if news.get("runInputs"):
        commit = only(section(olds.get("runInputs")), (COMMIT,))
        kept["runInputs"] = {**without(news["runInputs"], COMMIT), **commit}
    return {**news, **kept, "owner": olds["owner"], "generation": olds["generation"]}


def _new_run(olds: Props, news: Props) -> Props:
    return {**news, "owner": olds["owner"], "generation": olds["generation"] + 1}


def _check_fetch(olds: Props, news: Props, checked: Checked, changed: Collection[str], connect: Connect) -> Checked:
    """Return the checked inputs of a fetch whose image or secret has changed, neither of which creates another volume.

    It runs again if it has failed, and with another image also if none of its Pods has started.
    """
    before, after = _images(olds), _images(news)
    new_image = news["target"].get("kind") == "kubernetes" and None not in after and before != after
    if not new_image and not changed:
        return checked
    status = _status_if_reachable(olds, connect)
    phase = "out of reach"
    if status is not None:
        phase = status.phase
    if phase == Phase.FAILED or (new_image and phase in (Phase.PENDING, Phase.STARTING)):
        change = f"new secret value in Secret {', '.join(changed)}"
        if new_image:
            change = "its image has changed"
        return Checked(_new_run(olds, news), notes=(f"{_where(olds)} is {phase}, and {change}: it runs again",))
    if not new_image or any(key.startswith("ConfigMap/") for key in olds["objects"]):  # the image of some job
        return checked
    name = str(news.get("component")).rpartition("::")[2]
    images = f"the image {_listed(before)}; image={_listed(after)} is for the next fetch"
    hint = f"`pulumi up --replace '**{name}'` fetches again"
    return replace(checked, notes=(*checked.notes, f"{_where(olds)} is {phase} with {images}. {hint}"))


def _listed(images: set[str | None]) -> str:
    return ", ".join(sorted(map(str, images)))


def _status_if_reachable(olds: Props, connect: Connect) -> JobStatus | None:
    try:
        return connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError:
        return None


def _images(props: Props) -> set[str | None]:
    """Return the images of a fetch; None stands for one that is not known yet."""
    found: set[str | None] = set()
    for key, document in from_state(props["objects"]).items():
        if not key.startswith("JobSet/"):
            continue
        for job in jobs_of(document):
            for container in job.pod.containers:
                image = container.document.get("image")
                if isinstance(image, str):
                    found.add(image)
                else:
                    found.add(None)
    return found


def _with_data(olds: Props, inputs: Props) -> Props:
    """Return the inputs of a job that goes on with the data that it was started with."""
    others = without(inputs, "data")
    if "data" not in olds:
        return others
    return {**others, "data": olds["data"]}


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the job changes.

    Args:
        news: Checked inputs; in a refresh, the stored inputs.
    """
    if olds.get("generation") != news["generation"]:
        return Diff(True, ("generation",))
    if isinstance(news["digest"], Unknown):
        return Diff(None)
    written = _revisions(olds) != _revisions(news) or _has_unknown_secrets(news)
    written = written or connection_changed(olds, news) or has_other_label(olds, news)
    kept = bool(olds.get("retain")) != bool(news.get("retain"))
    changed = written or kept or olds.get("digest") != news["digest"] or bool(olds.get("drift"))
    again = news.get("again")
    if again in (None, olds.get("again")):
        return Diff(changed)
    recreated, why = _is_recreated(olds, news), _why_again(olds, str(again))
    return Diff(changed or recreated, notes=(f"{_where(olds)}: {why}",) if why else ())


def _is_recreated(outputs: Props, news: Props) -> bool:
    """Return whether the job is to be created or started again: it was deleted externally, and the stack has not seen it end, or
    nothing has started it."""
    again = news.get("again")
    if again in (None, outputs.get("again")):
        return False
    return not _stays_gone(outputs, str(again))


def _stays_gone(outputs: Props, again: str) -> bool:
    """Return whether a job whose record is gone is not created again: it has ended, or it may have, and nobody asks for it.

    Args:
        outputs: Outputs of the job in the state.
        again: The mark of the job.
    """
    phase = text(outputs.get("phase"))
    is_asked = again.startswith(_ASKED) or not _is_local(outputs)
    return again.startswith(_NO_RECORD) and (phase in _ENDS or (may_have_ended(phase) and not is_asked))


def _is_local(props: Props) -> bool:
    """Return whether a job runs on this machine. props: Inputs or outputs of the job."""
    return bool(props["target"].get("kind") == "local")


def _why_again(outputs: Props, again: str) -> str:
    if again.startswith(_TAKEN):
        return (
            f"somebody has deleted its {again.partition(' ')[2]}, and another object has that name, which this"
            " program did not create and leaves alone: `pulumi up` is refused until that object is deleted; the job"
            " itself is unchanged"
        )
    if again.startswith(_MISSING):
        return (
            f"somebody has deleted its {again.partition(' ')[2]}, which is created again; the job itself is unchanged"
        )
    if again.startswith(_NOT_STARTED):
        return "its supervisor was killed or has never been started; this update starts it"
    if again.startswith(_UNSENT):
        return "its new run was recorded, but not created; this update creates it"
    phase = outputs.get("phase")
    is_lost = _is_local(outputs) and may_have_ended(text(phase))
    if is_lost and again.startswith(_NO_RECORD) and not again.startswith(_ASKED):
        return ""  # its status shows that
    if is_lost or not again.startswith(_NO_RECORD):
        return f"{UNKNOWN_END}; it is created again, as interrupt= allows"
    lost = "for example because its namespace was deleted"
    if _is_local(outputs):
        lost = "for example because its folder was removed"
    if phase in _ENDS:
        return _ENDED_WITHOUT_RECORD.format(phase=phase, lost=lost)
    return _LOST_WITH_RECORD.format(phase=phase or Phase.PENDING, lost=lost)


_ENDS = (Phase.SUCCEEDED, Phase.FAILED)
_NO_RECORD = "no-record-"
"""Prefix of the mark of a job whose record is gone; a number follows."""
_ASKED = f"{_NO_RECORD}asked-"
"""Prefix of that mark if `interrupt` allows to run the job again although it may have ended; a number follows."""
_MISSING = "missing-"
"""Prefix of the mark of a job that lacks other objects; a number and their names follow."""
_TAKEN = "taken-"
"""Prefix of the mark of a job whose objects' names are taken by foreign objects."""
_UNSENT = "unsent-"
"""Prefix of the mark of a job whose run was recorded and never created; the mark of its record follows."""
_NOT_STARTED = "not-started-"
"""Prefix of the mark of a job that should run, and that nothing has started; a number follows."""
_LOST_WITH_RECORD = (
    "its record is gone, {lost}, so it is unknown whether it has ended. When the stack last wrote its state (after"
    " creation or a refresh), the job was {phase}: it counts as unfinished and is created again. If it must not run"
    " again, remove the"
    " TrainJob from the program, or set suspend=True"
)
_ENDED_WITHOUT_RECORD = (
    "its record is gone, {lost}. It was {phase} when the stack last saw it: it counts as finished and is not"
    " created again. To run it again, give it another run= key"
)


def _presence(olds: Props, news: Props, connect: Connect) -> Presence | None:
    """Return what the target has of the job, or None if the target cannot be asked from this host."""
    if olds["target"].get("host") != news["target"].get("host"):
        return None
    main = main_key(olds["objects"])
    others = [key for key in olds["objects"] if key != main]
    secrets = [f"Secret/{name}" for name in _secrets(olds, olds["name"])]
    try:
        return connect(with_current_connection(olds, news)["target"]).presence(
            olds["namespace"], olds["name"], dict.fromkeys([*others, *secrets])
        )
    except TrainerError:
        return None


def _recreate_mark(olds: Props, presence: Presence) -> str:
    """Return a new mark for a job that is to be created again; empty if the job exists or has ended."""
    if presence.unsent:
        return f"{_UNSENT}{presence.deleted}"
    if presence.owner is not None and not presence.missing:
        return presence.deleted
    number = _next_number(olds)
    if presence.taken:
        return f"{_TAKEN}{number} {', '.join(presence.taken)}"
    if presence.missing:
        return f"{_MISSING}{number} {', '.join(presence.missing)}"
    return f"{_NO_RECORD}{number}"


def _next_number(olds: Props) -> int:
    count = str(olds.get("again", "")).partition(" ")[0].rpartition("-")[2]
    if not count.isdecimal():
        return 1
    return int(count) + 1


def _where(props: Props) -> str:
    return f"{props['namespace']}/{props['name']}"


def _owner(props: Props) -> Owner:
    """Return the owner of a job, from its inputs or outputs."""
    return Owner(props["owner"], label_of(props))


def connection_of(props: Props) -> Props:
    """Return the connection settings of the target."""
    target = section(props, "target")
    return {k: target[k] for k in CONNECTION if target.get(k) is not None}


def with_current_connection(olds: Props, news: Props) -> Props:
    """Return the previous inputs with the current connection settings.

    No previous setting may stay: the engine encrypts what is secret in the new inputs, so the content of a kubeconfig that these
    no longer have would be stored in clear. Interpreter and limit always come from the program, never from a state.
    """
    current = {**connection_of(news), **_local_settings(news), **_moved_root(olds, news)}
    if not connection_of(olds) and not current and not _local_settings(olds):
        return olds
    kept = without(olds["target"], *CONNECTION, *_LOCAL_SETTINGS)
    return {**olds, "target": {**kept, **current}}


def _moved_root(olds: Props, news: Props) -> Props:
    """Return the current root folder if the previous one no longer exists: it was moved or removed."""
    before, now = root(olds), root(news)
    same_host = olds["target"].get("host") == news["target"].get("host")
    if not same_host or not before or not now or before == now or Path(before).exists():
        return {}
    return {"root": now}


def root(props: Props) -> str:
    """Return the root folder of a local target; empty for another target, or if it is not known yet."""
    return text(section(props, "target").get("root"))


def moved_root_note(props: Props) -> str:
    """Return why a local resource may be in another folder now; empty if the parent of its root folder exists."""
    was = root(props)
    if not was or Path(was).parent.exists():
        return ""
    return (
        f"is unchanged in the state of this stack: {Path(was).parent} does not exist. If it was moved with the"
        " program, `pulumi up` continues in its new place; if it was removed, `pulumi up` creates it again"
    )


def connection_changed(olds: Props, news: Props) -> bool:
    """Return whether the connection settings differ from the stored ones."""
    if section(olds, "target").get(MAX_PARALLEL) != section(news, "target").get(MAX_PARALLEL):
        return True
    return connection_of(olds) != connection_of(news) or (root(olds) != root(news) and bool(root(olds) and root(news)))


_LOCAL_SETTINGS = ("python", MAX_PARALLEL, LOG_BYTES, ISOLATION)


def _local_settings(props: Props) -> Props:
    target = section(props, "target")
    return {k: target[k] for k in _LOCAL_SETTINGS if target.get(k)}


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Create the job and return as soon as the target has accepted it. Safe to repeat after a crash.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    target = connect(inputs["target"])
    submission = submission_of(inputs)
    known = [replace(run, history=_histories.get((submission.owner, run.id), "")) for run in submission.earlier]
    status = target.create(replace(submission, earlier=known), adopt=bool(inputs.get("adopt")))
    return f"{inputs['namespace']}/{inputs['name']}", _outputs(inputs, status, target.identity())


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Change in place what may change in place (`lifecycle.changes`), and revert external changes that a refresh has found.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    where = {**with_current_connection({"target": {**inputs["target"], **outputs["target"]}}, inputs)["target"]}
    if has_other_label(outputs, inputs):
        where["sweep"] = label_of(inputs)
        connect(where).relabel(submission_of({**inputs, "target": where}), _owner(outputs))
    if workers_of(outputs) != workers_of({"target": where}):
        _move_copies(outputs, {**inputs, "target": where}, connect)
    if not diff({**outputs, "target": where}, inputs).changes:
        connect(where).identity()  # a connection to another cluster must not be stored
        return {**outputs, "target": only(where, LOCATION)}
    target = connect(where)
    submission = submission_of({**inputs, "target": where})
    if _is_recreated(outputs, inputs) and not inputs["again"].startswith(_NOT_STARTED):
        same = replace(submission, identity=Identity.from_dict(outputs.get("identity")))
        return _outputs(inputs, target.create(same), target.identity())
    is_gone = inputs.get("again") not in (None, outputs.get("again")) and _stays_gone(outputs, text(inputs["again"]))
    if is_gone:
        outputs = {**outputs, "digest": inputs["digest"]}
    if is_gone or not diff({**outputs, "target": where, REVISIONS: _revisions(inputs)}, inputs).changes:
        if inputs.get("again") in (None, outputs.get("again")):  # otherwise its record is gone, and it has ended
            target.update_secrets(submission)
        known = only(where, LOCATION)
        return {**outputs, REVISIONS: _revisions(inputs), "target": {**known, **target.identity()}}
    status = target.update(submission, force=bool(outputs.get("drift") or inputs.get("adopt")))
    return _outputs({**inputs, "target": where}, status, target.identity())


def workers_of(props: Props) -> Props:
    """Return the worker clusters of MultiKueue in inputs or outputs, by name; empty on this machine."""
    return section(props, "target", WORKERS)


def _move_copies(outputs: Props, inputs: Props, connect: Connect) -> None:
    """Copy what a job needs to its current worker clusters, and delete the copies in those that the program no longer has."""
    gone = without(workers_of(outputs), *workers_of(inputs))
    before: Any = connect({**outputs["target"], WORKERS: gone})
    now: Any = connect(inputs["target"])
    before.abandon_copies(outputs["namespace"], outputs["name"], _owner(outputs))
    now.update_copies(submission_of(inputs))


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the current outputs, and notes for the user. None: the job was not found, or belongs to another stack.

    Args:
        outputs: Outputs of the job in the state.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    target = connect(outputs["target"])
    namespace, name = outputs["namespace"], outputs["name"]
    try:
        status = target.status(namespace, name)
    except Unreadable as fault:
        return outputs, [f"{_where(outputs)} is unchanged in the state of this stack: {fault}"]
    if status is not None and not _owner(outputs).owns(status.whose):
        return None, [
            f"{_where(outputs)} {status.whose.adopted_from(_owner(outputs))}. It is left alone and {_FORGOTTEN}"
        ]
    gone = status is None or (status.phase == Phase.DELETED and not status.unknown_end)
    if gone:
        moved = moved_root_note(outputs)
        if moved:
            return outputs, [f"{_where(outputs)} {moved}"]
    if status is None and _is_local(outputs) and may_have_ended(text(outputs.get("phase"))):
        return {**outputs, "phase": Phase.DELETED.value}, []
    if status is None or gone:
        return None, [
            f"{_where(outputs)} is gone and {_FORGOTTEN}: while the program has it, `pulumi up` creates it again"
        ]
    current = {**without(outputs, "drift"), "uid": status.uid, "phase": status.phase}
    if status.terminal:
        return current, []
    drift = target.drift(namespace, name)
    if not drift:
        return current, []
    return {**current, "drift": drift}, []


_FORGOTTEN = "no longer in the state of this stack"


def delete(outputs: Props, connect: Connect, *, replaced: bool = False) -> list[str]:
    """End the job and delete the objects of this run; objects that somebody else has created since stay.

    Args:
        outputs: Outputs of the job in the state.
        connect: Returns the target of an input `target`.
        replaced: Whether a new run of the job follows.

    Returns:
        Notes for the user: the current owner, or which data was deleted.
    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    uid, owner = outputs.get("uid", ""), _owner(outputs)
    target = connect(outputs["target"])
    left = target.delete(outputs["namespace"], outputs["name"], uid=uid, owner=owner, replaced=replaced)
    if isinstance(left, Owner):
        return [f"{_where(outputs)} {left.adopted_from(owner)}. It is left alone"]
    if not left:
        return []
    return [left]


def submission_of(inputs: Props) -> Submission:
    """Return what a target gets of a job's inputs."""
    return Submission(
        namespace=inputs["namespace"],
        name=inputs["name"],
        owner=inputs["owner"],
        digest=inputs["digest"],
        objects=from_state(inputs["objects"]),
        run=inputs["run"],
        sweep=inputs["target"].get("sweep", ""),
        secrets=_secrets(inputs, inputs["name"]),
        retain=bool(inputs.get("retain")),
        runtime=inputs.get("runtime") or {},
        program=program_of(str(inputs.get("component") or "")),
        inputs=inputs.get("runInputs") or {},
        earlier=read_runs(inputs.get("earlierRuns")),
        identity=Identity.from_dict(inputs.get("identity")),
        keep_runs=kept_runs(inputs),
        removes_folders=not workers_of(inputs),
    )


def _outputs(inputs: Props, status: JobStatus, identity: Props) -> Props:
    where = {**only(inputs["target"], LOCATION), **identity}
    frozen = {k: inputs[k] for k in FROZEN}
    kept = {k: inputs[k] for k in ("again", "retain", REVISIONS) if k in inputs}
    return {
        **frozen,
        **kept,
        "target": where,
        "uid": status.uid,
        "phase": status.phase,
        "identity": status.identity.to_dict(),
    }


def _replacement_reasons(olds: Props, news: Props, connect: Connect) -> list[str]:
    changes = [c for c in compare(from_state(olds["objects"]), from_state(news["objects"])) if c.effect != "update"]
    reasons = [*map(str, changes)]
    if changes and all(c.effect == "waiting" for c in changes) and _is_queued(olds, connect):
        reasons = []
    if olds["run"] != news["run"]:
        reasons.insert(0, f"run {olds['run']!r} => {news['run']!r}")
    changed = _changed_arguments(olds, news)
    if changed:
        reasons.append(f"func_args: {', '.join(changed)}")
    if olds.get("fills", news.get("fills")) != news.get("fills"):
        reasons.append("its volume is created again")
    if (olds["namespace"], olds["name"]) != (news["namespace"], news["name"]):
        kept = ""
        if olds["namespace"] == news["namespace"]:
            kept = f' (name="{olds["name"]}" keeps it)'
        reasons.insert(0, f"name {olds['namespace']}/{olds['name']} => {news['namespace']}/{news['name']}{kept}")
    return reasons


def _changed_arguments(olds: Props, news: Props) -> list[str]:
    """Return the names of the function arguments that have changed, except secret ones. The objects do not show them."""
    arguments = texts([olds.get("arguments"), news.get("arguments")])
    if len(arguments) < 2:
        return []
    before, after = map(json.loads, arguments)
    return [name for name in {**before, **after} if _as_json(before, name) != _as_json(after, name)]


def _as_json(arguments: Props, name: str) -> str:
    """Return an argument as JSON, which distinguishes 1, 1.0 and true; empty if it is not given."""
    if name not in arguments:
        return ""
    return json.dumps(arguments[name], sort_keys=True)


def _revisions(props: Props) -> Props:
    return props.get(REVISIONS) or {}


def _secrets(props: Props, name: str) -> dict[str, Any]:
    """Return the values of a job's Secret by the name of the Secret in the target. A renamed job keeps its Secret, but the inputs
    name the Secret after the new name, because the engine encrypts inputs by the name that the program uses.

    Args:
        name: Name of the job in its target.
    """
    return {secret_name(name): values for values in (props.get("secrets") or {}).values()}


def _changed_secrets(olds: Props, news: Props) -> list[str]:
    """Return "Secret/key" of each value that has changed; an unknown value does not count."""
    before, after = _secrets(olds, olds["name"]), _secrets(news, olds["name"])
    changed = []
    for name in filter(before.__contains__, after):
        for key, value in after[name].items():
            is_comparable = key in before[name] and not isinstance(value, Unknown)
            if is_comparable and before[name][key] != value:
                changed.append(f"{name}/{key}")
    return changed


def _has_unknown_secrets(news: Props) -> bool:
    values = chain.from_iterable(secret.values() for secret in _secrets(news, "").values())
    return any_unknown(values)


def _secret_note(olds: Props, changed: list[str], connect: Connect) -> str:
    """Return which values of a job's Secret have changed, without showing them, and when the job reads them."""
    status = _own_status(olds, connect)
    reads = "a job reads it when its Pods start"
    if status is not None:
        when = "at the next run"
        if status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SUSPENDED):
            when = "when it starts"
        reads = f"the job is {status.phase}: applies {when}"
    return f"{olds['namespace']}/{olds['name']}: new secret value in Secret {', '.join(changed)}; {reads}"


def _unknown_note(olds: Props, news: Props, connect: Connect) -> str:
    """Return what an update may do to a job whose values a preview does not know yet."""
    note = "it depends on values that are not known yet, and may start a new run"
    status = _own_status(olds, connect)
    if status is None:
        return f"{_where(olds)}: {note}"
    if status.terminal:
        return f"{_where(olds)} is {status.phase}: {note}"
    ends = "which would end the current run"
    if not _may_interrupt(olds, news):
        ends = f"which is refused until the current run has finished. {_wait_hint(status, olds, news)}"
    return f"{_where(olds)} is {status.phase}: {note}, {ends}"


def _moved_queue_note(olds: Props, news: Props) -> tuple[str, ...]:
    """Return a note if a waiting job moves to another queue, as Kueue may admit it in its present queue before the update."""
    before, after = queue_of(from_state(olds["objects"])), queue_of(from_state(news["objects"]))
    if not before or before == after or isinstance(after, Unknown):
        return ()
    return (
        f"{_where(olds)} waits in queue {before} and moves to queue {after} without a new run; if Kueue admits it before the"
        " update, the update is refused and the job continues",
    )


def _is_queued(olds: Props, connect: Connect) -> bool:
    """Return whether Kueue has suspended the job; a job whose status is not readable counts as running."""
    status = _own_status(olds, connect)
    return status is not None and status.phase == Phase.QUEUED


def _own_status(olds: Props, connect: Connect) -> JobStatus | None:
    """Return the status of the job; None if it is gone, belongs to another stack, or is not readable."""
    status = _status_if_reachable(olds, connect)
    if status is None or not _owner(olds).owns(status.whose):
        return None
    return status


def interruptions(outputs: Props, connect: Connect) -> tuple[str, ...]:
    """Return a note if a job that is removed from the program is unfinished, so that its deletion ends it, or if it cannot be
    deleted.

    Args:
        outputs: Outputs of the job in the state.
        connect: Returns the target of a `target` input; an unreachable one gives no note.
    """
    if outputs.get("retain"):
        return ()
    silent = _silent_workers(outputs, connect)
    if silent:
        why = f"{_where(outputs)} was removed from the program, but this update cannot delete it"
        return tuple(f"{why}: {problem}" for problem in silent)
    status = _status_if_reachable(outputs, connect)
    if status is None or status.terminal or not _owner(outputs).owns(status.whose):
        return ()
    return (
        f"{_where(outputs)} is {_unfinished(status)}, and was removed from the program: this update ends it and"
        " deletes it",
    )


def _unfinished(status: JobStatus) -> str:
    """Return the phase of a job, and since when it has it: a suspended one since its Pods have ended."""
    began = status.started or status.created
    if status.phase == Phase.SUSPENDED and status.attempts:
        began = status.attempts[-1].finished
    if not began:
        return status.phase
    return f"{status.phase} since {datetime.fromtimestamp(began, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class _Interruption:
    """What a change means for an unfinished run: why it is rejected, or what it does to the run."""

    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _interruption(olds: Props, news: Props, reasons: list[str], connect: Connect) -> _Interruption:
    """Return what a change means that starts a new run: it ends the previous one, if that is unfinished.

    Args:
        connect: Returns the target of an input `target`.
    """
    status, fault = _status_before(olds, connect)
    start, resumed = _continuation(olds, news, connect, status)
    if resumed.failures:
        return resumed
    if fault is not None:
        why = f"cannot find out whether {_where(olds)} is still running: {fault}"
        if news.get("interrupt") == "allow":
            return _Interruption(notes=(f"{why}. This change ends it if it is", *resumed.notes))
        if isinstance(fault, Refused):
            why = str(fault)
        return _Interruption((why,))
    if status is None or status.terminal or not _owner(olds).owns(status.whose):
        return resumed
    if status.reason == NOT_STARTED and not status.started:
        return resumed
    loss = _loss(status, start)
    if _may_interrupt(olds, news):
        return _Interruption(notes=(_end_note(olds, news, status, loss), *resumed.notes))
    shown = "; ".join(reasons[:5])
    if len(reasons) > 5:
        shown += f"; and {len(reasons) - 5} more"
    why = f"{_where(olds)} is {_unfinished(status)}, but this change would end it and start a new run: {shown}."
    if loss:
        why += f" It {loss}."
    return _Interruption((f"{why} {_wait_hint(status, olds, news)}",))


def _may_interrupt(olds: Props, news: Props) -> bool:
    """Return whether a change may end the run of a job, if it is unfinished."""
    return news.get("interrupt") == "allow" or (
        news.get("interrupt") == "checkpoint" and saves_checkpoints(from_state(olds["objects"]))
    )


def _status_before(olds: Props, connect: Connect) -> tuple[JobStatus | None, TrainerError | None]:
    """Return the status of the run before a new one, with what it has reported, or why it cannot be read."""
    try:
        target = connect(olds["target"])
        status = target.status(olds["namespace"], olds["name"])
    except TrainerError as fault:
        return None, fault
    return None if status is None else with_progress(status, target), None


def _loss(status: JobStatus, start: Start) -> str:
    """Return what a job would lose if a new run replaced it, or what it has kept if it is suspended; empty if that is not known.

    Args:
        status: The status of the job, with its progress.
        start: Where the new run starts.
    """
    step = section(status.progress).get("step")
    if start.unused is None or not isinstance(step, int):
        return ""
    if start.unused:
        return str(whole_cost(status, time.time(), start.unused) or "")
    if status.phase == Phase.RUNNING:
        return str(interruption_cost(status, time.time(), start.checkpoints) or "")
    saved, _ = newest_checkpoint(status, start.checkpoints)
    if saved is not None:
        return f"has a checkpoint of step {saved:,}"
    if status.phase == Phase.SUSPENDED and status.checkpoints:
        none = "has reported no checkpoint" if start.checkpoints is None else "has no complete checkpoint"
        return f"has done {step:,} steps and {none}"
    return ""


def _end_note(olds: Props, news: Props, status: JobStatus, loss: str) -> str:
    """Return what a change does to the unfinished run of a job that it may end."""
    ends = f"{_where(olds)} is {_unfinished(status)}, and this change ends it"
    has_pods = status.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
    if news.get("interrupt") == "checkpoint" and has_pods:
        grace = max(map(_grace, from_state(olds["objects"]).values()), default=0) or DEFAULT_GRACE
        ends += f": its Pods get SIGTERM, and up to {grace} s to save a checkpoint"
        return f"{ends}; if that fails, it {loss}" if loss else ends
    return f"{ends}: it {loss}" if loss else ends


def _continuation(olds: Props, news: Props, connect: Connect, status: JobStatus | None) -> tuple[Start, _Interruption]:
    """Return where a new run starts, and which run it continues, if the job keeps anything for it, or why it cannot continue the
    one that it names.

    Args:
        status: Status of the run before it, with its progress; None if not known.
    """
    try:
        start = find_start(olds, news, connect(olds["target"]), status)
    except Invalid as unknown_run:
        return Start(unused=None), _Interruption((f"{_where(olds)}: {unknown_run}",))
    except TrainerError as fault:
        start = Start(f"{_where(olds)}: which run the new run continues is not known: {fault}", unused=None)
    lost = _lost_checkpoints(olds, news, start.left)
    if lost:
        return start, _Interruption((lost,))
    return start, _Interruption(notes=(start.note,) if start.note else ())


def _lost_checkpoints(olds: Props, news: Props, place: str) -> str:
    """Return why a change is rejected that deletes the volume with the checkpoints of a run that may be continued; else empty.

    Args:
        place: Where the checkpoints of the run are that the new one does not continue; empty if there are none.
    """
    if news.get("interrupt") == "allow" or not saves_checkpoints(from_state(olds["objects"])):
        return ""
    is_kept = place.startswith("s3://") or place in json.dumps(news["objects"], default=str) or olds.get("retain")
    if not place or is_kept:
        return ""
    why = f"{_where(olds)} keeps its checkpoints in the volume {place}, which would be deleted with this change"
    return f'{why}. Keep the volume (output=True or OutputVolume(retain=True)), or set interrupt="allow"'


DEFAULT_GRACE = 30
"""`terminationGracePeriodSeconds` of a Pod that declares none."""


def _grace(document: Props) -> int:
    """Return the longest grace period that the Pods of a JobSet or the patches of a TrainJob declare in seconds; 0 for none."""
    jobs: list[ReplicatedJob] = []
    if document.get("kind") == "JobSet":
        jobs = jobs_of(document)
    elif document.get("kind") == "TrainJob":
        for patch in items(section(document, "spec"), "runtimePatches"):
            jobs += patched_jobs(patch)
    return max((number(job.pod.spec.get("terminationGracePeriodSeconds")) for job in jobs), default=0)


_WAIT = 'Wait until it has finished, or set interrupt="allow" on the TrainJob'


def _wait_hint(status: JobStatus, olds: Props, news: Props) -> str:
    """Return what to do about a change that would end an unfinished run."""
    if news.get("interrupt") == "checkpoint":
        why = 'interrupt="checkpoint" needs a checkpoint policy, which this run does not have'
        return f"{_wait_hint(status, olds, without(news, 'interrupt'))}: {why} (checkpoint=)"
    if status.phase == Phase.RUNNING and saves_checkpoints(from_state(olds["objects"])):
        return f'{_WAIT}, or interrupt="checkpoint" to save a checkpoint first'
    if status.reason == SUSPENDED:
        return f"Run `pulumi-trainer resume` and `pulumi up` without this change. {_WAIT}"
    if status.phase == Phase.SUSPENDED:
        return f"Resume it without this change (suspend=False). {_WAIT}"
    if status.reason == NOT_STARTED:
        return f"Run `pulumi up` without this change, which starts it. {_WAIT}"
    return _WAIT


def _release(props: Props) -> str:
    """Return the release of the runtime that a job was rendered from; empty if it has none."""
    return str(section(props, "runtime").get("release", ""))


def _check_channel_move(olds: Props, news: Props, connect: Connect) -> Checked:
    """Return the checked inputs of a job whose channel has another release: the job stays as it is, or it is replaced if it is
    running and interrupt="allow" is set."""
    before, after, runtime = _release(olds), _release(news), news["runtime"]
    found = effects(from_state(olds["objects"]), from_state(news["objects"]))
    shown = ""
    if found:
        shown = f": {found[0]}"
    if len(found) > 1:
        shown += f" and {len(found) - 1} more"
    summary = f"{_where(olds)}: {runtime['channel']} has {runtime['name']} {after}"
    summary += f", but this job has {before or 'none of its releases'} ({level_of(found)}{shown})"
    kept = with_current_connection(olds, news)
    if before:
        why = follow_refusal(runtime["follow"], before, after, level_of(found))
        if why:
            return Checked(kept, notes=(f"{summary}. No change: {why}",))
    how = news.get("interrupt")
    if how == "checkpoint" and not saves_checkpoints(from_state(olds["objects"])):
        why = 'it has no checkpoint policy, which interrupt="checkpoint" needs'
        return Checked(kept, notes=(f"{summary}. On its next run: {why}",))
    if not _may_interrupt(olds, news):
        return Checked(kept, notes=(f"{summary}. On its next run: another run= key starts one",))
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError as fault:
        return Checked(kept, notes=(f"{summary}. On its next run: it is unknown whether it runs now: {fault}",))
    if status is None or status.terminal or not _owner(olds).owns(status.whose):
        phase = "gone"
        if status is not None:
            phase = status.phase
        return Checked(
            kept, notes=(f"{summary}. On its next run: it is {phase}, and a finished job does not run again by itself",)
        )
    replaced = f'{summary}. Replaced: it is {status.phase} and has interrupt="{how}"'
    return Checked(_new_run(olds, news), notes=(replaced, *_interruption(olds, news, [], connect).notes))


def _unavailable_release(olds: Props, news: Props) -> str:
    """Return why a new run must not use the release that it was rendered with; empty if it may.

    A program renders a job that does not follow its channel with the job's own release if it can.
    """
    before, after, runtime = _release(olds), _release(news), news.get("runtime") or {}
    if "channel" not in runtime or not before or (olds.get("runtime") or {}).get("name") != runtime["name"]:
        return ""
    why = follow_refusal(runtime["follow"], before, after)
    if not why:
        return ""
    return (
        f"{_where(olds)}: channel {runtime['channel']} has {runtime['name']} {after}, and {why}. The job's own release"
        f" {before} is not available: either the channel no longer has it, or the job's record could not be read."
        f' Restore the release in the catalogue, or set follow="any", or runtime="{runtime["name"]}@RELEASE"'
    )


def _runtime_note(olds: Props, news: Props) -> tuple[str, ...]:
    before, after = olds.get("runtime"), news.get("runtime")
    if not before or not after or before["digest"] == after.get("digest") or isinstance(after.get("digest"), Unknown):
        return ()
    return (
        f"{olds['namespace']}/{olds['name']} keeps the runtime that it was created with: {after['name']} has changed"
        " since; give the TrainJob another run= key to run it again with the new one",
    )
