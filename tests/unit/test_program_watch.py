"""How a program waits: until when, for how long, and what is shown meanwhile. Clusters: tests/cluster/test_watch.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pulumi
import pytest
from pulumi_trainer.program import watch
from pulumi_trainer.program.log_tail import LogTail
from pulumi_trainer.program.watch import Watch, Watched, timeout_problems
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.targets import status_source


class News:
    """A source that says one thing after the other, one each time it is asked; the last one for ever."""

    def __init__(self, *told: JobStatus | None) -> None:
        self.told = list(told)
        self.left: list[str] = []
        self.troubles: list[str | TrainerError] = []

    def first(self, name: str) -> JobStatus | None:
        return self.told[0]

    def changed(self) -> set[str] | None:
        return None

    def status(self, name: str) -> JobStatus | None:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    def why(self, name: str) -> str:
        return f"team/{name} is as it is."

    def conclude(self, name: str) -> JobStatus | None:
        last = self.told[-1]
        return JobStatus("job", "team", phase=last.phase, message="concluded") if last else None

    def trouble(self) -> str:
        found = self.troubles.pop(0) if self.troubles else ""
        if isinstance(found, TrainerError):
            raise found
        return found

    def leave(self, name: str) -> None:
        self.left.append(name)


def status(phase: str, reason: str = "", message: str = "", **more: Any) -> JobStatus:
    return JobStatus("job", "team", phase=phase, reason=reason, message=message, **more)


Wait = Callable[..., JobStatus | None]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    for kind in ("info", "warn"):
        monkeypatch.setattr(pulumi.log, kind, lambda text, *_, **__: found.append(text))
    monkeypatch.setattr(watch, "INTERVAL", 0.001)
    monkeypatch.setattr(watch, "AT_MOST_EVERY", 0.0)
    return found


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> Wait:
    def until(news: News, wait_for: str = "complete", timeouts: Mapping[str, float] | None = None) -> JobStatus | None:
        monkeypatch.setattr(status_source, "source", lambda *_: news)
        row: Any = None
        return asyncio.run(Watch().until(Watched({}, "team", "job", "", row, wait_for, timeouts or {})))

    return until


WAYS = [status("Queued"), status("Admitted"), status("Starting"), status("Running"), status("Succeeded")]


@pytest.mark.parametrize(("wait_for", "phase"), [("admitted", "Admitted"), ("running", "Running")])
def test_waits_as_far_as_asked(wait: Wait, wait_for: str, phase: str) -> None:
    found = wait(News(*WAYS), wait_for)
    assert found is not None and found.phase == phase


def test_a_job_that_is_waited_for_twice_is_shown_once(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    news, row = News(status("Starting"), status("Running"), status("Succeeded")), cast("Any", None)
    monkeypatch.setattr(status_source, "source", lambda *_: news)

    async def both() -> list[JobStatus | None]:
        watch_, job = Watch(), Watched({}, "team", "job", "", row, "complete", {})
        return await asyncio.gather(watch_.until(job), watch_.until(job))

    first, second = asyncio.run(both())
    assert first is not None and second is not None and first.phase == second.phase == "Succeeded"
    assert len(lines) == len({*lines}) and sum("waiting for team/job" in line for line in lines) == 1


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "Deleted"])
def test_an_end_is_concluded_and_left(wait: Wait, end: str) -> None:
    news = News(status("Starting"), status("Running"), status(end))
    found = wait(news, "running" if end == "Deleted" else "complete")
    assert found is not None
    assert (found.phase, found.message) == (("Running", "") if end == "Deleted" else (end, "concluded"))
    assert news.left == ["job"]


def test_a_running_job_that_is_not_waited_for_has_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log was not followed. Of hundreds of jobs, only the first logs are read."""
    sources = {"running": News(status("Running")), "known": News(status("Running", progress={"step": 1})),
               "starting": News(status("Starting"), status("Running"))}  # fmt: skip
    monkeypatch.setattr(status_source, "source", lambda _, namespace, *__: sources[namespace])
    monkeypatch.setattr(watch, "MOST_ASKED", 2)
    monkeypatch.setattr(watch, "INTERVAL", 0.001)
    monkeypatch.setattr(pulumi.log, "info", lambda *_, **__: None)
    row: Any = None

    async def messages_of(namespace: str) -> list[str]:
        waiting, jobs = Watch(), [Watched({}, namespace, "job", "", row, "running", {}) for _ in range(3)]
        return [found.message if (found := await waiting.until(job)) else "none" for job in jobs]

    assert asyncio.run(messages_of("known")) == ["", "", ""]
    assert asyncio.run(messages_of("starting"))[0] == "", "its log was followed"
    assert asyncio.run(messages_of("running")) == ["concluded", "concluded", ""]


