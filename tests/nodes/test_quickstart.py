"""The quickstart's program, unchanged, on two real nodes: it trains in pods, over their network, with data in a volume."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.conftest import eventually
from tests.engine.test_examples import epochs

from .examples import PATIENCE, Example, plain

RUNTIME = """
runtime = trainer.ClusterTrainingRuntime(
    "torch-restarts",
    ml_policy=trainer.TorchPolicy(),
    template=trainer.JobSetTemplate(
        failure_policy=trainer.FailurePolicy(max_restarts=3),
        replicated_jobs=[trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
            "restart_policy": "Never", "termination_grace_period_seconds": 2,
            "containers": [{"name": "node", "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"}],
        })],
    ),
)
"""
"""Instead of one that leaves the failure of a pod to its Job."""


@pytest.fixture
def quickstart(examples: Callable[[str], Example]) -> Example:
    return examples("quickstart")


def test_it_trains_in_pods_on_two_nodes(quickstart: Example, tmp_path: Path) -> None:
    quickstart.edit("{len(mine)} samples", "samples {sorted(mine.tolist())}")
    up = quickstart.up()
    assert "Succeeded" in up.out
    outputs = quickstart.outputs()
    assert outputs["phase"] == "Succeeded" and float(outputs["accuracy"]) >= 0.95 and outputs["seconds"] > 0
    pods = quickstart.pods("classifier")
    assert {p.spec.node_name for p in pods} == {"node1", "node2"}
    log = tmp_path / "log"
    assert quickstart.follow("classifier", log).wait(PATIENCE) == 0
    printed = plain(log.read_text())
    shards = {
        int(r): set(json.loads(s)) for r, s in re.findall(r"rank (\d) of world size 2: samples (\[.*?\])", printed)
    }
    assert shards.keys() == {0, 1} and not shards[0] & shards[1] and len(shards[0]) == len(shards[1]) > 700
    checksums = dict(re.findall(r"rank (\d): parameters (\S+)", printed))
    assert checksums.keys() == {"0", "1"} and checksums["0"] == checksums["1"]
    assert epochs(printed) == list(range(1, 41))
    assert "unchanged" in quickstart.up().out and quickstart.outputs() == outputs
    quickstart.destroy()
    eventually(lambda: not quickstart.pods(), PATIENCE)
    assert not quickstart.core.list_namespaced_persistent_volume_claim(quickstart.namespace).items


def test_a_killed_rank_restarts_the_jobset_which_goes_on_after_the_last_epoch(
    quickstart: Example, tmp_path: Path
) -> None:
    quickstart.edit('runtime = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")', RUNTIME)
    quickstart.edit('"epochs": 40', '"epochs": 100_000')
    quickstart.edit('wait_for="complete"', 'wait_for="running"')
    quickstart.up()
    before = {p.metadata.uid for p in quickstart.pods("classifier")}
    log = tmp_path / "log"
    follower = quickstart.follow("classifier", log)
    try:
        eventually(lambda: len(epochs(plain(log.read_text()))) > 5, PATIENCE)
        rank_one(quickstart.pods("classifier")).send_signal(signal.SIGKILL)
        eventually(lambda: len(training(quickstart.pods("classifier"), before)) == 2, PATIENCE)
        seen = len(epochs(plain(log.read_text())))
        eventually(lambda: len(epochs(plain(log.read_text()))) > seen + 5, PATIENCE, log.read_text())
    finally:
        follower.kill()
        follower.wait()
    (jobset,) = [j for j in quickstart.jobsets() if j["metadata"]["name"].startswith("classifier")]
    assert jobset["status"]["restarts"] == 1
    done = epochs(plain(log.read_text()))
    assert done == list(range(1, len(done) + 1)), "an epoch is lost, or trained again"
    quickstart.destroy()


def rank_one(pods: list[Any]) -> psutil.Process:
    """The process of rank 1, in its pod; other clusters may run on this machine."""
    mine = {p.metadata.uid for p in pods}
    for process in psutil.process_iter():
        try:
            if process.environ().get("RANK") == "1" and mine & set(re.findall(r"pod([0-9a-f-]{36})", cgroup(process))):
                return process
        except (psutil.Error, OSError):
            continue
    pytest.fail("rank 1 does not run")


def cgroup(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/cgroup").read_text()


def training(pods: list[Any], before: set[str]) -> list[Any]:
    """New pods that run."""
    return [p for p in pods if p.metadata.uid not in before and p.status.phase == "Running"]
