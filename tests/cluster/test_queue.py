"""`TrainJob(queue=, priority=)` with the real Kueue: `suspend` is its own from the first request on, in both modes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from .jobs import jobset, until
from .programs import plan, sent

Document = dict[str, Any]

FLAVOR = Kind("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "resourceflavors", False)
MODES = {"jobset": JOBSET, "trainer": TRAIN_JOB}


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


@pytest.fixture
def queue(root: Client, namespace: str) -> Iterator[str]:
    """A LocalQueue that has room for one job of two pods with a core each, and a class of priority of its name."""
    kueue = "kueue.x-k8s.io/v1beta2"
    own = {"metadata": {"name": namespace}, "apiVersion": kueue}
    into_pods = {
        "nodeLabels": {"sim/pool": "gpu"},
        "tolerations": [{"key": "example.com/flavor", "operator": "Exists"}],
    }
    root.create(FLAVOR, {**own, "kind": "ResourceFlavor", "spec": into_pods})
    quota = {"name": namespace, "resources": [{"name": "cpu", "nominalQuota": 2}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    root.create(CLUSTER_QUEUE, {**own, "kind": "ClusterQueue", "spec": spec})
    root.create(QUEUE_PRIORITY, {**own, "kind": "WorkloadPriorityClass", "value": 70, "description": "of a test"})
    local = {"metadata": {"name": "team", "namespace": namespace}, "spec": {"clusterQueue": namespace}}
    root.create(LOCAL_QUEUE, {"apiVersion": kueue, "kind": "LocalQueue", **local})
    yield "team"
    for kind in (CLUSTER_QUEUE, FLAVOR, QUEUE_PRIORITY):
        root.delete(kind, "", namespace, propagation="Background")


def runtime(namespace: str) -> Document:
    document = runtimes.load("torch-distributed")
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {"sim/outcome": "forever"}, "labels": {"app": "train"}}
    pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    pod["spec"]["tolerations"] = [{"key": "example.com/own", "operator": "Exists"}]
    return {**document, "kind": "TrainingRuntime", "metadata": {**document["metadata"], "namespace": namespace}}


def fill(root: Client, namespace: str, queue: str) -> None:
    """Another job takes all of the quota."""
    document = jobset("first", pods=2)
    document["metadata"] |= {"namespace": namespace, "labels": {QUEUE: queue}}
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1"}
    }
    root.create(JOBSET, document)
    until(lambda: suspended(root, JOBSET, namespace, "first") is False)


def job(patch: pytest.MonkeyPatch, namespace: str, mode: str, **given: Any) -> Submission:
    resources = {"cpu": 1}
    work = trainer.Trainer(num_nodes=2, resources_per_node=resources, command=["train"])
    return sent(plan(patch, runtime(namespace), namespace, mode, trainer=work, **given))


def suspended(client: Client, kind: Kind, namespace: str, name: str = "job") -> Any:
    found = client.get(kind, namespace, name)
    assert found is not None
    return found["spec"].get("suspend")


def ours(client: Client, kind: Kind, namespace: str) -> set[str]:
    """Fields of `spec` that our manager holds."""
    found = client.get(kind, namespace, "job")
    assert found is not None
    managed = [m for m in found["metadata"]["managedFields"] if m["manager"] == "pulumi-trainer"]
    return {field for m in managed for field in m["fieldsV1"].get("f:spec", {})}


@pytest.mark.smoke
@pytest.mark.parametrize("mode", MODES)
def test_kueue_suspends_and_resumes_and_no_apply_of_ours_does(
    client: Client, root: Client, namespace: str, queue: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, target = MODES[mode], KubernetesTarget(client, cluster=lambda: "", namespace=namespace, mode=mode)
    target.runtimes.apply(runtime(namespace), "owner", "stack")
    fill(root, namespace, queue)
    target.jobs.create(job(monkeypatch, namespace, mode, queue=queue, priority=namespace))
    assert suspended(client, kind, namespace) is True and "f:suspend" not in ours(client, kind, namespace)

    target.jobs.update(job(monkeypatch, namespace, mode, queue=queue, priority=namespace, annotations={"a": "b"}))
    assert suspended(client, kind, namespace) is True, "still waits"

    def queued() -> list[str]:
        return [w["spec"]["queueName"] for w in root.list(WORKLOAD, namespace)[0] if w["spec"].get("priority") == 70]

    until(lambda: queued() == [queue])

    root.delete(JOBSET, namespace, "first", propagation="Background")
    until(lambda: suspended(client, kind, namespace) is False)
    before = client.get(kind, namespace, "job")
    target.jobs.update(job(monkeypatch, namespace, mode, queue=queue, priority=namespace, annotations={"a": "c"}))
    after = client.get(kind, namespace, "job")
    assert before is not None and after is not None
    assert after["spec"] == before["spec"], "what Kueue has put into it stays"
    assert after["metadata"]["annotations"]["a"] == "c"
    assert "f:suspend" not in ours(client, kind, namespace)
    assert target.jobs.drift(namespace, "job") == {}
    until(lambda: len(root.list(kinds.POD, namespace, fields="status.phase=Running")[0]) == 2)

    with pytest.raises(TrainerError) as moved:
        target.jobs.update(job(monkeypatch, namespace, mode, queue="other", priority=namespace, annotations={"a": "c"}))
    assert "field is immutable. Hint: Kueue has admitted the job in the meantime; `pulumi preview` shows" in str(
        moved.value
    )
    assert (client.get(kind, namespace, "job") or {})["spec"] == after["spec"], "it goes on"


def test_the_rule_is_needed(client: Client, root: Client, namespace: str, queue: str) -> None:
    """A manager that has applied `suspend` once resumes the job when it leaves the field out, or says false: the job would
    start past its queue. When this fails, servers have become kinder, and modes.py may be looked at again."""
    fill(root, namespace, queue)
    document = jobset("held", suspend=False)
    document["metadata"] |= {"namespace": namespace, "labels": {QUEUE: queue}}
    client.apply(JOBSET, document)
    assert suspended(client, JOBSET, namespace, "held") is True, "Kueue's webhook has done that"
    del document["spec"]["suspend"]
    assert not client.apply(JOBSET, document, dry_run=True)["spec"].get("suspend"), "Kueue may write false as well"
    document["spec"]["suspend"] = False
    assert client.apply(JOBSET, document, dry_run=True)["spec"]["suspend"] is False


@pytest.mark.parametrize("name", ["Team", "a_b", "-a", "a" * 64])
def test_a_name_that_we_refuse_is_refused_by_the_server(client: Client, namespace: str, name: str) -> None:
    """What `queue=` says of it offline stands in tests/unit/test_queueing.py."""
    document = jobset("named")
    document["metadata"] |= {"namespace": namespace, "labels": {QUEUE: name}}
    with pytest.raises(Exception, match=r"metadata\.labels"):
        client.apply(JOBSET, document, dry_run=True)
