"""Several processes on a node: each line of the log names its process, and the report of a failure its rank."""

from __future__ import annotations

import re

import pytest

from tests.engine.conftest import Project

from .test_frameworks import SECONDS

pytestmark = pytest.mark.timeout(2 * SECONDS)

PROGRAM = """
def train(fails):
    import json, os
    rank = os.environ["RANK"]
    print("I am rank", rank, flush=True)
    if rank == "0":
        print(json.dumps({{"trainerStatus": {{"progressPercentage": 50}}}}), flush=True)
    if rank == fails:
        raise ValueError("no data")

job = trainer.TrainJob("ranks", runtime="torch-distributed", name="ranks", wait_for="complete",
    trainer=trainer.CustomTrainer(func=train, func_args={{"fails": "{fails}"}}, num_nodes=2, num_proc_per_node=2,
        packages_to_install=["torch>=2.6,<3", "numpy"]))
pulumi.export("percent", job.progress["progressPercentage"])
"""


def test_lines_name_their_process(project: Project) -> None:
    project.program(PROGRAM.format(fails=""), head="import pulumi\nimport pulumi_trainer as trainer\n")
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, up
    found = re.findall(r"^\[default(\d)\]:I am rank (\d)$", project.logs("ranks"), re.MULTILINE)
    assert sorted(found) == [("0", "0"), ("0", "2"), ("1", "1"), ("1", "3")]
    assert project.outputs()["percent"] == 50

    project.program(PROGRAM.format(fails="3"), head="import pulumi\nimport pulumi_trainer as trainer\n")
    failed = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert failed.code != 0 and "rank 3" in failed.out and "ValueError: no data" in failed.out, failed
    assert re.search(r"^ *Traceback \(most recent call last\):$", failed.out, re.MULTILINE), "apart from the last lines"
