"""The program of docs/client.md: Pulumi's Automation API with an inline program, and the client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.documented import blocks

from .conftest import Project

UP, DESTROY = (block.text for block in blocks("docs/client.md", __file__))
FULL_NAME = "organization/digits/dev"


def run(project: Project, folder: Path, *argv: str) -> str:
    done = subprocess.run(
        argv, cwd=folder, env=project.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page(project: Project, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "notebook", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
    (tmp_path / "Pulumi.yaml").unlink()
    program = folder / "program.py"
    program.write_text(UP)
    out = run(project, folder, sys.executable, str(program))
    assert "Succeeded\nnode 1 of 2\n" in out
    (job,) = json.loads(run(project, elsewhere, "pulumi-trainer", "status", "-s", FULL_NAME, "-o", "json"))
    assert (job["resource"], job["phase"], job["program"]) == ("digits", "Succeeded", "digits/dev")
    read = f"from pulumi_trainer import client; print(*client.connect(stack={FULL_NAME!r}).logs('digits'))"
    assert run(project, elsewhere, sys.executable, "-c", read) == "node 0 of 2\n"
    program.write_text(UP + DESTROY)
    again = run(project, folder, sys.executable, str(program))
    assert "4 unchanged" in again and "4 deleted" in again
    assert json.loads(run(project, elsewhere, "pulumi-trainer", "status", "-s", FULL_NAME, "-o", "json")) == []
