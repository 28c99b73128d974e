"""Trainings of real frameworks on two nodes: one that is interrupted at random places ends with the parameters of another one.

They save by `pulumi_trainer.training` (torch, Transformers) or by Orbax (JAX).
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.conftest import Project, eventually
from tests.engine.test_checkpoints import bootstrap_of
from tests.engine.test_checkpoints_in_s3 import bucket  # noqa: F401 (a fixture)

SECONDS = 900
"""Time for the first `up`, which may have to download packages."""
PLACES = int(os.environ.get("INTERRUPTED_PLACES", "2"))
"""`make bench-interruptions` has 20 of them."""
STEPS = 60 + 30 * PLACES

pytestmark = pytest.mark.timeout(3 * SECONDS)

HEAD = """
import pulumi
import pulumi_trainer as trainer

def train(kind, steps, pause):
    import os, time, torch
    import torch.distributed as dist
    from pulumi_trainer import training
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        for layer in (model[0], model[2], model):
            fully_shard(layer)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    points = training.checkpoints()
    found = points.load(state)
    start = found["step"] if found else 0
    print(f"rank {rank} starts at step {start}", flush=True)
    stopped = False
    for step in range(start + 1, steps + 1):
        draw = torch.Generator().manual_seed(2 * step + rank)
        loss = model(torch.randn(16, 32, generator=draw)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        time.sleep(pause)
        stopped = training.should_stop()
        if stopped or points.due(step):
            assert points.save(state, step=step, async_=kind == "async" and not stopped)
        training.progress(step=step, total=steps, loss=loss)
        if stopped:
            print(f"rank {rank} stops at step {step}", flush=True)
            break
    assert points.wait()
    if not stopped:
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        if rank == 0:
            print("parameters", *(float(p.double().pow(2).sum()).hex() for p in whole.values()), flush=True)
    dist.destroy_process_group()

def job(name, kind, pause):
    return trainer.TrainJob(
        name,
        runtime="torch-distributed",
        trainer=trainer.CustomTrainer(
            func=train, func_args={"kind": kind, "steps": 60, "pause": pause}, num_nodes=2,
            packages_to_install=["torch>=2.6,<3"] if kind == "ddp" else ["torch>=2.6,<3", "numpy"], resources_per_node={"cpu": 1},
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=60, keep=2),
        wait_for="running" if pause else "complete",
    )

"""


TRANSFORMERS = """
import pulumi
import pulumi_trainer as trainer

def train(pause):
    import time, torch
    from pulumi_trainer import training
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    class Slow(TrainerCallback):
        def on_step_begin(self, *_, **__):
            time.sleep(pause)

    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    model = BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=16))
    data = [{"input_ids": [i % 50, 3 * i % 50, 7], "labels": i % 2} for i in range(64)]
    points = training.checkpoints()
    arguments = TrainingArguments(
        output_dir=points.folder, save_strategy="no", max_steps=60, logging_steps=5, per_device_train_batch_size=2,
        report_to=[], use_cpu=True, seed=1, disable_tqdm=True,
    )
    hf = Trainer(model, arguments, train_dataset=data, callbacks=[training.callback(), Slow()])
    print(f"starts from {points.latest()}.", flush=True)
    hf.train(resume_from_checkpoint=points.latest())
    print(f"rank {arguments.process_index} ends at step {hf.state.global_step}", flush=True)
    if not training.should_stop() and arguments.process_index == 0:
        print("parameters", *(float(p.double().pow(2).sum()).hex() for p in model.parameters()), flush=True)

def job(name, pause):
    return trainer.TrainJob(
        name,
        runtime="torch-distributed",
        trainer=trainer.CustomTrainer(
            func=train, func_args={"pause": pause}, num_nodes=2, resources_per_node={"cpu": 1},
            packages_to_install=["torch>=2.6,<3", "numpy", "transformers>=4.50", "accelerate>=1"],
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=60),
        wait_for="running" if pause else "complete",
    )

"""


JAX = """
import pulumi
import pulumi_trainer as trainer

