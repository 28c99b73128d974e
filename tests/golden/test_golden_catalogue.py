"""The catalogue's runtimes against upstream's: for the same TrainJob they render what the real Kubeflow Trainer rendered."""

from __future__ import annotations

from typing import Any

import pytest
from golden_cases import CASES, NAMES, expected
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.values.documents import documents
from test_golden import compared

from tests.trainer import default_runtime, default_train_job, render

UPSTREAM = {"flux": "flux-distributed"}
OURS = {
    "llamafactory", "paddle", "plain", "tensorflow", "torchtune-distributed", "torchtune-llama3.3-70b",
    "transformers-distributed", "trl-distributed", "unsloth",
}  # fmt: skip
"""Not in Kubeflow Trainer."""


def upstream(case: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Runtime and TrainJob of a case that is about one of upstream's own runtimes."""
    found = [document.content for document in documents(CASES / case / "input.yaml")]
    if [d["kind"] for d in found] != ["ClusterTrainingRuntime", "TrainJob"]:
        return None
    return found[0], found[1]


def cases() -> list[tuple[str, str]]:
    found = []
    for case in NAMES:
        if case[0] not in "abcde" or not expected(case).get("objects") or not (pair := upstream(case)):
            continue
        for name in runtimes.names():
            ours = runtimes.load(name)
            if pair[0]["metadata"]["name"] == UPSTREAM.get(name, name) and pair[0]["spec"] == ours["spec"]:
                found.append((name, case))
    return found


PAIRS = cases()


def test_every_runtime_of_upstream_is_held_by_a_case() -> None:
    assert {name for name, _ in PAIRS} == set(runtimes.names()) - OURS
    assert {case for _, case in PAIRS if case.startswith("a-")} == {case for case in NAMES if case.startswith("a-")}


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_the_catalogue_renders_the_same(name: str, case: str) -> None:
    pair = upstream(case)
    assert pair is not None
    ours = runtimes.load(name)
    labels = {k: v for k, v in ours["metadata"]["labels"].items() if k != runtimes.RELEASE}
    assert labels == pair[0]["metadata"]["labels"]
    wanted = [expected(case), *expected(case).get("alternatives", [])]
    found = render(default_runtime(ours), default_train_job(pair[1]), mode="trainer").objects.values()
    order = [(o["kind"], o["metadata"]["name"]) for o in wanted[0]["objects"]]
    mine = sorted(found, key=lambda o: order.index((o["kind"], o["metadata"]["name"])))
    assert compared(mine) in [compared(one["objects"]) for one in wanted]
