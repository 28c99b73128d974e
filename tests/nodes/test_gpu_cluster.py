"""The code of examples/gpu-cluster, on two real nodes without GPUs; tests/cluster has the whole of it on simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .examples import PATIENCE, Example


def test_it_learns_and_goes_on_after_its_checkpoint(examples: Callable[[str], Example], tmp_path: Path) -> None:
    project = examples("gpu-cluster")
    for key, value in {"gpus": 0, "nodes": 2, "batch": 8, "width": 64, "steps": 10}.items():
        project.config(key, str(value))
    project.up()
    first = project.outputs()["metrics"]
    assert first["step"] == "10/10" and project.outputs()["phase"] == "Succeeded"
    project.config("steps", "20")
    project.up()
    assert project.outputs()["metrics"]["step"] == "20/20"
    log = tmp_path / "log"
    assert project.follow("sorter", log).wait(PATIENCE) == 0
    printed = log.read_text()
    for rank in (0, 1):
        assert f"rank {rank} of world size 2 on cpu" in printed and f"rank {rank} goes on after step 10" in printed
    project.destroy()
