"""Suspends, resumes, stops and reruns the jobs that a command names, on this machine or in a cluster."""

from __future__ import annotations

import time
from typing import Literal

from pulumi_trainer.provider.jobs.manual import STOPPED, Override, stop_note
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.jobs.usage import current_user
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused
from pulumi_trainer.provider.service.jobs import check_own, check_single, chosen_jobs, of_stack
from pulumi_trainer.provider.service.reach import ReachedJob, Where

Operation = Literal["suspend", "resume", "stop", "rerun"]


def find_job(operation: Operation, name: str, where: Where) -> ReachedJob:
    """Return the only job of a name.

    Only an operation that starts the job needs its Secrets, which the state of its stack has.

    Args:
        operation: What is to be done with it; `rerun` requires a job of a stack.
    """
    if not name:
        raise Invalid(Problem(operation, "the name of the job is empty"))
    if operation == "rerun" and not of_stack(name, where):
        raise Refused(_without_stack(name, where))
    jobs = chosen_jobs(name, where, secrets=operation in ("resume", "rerun"))
    check_single(jobs, name)
    return jobs[0]


def apply(operation: Operation, job: ReachedJob) -> JobStatus:
    if job.client is not None:
        check_own(job)
    if operation == "stop":
        return _stop(job)
    if operation == "rerun":
        return _rerun(job)
    return _set_suspend(job, suspend=operation == "suspend")


def _set_suspend(job: ReachedJob, *, suspend: bool) -> JobStatus:
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


def _stop(job: ReachedJob) -> JobStatus:
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


def _rerun(job: ReachedJob) -> JobStatus:
    submission = _submission(job)
    if job.local is not None:
        return job.local.jobs.rerun(submission, job.uid)
    from pulumi_trainer.provider.targets.kubernetes import operations

    assert job.client is not None
    return operations.rerun(job.client, submission)


def _submission(job: ReachedJob) -> Submission:
    """Return what the stack of a job has submitted. Raise Refused for a job that its stack did not find: a cluster does not
    have all of what was submitted."""
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


def _owner(job: ReachedJob) -> Owner:
    """Return the owner of a job of this machine, which is always a job of a stack."""
    assert job.owner is not None
    return job.owner


def _place(job: ReachedJob) -> str:
    return f"{job.namespace}/{job.name}"
