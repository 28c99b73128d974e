"""What a job would lose if it were stopped now."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.progress import progress, timestamp, with_kept
from pulumi_trainer.provider.jobs.runs import Identity
from pulumi_trainer.provider.jobs.status import JobStatus, describe
from pulumi_trainer.provider.lifecycle.interruption_cost import interruption_cost

NOW = 1_800_000_000.0


def status(reported: dict[str, Any] | None, **known: Any) -> JobStatus:
    found = None if reported is None else {"lastUpdatedTime": timestamp(NOW - 1), **reported}
    return JobStatus("long", "default", **{"phase": "Running", "started": NOW - 600, "progress": found, **known})


def saved(step: int, ago: float) -> dict[str, Any]:
    return {"step": step, "time": timestamp(NOW - ago)}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            status({"step": 5012, "checkpoint": saved(4800, 185)}),
            "would lose at most 212 steps (3m05s) since the checkpoint of step 4,800",
        ),
        (
            status({"step": 4801, "checkpoint": saved(4800, 2)}),
            "would lose at most 1 step (2s) since the checkpoint of step 4,800",
        ),
        (
            status({"step": 4800, "checkpoint": saved(4800, 0)}),
            "would lose at most 0 steps since the checkpoint of step 4,800",
        ),
        (
            status({"step": 4800, "checkpoint": saved(4800, 5)}),
            "would lose at most 5s since the checkpoint of step 4,800",
        ),
        (
            status({"step": 30, "checkpoint": saved(20, 9000)}, attempts=[Attempt(1, 1.0, 2.0), Attempt(2, NOW - 60)]),
            "would lose at most 10 steps (1m00s) since the checkpoint of step 20",
        ),
        (
            status({"step": 1500}, checkpoints=True),
            "would lose all 1,500 steps (10m00s) if it saves nothing when it is stopped: it has reported no checkpoint yet",
        ),
        (status({"step": 1500}), ""),
        (status({"progressPercentage": 40}, checkpoints=True), ""),
        (status(None, checkpoints=True), ""),
        (status({"step": 30, "checkpoint": saved(20, 9)}, phase="Suspended"), ""),
        (status({"step": 30, "lastUpdatedTime": timestamp(NOW - 90)}, attempts=[Attempt(2, NOW - 60)]), ""),
    ],
)
def test_a_stop_loses_what_was_done_since_the_newest_checkpoint(given: JobStatus, text: str) -> None:
    assert str(interruption_cost(given, NOW) or "") == text


@pytest.mark.parametrize(
    ("given", "there", "text"),
    [
        (
            {"step": 52, "checkpoint": saved(40, 60)},
            {40: NOW - 60, 50: NOW - 2},
            "at most 2 steps (2s) since the checkpoint of step 50",
        ),
        (
            {"step": 52, "checkpoint": saved(40, 60)},
            {},
            "all 52 steps (10m00s) if it saves nothing when it is stopped: it has no complete checkpoint yet",
        ),
        (
            {"step": 52, "checkpoint": saved(40, 60)},
            {30: 0.0, 40: 0.0},
            "at most 12 steps (1m00s) since the checkpoint of step 40",
        ),
        ({"step": 52, "checkpoint": saved(40, 60)}, {50: 0.0}, "at most 2 steps since the checkpoint of step 50"),
        ({"step": 48}, {50: NOW - 2}, "at most 2s since the checkpoint of step 50"),
        (
            {"step": 48},
            None,
            "all 48 steps (10m00s) if it saves nothing when it is stopped: it has reported no checkpoint yet",
        ),
    ],
)
def test_checkpoints_that_can_be_read_count_whatever_was_reported(given: Any, there: Any, text: str) -> None:
    loss = interruption_cost(status(given, checkpoints=True), NOW, there)
    assert str(loss) == f"would lose {text}"


def test_a_fork_without_an_own_checkpoint_goes_back_to_the_one_that_it_started_from() -> None:
    for fork, report in (("t4kz1f@40", {"step": 52}), ("t4kz1f", {"step": 52, "resumedFrom": 40})):
        given = status(report, checkpoints=True, identity=Identity(id="t4kz2a", lineage="t4kz2a", fork=fork))
        assert (
            str(interruption_cost(given, NOW, {}))
            == "would lose at most 12 steps (10m00s) since the checkpoint of step 40"
        )


def test_a_program_need_not_repeat_its_checkpoint() -> None:
    first = progress(b'{"trainerStatus": {"step": 4, "checkpoint": {"step": 4, "time": "2026-01-31T12:00:00Z"}}}', NOW)
    assert first is not None and first["checkpoint"] == {"step": 4, "time": "2026-01-31T12:00:00Z"}
    second = progress(b'{"trainerStatus": {"step": 5}}', NOW)
    assert second is not None
    assert with_kept(first, second) == {**first, "step": 5}
    assert with_kept(None, second) == second


def test_a_run_began_where_its_first_attempt_has_resumed() -> None:
    fetched, fresh, resumed = {"progressPercentage": 100}, {"step": 4}, {"step": 300, "resumedFrom": 300}
    assert with_kept(None, resumed) == resumed == {**with_kept(fetched, resumed), "step": 300}
    assert with_kept(fresh, resumed) == {"step": 300}, "an earlier attempt has done them"
    assert with_kept(resumed, {"step": 310, "resumedFrom": 305}) == {"step": 310, "resumedFrom": 300}


@pytest.mark.parametrize(
    ("report", "note"),
    [
        ('"progressPercentage": 100', ""),
        ('"step": 4', ""),
        ('"step": 0', "0 steps were done"),
        ('"step": 0, "progressPercentage": 0', "0 steps were done"),
        ('"step": 300, "progressPercentage": 100', ""),
        ('"step": 300, "resumedFrom": 300, "progressPercentage": 100', "nothing was left to do (0 steps)"),
        (
            '"step": 300, "resumedFrom": 300, "progressPercentage": 50',
            "0 steps were done after the checkpoint of step 300",
        ),
        ('"step": 301, "resumedFrom": 300, "progressPercentage": 100', ""),
        ('"step": 300, "resumedFrom": "300"', ""),
        ('"metrics": []', "no step was reported: whether it trained is not known"),
        ('"metrics": [], "progressPercentage": 0', ""),
        ('"step": 4, "metrics": {"loss": "nan", "acc": "inf"}', "its last loss is NaN"),
        ('"metrics": {"acc": 0.5, "loss": "-inf"}', "its last loss is infinite"),
        ('"metrics": {"grad_norm": "nan", "phase": "nano", "loss": 1e308}', ""),
        ('"step": 0, "metrics": {"loss": "nan"}', "0 steps were done"),
    ],
)
def test_a_run_that_has_succeeded_without_a_step_says_so(report: str, note: str) -> None:
    reported = progress(f'{{"trainerStatus": {{{report}}}}}'.encode(), NOW)
    done = JobStatus("digits", "team", phase="Succeeded", progress=reported)
    assert done.note == note and describe(done).endswith(f", {note}" if note else describe(done))
    assert JobStatus("digits", "team", phase="Running", progress=reported).note == ""
    assert JobStatus("digits", "team", phase="Succeeded").note == "", "nobody knows what it has reported"


def test_an_empty_report_of_a_program_that_starts_hides_no_other() -> None:
    empty, fetched, step = {"metrics": {}}, {"progressPercentage": 100, "metrics": {"bytes": "5"}}, {"step": 4}
    assert with_kept(fetched, empty) == empty, "that was the initializer"
    assert with_kept(step, empty) == step and with_kept(empty, step) == {"step": 4}
    again = JobStatus("digits", "team", phase="Succeeded", progress=empty, restarts=1)
    assert again.note == "", "an earlier attempt may have done all steps"


@pytest.mark.parametrize(
    "given", ['"step": "4"', '"step": true', '"step": -1', '"checkpoint": {"step": 4, "time": "soon"}']
)
def test_steps_and_checkpoints_of_another_type_are_dropped(given: str) -> None:
    assert progress(f'{{"trainerStatus": {{{given}}}}}'.encode(), NOW) is None
