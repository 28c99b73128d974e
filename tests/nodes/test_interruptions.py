"""A job with a checkpoint policy on real nodes: whatever ends its Pods, it goes on from its newest checkpoint."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
import yaml
from kubernetes import client
from pulumi_trainer.provider.jobs.attempts import goodput
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer

from tests.engine.conftest import eventually
from tests.engine.test_checkpoints import JOB, total
from tools.cluster import Cluster, nodes, processes

from .conftest import jobset
from .examples import Example
from .test_quickstart import cgroup

PATIENCE = 180.0
STEPS = 400
REPORT = """name == "0" and print(json.dumps({"trainerStatus": {"step": step - 1}}), flush=True)"""
HEAD = 'import pulumi\nimport pulumi_trainer as trainer\n\nplain = "plain"\n'


class Training(Example):
    """A project with one job of two nodes, which needs 20 seconds and saves every 10 steps."""

    steps = STEPS
    queue = ""
    """Arguments of TrainJob."""
    kubeconfig = ""

    def begin(self, max_restarts: int = 3) -> None:
        text = JOB.replace('"steps": 120', f'"steps": {self.steps}')
        text = text.replace("num_nodes=2", 'num_nodes=2, resources_per_node={"cpu": "100m"}')
        text = text.replace("checkpoint=", f"{self.queue} checkpoint=")
        text = text.replace("time.sleep(0.05)", f"{REPORT}\n        time.sleep(0.05)")
        text = text.replace("time.sleep(0.05)", 'time.sleep(0 if os.path.exists(folder + "/hurry") else 0.05)')
        self.program(text.replace("grace=20", f"grace=20, max_restarts={max_restarts}"), HEAD)
        self.up()
        eventually(lambda: len(self.pods("long")) == 2, PATIENCE)

    def status(self) -> dict[str, Any]:
        found = self.cli("status", "-o", "json")
        return next(entry for entry in json.loads(found) if entry["name"].startswith("long"))

    def cli(self, *args: str) -> str:
        argv = ["pulumi-trainer", *args, "-s", self.stack]
        done = subprocess.run(argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def log(self, pod: Any) -> str:
        try:
            return str(self.core.read_namespaced_pod_log(pod.metadata.name, self.namespace))
        except client.ApiException:
            return ""

    def jobset(self) -> dict[str, Any]:
        return dict(next(j for j in self.jobsets() if j["metadata"]["name"].startswith("long")))

    def running(self) -> dict[int, Any]:
        """Index -> Pod of the job that trains."""
        found = {}
        for pod in self.pods("long"):
            if (
                pod.status.phase == "Running"
                and pod.metadata.deletion_timestamp is None
                and "starts at step" in self.log(pod)
            ):
                found[int(pod.metadata.annotations["batch.kubernetes.io/job-completion-index"])] = pod
        return found

    def train(self, seconds: float = PATIENCE) -> dict[int, Any]:
        return dict(eventually(lambda: r if len(r := self.running()) == 2 else None, seconds, "two nodes train"))

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: s if (s := self.status())["phase"] in ("Succeeded", "Failed") else None, PATIENCE, "the job ends"
        )
        assert found["phase"] == "Succeeded", found
        (pod,) = [
            p for p in self.pods("long") if p.metadata.annotations["batch.kubernetes.io/job-completion-index"] == "0"
        ]
        assert f"node 0 total {total(self.steps)}" in self.log(pod)
        return found

    def counted(self) -> int:
        return int(self.jobset().get("status", {}).get("restartsCountTowardsMax") or 0)


@pytest.fixture
def training(
    tmp_path: Path, pulumi_home: Path, namespace: str, user_kubeconfig: Path, core: client.CoreV1Api
) -> Iterator[Training]:
    made = Training(tmp_path, pulumi_home, name="lab", stack="cluster")
    made.core, made.namespace, made.kubeconfig = core, namespace, str(user_kubeconfig)
    (tmp_path / "state").mkdir()
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "lab", "runtime": "python", "main": "."}))
    assert made.run("stack", "init").code == 0
    where = {"target": "kubernetes", "kubeconfig": str(user_kubeconfig), "namespace": namespace}
    for key, value in where.items():
        made.config(f"trainer:{key}", value)
    yield made
    made.destroy()


def evict(core: client.CoreV1Api, pod: Any) -> None:
    about = client.V1ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
    core.create_namespaced_pod_eviction(pod.metadata.name, pod.metadata.namespace, client.V1Eviction(metadata=about))


def step_of(log: str) -> int:
    return int(re.findall(r"starts at step (\d+)", log)[-1])


def program_in(pod: Any) -> psutil.Process:
    """Return the user's program in a Pod; other clusters may run on this machine."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = " ".join(process.cmdline())
            if "main.py" in words and "bootstrap" not in words and f"pod{pod.metadata.uid}" in cgroup(process):
                return process
    pytest.fail(f"no program in {pod.metadata.name}")


