"""The programs of the README, as two teams run them: on this machine, where queues are checked and not made."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .conftest import Project

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "examples" / "platform-and-teams" / "platform" / "runtimes"
PLATFORM, TEAM = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


@pytest.mark.core
def test_two_teams_two_stacks(tmp_path: Path, pulumi_home: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    platform, team = (
        Project(tmp_path / name, pulumi_home, name=name, stack="prod", env={"PULUMI_BACKEND_URL": f"file://{state}"})
        for name in ("platform", "team")
    )
    for project, text in ((platform, PLATFORM), (team, TEAM)):
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
