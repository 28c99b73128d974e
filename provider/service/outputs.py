"""Finds the outputs of jobs and of their runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.lineage import find_run, folder_of
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.retention import REMOVED
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.reach import Job
from pulumi_trainer.provider.service.runs import read_runs_of


@dataclass(frozen=True)
class Found:
    """An output and its job. output: None if the volume is gone."""

    state: State
    where: str
    output: Output | None

    @property
    def phase(self) -> str:
        if self.state.status is None:
            return Phase.DELETED.value
        return self.state.status.phase

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `--json`."""
        job, known = self.state.job, self.output or Output(self.where, 0)
        about = {"name": job.name, "namespace": job.namespace, "resource": job.resource, "phase": self.phase}
        return {**about, **known.to_dict(), "where": self.where, "gone": self.output is None}


def find_output(state: State, run: str, argument: str) -> Found | None:
    """Return the output of a job, or of one of its runs; None if it has none.

    Args:
        run: Id of the run; empty for the result of the job.
        argument: What names the run in a message.

    Raises:
        Invalid: The job has no run of that id.
    """
    job = state.job
    if job.local is not None:
        if state.status is not None and state.status.record_lost:
            raise TargetFault(Problem(job.label, state.status.message))
        if state.status is None or not state.status.output:
            return None
        path = _folder(job, state.status.output, run, argument)
        return Found(state, path, job.local.volumes.output(path))
    from pulumi_trainer.provider.targets.kubernetes.jobs import record
    from pulumi_trainer.provider.targets.kubernetes.storage import claims

    assert job.client is not None
    kept = record.find(job.client, job.namespace, job.name)
    if kept is None or not kept.is_record or not kept.output:
        return None
    phase = state.status.phase if state.status is not None else ""
    path = _folder(job, kept.result(phase), run, argument)
    return Found(state, path, claims.output(job.client, job.namespace, path))


def _folder(job: Job, result: str, run: str, argument: str) -> str:
    """Return the folder of a run's lineage beside the result of its job.

    Raises:
        Invalid: The job has no run of that id.
    """
    if not run:
        return result
    runs = read_runs_of(job)
    chosen = find_run(runs, run, argument)
    if REMOVED in chosen.note:
        raise TargetFault(Problem(f"run {run}", REMOVED, "`pulumi-trainer runs` shows which runs have theirs"))
    lineages = {each.lineage for each in runs}
    if result.rpartition("/")[2] not in lineages:  # a volume of the runtime, without folders for runs
        return result
    return folder_of(result, chosen.lineage)
