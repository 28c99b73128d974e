"""Finds the outputs of jobs and of their runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.lineage import find_run, folder_of, identified, result_of
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.retention import REMOVED
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.service.runs import read_runs_of, stored_runs_of


@dataclass(frozen=True)
class Found:
    """An output and its job.

    Args:
        output: What is known of the volume; None if it is gone.
        run: The run that was asked for; None if the result of the job was.
    """

    state: State
    where: str
    output: Output | None
    run: Run | None = None

    @property
    def phase(self) -> str:
        if self.run is not None:
            return self.run.phase
        return Phase.DELETED.value if self.state.status is None else self.state.status.phase

    @property
    def is_written(self) -> bool:
        """Whether the job has not ended and may still write there."""
        status = self.state.status
        other = self.run is not None and status is not None and self.run.lineage != status.identity.lineage
        return status is not None and not status.terminal and not other

    def to_dict(self) -> dict[str, Any]:
        job, known = self.state.job, self.output or Output(self.where, 0)
        about = {"name": job.name, "namespace": job.namespace, "resource": job.resource, "phase": self.phase}
        return {**about, **known.to_dict(), "where": self.where, "gone": self.output is None}


def find_output(state: State, run: str, argument: str) -> Found | None:
    """Return the output of a job, or of one of its runs; None if it has none."""
    job, status = state.job, state.status
    if job.local is not None:
        is_lost = status is not None and status.record_lost
        result = status.output if status is not None else ""
        if is_lost:
            result = _stored_result(job, job.local.jobs.output_of)
        if is_lost and status is not None and not result:
            raise TargetFault(Problem(job.label, status.message))
        if not result:
            return None
        path, chosen = _folder(job, result, run, argument)
        return Found(state, path, job.local.volumes.output(path), chosen)
    from pulumi_trainer.provider.targets.kubernetes.jobs import record
    from pulumi_trainer.provider.targets.kubernetes.storage import claims

    assert job.client is not None
    kept = record.find(job.client, job.namespace, job.name)
    if kept is not None and kept.is_record:
        result = kept.result(status.phase if status is not None else "")
    else:
        result = _stored_result(job, lambda stored: claims.output_path(stored.main))
    if not result:
        return None
    path, chosen = _folder(job, result, run, argument)
    return Found(state, path, claims.output(job.client, job.namespace, path), chosen)


def _stored_result(job: ReachedJob, output_of: Callable[[Submission], str]) -> str:
    """Return the folder with the result of a job whose record is gone, as the state of its stack has it; empty if it has none."""
    if job.stored is None or not job.stored.identity:
        return ""
    run = Identity.from_dict(job.stored.identity)
    output = output_of(identified(job.stored.submission(), run))
    return result_of(output, run.lineage, job.phase, stored_runs_of(job)[:-1])


def _folder(job: ReachedJob, result: str, run: str, argument: str) -> tuple[str, Run | None]:
    """Return the folder of a run's lineage beside the result of its job, and the run; None if none was asked for."""
    if not run:
        return result, None
    runs = read_runs_of(job)
    chosen = find_run(runs, run, argument)
    if REMOVED in chosen.note:
        raise TargetFault(Problem(f"run {run}", REMOVED, "`pulumi-trainer runs` shows which runs have theirs"))
    lineages = {each.lineage for each in runs}
    if result.rpartition("/")[2] not in lineages:  # a volume of the runtime, without folders for runs
        return result, chosen
    return folder_of(result, chosen.lineage), chosen
