"""The runs before a new run of a job, which its record keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.runs import MOST_RUNS, UNKNOWN, Run, read_inputs
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.lifecycle.continuation import identity_input
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.recreation import ENDS

_histories: dict[tuple[str, str], str] = {}
"""Owner and id of a run -> its metrics with their history (`Run.history`), which is too large for the state of the stack.

They are kept from the check of the next run until its creation, since the record is deleted between the two."""


def with_earlier_runs(inputs: JobInputs, found: Sequence[Run]) -> JobInputs:
    """Return the inputs of a new run with the runs before it. A run that has not ended is ended by it.

    Args:
        found: The runs in the record of the job, the newest last.

    Raises:
        Invalid: `resume` or `fork` names a run that the job does not have.
    """
    earlier = []
    for run in found:
        if run.phase not in ENDS:
            run = replace(run, phase="Interrupted")
        earlier.append(run)
        _histories[inputs.owner, run.id] = run.history
    return replace(inputs, earlier_runs=[run.to_dict() for run in earlier], identity=identity_input(inputs, earlier))


def with_histories(submission: Submission) -> Submission:
    """Return a submission with what this process knows of the metrics of its earlier runs."""
    known = [replace(run, history=_histories.get((submission.owner, run.id), "")) for run in submission.earlier]
    return replace(submission, earlier=known)


def recorded_runs(olds: JobInputs | None, inputs: JobInputs) -> list[Mapping[str, Any]]:
    """Return the earlier runs of a new run from previous inputs, for a job whose record is gone: a replacement has failed after
    its deletion. How the last of these runs has ended, and when it was created, is not known.

    Args:
        olds: Previous inputs; None for a new job.
    """
    if olds is None or not olds.run_inputs or olds.where != inputs.where or olds.generation == inputs.generation:
        return []
    last = Run(olds.run, UNKNOWN, inputs=read_inputs(olds.run_inputs))
    return [*olds.earlier_runs, last.to_dict()][-MOST_RUNS:]
