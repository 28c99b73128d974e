"""PaddlePolicy, as in the guide: nodes train together, and one that was killed goes on from the newest checkpoint."""

from __future__ import annotations

import re

import pytest

from tests.documented import blocks
from tests.engine.conftest import Project, eventually

from .test_frameworks import SECONDS
from .test_training import process_of

pytestmark = pytest.mark.timeout(3 * SECONDS)


def test_a_node_that_is_killed(project: Project) -> None:
    (code,) = (block.text for block in blocks("docs/guides/frameworks.md", __file__))
    project.program("", head=code)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, (up, project.logs("line"))
    expected = ends(project, "line")
    assert float(expected["0"]) < 0.01 and float(expected["1"]) < 0.01

    slow = code.replace('"line"', '"cut"').replace(
        "optimizer.step()", "optimizer.step(); __import__('time').sleep(0.1)"
    )
    project.program("", head=slow.replace('wait_for="complete"', 'wait_for="running"'))
    project.up()
    eventually(lambda: [*project.root.glob("volumes/*/*cut*/data/*/checkpoints/step-20.pdparams")], SECONDS)
    process_of(project, "node-0-1", "cut").kill()
    eventually(lambda: project.job("cut").terminal, SECONDS)
    status, logs = project.job("cut"), project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    starts = {
        *re.findall(r"rank (\d) of 2 starts at step (\d+)", logs)
    }  # the launcher repeats the end of a log that failed
    (step,) = {step for _, step in starts} - {"0"}
    assert starts == {("0", "0"), ("1", "0"), ("0", step), ("1", step)}
    assert ends(project, "cut") == expected


def ends(project: Project, name: str) -> dict[str, str]:
    """Rank -> its last loss."""
    return dict(re.findall(r"rank (\d) ends with loss (\S+)", project.logs(name)))