def train(steps, pause):
    import os, time
    import jax, jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp
    from jax.experimental.multihost_utils import process_allgather
    from jax.sharding import NamedSharding, PartitionSpec

    count, rank = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], count, rank)
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharded, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    state = {"w": jax.device_put(np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8), same), "m": jnp.zeros((8, 8), device=same)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=10, step_prefix=None)
    manager = ocp.CheckpointManager(os.environ["TRAINER_CHECKPOINT_DIR"], options=options)
    found = os.environ.get("TRAINER_RESUME_FROM")
    start = int(os.path.basename(found)) if found else 0
    assert (manager.latest_step() or 0) == start, (manager.latest_step(), start)
    if found:
        state = manager.restore(start, args=ocp.args.StandardRestore(state))
    print(f"rank {rank} starts at step {start}", flush=True)

    @jax.jit
    def step_of(state, x):
        gradient = jax.grad(lambda w: jnp.tanh(x @ w).var())(state["w"])
        moment = 0.9 * state["m"] + gradient
        return {"w": state["w"] - 0.1 * moment, "m": moment}

    stopped = False
    for step in range(start + 1, steps + 1):
        mine = np.random.default_rng(2 * step + rank).normal(size=(4, 8)).astype("f4")
        state = step_of(state, jax.make_array_from_process_local_data(sharded, mine))
        time.sleep(pause)
        stopped = manager.reached_preemption(step)
        manager.save(step, args=ocp.args.StandardSave(state), force=stopped)
        if stopped:
            open(os.environ["TRAINER_STOP_FILE"], "w").close()
            print(f"rank {rank} stops at step {step}", flush=True)
            break
    manager.wait_until_finished()
    if not stopped and rank == 0:
        print("parameters", *(float(np.square(np.asarray(a, "f8")).sum()).hex() for a in state.values()), flush=True)
    manager.close()
    jax.distributed.shutdown()

def job(name, pause):
    return trainer.TrainJob(
        name,
        runtime="jax-distributed",
        trainer=trainer.CustomTrainer(
            func=train, func_args={"pause": pause, "steps": STEPS}, num_nodes=2, resources_per_node={"cpu": 1},
            packages_to_install=["jax>=0.5,<0.11", "orbax-checkpoint>=0.11,<0.13"],
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=10, max_restarts=PLACES),
        wait_for="running" if pause else "complete",
    )

"""


STARVED = """
import pulumi
import pulumi_trainer as trainer

def train():
    import os
    import torch.distributed as dist
    from pulumi_trainer import training
    from pulumi_trainer.provider.pod import wait_for_gloo

    dist.init_process_group("gloo")
    training.should_stop()
    threads = wait_for_gloo.read_threads()
    assert threads, "torch has given them another name"
    for path in threads:
        os.sched_setscheduler(int(path.split("/")[4]), os.SCHED_IDLE, os.sched_param(0))
    training.should_stop()

