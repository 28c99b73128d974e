"""Checks, compares, creates, reads, updates and deletes one job.

A job belongs to its owner. After another stack has adopted a job, nothing here reads, changes or deletes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import Owner, Phase, may_have_ended
from pulumi_trainer.provider.jobs.submission import WORKERS
from pulumi_trainer.provider.kubernetes.errors import Unreadable
from pulumi_trainer.provider.kubernetes.values.accessors import text, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.connection import (
    connection_changed,
    has_other_label,
    moved_root_note,
    with_current_connection,
    with_label,
)
from pulumi_trainer.provider.lifecycle.earlier_runs import stored_runs, with_histories, with_outputs
from pulumi_trainer.provider.lifecycle.job_changes import has_unknown_secrets
from pulumi_trainer.provider.lifecycle.job_check import check
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs, JobOutputs, stored_phase
from pulumi_trainer.provider.lifecycle.recreation import is_created_again, is_recreated, stays_gone, why_again
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource
from pulumi_trainer.provider.lifecycle.stack_targets import UsedLabels
from pulumi_trainer.provider.lifecycle.target import Cluster, Connect

_FORGOTTEN = "no longer in the state of this stack"


class Jobs(Resource[JobInputs, JobOutputs]):
    """Jobs of a stack. labels: Labels in use; those of jobs are added."""

    inputs, outputs = JobInputs, JobOutputs

    def __init__(self, labels: UsedLabels) -> None:
        self._labels = labels
        self._runs: dict[str, list[Run]] = {}
        self._replaced = set[str]()

    def check(self, olds: JobInputs | None, news: JobInputs, connect: Connect) -> Checked[JobInputs]:
        """Return the inputs to store.

        The engine checks a replacement again, without its old inputs. Its record has the runs before it; if that is gone, what
        the state has of them counts.
        """
        self._labels.use(olds)
        component = str(news.component)
        if olds is None:
            news = replace(news, earlier_runs=[run.to_dict() for run in self._runs.get(component, [])])
        found = check(olds, news, connect, self._labels)
        if olds is not None and olds.where == found.inputs.where and olds.generation != found.inputs.generation:
            self._runs[component] = stored_runs(olds)
        self._labels.use(found.inputs)
        if olds is None and found.inputs.earlier_runs:
            self._replaced.add(found.inputs.where)
        return found

    def diff(self, olds: JobOutputs, news: JobInputs) -> Diff:
        if olds.generation != news.generation:
            component = str(news.component)
            self._runs[component] = with_outputs(self._runs.get(component, []), olds.identity, text(olds.phase))
            return Diff(True, ("generation",))
        if isinstance(news.digest, Unknown):
            return Diff(None)
        written = olds.secret_revisions != news.secret_revisions or has_unknown_secrets(news)
        written = written or connection_changed(olds, news) or has_other_label(olds, news)
        changed = written or olds.retain != news.retain or olds.digest != news.digest or bool(olds.drift)
        if news.again in ("", olds.again):
            return Diff(changed)
        why = why_again(olds, news.again)
        return Diff(changed or is_recreated(olds, news), notes=(f"{olds.where}: {why}",) if why else ())

    def create(self, inputs: JobInputs, connect: Connect) -> tuple[str, JobOutputs]:
        """Create the job and return as soon as the target has accepted it. Safe to repeat after a crash."""
        target = connect(inputs.target)
        status = target.jobs.create(with_histories(inputs.submission()), adopt=bool(inputs.adopt))
        return inputs.where, inputs.outputs(status, target.identity())

    def update(self, outputs: JobOutputs, inputs: JobInputs, connect: Connect) -> JobOutputs:
        """Change what may change in place (`lifecycle.changes`), and revert external changes that a refresh has found."""
        was, known = outputs, replace(outputs, target={**inputs.target, **outputs.target})
        outputs = with_current_connection(known, inputs)
        if has_other_label(was, inputs):
            outputs = with_label(outputs, inputs.label)
        there = replace(inputs, target=outputs.target)
        target, submission = connect(there.target), there.submission()
        if has_other_label(was, inputs):
            target.jobs.relabel(submission, was.whose)
        if was.workers != there.workers:
            _move_copies(was, there, connect)
        if not self.diff(outputs, inputs).changes:
            target.identity()  # a connection to another cluster must not be stored
            return replace(outputs, target=outputs.location)
        if is_created_again(outputs, inputs):
            same_run = replace(submission, identity=Identity.from_dict(outputs.identity))
            return there.outputs(target.jobs.create(same_run), target.identity())
        outputs = replace(outputs, secret_revisions=inputs.secret_revisions)
        is_gone = stays_gone(outputs, inputs)
        if is_gone:
            outputs = replace(outputs, digest=inputs.digest)
        if is_gone or not self.diff(outputs, inputs).changes:
            if inputs.again in ("", outputs.again):  # otherwise its record is gone, and it has ended
                target.jobs.update_secrets(submission)
            return replace(outputs, target={**outputs.location, **target.identity()})
        status = target.jobs.update(submission, force=bool(outputs.drift or inputs.adopt))
        return there.outputs(status, target.identity())

    def read(self, outputs: JobOutputs, connect: Connect) -> tuple[JobOutputs | None, list[str]]:
        """Return the current outputs, and notes for the user. None: the job was not found, or belongs to another stack."""
        target = connect(outputs.target)
        try:
            status = target.jobs.status(outputs.namespace, outputs.name)
        except Unreadable as fault:
            return outputs, [f"{outputs.where} is unchanged in the state of this stack: {fault}"]
        if status is not None and not outputs.whose.owns(status.whose):
            adopted = status.whose.adopted_from(outputs.whose)
            return None, [f"{outputs.where} {adopted}. It is left alone and {_FORGOTTEN}"]
        if status is None or (status.phase == Phase.DELETED and not status.unknown_end):
            moved = moved_root_note(outputs)
            if moved:
                return outputs, [f"{outputs.where} {moved}"]
            if status is None and outputs.is_local and may_have_ended(text(outputs.phase)):
                return replace(outputs, phase=Phase.DELETED.value), []
            return None, [
                f"{outputs.where} is gone and {_FORGOTTEN}: while the program has it, `pulumi up` creates it again"
            ]
        drift = {} if status.terminal else target.jobs.drift(outputs.namespace, outputs.name)
        known: dict[str, Any] = {"identity": status.identity.to_dict()} if status.identity.id else {}
        return replace(outputs, uid=status.uid, phase=stored_phase(status), drift=drift, **known), []

    def delete(self, outputs: JobOutputs, connect: Connect) -> list[str]:
        """End the job and delete the objects of this run; objects that somebody else has created since stay. Return notes for
        the user: the current owner, or which data was deleted."""
        jobs = connect(outputs.target).jobs
        place = outputs.namespace, outputs.name
        left = jobs.delete(*place, uid=outputs.uid, owner=outputs.whose, replaced=outputs.where in self._replaced)
        if isinstance(left, Owner):
            return [f"{outputs.where} {left.adopted_from(outputs.whose)}. It is left alone"]
        return [left] if left else []


def _move_copies(outputs: JobOutputs, inputs: JobInputs, connect: Any) -> None:
    """Copy what a job needs to its current worker clusters, and delete the copies in those that the program no longer has."""
    before: Cluster = connect({**outputs.target, WORKERS: without(outputs.workers, *inputs.workers)})
    now: Cluster = connect(inputs.target)
    before.jobs.abandon_copies(outputs.namespace, outputs.name, outputs.whose)
    now.jobs.update_copies(inputs.submission())
