"""Implements the rules of the JobSet and Job controllers as pure state, without processes and clock.

`run` reports the ends of pods (`pod_succeeded`, `pod_failed`) and queries which pods to start (`to_start`) and whether the JobSet
has ended (`verdict`). Times are seconds since the epoch, passed by the caller.

Rules: https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/pkg/controllers (failure_policy.go, success_policy.go,
depends_on.go, startup_policy.go) and https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/controller/job
(job_controller.go, backoff_utils.go, pod_failure_policy.go).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi_trainer.provider.kubernetes.values import go_regexp
from pulumi_trainer.provider.kubernetes.views import completions, jobs_of, pods_at_once

Spec = Mapping[str, Any]

JOB_BACKOFF_MAX = 60.0
"""Maximum in units of the first back-off: 10 minutes to 10 seconds."""


def job_name(jobset: Spec, step: str, job_index: int) -> str:
    return f"{jobset['metadata']['name']}-{step}-{job_index}"


@dataclass(frozen=True)
class Exit:
    """A container that exited with another code than 0."""

    container: str
    code: int


@dataclass
class Pod:
    """The state of an active pod, as its runner reports it; `restarts` counts those of its containers."""

    ready: bool = False
    restarts: int = 0


@dataclass
class Job:
    """One Job: its spec and its state.

    Attributes:
        phase: Empty before the start.
        failures: Index -> failures that count towards backoffLimitPerIndex.
        restarted: Restarts of containers in pods that have ended.
        streak: Failed pods since the last success.
        last_failure: Index -> time of the newest failure.
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
        """Return the number of completions; 0 if unknown."""
        return completions(self.spec) or 0

    @property
    def parallelism(self) -> int:
        """Return how many pods may run at once; 0 if unknown."""
        return pods_at_once(self.spec) or 0

    @property
    def per_index(self) -> int | None:
        given = self.spec.get("backoffLimitPerIndex")
        if given is None:
            return None
        return int(given)

    @property
    def backoff_limit(self) -> float:
        """Return backoffLimit or its default: 6, unlimited with backoffLimitPerIndex."""
        given = self.spec.get("backoffLimit")
        if given is not None:
            return int(given)
        if self.per_index is not None:
            return math.inf
        return 6

    @property
    def ready(self) -> bool:
        """Return whether enough pods are ready or have succeeded, by JobSet's definition."""
        done = len(self.succeeded) + sum(p.ready for p in self.pods.values())
        return self.phase == "Active" and done >= self.parallelism

    @property
    def has_retry_rules(self) -> bool:
        """Return whether the Job has rules for retries: backoffLimitPerIndex, or a podFailurePolicy that ignores failures."""
        rules = (self.spec.get("podFailurePolicy") or {}).get("rules") or []
        return self.per_index is not None or any(rule.get("action") == "Ignore" for rule in rules)

    def fail(self, reason: str, message: str, now: float) -> None:
        """Set the phase of an active Job to Failed."""
        if self.phase == "Active":
            self.phase, self.reason, self.message, self.finished = "Failed", reason, message, now

    def to_start(self, now: float, backoff: float) -> list[int]:
        """Return the indexes whose pods should start now, the lowest first. backoff: seconds after a first failure."""
        if self.phase != "Active":
            return []
        due = [i for i in range(self.completions) if self._is_open(i) and now >= self._not_before(i, backoff)]
        return due[: max(0, self.parallelism - len(self.pods))]

    @property
    def in_backoff(self) -> bool:
        """Return whether a failed pod waits for the end of its back-off."""
        return self.phase == "Active" and any(map(self._is_open, self.last_failure))

    def _is_open(self, index: int) -> bool:
        """Return whether an index has neither ended nor an active pod."""
        return index not in self._settled and index not in self.pods

    @property
    def _settled(self) -> set[int]:
        return self.succeeded | self.failed_indexes

    @property
    def _meets_success_policy(self) -> bool:
        """Return whether the completed indexes meet a rule of the Job's successPolicy: all that it names, or a number of them."""
        for rule in (self.spec.get("successPolicy") or {}).get("rules") or []:
            named = rule.get("succeededIndexes")
            if named is None:
                wanted = set(range(self.completions))
            else:
                wanted = _indexes(str(named))
            if len(wanted & self.succeeded) >= int(rule.get("succeededCount") or len(wanted)):
                return True
        return False

    def _not_before(self, index: int, backoff: float) -> float:
        """Return when the back-off of an index ends: the Job's, or the index's own with backoffLimitPerIndex."""
        if self.per_index is not None:
            failures = self.failures.get(index, 0)
            last = self.last_failure.get(index, 0.0)
        else:
            failures = self.streak
            last = max(self.last_failure.values(), default=0.0)
        if not failures:
            return 0.0
        return last + backoff * min(2.0 ** (failures - 1), JOB_BACKOFF_MAX)

    def pod_succeeded(self, index: int, now: float) -> None:
        self.pods.pop(index, None)
        self.succeeded.add(index)
        self.streak = 0
        self._settle(now)

    def pod_failed(self, index: int, exits: Sequence[Exit], now: float, pod: str = "") -> None:
        """Record that the pod of an index has failed; `to_start` returns the index again if the pod is replaced. pod:
        NAMESPACE/NAME of the pod, for the message."""
        self.pods.pop(index, None)
        self.replaced += 1
        self.streak += 1
        self.last_failure[index] = now
        action = "Count"
        rule = _matching_rule(self.spec.get("podFailurePolicy") or {}, exits)
        if rule is not None:
            at, action, hit = rule
            if action == "FailJob":
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
        """Fail the Job if it has passed its deadline, or its limit on restarts of containers.

        Kubernetes fails the Job after the last restart; here that restart, which would be terminated at once, is left out.
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
        if len(self.succeeded) >= self.completions or self._meets_success_policy:
            self.phase, self.finished = "Complete", now
        elif most is not None and len(self.failed_indexes) > most:
            self.fail(
                "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes", now
            )
        elif self.failed_indexes and len(self._settled) >= self.completions:
            self.fail("FailedIndexes", "Job has failed indexes", now)


def _indexes(text: str) -> set[int]:
    """Return the indexes in a text such as `0,2-4`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _matching_rule(policy: Spec, exits: Sequence[Exit]) -> tuple[int, str, Exit] | None:
    """Return index, action and exit of the first matching rule; None if not found. Pods of this machine have no conditions."""
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
    """The next action for the whole JobSet.

    Attributes:
        rule: Name of the failure policy's rule that requires a restart.
        counts: Whether the restart counts towards maxRestarts.
    """

    action: Literal["Succeeded", "Failed", "Restart"]
    reason: str
    message: str = ""
    rule: str = ""
    counts: bool = True
    job: str = ""


