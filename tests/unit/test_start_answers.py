"""What Kueue would do with a job now, in words; test_scheduling.py holds the decisions against the real Kueue's."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.answer import answer, contender_of
from pulumi_trainer.provider.kueue.scheduling.durations import Expectation

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
NOW = 1_793_530_800.0  # 2026-11-01T11:00:00Z
WHOLE = frozenset({"ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "WorkloadPriorityClass"})


def kueue(kind: str, name: str, namespace: str = "", **content: Any) -> Document:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **content}


def team(name: str, quota: int, used: int = 0, **spec: Any) -> list[Document]:
    """A team of a cohort: its ClusterQueue and its LocalQueue. used: By Workloads, in the status of the queue."""
    resources = [{"name": GPU, "nominalQuota": quota}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": resources}]}]
    status = (
        {"flavorsReservation": [{"name": "h100", "resources": [{"name": GPU, "total": str(used)}]}]} if used else {}
    )
    queue = kueue(
        "ClusterQueue",
        f"gpus-{name}",
        spec={"namespaceSelector": {}, "resourceGroups": groups, "cohortName": "gpus", **spec},
        status=status,
    )
    return [queue, kueue("LocalQueue", "gpus", name, spec={"clusterQueue": f"gpus-{name}"})]


def jobset(team: str, name: str, pods: int, gpus: int = 8, priority: str = "") -> Document:
    labels = {QUEUE: "gpus", **({PRIORITY: priority} if priority else {})}
    pod = {"containers": [{"name": "node", "resources": {"limits": {GPU: gpus}}}]}
    step = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": {"spec": pod}}}}
    return {"metadata": {"name": name, "namespace": team, "labels": labels}, "spec": {"replicatedJobs": [step]}}


def workload(
    team: str, job: str, gpus: int, at: str, *, runs: bool = True, priority: int = 0, rank: str = ""
) -> Document:
    pod = {"containers": [{"name": "node", "resources": {"requests": {GPU: gpus}}}]}
    spec: Document = {
        "queueName": "gpus",
        "priority": priority,
        "podSets": [{"name": "node", "count": 1, "template": {"spec": pod}}],
    }
    if rank:
        spec["priorityClassRef"] = {"name": rank}
    assignment = {"name": "node", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: str(gpus)}}
    quota = {"type": "QuotaReserved", "status": str(runs), "reason": "Pending", "lastTransitionTime": at}
    status: Document = {"conditions": [quota]}
    if runs:
        status["admission"] = {"clusterQueue": f"gpus-{team}", "podSetAssignments": [assignment]}
    made = kueue("Workload", f"jobset-{job}", team, spec=spec, status=status)
    owner = {"kind": "JobSet", "name": job, "controller": True}
    made["metadata"] |= {"uid": f"{team}-{job}", "creationTimestamp": at, "ownerReferences": [owner]}
    return made


FLAVOR = kueue("ResourceFlavor", "h100", spec={})
HIGH = kueue("WorkloadPriorityClass", "high", value=100)
LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def said(
    queues: list[Document],
    workloads: list[Document],
    asked: Document,
    before: list[Document] | None = None,
    **expected: Expectation,
) -> str:
    """What is said of a job. expected: By name for the jobs of team nlp, else by namespace/name."""
    known = Queues((FLAVOR, HIGH, *queues), WHOLE)
    contender = contender_of(asked, known, 2e9)
    assert contender is not None
    others = [each for each in (contender_of(one, known, 1.9e9) for one in before or ()) if each is not None]
    expectations = {f"nlp/{job}" if "/" not in job else job: what for job, what in expected.items()}
    return answer(known, workloads, contender, others, now=NOW, expect=lambda _: expectations)[0]


def test_a_job_that_fits_into_its_own_quota() -> None:
    assert said(team("nlp", 64), [], jobset("nlp", "llama", 4)) == "starts now: 32 h100 of gpus-nlp"


def test_a_job_that_borrows_says_from_whom() -> None:
    both = [*team("nlp", 48), *team("vision", 64, preemption=LOWER)]
    line = "starts now: 64 h100 of gpus-nlp, 16 h100 of it borrowed from gpus-vision (they may take it back)"
    assert said(both, [], jobset("nlp", "llama", 8)) == line
    both = [*team("nlp", 48), *team("vision", 64)]
    assert said(both, [], jobset("nlp", "llama", 8)).endswith("borrowed from gpus-vision"), "they may not reclaim it"


def test_a_job_that_waits_says_behind_whom() -> None:
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z"), workload("nlp", "old", 8, "2026-11-01T09:00:00Z")]
    line = (
        "waits behind nlp/old (8 h100), nlp/mix (16 h100): 8 h100 more must become free; when it starts is open: nlp/mix, nlp/old"
        " have no time limit"
    )
    assert said(team("nlp", 32), running, jobset("nlp", "llama", 2)) == line
    waiting = workload("nlp", "first", 16, "2026-11-01T11:00:00Z", runs=False)
    behind = said(team("nlp", 32), [*running, waiting], jobset("nlp", "llama", 2))
    assert "and nlp/first in its queue" in behind
    strict = team("nlp", 32, queueingStrategy="StrictFIFO")
    assert said(strict, [*running, waiting], jobset("nlp", "llama", 1)).startswith(
        "waits behind nlp/first, which is before it"
    )
    assert said(team("nlp", 32), [*running, waiting], jobset("nlp", "llama", 1)) == "starts now: 8 h100 of gpus-nlp"


def clock(minutes: int) -> str:
    """The time so many minutes after `NOW`, in UTC: who reads the report of a pull request is elsewhere."""
    return time.strftime("%H:%M", time.gmtime(NOW + 60 * minutes))


def test_the_latest_start_is_computed_from_time_limits() -> None:
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z"), workload("nlp", "old", 8, "2026-11-01T09:00:00Z")]
    running[0]["spec"]["maximumExecutionTimeSeconds"] = 7200
    running[1]["spec"]["maximumExecutionTimeSeconds"] = 10800 + 600
    line = said(team("nlp", 32), running, jobset("nlp", "llama", 3))
    assert line.endswith(
        f"; starts at {clock(60)} UTC at the latest, by the time limits of the jobs before it, if no other job comes; how much"
        " earlier is open: when nlp/mix ends is not known"
    )
    assert f"starts at {clock(70)} UTC at the latest" in said(team("nlp", 32), running, jobset("nlp", "llama", 4))
    waiting = workload("nlp", "first", 16, "2026-11-01T10:30:00Z", runs=False)
    waiting["spec"]["maximumExecutionTimeSeconds"] = 3600
    assert f"starts at {clock(120)} UTC at the latest" in said(
        team("nlp", 24), [*running, waiting], jobset("nlp", "llama", 3)
    )
    del running[1]["spec"]["maximumExecutionTimeSeconds"]
    line = said(team("nlp", 32), running, jobset("nlp", "llama", 4))
    assert line.endswith("when it starts is open: nlp/old has no time limit")


def test_what_a_queue_lacks_counts_what_is_used_beyond_its_quota() -> None:
    """As after a change that takes quota away."""
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z"), workload("nlp", "old", 16, "2026-11-01T09:00:00Z")]
    line = said(team("nlp", 16), running, jobset("nlp", "llama", 1))
    assert line.startswith("waits behind nlp/old (16 h100), nlp/mix (16 h100): 24 h100 more must become free;")


def test_a_start_is_expected_by_progress_and_earlier_runs() -> None:
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z"), workload("nlp", "old", 8, "2026-11-01T09:00:00Z")]
    asked, mine = jobset("nlp", "llama", 4), team("nlp", 32)
    mix = Expectation(reported=NOW, remaining=3600)
    line = said(mine, running, jobset("nlp", "llama", 3), mix=mix)
    moment = f"{clock(45)} to {clock(90)} UTC"
    assert line.endswith(
        f"; starts about {moment}, if no other job comes (by the progress of nlp/mix); how late is open: nlp/mix, nlp/old have no"
        " time limit"
    )
    assert "open: nlp/mix, nlp/old have no time limit" in said(mine, running, asked, mix=mix), "it needs both"
    old = Expectation(runs=(9000, 10800, 10200))
    line = said(mine, running, asked, mix=mix, old=old)
    moment = f"{clock(45)} to {clock(90)} UTC, if no other job comes (by the progress of nlp/mix and earlier runs of nlp/old)"
    assert f"starts about {moment}; how late is open" in line
    running[0]["spec"]["maximumExecutionTimeSeconds"] = running[1]["spec"]["maximumExecutionTimeSeconds"] = 36_000
    line = said(mine, running, asked, mix=mix, old=old)
    assert line.endswith(f"; at {clock(540)} UTC at the latest, by the time limits of the jobs before it")


@pytest.mark.parametrize(
    "mix",
    [
        Expectation(),
        Expectation(runs=(600, 3000)),  # it has run for an hour, longer than ever before
        Expectation(reported=NOW - 7200, remaining=60),  # of an earlier attempt
    ],
)
def test_what_says_nothing_of_the_end_of_a_job_is_no_guess(mix: Expectation) -> None:
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z")]
    line = said(team("nlp", 16), running, jobset("nlp", "llama", 1), mix=mix)
    assert line.endswith("; when it starts is open: nlp/mix has no time limit")
    running[0]["spec"]["maximumExecutionTimeSeconds"] = 7200
    line = said(team("nlp", 16), running, jobset("nlp", "llama", 1), mix=mix)
    assert f"; starts at {clock(60)} UTC at the latest" in line, "a time limit alone is no guess"


def test_an_expected_end_is_not_after_the_time_limit() -> None:
    running = [workload("nlp", "mix", 16, "2026-11-01T10:00:00Z")]
    running[0]["spec"]["maximumExecutionTimeSeconds"] = 7200
    line = said(team("nlp", 16), running, jobset("nlp", "llama", 1), mix=Expectation(reported=NOW, remaining=3600))
    assert f"starts about {clock(45)} to {clock(60)} UTC, if no other job comes (by the progress of nlp/mix)" in line
    line = said(team("nlp", 16), running, jobset("nlp", "llama", 1), mix=Expectation(reported=NOW, remaining=0))
    assert f"starts by about {clock(0)} UTC, if" in line
    both = [*running, workload("nlp", "open", 16, "2026-11-01T10:00:00Z")]
    line = said(team("nlp", 32), both, jobset("nlp", "llama", 1), mix=Expectation(reported=NOW, remaining=3600))
    assert f"starts by about {clock(60)} UTC, if no other job comes (by the progress of nlp/mix)" in line, (
        "the other one may end first"
    )


def test_a_job_that_preempts_names_its_victims() -> None:
    running = [
        workload("rl", "grpo-7", 16, "2026-11-01T10:00:00Z", rank="normal"),
        workload("rl", "keeps", 16, "2026-11-01T09:00:00Z", priority=100),
    ]
    queues = team("rl", 32, preemption={"withinClusterQueue": "LowerPriority"})
    line = "preempts rl/grpo-7 (normal) in gpus-rl"
    assert said(queues, running, jobset("rl", "urgent", 2, priority="high")) == line
    assert said(queues, running, jobset("rl", "urgent", 2)).startswith("waits behind rl/keeps")
    saved = {"rl/grpo-7": Expectation(saved=NOW - 720)}
    asked = jobset("rl", "urgent", 2, priority="high")
    assert (
        said(queues, running, asked, **saved) == "preempts rl/grpo-7 (normal, 12m00s since its checkpoint) in gpus-rl"
    )
    before = {
        "rl/grpo-7": Expectation(saved=NOW - 30 * 86400)
    }  # of an earlier attempt: what it has done since is not known
    assert said(queues, running, asked, **before) == line


def test_all_victims_are_counted() -> None:
    running = [workload("rl", f"job-{i}", 8, f"2026-11-01T1{i}:00:00Z") for i in range(5)]
    queues = team("rl", 40, preemption={"withinClusterQueue": "LowerPriority"})
    line = said(queues, running, jobset("rl", "urgent", 5, priority="high"))
    assert line.startswith("preempts rl/job-") and line.count("priority 0") == 3 and line.endswith(" and 2 more")


def test_a_queue_that_lends_nothing_is_no_lender() -> None:
    closed = team("closed", 64)
    closed[0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = 0
    line = said([*team("nlp", 48), *team("vision", 64), *closed], [], jobset("nlp", "llama", 8))
    assert line == "starts now: 64 h100 of gpus-nlp, 16 h100 of it borrowed from gpus-vision"


def test_a_time_limit_of_a_job_of_the_same_program_counts() -> None:
    first = jobset("nlp", "first", 2)
    assert said(team("nlp", 16), [], jobset("nlp", "next", 1), [first]).endswith("open: nlp/first has no time limit")
    first["metadata"]["labels"][MAX_EXECUTION] = "3600"
    assert f"starts at {clock(60)} UTC at the latest" in said(team("nlp", 16), [], jobset("nlp", "next", 1), [first])


@pytest.mark.parametrize(("minutes", "known"), [(-30, True), (-600, False), (60 * 24 * 365, False)])
def test_a_clock_that_jumped_tells_nothing(minutes: int, known: bool) -> None:
    """It should have ended long ago, or it begins in a year."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + 60 * minutes))
    running = workload("nlp", "mix", 16, at)
    running["spec"]["maximumExecutionTimeSeconds"] = 7200
    line = said(team("nlp", 16), [running], jobset("nlp", "next", 1))
    strange = "when it starts is open: the times of nlp/mix cannot be right by this clock"
    assert ("at the latest" in line, line.endswith(strange)) == (known, not known), line


