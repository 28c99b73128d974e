"""What a job is doing and why, from documents that a real control plane has written (recorded/) and from some made by hand.

tests/cluster/test_words.py brings the same about on a cluster.
"""

from __future__ import annotations

import copy
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import NoNode
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds
from pulumi_trainer.provider.kueue import workload_reasons
from pulumi_trainer.provider.kueue.occupancy import occupancy
from pulumi_trainer.provider.kueue.workload_reasons import (
    Judgements,
    Reason,
    Waiting,
    explain_message,
    preemptor,
    why_queued,
)
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose, explain, keep
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer, failed_containers
from pulumi_trainer.provider.lifecycle.diagnosis.stages import _refusal_hint

RECORDED = Path(__file__).parent / "recorded"
ROOM = "It starts by itself as soon as there is room."

# file, phase, reason, in the message, in the paragraph
TOLD: list[tuple[str, str, str, list[str], list[str]]] = [
    ("succeeded", "Succeeded", "AllJobsCompleted", ["jobset completed successfully"], ["all is done"]),
    ("restarted", "Succeeded", "AllJobsCompleted", [], []),
    ("failed", "Failed", "FailedJobs",
     ["(first failed job: fail-worker-0)", "container main of pod fail-worker-0-1-52hj6 on node gpu-1: exit code 3: boom"],
     ["exit code 3: boom. Fix the cause, and run the job again (run=)."]),
    ("failed-max-restarts", "Failed", "ReachedMaxRestarts", ["on node gpu-0: exit code 137 (OOMKilled)"],
     ["It needs more memory than its limit"]),
    ("failed-pod-gone", "Failed", "FailedJobs",
     ["Job crash-worker-0: Job has reached the specified backoff limit (BackoffLimitExceeded); output of a pod: Back-off"], []),
    ("unschedulable", "Starting", "Unschedulable",
     ["2 pods without a node, such as huge-worker-0-0-nfkbc: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu."],
     ["2 of its 2 pods find no node", "Free or add such nodes"]),
    ("gated", "Starting", "SchedulingGated", ["non-empty scheduling gates"], ["1 pod may not be scheduled yet"]),
    ("gang", "Starting", "WaitingForGang", ["0 of 9 pods of PodGroup gang (Scheduling) have a node: 0/8 nodes", "Insufficient"],
     ["its 9 pods start together or not at all, but only 0 have a node (Scheduling)"]),
    ("no-scheduler", "Starting", "NoScheduler", ["2 pods of scheduler nobody-scheduler pending for"],
     ["has not tried to place 2 pods", "Is the scheduler nobody-scheduler installed and running?"]),
    ("image-pull", "Starting", "ImagePullBackOff",
     ['container main of pod pull-worker-0-0-wppv5 on node gpu-0: Back-off pulling image "sim/train:1"'],
     ["its image sim/train:1 cannot be pulled", "imagePullSecret"]),
    ("depends-on", "Running", "DependsOn", ["worker waits for leader to be completed"], ["worker waits for leader"]),
    ("suspended", "Suspended", "SuspendedJobs", ["jobset is suspended"], [("it is suspended (suspend is"
    " true)"), "Set suspend to False"]),
    ("running", "Running", "", [], ["its pods run"]),
    ("queued", "Queued", "Pending", ["insufficient unused quota for nvidia.com/gpu in flavor h100, 16 more needed"],
     ["it waits in the LocalQueue team-a: 16 more of nvidia.com/gpu must become free in flavor h100. " + ROOM]),
    ("queued-never", "Queued", "Pending", ["maximum capacity (16)"],
     ["Kueue will never admit it as it is (queue team-a): it requests 24 of nvidia.com/gpu, but its queue can never have"
      " more than 16 in flavor h100. Request less"]),
    ("queued-no-quota", "Queued", "Pending", ["resource amd.com/gpu unavailable in ClusterQueue"],
     ["will never admit", "no quota for amd.com/gpu at all"]),
    ("queued-no-queue", "Queued", "Inadmissible", ["LocalQueue nosuch doesn't exist"],
     ["LocalQueue nosuch does not exist in its namespace. Correct queue=, or create the LocalQueue."]),
    ("queued-no-cluster-queue", "Queued", "Inadmissible", ["ClusterQueue none doesn't exist"],
     ["its LocalQueue leads to the ClusterQueue none, which does not exist"]),
    ("queued-held", "Queued", "Inadmissible", ["ClusterQueue held is inactive"],
     ["the ClusterQueue held is inactive: it is stopped"]),
    ("queued-topology", "Queued", "Pending", ["allows to fit only 4 out of 6 pod(s)"],
     ["there is quota, but in one domain of topology dc only 4 of its 6 pods have room"]),
    ("preempted", "Queued", "Preempted", ["Preempted to accommodate another job", "16 more needed"],
     ["Kueue has stopped it for another job in /a, which has a higher priority in its own queue",
      "it is queued again: 16 more of nvidia.com/gpu must become free"]),
    ("reclaimed", "Queued", "Preempted", ["preemptee path: /obs/y"],
     ["in /obs/x, whose queue reclaims quota that it had lent"]),
    ("train-job", "Succeeded", "AllJobsCompleted", [], []),
    ("train-job-queued", "Queued", "Inadmissible", ["LocalQueue nosuch doesn't exist"], []),
    ("train-job-suspended", "Suspended", "Suspended", ["TrainJob is suspended"], []),
]  # fmt: skip


def recorded(name: str) -> tuple[JobView, float]:
    """The documents of a file, and a time shortly after."""
    found = json.loads((RECORDED / f"{name}.json").read_text())
    last = epoch_seconds(found.pop("last"))
    return JobView("team", found.pop("name"), **found, queue_flavors=[{"h100"}]), last + (
        40 if name == "no-scheduler" else 1
    )


@pytest.mark.parametrize(("name", "phase", "reason", "message", "paragraph"), TOLD, ids=[t[0] for t in TOLD])
def test_what_is_told_of_real_documents(
    name: str, phase: str, reason: str, message: list[str], paragraph: list[str]
) -> None:
    seen, now = recorded(name)
    status = diagnose(seen, now)
    assert (status.phase, status.reason) == (phase, reason)
    said = explain(seen, status, now)
    assert [m for m in message if m not in status.message] == [], status.message
    assert [p for p in paragraph if p not in said] == [], said
    assert said.startswith(f"team/{seen.name} is {phase}") and said[-1] in ".?" and "\n" not in said