class JobSet:
    """A JobSet's Jobs and restarts; `counted`: restarts that count towards maxRestarts. state: see `JobSet.state`."""

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
        jobs = []
        for rjob in self.spec["replicatedJobs"]:
            name, spec = rjob["name"], rjob["template"]["spec"]
            for i in range(int(rjob.get("replicas", 1))):
                jobs.append(Job(job_name(self.document, name, i), name, i, spec))
        return jobs

    def state(self) -> dict[str, Any]:
        """Return the state that survives a suspension: finished Jobs and completed indexes; active ones start again."""
        jobs = {j.name: _lasting_state(j) for j in self.jobs if j.succeeded or j.counted}
        return {"restarts": self.restarts, "counted": self.counted, "jobs": jobs}

    @property
    def restarts_without_limit(self) -> bool:
        """Return whether a rule of the failurePolicy restarts the JobSet without limit."""
        rules = (self.spec.get("failurePolicy") or {}).get("rules") or []
        return any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules)

    def jobs_of_step(self, step: str) -> list[Job]:
        return [j for j in self.jobs if j.step == step]

    def start_ready(self, now: float) -> None:
        """Start every Job whose dependencies and startup policy allow it."""
        in_order = (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        for rjob in self.spec["replicatedJobs"]:
            if all(self._reached(d["name"], d["status"]) for d in rjob.get("dependsOn") or []):
                for job in self.jobs_of_step(rjob["name"]):
                    if not job.phase:
                        job.phase, job.started = "Active", now
                        job.check(now)
            if in_order and not self._reached(rjob["name"], "Ready"):
                return

    def _reached(self, step: str, status: str) -> bool:
        jobs = self.jobs_of_step(step)
        if status == "Complete":
            return all(j.phase == "Complete" for j in jobs)
        return all(j.ready or j.phase in ("Complete", "Failed") for j in jobs)

    def waits_for(self) -> str:
        """Return which step the first waiting step waits for; empty if no step waits."""
        for rjob in self.spec["replicatedJobs"]:
            for needed in rjob.get("dependsOn") or []:
                if not self._reached(needed["name"], needed["status"]):
                    return f"{rjob['name']} waits for {needed['name']} to be {needed['status']}"
        return ""

    def verdict(self) -> Verdict | None:
        """Return the action that ends or restarts the JobSet; None if it continues."""
        failed = sorted((j for j in self.jobs if j.phase == "Failed"), key=lambda j: j.finished)
        if failed:
            return self._failure(failed)
        policy = self.spec.get("successPolicy") or {}
        counting = self.jobs
        targets = policy.get("targetReplicatedJobs")
        if targets:
            counting = [j for j in self.jobs if j.step in targets]
        complete = sum(j.phase == "Complete" for j in counting)
        expected = len(counting)
        if policy.get("operator") == "Any":
            expected = 1
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
        rule_reason = "DefaultFailurePolicy"
        if name:
            rule_reason = f"FailurePolicy_{name}"
        return Verdict("Restart", rule_reason, rule=name, counts=counts, job=job.name)

    def restart(self, verdict: Verdict) -> None:
        """Start all Jobs again, including finished ones."""
        self.restarts += 1
        self.counted += verdict.counts
        self.jobs = self._jobs()


def _lasting_state(job: Job) -> dict[str, Any]:
    """Return the part of a Job's state that survives a suspension."""
    phase, started = "", 0.0
    if job.phase == "Complete":
        phase, started = job.phase, job.started
    return {
        "phase": phase,
        "started": started,
        "finished": job.finished,
        "succeeded": sorted(job.succeeded),
        "counted": job.counted,
    }


def _failed(reason: str, message: str, job: Job) -> Verdict:
    why = f"; {job.name}: {job.reason}: {job.message}"
    return Verdict("Failed", reason, f"{message} (first failed job: {job.name}){why}", job=job.name)


def _applies(rule: Spec, job: Job) -> bool:
    reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
    patterns = rule.get("onJobFailureMessagePatterns")
    return (
        (not reasons or job.reason in reasons)
        and (not targets or job.step in targets)
        and (not patterns or any(go_regexp.matches(p, job.message) for p in patterns))
    )


def peak(jobset: Spec, amount: Mapping[str, Any]) -> Any:
    """Return the largest amount that the steps need at one time.

    Steps that wait for each other's completion do not run together.

    Args:
        amount: Step -> amount for all pods that run together.
    """
    after: dict[str, set[str]] = {}
    for rjob in jobset["spec"]["replicatedJobs"]:
        waits = {d["name"] for d in rjob.get("dependsOn") or [] if d.get("status") == "Complete"}
        after[rjob["name"]] = waits.union(*(after.get(w, set()) for w in waits))

    def largest_amount(steps: list[str]) -> Any:
        if not steps:
            return 0
        first, rest = steps[0], steps[1:]
        beside = [s for s in rest if s not in after[first] and first not in after[s]]
        both = amount[first] + largest_amount(beside)
        if beside == rest:
            return both
        return max(both, largest_amount(rest))

    return largest_amount(list(after))


def peak_of(jobset: Spec, amount: Callable[[Spec], Any]) -> Any:
    """Return `peak` for the amount that each pod needs, by its spec; 0 if a number of pods is unknown."""
    jobs = jobs_of(jobset)
    pods = {job.name: job.pods for job in jobs if job.pods is not None}
    if len(pods) != len(jobs):
        return 0
    return peak(jobset, {job.name: pods[job.name] * amount(job.pod.spec) for job in jobs})


def all_ready(jobs: Iterable[Job]) -> bool:
    """Return whether every started Job is ready or has ended."""
    return all(j.ready or j.phase in ("Complete", "Failed", "") for j in jobs)
