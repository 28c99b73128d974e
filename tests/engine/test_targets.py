"""Targets of a stack: which one a job has, what its sweep leaves alone, and jobs that move to another stack."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from .conftest import Project

SLEEP = 'runtime=plain, trainer=trainer.Trainer(command=["sleep", "300"]), wait_for="running"'


def interpreter(project: Project, name: str) -> str:
    """A Python of that name."""
    path = project.folder / name
    if not path.exists():
        path.symlink_to(sys.executable)
    return str(path)


def sleeps(project: Project, name: str, python: str, more: str = "") -> str:
    at = f"target=trainer.Local(python={interpreter(project, python)!r})"
    return f'trainer.TrainJob("{name}", {SLEEP}, {at}, {more})\n'


def named(project: Project, name: str) -> dict[str, Any]:
    (found,) = [r for r in project.resources() if r["urn"].endswith(f"::{name}")]
    return found


def targets(project: Project) -> list[str]:
    return sorted(r["urn"].rpartition("::")[2] for r in project.resources("Target"))


def labels(project: Project, name: str) -> set[str]:
    """The label of a job in the inputs, in the outputs and in its record."""
    job = named(project, name)
    place = project.root / "jobs" / job["outputs"]["namespace"] / job["outputs"]["name"]
    record = json.loads((place / "record.json").read_text())
    return {job["inputs"]["target"]["sweep"], job["outputs"]["target"]["sweep"], record["stack"]}


def test_a_job_that_is_changed_stays_with_its_target_when_others_leave(project: Project) -> None:
    last = "d"
    project.program("".join(sleeps(project, name, f"python-{name}") for name in "abcd"))
    project.up()
    uid, label = named(project, last)["outputs"]["uid"], labels(project, last)
    project.program(sleeps(project, last, f"python-{last}", 'labels={"v": "2"}'))
    project.up()
    assert targets(project) == ["local-4"]
    assert labels(project, last) == label
    assert (job := project.job("d-")) and (job.uid, job.phase) == (uid, "Running")
    project.preview("--expect-no-changes")
    project.destroy()
    assert not project.target.jobs.list_all()


@pytest.mark.core
def test_a_job_that_goes_to_another_target_survives_the_end_of_its_own(project: Project) -> None:
    project.program(sleeps(project, "a", "one") + sleeps(project, "b", "two"))
    project.up()
    uid, label = named(project, "b")["outputs"]["uid"], labels(project, "b")
    project.program(sleeps(project, "a", "one") + sleeps(project, "b", "one", 'labels={"v": "2"}'))
    project.up()
    assert targets(project) == ["local"] and labels(project, "b") == label
    assert (job := project.job("b-")) and (job.uid, job.phase) == (uid, "Running")
    project.preview("--expect-no-changes")
    again = 'labels={"v": "2"}, run="2", interrupt="allow"'
    project.program(sleeps(project, "a", "one") + sleeps(project, "b", "one", again))
    project.preview()
    project.up()
    assert (job := project.job("b-")) and job.uid != uid and job.phase == "Running"
    assert labels(project, "b") == labels(project, "a")
    project.destroy()
    assert not project.target.jobs.list_all()


MOVES = f"""
import os
if pulumi.get_stack() == os.environ["HAS_KEEP"]:
    trainer.TrainJob("keep", name="keep", output=True, {SLEEP})
trainer.TrainJob("go", {SLEEP})
"""


def test_a_job_that_moved_to_another_stack_does_not_go_with_the_old_one(project: Project) -> None:
    first, project.env["HAS_KEEP"] = project.stack, project.stack
    project.program(MOVES)
    project.up()
    before = named(project, "keep")
    urn = before["parent"]
    project.stack = "second"
    assert project.run("stack", "init").code == 0
    project.up()
    argv = ["pulumi", "state", "move", "--yes", "--source", f"organization/lab/{first}"]
    argv += ["--dest", "organization/lab/second", urn]
    subprocess.run(argv, cwd=project.folder, env=project.environment, check=True, capture_output=True)
    project.env["HAS_KEEP"] = "second"
    assert "~" in project.preview().out
    project.up()
    (label,) = labels(project, "keep")
    assert label == project.resources("Target")[0]["id"]
    project.preview("--expect-no-changes")
    volumes = list(project.root.glob("volumes/*/*/data"))
    project.stack = first
    assert "keep" not in project.destroy().out
    assert (job := project.job("keep")) and (job.uid, job.phase) == (before["outputs"]["uid"], "Running")
    assert list(project.root.glob("volumes/*/*/data")) == volumes
    project.stack = "second"
    project.preview("--expect-no-changes")
    assert labels(project, "keep") == {label}
    project.destroy()
    assert not project.target.jobs.list_all() and not list(project.root.glob("volumes/*/*/data"))
