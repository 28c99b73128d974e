"""The catalogue of runtimes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_support import log, submission, wait
from pulumi_trainer import runtimes
from pulumi_trainer.provider.cli import runtime_table
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.trainer.catalog.versions import by_version

from tests.trainer import default_runtime, default_train_job, render, review_jobset, validate

FOLDER = Path(runtimes.__file__).parent
RELEASES = [(name, release) for name in runtimes.names() for release in runtimes.releases(name)]


def test_what_there_is() -> None:
    assert runtimes.names() == [
        "deepspeed-distributed",
        "flux",
        "jax-distributed",
        "llamafactory",
        "mlx-distributed",
        "paddle",
        "plain",
        "tensorflow",
        "torch-distributed",
        "torch-distributed-with-cache",
        "torchtune-distributed",
        "torchtune-llama3.2-1b",
        "torchtune-llama3.2-3b",
        "torchtune-llama3.3-70b",
        "torchtune-qwen2.5-1.5b",
        "transformers-distributed",
        "trl-distributed",
        "unsloth",
        "xgboost-distributed",
    ]
    assert runtimes.releases("torch-distributed") == ["2.3.0"]


def test_a_release_never_changes() -> None:
    """After adding one: pulumi-trainer runtime check --lock; lines that are there stay as they are."""
    locked = dict(reversed(line.split()) for line in (FOLDER / "catalogue.lock").read_text().splitlines())
    files = {str(p.relative_to(FOLDER)): hashlib.sha256(p.read_bytes()).hexdigest() for p in FOLDER.glob("*/*.yaml")}
    assert locked == files
    assert len(files) == len(RELEASES)


@pytest.mark.parametrize(("name", "release"), RELEASES)
def test_every_release_says_what_it_is_and_renders(name: str, release: str) -> None:
    document = runtimes.load(name, release)
    metadata = document["metadata"]
    assert document["kind"] == "ClusterTrainingRuntime"
    assert metadata["name"] == name
    assert metadata["labels"][runtimes.RELEASE] == metadata["annotations"][runtimes.RELEASE] == release
    assert metadata["labels"]["trainer.kubeflow.org/framework"]
    job = {"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": name}, "trainer": {"numNodes": 2}}}
    documents = default_runtime(document), default_train_job(job)
    if runtimes.about(name)["nodes"] == "one":
        tuned = default_train_job(
            {**job, "spec": {**job["spec"], "trainer": {"numNodes": 2, "command": ["tune", "run"]}}}
        )
        assert [p.where for p in validate(documents[0], tuned)] == ["spec.trainer.numNodes"]
    assert validate(*documents) == ()
    rendered = render(*documents)
    assert rendered.notes == ()
    assert review_jobset(rendered.objects["JobSet/job"]) == []


def test_the_newest_by_number() -> None:
    versions = ["2.10.0", "2.9.1", "2.9.1-2", "2.9.1-10"]
    assert sorted(versions, key=by_version) == ["2.9.1", "2.9.1-2", "2.9.1-10", "2.10.0"]
    assert runtimes.load("torch-distributed") == runtimes.load("torch-distributed", "2.3.0")


def test_a_loaded_runtime_is_ones_own() -> None:
    runtimes.load("torch-distributed")["metadata"]["name"] = "mine"
    assert runtimes.load("torch-distributed")["metadata"]["name"] == "torch-distributed"


@pytest.mark.parametrize(
    ("name", "release", "text"),
    [
        ("torch-distributd", None, "did you mean torch-distributed or torchtune-distributed"),
        ("torch-distributed", "2.3", "did you mean 2.3.0? available: 2.3.0"),
        ("mpi", None, "'mpi' is not a runtime of the catalogue. Hint: available: deepspeed-distributed, flux,"),
        ("../unit", None, "not a runtime of the catalogue"),
        ("torch-distributed", "../../pyproject", "not a release of torch-distributed"),
        ("", None, "'' is not a runtime"),
    ],
)
def test_unknown(name: str, release: str | None, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        runtimes.load(name, release)
    assert text in str(caught.value)


def test_each_says_what_it_is_for() -> None:
    assert sorted(runtimes.BUILT_IN._about) == runtimes.names()
    for name in runtimes.names():
        about = runtimes.about(name)
        assert set(about) == {"devices", "nodes", "purpose"}
        assert set(about["devices"]) <= {"cpu", "gpu"} and about["devices"] and about["nodes"] in ("one", "any")
    with pytest.raises(Invalid, match="did you mean paddle"):
        runtimes.about("padle")


def listing(*arguments: str) -> tuple[str, list[str]]:
    """What `pulumi-trainer runtime list` prints, and which packages it has loaded that it must not."""
    code = """
import sys
from pulumi_trainer.provider.cli import main as cli
sys.argv = ["pulumi-trainer", "runtime", "list", *sys.argv[1:]]
try:
    cli.main()