trainer.TrainJob(
    "starved",
    runtime="torch-distributed",
    trainer=trainer.CustomTrainer(
        func=train, num_nodes=2, num_proc_per_node=2, packages_to_install=["torch>=2.6,<3"], resources_per_node={"cpu": 1},
    ),
    wait_for="complete",
)
"""


_NAMES = 'glob.glob("/proc/self/task/*/comm")'
UNAWARE = (
    STARVED.replace("    from pulumi_trainer import training\n", "    import glob, torch\n")
    .replace("    from pulumi_trainer.provider.pod import wait_for_gloo\n", "")
    .replace("training.should_stop()", "dist.all_reduce(torch.ones(1))")
    .replace(
        "wait_for_gloo.read_threads()", f'[path for path in {_NAMES} if open(path).read().strip() == "pt_gloo_runloop"]'
    )
)
"""The same without `pulumi_trainer.training`."""


def parameters(logs: str) -> list[str]:
    return re.findall(r"parameters (-?0x.+)", logs)


def wait_for(project: Project, name: str, text: str) -> None:
    end = time.monotonic() + SECONDS
    while text not in project.logs(name):
        status = project.job(name)
        assert time.monotonic() < end and not status.terminal, (status, project.logs(name))
        time.sleep(0.5)


def process_of(project: Project, task: str, name: str) -> psutil.Process:
    """The process that runs the program in a Pod of a job."""
    for first in project.processes("bootstrap.py"):
        mark = first.environ().get("PULUMI_TRAINER_JOB", "")
        if task in mark and name in mark:
            return next(
                child for child in reversed(first.children(recursive=True)) if "/main.py" in " ".join(child.cmdline())
            )
    raise AssertionError(f"no process of {task}")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and SCHED_IDLE are Linux's")
@pytest.mark.parametrize("imports", [True, False])
def test_no_rank_dies_when_threads_of_gloo_are_slower_than_the_end_of_python(project: Project, imports: bool) -> None:
    """As on a loaded machine: of ranks that do not wait for these threads, some die with SIGABRT in two of three runs."""
    project.program("", head=STARVED if imports else UNAWARE)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    status, logs = project.job("starved"), project.logs("starved")
    assert (up.code, status.phase, status.restarts) == (0, "Succeeded", 0), (up, status, logs)


@pytest.mark.parametrize(("kind", "node"), [("ddp", 0), ("fsdp2", 1), ("async", 0)])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(project: Project, kind: str, node: int) -> None:
    project.program(f'job("whole", "{kind}", 0)\n', head=HEAD)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))

    project.program(f'job("whole", "{kind}", 0)\njob("cut", "{kind}", 0.3)\n', head=HEAD)
    project.up()
    wait_for(project, "cut", "starts at step 0")
    eventually(lambda: saved(project), 120, what="a first checkpoint")
    os.kill(bootstrap_of(project, node, "cut").pid, signal.SIGTERM)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    stopped = dict(re.findall(r"rank (\d) stops at step (\d+)", logs))
    assert stopped.keys() == {"0", "1"} and len(set(stopped.values())) == 1, logs
    step = stopped["0"]
    assert len(re.findall(rf"rank \d starts at step {step}$", logs, re.M)) == 2, "no step is done twice"
    assert parameters(logs) == [expected]
    folder = saved(project)[0].parent
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000050", "step-00000060"], (
        "keep=2, and nothing temporary"
    )
    assert (folder / "step-00000060" / ("state.pt" if kind == "ddp" else ".metadata")).exists()
    assert status.progress is not None
    assert status.progress["progressPercentage"] == 100 and status.progress["step"] == 60
    assert status.progress["checkpoint"]["step"] == 60, "of the end, whatever the last report before it said"
    marker = json.loads((folder / "step-00000060/.complete").read_text())
    assert marker["step"] == 60 and marker["sha256"].keys() == marker["files"].keys()


@pytest.mark.parametrize("kind", ["fsdp2", "async"])
def test_parts_of_nodes_that_share_no_folder_come_together_in_s3(
    project: Project,
    bucket: Any,  # noqa: F811
    kind: str,
) -> None:
    head = HEAD.replace("CheckpointPolicy(", f'CheckpointPolicy(to="s3://ckpt/{kind}", ')
    keys = {"AWS_ENDPOINT_URL": bucket.meta.endpoint_url, "AWS_ACCESS_KEY_ID": "k"}
    secret = 'AWS_SECRET_ACCESS_KEY=pulumi.Output.secret("canary")'
    head = head.replace("num_nodes=2,", f"num_nodes=2, env=dict({keys}, {secret}),")
    project.program(f'job("whole", "{kind}", 0)\n', head=head)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))

    project.program(f'job("whole", "{kind}", 0)\njob("cut", "{kind}", 0.3)\n', head=head)
    project.up()
    wait_for(project, "cut", " is in s3://")
    os.kill(bootstrap_of(project, 0, "cut").pid, signal.SIGTERM)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    (step,) = {*re.findall(r"rank \d stops at step (\d+)", logs)}
    assert len(re.findall(rf"rank \d starts at step {step}$", logs, re.M)) == 2, "no step is done twice"
    assert parameters(logs) == [expected]
    listed = bucket.list_objects_v2(Bucket="ckpt", Prefix=f"{kind}/lab/test/default/")["Contents"]
    found = {"/".join(each["Key"].split("/")[-3:]) for each in listed if "/cut-" in each["Key"]}
    found = {re.sub(r"/node-(\d)-[0-9a-f]{8}/", r"/node-\1/", key) for key in found}
    last = "step-00000060"
    for key in ("node-0/.metadata", "node-0/__0_0.distcp", "node-1/__1_0.distcp", "node-0.json", "node-1.json"):
        assert f"{last}/{key}" in found or f"manifests/{last}/{key}" in found, found


def saved(project: Project) -> list[Path]:
    return sorted(project.root.glob("volumes/*/*cut*/data/*/checkpoints/step-*[0-9]"))


def test_a_trainer_of_transformers_ends_as_an_uninterrupted_one(project: Project) -> None:
    project.program('job("whole", 0)\n', head=TRANSFORMERS)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))
    project.program('job("whole", 0)\njob("cut", 0.5)\n', head=TRANSFORMERS)
    project.up()
    wait_for(project, "cut", "starts from None.")
    eventually(
        lambda: list(project.root.glob("volumes/*/*cut*/data/*/checkpoints/checkpoint-10/trainer_state.json")), 120
    )
    os.kill(bootstrap_of(project, 1, "cut").pid, signal.SIGTERM)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs)
    ends = sorted(re.findall(r"rank (\d) ends at step (\d+)", logs))
    assert len(ends) == 4 and ends[0][1] == ends[2][1] and ends[1][1] == ends[3][1] == "60", ends
    assert logs.count(f"checkpoint-{ends[0][1]}.") >= 2, "both go on from the step at which they have stopped"
    assert parameters(logs) == [expected]
    assert status.progress["checkpoint"]["step"] == 60, status.progress


CORRECTED = """
import pulumi_trainer as trainer

