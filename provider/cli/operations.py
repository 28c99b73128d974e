"""`suspend`, `resume`, `stop`, `rerun`: apply an operation to one job, and print what it has done."""

from __future__ import annotations

from pulumi_trainer.provider.jobs.retention import removal
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line
from pulumi_trainer.provider.service.jobs import read_view
from pulumi_trainer.provider.service.operations import Operation, apply, find_job
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.runs import read_runs_of_all

_DONE: dict[Operation, str] = {
    "suspend": "is being suspended; `pulumi-trainer resume` continues it",
    "resume": "is resumed",
    "stop": "is stopped; `pulumi-trainer rerun` or another run= key starts it again",
    "rerun": "runs again",
}


def operate(operation: Operation, name: str, where: Where) -> None:
    """Apply an operation to one job, and print the result."""
    job = find_job(operation, name, where)
    suspended, already = None, ""
    if operation in ("suspend", "resume"):
        suspended = _is_suspended(job)
    if operation == "suspend" and suspended:
        already = _already_suspended(job)
    before = read_runs_of_all([job])[0][1] if operation == "rerun" else []
    status = apply(operation, job)
    print_line(f"{job.label} {already or _result(operation, status, suspended=suspended)}")
    if job.submission is not None:
        keep, with_folders = job.submission.keep_runs, job.submission.removes_folders
        removed = removal(before, status.identity, keep, removes_folders=with_folders)
        if removed:
            print_line(f"its new run {removed}")


def _result(operation: Operation, status: JobStatus, *, suspended: bool | None) -> str:
    """Return what an operation has done.

    Args:
        suspended: For `resume`, whether the job was suspended before; None if not known.
    """
    if operation == "resume" and suspended is False:
        reason = ""
        if status.reason:
            reason = f" ({plain(status.reason)})"
        return f"is not suspended: it is {status.phase}{reason}"
    if operation == "rerun" and status.phase == Phase.SUSPENDED:
        return "has a new run, which is suspended (suspend is true); `pulumi-trainer resume` starts it"
    return _DONE[operation]


def _is_suspended(job: ReachedJob) -> bool | None:
    """Return whether a job is suspended, by its program or by a user; None if the cluster shows no such job."""
    if job.local is not None:
        return job.local.jobs.is_suspended(job.namespace, job.name)
    from pulumi_trainer.provider.targets.kubernetes import operations

    view = read_view(job)
    if view is None or view.main is None:
        return None
    return operations.is_suspended(view)


def _already_suspended(job: ReachedJob) -> str:
    """Return what `suspend` prints of a suspended job: by whom and since when, if a user has suspended it."""
    if job.local is not None:
        found = job.local.jobs.suspension(job.namespace, job.name)
    else:
        from pulumi_trainer.provider.targets.kubernetes import operations

        assert job.client is not None
        found = operations.suspension(job.client, job.namespace, job.name)
    who = ""
    if found is not None and found.suspend:
        who = f" {found.since}"
    return f"is already suspended{who}; `pulumi-trainer resume` continues it"
