"""One list+watch a kind for all jobs of a program: through everything that breaks between us and the API server."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.cache import reflector
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose
from pulumi_trainer.provider.targets.kubernetes.jobs.record import document
from pulumi_trainer.provider.targets.kubernetes.observe import job_store, watch
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import RECORD

from tools.cluster import Cluster

from .jobs import jobset, slip, submission, until
from .proxy import Answer, Cut, Hang, Proxy, Request, Reset, every

QUICK = {"run": "300ms", "start": "100ms"}
CRASH = {"outcome": "crashloop", "run": "200ms", "exit-code": "7", "backoff": "200ms"}


@pytest.fixture
def target(user_kubeconfig: Path, namespace: str) -> KubernetesTarget:
    client = open_client({"kubeconfig": str(user_kubeconfig)})
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace)


@pytest.fixture
def proxy(cluster: Any) -> Iterator[Proxy]:
    with Proxy(Path(cluster.kubeconfig)) as made:
        yield made


@pytest.fixture
def observing(proxy: Proxy, user_kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Observer]]:
    """Makes observers behind the proxy, with the least role."""
    made: list[Observer] = []

    def observe(**more: Any) -> Observer:
        file = proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig)
        made.append(Observer(open_client({"kubeconfig": str(file)}), namespace, stack="stack", **more).start())
        return made[-1]

    yield observe
    for each in made:
        each.stop()


def phases(observer: Observer, names: list[str], seconds: float = 60.0) -> dict[str, list[str]]:
    """What each job goes through, until all have ended."""
    found: dict[str, list[str]] = {name: [] for name in names}
    ended: set[str] = set()
    deadline = time.monotonic() + seconds
    while len(ended) < len(names):
        assert time.monotonic() < deadline, (found, observer.trouble())
        observer.wait(0.2)
        for name in names:
            status = observer.status(name)
            if status is not None and status.phase not in found[name][-1:]:
                found[name].append(status.phase)
            if status is not None and status.terminal:
                ended.add(name)
    return found


def submit(target: KubernetesTarget, *names: str, **job: Any) -> None:
    for name in names:
        target.jobs.create(submission(target.namespace, jobset(name, **{"simulate": QUICK, **job}), code=False))


def _watched(proxy: Proxy) -> Counter[str]:
    return Counter(r.path.rpartition("/")[2] for r in proxy.requests if r.watch)


class TestNumber:
    def test_as_many_requests_for_many_jobs_as_for_one(
        self, target: KubernetesTarget, observing: Callable[..., Observer], proxy: Proxy
    ) -> None:
        observer = observing()
        submit(target, "first")
        assert observer.first("first") is not None
        kinds = {"configmaps", "jobsets", "jobs", "pods", "workloads", "events"}
        watched = until(lambda: kinds <= (found := _watched(proxy)).keys() and found)
        assert watched == dict.fromkeys(kinds, 1)
        before = len(proxy.requests)
        names = [f"job-{i}" for i in range(12)]
        submit(target, *names)
        for name in names:
            observer.first(name)
        found = phases(observer, names)
        assert {p[-1] for p in found.values()} == {"Succeeded"}
        asked = [str(r) for r in proxy.requests[before:] if not r.path.endswith("/log")]
        assert asked == []

    def test_nothing_is_kept_of_jobs_of_others(
        self,
        target: KubernetesTarget,
        root: Client,
        observing: Callable[..., Observer],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(job_store, "YOUNG", 0.5)
        for i in range(5):
            foreign = jobset(f"theirs-{i}", pods=2, simulate={"outcome": "forever"})
            root.create(JOBSET, {**foreign, "metadata": {"name": f"theirs-{i}", "namespace": target.namespace}})
        until(lambda: len(root.list(POD, target.namespace)[0]) == 10)
        observer = observing()
        submit(target, "ours")
        assert observer.first("ours") is not None
        until(lambda: set(observer._store.jobs) == {"ours"})
        assert observer._store.passed >= {"theirs-0"}

    def test_a_job_that_becomes_ours_is_fetched(
        self,
        target: KubernetesTarget,
        root: Client,
        observing: Callable[..., Observer],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(job_store, "YOUNG", 0.5)
        job = jobset("job", simulate={"outcome": "forever"})
        root.create(JOBSET, {**job, "metadata": {"name": "job", "namespace": target.namespace}})
        until(lambda: snapshot(root, target.namespace, "job").pods)
        observer = observing()
        until(lambda: "job" in observer._store.passed)
        made = document(submission(target.namespace, job))
        made["metadata"]["namespace"] = target.namespace
        record = root.create(CONFIG_MAP, made)
        mark = {"metadata": {"annotations": {RECORD: record["metadata"]["uid"]}}}
        root.patch(JOBSET, target.namespace, "job", mark)
        until(lambda: (found := observer.status("job")) is not None and found.phase == "Running")


class TestFaults:
    @pytest.mark.parametrize(
        "rule",
        [
            every(1, Cut(1), lambda r: r.watch),
            every(2, Cut(1, quietly=True), lambda r: r.watch),
            every(2, Answer(410, reason="Expired", message="too old resource version"), lambda r: r.watch),
            every(3, Answer(429, after=1, reason="TooManyRequests")),
            every(2, Answer(500, reason="InternalError")),
            every(2, Answer(401, reason="Unauthorized", message="Unauthorized")),
            every(2, Reset()),
            every(4, Hang(1.0)),
        ],
        ids=["cut", "ended", "410", "429", "500", "401", "reset", "hang"],
    )
    def test_the_end_is_seen_whatever_breaks(
        self, rule: Any, target: KubernetesTarget, observing: Callable[..., Observer], proxy: Proxy
    ) -> None:
        proxy.rule = rule
        observer = observing()
        submit(target, "a", "b", simulate={"run": "2s"})
        found = phases(observer, ["a", "b"])
        assert {name: p[-1] for name, p in found.items()} == {"a": "Succeeded", "b": "Succeeded"}

    def test_what_went_while_nobody_watched_is_gone(
        self, target: KubernetesTarget, root: Client, observing: Callable[..., Observer], proxy: Proxy
    ) -> None:
        observer = observing()
        submit(target, "a", simulate={"outcome": "forever"})
        until(lambda: (found := observer.status("a")) is not None and found.phase == "Running")
        expired = Answer(410, reason="Expired")
        gate = threading.Event()

        def rule(request: Request) -> Any:
            return None if gate.is_set() else expired if request.watch else Answer(503)

        proxy.rule = rule
        root.delete(JOBSET, target.namespace, "a", propagation="Background")
        until(lambda: not root.list(POD, target.namespace)[0])
        gate.set()
        until(lambda: (found := observer.status("a")) is not None and found.phase == "Deleted")

    def test_silence_is_told_and_is_no_failure(
        self,
        target: KubernetesTarget,
        observing: Callable[..., Observer],
        proxy: Proxy,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(watch, "SILENT", 0.5)
        monkeypatch.setattr(watch, "REFUSED", 1.0)
        observer = observing()
        submit(target, "a", simulate={"run": "6s"})
        assert observer.first("a") is not None and observer.trouble() == ""
        proxy.rule = lambda _: Answer(503, message="away")
        fresh = observing()
        until(lambda: "no news from the cluster for" in fresh.trouble())
        time.sleep(1.5)
        assert "away" in fresh.trouble()
        proxy.reset()
        until(lambda: fresh.trouble() == "")
        assert phases(fresh, ["a"])["a"][-1] == "Succeeded"

    def test_credentials_that_stay_refused_end_the_wait(
        self, observing: Callable[..., Observer], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "REFUSED", 1.0)
        proxy.rule = lambda _: Answer(401, reason="Unauthorized", message="Unauthorized")
        observer = observing()
        with pytest.raises(TrainerError, match=r"Unauthorized. Hint: log in again"):
            until(lambda: observer.trouble() == "never")

    def test_a_kind_that_may_not_be_read_is_left_out_and_told_once(
        self,
        target: KubernetesTarget,
        observing: Callable[..., Observer],
        proxy: Proxy,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(reflector, "ABSENT", 0.1)
        hidden = Answer(403, reason="Forbidden", message='workloads is forbidden: User "u" cannot list')
        proxy.rule = lambda r: hidden if r.path.endswith("/workloads") else None
        told: list[str] = []
        observer = observing(note=told.append)
        held = jobset("a")
        held["metadata"]["labels"] = {QUEUE: "nosuch"}
        made = submission(target.namespace, held, code=False)
        slip(target.client, made)
        until(lambda: (found := observer.status("a")) is not None and found.phase == "Queued")
        assert "cannot be read: " in observer.why("a")
        until(lambda: proxy.count(path="/workloads") > 3)
        assert len(told) == 1 and told[0].startswith("why a job is queued is not shown: list of workloads")


class TestMemory:
    def test_how_a_pod_failed_outlives_it(self, target: KubernetesTarget, observing: Callable[..., Observer]) -> None:
        job = jobset("a", simulate=CRASH)
        step = job["spec"]["replicatedJobs"][0]["template"]["spec"]
        step["backoffLimit"], step["template"]["spec"]["restartPolicy"] = 1, "OnFailure"
        observer = observing()
        target.jobs.create(submission(target.namespace, job, code=False))
        assert phases(observer, ["a"])["a"][-1] == "Failed"
        until(lambda: not observer.job_view("a").pods)
        ended = observer.conclude("a")
        assert ended is not None and "exit code 7" in ended.message
        record = target.client.get(CONFIG_MAP, target.namespace, "a") or {}
        assert record["data"]["phase"] == "Failed" and "exit code 7" in record["data"]["message"]

    def test_a_job_that_removes_itself_was_seen_to_succeed(
        self, target: KubernetesTarget, observing: Callable[..., Observer]
    ) -> None:
        observer = observing()
        submit(target, "a", ttlSecondsAfterFinished=0)
        assert phases(observer, ["a"])["a"][-1] == "Succeeded"
        until(lambda: observer.job_view("a").jobset is None)
        ended = observer.conclude("a")
        assert ended is not None and ended.phase == "Succeeded"
        again = target.jobs.status(target.namespace, "a")
        assert again is not None and again.phase == "Succeeded"

    def test_progress_of_rank_0_is_read_from_its_log(
        self, target: KubernetesTarget, observing: Callable[..., Observer], cluster: Any
    ) -> None:
        observer = observing()
        submit(target, "a", simulate={"outcome": "forever"})
        observer.first("a")
        (pod,) = until(lambda: [p for p in observer.job_view("a").pods if p["status"].get("phase") == "Running"])
        line = '{"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": 0.5}]}}'
        cluster.pod_logs(target.namespace, pod["metadata"]["name"], ["starting", line])

        def progress() -> Any:
            status = observer.status("a")
            observer.changed()
            return status and status.progress

        found = until(progress)
        assert found["progressPercentage"] == 40 and found["metrics"] == {"loss": "0.5"}


class TestServer:
    def test_killed_api_server_and_controllers_that_do_not_run(self, own_cluster: Cluster, tmp_path: Path) -> None:
        client = open_client({"kubeconfig": str(own_cluster.kubeconfig)})
        target = KubernetesTarget(client, cluster=lambda: "", namespace="default")
        observer = Observer(client, "default", stack="stack").start()
        submit(target, "a", simulate={"run": "5s"})
        until(lambda: (found := observer.status("a")) is not None and found.phase == "Running")
        own_cluster.kill("apiserver")
        time.sleep(1)
        own_cluster.restart("apiserver")
        assert phases(observer, ["a"], 120)["a"][-1] == "Succeeded"

        again = {"outcome": "fail", "only-attempt": "0", "run": "300ms", "start": "3s"}
        submit(target, "r", simulate=again, failurePolicy={"maxRestarts": 1})
        until(lambda: (found := observer.status("r")) is not None and found.phase == "Restarting")
        own_cluster.kill("apiserver")
        time.sleep(1)
        own_cluster.restart("apiserver")
        assert phases(observer, ["r"], 120)["r"][-1] == "Succeeded"
        assert observer.job_view("r").jobset["status"]["restarts"] == 1  # type: ignore[index]

        own_cluster.kill("jobset")
        made = jobset("b", suspend=True)  # its webhook is down as well: nothing can be created
        with pytest.raises(TrainerError, match="webhook"):
            KubernetesTarget(client.within(1.0), cluster=lambda: "").jobs.create(
                submission("default", made, code=False)
            )
        own_cluster.restart("jobset")
        own_cluster.kill("kcm")
        submit(target, "c")
        until(lambda: observer.job_view("c").jobs)
        status = diagnose(observer.job_view("c"), time.time() + 20)
        assert (status.phase, status.reason) == ("Pending", "NoJobController")
        own_cluster.restart("kcm")
        assert phases(observer, ["c"], 120)["c"][-1] == "Succeeded"
        observer.stop()