@pytest.mark.parametrize("node", [0, 1])
def test_an_evicted_pod(training: Training, node: int) -> None:
    training.begin()
    pods = training.train()
    eventually(lambda: "has saved step 10" in training.log(pods[0]), PATIENCE)
    evict(training.core, pods[node])
    eventually(lambda: training.jobset()["status"].get("restarts") == 1, PATIENCE)
    again = training.train()
    assert again[0].metadata.uid != pods[0].metadata.uid
    assert step_of(training.log(again[0])) >= 10
    training.end()
    assert training.counted() == 0


def test_a_deleted_pod_and_a_killed_rank(training: Training) -> None:
    training.begin()
    pods = training.train()
    training.core.delete_namespaced_pod(pods[1].metadata.name, training.namespace)
    eventually(lambda: training.jobset()["status"].get("restarts") == 1, PATIENCE)
    assert training.counted() == 0
    again = training.train()
    assert len(again) == 2
    program_in(again[1]).send_signal(signal.SIGKILL)
    eventually(lambda: training.jobset()["status"].get("restarts") == 2, PATIENCE)
    assert training.counted() == 1, "an error of the program counts"
    training.end()


@pytest.mark.breaks_nodes
def test_a_lost_node_that_does_not_come_back(training: Training, cluster: Cluster) -> None:
    """A cloud deletes the Node of a machine that is gone. To delete its Pods by force is not enough: the Job waits for them."""
    training.steps = 6000
    training.begin()
    pods = training.train()
    lost = pods[1].spec.node_name
    cluster.kill(lost)
    eventually(lambda: not any(p.name.startswith(lost) for p in processes.found(cluster.folder)))
    for pod in pods.values():
        if pod.spec.node_name == lost:
            training.core.delete_namespaced_pod(pod.metadata.name, training.namespace, grace_period_seconds=0)
    training.core.delete_node(lost)
    eventually(lambda: training.jobset()["status"].get("restarts") == 1, PATIENCE)
    again = training.train()
    assert {pod.spec.node_name for pod in again.values()} == {"node1", "node2"} - {lost}
    assert training.counted() == 0
    nodes.start(cluster, int(lost.removeprefix("node")))


COUNT = int(os.environ.get("INTERRUPTIONS", "10"))
"""`make bench-interruptions` has 100 of them."""
KUEUE = "kueue.x-k8s.io/v1beta2"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "shutdown", "effect": "NoExecute"}
"""What a cloud's controller or an administrator says of a machine that is gone."""