def test_a_deadline_of_pods_is_no_time_limit_of_their_job() -> None:
    running = workload("nlp", "mix", 16, "2026-11-01T10:00:00Z")
    running["spec"]["podSets"][0]["template"]["spec"]["activeDeadlineSeconds"] = 60  # the Job replaces such Pods
    assert said(team("nlp", 16), [running], jobset("nlp", "next", 1)).endswith("open: nlp/mix has no time limit")


def test_fair_shares_are_read_from_the_status_of_queues() -> None:
    """By priority nobody is preempted: both have the same one. By shares the queue that borrows more loses."""
    reclaims = {"reclaimWithinCohort": "Any"}
    queues = [*team("nlp", 0, preemption=reclaims), *team("rl", 0, preemption=reclaims), *team("idle", 32)]
    running = [workload("rl", "a", 16, "2026-11-01T09:00:00Z"), workload("rl", "b", 16, "2026-11-01T10:00:00Z")]
    assert said(queues, running, jobset("nlp", "llama", 2)).startswith("waits behind rl/a")
    for queue in queues:
        queue.setdefault("status", {})["fairSharing"] = {"weightedShare": 0}
    assert said(queues, running, jobset("nlp", "llama", 2)) == "preempts rl/b (priority 0) in gpus-rl"


def test_a_job_that_loses_its_quota_again_does_not_start() -> None:
    """Of two jobs of a program the first one fits, and the second one preempts it."""
    queues = team("rl", 16, preemption={"withinClusterQueue": "LowerPriority"})
    first, second = jobset("rl", "first", 2), jobset("rl", "second", 2, priority="high")
    assert said(queues, [], second, [first]) == "starts now: 16 h100 of gpus-rl", "the first one waits"
    assert said(queues, [], first, [second]).startswith("waits behind rl/second (16 h100)")