def test_the_job_that_needed_the_room_is_named_where_it_is_known() -> None:
    seen, now = recorded("preempted")
    assert preemptor(seen.workload) == ("29d4d460-0e06-4dfc-9541-f34d0fcfe75f", "848f90dd-45b0-4fcc-bdb9-4aabcce60cdd")
    seen = replace(seen, preemptor="other/llama (high)")
    status = diagnose(seen, now)
    assert "stopped it for other/llama (high), which has a higher priority in its own queue; it is" in explain(
        seen, status, now
    )
    assert status.message.startswith("Preempted to accommodate other/llama (high) due to"), "no UIDs"
    assert preemptor(recorded("queued-never")[0].workload) is None and preemptor(None) is None


def test_every_recording_has_a_row() -> None:
    assert {p.stem for p in RECORDED.glob("*.json")} == {t[0] for t in TOLD}


class TestSteps:
    def test_counts_of_pods_times_and_restarts(self) -> None:
        seen, now = recorded("failed")
        (step,) = diagnose(seen, now).steps
        assert (step.name, step.phase, step.count, step.active, step.succeeded, step.failed) == (
            "worker",
            "Failed",
            2,
            0,
            1,
            1,
        )
        assert (step.started, step.finished) == (
            epoch_seconds("2026-11-21T12:37:21Z"),
            epoch_seconds("2026-11-21T12:37:23Z"),
        )

    def test_in_the_order_of_the_jobset(self) -> None:
        steps = diagnose(*recorded("depends-on")).steps
        assert [(s.name, s.phase) for s in steps] == [("leader", "Running"), ("worker", "Pending")]

    def test_whole_restarts_are_the_jobs(self) -> None:
        status = diagnose(*recorded("failed-max-restarts"))
        assert (status.restarts, status.finished - status.started) == (1, 0)


NOW = epoch_seconds("2026-01-01T01:00:00Z")
BEFORE = "2026-01-01T00:59:00Z"
JOBSET = {
    "kind": "JobSet",
    "metadata": {"name": "job", "uid": "u", "creationTimestamp": BEFORE},
    "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 2, "completions": 2}}}]},
    "status": {"replicatedJobsStatus": [{"name": "node", "active": 1, "ready": 0}]},
}
LABELS = {"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
JOB = {
    "metadata": {"name": "job-node-0", "creationTimestamp": BEFORE, "labels": LABELS},
    "status": {"active": 2, "startTime": BEFORE},
}


def pod(name: str = "job-node-0-0-abcde", node: str = "gpu-1", **status: Any) -> dict[str, Any]:
    labels = {**LABELS, "batch.kubernetes.io/job-name": "job-node-0"}
    metadata = {"name": name, "creationTimestamp": BEFORE, "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Pending", **status}}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "node", "image": "a/b:1", "state": state, **more}])


def event(kind: str, name: str, reason: str, message: str, time: str = "2026-01-01T00:59:30Z") -> dict[str, Any]:
    return {
        "involvedObject": {"kind": kind, "name": name}, "type": "Warning", "reason": reason, "message": message,
        "lastTimestamp": time,
    }  # fmt: skip


def seen(*pods: dict[str, Any], events: list[dict[str, Any]] | None = None, **more: Any) -> JobView:
    return JobView("team", "job", **{"jobset": JOBSET, "jobs": [JOB], "pods": pods, "events": events or [], **more})


def told(found: JobView, now: float = NOW) -> tuple[str, str, str, str]:
    status = diagnose(found, now)
    return status.phase, status.reason, status.message, explain(found, status, now)


TRACEBACK = [
    "rank 1: exit code 1",
    "Traceback (most recent call last):",
    '  File "main.py", line 9, in <module>',
    '  File "src/train.py", line 3, in load',
    '  File "/usr/lib/numpy.py", line 9, in load',
    "ValueError: no",
]


class TestContainers:
    @pytest.mark.parametrize(
        ("reason", "hint"),
        [
            ("ErrImagePull", "Correct the image's name"),
            ("InvalidImageName", "Correct the image's name"),
            ("ErrImageNeverPull", "Correct the image's name"),
            ("CreateContainerConfigError", "Create what it refers to"),
            ("RunContainerError", "Create what it refers to"),
        ],
    )
    def test_one_that_cannot_start(self, reason: str, hint: str) -> None:
        phase, found, message, said = told(seen(waiting(reason, 'secret "token" not found')))
        assert (phase, found) == ("Starting", reason)
        assert message == 'container node of pod job-node-0-0-abcde on node gpu-1: secret "token" not found'
        assert hint in said

    def test_a_back_off_has_its_cause_in_an_event(self) -> None:
        events = [
            event("Pod", "job-node-0-0-abcde", "Failed", "Error: ErrImagePull"),
            event("Pod", "job-node-0-0-abcde", "Failed", 'Failed to pull image "a/b:1": 401 Unauthorized'),
        ]
        assert "401 Unauthorized" in told(seen(waiting("ImagePullBackOff", "Back-off"), events=events))[2]

    def test_a_crash_loop_has_exit_code_restarts_and_last_lines(self) -> None:
        last = {"terminated": {"exitCode": 1, "reason": "Error"}}
        crash = waiting("CrashLoopBackOff", "back-off 10s", restartCount=2, lastState=last)
        found = seen(crash, lines={"job-node-0-0-abcde": TRACEBACK})
        assert told(found)[:3] == (
            "Starting",
            "CrashLoopBackOff",
            "container node of pod job-node-0-0-abcde on node gpu-1: exit code 1: ValueError: no (src/train.py:3),"
            " restarted 2 times\n" + "\n".join(f"  {line}" for line in TRACEBACK),
        )
        assert failed_containers(found) == [
            FailedContainer("job-node-0-0-abcde", "node", "0", restarts=2, previous=True)
        ]
        assert (
            "Hint" not in told(found)[3] and "`pulumi-trainer logs team/job --all` shows its output" in told(found)[3]
        )

    def test_one_that_has_just_been_started_again_is_still_in_its_crash_loop(self) -> None:
        last = {"terminated": {"exitCode": 1}}

        def again(at: str) -> JobView:
            states = {"state": {"running": {"startedAt": at}}, "lastState": last, "restartCount": 1, "name": "node"}
            return seen(pod(phase="Running", containerStatuses=[states]))

        assert told(again("2026-01-01T00:59:55Z"))[1] == "CrashLoopBackOff"
        assert told(again("2026-01-01T00:59:30Z"))[1] == ""

    @pytest.mark.parametrize(
        ("first", "code", "phase"), [("Running", 0, "Running"), ("Pending", 0, "Starting"), ("Running", 1, "Starting")]
    )
    def test_a_job_whose_pods_end_does_not_start(self, first: str, code: int, phase: str) -> None:
        """JobSet counts pods that end as not ready any more."""
        ended = {"name": "node", "state": {"terminated": {"exitCode": code}}}
        assert told(seen(pod("a", phase=first), pod("b", phase="Running", containerStatuses=[ended])))[0] == phase

    def test_a_volume_that_is_not_there(self) -> None:
        events = [
            event("Pod", "job-node-0-0-abcde", "FailedMount", 'MountVolume.SetUp failed: configmap "x" not found')
        ]
        phase, reason, message, said = told(seen(waiting("ContainerCreating"), events=events))
        assert (phase, reason) == ("Starting", "FailedMount") and 'configmap "x" not found' in message
        assert "a volume cannot be mounted" in said

    def test_nothing_is_wrong_while_containers_are_made(self) -> None:
        assert told(seen(waiting("ContainerCreating")))[:3] == ("Starting", "", "")


