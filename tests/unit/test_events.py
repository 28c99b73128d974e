"""Events of a job: which belong to it, and what is folded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pulumi_trainer.provider.cli import events as commands
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.events import JobEvent, fold, is_about, object_pattern
from pulumi_trainer.provider.targets.kubernetes.observe import listing

SEEN = JobView(
    "team", "digits", jobset={"spec": {"replicatedJobs": [{"name": "node"}, {"name": "dataset-initializer"}]}}
)


def event(kind: str, name: str, reason: str, message: str = "", at: int = 0, **more: Any) -> dict[str, Any]:
    time = f"2026-11-21T12:00:{at:02}Z"
    about_ = {"involvedObject": {"kind": kind, "name": name}, "source": {"component": "test"}}
    return {
        **about_,
        "reason": reason,
        "message": message,
        "type": "Normal",
        "firstTimestamp": time,
        "lastTimestamp": time,
        **more,
    }


@pytest.mark.parametrize(
    "name",
    [
        "JobSet/digits", "TrainJob/digits", "PodGroup/digits", "Job/digits-node-0", "Job/digits-dataset-initializer-0",
        "Pod/digits-node-0-11-x7k2p", "Workload/jobset-digits-31be3", "Workload/trainjob-digits-a1f3e",
    ],
)  # fmt: skip
def test_of_the_job(name: str) -> None:
    kind, _, name = name.partition("/")
    assert is_about(event(kind, name, "Any"), object_pattern(SEEN), 0)


@pytest.mark.parametrize(
    "name",
    [
        "JobSet/digits-2", "JobSet/digit", "Job/digits-2-node-0", "Pod/digits-node-2-node-0-0-x7k2p", "Pod/digits",
        "Workload/jobset-digits-2-31be3", "Workload/digits", "ConfigMap/digits", "/",
    ],
)  # fmt: skip
def test_of_others(name: str) -> None:
    kind, _, name = name.partition("/")
    assert not is_about(event(kind, name, "Any"), object_pattern(SEEN), 0)


def test_of_an_earlier_job_of_that_name() -> None:
    created = 1795262400.0 + 30  # 12:00:30
    assert not is_about(event("JobSet", "digits", "Any", at=20), object_pattern(SEEN), created)
    assert is_about(event("JobSet", "digits", "Any", at=30), object_pattern(SEEN), created)


def test_without_the_jobset_any_step_may_be_its_own() -> None:
    gone = JobView("team", "digits")
    assert is_about(event("Pod", "digits-node-0-0-x7k2p", "Any"), object_pattern(gone), 0)
    assert not is_about(event("Pod", "others-node-0-0-x7k2p", "Any"), object_pattern(gone), 0)


def test_repeated_ones_are_folded_in_order() -> None:
    found = fold(
        [
            event("Pod", "digits-node-0-1-bbbbb", "Started", "Started container", 5),
            event(
                "Pod",
                "digits-node-0-0-aaaaa",
                "BackOff",
                "Back-off restarting",
                7,
                count=3,
                lastTimestamp="2026-11-21T12:00:20Z",
            ),
            event("Pod", "digits-node-0-0-aaaaa", "Started", "Started container", 4),
            event(
                "Pod", "digits-node-0-0-aaaaa", "Scheduled", "Successfully assigned team/digits-node-0-0-aaaaa to n1", 2
            ),
            event(
                "Pod", "digits-node-0-1-bbbbb", "Scheduled", "Successfully assigned team/digits-node-0-1-bbbbb to n2", 2
            ),
            event("Job", "digits-node-0", "SuccessfulCreate", "Created pod: digits-node-0-0-aaaaa", 1),
            event("Job", "digits-node-0", "SuccessfulCreate", "Created pod: digits-node-0-1-bbbbb", 1),
        ],
        "digits",
    )
    assert [(h.reason, h.count, h.objects) for h in found] == [
        ("SuccessfulCreate", 2, ["digits-node-0"]),
        ("Scheduled", 2, ["digits-node-0-0-aaaaa", "digits-node-0-1-bbbbb"]),
        ("Started", 2, ["digits-node-0-0-aaaaa", "digits-node-0-1-bbbbb"]),
        ("BackOff", 3, ["digits-node-0-0-aaaaa"]),
    ]
    assert found[3].last - found[3].first == 13


def test_different_ones_are_not() -> None:
    found = fold([event("Pod", "a-node-0-0-aaaaa", "Failed", m) for m in ("no image", "no secret")], "a")
    assert [h.message for h in found] == ["no image", "no secret"]


def test_events_of_the_newer_kind_and_broken_ones() -> None:
    new = {
        "involvedObject": {"kind": "Pod", "name": "a-node-0-0-aaaaa"}, "reason": "X", "eventTime": "2026-11-21T12:00:01.5Z",
        "series": {"count": 4, "lastObservedTime": "2026-11-21T12:00:09Z"}, "reportingComponent": "kueue",
    }  # fmt: skip
    (found,) = fold([new], "a")
    assert (found.count, found.last - found.first, found.source) == (4, 7.5, "kueue")
    assert found.to_dict()["first"] == "2026-11-21T12:00:01Z"
    (broken,) = fold([{"involvedObject": [], "count": "many", "message": {}, "firstTimestamp": 7}], "a")
    assert (broken.count, broken.kind, broken.message) == (1, "", "")


def test_a_time_of_another_day_has_its_date(capsys: pytest.CaptureFixture[str]) -> None:
    commands._print([JobEvent(0.0, 2 * 86400.0, 9, "Warning", "FailedScheduling", "Pod", ["a"], "0/3 nodes")])
    assert capsys.readouterr().out.startswith("19")


def test_events_have_the_id_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"pulumi-trainer.dev/run-id": "3f2a"}
    view = JobView("team", "a", jobset={"kind": "JobSet", "metadata": {"name": "a", "labels": labels}})
    monkeypatch.setattr(listing, "snapshot", lambda *_: view)
    client: Any = SimpleNamespace(list=lambda *_, keep: ([event("JobSet", "a", "Started", "x", 5)], None))
    assert [each.run for each in listing.list_events(client, "team", "a")] == ["3f2a"]
