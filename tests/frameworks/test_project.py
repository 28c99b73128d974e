"""A repository of several packages trains unchanged on two nodes, with its real requirements."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.engine.conftest import Project

from .conftest import EXAMPLES
from .test_frameworks import SECONDS

pytestmark = pytest.mark.timeout(2 * SECONDS)


def test_a_repository_trains_and_its_edit_is_another_run(project: Project) -> None:
    shutil.copytree(EXAMPLES.parent / "project", project.folder, dirs_exist_ok=True)
    project.name, project.stack = "project", "local"
    assert project.run("stack", "init").code == 0
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('nano')}"
    logs = project.logs("nano")
    assert dict(re.findall(r"rank (\d) of 2 in project: lr (\S+)", logs)) == {"0": "0.003", "1": "0.003"}, logs
    parameters = dict(re.findall(r"rank (\d): parameters (\S+)", logs))
    assert parameters.keys() == {"0", "1"} and parameters["0"] == parameters["1"], logs
    assert project.outputs()["phase"] == "Succeeded" and float(project.outputs()["loss"]) < 5
    assert "unchanged" in project.up().out

    settings = project.folder / "nano/config/small.py"
    settings.write_text(settings.read_text().replace("3e-3", "1e-3"))
    previewed = project.preview().out
    assert "config/small.py changed" in previewed and "+learning_rate = 1e-3" in previewed, previewed
    project.up()
    assert dict(re.findall(r"rank (\d) of 2 in project: lr (\S+)", project.logs("nano"))) == {
        "0": "0.001",
        "1": "0.001",
    }
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "runs", "nano", "-s", project.stack, "-o", "json"]
    done = subprocess.run(argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=True)
    first, second = json.loads(done.stdout)
    assert {name for name, text in first["inputs"].items() if second["inputs"][name] != text} == {"code"}
