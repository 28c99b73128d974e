"""Attempts of a job, steps that were done again, and goodput."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.jobs.attempts import (
    MOST_ATTEMPTS,
    Attempt,
    Attempts,
    bounded,
    furthest,
    goodput,
    read_attempts,
)
from pulumi_trainer.provider.jobs.status import JobStatus


def run(attempts: Attempts, begun: float, reports: dict[int, float], ended: float, cause: str = "Terminated") -> None:
    attempts.begin(begun)
    for step, at in reports.items():
        attempts.report(step, at)
    attempts.end(ended, cause)


def test_steps_after_a_checkpoint_are_done_again() -> None:
    attempts = Attempts([])
    run(attempts, 100.0, {0: 102.0, 10: 112.0, 20: 122.0}, 124.0)
    run(attempts, 134.0, {15: 136.0, 25: 146.0, 35: 156.0}, 156.0, "Succeeded")
    first, second = attempts.all
    assert (first.number, first.first, first.last, first.redone, first.repeating) == (1, 0, 20, 0, 0.0)
    assert (second.number, second.first, second.last, second.redone) == (2, 15, 35, 5)
    assert second.repeating == pytest.approx(5.0), "interpolated between two reports"
    found = goodput(attempts.all, 156.0)
    assert found is not None and found.exact and found.redone == 5
    assert found.share == pytest.approx((24.0 + 22.0 - 5.0) / 56.0)
    assert str(found) == "73%: 41s of training in 56s; 5 steps done again (5s)"


def test_an_attempt_that_does_not_catch_up_redoes_what_it_has_reported() -> None:
    attempts = Attempts([])
    run(attempts, 1.0, {0: 1.0, 100: 101.0}, 101.0)
    run(attempts, 101.0, {50: 101.0, 60: 111.0}, 111.0)
    run(attempts, 111.0, {50: 111.0, 100: 161.0, 110: 171.0}, 171.0)
    assert [(each.redone, each.repeating) for each in attempts.all] == [(0, 0.0), (10, 10.0), (50, 50.0)]
    assert furthest(attempts.all) == 110


def test_no_step_is_redone_after_a_checkpoint_at_the_end() -> None:
    attempts = Attempts([])
    run(attempts, 1.0, {0: 1.0, 20: 21.0}, 21.0)
    run(attempts, 22.0, {20: 23.0, 30: 33.0}, 33.0)
    assert attempts.all[1].redone == 0 and attempts.all[1].repeating == 0.0


def test_what_ends_the_pods_explains_the_end() -> None:
    attempts = Attempts([])
    attempts.begin(1.0)
    attempts.begin(2.0)
    attempts.explain("Suspended", "by ann", running=True)
    attempts.explain("Stopped", running=True)
    attempts.end(3.0, "ProgramError", "exit code 143")
    attempts.end(4.0, "ProgramError")
    attempts.explain("Stopped")
    assert attempts.all == [Attempt(1, 1.0, 3.0, "Suspended", "by ann")]
    attempts.begin(5.0)
    attempts.end(6.0, "ProgramError", "exit code 143")
    attempts.explain("Suspended", running=True)
    attempts.explain("Terminated", "SIGTERM")
    assert attempts.all[1] == Attempt(2, 5.0, 6.0, "Terminated", "SIGTERM")


def test_a_running_attempt_counts_until_now() -> None:
    found = goodput([Attempt(1, 10.0, 20.0, "Terminated"), Attempt(2, 30.0)], 40.0)
    assert found is not None and not found.exact
    assert found.share == pytest.approx(20 / 30)
    assert str(found) == "at most 67%: 20s of training in 30s; how many steps were done again is not known"


@pytest.mark.parametrize(
    "attempts", [[], [Attempt(1, cause="Preempted")], [Attempt(1, 10.0, cause="Evicted"), Attempt(2, 20.0)]]
)
def test_goodput_is_not_known_without_all_times(attempts: list[Attempt]) -> None:
    assert goodput(attempts, 40.0) is None


def test_old_attempts_become_one_entry_with_the_same_goodput() -> None:
    attempts = [Attempt(i + 1, 10.0 * i + 1, 10.0 * i + 8, "Terminated", "", i, i + 1, 1, 0.5) for i in range(250)]
    kept: list[Attempt] = []
    for each in attempts:
        kept = bounded([*kept, each])
    assert len(kept) == MOST_ATTEMPTS
    assert (kept[0].number, kept[0].count, kept[0].redone) == (151, 151, 151)
    whole, less = goodput(attempts, 2500.0), goodput(kept, 2500.0)
    assert whole is not None and less is not None and whole.share == pytest.approx(less.share)


@pytest.mark.parametrize(
    "given",
    [
        None,
        3,
        "x",
        [3],
        [{"number": "1", "started": "soon", "first": -1, "cause": 5, "later": 1}],
        [{"started": float("nan")}],
        [{"started": 10**400, "finished": 1e300, "repeating": float("inf")}],
        [{"first": 1 << 63, "number": 10**30}],
    ],
)
def test_attempts_of_any_json_are_read(given: Any) -> None:
    assert all(each == Attempt(1, cause=each.cause) for each in read_attempts(given))


def test_a_status_keeps_its_attempts() -> None:
    status = JobStatus("a", "b", attempts=[Attempt(1, 2.0, 3.0, "Preempted", "by c", 1, 2, 0)], checkpoints=True)
    assert JobStatus.from_dict(status.to_dict()) == status
    assert JobStatus.from_dict({"name": "a", "namespace": "b"}).attempts == []


def test_a_job_that_fails_ends_its_attempt() -> None:
    status = JobStatus("a", "b", attempts=[Attempt(1, 2.0)])
    status.fail("SupervisorLost", "gone", 9.0)
    assert status.attempts == [Attempt(1, 2.0, 9.0, "SupervisorLost")]
