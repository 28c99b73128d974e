"""Logs of jobs of a cluster: nothing twice, nothing lost, whatever happens to connections, pods and the server."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.logs import log_follow, pod_logs
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import Line
from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection
from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tools.cluster import Cluster

from .jobs import jobset, until
from .proxy import Cut, Fault, Proxy, Request, Reset

Document = dict[str, object]


@pytest.fixture
def user(user_kubeconfig: Path) -> Client:
    return open_client({"kubeconfig": str(user_kubeconfig)})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated kubelet does not end a log that is followed when its container ends."""
    monkeypatch.setattr(pod_logs, "IDLE", 1.0)


def running(client: Client, namespace: str, name: str, pods: int, attempt: int = 0) -> list[str]:
    """Names of its pods, once all run."""
    labels = f"jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/restart-attempt={attempt}"

    def look() -> list[str]:
        found, _ = client.list(POD, namespace, labels=labels)
        up = [p["metadata"]["name"] for p in found if p["status"]["phase"] == "Running"]
        return sorted(up) if len(up) == pods else []

    return until(look)


def create(client: Client, namespace: str, document: Document) -> None:
    document["metadata"]["namespace"] = namespace  # type: ignore[index]
    client.create(JOBSET, document)


def collect(lines: Iterator[Line]) -> tuple[list[Line], threading.Thread]:
    """Follows in a thread of its own."""
    found: list[Line] = []
    thread = threading.Thread(target=lambda: found.extend(lines), daemon=True)

    def run() -> None:
        for line in lines:
            found.append(line)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return found, thread


def of(lines: list[Line], pod: str) -> list[str]:
    return [line.text for line in lines if line.pod == pod]


class Cuts:
    """Ends streams of logs and watches early, each in another way; then leaves them alone."""

    def __init__(self, most: int) -> None:
        self.left = most
        self._count = itertools.count()

    def __call__(self, request: Request) -> Fault | None:
        if self.left <= 0 or not (request.path.endswith("/log") or request.watch):
            return None
        self.left -= 1
        number = next(self._count)
        if number % 5 == 4:
            return Reset()
        return Cut(1 if request.watch else number % 4 + 1, quietly=bool(number % 2))


def test_broken_connections(
    cluster: Cluster, root: Client, namespace: str, user_kubeconfig: Path, tmp_path: Path
) -> None:
    create(root, namespace, jobset("a", pods=2))
    pods = running(root, namespace, "a", 2)
    for pod in pods:
        cluster.pod_logs(namespace, pod, ["0", "1", "2"])
    with Proxy(cluster.kubeconfig) as proxy:
        proxy.rule = cuts = Cuts(40)
        client = open_client({"kubeconfig": str(proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig))})
        found, thread = collect(tail(client, namespace, "a", LogSelection(), follow=True))
        number = 3
        while cuts.left or number < 60:
            for pod in pods:
                cluster.pod_logs(namespace, pod, [str(number), str(number + 1)])
            number += 2
            time.sleep(0.02)
        expected = [str(i) for i in range(number)]
        until(lambda: all(len(of(found, pod)) >= number for pod in pods))
        root.delete(JOBSET, namespace, "a")
        thread.join(30)
        assert not thread.is_alive()
        for pod in pods:
            assert of(found, pod) == expected


@pytest.fixture
def own_small_cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.start(tmp_path / "cluster", components=("etcd", "apiserver", "kcm", "scheduler", "jobset", "kwok"))
    yield made
    made.stop()


def test_a_server_that_is_killed(own_small_cluster: Cluster) -> None:
    cluster, namespace = own_small_cluster, "default"
    client = open_client({"kubeconfig": str(cluster.kubeconfig)})
    create(client, namespace, jobset("a"))
    (pod,) = running(client, namespace, "a", 1)
    cluster.pod_logs(namespace, pod, ["before"])
    notes: list[str] = []
    found, thread = collect(tail(client, namespace, "a", LogSelection(), follow=True, note=notes.append))
    until(lambda: len(found) == 1)
    cluster.kill("apiserver")
    until(lambda: notes)
    cluster.restart("apiserver")
    cluster.pod_logs(namespace, pod, ["after"])
    until(lambda: len(found) >= 2)
    client.delete(JOBSET, namespace, "a")
    thread.join(30)
    # The Job may make another pod, before it goes itself.
    assert of(found, pod) == ["before", "after"] and not thread.is_alive()
    assert "trying again" in notes[0]


def test_a_jobset_that_restarts(cluster: Cluster, root: Client, user: Client, namespace: str) -> None:
    """New pods are attached to, those of the earlier attempt are told from them, and it ends with the job."""
    simulate = {"outcome": "fail", "only-attempt": "0", "run": "2s"}
    create(root, namespace, jobset("a", simulate=simulate, failurePolicy={"maxRestarts": 1}))
    (first,) = running(root, namespace, "a", 1)
    cluster.pod_logs(namespace, first, ["one"])
    found, thread = collect(tail(user, namespace, "a", LogSelection(), follow=True))
    (second,) = running(root, namespace, "a", 1, attempt=1)
    cluster.pod_logs(namespace, second, ["two"])
    thread.join(60)
    assert not thread.is_alive()
    assert of(found, first) == ["one"] and "two" in of(found, second)


