"""Two jobs of this machine whose containers declare the same port, through the real engine."""

from __future__ import annotations

import pytest

from .conftest import Project

TWO_JOBS = """
import pulumi_trainer as trainer

SCRIPT = '''
import os, sys, time
from pathlib import Path

here = Path(os.environ["MEETING"])
(here / os.environ["WHO"]).touch()
while len(list(here.iterdir())) < 2:  # both hold their ports
    time.sleep(0.1)
names = ["MAX_STEPS", "LRS", "IMAGE", "DMLC_TRACKER_PORT", "HOME_PAGE", "ELSEWHERE"]
print(*(os.environ[name] for name in names), *sys.argv[1:])
'''

runtime = trainer.ClusterTrainingRuntime(
    "boost",
    ml_policy=trainer.XGBoostPolicy(num_nodes=1),
    template=trainer.JobSetTemplate(replicated_jobs=[
        trainer.ReplicatedJob(name="node", ancestor="trainer", backoff_limit=0, pod_spec={
            "restart_policy": "Never", "containers": [{"name": "node", "image": "python:3.12"}],
        }),
    ]),
)
for name in ("one", "other"):
    trainer.TrainJob(name, runtime=runtime, wait_for="complete", trainer=trainer.CustomTrainer(
        command=["python3", "-c", SCRIPT],
        args=["--max-steps=29500", "--max-steps", "29500", "lr:29500", "--master-port=29500", "--port", "29500"],
        env={
            "WHO": name, "MEETING": MEETING, "MAX_STEPS": "29500", "LRS": "0:0.1,epoch:29500", "IMAGE": "registry:29500/x",
            "HOME_PAGE": "http://localhost:29500", "ELSEWHERE": "http://example.com:29500",
        },
    ))
"""


@pytest.mark.core
def test_a_port_that_is_taken_changes_no_other_number(project: Project) -> None:
    meeting = project.folder / "meeting"
    meeting.mkdir()
    project.program(f"MEETING = {str(meeting)!r}\n{TWO_JOBS}", head="")
    project.up()
    ports = []
    for name in ("one", "other"):
        steps, lrs, image, port, page, elsewhere, *argv = project.logs(name).split()
        assert (steps, lrs, image) == ("29500", "0:0.1,epoch:29500", "registry:29500/x")
        assert (page, elsewhere) == (f"http://localhost:{port}", "http://example.com:29500")
        assert argv == [
            "--max-steps=29500", "--max-steps", "29500", "lr:29500", f"--master-port={port}", "--port", port,
        ]  # fmt: skip
        ports.append(port)
    assert ports[0] != ports[1]