class TestControllers:
    def test_a_jobset_that_nobody_touches(self) -> None:
        alone = replace(seen(), jobset={k: v for k, v in JOBSET.items() if k != "status"}, jobs=())
        assert told(alone, NOW - 50)[:2] == ("Pending", "")
        phase, reason, _, said = told(alone)
        assert (phase, reason) == ("Pending", "NoController") and "Is the JobSet controller running" in said

    def test_a_train_job_that_nobody_touches(self) -> None:
        alone = JobView("team", "job", train_job={"metadata": {"name": "job", "creationTimestamp": BEFORE}})
        assert "Is Trainer's controller running" in told(alone)[3]

    @pytest.mark.parametrize(
        ("message", "hint"),
        [
            ('failed calling webhook "vjobset.kb.io": connection refused', "Do JobSet's controller and Kueue run?"),
            ("spec.replicatedJobs[0].name: Invalid value", "Correct the TrainJob or its runtime"),
        ],
    )
    def test_a_train_job_whose_jobset_cannot_be_created(self, message: str, hint: str) -> None:
        events = [event("TrainJob", "job", "TrainJobResourcesCreationFailed", message)]
        alone = JobView(
            "team", "job", train_job={"metadata": {"name": "job", "creationTimestamp": BEFORE}}, events=events
        )
        phase, reason, _, why = told(alone)
        assert (phase, reason) == ("Pending", "TrainJobResourcesCreationFailed") and hint in why

    def test_jobs_without_pods(self) -> None:
        idle = seen(jobs=[{**JOB, "status": {}}])
        assert told(idle)[:2] == ("Pending", "NoJobController")
        assert "Is kube-controller-manager running?" in told(idle)[3]

    def test_pods_that_the_cluster_refuses(self) -> None:
        said = 'pods "job-node-0-0" is forbidden: exceeded quota: gpus'
        found = seen(
            jobs=[{**JOB, "status": {"startTime": BEFORE}}], events=[event("Job", "job-node-0", "FailedCreate", said)]
        )
        assert told(found)[:3] == ("Starting", "FailedCreate", said)

    GANG: dict[str, Any] = {**JOB, "spec": {"parallelism": 4, "completions": 4}}
    REFUSED = 'Error creating: pods "job-node-0-2-x" is forbidden: exceeded quota: gpus'

    @pytest.mark.parametrize(
        ("status", "pods", "time", "message"),
        [
            ({"active": 2, "ready": 2}, ["00:59:20"], "00:59:30", "2 of 4 pods cannot be created: " + REFUSED),
            (
                {"active": 2, "ready": 2, "succeeded": 1},
                ["00:59:20"],
                "00:59:30",
                "1 of 3 pods cannot be created: " + REFUSED,
            ),
            ({"active": 0}, [], "00:59:30", REFUSED),
            ({"active": 4, "ready": 4}, ["00:59:20"], "00:59:30", ""),
            ({"active": 2, "ready": 2}, ["00:59:50"], "00:59:30", ""),
            ({"active": 2, "ready": 2}, ["00:59:20"], "00:10:00", ""),
        ],
        ids=["half", "some are done", "none", "all are there by now", "a pod was made since", "of an earlier attempt"],
    )
    def test_a_gang_of_which_the_cluster_refuses_pods(
        self, status: dict[str, Any], pods: list[str], time: str, message: str
    ) -> None:
        running = {"phase": "Running", "containerStatuses": [{"name": "node", "state": {"running": {}}, "ready": True}]}
        made = [pod(**running) for _ in pods]
        for each, at in zip(made, pods, strict=True):
            each["metadata"]["creationTimestamp"] = f"2026-01-01T{at}Z"
        counts = [{"name": "node", "active": status["active"], "ready": status.get("ready", 0)}]
        found = seen(
            *made,
            jobset={**JOBSET, "status": {"replicatedJobsStatus": counts}},
            jobs=[{**self.GANG, "status": {**status, "startTime": BEFORE}}],
            events=[event("Job", "job-node-0", "FailedCreate", self.REFUSED, f"2026-01-01T{time}Z")],
        )
        phase, reason, said, paragraph = told(found)
        assert said == message
        if message:
            assert (phase, reason) == ("Starting", "FailedCreate")
            assert "no problem is known" not in paragraph and "exceeded quota: gpus" in paragraph

    @pytest.mark.parametrize("spec", [{"suspend": True}, {}])
    def test_jobs_that_lack_no_pods(self, spec: dict[str, Any]) -> None:
        """A suspended Job has none, and neither has one that has ended."""
        ended = {"conditions": [{"type": "Complete", "status": "True"}]}
        job = {**self.GANG, "spec": {**self.GANG["spec"], **spec}, "status": {} if spec else ended}
        found = seen(jobs=[job], events=[event("Job", "job-node-0", "FailedCreate", self.REFUSED)])
        assert told(found)[1] != "FailedCreate"

    def test_jobs_that_the_cluster_refuses_but_not_the_harmless_race(self) -> None:
        race = 'admission webhook "mjob.kb.io" denied the request: JobSet.jobset.x-k8s.io "job" not found'
        wrong = 'Job.batch "job-node-0" is invalid: spec.template: must be no more than 63 characters'
        found = replace(seen(events=[event("JobSet", "job", "JobCreationFailed", race)]), jobs=())
        assert told(found)[1] == ""
        found = replace(found, events=[event("JobSet", "job", "JobCreationFailed", wrong)])
        assert told(found)[:3] == ("Pending", "JobCreationFailed", wrong)
        assert told(replace(found, jobs=[JOB]))[1] == ""  # it was made in the end


