"""Fine-tuning with the tools' real packages and the real Pulumi CLI. The first run downloads a few gigabytes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.provider.pod import layer

from tests.engine.conftest import Project, project, pulumi_home

from .methods import HEAD

__all__ = ["project", "pulumi_home"]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 1200
"""Time for the first `up`, which may have to download packages."""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model, and data."""
    folder = tmp_path_factory.mktemp("tiny")
    made = runpy.run_path(str(ROOT / "examples" / "fine-tuning" / "tiny_model.py"))
    for name, seed in (("model", 0), ("teacher", 1)):
        (folder / name).mkdir()
        made["write_model"](folder / name, seed)
    made["write_data"](folder / "data")
    return folder


@pytest.fixture
def train(project: Project, tiny: Path) -> Callable[..., Project]:
    """Run the jobs of a program until they are complete."""

    def trained(*jobs: str) -> Project:
        project.program("\n".join(["", *jobs]) + "\n", head=HEAD.format(files=str(tiny)))
        up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
        assert up.code == 0, f"{up}\n" + "".join(
            project.logs(job.name)[-3000:] for job in project.target.jobs.list_all()
        )
        return project

    return trained


def run_with(tool: str, program: str, *arguments: str) -> str:
    """Return what a program prints in the environment that the jobs of a tool have on this machine."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    argv = [sys.executable, layer.__file__, *table(tool)["packages"]]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
    env |= json.loads(done.stdout)
    argv = [sys.executable, "-c", program, *arguments]
    return subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
