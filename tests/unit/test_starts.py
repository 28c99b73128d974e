"""When waiting jobs start: what is read for that, from whom, and what is said where less may be read."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds
from pulumi_trainer.provider.kueue.scheduling.durations import Expectation
from pulumi_trainer.provider.targets.kubernetes.observe.job_durations import read_expectations
from pulumi_trainer.provider.targets.kubernetes.observe.job_starts import read_starts
from test_queue_snapshot import Server
from test_start_answers import FLAVOR, Document, team, workload

RUNNING = workload("nlp", "old", 8, "2026-11-01T09:00:00Z")
WAITING = workload("nlp", "llama", 8, "2026-11-01T10:00:00Z", runs=False)
OBJECTS = [FLAVOR, *team("nlp", 8), RUNNING, WAITING]
BEHIND = "behind nlp/old (8 h100): 8 h100 more must become free; when it starts is open: nlp/old has no time limit"
LOCAL, CLUSTER = ("nlp", "gpus"), ("", "gpus-nlp")


class Visibility(Server):
    """With Kueue's visibility API. answers: Path -> waiting Workloads, or a status code."""

    workers: dict[str, Any] = {}

    def __init__(self, *forbidden: str, answers: dict[str, Any] | None = None, version: str = "v1beta2") -> None:
        super().__init__({}, *forbidden)
        self.documents = {(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]): d for d in OBJECTS}
        self.objects = {key: {} for key in self.documents}
        self.version, self.answers, self.asked = version, answers, list[str]()

    def list(self, kind: Any, namespace: str = "", **given: Any) -> Any:
        if kind.kind == "Pod":
            return self.pods(given["labels"].removeprefix("jobset.sigs.k8s.io/jobset-name=")), ""
        return super().list(kind, namespace, **given)

    def pods(self, job: str) -> list[Document]:
        return []

    def _object(self, key: tuple[str, str, str]) -> Document | None:
        return self.documents.get(key)

    def read(self, path: str, *_: Any) -> Document:
        if path == "/apis":
            groups = super().read(path)["groups"]
            if self.answers is not None:
                groups.append({"name": "visibility.kueue.x-k8s.io", "versions": [{"version": self.version}]})
            return {"groups": groups}
        self.asked.append(path)
        assert self.answers is not None
        answer = self.answers[path]
        if isinstance(answer, int):
            raise ApiError(Problem(path, "refused"), answer, {})
        return {"items": answer}


def pending(job: str, position: int) -> Document:
    about = {"namespace": "nlp", "name": f"jobset-{job}", "ownerReferences": [{"kind": "JobSet", "name": job}]}
    return {"metadata": about, "positionInClusterQueue": position, "positionInLocalQueue": 0}


def path(*place: str, version: str = "v1beta2") -> str:
    namespace, name = place
    inside = f"namespaces/{namespace}/localqueues" if namespace else "clusterqueues"
    return f"/apis/visibility.kueue.x-k8s.io/{version}/{inside}/{name}/pendingworkloads"


@pytest.mark.parametrize("place", [LOCAL, CLUSTER])
@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_the_position_is_that_of_kueue(place: tuple[str, str], version: str) -> None:
    server = Visibility(answers={path(*place, version=version): [pending("llama", 4)]}, version=version)
    starts = read_starts(server, [place])  # type: ignore[arg-type]
    assert starts == {"nlp/llama": f"waits at position 5 of its ClusterQueue {BEHIND}"}
    assert server.asked == [path(*place, version=version)]
    assert read_starts(server, [place]) == starts and len(server.asked) == 1  # type: ignore[arg-type]


def test_a_queue_that_is_not_known_is_not_asked_about() -> None:
    server = Visibility(answers={})
    assert read_starts(server, [("", "")]) == {"nlp/llama": f"waits {BEHIND}"}  # type: ignore[arg-type]
    assert not server.asked


