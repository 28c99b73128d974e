"""Decisions of the JobSet and Job controllers, without processes."""

from __future__ import annotations

from typing import Any

import pytest
from local_support import jobset, step
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.targets.local.jobset_controller import Exit, Job, JobSet, Pod, peak


def job(**spec: Any) -> Job:
    made = Job("js-node-0", "node", 0, {"parallelism": 1, "completions": 1, **spec})
    made.phase, made.started = "Active", 100.0
    return made


def active(document: dict[str, Any], state: dict[str, Any] | None = None) -> JobSet:
    made = JobSet(document, state)
    made.start_ready(100.0)
    return made


def fail(one: Job, index: int = 0, code: int = 1, now: float = 101.0) -> None:
    one.pods[index] = Pod()
    one.pod_failed(index, [Exit("node", code)], now, "default/pod")


class TestIndexes:
    def test_parallelism_below_completions_goes_on_with_the_lowest_index(self) -> None:
        one = job(parallelism=2, completions=3)
        assert one.to_start(100, 1) == [0, 1]
        one.pods = {0: Pod(), 1: Pod()}
        assert one.to_start(100, 1) == []
        one.pod_succeeded(0, 101)
        assert one.to_start(101, 1) == [2]
        one.pods[2] = Pod()
        one.pod_succeeded(1, 102)
        one.pod_succeeded(2, 102)
        assert one.phase == "Complete"

    def test_completions_default_to_parallelism(self) -> None:
        assert Job("a", "a", 0, {"parallelism": 3}).completions == 3
        assert Job("a", "a", 0, {}).completions == 1

    def test_no_completions_are_complete_at_once(self) -> None:
        made = active(jobset(step(pods=0), step("other")))
        assert [j.phase for j in made.jobs] == ["Complete", "Active"]


class TestSuccessPolicy:
    @pytest.mark.parametrize(
        ("rules", "succeeded", "complete"),
        [
            ([{"succeededIndexes": "0"}], [0], True),
            ([{"succeededIndexes": "0"}], [1, 2], False),
            ([{"succeededIndexes": "0,2-3"}], [0, 2], False),
            ([{"succeededIndexes": "0,2-3"}], [3, 2, 0], True),
            ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], [3, 1, 0], True),
            ([{"succeededCount": 2}], [3], False),
            ([{"succeededCount": 2}], [3, 1], True),
            ([{"succeededIndexes": "0"}, {"succeededCount": 1}], [2], True),
            ([], [0, 1, 2], False),
        ],
    )
    def test_rules(self, rules: list[dict[str, Any]], succeeded: list[int], complete: bool) -> None:
        one = job(parallelism=4, completions=4, successPolicy={"rules": rules})
        for index in succeeded[:-1]:
            one.pod_succeeded(index, 101)
            assert one.phase == "Active"
        one.pod_succeeded(succeeded[-1], 102)
        assert (one.phase == "Complete") is complete


class TestBackoff:
    @pytest.mark.parametrize(("limit", "bearable"), [(0, 0), (1, 0), (2, 1), (6, 5)])
    def test_limit_counts_restarts_in_place(self, limit: int, bearable: int) -> None:
        one = job(backoffLimit=limit)
        one.pods[0] = Pod(restarts=bearable)
        one.check(101)
        assert one.phase == "Active"
        one.pods[0].restarts += 1
        one.check(101)
        assert one.reason == "BackoffLimitExceeded"

    def test_default_limit_is_six(self) -> None:
        one = job()
        for _ in range(6):
            fail(one)
        assert one.phase == "Active"
        fail(one)
        assert one.phase == "Failed"

    def test_waits_longer_each_time_up_to_a_maximum_and_forgets_after_a_success(self) -> None:
        one = job(backoffLimit=100, parallelism=2, completions=2)
        waits = []
        for n in range(8):
            fail(one, now=100.0 + n)
            waits.append(next(t for t in range(200) if one.to_start(100.0 + n + t, 1)))
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        one.pods[1] = Pod()
        one.pod_succeeded(1, 110)
        assert one.to_start(110, 1) == [0]

    def test_per_index(self) -> None:
        one = job(parallelism=3, completions=3, backoffLimitPerIndex=1, maxFailedIndexes=1)
        fail(one, 0, now=100)
        assert one.to_start(100.5, 1) == [1, 2], "only the failed index waits"
        fail(one, 0, now=102)
        assert one.failed_indexes == {0}
        assert one.phase == "Active"
        for _ in range(2):
            fail(one, 1, now=103)
        assert (one.phase, one.reason) == ("Failed", "MaxFailedIndexesExceeded")

    def test_deadline(self) -> None:
        one = job(activeDeadlineSeconds=10)
        one.check(109.9)
        assert one.phase == "Active"
        one.check(110)
        assert one.reason == "DeadlineExceeded"


