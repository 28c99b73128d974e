"""DeepSpeed's ZeRO on two nodes with two ranks each: a training whose rank is killed ends with the parameters of another one."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress

import psutil
import pytest
from pulumi_trainer.provider.targets.local.process import MARK

from tests.engine.conftest import Project, eventually

from .test_frameworks import SECONDS
from .test_training import parameters, saved, wait_for

pytestmark = pytest.mark.timeout(3 * SECONDS)

HEAD = """
import pulumi_trainer as trainer

def train(stage, pause, steps=40):
    import deepspeed, time, torch
    from pulumi_trainer import training

    deepspeed.init_distributed()
    rank = deepspeed.comm.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.Adam(model.parameters(), 1e-2), config=config)
    points = training.checkpoints()
    found = points.load(lambda folder: engine.load_checkpoint(folder, tag="state")) or {"step": 0}
    print(f"rank {rank} starts at step {found['step']} (DeepSpeed: {engine.global_steps})", flush=True)
    for step in range(found["step"] + 1, steps + 1):
        draw = torch.Generator().manual_seed(4 * step + rank)
        loss = engine(torch.randn(8, 32, generator=draw)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        time.sleep(pause)
        stop = training.should_stop()
        if stop or points.due(step):
            assert points.save(lambda folder: engine.save_checkpoint(folder, tag="state"), step=step)
        training.progress(step=step, total=steps, loss=loss)
        if stop:
            print(f"rank {rank} stops at step {step}", flush=True)
            return
    with deepspeed.zero.GatheredParameters([*model.parameters()]):
        if rank == 0:
            print("parameters", *(float(p.double().pow(2).sum()).hex() for p in model.parameters()), flush=True)

def job(name, stage, pause):
    return trainer.TrainJob(
        name,
        runtime="deepspeed-distributed",
        trainer=trainer.CustomTrainer(
            func=train, func_args={"stage": stage, "pause": pause}, num_nodes=2, num_proc_per_node=2,
            resources_per_node={"cpu": 1}, env={"DS_ACCELERATOR": "cpu"}, packages_to_install=["deepspeed", "scikit-learn"],
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=60, keep=2),
        wait_for="running" if pause else "complete",
    )

"""


def rank_of(uid: str, rank: str) -> psutil.Process:
    """The process of a rank of a job."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            env = process.environ()
            if env.get(MARK, "").startswith(f"{uid}/") and env.get("RANK") == rank:
                return process
    pytest.fail(f"rank {rank} does not run")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint(project: Project, stage: int) -> None:
    project.program(f'job("whole", {stage}, 0)\n', head=HEAD)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))

    project.program(f'job("whole", {stage}, 0)\njob("cut", {stage}, 0.3)\n', head=HEAD)
    project.up()
    wait_for(project, "cut", "starts at step 0")
    eventually(lambda: saved(project), 120, what="a first checkpoint")
    rank_of(project.job("cut").uid, "3").send_signal(signal.SIGKILL)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    starts = re.findall(r"rank (\d) starts at step (\d+) \(DeepSpeed: (\d+)\)", logs)
    assert sorted(starts)[::2] == [(rank, "0", "0") for rank in "0123"], starts
    (again,) = {(step, own) for _, step, own in sorted(starts)[1::2]}
    assert again[0] == again[1] in ("10", "20", "30"), starts
    assert parameters(logs) == [expected]
    assert sorted(path.name for path in saved(project)[0].parent.iterdir()) == ["step-00000030", "step-00000040"]
    assert status.progress is not None and status.progress["checkpoint"]["step"] == 40


def test_sigterm_to_the_launcher_costs_no_step(project: Project) -> None:
    project.program('job("cut", 2, 0.3)\n', head=HEAD)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, up
    wait_for(project, "cut", "starts at step 0")
    launchers = [p.pid for p in project.processes("bootstrap.py") if "-launcher-0-0" in p.environ().get(MARK, "")]
    os.kill(min(launchers), signal.SIGTERM)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    (step,) = {*re.findall(r"rank \d stops at step (\d+)", logs)}
    assert logs.count(f"starts at step {step} (DeepSpeed: {step})") == 4, logs
