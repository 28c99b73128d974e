"""What a job is doing, and the status that Trainer's controller writes. The s-* golden cases hold the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.trainer.job_status import derive_phase, exceeded_deadline, train_job_status

NOW = 1_800_000_000.0
THEN = "2026-01-02T03:04:05Z"


def condition(type_: str, status: str = "True", reason: str = "Why", message: str = "words") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": THEN}


def jobset(*conditions: dict[str, Any], steps: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": list(conditions), "replicatedJobsStatus": steps or []}
    return {"kind": "JobSet", "metadata": {"name": "job"}, "spec": spec, "status": status}


def train_job(*conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status = {"status": {"conditions": list(conditions)}} if conditions else {}
    return {"kind": "TrainJob", "metadata": {"name": "job"}, "spec": spec, **status}


def status(job: dict[str, Any], of: dict[str, Any] | None, created: float = NOW) -> dict[str, Any]:
    before = copy.deepcopy((job, of))
    found = train_job_status(job, of, created=created, now=NOW)
    assert (job, of) == before
    return found


QUEUED = {"metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
READY = [{"name": "node", "ready": 1, "active": 2}]


@pytest.mark.parametrize(
    ("of", "job", "phase", "reason"),
    [
        (jobset(condition("Completed")), None, "Succeeded", "Why"),
        (jobset(condition("Failed")), None, "Failed", "Why"),
        (jobset(condition("Completed"), condition("Failed", reason="Both")), None, "Failed", "Both"),
        (jobset(condition("Completed", "False")), None, "Pending", ""),
        (None, train_job(condition("Failed", reason="DeadlineExceeded")), "Failed", "DeadlineExceeded"),
        (None, train_job(condition("Complete")), "Succeeded", "Why"),
        (None, train_job(), "Pending", ""),
        (None, None, "Pending", ""),
        (None, train_job(condition("Suspended"), suspend=True), "Suspended", "Why"),
        (jobset(suspend=True), None, "Suspended", ""),
        (jobset(condition("Suspended"), suspend=True) | QUEUED, None, "Queued", "Why"),
        (jobset(suspend=False) | QUEUED, None, "Admitted", ""),
        (None, train_job() | QUEUED, "Pending", ""),
        (jobset(condition("RestartingJobSet"), steps=READY), None, "Restarting", "Why"),
        (jobset(steps=READY), None, "Running", ""),
        (jobset(steps=[{"name": "node", "active": 2}]), None, "Starting", ""),
        (jobset(steps=[{"name": "a", "succeeded": 1}, {"name": "node"}]), None, "Starting", ""),
        (jobset(condition("StartupPolicyInProgress")), None, "Starting", "Why"),
        (jobset(condition("StartupPolicyInProgress", "False")), None, "Pending", ""),
        ({"kind": "JobSet"}, {"kind": "TrainJob"}, "Pending", ""),
        ({"spec": 1, "metadata": [], "status": {"conditions": 3, "replicatedJobsStatus": ["x"]}}, None, "Pending", ""),
        ({"status": {"conditions": ["x"], "replicatedJobsStatus": 3}}, {"status": 3, "spec": []}, "Pending", ""),
    ],
)
def test_phase(of: Any, job: Any, phase: str, reason: str) -> None:
    found = derive_phase(of, job)
    assert (found.phase, found.reason) == (phase, reason)
    assert bool(found.message) == bool(reason)


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    before = condition("Suspended", reason="Suspended", message="TrainJob is suspended")
    assert status(train_job(before, suspend=True), jobset())["conditions"] == [before]
    assert status(train_job(before), jobset())["conditions"][0]["lastTransitionTime"] != THEN


def test_an_outcome_without_a_time_is_of_now() -> None:
    for time in (None, "yesterday"):
        found = status(train_job(), jobset({**condition("Completed"), "lastTransitionTime": time}))
        assert found["conditions"][0]["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_what_others_write_stays() -> None:
    progress = {"trainerStatus": {"progressPercentage": 5}}
    assert status({**train_job(), "status": progress}, jobset()) == progress


def test_the_clock_starts_anew_on_resume() -> None:
    resumed = condition("Suspended", "False") | {"lastTransitionTime": "2027-01-15T07:59:50Z"}
    assert not exceeded_deadline({"status": status(train_job(resumed, activeDeadlineSeconds=60), jobset(), NOW - 600)})
    resumed["lastTransitionTime"] = "2027-01-15T07:58:50Z"
    assert exceeded_deadline({"status": status(train_job(resumed, activeDeadlineSeconds=60), jobset(), NOW)})


def test_a_finished_job_has_no_deadline() -> None:
    found = status(train_job(condition("Complete"), activeDeadlineSeconds=60), None, 0)
    assert [c["type"] for c in found["conditions"]] == ["Complete"]


def test_a_deadline_stays_the_reason_whatever_the_jobset_says() -> None:
    ended = condition("Failed", reason="DeadlineExceeded", message="TrainJob exceeded its active deadline")
    found = status(train_job(ended), jobset(condition("Failed", reason="FailedJobs")))
    assert found["conditions"] == [ended]
    assert exceeded_deadline({"status": found})
    other = status(train_job(condition("Failed", reason="Old")), jobset(condition("Failed", reason="FailedJobs")))
    assert other["conditions"][0]["reason"] == "FailedJobs"
