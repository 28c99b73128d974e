"""Datasets and models on a cluster: inside a TrainJob as upstream's runtimes have them, and as resources of their own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import condition, left, until
from .programs import plan, sent
from .storage_support import storage_class
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

Document = dict[str, Any]


@pytest.fixture
def made(root: Client, namespace: str) -> Iterator[str]:
    """A class with volumes for several nodes."""
    with storage_class(root, namespace, volumes=3) as name:
        yield name


def spec_of(root: Client, namespace: str, name: str) -> Document:
    found = root.get(kinds.CLAIM, namespace, name)
    assert found is not None
    return dict(found["spec"])


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_upstreams_runtimes_fetch_inside_the_job(
    root: Client, user_kubeconfig: Path, namespace: str, made: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their volume is a claim that JobSet makes for the job, and that goes with it."""
    client = open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})
    target = KubernetesTarget(client, cluster=lambda: "", namespace=namespace, mode=mode)
    runtime = runtimes.load("torchtune-llama3.2-1b")
    runtime = {**runtime, "kind": "TrainingRuntime", "metadata": {**runtime["metadata"], "namespace": namespace}}
    template = runtime["spec"]["template"]["spec"]
    template["volumeClaimPolicies"][0]["templates"][0]["spec"]["storageClassName"] = made
    for job in template["replicatedJobs"]:
        job["template"]["spec"]["template"]["metadata"] = {
            "annotations": {"sim/run": "200ms", "sim/outcome": "succeed"}
        }
    if mode == "trainer":
        target.runtimes.apply(runtime, "owner", "stack")
    fetched = trainer.Initializer(
        dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca"),
        model=trainer.HuggingFaceModelInitializer(
            storage_uri="hf://meta-llama/Llama-3.2-1B-Instruct", secret_ref="hub"
        ),
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub", "namespace": namespace}}
    root.create(kinds.SECRET, {**secret, "stringData": {"ACCESS_TOKEN": "x"}})
    target.jobs.create(sent(plan(monkeypatch, runtime, namespace, mode, initializer=fetched)))

    until(lambda: condition(root, namespace, "job", "Completed"))
    bound = spec_of(root, namespace, "initializer-job")
    assert bound["volumeName"] and bound["accessModes"] == ["ReadWriteOnce"]
    pods = {
        p["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]: p for p in root.list(kinds.POD, namespace)[0]
    }
    assert set(pods) == {"dataset-initializer", "model-initializer", "node"}
    for name, pod in pods.items():
        (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "initializer"]
        assert volume["persistentVolumeClaim"]["claimName"] == "initializer-job", name
        (container,) = pod["spec"]["containers"]
        assert {"name": "initializer", "mountPath": "/workspace"} in container["volumeMounts"]
    (container,) = pods["model-initializer"]["spec"]["containers"]
    assert {"name": "STORAGE_URI", "value": "hf://meta-llama/Llama-3.2-1B-Instruct"} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    target.jobs.delete(namespace, "job")
    until(lambda: root.get(kinds.CLAIM, namespace, "initializer-job") is None)


FETCHED = """
config = pulumi.Config()
data = trainer.DatasetInitializer(
    "data", storage_uri="hf://tatsu-lab/alpaca", access_token=config.require_secret("token"),
    ignore_patterns=["*.md"], storage_class="CLASS", size="2Gi",
)
job = trainer.TrainJob(
    "train", runtime=simulated, initializer=trainer.Initializer(dataset=data), wait_for="complete", output=OUTPUT,
    trainer=trainer.Trainer(image="trainer:1", command=["train"], num_nodes=2),
)
pulumi.export("data", data.path)
pulumi.export("output", job.output_path)
"""
ENDS = "outcome: succeed, run: 200ms"


@pytest.mark.smoke
def test_a_dataset_as_a_resource(lab: Lab, root: Client, namespace: str, made: str) -> None:  # noqa: F811
    output = f'trainer.OutputVolume(storage_class="{made}")'
    lab.config("token", "canary-token", "--secret")
    text = FETCHED.replace("CLASS", made).replace("OUTPUT", output)
    lab.program(text, head(ENDS))
    lab.up()
    pods, _ = root.list(kinds.POD, namespace)
    (fetch,) = [p for p in pods if "dataset-initializer" in p["metadata"]["name"]]
    (container,) = fetch["spec"]["containers"]
    assert container["image"] == "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0" and "command" not in container
    env = {e["name"]: e.get("value") or e["valueFrom"].get("secretKeyRef") for e in container["env"]}
    assert env["STORAGE_URI"] == "hf://tatsu-lab/alpaca" and env["IGNORE_PATTERNS"] == "*.md"
    held = root.get(kinds.SECRET, namespace, env["ACCESS_TOKEN"]["name"])
    assert held is not None and base64.b64decode(held["data"][env["ACCESS_TOKEN"]["key"]]) == b"canary-token"
    assert "canary-token" not in lab.stack_text() and "canary-token" not in str(pods)

    claims = {c["metadata"]["name"]: c["spec"] for c in root.list(kinds.CLAIM, namespace)[0]}
    data, written = (
        lab.outputs()["data"].removeprefix("pvc://"),
        lab.outputs()["output"].removeprefix("pvc://").partition("/")[0],
    )
    assert set(claims) == {data, written}
    assert {c["accessModes"][0] for c in claims.values()} == {"ReadWriteMany"}, "two nodes mount them"
    assert claims[data]["resources"]["requests"]["storage"] == "2Gi"
    nodes = [p for p in pods if "-node-" in p["metadata"]["name"]]
    assert len(nodes) == 2
    for node in nodes:
        volumes = [v["persistentVolumeClaim"] for v in node["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert volumes == [{"claimName": data, "readOnly": True}, {"claimName": written}]
        mounts = {m["mountPath"] for m in node["spec"]["containers"][0]["volumeMounts"]}
        assert {"/workspace/dataset", "/workspace/output"} <= mounts

    lab.preview("--expect-no-changes")
    lab.program(text.replace('"2Gi"', '"1Gi"'), head(ENDS))
    assert "cannot shrink to 1Gi" in lab.preview(ok=False).out
    lab.program(text.replace("num_nodes=2", "num_nodes=1").replace("alpaca", "other"), head(ENDS))
    lab.up()
    again = lab.outputs()["data"].removeprefix("pvc://")
    assert again != data and spec_of(root, namespace, again)["accessModes"] == ["ReadWriteOnce"]
    assert spec_of(root, namespace, written)["accessModes"] == ["ReadWriteMany"], "what serves two serves one"
    lab.destroy()
    until(lambda: root.list(kinds.CLAIM, namespace)[0] == [])
    assert left(root, namespace) == []


def test_a_small_file_of_this_machine_travels(lab: Lab, root: Client, namespace: str, made: str) -> None:  # noqa: F811
    (lab.folder / "table.bin").write_bytes(content := bytes(range(256)))
    text = (
        FETCHED.replace("CLASS", made).replace("hf://tatsu-lab/alpaca", "file://table.bin").replace("OUTPUT", "False")
    )
    text = text.replace('access_token=config.require_secret("token"),', "")
    lab.program(text, head(ENDS))
    lab.up()
    (fetch,) = [p for p in root.list(kinds.POD, namespace)[0] if "dataset-initializer" in p["metadata"]["name"]]
    (container,) = fetch["spec"]["containers"]
    assert (container["image"], container["command"][0]) == ("trainer:1", "python3")
    (files,) = [v["configMap"] for v in fetch["spec"]["volumes"] if "configMap" in v]
    held = root.get(kinds.CONFIG_MAP, namespace, files["name"])
    assert held is not None
    (key,) = [i["key"] for i in files["items"] if i["path"] == "data/table.bin"]
    assert base64.b64decode(held["binaryData"][key]) == content
    before = lab.outputs()["data"]
    (lab.folder / "table.bin").write_bytes(b"changed")
    lab.up()
    assert lab.outputs()["data"] != before, "other data is another volume"
    lab.destroy()
    assert left(root, namespace) == []


def test_what_a_cluster_cannot_fetch_is_refused_before(lab: Lab) -> None:  # noqa: F811
    lab.program(
        """
big = open("big.bin", "wb").write(bytes(1_000_000))
trainer.DatasetInitializer("revision", storage_uri="hf://a/b@main")
trainer.ModelInitializer("folder", storage_uri="hf://a/b/weights")
trainer.DatasetInitializer("big", storage_uri="file://big.bin")
trainer.DatasetInitializer("mode", storage_uri="hf://a/b", access_mode="ReadWriteAlways", size="much")
inline = trainer.Initializer(dataset=trainer.DataSource(storage_uri="file://big.bin"))
trainer.TrainJob("inline", runtime="torchtune-llama3.2-1b", initializer=inline)
chosen = trainer.DatasetInitializer("chosen", storage_uri="hf://a/b", access_mode="ReadWriteOnce")
trainer.TrainJob(
    "two", runtime=simulated, initializer=trainer.Initializer(dataset=chosen),
    trainer=trainer.Trainer(command=["x"], num_nodes=2),
)
""",
        head(),
    )
    said = lab.preview(ok=False).out
    for words in (
        'DatasetInitializer("revision")', "do not support @REVISION", "do not support a path in a repository",
        "the most that can travel with a job",
        "access_mode: must be one of", "is a path of this machine, which a cluster cannot read",
        'DatasetInitializer("chosen"), but its access mode ReadWriteOnce',
    ):  # fmt: skip
        assert words in said, said
