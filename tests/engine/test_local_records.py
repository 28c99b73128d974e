"""A record that cannot be read costs itself alone, through the real engine."""

from __future__ import annotations

import re
import shutil

import pytest

from .conftest import Project
from .test_cli import cli

JOBS = """
for name in {names}:
    trainer.TrainJob(
        name, runtime=plain, wait_for="{wait_for}", output=True, trainer=trainer.Trainer(command=["true"]),
    )
"""


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("record.json", "{}", "it has no namespace, name, owner, .*tuning"),
        ("status.json", "{}", "is not the status of a job"),
    ],
)
def test_a_record_that_cannot_be_read_costs_itself_alone(project: Project, file: str, text: str, why: str) -> None:
    project.program(JOBS.format(names=["mine"], wait_for="complete"))
    project.up()
    mine = project.stack
    project.stack = "theirs"
    assert project.run("stack", "init").code == 0
    project.program(JOBS.format(names=["bad", "good"], wait_for="complete"))
    project.up()
    bad = project.job("bad")
    folder = project.root / "jobs" / bad.namespace / bad.name
    (folder / file).write_text(text)
    volume = project.root / "volumes" / bad.namespace / f"{bad.name}-output" / "volume.json"
    volume.write_text("{}")

    project.stack = mine
    project.destroy()
    project.stack = "theirs"
    shown = cli(project, "status").stdout
    assert re.search(r"good +Succeeded", shown) and re.search(rf"bad: OutcomeUnknown\n.*{file}: .*{why}", shown), shown
    assert re.search(why, cli(project, "why", "bad").stdout)
    assert re.search(why, project.job("bad").message) and project.job("good").phase == "Succeeded"
    project.program(JOBS.format(names=["bad", "good"], wait_for="created"))
    for ask in (project.preview, project.refresh, project.up):
        told = ask().out
        assert re.search(rf"{file}: .*{why}", told) and "Traceback" not in told, told
    assert not re.search(r"good.*failed", refused := project.destroy(ok=False).out), refused
    if file == "record.json":
        assert f"remove {folder} with all that is in it" in refused, refused
        shutil.rmtree(folder)
        refused = project.destroy(ok=False).out
    assert re.search(rf"{volume}: is not the record of a volume: .*or remove it: what the volume holds stays", refused)
    volume.unlink()
    project.destroy()
    assert not project.resources()