def test_nothing_known_and_suspended_are_not_waited_for(wait: Wait) -> None:
    assert wait(News(None)) is None
    found = wait(News(status("Suspended")))
    assert found is not None and found.phase == "Suspended"


class TestLines:
    def test_each_change_once_with_what_it_waits_for(self, wait: Wait, lines: list[str]) -> None:
        queued = status("Queued", "Pending", "16 more needed\nand more")
        wait(News(queued, queued, queued, status("Running"), status("Running"), status("Succeeded")))
        assert lines[0].startswith("waiting for team/job to be complete. Ctrl-C ends only the waiting")
        assert lines[1:] == ["job: Queued (Pending): 16 more needed", "job: Running", "job: Succeeded"]

    def test_the_end_of_a_job_of_less_than_a_second_is_shown(
        self, wait: Wait, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "AT_MOST_EVERY", 3600.0)
        wait(News(status("Starting"), status("Starting"), status("Running"), status("Succeeded")))
        assert lines[1:] == ["job: Starting", "job: Succeeded"]

    def test_a_long_message_is_cut(self, wait: Wait, lines: list[str]) -> None:
        wait(News(status("Starting", "Unschedulable", "x" * 1000), status("Starting"), status("Succeeded")))
        assert len(lines[1]) < 300 and lines[1].endswith("...")

    def test_at_most_one_in_a_while_and_then_the_newest(
        self, wait: Wait, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "AT_MOST_EVERY", 1.0)
        news = News(
            *[status("Starting", "A"), status("Starting", "B")] * 3, *[status("Running")] * 200, status("Succeeded")
        )
        begin = len(news.told)  # 0.1 s between two looks, however slow the machine is
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: (begin - len(news.told)) / 10))
        wait(news)
        assert lines[1:3] == ["job: Starting (A)", "job: Running"]

    def test_never_the_same_twice(self, wait: Wait, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "LINE_EVERY", 0.0)
        wait(News(*[status("Running")] * 20, status("Succeeded")))
        assert lines[1:] == ["job: Running", "job: Succeeded"]

    def test_progress_is_no_new_phase(self, wait: Wait, lines: list[str]) -> None:
        ways = [status("Running", progress={"progressPercentage": p}) for p in range(50)]
        wait(News(*ways, status("Succeeded")))
        assert len([line for line in lines if "Running" in line]) == 1

    def test_a_training_without_a_step_is_a_warning(self, wait: Wait, lines: list[str]) -> None:
        wait(News(status("Running"), status("Succeeded", progress={"step": 0})))
        assert lines[2:] == ["job: Succeeded, 0 steps were done", "team/job has succeeded, but 0 steps were done"]
        del lines[:]
        last = {"step": 9, "resumedFrom": 9, "progressPercentage": 100}
        wait(News(status("Running"), status("Succeeded", progress=last)))
        assert lines[2:] == ["job: Succeeded 100%, nothing was left to do (0 steps)"]
        del lines[:]
        wait(News(status("Running"), status("Succeeded", progress={"metrics": {}})))
        why = "no step was reported: whether it trained is not known"
        assert lines[2:] == [f"job: Succeeded, {why}", f"team/job has succeeded, but {why}"]
        for finished, warnings in ((time.time(), 1), (time.time() - 3600, 0)):
            del lines[:]
            ended = status("Succeeded", progress={"metrics": {"loss": "nan"}})
            ended.finished = finished
            wait(News(status("Running"), ended))
            warned = ["team/job has succeeded, but its last loss is NaN"] * warnings
            assert lines[2:] == ["job: Succeeded loss nan, its last loss is NaN", *warned], "once"

    def test_silence_is_told_once_and_its_end(self, wait: Wait, lines: list[str]) -> None:
        news = News(*[status("Running")] * 6, status("Succeeded"))
        news.troubles = ["", "no news from the cluster for 6s: away", "no news from the cluster for 7s: away", ""]
        wait(news)
        told = [line for line in lines if "cluster" in line]
        assert told == [
            "no news from the cluster for 6s: away. The job runs on by itself; waiting goes on",
            "the cluster answers again",
        ]

    def test_lines_after_the_end_of_the_wait_are_logged_from_the_event_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`pulumi.log` resolves the URN of the row in a task of the running loop."""
        found: list[str] = []

        def log(text: str, *_: Any) -> None:
            asyncio.get_running_loop()
            found.append(text)

        monkeypatch.setattr(pulumi.log, "info", log)
        row: Any = None
        asyncio.run(LogTail("job", iter(["loss 1", "loss 0"]), row).finish())
        assert found == ["loss 1\nloss 0"]

    def test_a_refusal_ends_the_wait(self, wait: Wait) -> None:
        news = News(status("Running"))
        news.troubles = ["", TargetFault(Problem("cluster", "Unauthorized", "log in again"))]
        with pytest.raises(TrainerError, match=r"cluster: Unauthorized. Hint: log in again"):
            wait(news)


class TestTimeouts:
    def test_says_what_was_waited_for_and_why_it_is_not_there(self, wait: Wait) -> None:
        with pytest.raises(TrainerError) as error:
            wait(News(status("Queued")), "running", {"running": 0.02})
        assert str(error.value) == (
            "team/job is not running after 0s. team/job is as it is."
            " The job is left as it is: `pulumi up` waits again, timeouts= limits how long"
        )

    @pytest.mark.parametrize(
        ("phase", "timeouts", "late"),
        [
            ("Queued", {"admitted": 0.01}, "admitted"),
            ("Pending", {"running": 0.01}, "running"),
            ("Starting", {"admitted": 0.01, "running": 0.02}, "running"),
            ("Running", {"admitted": 0.01, "running": 0.01, "complete": 0.02}, "complete"),
        ],
    )
    def test_the_next_one_counts(self, wait: Wait, phase: str, timeouts: dict[str, float], late: str) -> None:
        with pytest.raises(TrainerError, match=f"is not {late} after"):
            wait(News(status(phase)), "complete", timeouts)

    def test_each_counts_from_the_one_before(self, wait: Wait) -> None:
        slow = [*[status("Queued")] * 20, *[status("Starting")] * 20, *[status("Running")] * 20, status("Succeeded")]
        assert wait(News(*slow), "complete", {"admitted": 60, "running": 60, "complete": 60}) is not None

    def test_none_by_default(self, wait: Wait) -> None:
        assert wait(News(*[status("Queued")] * 50, status("Succeeded"))) is not None

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            (5, "timeouts: must be a mapping"),
            ({"created": 5}, "timeouts.created: must be one of admitted, running, complete"),
            ({"running": "5m"}, "timeouts.running: must be a number of seconds above 0, not '5m'"),
            ({"running": True}, "timeouts.running: must be a number"),
            ({"running": 0}, "timeouts.running: must be a number"),
            ({"running": float("nan")}, "timeouts.running: must be a number"),
        ],
    )
    def test_what_is_wrong_with_them_is_told(self, given: Any, problem: str) -> None:
        assert next(str(p) for p in timeout_problems(given)).startswith(problem)

    def test_right_ones_are_right(self) -> None:
        assert timeout_problems({"admitted": 1, "running": 0.5, "complete": 86400}) == timeout_problems(None) == []


@pytest.mark.parametrize("stuck", [False, True])
def test_a_failure_waits_for_the_other_jobs(monkeypatch: pytest.MonkeyPatch, stuck: bool) -> None:
    """One that waits for what depends on the failed job would wait for ever."""
    monkeypatch.setattr(watch, "INTERVAL", 0.001)
    monkeypatch.setattr(watch, "LAST_LOOK", 0.0)
    monkeypatch.setattr(watch, "STUCK", 0.0 if stuck else float("inf"))

    async def ended() -> list[bool]:
        waiting, found = Watch(), list[bool]()
        with waiting.expect_end():
            with waiting.expect_end():
                end = asyncio.ensure_future(waiting.end())
            for _ in range(20):
                await asyncio.sleep(0.001)
            found.append(end.done())
        await end
        return [*found, end.done()]

    assert asyncio.run(ended()) == [stuck, True]
