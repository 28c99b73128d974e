"""`pulumi-trainer suspend`, `resume`, `stop` and `rerun` on real controllers, in both modes and with Kueue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.manual import Override
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes import operations
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from .jobs import Document, jobset, submission, until
from .test_queue import job, queue, runtime  # noqa: F401 (a fixture)

OURS = Owner("owner", "stack")
SUSPEND, RESUME = Override(True, "ann", 1.0), Override(False, "ann", 2.0)


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


def target(client: Client, namespace: str, mode: str = "jobset") -> KubernetesTarget:
    """A target that has read nothing yet."""
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace, mode=mode)


def reached(client: Client, namespace: str, phase: str, mode: str = "jobset", name: str = "job") -> JobStatus:
    found: JobStatus = until(lambda: _in_phase(target(client, namespace, mode).jobs.status(namespace, name), phase))
    return found


def _in_phase(status: JobStatus | None, phase: str) -> JobStatus | None:
    return status if status is not None and status.phase == phase else None


def labelled(document: Document, **labels: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "labels": labels}}


def suspend_of(root: Client, namespace: str) -> Any:
    return (root.get(JOBSET, namespace, "job") or {})["spec"].get("suspend")


def test_updates_keep_an_override_until_the_program_says_the_same(client: Client, root: Client, namespace: str) -> None:
    mine = target(client, namespace)
    mine.jobs.create(submission(namespace, jobset("job", suspend=False)))
    reached(client, namespace, "Running")
    operations.set_suspend(client, namespace, "job", SUSPEND, OURS)
    assert reached(client, namespace, "Suspended").message == SUSPEND.note
    assert mine.jobs.drift(namespace, "job") == {}
    presence = target(client, namespace).jobs.presence(namespace, "job")
    assert presence is not None and presence.note == SUSPEND.note
    mine.jobs.update(submission(namespace, labelled(jobset("job", suspend=False), team="a")))
    assert suspend_of(root, namespace) is True
    operations.set_suspend(client, namespace, "job", RESUME, OURS)
    reached(client, namespace, "Running")
    mine.jobs.update(submission(namespace, jobset("job", suspend=True)))
    assert suspend_of(root, namespace) is True
    operations.set_suspend(client, namespace, "job", RESUME, OURS)
    mine.jobs.update(submission(namespace, labelled(jobset("job", suspend=True), team="b")))
    assert suspend_of(root, namespace) is False
    mine.jobs.update(submission(namespace, jobset("job", suspend=False)))
    mine.jobs.update(submission(namespace, jobset("job", suspend=True)))
    assert suspend_of(root, namespace) is True


@pytest.mark.smoke
def test_stop_and_rerun(client: Client, root: Client, namespace: str) -> None:
    mine, sent = target(client, namespace), submission(namespace, jobset("job"))
    uid = mine.jobs.create(sent).uid
    reached(client, namespace, "Running")
    stopped = operations.stop(client, namespace, "job", OURS, "stopped by ann")
    assert (stopped.phase, stopped.reason, stopped.message) == ("Failed", "Stopped", "stopped by ann")
    assert root.get(JOBSET, namespace, "job") is None and not root.list(POD, namespace)[0]
    assert target(client, namespace).jobs.create(sent).reason == "Stopped"
    assert root.get(JOBSET, namespace, "job") is None
    operations.rerun(client, sent)
    assert reached(client, namespace, "Running").uid == uid
    assert target(client, namespace).jobs.delete(namespace, "job", uid=uid, owner=OURS) is None
    assert root.get(JOBSET, namespace, "job") is None and root.get(CONFIG_MAP, namespace, "job") is None


def test_train_jobs(client: Client, root: Client, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target(client, namespace, "trainer").runtimes.apply(runtime(namespace), "owner", "stack")
    sent = job(monkeypatch, namespace, "trainer")
    owner, name = Owner(sent.owner, sent.sweep), sent.name
    target(client, namespace, "trainer").jobs.create(sent)
    reached(client, namespace, "Running", "trainer", name)
    operations.set_suspend(client, namespace, name, SUSPEND, owner)
    assert reached(client, namespace, "Suspended", "trainer", name).message == SUSPEND.note
    operations.set_suspend(client, namespace, name, RESUME, owner)
    reached(client, namespace, "Running", "trainer", name)
    operations.stop(client, namespace, name, owner, "stopped by ann")
    assert root.get(TRAIN_JOB, namespace, name) is None and root.get(JOBSET, namespace, name) is None
    operations.rerun(client, sent)
    reached(client, namespace, "Running", "trainer", name)


def test_a_job_in_a_queue(client: Client, root: Client, namespace: str, queue: str) -> None:  # noqa: F811
    document = labelled(jobset("job"), **{QUEUE: queue})
    target(client, namespace).jobs.create(submission(namespace, document))
    reached(client, namespace, "Running")
    with pytest.raises(ApiError, match="workloads"):
        operations.set_suspend(client, namespace, "job", SUSPEND, OURS)
    operations.set_suspend(root, namespace, "job", SUSPEND, OURS)
    waiting = reached(client, namespace, "Queued")
    until(lambda: target(client, namespace).jobs.status(namespace, "job").reason == "Deactivated")  # type: ignore[union-attr]
    assert suspend_of(root, namespace) is True and waiting.uid
    operations.set_suspend(root, namespace, "job", RESUME, OURS)
    reached(client, namespace, "Running")
