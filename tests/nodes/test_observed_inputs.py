"""The record of a run in real Pods has the revisions of its data, whichever initializer has fetched it, and what else they show.

Containers see the clone at its own path, which must not be below /tmp: an emptyDir is mounted there.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from typing import Any

import boto3
import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP

from tests.cluster.test_up import Lab
from tests.cluster.test_up import lab as stack  # noqa: F401 (a fixture)
from tests.moto_server import moto_server
from tools.cluster import Cluster, nodes
from tools.cluster.images import MACHINE

COMMIT = "0123456789abcdef0123456789abcdef01234567"
UPSTREAMS = f"""
import pathlib
model = pathlib.Path("/workspace/model")
record = model / ".cache/huggingface/download/config.json.metadata"
record.parent.mkdir(parents=True)
record.write_text("{COMMIT}\\n" + "a" * 40 + "\\n1.5\\n")
(model / "config.json").write_text("{{}}")
"""
"""What huggingface_hub leaves of a repository that it has fetched into a folder (tests/unit/test_observed_inputs.py)."""

PROGRAM = """
import pulumi
import pulumi_trainer as trainer

MOUNT = {"name": "initializer", "mountPath": "/workspace"}

def initializer(kind, argv):
    container = {"name": kind, "image": IMAGE, "command": argv, "volumeMounts": [MOUNT]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return trainer.ReplicatedJob(name=kind, pod_spec=pod)

node = {"name": "node", "image": IMAGE, "volumeMounts": [MOUNT]}
fetching = trainer.ClusterTrainingRuntime(
    "fetching",
    ml_policy=trainer.PlainPolicy(num_nodes=2),
    template=trainer.JobSetTemplate(
        volume_claim_policies=[{"templates": [{"metadata": {"name": "initializer"}, "spec": {
            "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
        }}]}],
        replicated_jobs=[
            initializer("dataset-initializer", [PYTHON, "-m", "pulumi_trainer.provider.pod.initializers", "dataset"]),
            initializer("model-initializer", [PYTHON, "-c", UPSTREAMS]),
            trainer.ReplicatedJob(
                name="node",
                backoff_limit=0,
                depends_on=[
                    trainer.DependsOn(name=f"{kind}-initializer", status="Complete") for kind in ("dataset", "model")
                ],
                pod_spec={"restartPolicy": "Never", "containers": [node]},
            ),
        ],
    ),
)

def train(fails):
    import os, pathlib
    print((pathlib.Path(os.environ["TRAINER_DATASET_DIR"]) / "numbers").read_text(), flush=True)
    if fails:
        raise SystemExit(3)

job = trainer.TrainJob(
    "train", runtime=fetching, name="train", wait_for="complete",
    initializer=trainer.Initializer(
        dataset=trainer.S3DatasetInitializer(
            storage_uri="s3://data/digits", endpoint=URL, region="us-east-1", access_key_id=pulumi.Output.secret("one"),
            secret_access_key=pulumi.Output.secret("two"),
        ),
        model=trainer.HuggingFaceModelInitializer(storage_uri="hf://org/model"),
    ),
    trainer=trainer.CustomTrainer(
        func=train,
        func_args={"fails": FAILS},
        packages_to_install=["pip"],
    ),
)
pulumi.export("inputs", job.run_inputs)
"""


def test_the_record_has_what_was_fetched(
    stack: Lab,  # noqa: F811
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command(*argv: str) -> str:
        whole = ["pulumi-trainer", *argv, "--stack", stack.stack]
        done = subprocess.run(
            whole, cwd=stack.folder, env=stack.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs() -> list[dict[str, Any]]:
        return list(json.loads(command("runs", "train", "-o", "json")))

    for name, value in (("AWS_ACCESS_KEY_ID", "one"), ("AWS_SECRET_ACCESS_KEY", "two")):
        monkeypatch.setenv(name, value)
    with moto_server(nodes.address(cluster.place.ports)) as url:
        s3 = boto3.client("s3", region_name="us-east-1", endpoint_url=url)
        s3.create_bucket(Bucket="data")

        def run(content: bytes, *, fails: bool = False) -> str:
            """Train with this content, and return the revision of the dataset."""
            s3.put_object(Bucket="data", Key="digits/numbers", Body=content)
            values = {"URL": url, "FAILS": fails, "IMAGE": MACHINE, "PYTHON": sys.executable, "UPSTREAMS": UPSTREAMS}
            stack.program(PROGRAM, head="".join(f"{name} = {value!r}\n" for name, value in values.items()))
            done = stack.run("up", "--yes", "--skip-preview")
            assert (done.code != 0) is fails, done.out
            etag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
            listing = json.dumps([["digits/numbers", etag, len(content)]])
            return hashlib.sha256(listing.encode()).hexdigest()

        first = run(b"1 2 3")
        expected = {"dataset": f"s3://data/digits {first}", "model": f"hf://org/model {COMMIT}"}
        (status,) = json.loads(command("status", "train", "-o", "json"))
        assert re.fullmatch(r"pip; installed pip \d[\d.]+", status["inputs"]["packages"]), status["inputs"]
        assert re.fullmatch(rf"{MACHINE} sha256:[0-9a-f]{{12}}", status["inputs"]["image"].rpartition("node: ")[2]), (
            status
        )
        assert expected.items() <= status["inputs"].items()
        record = stack.root_client.get(CONFIG_MAP, stack.namespace, "train")
        assert record is not None and expected.items() <= json.loads(record["data"]["observed"]).items()
        assert expected.items() <= stack.outputs()["inputs"].items()

        second = run(b"4 5 6", fails=True)
        assert [each["inputs"]["dataset"].partition(" ")[2] for each in runs()] == [first, second]
        assert f"s3://data/digits {first[:16]} -> s3://data/digits {second[:16]}" in command("runs", "train")
        why = command("why", "train")
        assert "exit code 3" in why and COMMIT not in why, why
        stack.destroy()
