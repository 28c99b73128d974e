"""`doctor` with real stacks on this machine: lost states, second backends, and folders that somebody has removed."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from .conftest import Project
from .test_cli import cli

PROGRAM = """
trainer.TrainJob("a0", name="a0", runtime=plain, wait_for="complete", output=True,
    trainer=trainer.Trainer(command=["true"]))
"""


def findings(project: Project) -> list[dict[str, Any]]:
    done = cli(project, "doctor", "-o", "json", "--stack", project.stack)
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == bool(found), done.stderr
    return list(found)


def test_a_stack_that_agrees_with_this_machine(project: Project) -> None:
    assert findings(project) == []
    project.program(PROGRAM)
    project.up()
    assert findings(project) == []
    done = cli(project, "doctor", "--stack", project.stack)
    assert done.stdout == "All 2 objects in the state of lab/test exist and belong to it.\n"
    shutil.rmtree(project.root / "jobs/default/a0")
    (gone,) = findings(project)
    assert (gone["code"], gone["kind"], gone["resource"]) == ("gone", "Job", "a0")
    assert [each["command"] for each in gone["settle"]] == ["pulumi-trainer rerun a0"]
    project.refresh()
    assert findings(project) == [gone], "it is not known whether it had ended"
    assert cli(project, "rerun", "a0", "--stack", project.stack).returncode == 0
    assert findings(project) == []


@pytest.mark.core
def test_what_a_lost_state_has_left(project: Project) -> None:
    """A restored backup from before the first `up`: the labels of what exists are in no state."""
    plain = 'trainer.TrainJob("b0", name="b0", runtime=plain, {more} trainer=trainer.Trainer(command=["true"]))'
    project.program(PROGRAM + plain.format(more=""))
    backup = project.export()
    project.up()
    file = project.folder / "backup.json"
    file.write_text(json.dumps(backup))
    assert project.run("stack", "import", "--force", "--file", str(file)).code == 0
    left = {("namesake", "Job", "a0"), ("namesake", "Job", "b0")}
    assert {(each["code"], each["kind"], each["name"]) for each in findings(project)} == left
    shown = cli(project, "doctor", "--stack", project.stack).stdout
    assert f"rm -r {project.root / 'jobs/default/a0'}" in shown and "adopt=True" in shown
    project.program(plain.format(more="adopt=True,"))
    project.up()
    left = {("namesake", "Job", "a0"), ("namesake", "Volume", "a0-output")}
    found = findings(project)
    assert {(each["code"], each["kind"], each["name"]) for each in found} == left
    shutil.rmtree(project.root / "jobs/default/a0")
    command = next(each["settle"][0]["command"] for each in found if each["kind"] == "Volume")
    assert command == f"rm -r {project.root / 'volumes/default/a0-output'}"
    shutil.rmtree(project.root / "volumes/default/a0-output")
    assert findings(project) == []


def test_a_renamed_stack_keeps_what_it_has(project: Project) -> None:
    project.program(PROGRAM)
    project.up()
    assert project.run("stack", "rename", "organization/lab/renamed").code == 0
    project.stack = "renamed"
    assert findings(project) == []
