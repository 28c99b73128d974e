"""The interpreter that stands in for images: one that is missing is a problem of the plan; another one is for another run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .conftest import Project

PROGRAM = """
def work():
    import os, sys
    print("RUN BY", sys.executable)
    sys.exit(os.environ.get("BROKEN"))

config = pulumi.Config()
trainer.TrainJob("job", runtime=plain, wait_for="complete", run=config.get("run") or "1",
    target=trainer.Local(python=config.require("python")), trainer=trainer.CustomTrainer(func=work))
"""


@pytest.mark.core
def test_an_interpreter_that_is_not_there_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(PROGRAM)
    for python in ("/nope/python", "no-such-python", "./Pulumi.yaml", "/usr"):
        project.config("python", python)
        out = project.preview(ok=False).out
        shown = str(project.folder / "Pulumi.yaml") if python.startswith(".") else python
        assert f".target.python: {shown} is not a program that can be started" in out, out


def test_a_failed_job_says_in_the_plan_that_another_interpreter_is_for_another_run(project: Project) -> None:
    broken = project.folder / "broken" / "python"
    broken.parent.mkdir()
    broken.write_text(f'#!/bin/sh\nBROKEN="it is broken" exec {sys.executable} "$@"\n')
    broken.chmod(0o755)
    project.program(PROGRAM)
    project.config("python", "broken/python")
    assert "it is broken" in project.up(ok=False).out
    assert "interpreter" not in project.preview().out
    project.config("python", os.fspath(Path(sys.executable)))
    for result in (project.preview(), project.up(ok=False)):
        assert f"failed with the interpreter {broken}, but target.python is {sys.executable} now" in result.out
    project.config("run", "2")
    assert "failed with the interpreter" not in project.preview().out
    project.up()
    assert f"RUN BY {sys.executable}" in project.logs("job")
    for python in (os.fspath(broken), "/nope/python"):
        project.config("python", python)
        assert "interpreter" not in project.preview("--expect-no-changes").out, "the job has succeeded"
