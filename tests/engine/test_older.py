"""A stack and a job that an older version has written: other rendered bytes, another runtime."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Project

OLDER = Path(__file__).with_name("older")


def restored(project: Project, folder: str, job: str) -> None:
    """The program, the state and the job's folder as an older version has left them."""

    def text(name: str) -> str:
        found = (OLDER / folder / name).read_text().replace("@FOLDER@", str(project.folder))
        return found.replace("@HOST@", project.target.host).replace("@PYTHON@", sys.executable)

    project.program(text("program.txt"), head="")
    home = project.root / "jobs" / "default" / job
    home.mkdir(parents=True)
    for name in ("record.json", "status.json"):
        (home / name).write_text(text(name))
    (project.folder / "state.json").write_text(text("state.json"))
    assert project.run("stack", "import", "--file", "state.json").code == 0


@pytest.mark.core
def test_an_older_state_previews_empty_refreshes_and_destroys(project: Project) -> None:
    restored(project, "plain", "quick-b3ff0")
    project.preview("--expect-no-changes")
    project.refresh()
    project.preview("--expect-no-changes")
    up = project.up()
    assert "unchanged" in up.out and "keeps the runtime that it was created with" in up.out
    assert project.outputs()["phase"] == "Succeeded"
    project.destroy()
    assert not project.target.jobs() and not project.resources()


def test_a_job_with_a_secret_is_known_by_the_digest_that_it_had(project: Project) -> None:
    """The name of its Secret counted as what the user wrote."""
    restored(project, "secret", "secret-b3ff0")
    project.preview("--expect-no-changes")
    uid = project.job("secret").uid
    assert "unchanged" in project.up().out
    assert project.job("secret").uid == uid
