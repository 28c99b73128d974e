"""The README and the home page of the docs: their programs, and the picture of the README.

The programs of two teams in docs/training-jobs.md, on this machine, where queues are checked and not made.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.documented import Block, blocks

from .conftest import PINNED, Project

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "examples" / "platform-and-teams" / "platform" / "runtimes"
SHOWN = (
    "def train(steps: int)",
    "pulumi preview",
    "JobSet/linear",
    "PET_NNODES",
    "Succeeded",
    "rank 1 of 2",
    "PET_MASTER_ADDR",
)
"""What the picture of the README has to show."""


def programs(found: list[Block]) -> list[str]:
    return [block.text for block in found if block.kind == "python"]


def train(project: Project, found: list[Block], job: str) -> str:
    """Run the only program of a page's blocks, and return the log of its job."""
    (text,) = programs(found)
    project.env.update(PINNED)
    project.program(text, head="")
    project.up()
    assert project.outputs() == {"phase": "Succeeded"}
    return project.logs(job)


def test_the_program_of_the_readme_trains_on_two_nodes(project: Project) -> None:
    losses = re.findall(r"rank (\d) of 2: loss (\S+)", train(project, blocks("README.md", __file__), "linear"))
    assert dict(losses).keys() == {"0", "1"} and all(float(loss) < 0.01 for _, loss in losses), losses


def test_the_program_of_the_home_page_trains_on_two_nodes(project: Project) -> None:
    ranks = re.findall(r"rank (\d) of 2, 3 epochs", train(project, blocks("docs/index.md", __file__), "classifier"))
    assert sorted(ranks) == ["0", "1"]


def test_the_wheel_has_the_version_of_the_package() -> None:
    named = set(re.findall(r"pulumi_trainer-(\S+?)-py3-none-any.whl", (ROOT / "README.md").read_text()))
    assert named == {version("pulumi-trainer")}


def test_the_picture_is_small_and_shows_its_run() -> None:
    picture = ROOT / "docs" / "flow.svg"
    assert "docs/flow.svg" in (ROOT / "README.md").read_text()
    assert picture.stat().st_size < 60_000
    text = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\N{NO-BREAK SPACE}", " ")
    for part in SHOWN:
        assert part in text, part


@pytest.mark.core
def test_two_teams_two_stacks(tmp_path: Path, pulumi_home: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    platform, team = (
        Project(tmp_path / name, pulumi_home, name=name, stack="prod", env={"PULUMI_BACKEND_URL": f"file://{state}"})
        for name in ("platform", "team")
    )
    for project, text in zip((platform, team), programs(blocks("docs/training-jobs.md", __file__)), strict=True):
        project.folder.mkdir()
        (project.folder / "Pulumi.yaml").write_text(f"name: {project.name}\nruntime: python\n")
        assert project.run("stack", "init").code == 0
        project.program(text, head="")
    shutil.copytree(CATALOGUE, platform.folder / "runtimes")
    (team.folder / "train.py").write_text("def train():\n    print('trained')\n")

    platform.config("trainer:target", "local")
    told = platform.up().out
    assert re.search(r'queue-nlp *: "nlp"', told) and "torch-team" in told, told
    outputs = told.partition("Outputs:\n")[2].partition("\n\n")[0].splitlines()
    assert len(outputs) < 10 and max(map(len, outputs)) < 220, "what `up` prints each time is short"
    team.config("trainer:target", "kubernetes")
    team.config("trainer:kubeconfig", str(tmp_path / "none"))
    preview = team.preview("--diff").out
    for line in (
        r"kueue.x-k8s.io/queue-name *: \"nlp\"",
        r"nvidia.com/gpu *: \"?8",
        r"parallelism *: 4",
        r"NCCL|PET_NNODES",
    ):
        assert re.search(line, preview), (line, preview)
