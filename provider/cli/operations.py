"""Suspends, resumes, stops and reruns the jobs that a command names, on this machine or in a cluster."""

from __future__ import annotations

import time
from typing import Literal

from pulumi_trainer.provider.api.manual import STOPPED, Override, stop_note
from pulumi_trainer.provider.api.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.api.submission import Submission
from pulumi_trainer.provider.api.usage import current_user
from pulumi_trainer.provider.cli.jobs import check_own, check_single, chosen_jobs, of_stack, read_view
from pulumi_trainer.provider.cli.reach import Job, Where
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line

Operation = Literal["suspend", "resume", "stop", "rerun"]

_DONE: dict[Operation, str] = {
    "suspend": "is being suspended; `pulumi-trainer resume` continues it",
    "resume": "is resumed",
    "stop": "is stopped; `pulumi-trainer rerun` or another run= key starts it again",
    "rerun": "runs again",
}


def operate(operation: Operation, name: str, where: Where) -> None:
    """Apply an operation to one job, and print the result.

    Raises:
        TrainerError: The job is not found, has ended, or belongs to another owner.
    """
    job = find_job(operation, name, where)
    suspended, already = None, ""
    if operation in ("suspend", "resume"):
        suspended = _is_suspended(job)
    if operation == "suspend" and suspended:
        already = _already_suspended(job)
    status = apply(operation, job)
    print_line(f"{job.label} {already or _result(operation, status, suspended=suspended)}")
    removed = status.identity.removed_lineages
    if operation == "rerun" and removed:
        print_line(f"its new run removes output and checkpoints of {', '.join(removed)} (keep_runs)")


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


def _is_suspended(job: Job) -> bool | None:
    """Return whether a job is suspended, by its program or by a user; None if the cluster shows no such job."""
    if job.local is not None:
        return job.local.jobs.is_suspended(job.namespace, job.name)
    from pulumi_trainer.provider.targets.kubernetes import operations

    view = read_view(job)
    if view is None or view.main is None:
        return None
    return operations.is_suspended(view)


def _already_suspended(job: Job) -> str:
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


def find_job(operation: Operation, name: str, where: Where) -> Job:
    """Return the only job of a name.

    Only an operation that starts the job needs its Secrets, which the state of its stack has.

    Args:
        operation: What is to be done with it; `rerun` requires a job of a stack.
        name: The job argument of the command: NAME or KIND/NAME, for example `trainjob/digits`.

    Raises:
        TrainerError: The job is not found, or several jobs have the name.
    """
    if not name:
        raise Invalid(Problem(operation, "the name of the job is empty"))
    if operation == "rerun" and not of_stack(name, where):
        raise Refused(_without_stack(name, where))
    jobs = chosen_jobs(name, where, secrets=operation in ("resume", "rerun"))
    check_single(jobs, name)
    return jobs[0]


def apply(operation: Operation, job: Job) -> JobStatus:
    """Apply an operation to a job, and return its status.

    Args:
        job: The job, as `find_job` returns it.

    Raises:
        Refused: The job is in a state that does not allow the operation.
        Conflict: The job belongs to another owner.
        TargetFault: The target fails, or does not have the job.
    """
    if job.client is not None:
        check_own(job)
    if operation == "stop":
        return _stop(job)
    if operation == "rerun":
        return _rerun(job)
    return _set_suspend(job, suspend=operation == "suspend")


def _set_suspend(job: Job, *, suspend: bool) -> JobStatus:
    override = Override(suspend, current_user(), time.time())
    if job.local is not None:
        submission = None if suspend else _submission(job)
        status = job.local.jobs.set_suspend(job.namespace, job.name, _owner(job), override, submission)
    else:
        from pulumi_trainer.provider.targets.kubernetes import operations

        assert job.client is not None
        status = operations.set_suspend(job.client, job.namespace, job.name, override, job.owner)
    if status.terminal:
        raise Refused(Problem(_place(job), f"is {status.phase}", "`pulumi-trainer rerun` runs it again"))
    return status


def _stop(job: Job) -> JobStatus:
    message = stop_note(current_user(), time.time())
    if job.local is not None:
        status = job.local.jobs.stop(job.namespace, job.name, _owner(job), message)
    else:
        from pulumi_trainer.provider.targets.kubernetes import operations

        assert job.client is not None
        status = operations.stop(job.client, job.namespace, job.name, job.owner, message)
    if status.reason != STOPPED:
        raise Refused(Problem(_place(job), f"has ended before: it is {status.phase}"))
    return status


def _rerun(job: Job) -> JobStatus:
    submission = _submission(job)
    if job.local is not None:
        return job.local.jobs.rerun(submission)
    from pulumi_trainer.provider.targets.kubernetes import operations

    assert job.client is not None
    return operations.rerun(job.client, submission)


def _submission(job: Job) -> Submission:
    """Return what the stack of a job has submitted.

    Raises:
        Refused: The job was not found by its stack; a cluster does not have all of what was submitted.
    """
    if job.submission is None:
        raise Refused(_without_stack(_place(job), Where()))
    return job.submission


def _without_stack(place: str, where: Where) -> Problem:
    """Return the problem of a job that was not found by its stack."""
    change, options = "run the command in its Pulumi project", "-n, --context and --kubeconfig"
    if where.arguments:
        change, options = "pass its Pulumi project as project_dir=", "namespace=, context= and kubeconfig="
    if where.cluster:
        change = f"leave out {options}, and {change}"
    why = "only the state of its stack has what was submitted"
    return Problem(place, why, f"{change}, or name the stack with {where.spelled('stack')}")


def _owner(job: Job) -> Owner:
    """Return the owner of a job of this machine, which is always a job of a stack."""
    assert job.owner is not None
    return job.owner


def _place(job: Job) -> str:
    return f"{job.namespace}/{job.name}"
