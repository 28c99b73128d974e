"""TensorFlow after a worker was killed, and its parameter servers as in the guide."""

from __future__ import annotations

import re

import pytest

from tests.documented import blocks
from tests.engine.conftest import Project, eventually

from .conftest import EXAMPLES
from .test_frameworks import SECONDS
from .test_training import process_of, wait_for

pytestmark = pytest.mark.timeout(3 * SECONDS)


def program() -> str:
    (code,) = (block.text for block in blocks("docs/guides/frameworks.md", __file__))
    return code


def has_trained(project: Project, restarts: int) -> str:
    """The log of a job that has succeeded."""
    status, logs = project.job("digits"), project.logs("digits")
    assert (status.phase, status.restarts) == ("Succeeded", restarts), (status, logs)
    assert float(status.progress["metrics"]["accuracy"]) > 0.95, logs
    return logs


def test_roles_train_together_and_end_with_the_chief(project: Project) -> None:
    project.program("", head=program())
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, (up, project.logs("digits"))
    logs = has_trained(project, 0)
    assert float(project.outputs()["accuracy"]) > 0.95
    assert logs.count("starts\n") == 1 and "has trained 10 epochs" in logs
    assert "unchanged" in project.up().out


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_worker_that_is_killed(project: Project, checkpoint: bool) -> None:
    """With a checkpoint policy all roles start again with the epoch that was not complete; else the worker alone does."""
    code = program().replace('wait_for="complete"', 'wait_for="running"').partition("pulumi.export")[0]
    code = code.replace('"epochs": 10', '"epochs": 40')
    if not checkpoint:
        code = code.replace("checkpoint=trainer.CheckpointPolicy()", "output=True").replace(
            "CHECKPOINT_DIR", "OUTPUT_DIR"
        )
    project.program("", head=code)
    project.up()
    wait_for(project, "digits", "Epoch 3/40")
    process_of(project, "node-0-1", "digits").kill()
    eventually(lambda: project.job("digits").terminal, SECONDS)
    logs = has_trained(project, int(checkpoint))
    assert logs.count("starts\n") == 1 + checkpoint
    assert logs.count("Epoch 1/40") == 1, "what was complete is not done again"


def test_workers_go_on_with_the_epoch_that_was_not_complete(project: Project) -> None:
    """Of MultiWorkerMirroredStrategy: they end with the parameters of workers that nobody has killed."""
    whole = (EXAMPLES / "tensorflow/__main__.py").read_text().replace('"epochs": 20', '"epochs": 60')
    cut = whole.partition("pulumi.export")[0].replace('    "tensorflow",\n    runtime', '    "cut",\n    runtime')
    cut = cut.replace('wait_for="complete"', 'wait_for="running"')
    project.program("", head=cut)
    project.up()
    eventually(lambda: [*project.root.glob("volumes/*/*cut*/data/*/checkpoints/chief/*.index")], SECONDS)
    process_of(project, "node-0-1", "cut").kill()
    eventually(lambda: project.job("cut").terminal, SECONDS)
    status, logs = project.job("cut"), project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    found = {*re.findall(r"rank \d: parameters (\S+)", logs)}
    assert len(found) == 1, logs

    project.program("", head=whole)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, (up, project.logs("tensorflow"))
    assert {*re.findall(r"rank \d: parameters (\S+)", project.logs("tensorflow"))} == found
