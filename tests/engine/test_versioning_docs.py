"""docs/versioning-runtimes.md, from top to bottom: its commands say what it says they do, and its programs run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.runtimes import RuntimeCatalog

from tests.documented import blocks

from .conftest import Project

PAGE = Path(__file__).parents[2] / "docs" / "versioning-runtimes.md"
BLOCKS = [(block.kind, block.text) for block in blocks("docs/versioning-runtimes.md", __file__)]


def run(folder: Path, text: str) -> None:
    """Each command of a block prints what follows it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            command, cwd=folder, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        assert sorted(done.stdout.splitlines()) == sorted(expected.rstrip().splitlines()), command


@pytest.mark.core
def test_the_page(tmp_path: Path, pulumi_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    platform, team = (
        Project(tmp_path / name, pulumi_home, name=name, stack="prod", env={"PULUMI_BACKEND_URL": f"file://{state}"})
        for name in ("platform", "team")
    )
    for project in (platform, team):
        project.folder.mkdir()
        (project.folder / "Pulumi.yaml").write_text(f"name: {project.name}\nruntime: python\n")
        assert project.run("stack", "init").code == 0
    monkeypatch.setenv("PATH", platform.environment["PATH"])
    programs = [text for kind, text in BLOCKS if kind == "python"]
    about, withdrawal = [text for kind, text in BLOCKS if kind == "yaml"][1:]
    for kind, text in BLOCKS:
        if kind == "console":
            run(platform.folder, text)
        elif kind == "yaml" and text not in (about, withdrawal):
            newest = max((platform.folder / "runtimes" / "torch-team").glob("*.yaml"))
            newest.write_text(newest.read_text() + text)

    platform.program(programs[1], head="")
    platform.up()
    team.program(programs[2], head="")
    team.up()
    assert team.logs("sorter") == "trained\n"

    (platform.folder / "runtimes" / "about.yaml").write_text(about)
    platform.program(programs[1].replace("@1.0.0", "@1.1.0"), head="")
    assert "torch-team 1.0.0 => 1.1.0: minor for jobs" in platform.up().out
    preview = team.preview().out
    assert "stable has torch-team 1.1.0, but this job has 1.0.0 (minor: " in preview and "On its next run" in preview

    platform.program(programs[1], head="")
    warning = PAGE.read_text().rpartition("Each plan with such a job then warns: `")[2].split("`")[0]
    assert warning in platform.up().out
    assert f"runtime: {warning}" in team.preview().out

    (platform.folder / "runtimes" / "about.yaml").write_text(withdrawal)
    platform.program(programs[1].replace("@1.0.0", "@1.1.0"), head="")
    why = "torch-team@1.1.0 is withdrawn since 2026-11-20: NCCL hangs with more than 8 nodes"
    assert why in platform.up().out


def test_the_catalogues_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as they can be read here: there is no such git server."""
    found: dict[str, RuntimeCatalog] = {}
    lines = next(text for kind, text in BLOCKS if kind == "python").splitlines()
    exec("\n".join(line for line in lines if "runtime = " not in line), found)
    assert "torch-distributed" in found["installed"].names()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid, match="runtimes: is not a folder"):
        found["here"].names()
