"""A checkpoint policy on this machine: an interruption costs at most the steps since the last checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from .conftest import Project, eventually

JOB = """
def train(steps):
    import json, os, signal, sys, time
    folder, name = os.environ["TRAINER_CHECKPOINT_DIR"], os.environ["JOB_COMPLETION_INDEX"]
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    start, total = 0, 0
    if found := os.environ.get("TRAINER_RESUME_FROM"):
        saved = json.load(open(found + "/state.json"))
        start, total = saved["step"], saved["total"]
    print(f"node {name} starts at step {start}", flush=True)
    for step in range(start + 1, steps + 1):
        total = (total * 31 + step) % 1_000_003
        time.sleep(0.05)
        if name == "0" and (step % 10 == 0 or stopped):
            made = f"{folder}/step-{step:06}"
            os.makedirs(made + ".tmp", exist_ok=True)
            json.dump({"step": step, "total": total}, open(made + ".tmp/state.json", "w"))
            size = os.path.getsize(made + ".tmp/state.json")
            json.dump({"files": {"state.json": size}}, open(made + ".tmp/.complete", "w"))
            os.rename(made + ".tmp", made)
            print(f"node 0 has saved step {step}", flush=True)
        if stopped:
            print(f"node {name} stops at step {step}", flush=True)
            return
    print(f"node {name} total {total}", flush=True)

job = trainer.TrainJob(
    "long",
    runtime=plain,
    trainer=trainer.CustomTrainer(func=train, func_args={"steps": 120}, num_nodes=2),
    checkpoint=trainer.CheckpointPolicy(every="10s", grace=20),
    wait_for="running",
)
pulumi.export("phase", job.phase)
"""


def total(steps: int) -> int:
    found = 0
    for step in range(1, steps + 1):
        found = (found * 31 + step) % 1_000_003
    return found


def run_cli(project: Project, *args: str) -> None:
    argv = ["pulumi-trainer", *args, "-s", project.stack]
    subprocess.run(argv, cwd=project.folder, env=project.environment, check=True, capture_output=True, text=True)


def checkpoints(project: Project) -> list[Path]:
    return sorted(project.root.glob("volumes/*/*/data/*/checkpoints/step-*[0-9]"))


def bootstrap_of(project: Project, node: int, job: str = "") -> psutil.Process:
    marks = [(p, p.environ().get("PULUMI_TRAINER_JOB", "")) for p in project.processes("bootstrap.py")]
    found = [p for p, mark in marks if f"-node-0-{node}" in mark and job in mark]
    return min(found, key=lambda p: p.pid)


@pytest.mark.core
def test_what_ends_a_node_from_outside_restarts_the_job_without_a_restart_that_counts(project: Project) -> None:
    project.program(JOB)
    preview = project.preview("--diff").out
    for line in ("terminationGracePeriodSeconds", "RestartJobSetAndIgnoreMaxRestarts", "TRAINER_CHECKPOINT_DIR"):
        assert line in preview
    project.up()
    eventually(lambda: checkpoints(project), what="a first checkpoint")
    os.kill(bootstrap_of(project, 0).pid, signal.SIGTERM)
    status = eventually(lambda: s if (s := project.job("long")) and s.terminal else None)
    assert (status.phase, status.restarts) == ("Succeeded", 1), status
    log = project.logs("long")
    assert f"node 0 total {total(120)}" in log
    stopped = int(log.partition("node 0 stops at step ")[2].split()[0])
    assert f"node 0 starts at step {stopped}\n" in log, "no step is done twice"
    assert len(checkpoints(project)) == 12 + (stopped % 10 != 0)
    assert not list(checkpoints(project)[0].parent.glob(".trainer-*"))


def test_a_suspended_job_goes_on_from_its_checkpoint(project: Project) -> None:
    project.program(JOB)
    project.up()
    eventually(lambda: checkpoints(project), what="a first checkpoint")
    run_cli(project, "suspend", "long")
    status = eventually(lambda: s if (s := project.job("long")).phase == "Suspended" else None)
    run_cli(project, "resume", "long")
    status = eventually(lambda: s if (s := project.job("long")) and s.terminal else None)
    assert (status.phase, status.restarts) == ("Succeeded", 0), status
    stopped = int(project.logs("long").partition("node 0 stops at step ")[2].split()[0])
    assert f"node 0 starts at step {stopped}\n" in project.logs("long")


def test_an_error_of_the_program_uses_a_restart(project: Project) -> None:
    failing = JOB.replace(
        '    print(f"node {name} starts', '    if not found: sys.exit(3)\n    print(f"node {name} starts'
    )
    failing = failing.replace("grace=20", "grace=20, max_restarts=1").replace(
        'wait_for="running"', 'wait_for="complete"'
    )
    project.program(failing)
    out = project.up(ok=False).out
    assert "reaching max number of restarts" in out and "exit code 3" in out, out
    assert project.job("long").restarts == 1


HELPED = """
def train(steps):
    import time
    from pulumi_trainer import training
    kept = training.checkpoints()
    for step in range(1, steps + 1):
        time.sleep(0.05)
        stop = training.should_stop()
        if stop:
            kept.save({"step": step}, step=step)
        training.progress(step=step, total=steps)
        if stop:
            return

trainer.TrainJob(
    "long", runtime=plain, trainer=trainer.CustomTrainer(func=train, func_args={"steps": 2000}),
    checkpoint=trainer.CheckpointPolicy(grace=20), wait_for="running",
)
"""


def test_a_stopped_job_shows_the_step_that_it_has_saved(project: Project) -> None:
    project.program(HELPED)
    project.up()
    eventually(lambda: project.job("long").progress, what="the first progress")
    run_cli(project, "stop", "long")
    status = eventually(lambda: (found := project.job("long")).phase == "Failed" and found)
    (saved,) = [int(path.name.partition("-")[2]) for path in project.root.rglob("step-*") if path.is_dir()]
    assert status.progress["step"] == status.progress["checkpoint"]["step"] == saved, status.progress
