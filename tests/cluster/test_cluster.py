"""The test cluster's own promises: it can be broken, it comes back, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiClient, ApiException

from tools.cluster import ALL, Broken, Cluster, processes
from tools.cluster.cluster import end

from .test_smoke import Document, Objects, jobset

ROOT = Path(__file__).parents[2]
CORE = ("etcd", "apiserver")


def api(kubeconfig: Path) -> client.CoreV1Api:
    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def eventually(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for the tests here that break one; each mends what it has broken."""
    made = Cluster.start(tmp_path_factory.mktemp("broken"))
    yield made
    made.stop()


class TestStop:
    def test_nothing_stays(self, tmp_path: Path) -> None:
        folder = tmp_path / "cluster"
        made = Cluster.start(folder, components=CORE)
        assert {p.name for p in processes.found(folder)} == {"etcd", "apiserver", "tokens"}
        made.stop()
        assert not processes.found(folder)
        assert not folder.exists()

    def test_what_is_paused_ends_too(self, tmp_path: Path) -> None:
        made = Cluster.start(tmp_path / "cluster", components=CORE)
        made.pause("apiserver")
        made.stop()
        assert not processes.found(tmp_path / "cluster")

    def test_a_start_that_fails_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(self: Cluster) -> None:
            self.kill("etcd")
            self._wait("etcd")

        monkeypatch.setattr(Cluster, "_install", refuse)
        with pytest.raises(Broken, match=r"etcd is not ready: etcd has ended\n  its log, .*etcd.log, ends with:\n  \S"):
            Cluster.start(tmp_path / "cluster", components=CORE)
        assert not processes.found(tmp_path / "cluster")

    def test_a_second_one_in_the_same_folder_is_refused(self, tmp_path: Path) -> None:
        made = Cluster.start(tmp_path / "cluster", components=CORE)
        try:
            with pytest.raises(Broken, match="holds a cluster already"):
                Cluster.start(tmp_path / "cluster", components=CORE)
            assert made.alive("apiserver")
        finally:
            made.stop()


class TestStarterIsKilled:
    @pytest.fixture
    def orphan(self, tmp_path: Path) -> Iterator[Callable[[bool], Path]]:
        """Starts a cluster in a process that is then killed; the argument: whether it is meant to stay."""
        folder = tmp_path / "orphan"

        def start(detached: bool) -> Path:
            program = f"""
                import time
                from tools.cluster import Cluster
                Cluster.start({str(folder)!r}, components={CORE!r}, detached={detached})
                print("up", flush=True)
                time.sleep(600)
            """
            argv = [sys.executable, "-c", textwrap.dedent(program)]
            process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            process.kill()
            process.wait()
            process.stdout.close()
            return folder

        yield start
        end(folder)

    def test_end_finds_everything(self, orphan: Callable[[bool], Path]) -> None:
        folder = orphan(False)
        assert len(processes.found(folder)) == 3
        end(folder)
        assert not processes.found(folder)

    def test_the_next_start_ends_it(self, orphan: Callable[[bool], Path], tmp_path: Path) -> None:
        folder = orphan(False)
        Cluster.start(tmp_path / "next", components=CORE).stop()
        assert not processes.found(folder)
        assert not folder.exists()

    def test_a_detached_one_stays_and_is_found_again(self, orphan: Callable[[bool], Path], tmp_path: Path) -> None:
        folder = orphan(True)
        Cluster.start(tmp_path / "next", components=CORE).stop()
        found = Cluster.open(folder)
        assert api(found.kubeconfig).list_node().items == []
        found.restart("apiserver")
        assert api(found.kubeconfig).list_node().items == []
        found.stop()
        assert not processes.found(folder)

    def test_killed_while_it_starts(self, tmp_path: Path) -> None:
        folder = tmp_path / "cluster"
        program = f"from tools.cluster import Cluster; Cluster.start({str(folder)!r})"
        process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
        eventually(lambda: "kcm" in {p.name for p in processes.found(folder)})
        process.kill()
        process.wait()
        end(folder)
        assert not processes.found(folder)


def test_a_second_cluster_is_another(cluster: Cluster, broken: Cluster) -> None:
    assert not set(cluster.place.ports.values()) & set(broken.place.ports.values())
    first, second = api(cluster.kubeconfig), api(broken.kubeconfig)
    uids = [a.read_namespace("kube-system").metadata.uid for a in (first, second)]
    assert uids[0] != uids[1]
    stranger = json.loads(cluster.kubeconfig.read_text())
    stranger["users"][0]["user"]["token"] = broken.token("admin", ["system:masters"])
    with pytest.raises(ApiException) as error:
        client.CoreV1Api(config.new_client_from_config_dict(stranger)).list_node()
    assert error.value.status == 401