class TestPodFailurePolicy:
    @staticmethod
    def policy(action: str, operator: str, *values: int, **more: str) -> dict[str, Any]:
        rule = {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}
        return {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, rule]}

    def test_ignore_does_not_count(self) -> None:
        one = job(backoffLimit=0, podFailurePolicy=self.policy("Ignore", "NotIn", 3))
        fail(one, code=4)
        assert one.phase == "Active"
        fail(one, code=3)
        assert one.reason == "BackoffLimitExceeded"

    def test_count_is_the_default_and_ends_the_search(self) -> None:
        policy = self.policy("Count", "In", 3)
        policy["rules"].append({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}})
        one = job(backoffLimit=1, podFailurePolicy=policy)
        fail(one, code=3)
        assert one.phase == "Active"

    def test_another_container_does_not_match(self) -> None:
        policy = self.policy("FailJob", "In", 3, containerName="sidecar")
        one = job(backoffLimit=1, podFailurePolicy=policy)
        fail(one, code=3)
        assert one.phase == "Active"


class TestOrder:
    def test_all_replicas_count(self) -> None:
        needed = [{"name": "data", "status": "Complete"}]
        made = active(jobset(step("data", replicas=2), step("node", dependsOn=needed)))
        made.jobs[0].pod_succeeded(0, 101)
        made.start_ready(101)
        assert made.jobs[2].phase == ""

    def test_in_order(self) -> None:
        made = active(jobset(step("a"), step("b"), startupPolicy={"startupPolicyOrder": "InOrder"}))
        assert [j.phase for j in made.jobs] == ["Active", ""]
        made.jobs[0].pods[0] = Pod(ready=True)
        made.start_ready(101)
        assert [j.phase for j in made.jobs] == ["Active", "Active"]


class TestSuccess:
    @pytest.mark.parametrize(
        ("policy", "complete", "expected"),
        [
            ({}, ["a", "a", "b"], True),
            ({}, ["a", "b"], False),
            ({"operator": "All", "targetReplicatedJobs": ["b"]}, ["b"], True),
            ({"operator": "All", "targetReplicatedJobs": ["a"]}, ["a", "b"], False),
            ({"operator": "Any"}, ["a"], True),
            ({"operator": "Any", "targetReplicatedJobs": ["b"]}, ["a", "a"], False),
        ],
    )
    def test_policy(self, policy: dict[str, Any], complete: list[str], expected: bool) -> None:
        made = active(jobset(step("a", replicas=2), step("b"), successPolicy=policy))
        for name in complete:
            next(j for j in made.jobs_of_step(name) if j.phase == "Active").pod_succeeded(0, 101)
        verdict = made.verdict()
        assert bool(verdict) is expected
        assert verdict is None or (verdict.action, verdict.reason) == ("Succeeded", "AllJobsCompleted")


