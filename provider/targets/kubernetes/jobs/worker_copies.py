"""Keeps copies of what a job's Pods need in the worker clusters of MultiKueue, which copies only the job itself.

In each worker a ConfigMap named like the job owns the copies, as the record of the job owns the objects in the manager cluster.
All functions can be repeated after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.wording import without_full_stop
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import apply, record
from pulumi_trainer.provider.targets.kubernetes.jobs.deletion import (
    DELETE_SECONDS,
    delete_job,
    delete_record,
    poll_until_gone,
)
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record

_POLL = 0.25
_WORKER_SECONDS = 10.0
"""Seconds for an answer of a worker cluster that may be down."""


@contextmanager
def in_worker(name: str) -> Iterator[None]:
    """Name the worker cluster in errors."""
    try:
        yield
    except TrainerError as error:
        kind = next((each for each in (Conflict, Invalid) if isinstance(error, each)), TargetFault)
        raise kind(*(each.below(f"worker cluster {name}") for each in error.problems)) from None


def check_reachable(client: Client, where: str, *, cached: bool = False) -> None:
    """Check that all worker clusters answer, before anything of a job or volume is deleted. cached: Whether an earlier answer
    in this process counts, as for a plan."""
    silent = []
    for cluster, worker in client.workers.items():
        try:
            if cached:
                Facts.of(worker, PLAN_SECONDS).served()
            else:
                worker.within(_WORKER_SECONDS).read("/apis")
        except TrainerError as fault:
            silent.append(silent_worker(cluster, where, fault))
    if silent:
        raise TargetFault(*silent)


def silent_worker(cluster: str, where: str, fault: TrainerError) -> Problem:
    """Return the problem that a worker cluster does not answer, and may still run a job."""
    what = where or "jobs of this stack"
    why = f"it cannot be asked, and may still run {what}: {without_full_stop(fault.problems[0].why)}"
    return Problem(f"worker cluster {cluster}", why, _IF_GONE)


_IF_GONE = (
    "make it answer and run the command again. If it is gone for good, remove it from the MultiKueueConfig of the queue and from"
    " workers, and run `pulumi up` without another change first"
)


def send(client: Client, submission: Submission, run: str) -> None:
    """Create or update the copies in all worker clusters."""
    for name, worker in client.workers.items():
        with in_worker(name):
            apply.send_beside(worker, submission, _owner(worker, submission, run))


def delete(client: Client, namespace: str, name: str, run: str, owner: Owner | None) -> None:
    """Delete the copies in all worker clusters, and return when they and the job's Pods there are gone."""

    def mine(found: Record) -> bool:
        return found.copy_of != "" and run in ("", found.copy_of) and (owner is None or owner.owns(found.whose))

    for cluster, worker in client.workers.items():
        with in_worker(cluster):
            found = record.find(worker, namespace, name)
            if found is not None and mine(found):
                _delete(worker, found, mine)


def delete_unreachable(client: Client, namespace: str, name: str, owner: Owner) -> None:
    """Delete the copies in worker clusters that the program no longer has, as far as these answer."""
    for cluster, worker in client.workers.items():
        try:
            delete(client.with_workers({cluster: worker.within(_WORKER_SECONDS)}), namespace, name, "", owner)
        except TargetFault:
            continue


def sweep(client: Client, namespace: str, label: str) -> list[str]:
    """Delete all copies with a stack's label, and return the jobs that they belong to."""

    def mine(found: Record) -> bool:
        return found.copy_of != "" and found.stack == label and not found.retained

    swept = []
    selector = f"{owner_labels.RECORD}={record.COPY},{owner_labels.STACK}={label}"
    for cluster, worker in client.workers.items():
        with in_worker(cluster):
            found, _ = worker.list(CONFIG_MAP, namespace, labels=selector)
            for each in filter(mine, map(Record.of, found)):
                _delete(worker, each, mine)
                swept.append(f"{namespace}/{each.name} in {cluster}")
    return swept


def _owner(worker: Client, submission: Submission, run: str) -> Record:
    """Return the ConfigMap that owns the copies in a worker cluster; created if it does not exist."""
    wanted = record.copy_document(submission, run)
    deadline = time.monotonic() + DELETE_SECONDS
    while True:
        try:
            return Record.of(worker.create(CONFIG_MAP, wanted))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise apply.apply_error(error, CONFIG_MAP, wanted) from None
        found = record.find(worker, submission.namespace, submission.name)
        if found is None:
            continue
        if found.deleting and time.monotonic() < deadline:
            time.sleep(_POLL)
            continue
        _check_owner(found, submission)
        metadata = {**wanted["metadata"], "resourceVersion": found.version}
        try:
            return Record.of(worker.patch(CONFIG_MAP, submission.namespace, submission.name, {"metadata": metadata}))
        except ApiError as error:
            if not (error.code == 409 or error.absent) or time.monotonic() > deadline:
                raise


def _check_owner(found: Record, submission: Submission) -> None:
    """Raise Conflict if a ConfigMap in a worker cluster belongs to somebody else."""
    where = f"{submission.namespace}/{submission.name}"
    if not found.copy_of and not found.is_record:
        raise Conflict(found.foreign_problem(where))
    me = Owner(submission.owner, submission.sweep)
    if found.is_record or not me.owns(found.whose):
        why = f"exists in this cluster and belongs to {found.whose.called_by(me)}"
        raise Conflict(Problem(where, why, "give the TrainJob another name"))


def _delete(worker: Client, found: Record, mine: Callable[[Record], bool]) -> None:
    """End the job in a worker cluster, which Kueue may not have done yet, and delete the copies."""
    namespace, name = found.namespace, found.name
    delete_job(worker, replace(found, uid=found.copy_of))
    delete_record(worker, namespace, name, mine)

    def is_left() -> bool:
        there = record.find(worker, namespace, name)
        return there is not None and there.uid == found.uid

    poll_until_gone(worker, is_left, namespace, name)
