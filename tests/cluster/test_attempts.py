"""Attempts of a job on real controllers: what a process that watches remembers, and what the counts of JobSet tell later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi_trainer.provider.jobs.attempts import Attempt, goodput
from pulumi_trainer.provider.jobs.manual import Override
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import ATTEMPT
from pulumi_trainer.provider.targets.kubernetes import operations
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tools.cluster import Cluster

from .jobs import Document, jobset, submission, until

FAILS_ONCE = {"outcome": "fail", "only-attempt": "0", "exit-code": "137", "reason": "OOMKilled", "run": "2s"}


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


@pytest.fixture
def observer(client: Client, namespace: str) -> Iterator[Observer]:
    made = Observer(client, namespace).start()
    yield made
    made.stop()


def target(client: Client, namespace: str) -> KubernetesTarget:
    """A target that has read nothing yet."""
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace, mode="jobset")


def status(client: Client, namespace: str) -> JobStatus:
    found = target(client, namespace).jobs.status(namespace, "job")
    assert found is not None
    return found


def failing() -> Document:
    return jobset("job", simulate=FAILS_ONCE, failurePolicy={"maxRestarts": 2, "restartStrategy": "BlockingRecreate"})


def test_who_watches_knows_each_attempt_and_the_record_keeps_them(
    client: Client, observer: Observer, namespace: str
) -> None:
    target(client, namespace).jobs.create(submission(namespace, failing()))
    observer.first("job")

    def is_over() -> bool:
        observer.wait(0.2)
        seen = observer.status("job")
        return seen is not None and seen.terminal

    until(is_over)
    observer.conclude("job")
    found = status(client, namespace)
    error, last = found.attempts
    assert (error.number, error.cause) == (1, "OOMKilled") and "exit code 137 (OOMKilled)" in error.detail
    assert 1 <= error.finished - error.started <= 6
    assert (last.number, last.cause, last.finished) == (2, "Succeeded", found.finished)
    used = goodput(found.attempts, found.finished)
    assert used is not None and not used.exact and used.wall == last.finished - error.started


def test_who_watches_knows_which_steps_were_done_again(
    client: Client, observer: Observer, namespace: str, cluster: Cluster
) -> None:
    """The first lines of each log are read, not only its newest ones."""
    job = jobset("job", simulate={**FAILS_ONCE, "run": "5s"}, failurePolicy={"maxRestarts": 2})
    target(client, namespace).jobs.create(submission(namespace, job))
    observer.first("job")

    def newest() -> Attempt | None:
        observer.wait(0.2)
        seen = observer.status("job")
        return seen.attempts[-1] if seen and seen.attempts else None

    for attempt, steps in enumerate(([1, 10, 20], [*range(11, 60)])):
        (pod,) = until(lambda n=attempt: running(observer, n))
        lines = [json.dumps({"trainerStatus": {"step": step}}) for step in steps]
        cluster.pod_logs(namespace, pod, lines)  # before the first status, with which its log is opened
        until(lambda last=steps[-1]: (a := newest()) is not None and a.last == last)
    until(lambda: (a := newest()) is not None and a.ended)
    found = observer.status("job")
    assert found is not None and [(each.first, each.last, each.redone) for each in found.attempts] == [
        (1, 20, 0),
        (11, 59, 9),
    ]
    used = goodput(found.attempts, found.finished)
    assert used is not None and used.exact and used.redone == 9


def running(observer: Observer, attempt: int) -> list[str]:
    """The Pods of an attempt that run."""
    found = [pod for pod in observer.job_view("job").live if pod["status"].get("phase") == "Running"]
    return [pod["metadata"]["name"] for pod in found if pod["metadata"]["labels"][ATTEMPT] == str(attempt)]


def test_what_nobody_has_watched_is_counted(client: Client, namespace: str) -> None:
    target(client, namespace).jobs.create(submission(namespace, failing()))
    found = until(lambda: s if (s := status(client, namespace)).terminal else None)
    error, last = found.attempts
    assert (error.cause, last.cause) == ("ProgramError", "Succeeded") or error.cause == "OOMKilled"
    assert last.started and last.finished and error.count == 1


def test_a_suspension_is_written_with_who_has_asked_for_it(client: Client, namespace: str) -> None:
    target(client, namespace).jobs.create(submission(namespace, jobset("job")))
    until(lambda: status(client, namespace).phase == "Running")
    operations.set_suspend(client, namespace, "job", Override(True, "ann", 2e9), None)
    until(lambda: status(client, namespace).phase == "Suspended")
    (only,) = status(client, namespace).attempts
    assert (only.cause, only.detail) == ("Suspended", "by ann with `pulumi-trainer suspend`") and only.started
    operations.set_suspend(client, namespace, "job", Override(False, "ann", 2e9), None)
    until(lambda: status(client, namespace).phase == "Running")
    until(lambda: len(status(client, namespace).attempts) == 2)
    first, second = status(client, namespace).attempts
    assert first == only and not second.ended
    stopped = operations.stop(client, namespace, "job", None, "stopped by ann")
    assert [each.cause for each in stopped.attempts] == ["Suspended", "Stopped"]
