"""A fine-tuning job that is interrupted goes on from its newest checkpoint, and ends with the adapter of another one."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.conftest import Project, eventually
from tests.engine.test_checkpoints import bootstrap_of, run_cli

from .conftest import SECONDS

pytestmark = pytest.mark.timeout(2 * SECONDS)

JOB = """job(
    "{name}", "chat",
    trainer.TRLTrainer(method="sft", config={{**COMMON, "max_length": 64, "max_steps": 120}}, lora=LORA, **NODES),
    checkpoint=trainer.CheckpointPolicy(steps=20, grace=60, keep=2), wait_for="running",
)"""


TORCHTUNE = """job(
    "{name}", "chat",
    trainer.TorchTuneTrainer(
        recipe="full_finetune_distributed", base="llama2/7B_full",
        config={{**TUNE, "model": {{"_component_": "torchtune.models.llama2.llama2", **TINY}}, "dataset": CHAT, "epochs": 6}},
        **NODES,
    ),
    checkpoint=trainer.CheckpointPolicy(keep=2), wait_for="running",
)"""


def checkpoints(project: Project, name: str) -> list[Path]:
    return list(project.root.glob(f"volumes/*/{name}-*/data/*/checkpoints/checkpoint-*/trainer_state.json"))


def test_it_resumes_after_sigterm_and_after_a_killed_rank(train: Callable[..., Project]) -> None:
    names = ("whole", "stopped", "killed")
    project = train(*(JOB.format(name=name) for name in names))
    eventually(lambda: checkpoints(project, "stopped"), SECONDS)
    os.kill(bootstrap_of(project, 1, "stopped").pid, signal.SIGTERM)
    eventually(lambda: checkpoints(project, "killed"), SECONDS)
    rank_of(project, 1, "killed").kill()
    ended = {name: eventually(lambda n=name: end_of(project, n), SECONDS) for name in names}
    expected = Path(ended["whole"].output, "adapter_model.safetensors").read_bytes()
    for name, status in ended.items():
        logs = project.logs(f"{name}-")
        assert (status.phase, status.restarts) == ("Succeeded", int(name != "whole")), (status, logs[-3000:])
        starts = [int(step) for step in re.findall(r"world size 2, from step (\d+) to 120", logs)]
        assert starts[0] == 0 and all(starts[1:]) and len(starts) == status.restarts + 1, starts
        assert Path(status.output, "adapter_model.safetensors").read_bytes() == expected
    logs = project.logs("stopped-")
    (stop,) = set(re.findall(r"stops at step (\d+) of 120", logs))
    assert f"from step {stop} to 120" in logs, "no step is done twice"


@pytest.mark.parametrize(
    ("job", "rate", "metric", "steps"),
    [
        (JOB.replace("120", "300"), ("COMMON", "learning_rate"), "learning_rate", 300),
        (TORCHTUNE, ("TUNE", "optimizer.lr"), "lr", 48),
    ],
    ids=["trl", "torchtune"],
)
def test_a_corrected_learning_rate_is_that_of_the_steps_that_follow(
    job: str, rate: tuple[str, str], metric: str, steps: int, train: Callable[..., Project]
) -> None:
    """The rates are those that the tool's own log has."""

    def job_with(value: str) -> str:
        fields, name = rate
        return job.format(name="rate").replace(f"{{**{fields}, ", f'{{**{fields}, "{name}": {value}, ', 1)

    project = train(job_with("5e-3"))
    saved = project.root / "volumes" / "default"
    eventually(lambda: [*saved.glob("rate-*/data/*/checkpoints/[cs]*-*/.complete")], SECONDS)
    run_cli(project, "stop", "rate")
    eventually(lambda: end_of(project, "rate"), SECONDS)
    train(job_with("1e-5"))
    assert eventually(lambda: end_of(project, "rate"), SECONDS).phase == "Succeeded"
    one, two = json.loads(run_cli(project, "runs", "rate", "-o", "json"))
    assert two["parent"] == one["id"] and 0 < two["resumedFrom"] == steps - two["steps"] < steps
    assert "the learning rate is 1e-05, and not that of the checkpoint, 0.005\n" in project.logs("rate-")
    points = [float(point["value"]) for point in two["history"][metric]]
    assert points and max(points) <= 1e-5 and float(one["metrics"][metric]["first"]) > 1e-3, points
    card = Path(project.job("rate-").output, "README.md").read_text()
    assert f"| Run | {two['id']} |\n" in card and f"| Steps | {two['resumedFrom'] + 1} to {steps} |\n" in card


def test_torchtune_resumes_after_its_last_epoch(train: Callable[..., Project]) -> None:
    project = train(*(TORCHTUNE.format(name=name) for name in ("whole", "stopped")))
    eventually(lambda: epochs(project, "stopped-"), SECONDS)
    os.kill(bootstrap_of(project, 1, "stopped").pid, signal.SIGTERM)
    ended = {name: eventually(lambda n=name: end_of(project, n), SECONDS) for name in ("whole", "stopped")}
    expected = Path(ended["whole"].output, "model-00001-of-00001.safetensors").read_bytes()
    for name, status in ended.items():
        logs = project.logs(f"{name}-")
        assert (status.phase, status.restarts) == ("Succeeded", int(name != "whole")), (status, logs[-3000:])
        starts = [int(step) for step in re.findall(r"world size 2, from step (\d+) to 48", logs)]
        assert starts[0] == 0 and len(starts) == status.restarts + 1, starts
        assert all(step and step % 8 == 0 for step in starts[1:]), starts
        assert status.progress["checkpoint"]["step"] == 40 and len(epochs(project, f"{name}-")) == 2
        assert Path(status.output, "model-00001-of-00001.safetensors").read_bytes() == expected


def epochs(project: Project, name: str) -> list[Path]:
    return list(project.root.glob(f"volumes/*/{name}*/data/*/checkpoints/step-*/recipe_state/recipe_state.pt"))


def rank_of(project: Project, node: int, job: str) -> psutil.Process:
    found = []
    for process in project.processes("main.py"):
        env = process.environ()
        if "RANK" in env and f"{job}-" in env["PULUMI_TRAINER_JOB"] and f"-node-0-{node}" in env["PULUMI_TRAINER_JOB"]:
            found.append(process)
    return min(found, key=lambda each: each.pid)


def end_of(project: Project, name: str) -> Any:
    status = project.job(f"{name}-")
    return status if status and status.terminal else None
