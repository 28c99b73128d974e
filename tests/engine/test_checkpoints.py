"""A checkpoint policy on this machine: an interruption costs at most the steps since the last checkpoint."""

from __future__ import annotations

import json
import os
import re
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


def run_cli(project: Project, *args: str) -> str:
    argv = ["pulumi-trainer", *args, "-s", project.stack]
    done = subprocess.run(argv, cwd=project.folder, env=project.environment, check=True, capture_output=True, text=True)
    return done.stdout


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


FORKED = """
def train(steps, lr):
    from pulumi_trainer import training

    class Optimizer:
        def __init__(self):
            self.param_groups = [{"lr": lr}]

        def state_dict(self):
            return self.param_groups[0]

        def load_state_dict(self, state):
            self.param_groups = [dict(state)]

    points, optimizer = training.checkpoints(), Optimizer()
    found = points.load({"optimizer": optimizer, "total": 0}) or {"step": 0, "total": 0}
    print("starts at", found["step"], "of", found["total"], "with lr", optimizer.param_groups[0]["lr"], flush=True)
    total = found["total"]
    for step in range(found["step"] + 1, steps + 1):
        total += step
        if points.due(step):
            points.save({"optimizer": optimizer, "total": total}, step=step)
        training.progress(step=step, total=steps)

job = trainer.TrainJob(
    "long",
    runtime=plain,
    trainer=trainer.CustomTrainer(func=train, func_args={"steps": 30, "lr": 0.1}),
    checkpoint=trainer.CheckpointPolicy(steps=10),
    wait_for="complete",
)
"""


def test_resume_decides_what_continues_and_the_plan_names_it(project: Project) -> None:
    """The newest lineage is continued, never one before it, and what its checkpoint has is not what the arguments say."""
    program = FORKED.replace('"total": 0}) or', '"total": 0}, arguments={"lr": lr}) or')
    ids = list[str]()

    def run(resume: str, steps: int, lr: float) -> tuple[str, str]:
        text = program.replace('"steps": 30, "lr": 0.1', f'"steps": {steps}, "lr": {lr}')
        project.program(text.replace("wait_for=", f"resume={resume}, wait_for="))
        plan = project.preview().out
        project.up()
        ids.append(json.loads(run_cli(project, "runs", "long", "-o", "json"))[-1]["id"])
        return plan, run_cli(project, "logs", "long", "--run", ids[-1])

    assert "starts at 0 of 0 with lr 0.1" in run("True", 30, 0.1)[1]
    plan, log = run("False", 40, 0.5)
    assert "the new run starts anew: resume=False" in plan and "starts at 0 of 0 with lr 0.5" in log
    plan, log = run("True", 60, 0.2)
    assert f"the new run continues run {ids[1]} from its newest checkpoint, which is of step 40 and its last" in plan
    assert "starts at 40 of 820 with lr 0.5" in log, "a program that sets it after load() has the other one"
    assert re.search(r"pulumi-trainer: .*step 40.*lr.*0\.5", log), log
    plan, log = run(f'"{ids[0]}"', 50, 0.1)
    assert f"the new run continues run {ids[0]} from its newest checkpoint, which is of step 30" in plan
    assert "starts at 30 of 465 with lr 0.1" in log
    lineages = [each["lineage"] for each in json.loads(run_cli(project, "runs", "long", "-o", "json"))]
    assert lineages == [ids[0], ids[1], ids[1], ids[0]]


UNHELPED = """
def train(steps, lr):
    print("starts where it likes")

trainer.TrainJob(
    "long",
    runtime=plain,
    trainer=trainer.CustomTrainer(func=train, func_args={"steps": 30, "lr": 0.1}),
    checkpoint=trainer.CheckpointPolicy(steps=10),
    fork=FORK,
)
"""


def test_a_fork_starts_from_a_checkpoint_of_an_earlier_run_in_a_folder_of_its_own(project: Project) -> None:
    project.program(FORKED)
    project.up()
    (first,) = json.loads(run_cli(project, "runs", "long", "-o", "json"))
    before = {path: path.stat().st_mtime_ns for path in checkpoints(project)}
    fork = FORKED.replace('"lr": 0.1', '"lr": 0.01').replace("wait_for=", "fork=FORK, wait_for=")

    def forked(text: str, program: str = fork) -> None:
        project.program(program.replace("FORK,", f"{text},"))

    forked('trainer.Fork("nosuch", reset=["lr"])', fork.partition("def train")[0] + UNHELPED)
    assert (
        "fork.reset: has no effect: the code does not import pulumi_trainer.training" in project.preview(ok=False).out
    )
    forked('trainer.Fork("nosuch")')
    refused = project.preview(ok=False).out
    assert "fork.run: no run 'nosuch' is recorded for this job" in refused and first["id"] in refused
    forked(f'trainer.Fork("{first["id"]}", step=15)')
    refused = project.preview(ok=False).out
    assert "has no complete checkpoint of step 15" in refused and "it has those of steps 10, 20, 30" in refused
    forked(f'trainer.Fork("{first["id"]}", step=20, reset=["lr"])')
    plan = project.preview().out
    assert f"the new run starts anew from the checkpoint of step 20 of run {first['id']}" in plan
    project.up()
    assert "starts at 20 of 210 with lr 0.01" in run_cli(project, "logs", "long")
    _, second = json.loads(run_cli(project, "runs", "long", "-o", "json"))
    assert (second["parent"], second["fork"]) == (first["id"], f"{first['id']}@20")
    assert second["lineage"] == second["id"], "a lineage of its own"
    assert before.items() <= {path: path.stat().st_mtime_ns for path in checkpoints(project)}.items()
    assert f"forked from {first['id']}@20" in run_cli(project, "runs", "long")
    project.preview("--expect-no-changes")
    forked(f'trainer.Fork("{first["id"]}", step=20)')
    project.up()
    assert "starts at 20 of 210 with lr 0.1" in run_cli(project, "logs", "long"), "which the checkpoint has"
    forked(f'trainer.Fork("{first["id"]}", step=20, reset=["batch"])')
    failed = project.up(ok=False).out
    assert "Fork(reset=['batch']). Hint: this program can reset: lr, optimizer, step, total" in failed, failed
    assert "Restarting" not in failed and project.job("long").restarts == 0, "no attempt can succeed"
    forked(
        f'trainer.Fork("{first["id"]}", step=20, reset=["batch"])', fork.replace("total += step", "total += step + 0")
    )
    continues = project.preview().out
    assert "which has no complete checkpoint" in continues, "it continues the fork that has failed, not the first run"


