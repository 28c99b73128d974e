"""examples/preemptible, as a user runs it: Kueue preempts a job on real nodes, and it goes on from its checkpoint."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.queue_lab import with_plugin
from tests.engine.conftest import eventually
from tools.cluster import Cluster

from .examples import Example

PATIENCE = 240.0
STEPS = 600


@pytest.fixture
def preemptible(examples: Callable[[str], Example], cluster: Cluster) -> Iterator[Example]:
    """With the administrator's kubeconfig, as its queues are objects of the whole cluster; a second try meets none of them."""
    made = examples("preemptible")
    made.env = {"PATH": with_plugin()}
    made.config("trainer:kubeconfig", str(cluster.kubeconfig))
    made.config("steps", str(STEPS))
    yield made
    made.run("destroy", "--yes", "--skip-preview")


def run(example: Example, *args: str) -> str:
    argv = ["pulumi-trainer", *args, "-s", example.stack]
    done = subprocess.run(argv, cwd=example.folder, env=example.environment, capture_output=True, text=True, check=True)
    return done.stdout


def job(example: Example, name: str = "background") -> dict[str, Any]:
    entries = json.loads(run(example, "status", "-o", "json"))
    return dict(next(entry for entry in entries if entry["name"].startswith(name)))


def starts(example: Example) -> list[int]:
    return [int(step) for step in re.findall(r"node 0 starts at step (\d+)", run(example, "logs", "background"))]


def test_its_three_commands(preemptible: Example) -> None:
    preemptible.up()
    eventually(lambda: (job(preemptible).get("progress") or {}).get("progressPercentage", 0) > 5, PATIENCE)
    before = {pod.metadata.uid for pod in preemptible.pods("background")}
    preemptible.config("urgent", "true")
    preemptible.up()
    assert job(preemptible, "urgent")["phase"] == "Succeeded", "up waits for it; what the CLI shows last is chance"
    eventually(lambda: job(preemptible)["phase"] == "Running" and starts(preemptible), PATIENCE)
    assert not before & {pod.metadata.uid for pod in preemptible.pods("background")}
    (step,) = starts(preemptible)
    assert step > 0, "it goes on, and does not begin anew"
    found = eventually(lambda: s if (s := job(preemptible))["phase"] in ("Succeeded", "Failed") else None, PATIENCE)
    assert found["phase"] == "Succeeded", found
    assert f"node 0 stops at step {STEPS}, sum {STEPS * (STEPS - 1) // 2}" in run(preemptible, "logs", "background")
    (jobset,) = (j for j in preemptible.jobsets() if j["metadata"]["name"].startswith("background"))
    assert not jobset["status"].get("restartsCountTowardsMax")
    preemptible.destroy()
