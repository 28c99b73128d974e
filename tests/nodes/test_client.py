"""`pulumi_trainer.client` on the jobs of a namespace, as in a notebook that has no Pulumi project."""

from __future__ import annotations

import pytest
from pulumi_trainer import client

from .conftest import PATIENCE, Lab

COUNTS = """
import os, time
print("rank", os.environ["JOB_COMPLETION_INDEX"], flush=True)
time.sleep(1)
"""


@pytest.fixture
def jobs(lab: Lab) -> client.Jobs:
    return client.connect(namespace=lab.namespace, kubeconfig=str(lab.kubeconfig))


def test_a_job_is_waited_for_and_read(lab: Lab, jobs: client.Jobs) -> None:
    assert jobs.jobs() == []
    lab.run("counts", COUNTS, pods=2)
    with pytest.raises(TimeoutError, match=f"{lab.namespace}/counts is .*and not finished after 0 s"):
        jobs.wait("counts", timeout=0)
    done = jobs.wait("counts", timeout=PATIENCE)
    assert done.phase == "Succeeded" and done.terminal and done.namespace == lab.namespace
    assert [job.name for job in jobs.jobs()] == ["counts"]
    assert [*jobs.logs("counts", rank=1)] == ["rank 1"]
    assert sorted(jobs.logs("counts", rank=None)) == ["rank 0", "rank 1"]
    with pytest.raises(client.TrainerError, match="rank"):
        [*jobs.logs("counts", rank=2)]
    with pytest.raises(client.TrainerError, match="other"):
        jobs.status("other")


def test_a_job_is_suspended_resumed_and_stopped(lab: Lab, jobs: client.Jobs) -> None:
    lab.run("sleeps", "import time; time.sleep(600)")
    jobs.wait("sleeps", until="running", timeout=PATIENCE)
    jobs.suspend("sleeps")
    lab.until("sleeps", lambda status: status.phase == "Suspended")
    assert "Suspended" in jobs.why("sleeps")
    jobs.resume("sleeps")
    jobs.wait("sleeps", until="running", timeout=PATIENCE)
    jobs.stop("sleeps")
    assert jobs.status("sleeps").phase == "Failed"
    with pytest.raises(client.JobFailed, match="stopped"):
        jobs.wait("sleeps", timeout=PATIENCE)
    with pytest.raises(client.TrainerError, match="stack"):
        jobs.rerun("sleeps")


def test_a_failure_has_its_reason(lab: Lab, jobs: client.Jobs) -> None:
    lab.run("fails", "raise SystemExit(7)")
    with pytest.raises(client.JobFailed, match="exit code 7"):
        jobs.wait("fails", timeout=PATIENCE)
