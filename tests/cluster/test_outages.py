"""The API server, etcd, a controller or a CRD is away while the real engine works on a real control plane.

All tests of this file break one cluster, which is theirs alone, and repair it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TargetFault, TrainerError
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from pulumi_trainer.provider.targets.kubernetes.jobs import deletion
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tools.cluster import Cluster

from .jobs import DEFINITION, STAYS, jobset, left, submission, until
from .proxy import After, Before, Proxy, nth
from .test_queue import FLAVOR
from .test_up import PLAIN, Lab, head, lab, program, pulumi_home  # noqa: F401 (fixtures)

pytestmark = pytest.mark.timeout(600)

AWAY = 3.0
"""Seconds that something is away."""
BACK = 90.0
"""Seconds within which the controllers have noticed that the server is back: they double their pauses."""


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The one that is broken; this name also makes these tests come last."""
    made = Cluster.start(tmp_path_factory.mktemp("own"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster(own_cluster: Cluster) -> Cluster:
    return own_cluster


@pytest.fixture(scope="module")
def admin(own_cluster: Cluster) -> Iterator[ApiClient]:
    with config.new_client_from_config(str(own_cluster.kubeconfig)) as made:
        yield made


@pytest.fixture(autouse=True)
def _mended(own_cluster: Cluster) -> Iterator[None]:
    """Whatever a test has left dead does not fail the next."""
    yield
    for name in own_cluster.components:
        if not own_cluster.alive(name):
            own_cluster.restart(name)


def outage(cluster: Cluster, name: str = "apiserver", seconds: float = AWAY) -> None:
    """kill -9, and back."""
    cluster.kill(name)
    time.sleep(seconds)
    cluster.restart(name)


def ended(process: subprocess.Popen[str], ok: bool = True) -> str:
    out, _ = process.communicate(timeout=240)
    assert (process.returncode == 0) is ok, out
    assert "Traceback" not in out, out
    return out


def meanwhile(process: subprocess.Popen[str], look: Callable[[], object]) -> None:
    """Until `look` is true; a process that has ended before tells why."""

    def seen() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return bool(look())

    until(seen, BACK)


def phase_of_pods(lab: Lab, phase: str) -> bool:  # noqa: F811
    pods = lab.root_client.list(POD, lab.namespace)[0]
    return bool(pods) and all(p["status"].get("phase") == phase for p in pods)


def queue(root: Client, namespace: str, cores: int) -> None:
    """A LocalQueue `team` of so many cores."""
    kueue = "kueue.x-k8s.io/v1beta2"
    own = {"metadata": {"name": namespace}, "apiVersion": kueue}
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": namespace, "resources": [{"name": "cpu", "nominalQuota": cores}]}],
        }
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    root.apply(FLAVOR, {**own, "kind": "ResourceFlavor"})
    root.apply(CLUSTER_QUEUE, {**own, "kind": "ClusterQueue", "spec": spec})
    place = {"metadata": {"name": "team", "namespace": namespace}, "spec": {"clusterQueue": namespace}}
    root.apply(LOCAL_QUEUE, {"apiVersion": kueue, "kind": "LocalQueue", **place})


def test_the_api_server_is_killed_at_every_phase(
    lab: Lab, own_cluster: Cluster, user_kubeconfig: Path, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    """Submitting, queued, starting, running, finishing: one `up` sees it through."""
    queue(lab.root_client, lab.namespace, 0)
    resources = 'resources_per_node={"cpu": 1}), queue="team", wait_for="complete",'
    lab.program(program(resources), head("start: 4s, run: 20s"))
    with Proxy(own_cluster.kubeconfig) as proxy:
        lab.config("trainer:kubeconfig", str(proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig)))
        killed = threading.Event()

        def kill() -> None:
            own_cluster.kill("apiserver")
            killed.set()

        proxy.rule = nth(1, Before(kill), lambda r: r.method == "PATCH" and not r.dry)
        up = lab.start("up", "--yes", "--skip-preview")
        meanwhile(up, killed.is_set)
        time.sleep(AWAY)
        own_cluster.restart("apiserver")
        meanwhile(up, lambda: _pending(lab))
        outage(own_cluster)  # queued
        queue(lab.root_client, lab.namespace, 2)
        meanwhile(up, lambda: len(lab.root_client.list(POD, lab.namespace)[0]) == 2)
        outage(own_cluster)  # starting
        meanwhile(up, lambda: phase_of_pods(lab, "Running"))
        pods = {p["metadata"]["uid"] for p in lab.root_client.list(POD, lab.namespace)[0]}
        outage(own_cluster)  # running
        meanwhile(up, lambda: phase_of_pods(lab, "Succeeded"))
        outage(own_cluster)  # finishing
        ended(up)
        assert lab.outputs()["phase"] == "Succeeded"
        assert {p["metadata"]["uid"] for p in lab.root_client.list(POD, lab.namespace)[0]} == pods, "it ran once"


def test_the_api_server_is_killed_while_a_job_is_deleted(
    lab: Lab,  # noqa: F811
    own_cluster: Cluster,
    user_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    with Proxy(own_cluster.kubeconfig) as proxy:
        lab.config("trainer:kubeconfig", str(proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig)))
        lab.program(PLAIN, head())
        lab.up()
        lab.pods(2)
        killed = threading.Event()

        def kill() -> None:
            own_cluster.kill("apiserver")
            killed.set()

        proxy.rule = nth(1, After(kill), lambda r: r.method == "DELETE")
        destroy = lab.start("destroy", "--yes", "--skip-preview")
        meanwhile(destroy, killed.is_set)
        time.sleep(AWAY)
        own_cluster.restart("apiserver")
        ended(destroy)
    assert not [o for o in left(lab.root_client, lab.namespace) if o.startswith(("JobSet/", "ConfigMap/", "Secret/"))]
    # A controller that has not seen its JobSet or Job go makes a Job, Service or Pod more; the collector deletes these when
    # its watches are back.
    until(lambda: left(lab.root_client, lab.namespace) == [], 180)


def _pending(lab: Lab) -> bool:  # noqa: F811
    """Kueue has seen the job and has no room for it."""
    return any(w["status"].get("conditions") for w in lab.root_client.list(WORKLOAD, lab.namespace)[0] if "status" in w)


def test_etcd_is_away_for_ten_seconds(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    lab.program(program('), wait_for="complete",'), head("run: 12s"))
    up = lab.start("up", "--yes", "--skip-preview")
    until(lambda: phase_of_pods(lab, "Running"), BACK)
    pods = {p["metadata"]["uid"] for p in lab.root_client.list(POD, lab.namespace)[0]}
    outage(own_cluster, "etcd", 10.0)
    ended(up)
    assert lab.outputs()["phase"] == "Succeeded"
    assert {p["metadata"]["uid"] for p in lab.root_client.list(POD, lab.namespace)[0]} == pods
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def test_a_webhook_that_is_down_is_waited_for(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    own_cluster.kill("jobset")
    lab.program(PLAIN, head())
    up = lab.start("up", "--yes", "--skip-preview")
    until(lambda: lab.root_client.list(CONFIG_MAP, lab.namespace, labels="pulumi-trainer.dev/record=true")[0], BACK)
    time.sleep(AWAY)
    own_cluster.restart("jobset")
    ended(up)
    lab.pods(2)
    lab.destroy()


def test_a_webhook_that_stays_down_is_said_and_the_next_attempt_goes_on(
    own_cluster: Cluster, namespace: str, user_kubeconfig: Path
) -> None:
    """As the provider calls it, with less patience."""
    client = open_client({"kubeconfig": str(user_kubeconfig)})
    root = open_client({"kubeconfig": str(own_cluster.kubeconfig)})
    own_cluster.kill("jobset")
    hasty = KubernetesTarget(client.within(10.0), cluster=lambda: "", namespace=namespace)
    with pytest.raises(TrainerError, match=r"failed calling webhook.*jobset"):
        hasty.jobs.create(submission(namespace, jobset("a")))
    own_cluster.restart("jobset")
    target = KubernetesTarget(client, cluster=lambda: "", namespace=namespace)
    status = target.jobs.create(submission(namespace, jobset("a")))
    assert len(root.list(JOBSET, namespace)[0]) == 1
    target.jobs.delete(namespace, "a", uid=status.uid)
    until(lambda: left(root, namespace) == [])  # a controller that comes back may make a Pod once more


def test_a_dead_garbage_collector_is_named_by_what_waits_for_it(
    lab: Lab, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    own_cluster.kill("kcm")
    monkeypatch.setattr(deletion, "DELETE_SECONDS", 2.0)
    target = KubernetesTarget(lab.root_client, cluster=lambda: "", namespace=lab.namespace)
    name = next(iter(lab.jobs().values()))["metadata"]["name"]
    with pytest.raises(TargetFault, match="kube-controller-manager"):
        target.jobs.delete(lab.namespace, name)
    own_cluster.restart("kcm")
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def test_a_cluster_without_jobset_and_one_that_loses_it(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    """The last test here: the CRD goes twice."""
    name = "jobsets.jobset.x-k8s.io"
    definition = lab.root_client.get(DEFINITION, "", name)
    assert definition is not None
    fresh = {
        "apiVersion": definition["apiVersion"], "kind": definition["kind"], "metadata": {"name": name},
        "spec": definition["spec"],
    }  # fmt: skip
    gone(lab.root_client, name)
    lab.program(PLAIN, head())
    refused = lab.up(ok=False)
    assert "JobSet" in refused.out and "install" in refused.out and "Traceback" not in refused.out, refused
    assert left_without_jobset(lab) == []
    come(lab.root_client, fresh, own_cluster)
    lab.up()
    lab.pods(2)
    lab.program(program('), wait_for="complete",'), head())
    up = lab.start("up", "--yes", "--skip-preview")
    time.sleep(AWAY)
    gone(lab.root_client, name)
    said = ended(up, ok=False)
    assert "Deleted" in said or "JobSet" in said, said
    lab.destroy()
    assert not lab.resources()
    assert left_without_jobset(lab) == []
    come(lab.root_client, fresh, own_cluster)
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def left_without_jobset(lab: Lab) -> list[str]:  # noqa: F811
    found = [f"ConfigMap/{c['metadata']['name']}" for c in lab.root_client.list(CONFIG_MAP, lab.namespace)[0]]
    return [name for name in found if name.partition("/")[2] not in STAYS]


def gone(root: Client, name: str) -> None:
    root.delete(DEFINITION, "", name, propagation="Background")
    until(lambda: root.get(DEFINITION, "", name) is None, BACK)


def come(root: Client, definition: dict[str, Any], cluster: Cluster) -> None:
    """The CRD again; JobSet's controller and the garbage collector start anew, as after an installation."""
    root.create(DEFINITION, definition)

    def established() -> bool:
        found = root.get(DEFINITION, "", definition["metadata"]["name"]) or {}
        return any(
            c["type"] == "Established" and c["status"] == "True"
            for c in (found.get("status") or {}).get("conditions") or []
        )

    until(established, BACK)
    for name in ("jobset", "kueue", "kcm"):
        cluster.restart(name)
