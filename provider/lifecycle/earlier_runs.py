"""The runs before a new run of a job, which its record keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.runs import MOST_RUNS, Identity, Run, read_inputs, read_runs
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.lifecycle.continuation import identity_input
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.recreation import ENDS

_INTERRUPTED = "Interrupted"
_UNKNOWN_END = "it is not known whether it had ended"
"""Note of a run whose record is gone."""
_histories: dict[tuple[str, str], str] = {}
"""Owner and id of a run -> its metrics with their history (`Run.history_text`), which is too large for the state of the stack.

They are kept from the check of the next run until its creation, since the record is deleted between the two."""


def with_earlier_runs(inputs: JobInputs, found: Sequence[Run]) -> JobInputs:
    """Return the inputs of a new run with the runs before it. A run that has not ended is ended by it."""
    earlier = []
    for run in found:
        if run.phase not in (*ENDS, Phase.DELETED):
            run = replace(run, phase=_INTERRUPTED)
        earlier.append(run)
        _histories[inputs.owner, run.id] = run.history_text
    return replace(inputs, earlier_runs=[run.to_dict() for run in earlier], identity=identity_input(inputs, earlier))


def with_histories(submission: Submission) -> Submission:
    """Return a submission with what this process knows of the metrics of its earlier runs."""
    known = [replace(run, history_text=_histories.get((submission.owner, run.id), "")) for run in submission.earlier]
    return replace(submission, earlier=known)


def stored_runs(inputs: JobInputs) -> list[Run]:
    """Return the runs of a job as the inputs in the state of its stack have them, the newest last: how that one has ended is not
    known. They are used if the record of the job is gone."""
    if not inputs.run_inputs:
        return []
    last = Run(run=inputs.run, phase=Phase.DELETED.value, note=_UNKNOWN_END, inputs=read_inputs(inputs.run_inputs))
    return [*read_runs(inputs.earlier_runs), last][-MOST_RUNS:]


def with_outputs(runs: Sequence[Run], identity: Mapping[str, Any], phase: str) -> list[Run]:
    """Return stored runs with what the outputs in the state have of the last one. phase: The last phase that the stack has
    seen; the end of a run counts."""
    known = Identity.from_dict(identity)
    ended: dict[str, Any] = {"phase": phase, "note": ""} if phase in ENDS else {}
    # its id is the second of its creation, or the next free one
    created = float(int(known.id or "0", 36))
    return [*runs[:-1], *(replace(run, created=created, **known.to_dict(), **ended) for run in runs[-1:])]