finally:
    slow = ("pulumi", "pulumi_kubernetes", "kubernetes")
    print([name for name in sys.modules if name.split(".")[0] in slow], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, list(json.loads(done.stderr.replace("'", '"')))


def test_the_list() -> None:
    text, loaded = listing()
    assert loaded == []
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in text.splitlines() if line}
    assert list(lines)[:-1] == ["RUNTIME", *runtimes.names()]
    assert lines["torchtune-llama3.2-1b"].split()[:6] == ["2.3.0*", "torchtune", "gpu", "(2", "a", "node)"]
    assert lines["torch-distributed"].endswith(
        "1 or more  PyTorch started by torchrun: DDP, FSDP and what is built on them"
    )


def test_the_list_as_json() -> None:
    found = json.loads(listing("--output", "json")[0])
    assert [one["name"] for one in found] == runtimes.names()
    [tune] = [one for one in found if one["name"] == "torchtune-llama3.3-70b"]
    assert tune == {
        "name": "torchtune-llama3.3-70b",
        "releases": ["2.3.0"],
        "newest": "2.3.0",
        "deprecated": [],
        "framework": "torchtune",
        "devices": ["gpu"],
        "gpusPerNode": 8,
        "nodes": "1 or more",
        "purpose": "Fine-tuning of Llama 3.3 70B by TorchTune",
    }


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": 4, "nvidia.com/gpumem": "3000"}, 4), ({"aliyun.com/gpu-mem": "16Gi"}, 0),
        ({"nvidia.com/mig-1g.10gb": "2"}, 2), ({"nvidia.com/gpu": "1k"}, 1000), ({"nvidia.com/gpu": "many"}, 0),
    ],
)  # fmt: skip
def test_the_gpus_of_a_node_are_counted(limits: dict[str, Any], gpus: int) -> None:
    document = runtimes.load("torch-distributed")
    (job,) = document["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    assert runtime_table._gpus(document) == gpus


def rendered(name: str, trainer: dict[str, Any]) -> dict[str, Any]:
    job = {"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": name}, "trainer": trainer}}
    jobset = render(default_runtime(runtimes.load(name)), default_train_job(job)).objects["JobSet/job"]
    return {**jobset, "apiVersion": "jobset.x-k8s.io/v1alpha2"}


def sitecustomize(name: str) -> str:
    pods = rendered(name, {})["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(pods["metadata"]["annotations"]["pulumi-trainer.dev/sitecustomize"])


def python_with(name: str, folder: Path, **env: str) -> dict[str, str]:
    """The environment of a Python that has started with a runtime's sitecustomize."""
    (folder / "sitecustomize.py").write_text(sitecustomize(name))
    program = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    done = subprocess.run(
        program, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **env}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == ""
    return dict(json.loads(done.stdout))


JAX = {"JAX_NUM_PROCESSES": "3", "JAX_COORDINATOR_ADDRESS": "my-job-node-0-0.my-job:29500"}


def test_tensorflow_nodes_are_workers(tmp_path: Path) -> None:
    env = python_with("tensorflow", tmp_path, **JAX, JAX_PROCESS_ID="2")
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {"worker": [f"my-job-node-0-{i}.my-job:29500" for i in range(3)]},
        "task": {"type": "worker", "index": 2},
    }
    assert python_with("tensorflow", tmp_path, **JAX, JAX_PROCESS_ID="2", TF_CONFIG="{}")["TF_CONFIG"] == "{}"
    assert "TF_CONFIG" not in python_with("tensorflow", tmp_path)


@pytest.mark.parametrize(("rank", "master"), [("0", "127.0.0.1:29500"), ("2", "my-job-node-0-0.my-job:29500")])
def test_paddle_nodes_find_their_master(tmp_path: Path, rank: str, master: str) -> None:
    env = python_with("paddle", tmp_path, **JAX, JAX_PROCESS_ID=rank)
    assert (env["PADDLE_MASTER"], env["PADDLE_NNODES"], env["PADDLE_RANK"]) == (master, "3", rank)
    assert python_with("paddle", tmp_path, **JAX, JAX_PROCESS_ID=rank, PADDLE_MASTER="x:1")["PADDLE_MASTER"] == "x:1"
    assert "PADDLE_MASTER" not in python_with("paddle", tmp_path)


def test_tensorflow_on_this_machine(local: LocalTarget) -> None:
    """Two nodes, each of which reaches both by what TF_CONFIG says."""
    program = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
pairs = [at.split(":") for at in config["cluster"]["worker"]]
host, port = pairs[config["task"]["index"]]
with socket.create_server((host, int(port))) as mine:
    for host, port in pairs:
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                pass
    for _ in pairs:
        mine.accept()[0].close()
print("worker", config["task"]["index"], "of", len(pairs))
"""
    document = rendered("tensorflow", {"numNodes": 2, "command": ["python3", "-c", program]})
    local.jobs.create(submission(document))
    assert wait(local).phase == "Succeeded"
    assert [log(local, f"job-node-0-{i}") for i in (0, 1)] == ["worker 0 of 2\n", "worker 1 of 2\n"]