SUMS = """
def train(steps):
    from pulumi_trainer import training

    points = training.checkpoints()
    found = points.load({given}) or {{"step": 0, "total": 0}}
    total = found["total"]
    for step in range(found["step"] + 1, steps + 1):
        total += step
        if points.due(step):
            points.save({{"total": total}}, step=step)
        training.progress(step=step, total=steps, sum=total)

trainer.TrainJob(
    "sums",
    runtime="plain",
    trainer=trainer.CustomTrainer(func=train, func_args={{"steps": {steps}}}),
    checkpoint=trainer.CheckpointPolicy(steps=20),
    wait_for="complete",
    {more}
)
"""


def test_a_fork_resets_a_plain_value_to_that_of_the_program_or_fails_once(project: Project) -> None:
    """The first program of the guide, and the same without a value of its own."""
    project.program(SUMS.format(given="", steps=40, more=""))
    project.up()
    (first,) = json.loads(run_cli(project, "runs", "sums", "-o", "json"))
    fork = f'fork=trainer.Fork("{first["id"]}", step=20, reset=["total"]),'
    project.program(SUMS.format(given="", steps=50, more=fork))
    assert f"from the checkpoint of step 20 of run {first['id']}, without its total\n" in project.preview().out
    failed = project.up(ok=False).out
    why = "ValueError: Fork(reset=['total']): load() knows no other value. Hint: give it one, load({'total': ...})"
    assert f"index 0: exit code 65: {why} (__main__.py:" in failed and "KeyError" not in failed, failed
    assert 'training.py", line' not in failed and failed.count(f"\n        {why}\n") == 1, failed
    assert "Restarting" not in failed and project.job("sums").restarts == 0, "no attempt can succeed"
    project.program(SUMS.format(given='{"total": 0}', steps=50, more=fork))
    assert f"from the checkpoint of step 20 of run {first['id']}, without its total\n" in project.preview().out
    project.up()
    assert json.loads(run_cli(project, "runs", "sums", "-o", "json"))[-1]["metrics"]["sum"]["last"] == "1065"


def test_a_run_too_many_removes_the_oldest_folder_and_leaves_a_row(project: Project) -> None:
    program = FORKED.replace("wait_for=", "keep_runs=2, resume=False, wait_for=")
    ids, plans = list[str](), list[str]()
    for lr in (0.1, 0.2, 0.3, 0.4):
        project.program(program.replace('"lr": 0.1', f'"lr": {lr}'))
        plans.append(project.preview().out)
        project.up()
        ids.append(json.loads(run_cli(project, "runs", "long", "-o", "json"))[-1]["id"])
    assert (
        "removes" not in plans[1]
        and f"It removes output, checkpoints, logs and inputs of 1 run: {ids[0]} (keep_runs=2)" in plans[2]
    )
    assert f"of 1 run: {ids[1]} (" in plans[3], "what has gone goes once"
    assert {path.parent.parent.name for path in checkpoints(project)} == set(ids[2:])
    project.preview("--expect-no-changes")
    shown = run_cli(project, "runs", "long")
    assert f"long {ids[0]}: Succeeded" in shown and "its output and checkpoints were removed" in shown
    assert f"it has removed output and checkpoints of {ids[1]}" in shown
    assert shown.count("  arguments ") == 2, "those of the rows are not kept"
    removed = f"its new run removes output, checkpoints, logs and inputs of 1 run: {ids[2]} (keep_runs=2)"
    assert removed in run_cli(project, "rerun", "long")
    eventually(lambda: (found := project.job("long")).terminal and found)
    assert ids[3] in {path.parent.parent.name for path in checkpoints(project)} and ids[2] not in run_cli(
        project, "outputs"
    )
    project.program(program.replace("resume=False", f'resume="{ids[0]}"'))
    plan = project.preview().out
    assert f"output and checkpoints of run {ids[0]} were removed" in plan and f"those of runs {ids[3]}, " in plan