def train(lr):
    import torch
    from pulumi_trainer import training

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    points = training.checkpoints()
    found = points.load(state, arguments={"lr": lr})
    if found and "lr" in found["differs"]:  # the optimizer and its schedule have that of the checkpoint
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = lr
        schedule.base_lrs = [lr for _ in schedule.base_lrs]
    start = found["step"] if found else 0
    print("starts at", start, "with", [group["lr"] for group in optimizer.param_groups], flush=True)
    for step in range(start + 1, 41):
        model(torch.ones(2, 4)).pow(2).mean().backward()
        optimizer.step()
        schedule.step()
        if points.due(step):
            points.save(state, step=step)
        if step == 15 and lr == 0.1:
            raise ValueError("too high")
    print("ends with", [group["lr"] for group in optimizer.param_groups], flush=True)

trainer.TrainJob(
    "corrected",
    runtime="torch-distributed",
    trainer=trainer.CustomTrainer(
        func=train, func_args={"lr": LR}, packages_to_install=["torch>=2.6,<3"], resources_per_node={"cpu": 1}, num_nodes=1,
    ),
    checkpoint=trainer.CheckpointPolicy(steps=10, max_restarts=0),
    wait_for="complete",
)
"""


def test_a_corrected_learning_rate_acts_after_the_checkpoint(project: Project) -> None:
    project.program(CORRECTED.replace(": LR}", ": 0.1}"))
    failed = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert failed.code != 0 and "too high" in failed.out, failed
    project.program(CORRECTED.replace(": LR}", ": 0.01}"))
    project.up()
    logs = project.logs("corrected")
    assert "the checkpoint of step 10 was saved with lr 0.1 (now 0.01)" in logs
    assert "starts at 10 with [0.01]" in logs and "ends with [0.0025]" in logs, logs
    guide = (Path(__file__).parents[2] / "docs/guides/training-helper.md").read_text()
    lines = textwrap.dedent(CORRECTED[CORRECTED.index("    found = ") : CORRECTED.index("    print(")])
    assert lines in guide


def head(text: str) -> str:
    """Return a program that is interrupted often: more steps, and a restart for each interruption."""
    text = text.replace('"steps": 60', f'"steps": {STEPS}').replace("max_steps=60", f"max_steps={STEPS}")
    text = text.replace("grace=60", f"grace=20, max_restarts={PLACES}")
    return text.replace("STEPS", str(STEPS)).replace("PLACES", str(PLACES))


PROGRAMS = {
    "ddp": (HEAD, '"ddp", '),
    "fsdp2": (HEAD, '"fsdp2", '),
    "async": (HEAD, '"async", '),
    "transformers": (TRANSFORMERS, ""),
    "jax": (JAX, ""),
}
"""A framework -> its program, and the first arguments of `job`."""


@pytest.mark.timeout(2 * SECONDS + 90 * PLACES)
@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_training_that_is_interrupted_at_random_places(project: Project, framework: str) -> None:
    """Seeded. SIGTERM to a node costs no step and no restart; SIGKILL to one of its processes costs a restart."""
    draw = random.Random(f"{framework} 16")
    text, arguments = PROGRAMS[framework]
    whole = f'job("whole", {arguments}0)\n'
    project.program(whole, head=head(text))
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('whole')}"
    (expected,) = parameters(project.logs("whole"))
    project.program(f'{whole}job("cut", {arguments}0.05)\n', head=head(text))
    project.up()
    before, kills = "", 0
    for place in range(1, PLACES + 1):

        def begun(place: int = place) -> bool:
            status = project.job("cut")
            assert not status.terminal, (place, status, project.logs("cut"))
            return len(status.attempts) == place and not status.attempts[-1].ended

        eventually(begun, SECONDS, f"attempt {place} begins")

        def trains(seen: int = len(before)) -> bool:
            return "starts" in project.logs("cut")[seen:]

        if draw.random() < 0.75:
            eventually(trains, SECONDS, "it trains")
        time.sleep(draw.uniform(0, 2))
        before, kill = project.logs("cut"), draw.random() < 0.5
        kills += kill
        interrupt(project, draw, kill)
    status = eventually(lambda: s if (s := project.job("cut")) and s.terminal else None, SECONDS)
    logs = project.logs("cut")
    assert (status.phase, status.restarts) == ("Succeeded", PLACES), (status, logs)
    assert parameters(logs) == [expected]
    print(
        f"{framework}: {PLACES} places, {kills} killed, {sum(a.redone or 0 for a in status.attempts)} steps done again"
    )


def interrupt(project: Project, draw: random.Random, kill: bool) -> None:
    """Stop a node by SIGTERM, or kill one of its processes."""
    first = bootstrap_of(project, draw.choice([0, 1]), "cut")
    victims = [first]
    for child in first.children(recursive=True) if kill else ():
        with suppress(psutil.Error):  # other children only help, and the training goes on without them
            victims += [child] if "/main.py" in " ".join(child.cmdline()) else []
    with suppress(psutil.NoSuchProcess):  # it has ended by itself since
        draw.choice(victims).send_signal(signal.SIGKILL if kill else signal.SIGTERM)
