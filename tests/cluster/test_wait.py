"""Waiting in `pulumi up` on a real cluster, as a user with the least role: lines, the end, timeouts that say why."""

from __future__ import annotations

import json
import subprocess

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP

from .jobs import left, until
from .test_up import PLAIN, Lab, head, lab, program, pulumi_home  # noqa: F401 (fixtures)

pytestmark = pytest.mark.usefixtures("cluster")


def test_up_waits_for_the_end_and_shows_each_phase_once(lab: Lab) -> None:  # noqa: F811
    lab.program(program('), wait_for="complete",'), head("run: 2s, start: 1s"))
    told = lab.up().out
    lines = [line.strip() for line in told.splitlines()]
    begun = [line for line in lines if "waiting for" in line and "to be complete" in line]
    running = [line for line in lines if line.endswith(": Running")]
    assert len(begun) == len(running) > 0, told  # the engine shows each line as it comes, and all of them at the end
    assert "Succeeded" in told.partition("Outputs:")[2]


@pytest.mark.smoke
def test_a_failure_names_pod_node_and_exit_code(lab: Lab) -> None:  # noqa: F811
    lab.program(program('), wait_for="complete",'), head("outcome: fail, exit-code: 3, run: 300ms"))
    told = lab.up(ok=False).out
    assert "Failed (FailedJobs)" in told and "exit code 3" in told and "on node gpu-" in told
    assert "Traceback" not in told


def test_a_job_that_somebody_has_deleted_is_created_again_and_waited_for(lab: Lab) -> None:  # noqa: F811
    """Somebody has deleted all of it, its record too: nothing but the stack's state knows that there was one."""
    lab.program(PLAIN, head())
    lab.up()
    (job,) = lab.jobs().values()
    name = job["metadata"]["name"]
    lab.root_client.delete(CONFIG_MAP, lab.namespace, name)
    until(lambda: left(lab.root_client, lab.namespace) == [])
    lab.program(program('), wait_for="running",'), head())
    told = lab.up().out
    assert (
        f"{lab.namespace}/{name}: its record is gone" in told and "it counts as unfinished and is created again" in told
    )
    assert "Running" in told.partition("Outputs:")[2] and "Traceback" not in told
    lab.pods(2)


def test_a_timeout_says_what_it_waited_for_and_why(lab: Lab) -> None:  # noqa: F811
    lab.program(
        program('resources_per_node={"nvidia.com/gpu": 64}), wait_for="running", timeouts={"running": 3},'), head()
    )
    told = lab.up(ok=False).out
    assert "is not running after 3s" in told
    assert "Starting (Unschedulable)" in told and "Insufficient nvidia.com/gpu" in told and "find no node" in told
    assert "Traceback" not in told
    assert set(lab.jobs()) == {"train"}  # it is left as it is


def test_the_jobs_of_a_stack_are_looked_at_by_their_names_in_the_program(lab: Lab) -> None:  # noqa: F811
    def cli(*arguments: str, code: int = 0) -> str:
        argv = ["pulumi-trainer", *arguments, "--stack", lab.stack]
        env = {**lab.environment, "COLUMNS": "200", "KUBECONFIG": "/nowhere"}
        done = subprocess.run(argv, cwd=lab.folder, env=env, text=True, capture_output=True, check=False, timeout=60)
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done.stdout + done.stderr

    lab.program(program("),"), head())
    lab.up()
    lab.pods(2)  # they exist; the nodes start them a moment later

    def running() -> str:
        (row,) = (line for line in cli("status").splitlines() if line.startswith("train"))
        return row if "Running" in row else ""

    assert "node 2/2" in until(running)
    (job,) = json.loads(cli("status", "train", "-o", "json"))
    assert job["phase"] == "Running" and job["namespace"] == lab.namespace
    assert "is Running" in cli("why", "train")
    assert cli("queues").startswith(f"namespace {lab.namespace} has no Kueue queues, and no jobs in queues\n")
    assert "train" in cli("events", "train")
    assert "nothing: no such job in the stack. Hint: available: train" in cli("why", "nothing", code=1)
