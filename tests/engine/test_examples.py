"""Each example, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulumi_trainer.provider.jobs.lineage import with_identity
from pulumi_trainer.provider.jobs.runs import Identity
from pulumi_trainer.provider.jobs.submission import from_state

from .conftest import PINNED, Project, eventually
from .test_checkpoints import run_cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def quickstart(project: Project) -> Project:
    """The project at the root of the clone, in a folder of its own."""
    shutil.copytree(ROOT / "examples" / "quickstart", project.folder / "examples" / "quickstart")
    shutil.copy(ROOT / "Pulumi.yaml", project.folder / "Pulumi.yaml")
    (project.folder / "provider").symlink_to(ROOT / "provider")  # it names our host of dynamic providers
    project.name = "quickstart"
    project.stack = "local"
    project.env.update(PINNED)
    assert project.run("stack", "init").code == 0
    return project


PRINT_INDICES = "{len(mine)} samples", "samples {sorted(mine.tolist())}"
"""What the program prints of its share of the data, and what a test needs of it."""


def edit(project: Project, old: str, new: str) -> None:
    program = project.folder / "examples" / "quickstart" / "__main__.py"
    text = program.read_text()
    assert old in text
    program.write_text(text.replace(old, new))


def runs(project: Project) -> list[dict[str, Any]]:
    return list(json.loads(run_cli(project, "runs", "classifier", "-o", "json")))


def epochs(logs: str) -> list[int]:
    lines = [json.loads(line) for line in logs.splitlines() if line.startswith('{"trainerStatus"')]
    metrics = [{m["name"]: m["value"] for m in line["trainerStatus"]["metrics"]} for line in lines]
    return [int(m["epoch"].split("/")[0]) for m in metrics]


def previewed_objects(project: Project) -> dict[str, Any]:
    """Rendered objects as the preview has them."""
    out = project.run("preview", "--json").out
    steps = json.loads(out[out.index("{") :])["steps"]
    objects: dict[str, Any] = {}
    for step in steps:
        objects.update(from_state(step.get("newState", {}).get("inputs", {}).get("objects", {})))
    return objects


@pytest.mark.core
def test_the_program_is_short_and_the_readme_shows_it() -> None:
    lines = (ROOT / "examples" / "quickstart" / "__main__.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 60


def test_quickstart_trains_on_two_nodes(quickstart: Project) -> None:
    edit(quickstart, *PRINT_INDICES)
    previewed = previewed_objects(quickstart)
    assert len([k for k in previewed if k.startswith("JobSet/")]) == 2
    up = quickstart.up()
    assert "accuracy" in up.out and "Succeeded" in up.out
    outputs = quickstart.outputs()
    assert outputs["phase"] == "Succeeded" and float(outputs["accuracy"]) >= 0.95 and outputs["seconds"] > 0
    assert Path(outputs["model"]).is_file()
    logs = quickstart.logs("classifier")
    shards = {int(r): set(json.loads(s)) for r, s in re.findall(r"rank (\d) of world size 2: samples (\[.*?\])", logs)}
    assert shards.keys() == {0, 1} and not shards[0] & shards[1] and len(shards[0]) == len(shards[1]) > 700
    checksums = dict(re.findall(r"rank (\d): parameters (\S+)", logs))
    assert checksums.keys() == {"0", "1"} and checksums["0"] == checksums["1"]
    assert epochs(logs) == list(range(1, 41))
    # Each leaf of the plan is what was then applied.
    applied: dict[str, Any] = {}
    for resource in quickstart.resources():
        applied.update(resource["inputs"]["objects"])
    assert applied == previewed
    for key, document in applied.items():
        stored = [json.loads(p.read_text()) for p in quickstart.root.glob("jobs/*/*/record.json")]
        assert any(
            record["objects"].get(key) == with_identity({key: document}, Identity.from_dict(record["identity"]))[key]
            for record in stored
        ), key
    uids = {s.name: s.uid for s in quickstart.target.jobs.list_all()}
    again = quickstart.up()
    assert "unchanged" in again.out and "created" not in again.out
    assert {s.name: s.uid for s in quickstart.target.jobs.list_all()} == uids and quickstart.outputs() == outputs
    # Another learning rate trains anew, and says so before; more epochs of the same training continue it.
    edit(quickstart, '"epochs": 40', '"epochs": 30, "lr": 0.01')
    plan, ids = quickstart.preview().out, [run["id"] for run in runs(quickstart)]
    assert 'arguments {"epochs": 40} -> {"epochs": 30, "lr": 0.01}' in plan
    assert (
        f"the new run starts anew: run {ids[0]} has succeeded; resume=True continues it, for more steps or epochs"
        in plan
    )
    quickstart.up()
    assert epochs(quickstart.logs("classifier")) == list(range(1, 31))
    model, before = quickstart.outputs()["model"], outputs["model"]
    assert model != before and Path(before).is_file() and Path(model).stat().st_mtime > Path(before).stat().st_mtime
    edit(quickstart, '"epochs": 30', '"epochs": 35')
    edit(quickstart, "output=True,", "output=True, resume=True,")
    quickstart.up()
    assert epochs(quickstart.logs("classifier")) == list(range(31, 36)) and quickstart.outputs()["model"] == model
    first, second, third = runs(quickstart)
    assert (first["parent"], second["parent"], third["parent"]) == ("", "", second["id"])
    head, *rows = run_cli(quickstart, "runs", "--metrics").splitlines()
    assert head.split() == ["job", "run", "phase", "accuracy", "loss", "epoch", "arguments"], "no bytes of the dataset"
    for row, run, arguments in zip(
        rows, (first, second, third), ("40}", '30, "lr": 0.01}', '35, "lr": 0.01}'), strict=True
    ):
        accuracy = run["metrics"]["accuracy"]
        assert row.split()[:3] == ["classifier", run["id"], "Succeeded"] and row.endswith(f'{{"epochs": {arguments}')
        assert accuracy["last"] in row and float(accuracy["best"]) >= float(accuracy["last"]) >= 0.9, row
    quickstart.destroy()
    assert not quickstart.target.jobs.list_all() and not list(quickstart.root.glob("volumes/*/*/data"))


def test_a_killed_training_goes_on_after_the_last_epoch(quickstart: Project) -> None:
    edit(quickstart, '"epochs": 40', '"epochs": 150')
    process = quickstart.start("up", "--yes", "--skip-preview")
    eventually(lambda: quickstart.job("classifier") and len(epochs(quickstart.logs("classifier"))) > 5)
    worker = eventually(lambda: rank_zero(quickstart))
    os.kill(worker.pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert epochs(quickstart.logs("classifier")) == list(range(1, 151))
    assert sum(s.restarts for s in quickstart.job("classifier").steps) >= 1


def rank_zero(project: Project) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if env.get("RANK") == "0" and str(project.root) in env.get("TRAINER_OUTPUT_DIR", ""):
                return process
        except psutil.Error:
            continue
    return None


@pytest.mark.core
def test_quickstart_previews_for_a_cluster_without_one(quickstart: Project) -> None:
    quickstart.config("trainer:target", "kubernetes")
    quickstart.env["KUBECONFIG"] = str(quickstart.folder / "none")
    preview = quickstart.preview("--diff").out
    for text in (
        "PET_NNODES",
        "PET_MASTER_ADDR",
        "pytorch/pytorch",
        "persistentVolumeClaim",
        "STORAGE_URI",
        "TRAINER_DATASET_DIR",
        "unpack.py",
        "ReadWriteMany",
    ):
        assert text in preview, text
    assert re.search(r"completions *: 2", preview) and "import torch.distributed as dist" in preview
    up = quickstart.up(ok=False)
    assert "set KUBECONFIG to an existing file" in up.out and "Traceback" not in up.out


RANK = """
import pulumi_trainer as trainer

