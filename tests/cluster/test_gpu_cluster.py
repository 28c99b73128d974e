"""examples/gpu-cluster, as a user runs it, on simulated nodes of 8 GPUs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import Project, pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .storage_support import storage_class

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster"
FLAVOR = Kind("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "resourceflavors", False)


@pytest.fixture
def example(
    tmp_path: Path,
    pulumi_home: Path,  # noqa: F811
    root: Client,
    namespace: str,
    user_kubeconfig: Path,
) -> Iterator[Project]:
    """A stack of it. Its volume has a class of its own, as nobody provides volumes to simulated nodes."""
    folder = tmp_path / "gpu-cluster"
    shutil.copytree(EXAMPLE, folder)
    (folder / "state").mkdir()
    made = Project(folder, pulumi_home, name="gpu-cluster")
    assert made.run("stack", "init").code == 0
    with storage_class(root, namespace, volumes=1) as name:
        settings = {"trainer:kubeconfig": str(user_kubeconfig), "trainer:namespace": namespace, "storageClass": name}
        for key, value in settings.items():
            made.config(key, value)
        yield made


@pytest.fixture
def queue(root: Client, namespace: str) -> Iterator[str]:
    """A LocalQueue with as many GPUs as the example wants."""
    quotas: list[dict[str, Any]] = [
        {"name": "nvidia.com/gpu", "nominalQuota": 32},
        {"name": "memory", "nominalQuota": "1Ti"},
    ]
    flavors = [{"name": namespace, "resources": quotas}]
    groups = [{"coveredResources": [quota["name"] for quota in quotas], "flavors": flavors}]
    made: list[tuple[Kind, str, dict[str, Any]]] = [
        (FLAVOR, namespace, {}),
        (CLUSTER_QUEUE, namespace, {"namespaceSelector": {}, "resourceGroups": groups}),
        (LOCAL_QUEUE, "team", {"clusterQueue": namespace}),
    ]
    for kind, name, spec in made:
        metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
        root.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})
    yield "team"
    for kind, name, _ in reversed(made):
        root.delete(kind, namespace if kind.namespaced else "", name, propagation="Background")


def test_32_ranks_on_4_nodes(example: Project, root: Client, namespace: str, queue: str) -> None:
    example.config("queue", queue)
    preview = example.preview("--diff").out
    assert "warning" not in preview, preview
    up = example.up()
    assert "Succeeded" in up.out
    assert example.outputs()["phase"] == "Succeeded"
    (jobset,) = root.list(JOBSET, namespace)[0]
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    pods = root.list(POD, namespace)[0]
    assert len(pods) == 4 and len({p["spec"]["nodeName"] for p in pods}) == 4
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("4", "auto")
        assert env["PET_MASTER_ADDR"].startswith(f"{jobset['metadata']['name']}-node-0-0.")
        assert {"/dev/shm", "/workspace/output"} <= {m["mountPath"] for m in container["volumeMounts"]}
    assert "unchanged" in example.up().out
    example.destroy()
    until(lambda: not root.list(JOBSET, namespace)[0] and not root.list(POD, namespace)[0])


def test_more_than_the_queue_has_waits_and_says_for_what(
    example: Project, root: Client, namespace: str, queue: str
) -> None:
    example.config("queue", queue)
    example.config("nodes", "8")
    example.config("waitFor", "created")
    example.up()

    def waits() -> bool:
        out = example.run("refresh", "--yes", "--skip-preview").out
        assert "error" not in out, out
        return bool(root.list(JOBSET, namespace)[0][0]["spec"].get("suspend"))

    assert until(waits) and not root.list(POD, namespace)[0]
    assert example.outputs()["phase"] == "Queued"
    example.destroy()
