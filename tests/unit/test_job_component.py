"""What a program reports of a job that has failed. Programs: tests/engine."""

from __future__ import annotations

import pytest
from pulumi_trainer.datasets import DatasetInitializer, Fetched
from pulumi_trainer.job_component import JobComponent
from pulumi_trainer.program import messages
from pulumi_trainer.provider.jobs.manual import STOPPED, stop_note
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.trainjob import TrainJob

REPLACE = "`pulumi up --replace '**digits'`"


@pytest.mark.parametrize(
    ("kind", "reason", "hint"),
    [
        (
            TrainJob,
            STOPPED,
            "It stays stopped while the program stays the same: use `pulumi-trainer rerun digits` or set another run= key to"
            " run it again, or remove it from the program",
        ),
        (TrainJob, "Error", f"{JobComponent.another_run} {REPLACE}"),
        (DatasetInitializer, STOPPED, f"{Fetched.another_run} {REPLACE}"),
    ],
)
def test_the_hint_of_a_stopped_job_names_no_cause(
    monkeypatch: pytest.MonkeyPatch, kind: type[JobComponent], reason: str, hint: str
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(messages, "warn", lambda text, _: warnings.append(text))
    job = kind.__new__(kind)
    job._name, job.where = "digits", 'TrainJob("digits")'
    status = JobStatus("digits", "team", phase="Failed", reason=reason, message=stop_note("ann", 1.0))
    assert job._check_failure(status, None), "its outputs are known"
    (warning,) = warnings
    title, message, *rest = warning.splitlines()
    assert (title, rest) == (f'TrainJob("digits") Failed ({reason})', [hint])
    assert message.startswith("stopped by ann")
