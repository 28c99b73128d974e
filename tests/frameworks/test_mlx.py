"""MLX on two nodes: a training whose rank is killed ends with the parameters of another one."""

from __future__ import annotations

import re
import signal

import pytest

from tests.engine.conftest import Project, eventually

from .test_deepspeed import rank_of
from .test_frameworks import SECONDS
from .test_training import parameters, saved, wait_for

pytestmark = pytest.mark.timeout(3 * SECONDS)

HEAD = """
import pulumi_trainer as trainer

def train(pause, steps=40):
    import time, mlx.core as mx, mlx.nn as nn, numpy
    from mlx.optimizers import Adam
    from mlx.utils import tree_flatten, tree_unflatten
    from pulumi_trainer import training

    ranks = mx.distributed.init(strict=True, backend="mpi")
    rank = ranks.rank()
    mx.random.seed(0)
    model, optimizer = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)), Adam(1e-2)
    gradient_of = nn.value_and_grad(model, lambda x: mx.square(model(x)).mean())

    def train_step(step):
        draw = numpy.random.default_rng(2 * step + rank)
        loss, gradients = gradient_of(mx.array(draw.normal(size=(8, 32)), mx.float32))
        optimizer.update(model, nn.average_gradients(gradients))
        mx.eval(model.parameters(), optimizer.state)
        time.sleep(pause)

    def save(folder):
        state = {"model": model.parameters(), "optimizer": optimizer.state}
        mx.save_safetensors(f"{folder}/state.safetensors", dict(tree_flatten(state)))

    def load(folder):
        state = tree_unflatten([*mx.load(f"{folder}/state.safetensors").items()])
        model.update(state["model"])
        optimizer.state = state["optimizer"]

    points = training.checkpoints()
    found = points.load(load) or {"step": 0}
    print(f"rank {rank} starts at step {found['step']}", flush=True)
    for step in range(found["step"] + 1, steps + 1):
        train_step(step)
        stop = mx.distributed.all_sum(mx.array(int(training.should_stop()))).item() > 0
        if stop or points.due(step):
            points.save(save, step=step)
        if stop:
            print(f"rank {rank} stops at step {step}", flush=True)
            return
    if rank == 0:
        values = [numpy.array(p, "f8") for _, p in tree_flatten(model.parameters())]
        print("parameters", *(float((v**2).sum()).hex() for v in values), flush=True)

def job(name, pause):
    return trainer.TrainJob(
        name,
        runtime="mlx-distributed",
        trainer=trainer.CustomTrainer(
            func=train, func_args={"pause": pause}, num_nodes=2, resources_per_node={"cpu": 1},
            packages_to_install=["mlx[cpu]", "numpy"],
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=60, keep=2),
        wait_for="running" if pause else "complete",
    )

"""


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint(project: Project) -> None:
    project.program('job("whole", 0)\n', head=HEAD)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))

    project.program('job("whole", 0)\njob("cut", 0.3)\n', head=HEAD)
    project.up()
    wait_for(project, "cut", "starts at step 0")
    eventually(lambda: saved(project), 120, what="a first checkpoint")
    rank_of(project.job("cut").uid, "1").send_signal(signal.SIGKILL)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    first, again = (
        {*steps} for steps in (re.findall(r"rank \d starts at step (\d+)", logs)[at : at + 2] for at in (0, 2))
    )
    assert first == {"0"} and again in ({"10"}, {"20"}, {"30"}), logs
    assert parameters(logs) == [expected]
    assert sorted(path.name for path in saved(project)[0].parent.iterdir()) == ["step-00000030", "step-00000040"]
