"""A stack and a job that an older version has written: other rendered bytes, another runtime."""

from __future__ import annotations

import sys
from pathlib import Path

from .conftest import Project

OLDER = Path(__file__).with_name("older")


def restored(project: Project, name: str) -> str:
    text = (OLDER / name).read_text().replace("@FOLDER@", str(project.folder))
    return text.replace("@HOST@", project.target.host).replace("@PYTHON@", sys.executable)


def test_an_older_state_previews_empty_refreshes_and_destroys(project: Project) -> None:
    project.program(restored(project, "program.txt"), head="")
    job = project.root / "jobs" / "default" / "quick-b3ff0"
    job.mkdir(parents=True)
    for name in ("record.json", "status.json"):
        (job / name).write_text(restored(project, name))
    (project.folder / "state.json").write_text(restored(project, "state.json"))
    assert project.run("stack", "import", "--file", "state.json").code == 0
    project.preview("--expect-no-changes")
    project.refresh()
    project.preview("--expect-no-changes")
    up = project.up()
    assert "unchanged" in up.out and "keeps the runtime that it was created with" in up.out
    assert project.outputs()["phase"] == "Succeeded"
    project.destroy()
    assert not project.target.jobs() and not project.resources()
