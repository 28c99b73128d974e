"""Checks the inputs of a job: what the user did not change stays as it was; a change is rejected before anything is touched."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pulumi_trainer.provider.jobs.identity import owner_id
from pulumi_trainer.provider.jobs.lineage import UNFINISHED
from pulumi_trainer.provider.jobs.runs import COMMIT
from pulumi_trainer.provider.jobs.status import TAKE_BACK, Owner, Presence, another_job
from pulumi_trainer.provider.jobs.submission import EXISTING
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import only, section, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.lifecycle.connection import (
    keep_root_hint,
    with_current_connection,
    with_current_label,
    with_label,
)
from pulumi_trainer.provider.lifecycle.continuation import new_identity_input
from pulumi_trainer.provider.lifecycle.data import data_changes, data_notes, with_mounted_versions
from pulumi_trainer.provider.lifecycle.earlier_runs import with_earlier_runs
from pulumi_trainer.provider.lifecycle.interruption import WAIT, continue_run, interrupt, may_interrupt, silent_workers
from pulumi_trainer.provider.lifecycle.job_changes import (
    changed_inputs_note,
    changed_secrets,
    check_fetch,
    is_refilled,
    kept_code_note,
    moved_queue_note,
    new_run,
    replacement_reasons,
    secret_note,
    secret_revisions,
    unknown_note,
)
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.job_releases import (
    changed_runtime_note,
    check_channel_move,
    has_moved,
    runtime_changes,
    unavailable_release,
)
from pulumi_trainer.provider.lifecycle.recreation import (
    find_presence,
    has_no_record,
    may_run,
    recreate_mark,
    start_mark,
)
from pulumi_trainer.provider.lifecycle.resource import Checked
from pulumi_trainer.provider.lifecycle.source_changes import source_notes
from pulumi_trainer.provider.lifecycle.target import Connect

_MISSING = ("does not exist", "remove the TrainJob from the program, or leave adopt out: then it trains as a new job")
_OTHER_NAME = "give the TrainJob another name, or take the job over with adopt=True"


def check(
    olds: JobInputs | None, news: JobInputs, connect: Connect, labels: Collection[str] = ()
) -> Checked[JobInputs]:
    """Return the inputs to store: everything that the user did not change stays exactly as it was.

    Rejects a change that would end an unfinished run, and every change of a job that belongs to another stack, before anything
    is touched.

    Args:
        labels: Labels of the stack's other targets.
    """
    news = with_mounted_versions(olds, news)
    if olds is None or not olds.owner:
        return _check_new(_with_owner(news), connect, labels)
    presence = find_presence(olds, news, connect)
    olds = _with_recorded_label(olds, news, presence)
    changed = changed_secrets(olds, news)
    if presence is not None and presence.owner is not None and not olds.whose.owns(presence.owner):
        inputs = with_current_connection(olds, news)
        if olds.digest == news.digest and not changed:
            return Checked(inputs)
        return Checked(inputs, failures=(f"{olds.where} {presence.owner.adopted_from(olds.whose)}. {TAKE_BACK}",))
    checked = _check_existing(olds, news, presence, connect)
    is_same_run = checked.inputs.digest == olds.digest and checked.inputs.generation == olds.generation
    if is_same_run and presence is not None and presence.not_started:
        checked = replace(checked, inputs=replace(checked.inputs, again=start_mark(olds)))
    if news.fills and checked.inputs.generation == olds.generation and not checked.inputs.again:
        checked = check_fetch(olds, news, checked, changed, connect)
    of_source = source_notes(olds, news)
    notes = (*checked.notes, *of_source)
    if checked.inputs.generation != olds.generation:
        notes = (*changed_inputs_note(olds, news, "code" if of_source else ""), *notes)
    if is_same_run and presence is not None and presence.note:
        notes = (*notes, f"{olds.where} was {presence.note}")
    if not checked.failures:
        notes = (*notes, *_other_notes(olds, news, checked.inputs, presence, changed, connect))
    inputs = replace(
        checked.inputs,
        retain=news.retain,
        rerun_on=news.rerun_on,  # no run depends on these three before the next one
        without_code=news.without_code,
        keep_runs=news.keep_runs,
        secrets=news.secrets or checked.inputs.secrets,
        secret_revisions=secret_revisions(olds, changed),
    )
    failures = checked.failures or _refusals_of_new_run(olds, news, inputs, presence, connect)
    fault = (presence.fault,) if presence is not None and presence.fault else ()
    if inputs.generation != olds.generation:
        return Checked(inputs, (*failures, *fault), notes)
    return Checked(_with_kept_label(olds, news, inputs, presence), failures, (*notes, *fault))


def _with_owner(news: JobInputs) -> JobInputs:
    owner: str | Unknown = Unknown("owner")
    if not any_unknown([news.component, news.digest]):
        owner = owner_id(news.component, news.digest, news.run)
    return replace(news, owner=owner, generation=1, identity=new_identity_input(news))


def _check_new(inputs: JobInputs, connect: Connect, labels: Collection[str]) -> Checked[JobInputs]:
    """Return the checked inputs of a job that is new to the stack.

    They are rejected if `create` would fail because the name belongs to another job. A note says which job is adopted. If the
    target does not answer, neither is checked.
    """
    target = inputs.known_target
    if target is None or any_unknown([inputs.owner, inputs.namespace, inputs.name]):
        return Checked(inputs)
    try:
        there = connect(target).jobs
        current_owner = there.current_owner(inputs.namespace, inputs.name)
        if current_owner is not None and _is_previous_run(inputs, current_owner, labels):
            return Checked(with_earlier_runs(inputs, there.runs(inputs.namespace, inputs.name)))
        if inputs.resume not in (True, False, UNFINISHED) or inputs.fork is not None:
            with_earlier_runs(inputs, [])  # a job without runs has none of that name
        if inputs.adopt:
            taken = there.check_adoption(replace(inputs, target=target).submission())
            if not taken and inputs.adopt == EXISTING and current_owner is None:
                return Checked(inputs, (str(Problem(inputs.where, *_MISSING)),))
            if not taken:
                return Checked(inputs)
            return Checked(inputs, notes=(f"{inputs.where}: {taken}",))
    except (Conflict, Invalid) as refused:
        return Checked(inputs, (str(refused),))
    except TrainerError:
        return Checked(inputs)
    if current_owner is None:
        return Checked(inputs)
    why = f"exists and belongs to {current_owner.called_by(inputs.whose)}"
    return Checked(inputs, (str(Problem(inputs.where, why, _OTHER_NAME)),))


def _is_previous_run(inputs: JobInputs, current_owner: Owner, labels: Collection[str]) -> bool:
    """Return whether a job of this stack has the name: the engine checks a replacement without its old inputs, while the previous
    run still exists."""
    if current_owner.id == inputs.owner and current_owner.stack in ("", inputs.label):
        return True
    if not current_owner.stack:  # a retained job
        return inputs.retain and not inputs.adopt
    return current_owner.stack in (inputs.label, *labels)


def _check_existing(
    olds: JobInputs, news: JobInputs, presence: Presence | None, connect: Connect
) -> Checked[JobInputs]:
    """Return the checked inputs of a job that belongs to this stack. Values of secrets are not compared: they change in place."""
    code_note = kept_code_note(olds, news)
    same = (olds.digest == news.digest or bool(code_note)) and not is_refilled(olds, news)
    changed_data = data_changes(olds, news) if same else []
    data_note = data_notes(olds, changed_data)
    if presence is not None and presence.another:
        return Checked(_same_run(olds, news), failures=(str(another_job(olds.where)),))
    again = ""
    if presence is not None:
        again = recreate_mark(olds, presence, asked=may_interrupt(olds, news))
    if again and same:
        return _check_recreation(olds, news, again, data_note, code_note)
    if again and presence is not None and not may_run(again):
        return _check_lost(olds, news, presence, again, connect)
    rerun_on, changes = news.rerun_on or (), list[str]()
    if "data" in rerun_on:
        changes += changed_data
    if same and "runtime" in rerun_on:
        changes += runtime_changes(olds, news)
    if changes:
        return _rerun(olds, news, changes, connect)
    if same and has_moved(olds, news):
        checked = check_channel_move(olds, news, connect)
        if checked.inputs.generation != olds.generation:
            return checked
        return replace(checked, notes=(*checked.notes, *data_note, *code_note))
    if same:
        notes = (*changed_runtime_note(olds, news), *data_note, *code_note)
        return Checked(with_current_connection(olds, news), notes=notes)
    return _check_change(olds, news, connect)


def _check_recreation(
    olds: JobInputs, news: JobInputs, again: str, data_note: tuple[str, ...], code_note: tuple[str, ...]
) -> Checked[JobInputs]:
    """Return the checked inputs of a job that was deleted externally, and that the user has not changed."""
    if not data_note:
        return Checked(replace(with_current_connection(olds, news), again=again), notes=code_note)
    recreated = replace(_same_run(olds, news), again=again)  # the previous volume may have been deleted
    if has_no_record(again):  # the job may have ended: then it is not created again
        return Checked(replace(recreated, data=olds.data), notes=(*data_note, *code_note))
    return Checked(recreated)


def _check_lost(
    olds: JobInputs, news: JobInputs, presence: Presence, again: str, connect: Connect
) -> Checked[JobInputs]:
    """Return the checked inputs of a job that was deleted externally, and that the user has changed."""
    reasons = replacement_reasons(olds, news, connect)
    if has_no_record(again) and olds.is_local and not reasons:
        return Checked(replace(_same_run(olds, news), again=again))
    inputs = new_run(olds, news)
    if presence.alone is None or not olds.whose.owns(presence.alone) or may_interrupt(olds, news):
        continued = continue_run(olds, news, connect)
        return Checked(inputs, failures=continued.failures, notes=continued.notes)
    shown = "; ".join(reasons)
    why = (
        f"{olds.where} is still running although its record is gone, but this change would end it and start a"
        f" new run: {shown}"
    )
    return Checked(inputs, failures=(f"{why}. {WAIT}",))


def _check_change(olds: JobInputs, news: JobInputs, connect: Connect) -> Checked[JobInputs]:
    """Return the checked inputs of a job that the user has changed: in place, or as a new run."""
    why = unavailable_release(olds, news)
    if why:
        return Checked(_same_run(olds, news), failures=(why,))
    reasons = replacement_reasons(olds, news, connect)
    if not reasons:  # it goes on with the data that it was started with
        return Checked(replace(_same_run(olds, news), data=olds.data), notes=moved_queue_note(olds, news))
    interruption = interrupt(olds, news, reasons, connect)
    return Checked(new_run(olds, news), failures=interruption.failures, notes=interruption.notes)


def _rerun(olds: JobInputs, news: JobInputs, changes: list[str], connect: Connect) -> Checked[JobInputs]:
    """Return the checked inputs of a job that runs again because of a change that its `rerun_on` names."""
    interruption = interrupt(olds, news, changes, connect)
    if interruption.failures:
        return Checked(new_run(olds, news), failures=interruption.failures)
    again = f"{olds.where}: {'; '.join(changes)}: runs again (rerun_on)"
    return Checked(new_run(olds, news), notes=(again, *interruption.notes))


def _same_run(olds: JobInputs, news: JobInputs) -> JobInputs:
    """Return the current inputs of a run that goes on."""
    run_inputs = news.run_inputs
    if run_inputs:
        run_inputs = {**without(run_inputs, COMMIT), **only(section(olds.run_inputs), (COMMIT,))}
    return replace(
        news,
        owner=olds.owner,
        generation=olds.generation,
        earlier_runs=olds.earlier_runs,
        identity=olds.identity,
        run_inputs=run_inputs,
    )


def _other_notes(
    olds: JobInputs, news: JobInputs, inputs: JobInputs, presence: Presence | None, changed: list[str], connect: Connect
) -> list[str]:
    """Return notes on a suspended job that runs again; on secrets and unknown values of a run that goes on."""
    if inputs.generation != olds.generation:
        if presence is not None and presence.note.startswith("suspended"):
            return [f"{olds.where} was {presence.note}; the new run starts nevertheless"]
        return []
    notes = []
    if changed:
        notes.append(secret_note(olds, changed, connect))
    if isinstance(news.digest, Unknown):
        notes.append(unknown_note(olds, news, connect))
    return notes


def _refusals_of_new_run(
    olds: JobInputs, news: JobInputs, inputs: JobInputs, presence: Presence | None, connect: Connect
) -> tuple[str, ...]:
    """Return why a run cannot be replaced by a new one; empty if it can, or goes on. inputs: The checked inputs."""
    if inputs.generation == olds.generation:
        return ()
    if olds.where == inputs.where and (olds.retain or inputs.retain):
        hint = "give the new run another name (name=), or first remove retain_on_delete in a separate `pulumi up`"
        return (f"{olds.where} is kept (retain_on_delete), but a new run would have the same name: {hint}",)
    refusals = _moved_root_refusals(olds, news, inputs, presence)
    return refusals or tuple(f"{olds.where} is not replaced: {problem}" for problem in silent_workers(olds, connect))


def _moved_root_refusals(
    olds: JobInputs, news: JobInputs, inputs: JobInputs, presence: Presence | None
) -> tuple[str, ...]:
    """Return why a new run on this machine cannot use another root folder: the previous one has its volumes, or the record of the
    previous run."""
    before, now = olds.root, news.root
    if not before or not now or before == now:
        return ()
    if Path(before).exists():
        if "persistentVolumeClaim" not in json.dumps(inputs.objects, default=str):
            return ()
        why = f"{olds.where} has its volumes in {before}, but the new run would be in {now}, without these volumes"
        return (f"{why}: {keep_root_hint(olds, news)}",)
    if presence is None or presence.owner is None:
        return ()
    return (
        f"{olds.where} has moved with its folder, from {before} to {now}: run `pulumi up` without the new run first",
    )


def _with_recorded_label(olds: JobInputs, news: JobInputs, presence: Presence | None) -> JobInputs:
    """Return the inputs of a job with the label of its target, if its record has that one: an interrupted update may have stored
    another one."""
    if not news.label or presence is None or presence.owner is None:
        return olds
    if (presence.owner.id, presence.owner.stack) != (olds.owner, news.label):
        return olds
    return with_label(olds, news.label)


def _with_kept_label(olds: JobInputs, news: JobInputs, inputs: JobInputs, presence: Presence | None) -> JobInputs:
    """Return the inputs of a run that goes on, with the label that its objects have, also if the job has another Target resource
    now. A job that came from another stack gets a label of this one: it would otherwise be deleted with that stack's last
    target."""
    label = olds.target.get("sweep")
    if label:
        inputs = with_label(inputs, label)
    if presence is not None and presence.owner is not None:
        return with_current_label(olds, news, inputs)
    return inputs
