"""Attempts of a job in a cluster, from what its JobSet, its Workload and its Pods show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.attempts import Attempt, before_rerun, goodput
from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose, keep
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.jobs.run_end import attempts_as_data, end_of
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import JobStore, ObservedJob
from test_diagnosis import recorded

T = 1_800_000_000


def condition(type_: str, at: float, status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(T + at),
    }


def jobset(*conditions: dict[str, Any], restarts: int = 0, errors: int = 0, ready: int = 1, queue: str = "") -> Any:
    labels = {QUEUE: queue} if queue else {}
    container = {"name": "node", "env": [{"name": "TRAINER_CHECKPOINT_DIR", "value": "/workspace/output/checkpoints"}]}
    spec = {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": [container]}}}
    node = {"name": "node", "replicas": 1, "template": {"spec": spec}}
    suspended = any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)
    found = {
        "kind": "JobSet",
        "metadata": {"name": "j", "namespace": "team", "uid": "u", "labels": labels, "creationTimestamp": timestamp(T)},
        "spec": {"suspend": suspended, "replicatedJobs": [node], "failurePolicy": {"maxRestarts": 3}},
        "status": {
            "conditions": [*conditions],
            "restarts": restarts,
            "restartsCountTowardsMax": errors,
            "replicatedJobsStatus": [{"name": "node", "ready": ready, "active": ready}],
        },
    }
    return keep("JobSet", found)


def pod(restart: int, at: float, **status: Any) -> Any:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(restart),
        "batch.kubernetes.io/job-name": "j-node-0",
    }
    metadata = {"name": f"j-node-0-0-{restart}", "labels": labels, "creationTimestamp": timestamp(T + at)}
    found = {"startTime": timestamp(T + at), "phase": "Running", **status}
    return keep("Pod", {"metadata": metadata, "spec": {"nodeName": "gpu-1"}, "status": found})


def ended(restart: int, at: float, code: int, reason: str = "Error") -> Any:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": timestamp(T + at + 9)}}
    return pod(restart, at, phase="Failed", containerStatuses=[{"name": "node", "state": state}])


def restarting(at: float, rule: str = "") -> dict[str, Any]:
    reason = f"FailurePolicy_{rule}" if rule else "DefaultFailurePolicy"
    return condition("RestartingJobSet", at, reason=reason, message="restarting (first failed job: j-node-0)")


def attempts_of(view: JobView, now: float = 100.0) -> list[Attempt]:
    return diagnose(view, T + now).attempts


def view(*documents: Any, **known: Any) -> JobView:
    return JobView("team", "j", jobset=documents[0], pods=documents[1:], **known)


def test_a_running_job_is_in_its_first_attempt() -> None:
    status = diagnose(view(jobset(), pod(0, 5)), T + 100)
    assert status.attempts == [Attempt(1, T + 5.0)] and status.checkpoints, "in mode trainer it has no rules"
    assert not diagnose(view(without_policy(jobset()), pod(0, 5)), T + 100).checkpoints


def test_a_job_whose_pods_wait_has_not_begun() -> None:
    waiting = pod(0, 5)
    del waiting["status"]["startTime"]
    assert attempts_of(view(jobset(ready=0), waiting)) == []


@pytest.mark.parametrize(
    ("failed", "rule", "cause", "detail"),
    [
        (ended(0, 5, 1), "", "ProgramError", "pod j-node-0-0-0 on node gpu-1: exit code 1"),
        (ended(0, 5, 137, "OOMKilled"), "", "OOMKilled", "pod j-node-0-0-0 on node gpu-1: exit code 137 (OOMKilled)"),
        (ended(0, 5, 143), "interrupted", "Terminated", "pod j-node-0-0-0 on node gpu-1: exit code 143 (SIGTERM)"),
        (None, "interrupted", "Disrupted", "restarting (first failed job: j-node-0)"),
        (None, "", "ProgramError", "restarting (first failed job: j-node-0)"),
    ],
)
def test_the_newest_restart_is_explained_by_its_pods(failed: Any, rule: str, cause: str, detail: str) -> None:
    pods = [failed] if failed else []
    seen = view(jobset(restarting(20, rule), restarts=1, errors=int(not rule), ready=0), *pods, pod(1, 25))
    (first, second) = attempts_of(replace(seen, attempts=[Attempt(1, T + 5.0)]))
    assert first == Attempt(1, T + 5.0, T + 20.0, cause, detail)
    assert second == Attempt(2, T + 25.0)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", "Preempted"),
        ("DeletionByTaintManager", "NodeLost"),
        ("EvictionByEvictionAPI", "Evicted"),
        ("SomethingNew", "Disrupted"),
    ],
)
def test_a_disruption_names_what_has_ended_the_pod(reason: str, cause: str) -> None:
    disrupted = pod(0, 5, phase="Failed", conditions=[condition("DisruptionTarget", 19, reason=reason, message="why.")])
    (first, _) = attempts_of(
        view(jobset(restarting(20, "interrupted"), restarts=1, ready=0), pod(1, 25), gone=[disrupted])
    )
    assert (first.cause, first.detail) == (cause, "pod j-node-0-0-0 on node gpu-1: why")


def workload(*conditions: dict[str, Any], **evictions: int) -> Any:
    counts = [{"reason": reason, "underlyingCause": "", "count": count} for reason, count in evictions.items()]
    status = {"conditions": [*conditions], "schedulingStats": {"evictions": counts}}
    return keep("Workload", {"metadata": {"name": "w"}, "spec": {}, "status": status})


def test_a_preempted_job_knows_by_whom() -> None:
    evicted = condition(
        "Evicted", 30, reason="Preempted", message="Preempted to accommodate a workload (UID: 1) due to x"
    )
    seen = view(
        jobset(condition("Suspended", 31), ready=0, queue="q"),
        workload=workload(evicted, Preempted=1),
        preemptor="other/llama (high)",
        attempts=[Attempt(1, T + 5.0)],
    )
    (only,) = attempts_of(seen)
    assert (only.started, only.finished, only.cause) == (T + 5.0, T + 30.0, "Preempted")
    assert only.detail == "Kueue has stopped it for other/llama (high), due to x"


def without_policy(found: Any) -> Any:
    del found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return found


def test_what_nobody_has_observed_is_counted() -> None:
    plain = without_policy(jobset(restarts=3, errors=1, queue="q"))
    seen = view(plain, pod(3, 80), workload=workload(Preempted=1, NodeFailures=1))
    before, now = attempts_of(seen)
    assert (before.number, before.count, before.started, before.cause) == (5, 5, 0.0, "NotObserved")
    assert before.detail == "1 ProgramError, 2 Disrupted, 1 Preempted, 1 NodeLost"
    assert now == Attempt(6, T + 80.0)
    assert goodput([before, now], T + 100) is None
    (same, _) = attempts_of(view(jobset(restarts=2, errors=2), pod(2, 80)))
    assert (same.count, same.cause) == (2, "ProgramError")


def test_an_eviction_and_the_restart_that_follows_it_are_one_attempt() -> None:
    """The Pods that Kueue stops end with 143, which fails their Jobs: JobSet restarts it once it may run again."""
    evicted = condition("Evicted", 30, reason="Preempted", message="Preempted to accommodate a workload (UID: 1)")
    stopped = view(
        jobset(condition("Suspended", 31), restarts=1, ready=0, queue="q"),
        workload=workload(evicted, Preempted=1),
        attempts=[Attempt(1, T + 5.0, T + 9.0, "Evicted"), Attempt(2, T + 10.0)],
    )
    found = attempts_of(stopped)
    assert [(each.number, each.cause, each.finished) for each in found] == [
        (1, "Evicted", T + 9.0),
        (2, "Preempted", T + 30.0),
    ]
    again = replace(stopped, attempts=found, workload=workload(Preempted=1))
    resumed = replace(again, jobset=jobset(restarts=1, ready=0, queue="q"), pods=[ended(1, 10, 143)])
    assert attempts_of(resumed) == found, "its Jobs have failed, and JobSet has not restarted them yet"
    counted = replace(again, jobset=jobset(restarting(41, "interrupted"), restarts=2, queue="q"), pods=[pod(2, 42)])
    assert attempts_of(counted) == [*found, Attempt(4, T + 42.0)]
    assert attempts_of(replace(counted, attempts=attempts_of(counted))) == [*found, Attempt(4, T + 42.0)]
    goes_on = replace(again, jobset=jobset(restarts=1, queue="q"), pods=[pod(1, 42)])
    assert attempts_of(goes_on) == [*found, Attempt(3, T + 42.0)], "it was suspended before its Jobs had failed"


def test_a_suspension_and_the_restart_that_follows_it_are_one_attempt() -> None:
    first = Attempt(1, T + 5.0, T + 30.0, "Suspended")
    runs = view(jobset(restarting(41, "interrupted"), restarts=1), pod(1, 42), attempts=[first])
    assert attempts_of(runs) == [first, Attempt(3, T + 42.0)]


@pytest.mark.parametrize("cause", ["Evicted", "NodeLost", "Preempted"])
def test_an_attempt_after_a_lost_pod_counts_although_nobody_has_observed_it(cause: str) -> None:
    """Kueue has not stopped the job, so each restart is an attempt of its own."""
    first = Attempt(1, T + 5.0, T + 9.0, cause, "pod j-node-0-0-0 on node gpu-1: why")
    disrupted = pod(1, 10, phase="Failed", conditions=[condition("DisruptionTarget", 11, reason="x", message="why")])
    seen = view(jobset(restarting(12, "interrupted"), restarts=2, queue="q"), pod(2, 20), attempts=[first])
    second = Attempt(2, T + 10.0, T + 12.0, "Disrupted", "pod j-node-0-0-1 on node gpu-1: why")
    assert attempts_of(replace(seen, gone=[disrupted])) == [first, second, Attempt(3, T + 20.0)]
    later = replace(seen, jobset=jobset(restarts=2, queue="q"))
    assert attempts_of(later) == [first, Attempt(2, cause="Disrupted"), Attempt(3, T + 20.0)]


def test_steps_belong_to_the_attempt_during_which_their_container_began() -> None:
    first = Attempt(1, T + 5.0, T + 20.0, "Terminated", first=1, last=20, redone=0)
    steps = Attempt(2, T + 26.0, first=11, last=15, redone=5, repeating=4.0)
    seen = view(jobset(restarting(20, "interrupted"), restarts=1), pod(1, 25), attempts=[first])
    again = Attempt(2, T + 25.0, first=11, last=15, redone=5, repeating=4.0)
    assert attempts_of(replace(seen, steps_done=steps, logs_before=1)) == [first, again]
    unknown = replace(again, redone=None, repeating=0.0)
    assert attempts_of(replace(seen, steps_done=steps)) == [first, unknown], "the log of the first attempt was not read"
    late = Attempt(1, T + 6.0, first=1, last=22, redone=0)
    assert attempts_of(replace(seen, steps_done=late)) == [replace(first, last=22), Attempt(2, T + 25.0)]
    soon = replace(view(jobset(restarting(20, "interrupted"), restarts=1), pod(1, 20)), attempts=[first])
    steps = replace(steps, started=T + 20.0)
    next_one = replace(again, started=T + 20.0)
    assert attempts_of(replace(soon, steps_done=steps, logs_before=1)) == [first, next_one], "in the same second"


def test_late_lines_of_a_container_that_has_ended_are_no_steps_of_the_next_one() -> None:
    job = ObservedJob(since=0.0)
    for began, steps, now in ((5.0, [1, 20], 6.0), (30.0, [], 31.0), (5.0, [21], 32.0), (30.0, [10, 15], 33.0)):
        job.report_steps(T + began, steps, T + now)
    first, second = job.steps.all
    assert (first.first, first.last) == (1, 20)
    assert (second.started, second.first, second.last, second.redone) == (T + 30.0, 10, 15, 5)


def test_the_start_of_an_attempt_that_nobody_has_observed_is_that_of_its_own_pods_that_train() -> None:
    """After a stop by Kueue, the Pods of the attempt before have the same number of restarts."""
    evicted = condition("Evicted", 30, reason="PodsReadyTimeout", message="late")
    fetched = pod(1, 11, phase="Succeeded")
    fetched["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset"
    steps = [{"name": name, "replicas": 1, "template": {"spec": {}}} for name in ("dataset", "node")]
    stopped = jobset(condition("Suspended", 31), restarts=1, ready=0, queue="q")
    stopped["spec"]["replicatedJobs"] = steps
    seen = view(
        stopped,
        *(fetched, pod(1, 20, phase="Failed")),
        gone=[ended(1, 6, 1)],
        workload=workload(evicted, PodsReadyTimeout=1),
        attempts=[Attempt(1, T + 5.0, T + 9.0, "Killed")],
    )
    assert [(each.started, each.finished) for each in attempts_of(seen)] == [(T + 5.0, T + 9.0), (T + 20.0, T + 30.0)]


def test_a_new_run_of_a_job_has_no_steps_yet() -> None:
    store = JobStore("team")

    def record(uid: str) -> Record:
        labels = {"pulumi-trainer.dev/record": "true"}
        return Record.of({"metadata": {"name": "j", "namespace": "team", "uid": uid, "labels": labels}, "data": {}})

    store.record(record("first"))
    store.jobs["j"].report_steps(T + 5.0, [1, 20], T + 6.0)
    assert store.job_view("j", frozenset()).steps_done is not None
    store.record(record("second"))
    assert store.job_view("j", frozenset()).steps_done is None


def test_a_condition_that_was_true_before_keeps_its_time() -> None:
    """JobSet counts another restart before the Pods of the last one were ready; the Pods tell when it was."""
    disrupted = pod(1, 25, phase="Failed", conditions=[condition("DisruptionTarget", 29, reason="x")])
    seen = view(jobset(restarting(20, "interrupted"), restarts=2, ready=0), ended(1, 25, 143), disrupted, pod(2, 40))
    known = [Attempt(1, T + 5.0, T + 20.0, "Terminated"), Attempt(2, T + 25.0)]
    assert attempts_of(replace(seen, attempts=known))[1].finished == T + 29.0
    killed = replace(seen, pods=[ended(1, 25, 137), pod(2, 40)])
    assert attempts_of(replace(killed, attempts=known))[1].finished == T + 34.0


def test_counts_of_any_size_are_one_entry() -> None:
    seen = view(
        jobset(restarts=2**31 - 1, errors=5), pod(2**31 - 1, 80), attempts=[Attempt(7, T + 5.0, T + 9.0, "Killed")]
    )
    assert [(each.number, each.count) for each in attempts_of(seen)] == [
        (6, 6),
        (7, 1),
        (2**31 - 1, 2**31 - 8),
        (2**31, 1),
    ]


def test_an_attempt_that_was_seen_is_not_forgotten() -> None:
    first = Attempt(1, T + 5.0, T + 20.0, "OOMKilled", "pod a: exit code 137")
    seen = view(jobset(restarts=3, errors=2), pod(3, 80), attempts=[first, Attempt(2, T + 25.0)])
    found = attempts_of(seen)
    assert found[0] == first and [each.number for each in found] == [1, 2, 3, 4]
    assert found[1] == Attempt(2, T + 25.0, cause="NotObserved"), "it does not run any more"
    assert attempts_of(replace(seen, attempts=found)) == found


def test_a_long_history_keeps_what_was_observed() -> None:
    """After 100 attempts the oldest ones are one entry with their sums."""
    found: list[Attempt] = []
    for restarts in range(130):
        seen = jobset(restarting(100 * restarts, "interrupted"), restarts=restarts)
        if not restarts:
            del seen["status"]["conditions"]
        found = attempts_of(view(seen, pod(restarts, 100 * restarts + 10), attempts=found))
    oldest, *rest = found
    assert (oldest.number, oldest.count, oldest.started, oldest.ran) == (31, 31, T + 10.0, 31 * 90.0)
    assert [each.number for each in rest] == [*range(32, 131)]
    used = goodput(found, T + 13_000)
    assert used is not None and used.training == pytest.approx(130 * 90.0)


def test_the_attempts_before_a_rerun_of_the_run_stay() -> None:
    """The new JobSet counts from 0."""
    before = before_rerun([Attempt(1, T - 90.0, T - 80.0, "OOMKilled"), Attempt(2, T - 70.0)])
    assert before[1] == Attempt(2, T - 70.0, cause="NotObserved", rerun=True), "its end is not known"
    assert attempts_of(view(jobset(ready=0), attempts=before)) == before
    found = attempts_of(view(jobset(), pod(0, 5), attempts=before))
    assert found == [*before, Attempt(3, T + 5.0)]
    steps = Attempt(1, T + 6.0, first=11, last=15, redone=0)
    (_, _, third) = attempts_of(view(jobset(), pod(0, 5), attempts=found, steps_done=steps))
    assert third == Attempt(3, T + 5.0, first=11, last=15), "which steps were done before is not known"
    restarted = view(jobset(restarting(20, "interrupted"), restarts=1), ended(0, 5, 143), pod(1, 25), attempts=found)
    found = attempts_of(restarted)
    assert [(each.number, each.cause) for each in found[1:]] == [(2, "NotObserved"), (3, "Terminated"), (4, "")]
    assert attempts_of(replace(restarted, attempts=found)) == found
    again = before_rerun(found)
    assert [each.rerun for each in again] == [False, True, False, True]
    assert attempts_of(view(jobset(), pod(0, 5), attempts=again)) == [*again, Attempt(5, T + 5.0)]


def test_a_suspension_that_was_seen_is_an_attempt() -> None:
    by = "suspended by ann with `pulumi-trainer suspend` at some time; `pulumi-trainer resume` continues it"
    stopped = view(jobset(condition("Suspended", 30), ready=0), override=by, attempts=[Attempt(1, T + 5.0)])
    (first,) = found = attempts_of(stopped)
    assert first == Attempt(1, T + 5.0, T + 30.0, "Suspended", by.partition(";")[0])
    assert attempts_of(replace(stopped, attempts=found)) == found
    resumed = view(jobset(condition("Suspended", 40, "False", "Resumed")), pod(0, 41), attempts=found)
    assert attempts_of(resumed) == [first, Attempt(2, T + 41.0)]
    used = goodput(attempts_of(resumed), T + 65)
    assert used is not None and used.share == pytest.approx(49 / 60) and not used.exact


def test_the_end_of_a_job_ends_its_attempt() -> None:
    seen, now = recorded("succeeded")
    (only,) = diagnose(seen, now).attempts
    assert only.cause == "Succeeded" and only.started and only.finished
    assert only.finished == diagnose(seen, now).finished
    assert diagnose(replace(seen, attempts=[only]), now).attempts == [only]
    seen, now = recorded("failed-max-restarts")
    first, second = diagnose(seen, now).attempts
    assert (first.cause, second.cause) == ("ProgramError", "OOMKilled")
    assert diagnose(replace(seen, attempts=[first, second]), now).attempts == [first, second]


def test_the_record_keeps_attempts() -> None:
    known = [Attempt(1, 2.0, 3.0, "Preempted", "by x"), Attempt(2, 4.0, 5.0, "Succeeded")]
    status = JobStatus("j", "team", phase="Succeeded", attempts=known)
    empty = Record.of({"metadata": {"name": "j"}})
    data = end_of(empty, status, JobView("j", "team"))
    assert data["attempts"] == attempts_as_data(known)["attempts"]
    labels = {"pulumi-trainer.dev/record": "true"}
    found = Record.of({"metadata": {"name": "j", "labels": labels}, "data": data})
    assert found.last_status().attempts == known
    assert Record.of({"metadata": {"name": "j"}, "data": {"attempts": "[3, {"}}).attempts == []
    assert "attempts" not in end_of(empty, replace(status, attempts=[]), JobView("j", "team"))
    assert epoch_seconds(timestamp(T)) == T