class TestRestarts:
    def restarting(self, reason: str, message: str, **status: Any) -> JobView:
        condition = {"type": "RestartingJobSet", "status": "True", "reason": reason, "message": message}
        jobset = {**JOBSET, "status": {"conditions": [condition], **status}}
        jobset["spec"] = {**JOBSET["spec"], "failurePolicy": {"maxRestarts": 3}}  # type: ignore[dict-item]
        return seen(waiting("ContainerCreating"), jobset=jobset)

    def test_n_of_max(self) -> None:
        words = "applying RestartJobSet failure policy action (first failed job: job-node-0)"
        found = self.restarting("DefaultFailurePolicy", words, restarts=2, restartsCountTowardsMax=2)
        assert told(found)[:3] == ("Restarting", "DefaultFailurePolicy", f"restart 2 of 3: {words}")

    def test_by_a_rule_that_does_not_count(self) -> None:
        words = "applying RestartJobSetAndIgnoreMaxRestarts failure policy action"
        phase, reason, message, said = told(
            self.restarting("FailurePolicy_host", words, restarts=4, restartsCountTowardsMax=1)
        )
        assert (phase, reason) == ("Restarting", "FailurePolicy_host")
        assert message.startswith("restart 4, which does not count towards the maximum of 3")
        assert "by rule host of its failure policy (" in said

    def test_by_the_rule_for_disruptions(self) -> None:
        words = "applying RestartJobSetAndIgnoreMaxRestarts failure policy action"
        said = told(self.restarting("FailurePolicy_interrupted", words, restarts=1, restartsCountTowardsMax=0))[3]
        assert "since a Pod was disrupted or its program was asked to stop (exit code 143)" in said

    def test_what_holds_it_up_stands_beside_it(self) -> None:
        found = self.restarting("DefaultFailurePolicy", "again", restarts=1, restartsCountTowardsMax=1)
        found = replace(found, pods=[waiting("ErrImagePull", "not found")])
        phase, _, message, said = told(found)
        assert (
            phase == "Restarting" and "; ErrImagePull: container node" in message and "Correct the image's name" in said
        )

    def test_between_a_failure_and_its_restart_it_has_not_gone_back_to_pending(self) -> None:
        failed = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
        jobset = {**JOBSET, "status": {"replicatedJobsStatus": [{"name": "node", "failed": 1}]}}
        found = seen(jobset=jobset, jobs=[{**JOB, "status": {"conditions": [failed], "startTime": BEFORE}}])
        assert told(found)[:2] == ("Running", "Ending")


