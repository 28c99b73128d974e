"""What the JobSet and Job controllers would decide: pure state and rules, no process and no clock of its own.

`run` tells it what became of pods (`pod_succeeded`, `pod_failed`), and asks which pods to start (`to_start`) and
whether the JobSet is done with (`verdict`). Times are seconds, given by the caller.

Rules: https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/pkg/controllers (failure_policy.go, success_policy.go,
depends_on.go, startup_policy.go) and https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/controller/job
(job_controller.go, backoff_utils.go, pod_failure_policy.go).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi_trainer.provider.kube.values import go_regexp

Spec = Mapping[str, Any]

JOB_BACKOFF_MAX = 60.0
"""In units of the first back-off: 10 minutes to 10 seconds."""


def job_name(jobset: Spec, step: str, job_index: int) -> str:
    return f"{jobset['metadata']['name']}-{step}-{job_index}"


@dataclass(frozen=True)
class Exit:
    """A container that ended with another code than 0."""

    container: str
    code: int


@dataclass
class Pod:
    """An active pod, as its runner sees it. restarts: of its containers."""

    ready: bool = False
    restarts: int = 0


@dataclass
class Job:
    """One Job: its rules, and how far it is. phase: "" (not started), Active, Complete or Failed.

    counted: failed pods that count towards backoffLimit. replaced: all failed pods. restarted: restarts inside pods that are
    gone. streak: failed pods since the last success.
    """

    name: str
    step: str
    index: int
    spec: Spec
    phase: Literal["", "Active", "Complete", "Failed"] = ""
    reason: str = ""
    message: str = ""
    started: float = 0.0
    finished: float = 0.0
    pods: dict[int, Pod] = field(default_factory=dict)
    succeeded: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    counted: int = 0
    replaced: int = 0
    restarted: int = 0
    streak: int = 0
    last_failure: dict[int, float] = field(default_factory=dict)

    @property
    def completions(self) -> int:
        given = self.spec.get("completions")
        return int(given if given is not None else self.spec.get("parallelism", 1))

    @property
    def parallelism(self) -> int:
        return min(int(self.spec.get("parallelism", 1)), self.completions)

    @property
    def per_index(self) -> int | None:
        given = self.spec.get("backoffLimitPerIndex")
        return None if given is None else int(given)

    @property
    def backoff_limit(self) -> float:
        given = self.spec.get("backoffLimit")
        if given is not None:
            return int(given)
        return 6 if self.per_index is None else math.inf

    @property
    def ready(self) -> bool:
        """As JobSet counts it: enough pods ready or done."""
        done = len(self.succeeded) + sum(p.ready for p in self.pods.values())
        return self.phase == "Active" and done >= self.parallelism

    @property
    def persistent(self) -> bool:
        """Its own rules say what becomes of a failure: backoffLimitPerIndex, or a podFailurePolicy that ignores some."""
        rules = (self.spec.get("podFailurePolicy") or {}).get("rules") or []
        return self.per_index is not None or any(rule.get("action") == "Ignore" for rule in rules)

    def fail(self, reason: str, message: str, now: float) -> None:
        if self.phase == "Active":
            self.phase, self.reason, self.message, self.finished = "Failed", reason, message, now

    def to_start(self, now: float, backoff: float) -> list[int]:
        """Indexes whose pod should start now, the lowest first. backoff: seconds after a first failure."""
        if self.phase != "Active":
            return []
        open_ = [i for i in range(self.completions) if i not in self._settled and i not in self.pods]
        due = [i for i in open_ if now >= self._not_before(i, backoff)]
        return due[: max(0, self.parallelism - len(self.pods))]

    @property
    def waits(self) -> bool:
        """A pod has failed and waits for its back-off."""
        return self.phase == "Active" and any(i not in self._settled and i not in self.pods for i in self.last_failure)

    @property
    def _settled(self) -> set[int]:
        return self.succeeded | self.failed_indexes

    def _not_before(self, index: int, backoff: float) -> float:
        """Back-off is the Job's, or each index's own with backoffLimitPerIndex."""
        own = self.per_index is not None
        failures = self.failures.get(index, 0) if own else self.streak
        last = self.last_failure.get(index, 0.0) if own else max(self.last_failure.values(), default=0.0)
        return last + backoff * min(2.0 ** (failures - 1), JOB_BACKOFF_MAX) if failures else 0.0

    def pod_succeeded(self, index: int, now: float) -> None:
        self.pods.pop(index, None)
        self.succeeded.add(index)
        self.streak = 0
        self._settle(now)

    def pod_failed(self, index: int, exits: Sequence[Exit], now: float, pod: str = "") -> None:
        """A pod that will not run again; its replacement, if any, comes with `to_start`."""
        self.pods.pop(index, None)
        self.replaced += 1
        self.streak += 1
        self.last_failure[index] = now
        rule = _matching_rule(self.spec.get("podFailurePolicy") or {}, exits)
        action = rule[1] if rule else "Count"
        if action == "FailJob" and rule:
            at, _, hit = rule
            what = f"Container {hit.container} for pod {pod} failed with exit code {hit.code} matching FailJob rule"
            self.fail("PodFailurePolicy", f"{what} at index {at}", now)
            return
        if action != "Ignore":
            self.counted += 1
            self.failures[index] = self.failures.get(index, 0) + 1
        if self.per_index is not None and (action == "FailIndex" or self.failures.get(index, 0) > self.per_index):
            self.failed_indexes.add(index)
        if self.counted > self.backoff_limit:
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit", now)
        self._settle(now)

    def check(self, now: float) -> None:
        """Limits that pass with time, or with restarts inside pods.

        Kubernetes fails the Job when the last restart has happened; here that restart, which would be ended at once,
        is not made.
        """
        deadline = self.spec.get("activeDeadlineSeconds")
        if sum(p.restarts for p in self.pods.values()) >= max(1, self.backoff_limit):
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit", now)
        elif deadline is not None and self.started and now - self.started >= deadline:
            self.fail("DeadlineExceeded", "Job was active longer than specified deadline", now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        if self.phase != "Active":
            return
        most = self.spec.get("maxFailedIndexes")
        if len(self.succeeded) >= self.completions:
            self.phase, self.finished = "Complete", now
        elif most is not None and len(self.failed_indexes) > most:
            self.fail(
                "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes", now
            )
        elif self.failed_indexes and len(self._settled) >= self.completions:
            self.fail("FailedIndexes", "Job has failed indexes", now)


def _matching_rule(policy: Spec, exits: Sequence[Exit]) -> tuple[int, str, Exit] | None:
    """The first rule of a podFailurePolicy that one of the exits matches. Pod conditions never hold on this machine."""
    for at, rule in enumerate(policy.get("rules") or []):
        wanted = rule.get("onExitCodes")
        if not wanted:
            continue
        inside = wanted["operator"] == "In"
        for one in exits:
            named = wanted.get("containerName") in (None, one.container)
            if named and one.code != 0 and (one.code in wanted["values"]) == inside:
                return at, rule["action"], one
    return None


@dataclass(frozen=True)
class Verdict:
    """What becomes of the whole JobSet. rule: the name of the failure policy's rule that asks for a restart."""

    action: Literal["Succeeded", "Failed", "Restart"]
    reason: str
    message: str = ""
    rule: str = ""
    counts: bool = True
    job: str = ""


