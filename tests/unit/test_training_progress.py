"""Which lines of which log tell the steps of an attempt."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from pulumi_trainer.provider.jobs.metrics import Metric, Metrics
from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.service.jobs import State, with_progress
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.targets.kubernetes.observe import printed_output, training_progress
from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import (
    Progress,
    progress_of,
    rank_0,
    with_reports,
)
from test_observed_attempts import jobset, pod, view

STEPS = b"starting\n" + b"".join(json.dumps({"trainerStatus": {"step": n}}).encode() + b"\n" for n in (4, 5))


class Log:
    """A client whose requests for a log have these answers, one after the other; the last one ends."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers, self.queries = [*answers], list[dict[str, str]]()
        self.workers = dict[str, Client]()

    def within(self, _: float) -> Log:
        return self

    def log_tail(self, _namespace: str, _pod: str, query: dict[str, str], _size: int) -> bytes:
        self.queries.append(query)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def logs(self, _namespace: str, _pod: str, query: dict[str, str], *, idle: float) -> Iterator[bytes]:
        assert idle
        self.queries.append(query)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield answer
        if self.answers:
            raise Unreachable("server", "is away")


def running(restart: int, ago: float) -> JobView:
    state = {"running": {"startedAt": timestamp(time.time() - ago)}}
    return view(jobset(restarts=restart), pod(restart, 0, containerStatuses=[{"name": "node", "state": state}]))


def followed(log: Log, seen: JobView, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, list[int]]]:
    """What the log reports of steps, and since when."""
    found = list[tuple[float, list[int]]]()
    monkeypatch.setattr("pulumi_trainer.provider.targets.kubernetes.observe.training_progress.PAUSE", 0)
    progress = Progress(
        cast("Client", log), "team", lambda _, began, reports: found.append((began, [each["step"] for each in reports]))
    )
    progress.add("j")
    rank = rank_0(seen)
    assert rank is not None
    progress._pods["j"] = rank.pod
    progress._follow(cast("Client", log), "j", rank)
    return found


def test_a_new_log_is_read_from_its_start_until_it_has_reported_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Unreachable("server", "is away")
    log = Log(away, b"starting\n", STEPS, away, STEPS)
    found = followed(log, running(0, 5), monkeypatch)
    assert ["tailLines" in query for query in log.queries] == [False, False, False, True, True]
    began = {began for began, _ in found}
    assert len(began) == 1 and began.pop() > 0
    assert [steps for _, steps in found] == [[], [4, 5], [4, 5]]


