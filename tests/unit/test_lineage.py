"""Ids of runs, which folder a run gets, and which folder has the result of a job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.lineage import (
    ASSIGNED,
    FORKED,
    find_run,
    new_identity,
    rerun_identity,
    result_of,
    with_identity,
)
from pulumi_trainer.provider.jobs.runs import Identity, Run, is_run_id
from pulumi_trainer.provider.kubernetes.errors import Invalid


def run(name: str, phase: str = "Failed", lineage: str = "") -> Run:
    return Run("1", phase, id=name, lineage=lineage or name)


class TestIds:
    def test_later_runs_have_greater_ids_also_within_a_second(self) -> None:
        first = new_identity([], 1_795_000_000.9, Identity(cause="created", place="p"))
        assert first == Identity(id="top2v4", lineage="top2v4", parent="", cause="created", place="p") and is_run_id(
            first.id
        )
        second = new_identity([run(first.id)], 1_795_000_000.9, Identity(cause="changed"))
        assert first.id < second.id == second.lineage

    def test_a_clock_that_went_back_gives_no_id_twice(self) -> None:
        assert new_identity([run("top2v4")], 1_700_000_000, Identity()).id == "top2v5"

    def test_a_run_that_goes_on_keeps_its_id(self) -> None:
        known = Identity(id="top2v4", lineage="top2ua", parent="top2ub", cause="changed", place="p")
        assert new_identity([run("top2v4")], 1_795_000_999, known) == known

    @pytest.mark.parametrize("name", ["../../home", "", "a/b", ".x", "A", "x" * 17, 5, None, ["a"]])
    def test_a_record_cannot_name_a_folder_elsewhere(self, name: Any) -> None:
        found = Identity.from_dict({"id": name, "lineage": name, "parent": name})
        assert (found.id, found.lineage, found.parent) == ("", "", "")


def test_a_rerun_of_a_fork_starts_from_the_same_checkpoint() -> None:
    fork = Identity(id="r", lineage="l", parent="q", cause="changed", place="p", fork="q@20", origin="o")
    for phase, parent, lineage in (("Succeeded", "q", ""), ("Failed", "r", "l")):
        again = rerun_identity(replace(fork, parent="between"), phase, "")
        assert again == Identity(
            id="", lineage=lineage, parent=parent, cause="rerun", place="p", fork="q@20", origin="o"
        )


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Succeeded", "", Identity(cause="rerun", place="p")),
        ("Failed", "FailedJobs", Identity(id="", lineage="l", parent="r", cause="rerun", place="p")),
        ("Failed", "Stopped", Identity(id="r", lineage="l", parent="", cause="created", place="p")),
        ("Failed", "SupervisorLost", Identity(id="r", lineage="l", parent="", cause="created", place="p")),
    ],
)
def test_what_a_rerun_is(phase: str, reason: str, expected: Identity) -> None:
    assert (
        rerun_identity(Identity(id="r", lineage="l", parent="", cause="created", place="p"), phase, reason) == expected
    )


def test_only_the_names_that_a_target_gives_are_replaced() -> None:
    container = {
        "env": [
            {"name": "TRAINER_RUN_ID", "value": ASSIGNED},
            {"name": "TRAINER_CHECKPOINT_FOLDER", "value": f"lab/dev/team/j/{ASSIGNED}"},
            {"name": "MINE", "value": ASSIGNED},
            {"name": "TRAINER_FORK_FOLDER", "value": f"lab/dev/team/j/{FORKED}"},
        ],
        "volumeMounts": [
            {"name": "trainer-output", "subPath": ASSIGNED},
            {"name": "own", "subPath": "mine"},
            {"name": "trainer-output", "subPath": FORKED},
        ],
        "args": [ASSIGNED],
    }
    objects = {"JobSet/j": {"spec": {"containers": [container]}}, "ConfigMap/j-code": {"data": {"subPath": ASSIGNED}}}
    before = json.dumps(objects)
    made = with_identity(objects, Identity(id="run2", lineage="run1", origin="run0"))
    assert json.dumps(objects) == before and made["ConfigMap/j-code"] == objects["ConfigMap/j-code"]
    (found,) = made["JobSet/j"]["spec"]["containers"]
    assert [each["value"] for each in found["env"]] == ["run2", "lab/dev/team/j/run1", ASSIGNED, "lab/dev/team/j/run0"]
    assert [each["subPath"] for each in found["volumeMounts"]] == ["run1", "mine", "run0"] and found["args"] == [
        ASSIGNED
    ]


def test_the_result_is_that_of_the_newest_run_that_has_succeeded() -> None:
    earlier = [run("a", "Succeeded"), run("b", "Succeeded"), run("c", "Failed")]
    for phase, folder in (("Running", "b"), ("Failed", "b"), ("Succeeded", "d")):
        assert result_of("pvc://claim/d", "d", phase, earlier) == f"pvc://claim/{folder}"
    assert result_of("/v/data/d", "d", "Failed", []) == "/v/data/d"
    assert result_of("", "d", "Failed", earlier) == ""
    assert result_of("pvc://own", "d", "Failed", earlier) == "pvc://own", (
        "a volume of the runtime has no folders for runs"
    )


def test_a_run_that_is_not_recorded() -> None:
    assert find_run([run("t4kz1f")], "t4kz1f", "--run").id == "t4kz1f"
    with pytest.raises(Invalid, match=r"no run 't4kz1g' is recorded for this job.*did you mean t4kz1f"):
        find_run([run("t4kz1f")], "t4kz1g", "--run")