class JobSet:
    """A JobSet's jobs and its restarts. counted: restarts that count towards maxRestarts."""

    def __init__(self, document: Spec, state: Mapping[str, Any] | None = None) -> None:
        self.document = document
        self.spec: Spec = document["spec"]
        self.restarts = int((state or {}).get("restarts", 0))
        self.counted = int((state or {}).get("counted", 0))
        self.jobs = self._jobs()
        for job in self.jobs:
            kept = ((state or {}).get("jobs") or {}).get(job.name)
            if kept:
                job.phase, job.started, job.finished = kept["phase"], kept["started"], kept["finished"]
                job.succeeded, job.counted = set(kept["succeeded"]), kept["counted"]

    def _jobs(self) -> list[Job]:
        return [
            Job(job_name(self.document, rjob["name"], i), rjob["name"], i, rjob["template"]["spec"])
            for rjob in self.spec["replicatedJobs"]
            for i in range(int(rjob.get("replicas", 1)))
        ]

    def state(self) -> dict[str, Any]:
        """What outlives a suspension: finished Jobs and completed indexes stay so, active ones begin anew."""
        jobs = {
            j.name: {
                "phase": j.phase if j.phase == "Complete" else "",
                "started": j.started if j.phase == "Complete" else 0.0,
                "finished": j.finished,
                "succeeded": sorted(j.succeeded),
                "counted": j.counted,
            }
            for j in self.jobs
            if j.succeeded or j.counted
        }
        return {"restarts": self.restarts, "counted": self.counted, "jobs": jobs}

    @property
    def persistent(self) -> bool:
        """A rule of its failurePolicy asks for restarts without end."""
        rules = (self.spec.get("failurePolicy") or {}).get("rules") or []
        return any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules)

    def of(self, step: str) -> list[Job]:
        return [j for j in self.jobs if j.step == step]

    def start_ready(self, now: float) -> None:
        """Starts every Job whose turn has come."""
        in_order = (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        for rjob in self.spec["replicatedJobs"]:
            if all(self._reached(d["name"], d["status"]) for d in rjob.get("dependsOn") or []):
                for job in self.of(rjob["name"]):
                    if not job.phase:
                        job.phase, job.started = "Active", now
                        job.check(now)
            if in_order and not self._reached(rjob["name"], "Ready"):
                return

    def _reached(self, step: str, status: str) -> bool:
        jobs = self.of(step)
        if status == "Complete":
            return all(j.phase == "Complete" for j in jobs)
        return all(j.ready or j.phase in ("Complete", "Failed") for j in jobs)

    def waits_for(self) -> str:
        """In words, what the first step that has not started waits for; empty: nothing."""
        for rjob in self.spec["replicatedJobs"]:
            for needed in rjob.get("dependsOn") or []:
                if not self._reached(needed["name"], needed["status"]):
                    return f"{rjob['name']} waits for {needed['name']} to be {needed['status']}"
        return ""

    def verdict(self) -> Verdict | None:
        """None: it goes on."""
        failed = sorted((j for j in self.jobs if j.phase == "Failed"), key=lambda j: j.finished)
        if failed:
            return self._failure(failed)
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [r["name"] for r in self.spec["replicatedJobs"]]
        counting = [j for j in self.jobs if j.step in targets]
        complete = sum(j.phase == "Complete" for j in counting)
        expected = 1 if policy.get("operator") == "Any" else len(counting)
        if complete and complete >= expected:
            return Verdict("Succeeded", "AllJobsCompleted", "jobset completed successfully")
        return None

    def _failure(self, failed: list[Job]) -> Verdict:
        policy = self.spec.get("failurePolicy")
        if policy is None:
            return _failed("FailedJobs", "jobset failed due to one or more job failures", failed[0])
        name, action, job = "", "RestartJobSet", failed[0]
        for at, rule in enumerate(policy.get("rules") or []):
            matching = [j for j in failed if _applies(rule, j)]
            if matching:
                name, action, job = rule.get("name") or f"failurePolicyRule{at + 1}", rule["action"], matching[0]
                break
        if action == "FailJobSet":
            return _failed("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action", job)
        counts = action == "RestartJobSet"
        if counts and self.counted >= int(policy.get("maxRestarts", 0)):
            return _failed("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", job)
        rule_reason = f"FailurePolicy_{name}" if name else "DefaultFailurePolicy"
        return Verdict("Restart", rule_reason, rule=name, counts=counts, job=job.name)

    def restart(self, verdict: Verdict) -> None:
        """Every Job begins anew, finished ones too."""
        self.restarts += 1
        self.counted += verdict.counts
        self.jobs = self._jobs()


def _failed(reason: str, message: str, job: Job) -> Verdict:
    why = f"; {job.name}: {job.reason}: {job.message}"
    return Verdict("Failed", reason, f"{message} (first failed job: {job.name}){why}", job=job.name)


def _applies(rule: Spec, job: Job) -> bool:
    reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
    patterns = rule.get("onJobFailureMessagePatterns")
    return (
        (not reasons or job.reason in reasons)
        and (not targets or job.step in targets)
        and (not patterns or any(_found(p, job.message) for p in patterns))
    )


def _found(pattern: str, message: str) -> bool:
    try:
        return go_regexp.matches(pattern, message)
    except ValueError:  # in a job of an earlier version
        return False


def peak(jobset: Spec, amount: Mapping[str, Any]) -> Any:
    """The most of something that the steps need at one time. amount: of all pods of a step that run together.

    Steps that wait for each other's completion do not run together.
    """
    after: dict[str, set[str]] = {}
    for rjob in jobset["spec"]["replicatedJobs"]:
        waits = {d["name"] for d in rjob.get("dependsOn") or [] if d.get("status") == "Complete"}
        after[rjob["name"]] = waits.union(*(after.get(w, set()) for w in waits))

    def most(steps: list[str]) -> Any:
        if not steps:
            return 0
        first, rest = steps[0], steps[1:]
        beside = [s for s in rest if s not in after[first] and first not in after[s]]
        both = amount[first] + most(beside)
        return both if beside == rest else max(both, most(rest))

    return most(list(after))


def together(rjob: Spec) -> int:
    """Pods of a replicated job that run at one time."""
    job = Job("", "", 0, rjob["template"]["spec"])
    return int(rjob.get("replicas", 1)) * job.parallelism


def ready_everywhere(jobs: Iterable[Job]) -> bool:
    """No started Job still waits for a pod."""
    return all(j.ready or j.phase in ("Complete", "Failed", "") for j in jobs)
