"""Gangs on the real scheduler plugins: all pods or none, stage by stage, and woken when nodes come. Under the least role."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.cache.discovery import Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.lifecycle.diagnosis import pod_faults as diagnosis_of_pods
from pulumi_trainer.provider.targets.kubernetes.observe import gang_wakeup
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.preflight.schedulers import scheduler_problems
from pulumi_trainer.provider.targets.kubernetes.preflight.server_review import review
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import POD_GROUP

from . import least
from .conftest import USER
from .gangs_support import made_nodes, step, with_node  # noqa: F401 (the fixture add_nodes)
from .jobs import jobset, pod_template, slip, submission, until
from .programs import plan, sent

Document = dict[str, Any]


@pytest.fixture
def target(user_kubeconfig: Path, namespace: str) -> KubernetesTarget:
    client = open_client({"kubeconfig": str(user_kubeconfig)})
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace)


@pytest.fixture
def observer(target: KubernetesTarget, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    monkeypatch.setattr(gang_wakeup, "LOOK", 0.5)
    monkeypatch.setattr(gang_wakeup, "AGAIN", 0.5)
    made = Observer(target.client, target.namespace, stack="stack").start()
    yield made
    made.stop()


def runtime(*steps: Document, nodes: int = 4) -> Document:
    spec = {
        "mlPolicy": {"numNodes": nodes, "torch": {}},
        "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 10}},
        "template": {"spec": {"replicatedJobs": list(steps)}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": spec,
    }


@pytest.mark.smoke
def test_nothing_starts_on_too_few_nodes_then_all(
    root: Client,
    target: KubernetesTarget,
    observer: Observer,
    namespace: str,
    add_nodes: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4 nodes of 8 GPUs each: on 3 none starts. The scheduler does not look at a fourth one by itself for minutes; whoever
    waits for the job wakes the gang."""
    add_nodes(3)
    given = runtime(step("node", namespace, gpus=8, simulate={"run": "1s"}))
    target.jobs.create(sent(plan(monkeypatch, given, namespace)))
    words = r"^0 of 4 pods of PodGroup job \(\w+\) have a node: .*\d Insufficient nvidia.com/gpu"
    until(lambda: waits(observer, words))
    assert observer.first("job") is not None
    for _ in range(20):
        assert with_node(root, namespace) == []
        time.sleep(0.05)
    assert "start together or not at all" in observer.why("job") and "kubectl annotate" in observer.why("job")
    group = root.get(POD_GROUP, namespace, "job") or {}
    assert group["spec"]["minMember"] == 4 and gang_wakeup.WOKEN not in group["metadata"].get("annotations", {})

    until(lambda: has_counted_nodes(observer))
    add_nodes(1)
    until(
        lambda: follows(observer) and len(with_node(root, namespace)) == 4,
        tell=lambda: state(root, namespace, observer),
    )
    assert len(set(with_node(root, namespace))) == 4
    until(lambda: (status := observer.status("job")) is not None and status.phase == "Succeeded")
    assert gang_wakeup.WOKEN in (root.get(POD_GROUP, namespace, "job") or {})["metadata"]["annotations"]


def has_counted_nodes(observer: Observer) -> bool:
    """A node that comes later wakes the gang; one that came before does only after `gang_wakeup.OLD` seconds."""
    return observer._waker._nodes is not None


def follows(observer: Observer) -> bool:
    """What whoever waits for jobs does all the time: diagnose those that have changed."""
    for name in observer.changed():
        observer.status(name)
    return True


def state(root: Client, namespace: str, observer: Observer) -> str:
    """What a gang without nodes may wait for."""
    nodes = [n for n in root.list(kinds.NODE)[0] if namespace in n["metadata"]["name"]]
    parts = {
        "pods": [
            (p["metadata"]["name"], p["spec"].get("nodeName"), p["status"]) for p in root.list(kinds.POD, namespace)[0]
        ],
        "nodes": [(n["metadata"]["name"], n["spec"], n["status"].get("conditions")) for n in nodes],
        "podgroup": root.get(POD_GROUP, namespace, "job"),
        "waker": vars(observer._waker),
        "pending gangs": observer._waiting(),
        "threads": [thread.name for thread in threading.enumerate()],
    }
    return "\n".join(f"{name}: {found}" for name, found in parts.items())