def test_an_old_log_does_not_tell_where_its_attempt_began(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(STEPS)
    assert followed(log, running(0, 90), monkeypatch) == [(0.0, []), (0.0, [4, 5])]
    assert "tailLines" in log.queries[0]


def test_a_step_before_the_training_is_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = running(0, 5)
    cast("Any", seen.pods[0])["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset-initializer"
    assert {began for began, _ in followed(Log(STEPS), seen, monkeypatch)} == {0.0}


def test_a_log_that_is_gone_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ApiError(Problem("pods/x", "not found"), 404, {}))
    followed(log, running(0, 5), monkeypatch)
    assert len(log.queries) == 1


def test_progress_is_as_old_as_its_line() -> None:
    """A training that hangs shows when it has last reported, not when somebody asks."""
    printed = (
        b'2026-03-04T05:06:07.123456789Z {"trainerStatus": {"progressPercentage": 40}}\n2026-03-04T05:07:00Z waiting\n'
    )
    log = Log(printed)
    found = progress_of(cast("Client", log), running(0, 5.0))
    assert found is not None
    assert (found["progressPercentage"], found["lastUpdatedTime"]) == (40, "2026-03-04T05:06:07Z")
    assert log.queries[0]["timestamps"] == "true"


def test_progress_of_a_training_that_has_ended() -> None:
    ended = {"name": "node", "state": {"terminated": {"exitCode": 0}}}
    sidecar = {"name": "proxy", "state": {"running": {}}}
    pods = [pod(0, at, phase="Succeeded", containerStatuses=[sidecar, ended]) for at in (1, 0)]
    pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = "1"
    log = Log(b'2026-03-04T05:06:07Z {"trainerStatus": {"progressPercentage": 100}}\n')
    found = progress_of(cast("Client", log), view(jobset(), *pods))
    assert found is not None and found["progressPercentage"] == 100
    assert log.queries[0]["container"] == "node"
    assert progress_of(cast("Client", log), view(jobset(), pods[0])) is None, "the first rank is gone"


@pytest.mark.parametrize(
    ("phase", "asked"), [("Running", True), ("Completed", True), ("Failed", True), ("Suspended", False)]
)
def test_what_is_lost_with_the_pods_is_read_when_a_job_has_ended(
    phase: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed_output, "with_lines", lambda _, seen: replace(seen, lines={"a": ["KeyError: 1"]}))
    read = {"progressPercentage": 7, "metrics": {"loss": "0.5"}}
    monkeypatch.setattr(
        printed_output, "with_reports", lambda _, seen: replace(seen, progress=read, metrics=Metrics.of([read]))
    )
    status: Any = {
        "conditions": [{"type": phase, "status": "True"}],
        "replicatedJobsStatus": [{"name": "node", "ready": 1}],
    }
    seen = JobView("team", "j", jobset={"spec": {"suspend": phase == "Suspended"}, "status": status})
    found = printed_output.with_output(cast("Client", Log()), seen)
    assert (found.progress, bool(found.lines)) == (read if asked else None, phase == "Failed")
    assert bool(found.metrics) is asked
    known = replace(seen, progress={"progressPercentage": 9})
    assert printed_output.with_output(cast("Client", Log()), known).progress == {"progressPercentage": 9}


def printed(*losses: float) -> bytes:
    line = '2026-03-04T05:06:0{}Z {{"trainerStatus": {{"step": {}, "metrics": [{{"name": "loss", "value": {}}}]}}}}\n'
    return "".join(line.format(i, i, loss) for i, loss in enumerate(losses)).encode()


def test_the_log_of_a_training_that_has_ended_has_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_reports(cast("Client", Log(printed(3, 1, 2))), running(0, 5.0))
    assert found.metrics is not None and found.metrics.summary() == {"loss": Metric("3", "2", "1", "1", "3")}
    assert found.progress is not None and found.progress["step"] == 2
    monkeypatch.setattr(training_progress, "ALL_LINES", 2)
    monkeypatch.setattr(training_progress, "LINES", 1)
    cut = with_reports(cast("Client", Log(printed(1, 2))), running(0, 5.0)).metrics
    assert cut is not None and cut.summary()["loss"].first == "", "lines before these may exist"
    monkeypatch.setattr(training_progress, "ALL_BYTES", 10)
    long = Log(printed(3, 1, 2), printed(2))
    last = with_reports(cast("Client", long), running(0, 5.0)).metrics
    assert last is not None and last.summary()["loss"].last == "2" and len(long.queries) == 2, (
        "not the first of many bytes"
    )
    nothing = with_reports(cast("Client", Log(TargetFault(Problem("a", "b")))), running(0, 5.0))
    assert (nothing.progress, bool(nothing.metrics)) == (None, False)


def test_a_log_for_which_the_credentials_fail_shows_no_progress() -> None:
    log = Log(TargetFault(Problem("kubeconfig user ann: aws", "ended with exit code 1")))
    assert progress_of(cast("Client", log), running(0, 5.0)) is None


@pytest.mark.parametrize(
    ("phase", "recorded", "asked"),
    [
        ("Running", None, True),
        ("Succeeded", None, True),
        ("Failed", "Deleted", True),
        ("Succeeded", "Succeeded", False),
        ("Queued", None, False),
    ],
)
def test_status_reads_the_progress_of_what_runs_or_has_no_recorded_end(
    phase: str, recorded: str | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_progress, "progress_of", lambda *_: {"progressPercentage": 7})
    seen = JobView("team", "j", recorded=(recorded and JobStatus("j", "team", phase=recorded)) or None)
    job = ReachedJob("team", "j", client=cast("Client", Log()))
    (state,) = with_progress([State(job, JobStatus("j", "team", phase=phase), view=seen)])
    assert state.status is not None and state.status.progress == ({"progressPercentage": 7} if asked else None)


def test_a_chief_is_followed_before_the_workers() -> None:
    steps = sorted(
        ("ps", "node", "chief"),
        key=lambda step: training_progress._rank({"metadata": {"labels": {training_progress.STEP: step}}}),
    )
    assert steps == ["chief", "node", "ps"]
