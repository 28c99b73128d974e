"""`usage` of a stack whose jobs run on this machine: real runs, real records."""

from __future__ import annotations

import csv
import getpass
import io
import json
import re

import pytest

from .conftest import Project, eventually
from .test_runs import cli

PROGRAM = """
def train(seconds):
    import time
    time.sleep(seconds)

trainer.TrainJob("digits", runtime=plain, name="digits", wait_for="complete",
    trainer=trainer.CustomTrainer(func=train, func_args={{"seconds": {seconds}}}, resources_per_node={{"cpu": 2}}))
trainer.TrainJob("asks-nothing", runtime=plain, name="asks-nothing", trainer=trainer.CustomTrainer(command=["true"]))
"""


def test_runs_of_a_job_are_summed_up(project: Project) -> None:
    project.program(PROGRAM.format(seconds=1))
    project.up()
    eventually(lambda: project.job("asks-nothing").terminal)
    (once,) = json.loads(cli(project, "usage", "--by", "user", "-o", "json"))["rows"]
    assert once["user"] == getpass.getuser()
    assert (once["jobs"], once["running"], once["gpus"], once["incomplete"]) == (2, 0, 0, 0)
    assert once["cpuHours"] >= 0
    assert re.search(r"(?m)^default/asks-nothing  .* -$", cli(project, "usage", "--by", "job")), "and not 0.0"
    project.program(PROGRAM.format(seconds=2))
    project.up()
    record = json.loads((project.root / "jobs/default/digits/record.json").read_text())
    (earlier,) = record["earlier"]
    assert earlier["usage"]["cpus"] == 2
    assert 1 <= earlier["finished"] - earlier["started"] < 60
    row, other = csv.DictReader(io.StringIO(cli(project, "usage", "--by", "job", "-o", "csv")))
    assert (row["job"], other["job"], other["cpuHours"]) == ("default/digits", "default/asks-nothing", "")
    status = json.loads(cli(project, "status", "digits", "-o", "json"))[0]
    seconds = (status["finished"] - status["started"]) + (earlier["finished"] - earlier["started"])
    assert float(row["cpuHours"]) == pytest.approx(2 * seconds / 3600, abs=0.001)
    assert "no job has run since" in cli(project, "usage", "--since", "0s")