once = trainer.ClusterTrainingRuntime("torch-once", ml_policy=trainer.TorchPolicy(), template=trainer.JobSetTemplate(
    replicated_jobs=[trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
        "restart_policy": "Never", "termination_grace_period_seconds": 1,
        "containers": [{"name": "node", "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"}],
    })],
))

def work():
    import os, sys, time, torch.distributed as dist
    dist.init_process_group("gloo")
    print("rank", os.environ["RANK"], "is here", flush=True)
    if os.environ["RANK"] == "1":
        HOW
    time.sleep(600)

trainer.TrainJob(
    "rank", runtime=once, wait_for="complete",
    trainer=trainer.CustomTrainer(
        func=work, num_nodes=2, packages_to_install=["torch>=2.6,<3", "numpy"], resources_per_node={"cpu": 1},
    ),
)
"""


@pytest.mark.parametrize(
    ("how", "says"),
    [("sys.exit(3)", "exit code 3"), ('raise ValueError("the data is bad")', "ValueError: the data is bad")],
)
def test_the_rank_that_failed_first_is_named(project: Project, how: str, says: str) -> None:
    project.env.update(PINNED)
    project.program(RANK.replace("HOW", how), head="")
    failed = project.up(ok=False)
    for text in ("step node", "rank 1", says, "container", "is here", "log:"):
        assert text in failed.out, f"{text!r} is not in\n{failed.out}"
