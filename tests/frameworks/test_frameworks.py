"""Every framework trains, its ranks together: each sees its own part of the data, and all end with the same model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conftest import Project

from .conftest import EXAMPLES

NAMES = ("deepspeed", "fsdp2", "jax", "mlx", "mpi", "paddle", "plain", "tensorflow", "xgboost")
SECONDS = 900
"""Time for the first `up`, which may have to download packages."""

pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.fixture(params=NAMES)
def trained(request: pytest.FixtureRequest, example: Callable[[str], Project]) -> tuple[str, Project]:
    project = example(request.param)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs(request.param)}"
    return request.param, project


def found(pattern: str, logs: str) -> dict[str, str]:
    """Rank -> what it says."""
    said = re.findall(pattern, logs)
    assert len(said) == len(dict(said)), said  # each rank once: nobody has trained twice
    return dict(said)


def members(mask: str) -> set[int]:
    number = int(mask, 16)
    return {i for i in range(number.bit_length()) if number >> i & 1}


def test_it_trains(trained: tuple[str, Project]) -> None:
    name, project = trained
    outputs, logs = project.outputs(), project.logs(name)
    assert outputs["phase"] == "Succeeded", logs
    assert float(outputs["metrics"]["accuracy"]) >= ACCURACY[name], outputs
    masks = found(r"(?:rank|node) (\d)(?: of \d)?: samples ([0-9a-f]+)", logs)
    shards = {rank: members(mask) for rank, mask in masks.items()}
    together = set[int]().union(*shards.values())
    assert shards.keys() == RANKS.get(name, {"0", "1"}) and len(together) == sum(map(len, shards.values())), logs
    assert len(together) >= SAMPLES[name]
    TOGETHER[name](project, outputs["metrics"], logs)

    uids = {s.name: s.uid for s in project.target.jobs.list_all()}
    again = project.up()
    assert "unchanged" in again.out and "created" not in again.out and "replaced" not in again.out
    assert {s.name: s.uid for s in project.target.jobs.list_all()} == uids and project.outputs() == outputs
    project.destroy()
    assert not project.target.jobs.list_all() and not project.processes()


def the_same_model(logs: str, word: str = "parameters", ranks: str = "01") -> None:
    models = found(rf"rank (\d): {word} (\S+)", logs)
    assert models.keys() == {*ranks} and len({*models.values()}) == 1, models


def sums_up(metrics: dict[str, Any], logs: str) -> None:
    """Both ranks know the sum of all ranks, which neither has alone."""
    sums = found(r"rank (\d) of world size 2: .*ranks sum up to (\d+)", logs)
    assert sums == {"0": "3", "1": "3"} and str(metrics["everyone"]) == "3", logs


def jax(project: Project, metrics: dict[str, Any], logs: str) -> None:
    sums_up(metrics, logs)
    the_same_model(logs)
    assert found(r"rank (\d) of world size 2: (\d+) devices", logs) == {"0": "2", "1": "2"}


def xgboost(project: Project, metrics: dict[str, Any], logs: str) -> None:
    sums_up(metrics, logs)
    the_same_model(logs, "model")


def mpi(project: Project, metrics: dict[str, Any], logs: str, job: str = "mpi") -> None:
    sums_up(metrics, logs)
    the_same_model(logs)
    nodes = found(r"rank (\d) of world size 2: on (\S+),", logs)
    assert sorted(re.sub(rf"^{job}-[0-9a-f]+-", "", node) for node in nodes.values()) == ["launcher-0-0", "node-0-0"]


def mlx(project: Project, metrics: dict[str, Any], logs: str) -> None:
    mpi(project, metrics, logs, "mlx")
    assert float(metrics["loss"]) < 0.05


def deepspeed(project: Project, metrics: dict[str, Any], logs: str) -> None:
    """Each rank optimizes a quarter of the model."""
    held = found(r"rank (\d) of world size 4: optimizes (\d+) of 9610 parameters", logs)
    assert held.keys() == RANKS["deepspeed"] and {int(part) for part in held.values()} <= {*range(2400, 2420)}, held
    the_same_model(logs, ranks="0123")
    assert float(metrics["loss"]) < 0.05


def fsdp2(project: Project, metrics: dict[str, Any], logs: str) -> None:
    """No rank holds more than half of the model that both can put together."""
    held = found(r"rank (\d) of world size 2: holds (\d+ of \d+) parameters", logs)
    parts = {rank: [int(n) for n in text.split(" of ")] for rank, text in held.items()}
    assert parts.keys() == {"0", "1"} and parts["0"][0] + parts["1"][0] == parts["0"][1] == parts["1"][1], held
    assert 0.45 < parts["0"][0] / parts["0"][1] < 0.55
    the_same_model(logs)


def plain(project: Project, metrics: dict[str, Any], logs: str) -> None:
    """The vote of both is better than either alone."""
    alone = found(r"node (\d): alone it has accuracy (\S+)", logs)
    assert alone.keys() == {"0", "1"} and float(metrics["accuracy"]) >= max(map(float, alone.values()))
    assert str(metrics["voters"]) == "2"


def data_parallel(project: Project, metrics: dict[str, Any], logs: str) -> None:
    sums_up(metrics, logs)
    the_same_model(logs)


TOGETHER = {
    "deepspeed": deepspeed,
    "fsdp2": fsdp2,
    "jax": jax,
    "mlx": mlx,
    "mpi": mpi,
    "paddle": data_parallel,
    "plain": plain,
    "tensorflow": data_parallel,
    "xgboost": xgboost,
}
ACCURACY = {**dict.fromkeys(NAMES, 0.95), "fsdp2": 0.98, "mpi": 0.93}
SAMPLES = {**dict.fromkeys(NAMES, 1436), "fsdp2": 9000}
RANKS = {"deepspeed": {*"0123"}}
"""An example with other ranks than 0 and 1."""


@pytest.mark.parametrize("stage", ["1", "3"])
def test_other_stages_of_zero_train_too(example: Callable[[str], Project], stage: str) -> None:
    project = example("deepspeed")
    project.config("stage", stage)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('deepspeed')}"
    deepspeed(project, project.outputs()["metrics"], project.logs("deepspeed"))
    project.destroy()


@pytest.mark.parametrize("name", NAMES)
def test_it_previews_for_a_cluster_without_one(name: str, example: Callable[[str], Project]) -> None:
    project = example(name)
    project.config("trainer:target", "kubernetes")
    preview = project.preview("--diff").out
    for word in ("replicatedJobs", *IN_A_CLUSTER[name]):
        assert word in preview, word


IN_A_CLUSTER = {
    "deepspeed": ("/usr/sbin/sshd", "mpi-ssh-auth", "slots=2", "DS_ACCELERATOR"),
    "fsdp2": ("PET_NNODES", "torchrun"),
    "jax": ("JAX_COORDINATOR_ADDRESS",),
    "mlx": ("/usr/sbin/sshd", "mpi-ssh-auth", "slots=1"),
    "mpi": ("/usr/sbin/sshd", "OMPI_MCA_orte_default_hostfile", "mpi-ssh-auth", "slots=1"),
    "paddle": ("/etc/paddle", "paddle.distributed.launch", "TRAINER_CHECKPOINT_DIR"),
    "plain": ("TRAINER_OUTPUT_DIR",),
    "tensorflow": ("/etc/tensorflow", "TRAINER_CHECKPOINT_DIR"),
    "xgboost": ("DMLC_TRACKER_URI",),
}


def test_every_example_is_run_and_short() -> None:
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()) == sorted(NAMES)
    for name in NAMES:
        lines = (EXAMPLES / name / "__main__.py").read_text().splitlines()
        assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 60, name
