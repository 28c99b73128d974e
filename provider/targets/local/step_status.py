"""Derives what a status shows of the steps of a running job from its JobSet and its Pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.status import Phase, Step
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.targets.local.jobset_controller import JobSet
from pulumi_trainer.provider.targets.local.pod_processes import PodRunner


def installing(pods: Collection[PodRunner]) -> list[str]:
    """Return the packages that are being installed; none if user code runs. With MPI, nodes are ready earlier."""
    across: set[str] = set()
    packages: set[str] = set()
    for container in chain.from_iterable(pod.containers for pod in pods):
        packages.update(container.installing)
        if container.plan.across:
            across.update(container.installing)
    if not across and any(pod.ready for pod in pods):
        return []
    return sorted(across or packages)


def steps_of(document: Mapping[str, Any], jobset: JobSet, running: Mapping[tuple[str, int], PodRunner]) -> list[Step]:
    """Return the status of each step of a JobSet. running: Name of a Job and index -> its Pod."""
    return [_step_status(job.name, jobset, running) for job in jobs_of(document)]


def _step_status(name: str, jobset: JobSet, running: Mapping[tuple[str, int], PodRunner]) -> Step:
    jobs = jobset.jobs_of_step(name)
    pods = [p for (job, _), p in running.items() if any(j.name == job for j in jobs)]
    finished = 0.0
    if all(j.phase in ("Complete", "Failed") for j in jobs):
        finished = max((j.finished for j in jobs), default=0.0)
    step = Step(
        name,
        count=sum(j.parallelism for j in jobs),
        active=len(pods),
        ready=sum(p.ready for p in pods),
        succeeded=sum(len(j.succeeded) for j in jobs),
        failed=sum(j.replaced for j in jobs),
        restarts=sum(j.replaced + j.restarted for j in jobs) + sum(p.restarted for p in pods),
        started=min((j.started for j in jobs if j.started), default=0.0),
        finished=finished,
    )
    if any(j.phase == "Failed" for j in jobs):
        step.phase = Phase.FAILED.value
    elif jobs and all(j.phase == "Complete" for j in jobs):
        step.phase = Phase.SUCCEEDED.value
    elif step.ready:
        step.phase = Phase.RUNNING.value
    elif pods:
        step.phase = Phase.STARTING.value
    return step