class TestQueues:
    def queued(self, *conditions: dict[str, Any], **work: Any) -> JobView:
        labels = {"kueue.x-k8s.io/queue-name": "gpus"}
        jobset = {
            **JOBSET,
            "metadata": {**JOBSET["metadata"], "labels": labels},
            "spec": {**JOBSET["spec"], "suspend": True},
        }  # type: ignore[dict-item]
        workload = {"metadata": {"name": "w"}, "spec": {}, "status": {"conditions": list(conditions)}, **work}
        return seen(jobset=jobset, jobs=[], workload=workload)

    def test_no_workload(self) -> None:
        found = replace(self.queued(), workload=None)
        assert told(found, NOW - 50)[:2] == ("Queued", "")
        phase, reason, _, said = told(found)
        assert (phase, reason) == (
            "Queued",
            "NoWorkload",
        ) and "jobset.x-k8s.io/jobset in integrations.frameworks" in said

    def test_workloads_that_may_not_be_read(self) -> None:
        found = replace(self.queued(), workload=None, unreadable=frozenset({"workloads"}))
        assert told(found)[:2] == ("Queued", "") and "cannot be read: the cluster has no such kind" in told(found)[3]

    def test_deactivated(self) -> None:
        evicted = {
            "type": "Evicted",
            "status": "True",
            "reason": "Deactivated",
            "message": "The workload is deactivated",
        }
        found = self.queued(evicted, spec={"active": False})
        assert told(found)[:3] == ("Queued", "Deactivated", "The workload is deactivated")
        assert "Kueue does not start it again by itself" in told(found)[3]

    def test_admission_checks(self) -> None:
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
        status = {
            "conditions": [reserved],
            "admissionChecks": [{"name": "prov", "state": "Pending", "message": "no node yet"}],
        }
        found = self.queued(status=status)
        assert told(found)[:3] == ("Queued", "UnsatisfiedAdmissionChecks", "prov is Pending (no node yet)")

    def test_admitted_but_not_yet_resumed(self) -> None:
        found = self.queued({"type": "Admitted", "status": "True", "message": "The workload is admitted"})
        assert told(found)[:2] == ("Admitted", "Admitted")

    def test_evicted_for_pods_that_were_not_ready(self) -> None:
        evicted = {
            "type": "Evicted",
            "status": "True",
            "reason": "PodsReadyTimeout",
            "message": "Exceeded the timeout team/w",
        }
        found = told(
            self.queued(evicted, {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "x"})
        )
        assert (
            found[:2] == ("Queued", "PodsReadyTimeout")
            and "Kueue has stopped it: Exceeded the timeout team/w" in found[3]
        )

    @pytest.mark.parametrize(
        ("message", "never", "fragment"),
        [
            ("untolerated taint {gpu NoSchedule} in flavor a", True, "flavor a has the taint {gpu NoSchedule}"),
            ("flavor a doesn't match node affinity", True, "the nodes of flavor a do not match"),
            ("flavor a not found", True, "which does not exist"),
            ("Workload namespace doesn't match ClusterQueue selector", True, "does not admit jobs from this namespace"),
            ('topology "t" doesn\'t allow to fit any of 4 pod(s)', False, "no domain of topology t"),
            ("waiting for all admitted workloads to be in PodsReady condition", False, "one job after the other"),
            ("something that nobody knows.", False, "something that nobody knows"),
        ],
    )
    def test_shapes(self, message: str, never: bool, fragment: str) -> None:
        told_, _, found = explain_message(f"couldn't assign flavors to pod set node: {message}", [{"a"}])
        assert found is never and fragment in told_

    def test_one_flavor_that_may_become_free_is_hope(self) -> None:
        words = "untolerated taint x in flavor a, insufficient unused quota for g in flavor b, 2 more needed"
        said, _, never = explain_message(f"couldn't assign flavors to pod set n: {words}", [{"a", "b"}])
        assert not never
        assert "2 more of g must become free in flavor b" in said
        assert "flavor a has the taint" in said

    OVER = (
        "insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset "
        "request (20) > maximum capacity (16)"
    )

    @pytest.mark.parametrize(
        ("message", "never"),
        [
            (f"node: insufficient unused quota for cpu in flavor h100, 30 more needed, {OVER}", True),
            (
                "launcher: insufficient unused quota for cpu in flavor h100, 3 more needed; "
                f"couldn't assign flavors to pod set node: {OVER}",
                True,
            ),
            (f"node: {OVER}, insufficient unused quota for cpu in flavor a100, 30 more needed", False),
            (f"node: {OVER}, untolerated taint x in flavor a100", True),
        ],
    )
    def test_a_flavor_that_lacks_one_resource_for_ever_never_fits(self, message: str, never: bool) -> None:
        flavors = {"h100", "a100"} if "a100" in message else {"h100"}
        said, hint, found = explain_message(f"couldn't assign flavors to pod set {message}", [flavors])
        assert found is never and "can never have more than 16" in said
        assert ("request less" in hint) is never, hint

    @pytest.mark.parametrize(
        ("groups", "more", "never"),
        [
            ([{"h100"}], "", True),
            ([{"h100", "l40s"}], "", False),  # the other one has no room in its topology now
            ([{"h100", "l40s"}], ', topology "t" allows to fit only 2 out of 4 pod(s)', False),
            ([{"h100", "l40s"}], ", no topology domains at level: rack", True),
            ([{"h100", "l40s", "a100"}], ", no topology domains at level: rack", False),
            ([{"cpu"}, {"h100"}], "", True),
            (None, "", False),
        ],
    )
    def test_never_needs_every_flavor_of_a_group(self, groups: Any, more: str, never: bool) -> None:
        _, _, found = explain_message(f"couldn't assign flavors to pod set node: {self.OVER}{more}", groups)
        assert found is never

    def test_pods_that_are_too_many_only_beside_others_may_get_another_flavor(self) -> None:
        beside = self.OVER.replace("(0)", "(2)").replace("(20)", "(15)")
        message = f"couldn't assign flavors to pod set node: {beside}, {self.OVER.replace('h100', 'a100')}"
        assert not explain_message(message, [{"h100", "a100"}])[2], "the others may get a100"
        assert explain_message(f"couldn't assign flavors to pod set node: {beside}", [{"h100"}])[2]

    def test_no_promise_where_the_flavors_are_not_known(self) -> None:
        assert queued(self.OVER).hint.startswith(
            "unless its queue has another flavor, which cannot be read, it never starts"
        )
        assert "as soon as there is room" in queued(self.OVER, flavors=[{"h100", "l40s"}]).hint
        assert "never admit it as it is" in queued(self.OVER, flavors=[{"h100"}]).why


