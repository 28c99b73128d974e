"""A cluster with two real nodes for all tests of a session, a namespace for each, and jobs of real pods."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tests.cluster.conftest import admin, namespace, user_kubeconfig  # noqa: F401 (fixtures)
from tests.cluster.jobs import submission
from tests.engine.conftest import eventually, pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster
from tools.cluster.images import MACHINE

from .examples import Example, example

Document = dict[str, Any]
CONTROL_PLANE = ("kcm", "scheduler", "jobset", "kueue")
"""All that the Kubernetes target asks of a cluster, and no simulated node."""
PATIENCE = 120.0
"""Seconds, for what takes two on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What breaks nodes comes last."""
    items.sort(key=lambda item: item.get_closest_marker("breaks_nodes") is not None)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shared; after a test that breaks a node, both are ready again."""
    folder = tmp_path_factory.mktemp("nodes")
    made = Cluster.start(folder, nodes=2, components=CONTROL_PLANE)
    yield made
    made.stop(remove=not request.session.testsfailed)
    if request.session.testsfailed:
        shutil.rmtree(folder / "run", ignore_errors=True)
        print(f"\nthe logs of the cluster are in {made.logs}")


@pytest.fixture
def core(admin: ApiClient) -> client.CoreV1Api:  # noqa: F811
    """As the administrator."""
    return client.CoreV1Api(admin)


@dataclass
class Lab:
    """A namespace of a user with the least role."""

    namespace: str
    kubeconfig: Path
    target: KubernetesTarget
    core: client.CoreV1Api

    def run(self, name: str, code: str, **more: Any) -> None:
        """A job whose pods run this Python code; more: of `jobset`."""
        self.target.jobs.create(submission(self.namespace, jobset(name, code, **more), code=False))

    def status(self, name: str) -> JobStatus:
        found = self.target.jobs.status(self.namespace, name)
        assert found is not None
        return found

    def until(self, name: str, condition: Callable[[JobStatus], Any]) -> JobStatus:
        """Its status once the condition holds."""
        found = [self.status(name)]

        def look() -> bool:
            found[0] = self.status(name)
            return bool(condition(found[0]))

        eventually(look, PATIENCE, f"{name} is {found}")
        return found[0]

    def ended(self, name: str, phase: str = "Succeeded") -> JobStatus:
        """Its last status."""
        status = self.until(name, lambda s: s.terminal)
        assert status.phase == phase, status
        return status

    def pods(self) -> list[Any]:
        found = self.core.list_namespaced_pod(self.namespace).items
        return sorted(found, key=lambda pod: str(pod.metadata.name))

    def cli(self, *argv: str) -> subprocess.Popen[str]:
        """`pulumi-trainer` on this namespace."""
        program = [str(Path(sys.executable).with_name("pulumi-trainer")), *argv]
        where = ["--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig)]
        return subprocess.Popen([*program, *where], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def said(self, *argv: str) -> str:
        """What `pulumi-trainer` prints."""
        out, errors = self.cli(*argv).communicate(timeout=PATIENCE)
        assert not errors, errors
        return out


@pytest.fixture
def lab(namespace: str, user_kubeconfig: Path, core: client.CoreV1Api) -> Lab:  # noqa: F811
    reached = open_client({"kubeconfig": str(user_kubeconfig)})
    target = KubernetesTarget(reached, cluster=reached.cluster_id, namespace=namespace)
    return Lab(namespace, user_kubeconfig, target, core)


@pytest.fixture
def examples(
    tmp_path: Path,
    pulumi_home: Path,  # noqa: F811
    namespace: str,  # noqa: F811
    user_kubeconfig: Path,  # noqa: F811
    core: client.CoreV1Api,
) -> Callable[[str], Example]:
    """Name of an example -> it, with a stack in the namespace of the test."""
    where = {"target": "kubernetes", "kubeconfig": str(user_kubeconfig), "namespace": namespace}
    settings = {f"trainer:{key}": value for key, value in where.items()}
    return lambda name: example(name, tmp_path / name, pulumi_home, core, settings)


def jobset(
    name: str,
    code: str,
    *,
    pods: int = 1,
    pod: Document | None = None,
    container: Document | None = None,
    backoff: int = 0,
    **spec: Any,
) -> Document:
    """A JobSet with one replicated job `node`; spec: of the JobSet."""
    main = {"name": "node", "image": MACHINE, "command": ["python3", "-u", "-c", code], **(container or {})}
    template = {"spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main], **(pod or {}),
    }}  # fmt: skip
    job = {"parallelism": pods, "completions": pods, "backoffLimit": backoff, "template": template}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}], **spec},
    }  # fmt: skip


def apart() -> Document:
    """Of a pod: no other of the namespace's jobs on its node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
        {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
    ]}}  # fmt: skip
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