def test_what_kueue_has_found_no_room_for_is_not_before_a_new_job() -> None:
    """Kueue tries it again when something ends, for a reason that documents may not show."""
    parked = workload("nlp", "parked", 8, "2026-11-01T10:00:00Z", runs=False)
    assert said(team("nlp", 16), [parked], jobset("nlp", "llama", 2)) == "starts now: 16 h100 of gpus-nlp"
    parked["status"]["conditions"] = []
    assert said(team("nlp", 16), [parked], jobset("nlp", "llama", 2)).startswith("waits behind nlp/parked (8 h100)")


@pytest.mark.parametrize(
    ("preference", "line"),
    [
        ("BorrowingOverPreemption", "starts now: 8 a100 of gpus-nlp, 8 a100 of it borrowed from gpus-vision"),
        ("PreemptionOverBorrowing", "preempts nlp/low (priority 0) in gpus-nlp"),
    ],
)
def test_the_choice_of_a_flavor_follows_its_preference(preference: str, line: str) -> None:
    def flavors(*quotas: int) -> list[Document]:
        named = zip(("h100", "a100"), quotas, strict=True)
        kinds = [{"name": name, "resources": [{"name": GPU, "nominalQuota": n}]} for name, n in named]
        return [{"coveredResources": [GPU], "flavors": kinds}]

    fungibility = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": preference}
    mine = team("nlp", 0, preemption=LOWER, flavorFungibility=fungibility, resourceGroups=flavors(8, 0))
    queues = [kueue("ResourceFlavor", "a100", spec={}), *mine, *team("vision", 0, resourceGroups=flavors(0, 8))]
    running = [workload("nlp", "low", 8, "2026-11-01T09:00:00Z")]
    assert said(queues, running, jobset("nlp", "llama", 1, priority="high")) == line