class TestEnds:
    def failed(self, *pods: dict[str, Any], **more: Any) -> JobView:
        message = "jobset failed due to one or more job failures (first failed job: job-node-0)"
        condition = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": message}
        return seen(*pods, jobset={**copy.deepcopy(JOBSET), "status": {"conditions": [condition]}}, **more)

    def ended(self, name: str, code: int, at: str, **more: Any) -> dict[str, Any]:
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at, **more}}
        return pod(name, phase="Failed", containerStatuses=[{"name": "node", "state": state}])

    def test_the_first_that_failed_of_its_own_accord(self) -> None:
        pods = [
            self.ended("job-node-0-0-a", 143, "2026-01-01T00:59:10Z"),
            self.ended("job-node-0-1-b", 7, "2026-01-01T00:59:20Z"),
            self.ended("job-node-0-2-c", 1, "2026-01-01T00:59:30Z"),
        ]
        assert "pod job-node-0-1-b on node gpu-1: exit code 7" in told(self.failed(*pods))[2]

    def test_one_that_is_no_more_is_remembered(self) -> None:
        found = self.failed(gone=[self.ended("job-node-0-1-b", 7, BEFORE)])
        assert "exit code 7" in told(found)[2] and failed_containers(found) == []

    def test_the_newest_attempt_counts(self) -> None:
        """The pods of earlier ones are remembered as well."""
        before, last = self.ended("job-node-0-0-a", 7, BEFORE), self.ended("job-node-0-0-b", 1, "2026-01-01T00:59:30Z")
        for pod_, attempt in ((before, "0"), (last, "1")):
            pod_["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = attempt
        found = self.failed(last, gone=[before], lines={"job-node-0-0-b": ["KeyError: 1"]})
        found.jobset["status"]["restarts"] = 1  # type: ignore[index]
        assert told(found)[2].endswith("pod job-node-0-0-b on node gpu-1: exit code 1\n  KeyError: 1")
        assert failed_containers(found) == [FailedContainer("job-node-0-0-b", "node", "0", restarts=0, previous=False)]
        assert failed_containers(replace(found, pods=[before, last])) == failed_containers(found)

    def test_who_has_lost_a_peer_comes_after_who_has_failed(self) -> None:
        """torchrun of another node may notice the lost connection and end first."""
        lost, cause = self.ended("a", 1, BEFORE), self.ended("b", 1, "2026-01-01T00:59:30Z")
        begin = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
        lines = {"a": [*begin, "RuntimeError: Connection closed by peer"], "b": [*begin, "KeyError: 1"]}
        assert "pod a on node gpu-1" in told(self.failed(lost, cause))[2]
        found = self.failed(lost, cause, lines=lines)
        assert "pod b on node gpu-1" in told(found)[2] and told(found)[2].endswith("KeyError: 1")
        assert [each.pod for each in failed_containers(found)] == ["b", "a"]

    def test_a_crash_loop_is_explained_by_who_has_failed_first(self) -> None:
        last = {"terminated": {"exitCode": 1, "finishedAt": BEFORE}}
        pods = [waiting("CrashLoopBackOff", restartCount=9, lastState=last) for _ in range(3)]
        for at, each in enumerate(pods):
            each["metadata"]["name"] = f"job-node-0-{at}"
        lost = ["Traceback (most recent call last):", "RuntimeError: Connection closed by peer"]
        lines = {"job-node-0-1": lost, "job-node-0-2": ["KeyError: 1"]}
        message = told(seen(*pods, lines=lines))[2]
        assert "pod job-node-0-2 on node gpu-1 (and 2 more): exit code 1: KeyError: 1, restarted" in message

    def test_a_container_that_is_ended_while_it_starts_again_is_explained_by_its_previous_run(self) -> None:
        """The Job controller ends it at the backoff limit."""
        ends = [
            {"terminated": {"exitCode": code, "finishedAt": at}}
            for code, at in ((143, "2026-01-01T00:59:50Z"), (1, BEFORE))
        ]
        container = {"name": "node", "restartCount": 3, "state": ends[0], "lastState": ends[1]}
        found = self.failed(pod("a", phase="Failed", containerStatuses=[container]))
        assert [(each.restarts, each.previous) for each in failed_containers(found)] == [(3, True)]
        assert "exit code 1" in told(found)[2]

    @pytest.mark.parametrize("policy", ["OnFailure", "Never"])
    @pytest.mark.parametrize("reason", ["BackoffLimitExceeded", "DeadlineExceeded"])
    def test_pods_that_are_deleted_at_the_backoff_limit(self, policy: str, reason: str) -> None:
        job = copy.deepcopy(JOB)
        job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": "no more"}]}
        found = self.failed(jobs=[job])
        (step,) = found.jobset["spec"]["replicatedJobs"]  # type: ignore[index]
        step["template"]["spec"]["template"] = {"spec": {"restartPolicy": policy}}
        _, _, message, said = told(found)
        assert message.endswith(f"\nJob job-node-0: no more ({reason})")
        deleted = policy == "OnFailure" and reason == "BackoffLimitExceeded"
        assert ("has deleted the Pods and their logs at that limit (restartPolicy OnFailure). Fix" in said) == deleted
        assert ("restartPolicy Never in the runtime keeps failed Pods" in said) == deleted
        assert "has deleted" not in told(replace(found, pods=[pod(phase="Running")]))[3]

    def test_a_failed_job_without_pods_is_explained_by_what_a_waiting_program_has_recorded(self) -> None:
        seen_ = f"{told(self.failed())[2]}\ncontainer node of pod a: exit code 1\n  KeyError: 'k'"
        record = JobStatus("job", "team", phase="Failed", reason="FailedJobs", message=seen_)
        found = self.failed(recorded=record)
        assert told(found)[2] == seen_ and seen_ in told(found)[3]
        other = self.failed(recorded=JobStatus("job", "team", phase="Deleted", message="gone " * 99))
        assert "gone" not in told(other)[2]

    def test_signals_have_names(self) -> None:
        assert "exit code 139 (SIGSEGV)" in told(self.failed(self.ended("p", 139, BEFORE)))[2]

    def test_an_eviction(self) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "drained",
        }
        gone = pod(phase="Failed", reason="Evicted", message="low on memory", conditions=[condition])
        said = told(self.failed(gone))[2]
        assert "failed (Evicted): low on memory; EvictionByEvictionAPI: drained" in said

    def test_a_job_that_is_no_more_is_as_its_record_says(self) -> None:
        record = JobStatus(
            "job", "team", uid="r", owner="o", phase="Failed", reason="FailedJobs", message="exit code 3"
        )
        found = JobView("team", "job", recorded=record)
        assert diagnose(found, NOW) == record
        assert "it no longer exists (exit code 3). Give the TrainJob another run=" in told(found)[3]

    def test_a_job_that_nobody_knows(self) -> None:
        assert told(JobView("team", "job"))[:2] == ("Deleted", "NotFound")

    def test_a_jobset_of_a_train_job_that_is_no_more_is_none(self) -> None:
        owned = {
            **JOBSET,
            "metadata": {**JOBSET["metadata"], "ownerReferences": [{"kind": "TrainJob", "controller": True}]},
        }  # type: ignore[dict-item]
        assert told(seen(jobset=owned))[:2] == ("Deleted", "NotFound")

    def test_being_deleted(self) -> None:
        meta = {**JOBSET["metadata"], "deletionTimestamp": BEFORE, "finalizers": ["foregroundDeletion"]}  # type: ignore[dict-item]
        assert told(seen(jobset={**JOBSET, "metadata": meta}))[:3] == (
            "Deleted",
            "Deleting",
            f"it is being deleted since {BEFORE}; waiting for the finalizer foregroundDeletion",
        )


HOSTILE: list[Any] = [None, 1, "x", [], ["x"], [None], {}, {"x": 1}, True]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
@pytest.mark.parametrize("kind", ["JobSet", "TrainJob", "Workload", "Job", "Pod", "PodGroup", "Event"])
def test_any_document_is_read_without_an_error(kind: str, field: str, value: Any) -> None:
    document = keep(kind, {"metadata": {"name": "job", "creationTimestamp": BEFORE}, "kind": kind, field: value})
    named = {"JobSet": "jobset", "TrainJob": "train_job", "Workload": "workload", "PodGroup": "pod_group"}
    lists = {"Job": "jobs", "Pod": "pods", "Event": "events"}
    queue = {"metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": {"suspend": True}}
    for jobset in (JOBSET, queue):
        found = JobView(
            "team",
            "job",
            **{"jobset": jobset, **({named[kind]: document} if kind in named else {lists[kind]: [document]})},
        )
        assert explain(found, diagnose(found, NOW), NOW)