def test_every_component_may_be_killed_and_comes_back(broken: Cluster) -> None:
    admin = config.new_client_from_config(str(broken.kubeconfig))
    objects = Objects(admin, "default")
    eventually(lambda: api(broken.kubeconfig).list_namespaced_service_account("default").items)
    assert broken.components == ALL
    for name in ALL:
        broken.kill(name)
        assert not broken.alive(name)
        broken.restart(name)
        assert broken.alive(name)
    for name in ("kcm", "scheduler", "jobset", "kueue", "trainer", "sp_controller", "sp_scheduler"):
        broken.restart(name)  # they would wait longer and longer for an API server that had been away
    objects.create(jobset("after", start="100ms"), "jobsets")
    objects.jobset("after", "Completed")


def test_a_paused_component_does_nothing_until_it_goes_on(broken: Cluster) -> None:
    objects = Objects(config.new_client_from_config(str(broken.kubeconfig)), "default")
    broken.pause("jobset")
    assert broken.alive("jobset")
    with pytest.raises(ApiException) as error:
        objects.create(jobset("waits"), "jobsets")
    assert "mjobset.kb.io" in error.value.body
    broken.resume("jobset")
    objects.create(jobset("waits"), "jobsets")
    objects.jobset("waits", "Completed")


class TestUsers:
    def test_a_token_stands_for_a_user(self, cluster: Cluster) -> None:
        user = api(cluster.kubeconfig_for("jane", ["team-a"]))
        review = client.AuthenticationV1Api(user.api_client).create_self_subject_review({})
        assert (review.status.user_info.username, "team-a" in review.status.user_info.groups) == ("jane", True)
        with pytest.raises(ApiException) as error:
            user.list_node()
        assert error.value.status == 403
        assert 'User "jane" cannot list resource "nodes"' in json.loads(error.value.body)["message"]

    def test_a_revoked_token_is_known_no_more(self, cluster: Cluster) -> None:
        file = cluster.kubeconfig_for("jane")
        cluster.revoke(json.loads(file.read_text())["users"][0]["user"]["token"])
        with pytest.raises(ApiException) as error:
            api(file).list_node()
        assert error.value.status == 401

    @pytest.mark.parametrize(("life", "status"), [(timedelta(minutes=1), 403), (timedelta(minutes=-1), 401)])
    def test_a_certificate_counts_while_it_lasts(
        self, cluster: Cluster, tmp_path: Path, life: timedelta, status: int
    ) -> None:
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = cluster.server, str(cluster.ca)
        for attribute, content in zip(("cert_file", "key_file"), cluster.certificate("jim", life=life), strict=True):
            (tmp_path / attribute).write_bytes(content)
            setattr(configuration, attribute, str(tmp_path / attribute))
        with pytest.raises(ApiException) as error:
            client.CoreV1Api(ApiClient(configuration)).list_node()
        assert error.value.status == status


