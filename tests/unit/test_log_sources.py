"""Containers of pods: which logs there are, and which belong to the newest attempt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import ATTEMPT, COMPLETION, JOB_INDEX, JOB_NAME, STEP
from pulumi_trainer.provider.service.logs import LogLine, Selection, log_lines
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.targets.kubernetes.logs.log_follow import LogFollower
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import Position
from pulumi_trainer.provider.targets.kubernetes.logs.log_sources import newest_pods, sort_pods, sources, steps, trim_pod
from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection, history, read_log
from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail


def pod(
    name: str, *, step: str = "node", index: int = 0, attempt: int = 0, made: int = 0, **status: Any
) -> dict[str, Any]:
    labels = {STEP: step, ATTEMPT: str(attempt), JOB_INDEX: "0", JOB_NAME: f"a-{step}-0", COMPLETION: str(index)}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": f"2026-11-21T12:00:{made:02}Z"}
    return trim_pod({"metadata": meta, "spec": {"containers": [{"name": "node", "image": "i"}]}, "status": status})


def test_lines_name_the_files_of_the_user() -> None:
    class Logs:
        def logs(self, *_: object, **__: object) -> Iterator[bytes]:
            yield b'2026-11-21T12:00:00Z   File "/opt/pulumi-trainer/source/project/m/net.py", line 3\n'

    client: Any = Logs()
    (source,) = sources(pod("a"))
    (line,) = read_log(client, "ns", source, Position(), complete=True)
    assert line.text == '  File "m/net.py", line 3'


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [p["metadata"]["name"] for p in pods]


def test_the_newest_attempt_of_the_jobset() -> None:
    assert names(newest_pods([pod("old", attempt=9), pod("new", attempt=10), pod("other", attempt=10, index=1)])) == [
        "new",
        "other",
    ]


def test_the_newest_pod_of_each_node() -> None:
    """A Job makes another pod for an index that has failed."""
    assert names(newest_pods([pod("second", made=5), pod("first", made=1), pod("launcher", step="launcher")])) == [
        "launcher",
        "second",
    ]


def test_the_order_is_that_of_steps_and_numbers() -> None:
    pods = [pod("c", index=10), pod("b", index=9), pod("a", step="dataset-initializer"), pod("b1", index=9, made=1)]
    assert names(sort_pods(pods)) == ["a", "b", "b1", "c"]
    assert steps(pods) == ["dataset-initializer", "node"]


@pytest.mark.parametrize(
    ("status", "phase", "started", "ended", "restarts"),
    [
        ({}, "Pending", False, True, 0),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, "Pending", False, True, 0),
        ({"state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}}}, "Running", True, False, 0),
        ({"state": {"terminated": {"exitCode": 1}}}, "Running", True, True, 0),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}, "Running", True, True, 3),
        ({"state": {"running": {}}}, "Failed", True, True, 0),
        ({"state": "odd", "restartCount": "many"}, "Running", False, True, 0),
    ],
)
def test_what_a_status_says(status: dict[str, Any], phase: str, started: bool, ended: bool, restarts: int) -> None:
    (source,) = sources(pod("p", phase=phase, containerStatuses=[{"name": "node", **status}]))
    assert (source.started, source.ended, source.restarts) == (started, ended, restarts)
    assert source.alone and source.key == ("uid-p", "node")


def test_containers_in_the_order_in_which_they_start() -> None:
    full = {
        "metadata": {"name": "p", "uid": "1"},
        "spec": {
            "containers": [{"name": "node"}, {"name": "side"}],
            "initContainers": [{"name": "setup"}, "odd", {"name": 7}],
        },
    }
    found = sources(trim_pod(full))
    assert [s.container for s in found] == ["setup", "node", "side"] and not found[0].alone
    assert sources(trim_pod({})) == []


class Cluster:
    """Has a job that has ended and its pod; the credential plugin fails for the first two requests of the log."""

    def __init__(self) -> None:
        ended = {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
        self.pods = [pod("a", phase="Succeeded", containerStatuses=[ended])]
        self.faults = 2

    def within(self, _: float) -> Cluster:
        return self

    def get(self, *_: Any) -> None:
        return None

    def list(self, kind: Any, *_: Any, **__: Any) -> tuple[list[Any], str]:
        return (self.pods if kind is POD else []), "1"

    def watch(self, *_: Any, **__: Any) -> Iterator[Any]:
        time.sleep(0.1)
        return iter(())

    def logs(self, *_: Any, **__: Any) -> Iterator[bytes]:
        if self.faults:
            self.faults -= 1
            raise TargetFault(Problem("kubeconfig user ann: aws", "ended with exit code 1"))
        yield b"2026-11-21T12:00:00.000000000Z done\n"


class Processes(Cluster):
    """Has a job of two nodes with two processes each, which runs; `requests` are the limits of the requests of logs."""

    def __init__(self) -> None:
        runs = {"name": "node", "restartCount": 0, "state": {"running": {}}}
        self.pods = [pod(f"a-node-0-{n}-x", index=n, phase="Running", containerStatuses=[runs]) for n in (0, 1)]
        self.texts = ["0]:first", "1]:first", "1]:second", "0]:second", "0]:third"]
        self.requests: dict[str, list[str | None]] = {}
        self.empty = False

    def end(self) -> None:
        ended = {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
        self.pods = [pod(f"a-node-0-{n}-x", index=n, phase="Succeeded", containerStatuses=[ended]) for n in (0, 1)]

    def logs(self, _: str, name: str, query: dict[str, str], **__: Any) -> Iterator[bytes]:
        self.requests.setdefault(name, []).append(query.get("tailLines"))
        if self.empty and len(self.requests[name]) == 1:
            return
        tail = int(query.get("tailLines", len(self.texts)))
        since = query.get("sinceTime", "")[:19]
        stamped = [f"2026-11-21T12:00:{n:02}.0Z [default{text}\n" for n, text in enumerate(self.texts)]
        for line in stamped[len(stamped) - tail :]:
            if line[:19] >= since:
                yield line.encode()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    monkeypatch.setattr("pulumi_trainer.provider.targets.kubernetes.logs.tail._worker", lambda *_, **__: None)
    monkeypatch.setattr("pulumi_trainer.provider.service.logs.check_own", lambda *_: None)
    return Processes()


def lines_of(client: Any, **more: Any) -> Iterator[LogLine]:
    return log_lines([ReachedJob("team", "a", client=client)], Selection(node=1, process=1, **more))


def test_the_last_lines_of_a_process_are_counted_without_those_of_the_others(processes: Processes) -> None:
    def shown(lines: int) -> list[str]:
        return [line.text for line in lines_of(processes, lines=lines)]

    assert shown(1) == ["[default1]:second"]
    assert processes.requests == {"a-node-0-0-x": ["1"], "a-node-0-1-x": [None]}, "one log is read whole"
    assert shown(2) == shown(9) == ["[default1]:first", "[default1]:second"]
    processes.requests.clear()
    assert shown(0) == [] and processes.requests["a-node-0-1-x"] == ["0"]


@pytest.mark.parametrize("empty", [False, True])
def test_following_begins_with_the_last_lines_of_the_process(processes: Processes, empty: bool) -> None:
    """Of a log that is empty when following begins, all lines are new."""
    followed = lines_of(processes, lines=1, follow=True)
    processes.empty = empty
    found = []
    if not empty:
        found.append(next(followed).text)
    processes.texts += ["1]:third", "0]:fourth"]
    processes.end()
    found += [line.text for line in followed]
    first = ["[default1]:first"] if empty else []
    assert found == [*first, "[default1]:second", "[default1]:third"]


def test_a_followed_log_continues_after_the_credentials_have_failed() -> None:
    cluster = Cluster()
    follower = LogFollower(cluster, "team", "a", LogSelection(), {}, print)  # type: ignore[arg-type]
    assert [line.text for line in follower.lines(cluster.pods)] == ["done"]


@pytest.mark.parametrize(
    ("pods", "why"), [([], ""), ([pod("a-node-0-0-x")], "has no step launcher. Hint: available: node")]
)
def test_steps_of_a_job_that_was_stopped_are_not_known(
    pods: list[dict[str, Any]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JobSet is deleted, and its Pods are, or soon will be."""

    class Stopped:
        def get(self, *_: Any) -> None: ...

        def list(self, *_: Any, labels: str, **__: Any) -> tuple[list[Any], str]:
            return [each for each in pods if STEP not in labels], ""

    monkeypatch.setattr("pulumi_trainer.provider.targets.kubernetes.logs.tail._worker", lambda *_, **__: None)
    client: Any = Stopped()
    lines = tail(client, "ns", "a", LogSelection("launcher"))
    if why:
        with pytest.raises(TargetFault, match=why):
            list(lines)
    else:
        assert list(lines) == []


@pytest.mark.parametrize(
    ("restarts", "kept", "notes"),
    [(1, True, []), (1, False, ["1 earlier run"]), (3, True, ["2 earlier runs"]), (3, False, ["3 earlier runs"])],
)
def test_output_that_kubernetes_has_removed_is_named(restarts: int, kept: bool, notes: list[str]) -> None:
    """It keeps the output of one earlier run of a container, and later of none."""

    class Kept:
        def logs(self, _namespace: str, _pod: str, query: dict[str, str], **_: Any) -> Iterator[bytes]:
            if "previous" in query and not kept:
                raise ApiError(Problem("log", "previous terminated container not found"), 400, {})
            yield b"2026-01-01T00:00:00Z one\n"

    found: list[str] = []
    status = {"name": "node", "state": {"running": {}}, "restartCount": restarts}
    one = {**pod("a-node-0-0-x"), "status": {"phase": "Running", "containerStatuses": [status]}}
    client: Any = Kept()
    for selection in (LogSelection(), LogSelection(earlier=True)):
        list(history(client, "ns", [one], selection, {}, found.append))
    assert found == [f"a-node-0-0-x: Kubernetes has removed the output of {each} of container node" for each in notes]