def test_where_the_api_is_not_served_nothing_is_asked() -> None:
    server = Visibility()
    assert read_starts(server, [LOCAL]) == {"nlp/llama": f"waits {BEHIND}"}  # type: ignore[arg-type]
    assert not server.asked


@pytest.mark.parametrize("code", [403, 404, 503])
def test_a_position_that_may_not_be_read_is_left_out(code: int) -> None:
    answers = {path(*LOCAL): code, path("nlp", "other"): [pending("other", 0)]}
    found = read_starts(Visibility(answers=answers), [LOCAL, ("nlp", "other")])  # type: ignore[arg-type]
    assert found == {"nlp/llama": f"waits {BEHIND}", "nlp/other": "waits at position 1 of its ClusterQueue"}


@pytest.mark.parametrize("kind", ["Workload", "ResourceFlavor"])
def test_who_may_not_see_all_queues_sees_the_position(kind: str) -> None:
    server = Visibility(kind, answers={path(*LOCAL): [pending("llama", 0)]})
    assert read_starts(server, [LOCAL]) == {"nlp/llama": "waits at position 1 of its ClusterQueue"}  # type: ignore[arg-type]
    assert read_starts(Visibility(kind), [LOCAL]) == {}  # type: ignore[arg-type]


class Printing(Visibility):
    """Whose jobs run in a Pod each. status: What `old` has printed; a status code if its log may not be read."""

    def __init__(self, status: Document | int, *more: Document) -> None:
        super().__init__()
        self.status, self.logs = status, list[str]()
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
        for each in (workload("nlp", "old", 8, begun), *more):
            self.documents["Workload", "nlp", each["metadata"]["name"]] = each
        self.objects = {key: {} for key in self.documents}

    def pods(self, job: str) -> list[Document]:
        running = {"name": "node", "state": {"running": {"startedAt": "2026-11-01T09:00:00Z"}}}
        status = {"phase": "Running", "containerStatuses": [running]}
        return [{"metadata": {"name": f"{job}-0"}, "spec": {"containers": [{"name": "node"}]}, "status": status}]

    def log_tail(self, namespace: str, pod: str, *_: Any) -> bytes:
        self.logs.append(f"{namespace}/{pod}")
        if isinstance(self.status, int):
            raise ApiError(Problem(pod, "refused"), self.status, {})
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"{stamp} step 3\n{stamp} {json.dumps({'trainerStatus': self.status})}\n".encode()


def start_of_llama(server: Server) -> str:
    return read_starts(server, [LOCAL])["nlp/llama"]  # type: ignore[arg-type]


def test_the_progress_in_the_log_of_a_job_that_has_what_another_one_lacks() -> None:
    server = Printing({"estimatedRemainingSeconds": 600})
    assert re.search(
        r"starts about [\d:]+ to [\d:]+ UTC, if no other job comes \(by the progress of nlp/old\)",
        start_of_llama(server),
    )
    assert start_of_llama(server) and server.logs == ["nlp/old-0"], "once"


@pytest.mark.parametrize("status", [403, {"estimatedRemainingSeconds": "soon"}, {}])
def test_without_progress_the_start_is_open(status: Any) -> None:
    assert start_of_llama(Printing(status)).endswith("when it starts is open: nlp/old has no time limit")


def test_few_logs_are_read() -> None:
    server = Printing({}, *(workload("nlp", f"job-{i}", 8, f"2020-01-01T08:0{i}:00Z") for i in range(7)))
    start_of_llama(server)
    assert sorted(server.logs) == [f"nlp/job-{i}-0" for i in range(5)], "of those that have run the longest"


def test_when_a_job_has_saved_its_newest_checkpoint_is_in_its_log() -> None:
    """It reports no remaining time."""
    server = Printing({"step": 3, "checkpoint": {"step": 2, "time": "2026-11-01T10:30:00Z"}})
    known = read_expectations(server, ["nlp/old"])["nlp/old"]  # type: ignore[arg-type]
    assert known == Expectation(saved=epoch_seconds("2026-11-01T10:30:00Z"))
