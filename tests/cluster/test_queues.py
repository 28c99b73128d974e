"""Kueue's objects as resources of a program, on a real control plane with Kueue and its webhooks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .queue_lab import Lab, lab_on


@pytest.fixture
def lab(tmp_path: Path, pulumi_home: Path, cluster: Any, namespace: str) -> Iterator[Lab]:  # noqa: F811
    yield lab_on(tmp_path / "lab", pulumi_home, Path(cluster.kubeconfig), namespace)


SET = """
queues = trainer.GpuQueues(
    "{name}", teams={{team: trainer.Team(gpus=4, namespace="{namespace}") for team in {teams}}},
    priorities=["{name}-low", "{name}-normal", "{name}-high"], {more}
)
pulumi.export("quotas", queues.quotas)
pulumi.export("table", queues.table)
"""


def test_ten_teams_are_made_and_go_without_a_trace(lab: Lab) -> None:
    teams = [f"t{i}" for i in range(10)]
    lab.program(lab.text(SET, teams=teams))
    begun = time.monotonic()
    made = lab.up()
    print("up", time.monotonic() - begun)
    assert lab.count() == {
        "ResourceFlavor": 1,
        "Cohort": 1,
        "ClusterQueue": 10,
        "LocalQueue": 10,
        "WorkloadPriorityClass": 3,
    }
    lab.preview("--expect-no-changes", "--refresh")
    assert lab.outputs()["quotas"][3]["team"] == "t3"
    begun = time.monotonic()
    lab.destroy()
    print("down", time.monotonic() - begun)
    assert lab.count() == {}
    del made