class Queue:
    """A LocalQueue `spot` with quota for the job, which gives way to another one."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        own = {"apiVersion": KUEUE, "metadata": {"name": namespace}}
        quota = {"name": namespace, "resources": [{"name": "cpu", "nominalQuota": "200m"}]}
        spec = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        }
        self._post("resourceflavors", {**own, "kind": "ResourceFlavor"})
        self._post("clusterqueues", {**own, "kind": "ClusterQueue", "spec": spec})
        for name, value in (("low", 1), ("high", 2)):
            about = {"name": f"{name}-{namespace}"}
            self._post("workloadpriorityclasses", {
                "apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": about, "value": value,
            })  # fmt: skip
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "spot"}}
        self._post("localqueues", {**local, "spec": {"clusterQueue": namespace}}, namespace)

    def preempt(self) -> float:
        """Submit a job of a higher priority, and remove it when it has the quota; return when the quota is free again."""
        labels = {"kueue.x-k8s.io/queue-name": "spot", "kueue.x-k8s.io/priority-class": f"high-{self._namespace}"}
        document = jobset("urgent", "pass", container={"resources": {"requests": {"cpu": "200m"}}}, suspend=True)
        document["metadata"]["labels"] = labels
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self._namespace}/jobsets"
        self._cluster.api.call("POST", path, document)
        eventually(
            lambda: not self._cluster.api.call("GET", f"{path}/urgent")["spec"].get("suspend"), PATIENCE, "preempts"
        )
        self._cluster.api.call("DELETE", f"{path}/urgent")
        return time.time()

    def _post(self, plural: str, document: dict[str, Any], namespace: str = "") -> None:
        within = f"namespaces/{namespace}/" if namespace else ""
        self._cluster.api.call("POST", f"/apis/{KUEUE}/{within}{plural}", document)


class Fate:
    """What happens to a job, each time something else."""

    def __init__(self, training: Training, cluster: Cluster, queue: Queue) -> None:
        self._training, self._cluster, self._queue = training, cluster, queue
        self.errors = self.preemptions = 0
        self.quota_back = 0.0
        self.afterwards: Callable[[], object] = int
        """What repairs the cluster, once the job trains again."""

    def evict(self, pods: dict[int, Any]) -> None:
        evict(self._training.core, random.choice([*pods.values()]))

    def delete(self, pods: dict[int, Any]) -> None:
        name = random.choice([*pods.values()]).metadata.name
        self._training.core.delete_namespaced_pod(name, self._training.namespace)

    def drain(self, pods: dict[int, Any]) -> None:
        node = pods[0].spec.node_name
        self._training.core.patch_node(node, {"spec": {"unschedulable": True}})
        for pod in pods.values():
            if pod.spec.node_name == node:
                evict(self._training.core, pod)
        self.afterwards = lambda: self._training.core.patch_node(node, {"spec": {"unschedulable": False}})

    def kill_a_rank(self, pods: dict[int, Any]) -> None:
        self.errors += 1
        program_in(random.choice([*pods.values()])).send_signal(signal.SIGKILL)

    def evict_while_its_kubelet_is_dead(self, pods: dict[int, Any]) -> None:
        number = int(pods[1].spec.node_name.removeprefix("node"))
        self._cluster.kill(f"node{number}.kubelet")
        evict(self._training.core, pods[1])
        nodes.restart(self._cluster, number, "kubelet")

    def kill_a_rank_while_the_api_server_is_down(self, pods: dict[int, Any]) -> None:
        self._cluster.kill("apiserver")
        self.kill_a_rank(pods)
        self._cluster.restart("apiserver")

    def lose_a_node(self, pods: dict[int, Any]) -> None:
        """It comes back after the job has gone on elsewhere."""
        lost = random.choice([*pods.values()]).spec.node_name
        self._cluster.kill(lost)
        eventually(lambda: not any(p.name.startswith(lost) for p in processes.found(self._cluster.folder)))
        self._training.core.patch_node(lost, {"spec": {"taints": [OUT_OF_SERVICE]}})

        def back() -> None:
            self._training.core.patch_node(lost, {"spec": {"taints": []}})
            nodes.start(self._cluster, int(lost.removeprefix("node")))

        self.afterwards = back

    def preempt_by_a_higher_priority(self, _: dict[int, Any]) -> None:
        self.preemptions += 1
        self.quota_back = self._queue.preempt()

    def restarts(self) -> int:
        return int(self._training.jobset()["status"].get("restarts") or 0)


@dataclass
class Injected:
    """An interruption as the test has seen it: between these times (seconds since the epoch) the job did not train."""

    kind: str
    began: float
    trains: float
    saved: int
    again: int
    errors: int
    waited: float = 0.0
    """Seconds since a preempted job had its quota back."""


def table(injected: list[Injected], status: JobStatus) -> str:
    """Return the table of docs/benchmarks.md."""
    lines = ["| interruption | number | restarts of the budget | steps lost | until it trains, s | as recorded, s |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    recorded = [after.started - before.finished for before, after in pairwise(status.attempts)]
    for kind in sorted({each.kind for each in injected}):
        found = [each for each in injected if each.kind == kind]
        idle = [seconds for each, seconds in zip(injected, recorded, strict=True) if each.kind == kind]
        errors, lost = sum(each.errors for each in found), sum(max(0, each.saved - each.again) for each in found)
        cells = [kind.replace("_", " "), len(found), errors, lost]
        cells += [f"{median(each.trains - each.began for each in found):.1f}", f"{median(idle):.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    waits = [each.waited for each in injected if each.waited] or [0.0]
    lines.append(f"trains again {median(waits):.1f} s (at most {max(waits):.1f} s) after its quota is free again")
    return "\n".join([*lines, str(goodput(status.attempts, status.finished))])


@contextmanager
def watched(training: Training) -> Iterator[Callable[[], JobStatus]]:
    """Yield the status as a process sees it that watches the job all the time, as `up` does."""
    name = training.jobset()["metadata"]["name"]
    observer = Observer(open_client({"kubeconfig": training.kubeconfig}), training.namespace).start()
    observer.first(name)
    over = threading.Event()

    def follow() -> None:
        while not over.is_set():
            observer.wait(0.5)
            observer.status(name)

    def ended() -> JobStatus:
        status = observer.status(name)
        assert status is not None
        return status

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield ended
    over.set()
    thread.join()
    observer.stop()


@pytest.mark.breaks_nodes
@pytest.mark.timeout(600 + 90 * COUNT)
def test_random_interruptions(training: Training, cluster: Cluster) -> None:
    """Seeded: the result is that of an uninterrupted run, only errors count, and no step before a checkpoint is lost.

    Who watches the job knows each attempt, when it did not train, within a second of what was injected, and at which step it went
    on.
    """
    random.seed(16)
    training.steps = 400 + 300 * COUNT  # a lost node takes a minute
    queue = Queue(cluster, training.namespace)
    training.queue = f'queue="spot", priority="low-{training.namespace}",'
    training.begin(max_restarts=COUNT)
    fate = Fate(training, cluster, queue)
    kinds = [fate.preempt_by_a_higher_priority, fate.evict, fate.delete, fate.drain, fate.kill_a_rank]
    kinds += [fate.evict_while_its_kubelet_is_dead, fate.kill_a_rank_while_the_api_server_is_down, fate.lose_a_node]
    fates = [kinds[i % len(kinds)] for i in range(COUNT)]
    random.shuffle(fates)
    injected = []
    with watched(training) as status:
        pods = training.train()
        for number, interrupt in enumerate(fates, 1):
            log = training.log(pods[0])
            saved = max([step_of(log), *map(int, re.findall(r"has saved step (\d+)", log))])
            errors, began, old = fate.errors, time.time(), {pod.metadata.uid for pod in pods.values()}
            interrupt(pods)

            def is_new(old: set[str] = old) -> dict[int, Any] | None:
                found = training.running()
                return found if len(found) == 2 and not old & {pod.metadata.uid for pod in found.values()} else None

            pods = eventually(is_new, PATIENCE, f"{interrupt.__name__} restarts the job")
            again = step_of(training.log(pods[0]))
            assert again >= saved, f"{interrupt.__name__}: from {saved} to {again}"
            assert number - fate.preemptions <= fate.restarts() <= number, "Kueue's preemption may count as one as well"
            counted = fate.errors - errors
            waited = time.time() - fate.quota_back if interrupt == fate.preempt_by_a_higher_priority else 0.0
            injected.append(Injected(interrupt.__name__, began, time.time(), saved, again, counted, waited))
            print(f"{number}: {interrupt.__name__}, goes on at step {again}", flush=True)
            fate.afterwards()
            fate.afterwards = int
        for folder in cluster.folder.glob("volumes/*/checkpoints"):
            (folder / "hurry").touch()
        training.end()
        assert training.counted() == fate.errors
        found = eventually(lambda: s if (s := status()).terminal else None, PATIENCE)
    assert sum(each.count for each in found.attempts) == COUNT + 1, (fates, found.attempts)
    pairs = [*pairwise(found.attempts)]  # the oldest of more than 100 attempts are one entry
    print(table(injected[-len(pairs) :], found))
    for each, (over, after) in zip(injected[-len(pairs) :], pairs, strict=True):
        assert each.began - 1 <= over.finished <= after.started <= each.trains + 1, (each, over, after)
        assert after.first == each.again and after.redone is not None, (each, after)
