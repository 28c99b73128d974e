"""The calls of the lifecycle of jobs on plain data, as the state of a stack has it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.lifecycle import interruption, job_check
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs, JobOutputs
from pulumi_trainer.provider.lifecycle.jobs import Jobs
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, StateCalls
from pulumi_trainer.provider.lifecycle.stack_targets import UsedLabels

__all__ = ["Checked", "Diff"]

_calls = StateCalls(Jobs(UsedLabels()))
diff, create, update, read, delete = _calls.diff, _calls.create, _calls.update, _calls.read, _calls.delete


def check(olds: dict[str, Any], news: dict[str, Any], connect: Any, labels: Collection[str] = ()) -> Checked[Any]:
    before = JobInputs.from_state(olds) if olds else None
    found = job_check.check(before, JobInputs.from_state(news), connect, labels)
    return Checked(found.inputs.to_state(), found.failures, found.notes)


def interrupt(olds: dict[str, Any], news: dict[str, Any], connect: Any) -> interruption.Interruption:
    return interruption.interrupt(JobInputs.from_state(olds), JobInputs.from_state(news), [], connect)


def removal_notes(outputs: dict[str, Any], connect: Any) -> tuple[str, ...]:
    return interruption.removal_notes(JobOutputs.from_state(outputs), connect)


def submission(inputs: dict[str, Any]) -> Submission:
    return JobInputs.from_state(inputs).submission()