def waits(observer: Observer, words: str) -> bool:
    observer.changed()
    status = observer.status("job")
    return status is not None and status.reason == "WaitingForGang" and bool(re.search(words, status.message))


def test_a_gang_does_not_wait_for_what_comes_first(
    root: Client,
    target: KubernetesTarget,
    observer: Observer,
    namespace: str,
    add_nodes: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dataset is fetched on the one node that there is; then the trainers start together, or not at all."""
    add_nodes(1)
    fetch = step("dataset-initializer", namespace, gpus=0, simulate={"run": "100ms"})
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    train = step("node", namespace, gpus=8, simulate={"run": "500ms"}, dependsOn=after)
    made = sent(plan(monkeypatch, runtime(fetch, train), namespace))
    assert [key for key in made.objects if key.startswith("PodGroup/")] == [
        "PodGroup/job.dataset-initializer", "PodGroup/job.node",
    ]  # fmt: skip
    target.jobs.create(made)
    until(lambda: waits(observer, r"^0 of 4 pods of PodGroup job.node \(\w+\) have a node"))
    assert observer.first("job") is not None
    asked = diagnose(snapshot(target.client, namespace, "job"), time.time())
    assert (asked.phase, asked.reason) == ("Starting", "WaitingForGang")
    assert len(with_node(root, namespace, "dataset-initializer")) == 1 and with_node(root, namespace) == []
    until(lambda: has_counted_nodes(observer))
    add_nodes(3)
    until(lambda: (status := observer.status("job")) is not None and status.phase == "Succeeded")
    target.jobs.delete(namespace, "job")
    assert root.list(POD_GROUP, namespace)[0] == []


def test_who_may_not_count_nodes_or_touch_podgroups_is_told_what_to_do(
    root: Client,
    target: KubernetesTarget,
    admin: ApiClient,
    namespace: str,
    add_nodes: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The waker asks once, and not again; the watches go on."""
    kept = [p for p in least.EVERYTHING if p.kind != kinds.NODE]
    least.grant(admin, namespace, USER, kept)
    add_nodes(1)
    target.jobs.create(
        sent(plan(monkeypatch, runtime(step("node", namespace, gpus=8, simulate={}), nodes=2), namespace))
    )
    until(lambda: (root.get(POD_GROUP, namespace, "job") or {}).get("status", {}).get("phase") == "Scheduling")
    monkeypatch.setattr(gang_wakeup, "LOOK", 0.0)
    until(lambda: refused(target.client))
    waker = gang_wakeup.Waker(target.client, namespace)
    before = target.client.requests
    waker.wake({"job": time.time()})
    asked = target.client.requests - before
    waker.wake({"job": time.time()})
    assert (asked, target.client.requests - before) == (1, 1)
    why = until(lambda: told(target.client, namespace))
    assert f"kubectl annotate -n {namespace} podgroups.scheduling.x-k8s.io job --overwrite woken=1" in why


def refused(client: Client) -> bool:
    try:
        client.read(kinds.NODE.path(), {"limit": "1"})
    except ApiError as error:
        return error.code == 403
    return False


def told(client: Client, namespace: str) -> str:
    seen, now = snapshot(client, namespace, "job"), time.time()
    status = diagnose(seen, now)
    return explain(seen, status, now) if status.reason == "WaitingForGang" else ""


def test_a_gang_that_has_waited_before_is_woken_once(
    root: Client, target: KubernetesTarget, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes may have been added before anybody looked."""
    spec = {"minMember": 2}
    metadata = {"name": "old", "namespace": namespace}
    root.create(
        POD_GROUP, {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    )
    monkeypatch.setattr(gang_wakeup, "LOOK", 0.0)
    waker = gang_wakeup.Waker(target.client, namespace)

    def woken() -> str:
        about = (root.get(POD_GROUP, namespace, "old") or {})["metadata"]
        return str(about.get("annotations", {}).get(gang_wakeup.WOKEN, ""))

    waker.wake({"old": time.time()})
    assert not woken()
    other = gang_wakeup.Waker(target.client, namespace)
    other.wake({"old": time.time() - 2 * gang_wakeup.OLD, "gone": 1.0})
    assert woken()
    root.patch(POD_GROUP, namespace, "old", {"metadata": {"annotations": None}})
    other.wake({"old": time.time() - 2 * gang_wakeup.OLD})
    assert not woken()


def test_a_scheduler_that_is_silent_is_told_while_somebody_waits(
    target: KubernetesTarget, observer: Observer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the cluster changes any more: it is the time that tells."""
    monkeypatch.setattr(diagnosis_of_pods, "SILENCE", 2.0)
    document = jobset("job", pods=2)
    pod_template(document)["spec"]["schedulerName"] = "nobody"
    target.jobs.create(submission(namespace, document, code=False))
    assert observer.first("job") is not None

    def reason() -> str:
        found = {"job"} & observer.wait(1.0)
        return status.reason if found and (status := observer.status("job")) is not None else ""

    assert until(lambda: reason() == "NoScheduler")
    assert "the scheduler nobody, which its pods name, has not tried to place 2 pods" in observer.why("job")


def test_a_role_without_podgroups_is_told_once(
    root: Client, target: KubernetesTarget, admin: ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older role lacks; the rest goes on."""
    kept = [p for p in least.EVERYTHING if p.kind != POD_GROUP or not p.helps]
    least.grant(admin, namespace, USER, kept)
    noted: list[str] = []
    observer = Observer(target.client, namespace, stack="stack", note=noted.append).start()
    try:
        given = runtime(step("node", namespace, gpus=8, simulate={}), nodes=2)
        slip(root, sent(plan(monkeypatch, given, namespace)))
        until(lambda: waits(observer, r"^0 of 2 pods of PodGroup job( \(\w+\))? have a node"))
        (note,) = until(lambda: noted)
        assert note.startswith("the state of gangs is not shown: ") and "cannot watch" in note, note
    finally:
        observer.stop()


SCHEDULED = {
    "nothing shows it": ([], "scheduler {name} not found: it has no Deployment and no Lease, and has placed no pod"),
    "a fresh lease": ([("lease", 0)], ""),
    "an old lease": ([("lease", 600)], "scheduler {name} last renewed its Lease 10m"),
    "of two schedulers one leads": ([("lease", 600), ("lease", 0)], ""),
    "a Deployment without pods": (
        [("deployment", 0)],
        "scheduler {name} does not run: its Deployment {namespace}/{name} has",
    ),
    "a Deployment with pods": ([("deployment", 1)], ""),
}


@pytest.mark.parametrize("case", list(SCHEDULED))
def test_schedulers_that_do_not_run(root: Client, target: KubernetesTarget, namespace: str, case: str) -> None:
    made, wanted = SCHEDULED[case]
    name = f"scheduler-{namespace}"
    for what, value in made:
        where = namespace
        if what == "lease" and value and len(made) > 1:
            where = "default"
        shown(root, where, name, what, value)
    document = jobset("job")
    pod_template(document)["spec"]["schedulerName"] = name
    said = scheduler_problems(Facts.of(root), {"JobSet/job": document})
    where = "JobSet/job.spec.replicatedJobs[0].template.spec.template.spec.schedulerName"
    assert [p.where for p in said] == [where] * bool(wanted)
    assert all(p.why.startswith(wanted.format(name=name, namespace=namespace)) for p in said), said
    assert (
        scheduler_problems(Facts.of(target.client), {"JobSet/job": document}) == []
    )  # the least role sees nothing of it
    _, warnings = review(root, Draft(namespace, "job", "digest", {"JobSet/job": document}))
    assert [p.where for p in warnings] == [p.where for p in said]
    root.delete(kinds.LEASE, "default", name)


def shown(root: Client, namespace: str, name: str, what: str, value: int) -> None:
    metadata = {"name": name, "namespace": namespace}
    if what == "lease":
        then = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - value))
        spec: Document = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": then}
        root.create(
            kinds.LEASE, {"apiVersion": kinds.LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        )
        return
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "scheduler:1"}]}}
    spec = {"replicas": value, "selector": {"matchLabels": labels}, "template": pod}
    about = {"apiVersion": kinds.DEPLOYMENT.api_version, "kind": "Deployment"}
    root.create(kinds.DEPLOYMENT, {**about, "metadata": metadata, "spec": spec})
    if value:
        until(lambda: (root.get(kinds.DEPLOYMENT, namespace, name) or {}).get("status", {}).get("availableReplicas"))