def test_only_what_is_read_is_kept() -> None:
    noise = {"managedFields": [{"manager": "x"}], "annotations": {"much": "text"}}
    document = {
        "metadata": {"name": "p", **noise},
        "spec": {"nodeName": "n", "containers": [{"name": "node", "env": []}]},
        "status": {"podIP": "1"},
    }
    assert keep("Pod", document) == {
        "metadata": {"name": "p", "annotations": {}},
        "spec": {"nodeName": "n", "containers": [{"name": "node"}]},
        "status": {},
    }


class TestGangs:
    """Pods, and the PodGroup that the waiting ones name."""

    def seen(self, *pods: Any, group: Any = None, volcano: bool = False) -> JobView:
        """pods: (name, PodGroup, node, what the scheduler says)."""
        made = []
        for name, gang, node, said in pods:
            about: Any = {"name": name, "labels": {} if volcano else {"scheduling.x-k8s.io/pod-group": gang}}
            if volcano:
                about["annotations"] = {"scheduling.k8s.io/group-name": gang}
            told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
            spec = {"schedulerName": "second", **({"nodeName": node} if node else {})}
            status = {"phase": "Running" if node else "Pending", "conditions": [] if node else [told]}
            made.append({"metadata": about, "spec": spec, "status": status})
        jobset = {"metadata": {"name": "job"}, "spec": {"replicatedJobs": []}, "status": {"conditions": []}}
        return JobView(
            "team",
            "job",
            jobset=jobset,
            pods=made,
            pod_group=group,
            jobs=[{"metadata": {"name": "j"}, "status": {"active": 1}}],
        )

    def said(self, seen: JobView) -> tuple[str, str, str]:
        status = diagnose(seen, 0.0)
        return status.reason, status.message, explain(seen, status, 0.0)

    def test_only_pods_of_that_gang_count(self) -> None:
        group = {"metadata": {"name": "job.node"}, "spec": {"minMember": 2}, "status": {"phase": "Scheduling"}}
        waits = [(f"n{i}", "job.node", "", "0/8 nodes are available: 8 Insufficient cpu.") for i in range(2)]
        reason, message, paragraph = self.said(self.seen(("d", "job.data", "gpu-0", ""), *waits, group=group))
        assert reason == "WaitingForGang"
        assert message.startswith("0 of 2 pods of PodGroup job.node (Scheduling) have a node: 0/8 nodes")
        assert "kubectl annotate -n team podgroups.scheduling.x-k8s.io job.node --overwrite woken=1" in paragraph

    def test_volcano_needs_no_touch(self) -> None:
        seen = self.seen(("n", "job", "", "no room"), group={"spec": {"minMember": 2}}, volcano=True)
        reason, _, paragraph = self.said(seen)
        assert (
            reason == "WaitingForGang" and "kubectl" not in paragraph and "Volcano tries again by itself" in paragraph
        )

    def test_the_pod_that_does_not_fit_says_why(self) -> None:
        """Volcano says of the others that they would, with another node in each cycle."""
        fits = "Pod team/n0 can possibly be assigned to gpu-0, once minAvailable is satisfied"
        lacks = "0/8 nodes are unavailable: 8 Insufficient cpu."
        group = {"spec": {"minMember": 2, "queue": "research"}, "status": {"phase": "Inqueue"}}
        seen = self.seen(("n0", "job", "", fits), ("n1", "job", "", lacks), group=group, volcano=True)
        _, message, paragraph = self.said(seen)
        assert message == f"0 of 2 pods of PodGroup job (Inqueue) have a node: {lacks}" and "research" not in paragraph

    def test_a_queue_of_volcano_without_room(self) -> None:
        vague = "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
        group = {"spec": {"minMember": 2, "queue": "research"}, "status": {"phase": "Pending"}}
        seen = self.seen(("n0", "job", "", vague), ("n1", "job", "", vague), group=group, volcano=True)
        why = "queue resource quota insufficient: insufficient cpu"
        about = {"kind": "PodGroup", "name": "job"}
        seen = replace(seen, events=[{"involvedObject": about, "reason": "Unschedulable", "message": why}])
        _, _, paragraph = self.said(seen)
        assert why in paragraph and "as soon as its queue research and the cluster have room" in paragraph

    def test_what_the_whole_cluster_lacks(self) -> None:
        go = "map[cpu:{{1500 -3} {<nil>}  DecimalSI} memory:{{5 9} {<nil>}  DecimalSI} nvidia.com/gpu:{{8 0} {<nil>}  DecimalSI}]"
        seen = self.seen(("n", "job", "", f"0/8 nodes are available: resource gap: {go}. no new claims"), group={})
        _, message, paragraph = self.said(seen)
        assert go in message
        assert "the cluster lacks 1.5 cpu, 5000000000 memory, 8 nvidia.com/gpu for all of them together" in paragraph
        other = self.seen(("n", "job", "", "resource gap: something else"), group={})
        assert "resource gap: something else" in self.said(other)[2]

    def test_no_such_group(self) -> None:
        assert self.said(self.seen(("n", "nobody", "", "PodGroup not found")))[0] == "NoPodGroup"


# --- refusals of pods, nodes, and a Kueue that does not answer ---------------------------------------------------------------


def test_what_an_empty_node_lacks_is_told_instead_of_the_schedulers_count() -> None:
    seen, now = recorded("unschedulable")
    seen = replace(seen, no_node=NoNode("no node has 16 nvidia.com/gpu: the largest has 8", on_demand=False))
    told = explain(seen, diagnose(seen, now), now)
    assert "no node has 16 nvidia.com/gpu: the largest has 8, even when nothing runs. Add such nodes" in told
    assert "by itself" not in told, "the job never starts"
    seen = replace(seen, no_node=NoNode("no node has 16 nvidia.com/gpu: the largest has 8", on_demand=True))
    assert "the largest has 8, unless an autoscaler adds one" in explain(seen, diagnose(seen, now), now)