class TestFailure:
    def test_without_a_policy(self) -> None:
        made = active(jobset(step("a"), step("b")))
        fail(made.jobs[1], now=101)
        fail(made.jobs[0], now=102)
        verdict = made.verdict()
        assert verdict is not None
        assert (verdict.action, verdict.reason) == ("Failed", "FailedJobs")
        assert verdict.message.startswith("jobset failed due to one or more job failures (first failed job: job-b-0)")

    @pytest.mark.parametrize(
        ("rule", "action"),
        [
            ({"onJobFailureReasons": ["BackoffLimitExceeded"]}, "Failed"),
            ({"onJobFailureReasons": ["DeadlineExceeded"]}, "Restart"),
            ({"targetReplicatedJobs": ["node"]}, "Failed"),
            ({"targetReplicatedJobs": ["other"]}, "Restart"),
            ({"onJobFailureMessagePatterns": ["backoff.*limit$"]}, "Failed"),
            ({"onJobFailureMessagePatterns": ["^nothing"]}, "Restart"),
            ({"onJobFailureMessagePatterns": [r"^(([\w ]+)*)+\d#$"]}, "Restart"),
            ({"onJobFailureMessagePatterns": ["[[:digit:]] backoff"]}, "Restart"),
            ({"onJobFailureMessagePatterns": ["(?i)[[:upper:]]ACKOFF LIMIT\\z"]}, "Failed"),
            ({}, "Failed"),
        ],
    )
    def test_rules(self, rule: dict[str, Any], action: str) -> None:
        policy = {"maxRestarts": 3, "rules": [{"name": "mine", "action": "FailJobSet", **rule}]}
        made = active(jobset(step(), step("other"), failurePolicy=policy))
        fail(made.jobs[0])
        verdict = made.verdict()
        assert verdict is not None
        assert verdict.action == action
        assert action == "Restart" or verdict.reason == "FailJobSetFailurePolicyAction"

    def test_the_first_matching_rule_decides(self) -> None:
        rules = [
            {"action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["node"]},
            {"action": "FailJobSet"},
        ]
        made = active(jobset(step(), failurePolicy={"maxRestarts": 0, "rules": rules}))
        fail(made.jobs[0])
        verdict = made.verdict()
        assert verdict is not None
        assert (verdict.action, verdict.reason, verdict.counts) == (
            "Restart",
            "FailurePolicy_failurePolicyRule1",
            False,
        )
        made.restart(verdict)
        assert (made.restarts, made.counted) == (1, 0)

    def test_failure_wins_over_success(self) -> None:
        made = active(jobset(step("a"), step("b"), successPolicy={"operator": "Any"}))
        made.jobs[0].pod_succeeded(0, 101)
        fail(made.jobs[1])
        verdict = made.verdict()
        assert verdict is not None
        assert verdict.action == "Failed"


def test_suspension_keeps_what_is_finished() -> None:
    document = jobset(step("data"), step("node", pods=2, job={"backoffLimit": 3}), failurePolicy={"maxRestarts": 2})
    made = active(document)
    made.restarts, made.counted = 2, 1
    made.jobs[0].pod_succeeded(0, 101)
    made.jobs[1].pod_succeeded(1, 102)
    fail(made.jobs[1], 0)
    again = active(document, made.state())
    assert (again.restarts, again.counted) == (2, 1)
    assert (again.jobs[0].phase, again.jobs[0].finished) == ("Complete", 101)
    assert again.jobs[1].to_start(200, 1) == [0]
    assert again.jobs[1].counted == 1


def test_peak_leaves_out_what_runs_earlier() -> None:
    after = [{"name": "a", "status": "Complete"}]
    document = jobset(
        step("a", pods=2),
        step("b", dependsOn=after, replicas=2),
        step("c", dependsOn=[{"name": "b", "status": "Complete"}]),
        step("d", pods=5, job={"parallelism": 3}),
    )
    pods = {job.name: job.pods for job in jobs_of(document)}
    assert pods == {"a": 2, "b": 2, "c": 1, "d": 3}
    assert peak(document, pods) == 5, "d beside one of the others"
    assert peak(document, {**pods, "d": 0, "c": 4}) == 4
