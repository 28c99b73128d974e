"""What the observer of a program's jobs knows between two diagnoses. Its watches run against a cluster in tests/cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer
from pulumi_trainer.provider.targets.kubernetes.observe import job_snapshot, watch
from pulumi_trainer.provider.targets.kubernetes.observe.failed_output import FailedOutput
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import ObservedJob
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import with_gone, with_worker
from pulumi_trainer.provider.trainer.kinds import JOBSET

Document = dict[str, Any]


class Server:
    """Has one PodGroup, and is asked for nothing else."""

    host = "https://server"

    def within(self, _: float) -> Server:
        return self

    def list(self, *_: Any, **__: Any) -> tuple[list[Document], str]:
        return [{"metadata": {"name": "job"}, "spec": {"minMember": 2}}], "1"

    def watch(self, *_: Any, seconds: float, **__: Any) -> list[Document]:
        time.sleep(min(seconds, 0.1))
        return []


class Manager:
    """A cluster of MultiKueue whose credential plugin fails."""

    workers: ClassVar[dict[str, Any]] = {}

    def list(self, *_: Any, **__: Any) -> tuple[list[Document], str]:
        raise TargetFault(Problem("kubeconfig user ann: aws", "ended with exit code 1"))


def pod(name: str, message: str) -> Document:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    labels = {"scheduling.x-k8s.io/pod-group": "job", "jobset.sigs.k8s.io/jobset-name": "job"}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created},
        "spec": {"schedulerName": "gangs"},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


@pytest.fixture
def observer() -> Any:
    made = Observer(Server(), "team")  # type: ignore[arg-type]
    made._records.synced.set()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    made._changed(JOBSET, "ADDED", {"metadata": {"name": "job", "creationTimestamp": created}, "spec": {}})
    for name in ("a", "b"):
        made._changed(POD, "ADDED", pod(name, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."))
    (gangs,) = made._gangs.values()
    assert gangs.synced.wait(10)
    yield made
    made.stop()


def test_a_gang_stays_pending_until_the_next_diagnosis_of_a_changed_job(observer: Observer) -> None:
    """The count of nodes begins anew without a pending gang: a node that is added at that moment would wake no gang."""
    observer.changed()
    assert (status := observer.status("job")) is not None and status.reason == "WaitingForGang"
    assert observer._waiting().keys() == {"job"}
    observer._changed(
        POD, "MODIFIED", pod("a", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu, 1 Insufficient cpu.")
    )
    assert observer.changed() == {"job"}
    assert observer._waiting().keys() == {"job"}, "between the change and its diagnosis"
    assert (status := observer.status("job")) is not None and "Insufficient cpu" in status.message


def test_a_job_that_changes_during_its_diagnosis_is_diagnosed_again(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer.changed()
    view = observer.job_view
    changes = iter([pod("a", "0/3 nodes are available: 3 Insufficient memory.")])

    def changed_meanwhile(name: str) -> Any:
        found = view(name)
        for change in changes:
            observer._changed(POD, "MODIFIED", change)
        return found

    monkeypatch.setattr(observer, "job_view", changed_meanwhile)
    observer.status("job")
    assert observer._waiting().keys() == {"job"}
    assert (status := observer.status("job")) is not None and "Insufficient" in status.message
    assert observer.changed() == {"job"}
    assert (status := observer.status("job")) is not None and status.reason == "WaitingForGang"
    assert observer._known["job"].current


def test_a_job_of_multikueue_is_told_although_the_connection_of_kueue_cannot_be_read() -> None:
    """An exception would end the thread that also wakes gangs."""
    view = JobView("team", "job", workload={"status": {"clusterName": "east"}})
    found = with_worker(Manager(), view)  # type: ignore[arg-type]
    assert found.cluster == "east" and found.worker_fault is not None
    assert "does not know how to reach it" in found.worker_fault.why


def crashed(name: str, restarts: int) -> Document:
    last = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "node", "restartCount": restarts, "state": waiting, "lastState": last}
    labels = {"jobset.sigs.k8s.io/jobset-name": "job", "batch.kubernetes.io/job-name": "job-node-0"}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": _now()},
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def wait_for_lines(observer: Observer, line: str) -> None:
    until = time.monotonic() + 10
    while line not in str(observer.status("job")):
        assert time.monotonic() < until, observer.status("job")
        time.sleep(0.01)


def test_what_a_container_has_printed_outlives_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ObservedJob controller deletes pods that restart their containers in place at the backoff limit, with their logs."""
    asked: list[FailedContainer] = []

    def read(_client: Any, _namespace: str, failed: FailedContainer) -> list[str]:
        asked.append(failed)
        if len(asked) > 2:
            return []  # the pod is gone
        return [f"KeyError: {failed.restarts}"]

    monkeypatch.setattr(job_snapshot, "last_lines", read)
    server: Any = Server()
    server.workers = {}
    observer = Observer(server, "team")
    observer._failed_output.start()
    observer._records.synced.set()
    meta = {"name": "job", "uid": "u", "creationTimestamp": _now()}
    jobset = {"metadata": meta, "spec": {"replicatedJobs": [{"name": "node"}]}, "status": {}}
    observer._changed(JOBSET, "ADDED", jobset)
    for restarts in (1, 2):
        observer._changed(POD, "MODIFIED", crashed("a", restarts))
        wait_for_lines(observer, f"KeyError: {restarts}")
        observer.status("job")
        assert [each.restarts for each in asked] == [1, 2][:restarts], "once after each failure"
    observer._changed(POD, "DELETED", crashed("a", 3))
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": "over (first failed job: job-node-0)",
    }
    observer._changed(JOBSET, "MODIFIED", {**jobset, "status": {"conditions": [failed]}})
    status = observer.conclude("job")
    observer.stop()
    assert status is not None and status.phase == "Failed"
    assert status.message.endswith("container node of pod a on node gpu-1: exit code 1\n  KeyError: 2")


