"""What we say that Kueue decides, beside what the real one has decided: recorded by `tests.bench.contention --record`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.cycles import Scheduler
from pulumi_trainer.provider.kueue.scheduling.snapshot import take_snapshot

from tests.bench.contention import KINDS, Result, SetUp, expected

CASES = [json.loads(line) for line in (Path(__file__).parent / "kueue_decisions.jsonl").read_text().splitlines()]


def test_the_cases_have_each_kind_of_decision() -> None:
    assert sum(bool(case["result"]["preempted"]) for case in CASES) >= 20
    assert sum(case["result"]["flavors"] is None for case in CASES) >= 5
    assert any(case["result"]["fair"] for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["last"]["metadata"]["namespace"])
def test_the_decision_is_that_of_the_real_kueue(case: dict[str, Any]) -> None:
    made = SetUp("case", [(None, document) for document in case["objects"]])  # type: ignore[misc]
    said, _ = expected(made, case["workloads"], case["last"], fair=case["result"]["fair"])
    flavors = case["result"]["flavors"]
    assert said == Result(None if flavors is None else tuple(flavors), tuple(case["result"]["preempted"]))


@pytest.mark.parametrize("case", CASES[:10], ids=lambda case: case["last"]["metadata"]["namespace"])
def test_a_simulation_leaves_no_usage_behind(case: dict[str, Any]) -> None:
    known = Queues(tuple(case["objects"]), KINDS)
    snapshot, waiting = take_snapshot(known, case["workloads"])
    scheduler = Scheduler(snapshot, waiting)
    scheduler.run()
    for queue in list(snapshot.running.values()):
        for contender in list(queue.values()):
            snapshot.remove(contender)
    nodes = [*snapshot.tree.queues.values(), *snapshot.tree.cohorts.values()]
    assert not any(any(node.own.values()) for node in nodes)