def test_a_claim_that_no_class_provides_is_named() -> None:
    seen, now = recorded("unschedulable")
    class_ = Problem("PersistentVolumeClaim data", "StorageClass 'fast' does not exist", "the cluster has slow")
    seen = replace(seen, unbound=class_)
    told = explain(seen, diagnose(seen, now), now)
    assert "PersistentVolumeClaim data: StorageClass 'fast' does not exist. The cluster has slow" in told


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (("exceeded quota: q, requested: requests.cpu=4, used: requests.cpu=1,"
        " limited: requests.cpu=4"), "the controller tries again when other jobs"),
        ("exceeded quota: q, requested: pods=1,requests.cpu=8, used: pods=0,requests.cpu=0, limited: pods=9,requests.cpu=4",
         "one Pod requests more than the ResourceQuota allows"),
        ("maximum cpu usage per Container is 1, but limit is 2", "kubectl describe limitrange -n team"),
        ("failed quota: q: must specify limits.cpu for: node", "a LimitRange with defaults"),
        ('Internal error occurred: failed calling webhook "mpod.kb.io": no endpoints', "kubectl get pods -n kueue-system"),
        ("anything else", "correct what the message names"),
    ],
)  # fmt: skip
def test_what_to_do_about_refused_pods(message: str, hint: str) -> None:
    assert hint in _refusal_hint(JobView("team", "job"), message)


def queued(message: str, **more: Any) -> Reason:
    status = {
        "conditions": [{"type": "QuotaReserved", "status": "False", "message": message}, *more.pop("conditions", [])]
    }
    work = {"metadata": {"name": "w", "namespace": "team"}, "status": status if message else {}}
    return why_queued(Waiting("red", work, **more))


def member(name: str, message: str = "", *, gpus: int = 1, created: int = 0, judged: int = 5) -> dict[str, Any]:
    """A Workload of a sweep. created, judged: Seconds of a minute."""
    container = {"name": "node", "env": [{"name": "LR", "value": name}], "resources": {"requests": {"gpu": gpus}}}
    pods = {"name": "node", "count": 2, "template": {"spec": {"containers": [container]}}}
    at = f"2026-11-29T00:00:{judged:02}Z"
    quota = {"type": "QuotaReserved", "status": "False", "message": message, "lastTransitionTime": at}
    about = {"name": name, "namespace": "team", "creationTimestamp": f"2026-11-29T00:00:{created:02}Z"}
    owners = [{"kind": "JobSet", "name": name, "controller": True}]
    spec = {"queueName": "red", "podSets": [pods]}
    status = {"conditions": [quota]} if message else {}
    return {"metadata": {**about, "ownerReferences": owners}, "spec": spec, "status": status}


def test_equal_workloads_have_the_reason_of_the_one_that_kueue_judges() -> None:
    needs = "couldn't assign flavors to pod set node: insufficient unused quota for gpu in flavor h100, 2 more needed"
    works = [member("sweep-1", needs), member("sweep-2"), member("sweep-3", "another", gpus=2)]
    said = Judgements.of(works)
    assert said.peer_of(works[1]) is works[0] and said.peer_of(member("sweep-4", gpus=3)) is None
    found = why_queued(Waiting("red", works[1], age=300, peer=works[0]))
    assert (
        "2 more of gpu must become free in flavor h100, as Kueue says of team/sweep-1, which requests the same"
        in found.why
    )
    assert found.reason != "NoAnswer" and "does Kueue's controller run" not in found.hint


def test_kueue_answers_if_it_has_judged_another_job_since() -> None:
    late, early = member("a", "x", judged=30), member("b", "x", judged=5)
    own = member("c", created=10)
    assert Judgements.of([own, late]).is_later(own) and not Judgements.of([own, early]).is_later(own)
    found = why_queued(Waiting("red", own, age=300, turn=True))
    assert found.hint == "Kueue judges other jobs of its queue: whether it fits is known once it is its turn"
    assert found.reason == ""


def test_each_of_many_waiting_workloads_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, shape_of = list[Any](), workload_reasons._shape_of

    def count(workload: dict[str, Any]) -> str:
        looked_at.append(workload)
        return shape_of(workload)

    monkeypatch.setattr(workload_reasons, "_shape_of", count)
    works = [member(f"j{i}", "2 more needed" if i % 2 else "", gpus=i + 1) for i in range(60)]
    found = occupancy([{**each, "kind": "Workload"} for each in works], [])
    assert len(found.work) == 60 and len(looked_at) == 60


EVICTED = {
    "type": "Evicted",
    "status": "True",
    "reason": "PodsReadyTimeout",
    "message": "Exceeded the PodsReady timeout",
}


@pytest.mark.parametrize("message", [
    "couldn't assign flavors to pod set node: resource amd.com/gpu unavailable in ClusterQueue",
    "resources didn't satisfy LimitRange constraints: spec.podSets[0]: exceeds max",
    "couldn't assign flavors to pod set node: flavor gone not found",
])  # fmt: skip
@pytest.mark.parametrize("evicted", [[], [EVICTED]])
def test_never_does_not_start_by_itself(message: str, evicted: list[Any]) -> None:
    found = queued(message, conditions=evicted, flavors=[{"gone"}])
    assert "will never admit it as it is" in found.why and "will never admit" in found.message
    assert found.hint and "by itself" not in found.hint


def test_a_kueue_that_does_not_answer() -> None:
    assert queued("", age=5).hint == "" and queued("", age=5).why.endswith("has not looked at it yet")
    found = queued("", age=300)
    assert found.why.endswith("Kueue has not looked at it in 5m00s")
    assert "does Kueue's controller run? kubectl get pods -n kueue-system" in found.hint
    missing = why_queued(Waiting("red", None, age=300))
    assert missing.reason == "NoWorkload" and "kubectl get pods -n kueue-system" in missing.hint


def test_the_time_of_a_phase_is_not_the_age_of_the_job() -> None:
    """A job may have waited in a queue for days."""
    seen, now = recorded("running")
    days, minutes = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - ago)) for ago in (3 * 86400, 300))
    seen.jobset["metadata"]["creationTimestamp"] = days  # type: ignore[index]
    for each in seen.jobs:
        each["status"]["startTime"] = minutes
    assert "team/job-1 is Running for 5m00s".partition("job-1")[2] in explain(seen, diagnose(seen, now), now)
    jobset = copy.deepcopy(JOBSET)
    jobset["metadata"]["creationTimestamp"] = days
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": minutes}
    jobset["status"] = {"conditions": [resumed]}
    starting = replace(seen, jobset=jobset, pods=[], jobs=[])
    said = explain(starting, diagnose(starting, now), now)
    assert "72h" not in said, said