def test_a_container_that_starts_again(
    cluster: Cluster, root: Client, user: Client, user_kubeconfig: Path, namespace: str
) -> None:
    document = jobset("a", simulate={"outcome": "crashloop", "run": "1s", "backoff": "1s"})
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 50
    create(root, namespace, document)
    (pod,) = running(root, namespace, "a", 1)
    cluster.pod_logs(namespace, pod, ["first"], previous=["nothing"])
    folder = cluster.place.run("kwok") / "logs" / namespace
    now, earlier = folder / f"{pod}.log", folder / f"{pod}.previous.log"
    found, thread = collect(tail(user, namespace, "a", LogSelection(), follow=True))
    until(lambda: of(found, pod) == ["first"])

    def restarts() -> int:
        status = (root.get(POD, namespace, pod) or {})["status"]["containerStatuses"][0]
        return int(status["restartCount"])

    before = restarts()
    first = now.read_text()
    for file, text in ((earlier, first + line(1, "its last words")), (now, line(3, "second"))):
        (folder / "new").write_text(text)
        (folder / "new").replace(file)
    until(lambda: restarts() > before)
    until(lambda: "second" in of(found, pod) and "its last words" in of(found, pod))
    for options, last in (("--all --step node", ["first", "its last words", "second"]), ("--step node", ["second"])):
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "logs", "a", *options.split()]
        argv += ["--kubeconfig", str(user_kubeconfig)]
        printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert printed.splitlines() == [f"{pod} {text}" for text in last], options
    root.delete(JOBSET, namespace, "a")
    thread.join(30)
    assert not thread.is_alive()
    assert sorted(of(found, pod)) == ["first", "its last words", "second"]
    assert of(found, pod)[0] == "first"


def line(later: float, text: str) -> str:
    """As a container runtime writes it."""
    at = datetime.fromtimestamp(time.time() + later, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ} stdout F {text}\n"


def test_which_lines(cluster: Cluster, root: Client, user: Client, namespace: str) -> None:
    create(root, namespace, jobset("a", pods=3))
    pods = running(root, namespace, "a", 3)
    for i in range(3):
        for pod in pods:
            cluster.pod_logs(namespace, pod, [f"{pod[9]}{i}"], previous=["earlier"] if i == 0 else [])

    def texts(wish: LogSelection) -> list[str]:
        return [line.text for line in tail(user, namespace, "a", wish)]

    assert texts(LogSelection()) == ["00", "10", "20", "01", "11", "21", "02", "12", "22"]  # by time
    assert texts(LogSelection(lines=1)) == ["02", "12", "22"]
    assert texts(LogSelection(lines=0)) == []
    assert texts(LogSelection(step="node", lines=1)) == ["02", "12", "22"]
    assert texts(LogSelection(since=3600, lines=2)) == ["01", "11", "21", "02", "12", "22"]
    with pytest.raises(Exception, match=r"has no step nodes. Hint: available: node"):
        texts(LogSelection(step="nodes"))


@pytest.mark.parametrize("wish", [LogSelection(lines=0), LogSelection(lines=1)])
def test_following_from_the_end(
    cluster: Cluster, root: Client, user: Client, namespace: str, wish: LogSelection
) -> None:
    """What was there before and was not asked for does not come later."""
    create(root, namespace, jobset("a"))
    (pod,) = running(root, namespace, "a", 1)
    cluster.pod_logs(namespace, pod, ["old", "older"])
    time.sleep(1.1)  # `since` is in whole seconds
    cluster.pod_logs(namespace, pod, ["0"])
    found, thread = collect(tail(user, namespace, "a", wish, follow=True))
    if wish.lines:
        until(lambda: of(found, pod) == ["0"])
    else:
        time.sleep(0.5)
    cluster.pod_logs(namespace, pod, ["1"])
    until(lambda: "1" in of(found, pod))
    time.sleep(1.5)
    assert of(found, pod) == ["0", "1"][1 - (wish.lines or 0) :]
    root.delete(JOBSET, namespace, "a")
    thread.join(30)
    assert not thread.is_alive()


def test_more_pods_than_threads(
    cluster: Cluster, root: Client, user: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("AT_ONCE", 4), ("TURNS", 2), ("TURN_SECONDS", 0.2)):
        monkeypatch.setattr(log_follow, name, value)
    create(root, namespace, jobset("a", pods=20))
    pods = running(root, namespace, "a", 20)

    def write(text: str) -> None:
        for pod in pods:
            cluster.pod_logs(namespace, pod, [text])

    write("0")
    before = threading.active_count()
    found, thread = collect(tail(user, namespace, "a", LogSelection(), follow=True))
    until(lambda: len(found) == 20)
    for i in range(1, 4):
        write(str(i))
        assert threading.active_count() <= before + 1 + 4 + 2 + 2
    until(lambda: len(found) >= 80)
    root.delete(JOBSET, namespace, "a")
    thread.join(30)
    assert {pod: of(found, pod) for pod in pods} == {pod: ["0", "1", "2", "3"] for pod in pods}
