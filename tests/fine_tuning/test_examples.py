"""examples/fine-tuning, each run as its README says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine.conftest import Project

from .conftest import ROOT, SECONDS

EXAMPLES = ROOT / "examples" / "fine-tuning"
TOOLS = sorted(path.parent.name for path in EXAMPLES.glob("*/__main__.py"))
TRAINED = [name for name in TOOLS if name != "unsloth"]
"""Unsloth needs a GPU."""

pytestmark = pytest.mark.timeout(2 * SECONDS)


def start(project: Project, name: str, tiny: Path) -> None:
    shutil.copytree(EXAMPLES / name, project.folder, dirs_exist_ok=True)
    project.name, project.stack = name, "local"
    assert project.run("stack", "init").code == 0
    project.config("files", str(tiny))


@pytest.mark.whole
@pytest.mark.parametrize(("name", "method"), [(name, "") for name in TRAINED] + [("trl", "grpo")])
def test_it_trains(name: str, method: str, project: Project, tiny: Path) -> None:
    start(project, name, tiny)
    if method:
        project.config("method", method)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, up
    outputs = project.outputs()
    assert outputs["phase"] == "Succeeded" and outputs["progress"]["step"] == 30
    last = 20 if name == "torchtune" else 30  # torchtune saves after each epoch but the last
    assert outputs["progress"]["checkpoint"]["step"] == last
    metrics = outputs["progress"]["metrics"]
    assert float(metrics["reward"]) > 0.5 if method == "grpo" else float(metrics["loss"]) < 5.5, metrics


@pytest.mark.parametrize("name", TOOLS)
def test_it_previews_for_8_gpus_of_a_cluster(name: str, project: Project, tiny: Path) -> None:
    start(project, name, tiny)
    for key, value in {
        "trainer:target": "kubernetes",
        "model": "hf://org/model",
        "dataset": "hf://org/data",
        "gpus": "8",
    }.items():
        project.config(key, value)
    preview = project.preview("--diff").out
    for word in ("replicatedJobs", "PET_NNODES", "torchrun", "nvidia.com/gpu", "TRAINER_MODEL_DIR"):
        assert word in preview, word
