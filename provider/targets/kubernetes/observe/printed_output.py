"""Reads what the Pods of a job have printed about it: the newest progress, and why the job has failed. It is lost with them."""

from __future__ import annotations

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import with_lines
from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import with_reports
from pulumi_trainer.provider.trainer.job_status import derive_phase


def with_output(client: Client, view: JobView) -> JobView:
    """Return the view of a job that runs or has ended with what its Pods have printed about it, as far as they exist."""
    phase = derive_phase(view.jobset, view.train_job).phase
    if phase == Phase.FAILED:
        view = with_lines(client, view)
    if phase in (Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED) and not view.progress:
        view = with_reports(client, view)
    return view