class TestSimulation:
    def pod(self, objects: Objects, admin: ApiClient, **simulated: str) -> Callable[[], Any]:
        """A pod by its name, and what is known of it."""
        core = client.CoreV1Api(admin)
        policy = simulated.pop("policy", "Never")
        annotations = {f"sim/{key.replace('_', '-')}": value for key, value in simulated.items()}
        spec = {"restartPolicy": policy, "containers": [{"name": "main", "image": "example/none:1"}]}
        body = {
            "metadata": {"name": "pod", "annotations": {"sim/start": "50ms", "sim/run": "50ms", **annotations}},
            "spec": spec,
        }
        core.create_namespaced_pod(objects.namespace, body)
        return lambda: core.read_namespaced_pod("pod", objects.namespace)

    def container(self, look: Callable[[], Any]) -> Any:
        return (look().status.container_statuses or [None])[0]

    def test_an_image_that_is_missing(self, objects: Objects, admin: ApiClient) -> None:
        look = self.pod(objects, admin, outcome="imagepull", backoff="50ms")
        eventually(lambda: (c := self.container(look)) and c.state.waiting.reason == "ImagePullBackOff")
        assert look().status.phase == "Pending"
        assert self.container(look).state.waiting.message == 'Back-off pulling image "example/none:1"'

    def test_a_crash_loop_counts(self, objects: Objects, admin: ApiClient) -> None:
        look = self.pod(
            objects, admin, outcome="fail", policy="Always", backoff="50ms", exit_code="3", message="no GPU"
        )
        eventually(lambda: (c := self.container(look)) and c.restart_count >= 2)
        last = self.container(look).last_state.terminated
        assert (last.exit_code, last.message, look().status.phase) == (3, "no GPU", "Running")

    def test_a_deleted_pod_ends_like_one_of_a_kubelet(self, objects: Objects, admin: ApiClient) -> None:
        core = client.CoreV1Api(admin)
        look = self.pod(objects, admin, outcome="forever", term="1s")
        eventually(lambda: look().status.phase == "Running")
        core.delete_namespaced_pod("pod", objects.namespace)
        assert look().metadata.deletion_timestamp
        eventually(lambda: not core.list_namespaced_pod(objects.namespace).items)

    def test_logs(self, objects: Objects, admin: ApiClient, cluster: Cluster) -> None:
        core = client.CoreV1Api(admin)
        look = self.pod(objects, admin, outcome="forever")
        eventually(lambda: look().status.phase == "Running")
        assert core.read_namespaced_pod_log("pod", objects.namespace) == "a simulated pod prints nothing\n"
        cluster.pod_logs(objects.namespace, "pod", ["step 1", "step 2"], previous=["boom"])
        eventually(lambda: core.read_namespaced_pod_log("pod", objects.namespace) == "step 1\nstep 2\n")
        assert core.read_namespaced_pod_log("pod", objects.namespace, tail_lines=1) == "step 2\n"
        assert core.read_namespaced_pod_log("pod", objects.namespace, previous=True) == "boom\n"

    def test_a_node_that_is_not_ready(self, broken: Cluster) -> None:
        (name,) = broken.nodes(1, gpus=4, labels={"sim/pool": "spare"})
        core = api(broken.kubeconfig)

        def ready() -> str:
            found = core.read_node(name)
            assert (found.metadata.labels["sim/pool"], found.status.allocatable["nvidia.com/gpu"]) == ("spare", "4")
            return str(next(c.status for c in found.status.conditions if c.type == "Ready"))

        assert (name, ready()) == ("gpu-8", "True")
        core.patch_node(name, {"metadata": {"labels": {"sim/node": "notready"}}})
        eventually(lambda: ready() == "False")
        core.patch_node(name, {"metadata": {"labels": {"sim/node": None}}})
        eventually(lambda: ready() == "True")


@pytest.fixture
def objects(admin: ApiClient, namespace: str) -> Objects:
    return Objects(admin, namespace)


def test_a_train_job_completes_under_kueue(objects: Objects, admin: ApiClient) -> None:
    custom, suffix = client.CustomObjectsApi(admin), objects.namespace
    group, version = "kueue.x-k8s.io", "v1beta2"
    flavor, queue = {"name": suffix}, {"name": "nvidia.com/gpu", "nominalQuota": 4}
    resources = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{**flavor, "resources": [queue]}]}]
    only = {"matchLabels": {"kubernetes.io/metadata.name": suffix}}
    made: list[tuple[str, Document]] = [
        ("resourceflavors", {"kind": "ResourceFlavor"}),
        ("clusterqueues", {"kind": "ClusterQueue", "spec": {"namespaceSelector": only, "resourceGroups": resources}}),
    ]
    for plural, document in made:
        body = {"apiVersion": f"{group}/{version}", "metadata": {"name": suffix}, **document}
        custom.create_cluster_custom_object(group, version, plural, body)
    local = {
        "apiVersion": f"{group}/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": "team"},
        "spec": {"clusterQueue": suffix},
    }
    objects.create(local, "localqueues")
    patch = {
        "manager": "test.dev/simulation",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
            {"name": "node", "template": {"spec": {"template": {"metadata": {"annotations": {"sim/run": "1s"}}}}}}
        ]}}},
    }  # fmt: skip
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"}, "runtimePatches": [patch],
            "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}},
        },
    }  # fmt: skip
    try:
        objects.create(train, "trainjobs")
        objects.condition("trainer.kubeflow.org", "v1alpha1", "trainjobs", "train", "Complete")
        (workload,) = custom.list_namespaced_custom_object(group, version, objects.namespace, "workloads")["items"]
        assert {c["type"] for c in workload["status"]["conditions"]} >= {"QuotaReserved", "Admitted"}
        objects.condition(group, version, "workloads", workload["metadata"]["name"], "Finished")
    finally:
        for plural, _ in reversed(made):
            custom.delete_cluster_custom_object(group, version, plural, suffix)


def test_ctrl_c_ends_the_starter_and_its_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # nohup and & make children deaf to it
    program = f"{heard}; from tools.cluster import Cluster; Cluster.start({str(folder)!r})"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    eventually(lambda: "kcm" in {p.name for p in processes.found(folder)})
    os.kill(process.pid, signal.SIGINT)
    process.wait(30)
    assert not processes.found(folder)