def test_failed_pods_of_a_worker_cluster_are_remembered() -> None:
    """Kueue deletes a job that has ended from the worker cluster."""
    before = JobView("team", "job", pods=[crashed("a", 1), crashed("b", 1)], gone=[crashed("c", 1)])
    now = JobView("team", "job", pods=[crashed("b", 2)])
    assert [each["metadata"]["name"] for each in with_gone(now, before).gone] == ["c", "a"]


def test_what_a_worker_cluster_has_shown_explains_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = Server()
    observer = Observer(server, "team")
    meta = {"name": "job", "uid": "u", "creationTimestamp": _now()}
    observer._changed(JOBSET, "ADDED", {"metadata": meta, "spec": {}, "status": {}})
    job = {"kind": "JobSet", "name": "job", "uid": "u"}
    workload = {
        "metadata": {"name": "w", "ownerReferences": [job], "creationTimestamp": _now()},
        "status": {"clusterName": "far"},
    }
    observer._changed(WORKLOAD, "ADDED", workload)
    observer.status("job")
    for pods in ([crashed("a", 1)], []):
        monkeypatch.setattr(watch, "with_worker", lambda _, view, shown=pods: replace(view, cluster="far", pods=shown))
        observer._read_workers()
    assert [pod["metadata"]["name"] for pod in observer.job_view("job").gone] == ["a"]


def test_the_newest_explanations_are_kept() -> None:
    job = ObservedJob(0.0)
    for name in "abcdef":
        job.keep_lines({name: [name]})
    assert job.lines == {name: [name] for name in "cdef"}


def test_logs_are_read_up_to_one_that_did_not_fail_because_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ["Traceback (most recent call last):", "RuntimeError: Connection closed by peer"]
    said = {"a": lost, "b": [], "c": ["KeyError: 1"], "d": lost}
    asked: list[str] = []

    def read(_client: Any, _namespace: str, failed: FailedContainer) -> list[str]:
        asked.append(failed.pod)
        return said[failed.pod]

    monkeypatch.setattr(job_snapshot, "last_lines", read)
    view = JobView("team", "job", pods=[crashed(name, 1) for name in said], lines={"b": ["before"]})
    server: Any = Server()
    server.workers = {}
    assert job_snapshot.with_lines(server, view).lines == {"a": lost, "b": ["before"], "c": ["KeyError: 1"]}
    assert asked == ["a", "b", "c"]


def test_a_log_is_read_once_after_each_failure() -> None:
    server: Any = Server()
    output = FailedOutput(server, lambda *_: None)
    for restarts, asked in ((1, True), (1, False), (2, True), (2, False)):
        output.look(JobView("team", "job", pods=[crashed("a", restarts)]))
        assert (output._wanted.pop("job", None) is not None) == asked
    output.look(JobView("team", "other"))
    assert not output._wanted
