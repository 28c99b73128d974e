"""Records that cannot be read, and jobs whose supervisor never came so far as to write one; through the real engine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

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
        (
            "record.json",
            '{"identity": {"id": "t4kz2f", "parent": "t4kz1g"}}',
            "identity.parent is 't4kz1g', not the id of a run that the record has",
        ),
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
    edited = json.loads(text)
    if edited:
        edited = {**json.loads((folder / file).read_text()), **edited}
    (folder / file).write_text(json.dumps(edited))
    volume = project.root / "volumes" / bad.namespace / f"{bad.name}-output" / "volume.json"
    volume.write_text("{}")

    project.stack = mine
    project.destroy()
    project.stack = "theirs"
    shown = cli(project, "status").stdout
    assert re.search(r"good +\w+ +Succeeded", shown) and re.search(rf"bad: OutcomeUnknown\n.*{file}: .*{why}", shown), (
        shown
    )
    assert re.search(r"(?m)^bad +Unknown\b", shown), "nobody has deleted it"
    assert re.search(why, cli(project, "why", "bad").stdout)
    assert re.search(why, project.job("bad").message) and project.job("good").phase == "Succeeded"
    if file == "record.json":
        listed = cli(project, "runs", "bad")
        assert listed.returncode == 1 and re.search(why, listed.stderr) and "Traceback" not in listed.stderr, listed
    listed = cli(project, "outputs")
    assert "good" in listed.stdout and re.search(rf"note: .*{file}: .*{why}", listed.stderr), listed
    if file == "record.json":
        settled = cli(project, "doctor").stdout
        assert re.search(rf"cannot be read: .*{why}", settled) and "another program" not in settled, settled
    project.program(JOBS.format(names=["bad", "good"], wait_for="created"))
    for ask in (project.preview, project.refresh, project.up):
        told = ask().out
        assert re.search(rf"{file}: .*{why}", told) and "Traceback" not in told, told
    assert not re.search(r"good.*failed", refused := project.destroy(ok=False).out), refused
    if file == "record.json":
        assert f"remove {folder} with all that is in it" in refused, refused
        shutil.rmtree(folder)
        refused = project.destroy(ok=False).out
    assert re.search(
        rf"{volume}: is not a valid record of a volume: .*or remove it: what the volume holds stays", refused
    )
    volume.unlink()
    project.destroy()
    assert not project.resources()


DIES = """
import os, sys
if any(word.endswith("local.supervisor") for word in sys.orig_argv) and os.path.exists({file!r}):
    os.kill(os.getpid(), 9)
"""
WORK = """
trainer.TrainJob(
    "work", runtime=plain, wait_for="{wait_for}", suspend={suspend}, run="{run}",
    trainer=trainer.Trainer(command=["sh", "-c", "echo trained"]),
)
"""


@pytest.fixture
def deadly(project: Project) -> Path:
    """While this file exists, each supervisor is killed before it has written anything."""
    file = project.folder / "site" / "deadly"
    file.parent.mkdir()
    (file.parent / "sitecustomize.py").write_text(DIES.format(file=str(file)))
    project.env["PYTHONPATH"] = str(file.parent)
    return file


def work(project: Project, wait_for: str = "created", suspend: bool = False, run: str = "") -> None:
    project.program(WORK.format(wait_for=wait_for, suspend=suspend, run=run))


def test_a_job_whose_supervisor_was_killed_at_once_is_started_by_the_next_up(project: Project, deadly: Path) -> None:
    deadly.touch()
    for suspend in (False, True, False):  # created, replaced by nothing, resumed
        work(project, suspend=suspend)
        project.up()
    status = project.job("work")
    assert (status.phase, status.reason) == ("Pending", "NotStarted")
    shown = project.preview().out
    assert re.search(r"~ .*JobSet.*update", shown) and "; this update starts it" in shown, shown
    work(project, "complete")
    failed = project.up(ok=False).out  # its supervisor is killed again
    assert re.search(r"Pending \(NotStarted\)\n.*`pulumi up` starts it", failed), failed
    deadly.unlink()
    project.refresh()
    project.up()
    assert project.job("work").phase == "Succeeded" and project.logs("work") == "trained\n"
    assert "unchanged" in project.preview("--expect-no-changes").out


def test_a_new_run_does_not_wait_for_one_that_was_not_started(project: Project, deadly: Path) -> None:
    deadly.touch()
    work(project)
    project.up()
    deadly.unlink()
    work(project, "complete", run="2")
    project.up()
    assert project.logs("work") == "trained\n"


def test_a_finished_job_is_not_run_again_because_its_status_was_removed(project: Project) -> None:
    work(project, "complete")
    project.up()
    status = project.job("work")
    folder = project.root / "jobs" / status.namespace / status.name
    (folder / "status.json").unlink()
    assert "status.json: is gone" in cli(project, "why", "work").stdout
    assert "status.json: is gone" in project.refresh().out
    assert "status.json: is gone" in project.up(ok=False).out
    assert project.logs("work") == "trained\n"