def test_a_team_takes_its_quota_back() -> None:
    queues = [*team("nlp", 16, preemption=LOWER), *team("rl", 16)]
    running = [workload("rl", "a", 16, "2026-11-01T09:00:00Z"), workload("rl", "b", 16, "2026-11-01T10:00:00Z")]
    assert said(queues, running, jobset("nlp", "llama", 1)) == "preempts rl/b (priority 0) in gpus-rl"


def test_jobs_of_the_same_program_count() -> None:
    asked = jobset("nlp", "second", 2)
    assert said(team("nlp", 24), [], asked) == "starts now: 16 h100 of gpus-nlp"
    assert said(team("nlp", 24), [], asked, [jobset("nlp", "first", 2)]).startswith("waits behind nlp/first (16 h100)")


def test_what_may_not_be_read_is_not_guessed() -> None:
    line = said(team("nlp", 32, used=24), [], jobset("nlp", "llama", 2))
    assert line.startswith(
        "it does not start at once, and whom it waits for is not known: Workloads that you may not read"
    )
    assert said(team("nlp", 32, used=24), [], jobset("nlp", "llama", 1)) == "starts now: 8 h100 of gpus-nlp"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"admissionChecksStrategy": {"admissionChecks": [{"name": "capacity"}]}}, "the admission checks capacity"),
        ({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}, "AdmissionFairSharing"),
        ({"concurrentAdmissionPolicy": {"migration": {"mode": "Concurrent"}}}, "ConcurrentAdmission"),
    ],
)
def test_what_is_not_simulated_is_said(spec: Document, words: str) -> None:
    assert said(team("nlp", 32, **spec), [], jobset("nlp", "llama", 2)).endswith(f"; not counted: {words}")


def test_a_queue_that_is_not_known_has_no_answer() -> None:
    assert contender_of(jobset("nlp", "llama", 1), Queues((FLAVOR,)), 2e9) is None
    unknown = jobset("nlp", "llama", 1, priority="gone")
    assert contender_of(unknown, Queues((FLAVOR, *team("nlp", 8)), WHOLE), 2e9) is None


def test_a_queue_that_uses_more_than_it_may_borrow_keeps_nothing_from_others() -> None:
    over = team("nlp", 2, queueingStrategy="StrictFIFO")
    over[0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = 0
    works = [
        workload("nlp", "old", 8, "2026-11-01T08:00:00Z"),
        workload("nlp", "next", 2, "2026-11-01T09:00:00Z", runs=False),
    ]
    before = [jobset("vision", name, 1, gpus=1) for name in ("first", "second")]
    text = said([*over, *team("vision", 10)], works, jobset("vision", "third", 1, gpus=1), before)
    assert text == "starts now: 1 h100 of gpus-vision"
