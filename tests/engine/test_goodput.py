"""Attempts, goodput and the loss of a stop, of a job on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

import psutil
import pytest

from .conftest import Project, eventually

JOB = """
def train(steps, fails_at=0, seconds=0.1, every=10):
    import datetime, json, os, signal, sys, time
    folder = os.environ["TRAINER_CHECKPOINT_DIR"]
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    found = os.environ.get("TRAINER_RESUME_FROM")
    start = json.load(open(found + "/state.json"))["step"] if found else 0
    report = {"step": start}
    print(json.dumps({"trainerStatus": report}), flush=True)
    for step in range(start + 1, steps + 1):
        time.sleep(seconds)
        stops = bool(stopped)  # once for both: what was not saved is not the last step
        if step % every == 0 or stops:
            made = f"{folder}/step-{step:06}"
            os.makedirs(made + ".tmp", exist_ok=True)
            json.dump({"step": step}, open(made + ".tmp/state.json", "w"))
            json.dump({"files": {"state.json": os.path.getsize(made + ".tmp/state.json")}}, open(made + ".tmp/.complete", "w"))
            os.rename(made + ".tmp", made)
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            report["checkpoint"] = {"step": step, "time": now}
        report["step"] = step
        print(json.dumps({"trainerStatus": report}), flush=True)
        if stops:
            print(f"stops at step {step}", flush=True)
            return
        if step == fails_at and not found:
            sys.exit(3)

job = trainer.TrainJob(
    "long",
    runtime=plain,
    trainer=trainer.CustomTrainer(func=train, func_args={"steps": 60}, num_nodes=1),
    checkpoint=trainer.CheckpointPolicy(grace=20),
    wait_for="running",
)
pulumi.export("phase", job.phase)
"""


def command(project: Project, *args: str) -> str:
    argv = ["pulumi-trainer", *args, "-s", project.stack]
    done = subprocess.run(
        argv, cwd=project.folder, env=project.environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def entry(project: Project) -> dict[str, Any]:
    (found,) = json.loads(command(project, "status", "long", "-o", "json"))
    return dict(found)


def at_step(project: Project, step: int) -> Any:
    def reached() -> Any:
        status = project.job("long")
        return status if status and ((status.progress or {}).get("step") or 0) >= step else None

    return eventually(reached, what=f"step {step}")


def ended(project: Project) -> Any:
    return eventually(lambda: s if (s := project.job("long")) and s.terminal else None)


def bootstrap(project: Project) -> psutil.Process:
    return min(project.processes("bootstrap.py"), key=lambda p: p.pid)


def test_goodput_counts_a_suspension_a_signal_and_an_error(project: Project) -> None:
    project.program(JOB.replace('{"steps": 60}', '{"steps": 150, "fails_at": 25}'))
    project.up()
    eventually(lambda: s if (s := project.job("long")) and len(s.attempts) > 1 else None, what="a restart")
    at_step(project, 30)
    command(project, "suspend", "long")
    stopped = eventually(lambda: s if (s := project.job("long")).phase == "Suspended" else None)
    time.sleep(3)
    command(project, "resume", "long")
    at_step(project, stopped.attempts[-1].last + 5)
    os.kill(bootstrap(project).pid, signal.SIGTERM)
    status = ended(project)
    assert (status.phase, status.restarts) == ("Succeeded", 2), status
    error, suspended, signalled, last = status.attempts
    assert [each.number for each in status.attempts] == [1, 2, 3, 4]
    assert (error.cause, error.first, error.last) == ("ProgramError", 0, 25) and "exit code 3" in error.detail
    assert (suspended.cause, suspended.first, suspended.redone) == ("Suspended", 20, 5)
    assert "with `pulumi-trainer suspend`" in suspended.detail
    assert 0.4 <= suspended.repeating <= suspended.finished - suspended.started
    assert (signalled.cause, signalled.first, signalled.redone) == ("Terminated", suspended.last, 0)
    assert "SIGTERM from outside" in signalled.detail
    assert (last.cause, last.first, last.last, last.redone) == ("Succeeded", signalled.last, 150, 0)

    found = entry(project)
    wall = status.finished - error.started
    idle = sum(
        after.started - before.finished for before, after in zip(status.attempts, status.attempts[1:], strict=False)
    )
    assert abs(found["goodput"] * wall - (wall - idle - suspended.repeating)) < 1
    assert signalled.started - suspended.finished >= 3 and found["goodput"] < 1 - 3 / wall
    assert [each["cause"] for each in found["attempts"]] == ["ProgramError", "Suspended", "Terminated", "Succeeded"]

    shown = command(project, "status", "long", "--history").splitlines()
    assert shown[0].split() == ["attempt", "start", "ran", "cause", "steps", "redone"]
    assert "ProgramError: exit code 3" in shown[1] and "0-25" in shown[1]
    assert "5 (" in shown[2]
    assert shown[-1].startswith(f"goodput {100 * found['goodput']:.0f}%: ") and "5 steps done again" in shown[-1]


@pytest.mark.core
def test_a_stop_says_what_it_loses_and_may_save_it_first(project: Project) -> None:
    slow = JOB.replace('{"steps": 60}', '{"steps": 100_000, "every": 100_000}')  # does not end before the test
    project.program(slow)
    project.up()
    at_step(project, 10)
    assert "If it were stopped now, it would lose all " in command(project, "why", "long")
    assert "a stop loses" in command(project, "status", "long")
    assert entry(project)["loss"]["steps"] >= 10

    project.program(slow.replace('"steps": 100_000', '"steps": 99_000'))
    refused = project.up(ok=False).out
    assert "It would lose all " in refused and "it has no complete checkpoint yet" in refused
    assert 'interrupt="checkpoint" to save a checkpoint first' in refused

    project.program(
        slow.replace('"steps": 100_000', '"steps": 98_000').replace("wait_for=", 'interrupt="checkpoint", wait_for=')
    )
    preview = project.preview().out
    assert "its Pods get SIGTERM, and up to 30 s to save a checkpoint; it would lose all" in preview, preview
    before = project.job("long")
    assert not before.terminal
    project.up()
    after = eventually(
        lambda: s if (s := project.job("long")) and s.attempts and s.attempts[-1].first is not None else None
    )
    newest = max(project.root.glob("volumes/*/*/data/*/checkpoints/step-*[0-9]")).name
    assert after.attempts[0].first >= before.progress["step"], "the new run goes on where the old one was stopped"
    assert newest == f"step-{after.attempts[0].first:06}", "no step is done twice"
    assert len(after.attempts) == 1 and after.uid != before.uid


def test_a_job_without_a_policy_cannot_save_first(project: Project) -> None:
    plain = JOB.replace("    checkpoint=trainer.CheckpointPolicy(grace=20),\n", '    interrupt="checkpoint",\n')
    project.program(plain)
    refused = project.preview(ok=False).out
    assert "is 'checkpoint', but the job has no checkpoint policy" in refused, refused
