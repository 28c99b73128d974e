"""Explains why a job has no pods yet: missing controllers, rejected objects, steps that run first."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from fractions import Fraction

from pulumi_trainer.provider.jobs.attempts import INTERRUPTED_RULE
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    labels_of,
    mappings,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names, plural, without_full_stop
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import (
    JOB_NAME,
    JobView,
    created_at,
    expected_pods,
    lacks_jobs,
    lacks_pods,
    last_observed,
    subject,
)
from pulumi_trainer.provider.trainer.pipeline.disruptions import TERMINATED

RECONCILE_SECONDS = 15.0
"""Seconds after which a controller should have reconciled an object."""
_RACE = "not found"
"""End of the message for a Job that JobSet's controller creates before the webhook's cache has its JobSet; it is retried."""


def missing_objects(view: JobView, now: float) -> Finding | None:
    """Return why the JobSet, a Job or pods are missing; None if they exist, or if it is too early to tell."""
    return (
        _no_jobset(view, now)
        or _refused_jobs(view)
        or _no_controller(view, now)
        or _refused_pods(view)
        or _no_pods(view, now)
    )


def _no_jobset(view: JobView, now: float) -> Finding | None:
    if view.jobset is not None or "jobsets" in view.unreadable:
        return None
    events = view.warnings("TrainJob")
    if events:
        message = text(events[0].get("message"))
        return Finding(
            Phase.PENDING,
            text(events[0].get("reason")),
            message,
            f"Trainer's controller cannot create its JobSet: {without_full_stop(message)}",
            _webhook_hint(message) or "correct the TrainJob or its runtime",
        )
    if view.age(now) < RECONCILE_SECONDS:
        return None
    since = duration(view.age(now))
    return Finding(
        Phase.PENDING,
        "NoController",
        f"the TrainJob has no JobSet after {since}",
        f"no controller has created a JobSet for the TrainJob in {since}",
        "is Trainer's controller running in this cluster?" + _managed(view),
    )


def _no_controller(view: JobView, now: float) -> Finding | None:
    if view.jobs or section(view.jobset, "status") or view.jobset is None or view.age(now) < RECONCILE_SECONDS:
        return None
    since = duration(view.age(now))
    return Finding(
        Phase.PENDING,
        "NoController",
        f"no controller has touched the JobSet in {since}",
        f"no controller has touched its JobSet in {since}",
        "is the JobSet controller running in this cluster?" + _managed(view),
    )


def _managed(view: JobView) -> str:
    manager = text(section(view.main, "spec").get("managedBy"))
    if not manager:
        return ""
    return f" Its managedBy names {manager}"


def _refused_jobs(view: JobView) -> Finding | None:
    events = view.warnings("JobSet", "JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed")
    events = [e for e in events if not _harmless(text(e.get("message")))]
    if not events or (view.jobs and not lacks_jobs(view)):
        return None
    message = text(events[0].get("message"))
    hint = _webhook_hint(message) or "correct the job; JobSet's controller tries again by itself"
    return Finding(
        Phase.PENDING,
        text(events[0].get("reason")),
        message,
        f"the cluster rejects what JobSet's controller creates for it: {without_full_stop(message)}",
        hint,
    )


def _harmless(message: str) -> bool:
    return "mjob.kb.io" in message and "JobSet" in message and message.rstrip().endswith(_RACE)


def _refused_pods(view: JobView) -> Finding | None:
    """Return that the API server rejects pods, with the newest event of a Job that lacks pods."""
    short = {name_of(job): job for job in view.jobs if lacks_pods(job)}
    event = _newest_refusal(view, short)
    if event is None:
        return None
    message = text(event.get("message"))
    wanted = sum(map(expected_pods, view.jobs))
    lacking = sum(expected_pods(job) - number(section(job, "status").get("active")) for job in short.values())
    which, some = "its pods", ""
    if lacking < wanted:
        which = f"{lacking} of its {plural(wanted, 'pod')}"
        some = f"{lacking} of {plural(wanted, 'pod')} cannot be created: "
    return Finding(
        Phase.STARTING,
        "FailedCreate",
        f"{some}{message}",
        f"the cluster rejects {which}: {without_full_stop(message)}",
        _refusal_hint(view, message),
    )


def _newest_refusal(view: JobView, jobs: Mapping[str, Document]) -> Document | None:
    """Return the newest event of a Job that cannot create its pods; None if all such events are outdated. jobs: By name."""
    for event in view.warnings("Job", "FailedCreate"):
        job = jobs.get(subject(event))
        if job is not None and last_observed(event) >= _last_created(view, job) - 1:
            return event
    return None


_QUOTA = re.compile(r"exceeded quota: ([^\s,]+), requested: (\S+), used: (\S+), limited: (\S+)")
_LIMITS = re.compile(r"(?:minimum|maximum) \S+ usage per |max limit to request ratio per ")
_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)"')


def _refusal_hint(view: JobView, message: str) -> str:
    """Return what to do about a refusal of Pods, and whether waiting helps."""
    quota = _QUOTA.search(message)
    if quota:
        show = f"kubectl describe resourcequota -n {view.namespace} {quota[1]}"
        if _exceeds_alone(quota[2], quota[4]):
            return (
                f"one Pod requests more than the ResourceQuota allows: request less, or have the quota raised; {show}"
            )
        return f"the controller tries again when other jobs have ended; {show}"
    if _LIMITS.search(message):
        return f"request what the LimitRange allows: kubectl describe limitrange -n {view.namespace}"
    if "must specify " in message:
        return "set these in resources_per_node, or give the namespace a LimitRange with defaults"
    return _webhook_hint(message) or (
        "correct what the message names (quota of the namespace, service account, security policy); the controller"
        " tries again"
    )


def _webhook_hint(message: str) -> str:
    """Return what to do about a webhook that does not answer; empty if the message is about something else."""
    webhook = _WEBHOOK.search(message)
    if webhook is None:
        return ""
    if webhook[1].endswith("jobset.kb.io"):  # both have webhooks of this name
        return "do JobSet's controller and Kueue run? kubectl get pods -A; the request is repeated"
    if webhook[1].endswith("kb.io"):
        return "does Kueue run? kubectl get pods -n kueue-system; the request is repeated"
    return "does the controller of this webhook run? kubectl get pods -A; the request is repeated"


def _exceeds_alone(requested: str, limited: str) -> bool:
    """Return whether a request is above a limit. Both are lists such as "requests.cpu=4,pods=1"."""
    wanted, limits = _quota_amounts(requested), _quota_amounts(limited)
    return any(wanted[name] > limits[name] for name in wanted.keys() & limits.keys())


def _quota_amounts(listed: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for each in listed.split(","):
        name, _, quantity = each.partition("=")
        with contextlib.suppress(ValueError):
            found[name] = Quantity.parse(quantity).amount
    return found


def _last_created(view: JobView, job: Document) -> float:
    """Return when a Job or its newest pod was created: an older event is outdated."""
    mine = (p for p in view.pods if labels_of(p).get(JOB_NAME) == name_of(job))
    return max([created_at(job), *map(created_at, mine)])


def _no_pods(view: JobView, now: float) -> Finding | None:
    if view.pods or not view.jobs:
        return None
    idle = [j for j in view.jobs if not section(j, "status").get("startTime") and not conditions(j)]
    age = now - min(map(created_at, view.jobs))
    if len(idle) < len(view.jobs) or age < RECONCILE_SECONDS:
        return None
    since = duration(age)
    return Finding(
        Phase.PENDING,
        "NoJobController",
        f"its Jobs have existed for {since}, but no controller has created pods for them",
        f"its Jobs have existed for {since}, but no controller has created pods for them",
        "is kube-controller-manager running?",
    )


# --- stages -----------------------------------------------------------------------------------------------------------------


def pending_dependency(view: JobView) -> Finding | None:
    """Return which step waits for which other one; None if none does."""
    counts = {text(r.get("name")): r for r in mappings(section(view.jobset, "status").get("replicatedJobsStatus"))}
    sizes = {text(s.name): s.replicas or 0 for s in view.steps}
    waits: list[str] = []
    for step in view.steps:
        for dependency in step.depends_on:
            name, wanted = text(dependency.get("name")), text(dependency.get("status"))
            found = counts.get(name, {})
            verb, done = "completed", number(found.get("succeeded"))
            if wanted != "Complete":
                verb = "ready"
                done += number(found.get("ready")) + number(found.get("failed"))
            if done < sizes.get(name, 1):
                waits.append(f"{text(step.name)} waits for {name} to be {verb}")
    if not waits:
        return None
    message = join_names(waits)
    return Finding(Phase.STARTING, "DependsOn", message, message)


def restart(view: JobView) -> Finding | None:
    """Return that JobSet restarts all pods, how often and by which rule; None if it does not."""
    found = true_condition(conditions(view.jobset), "RestartingJobSet")
    if not found:
        return None
    status = section(view.jobset, "status")
    most = number(section(view.jobset, "spec", "failurePolicy").get("maxRestarts"))
    counting, all_ = number(status.get("restartsCountTowardsMax")), number(status.get("restarts"))
    reason, message = text(found.get("reason")), text(found.get("message"))
    count = f"restart {counting} of {most}"
    if "AndIgnoreMaxRestarts" in message:
        count = f"restart {all_}, which does not count towards the maximum of {most}"
    rule = reason.removeprefix("FailurePolicy_")
    by = f"by rule {rule} of its failure policy"
    if rule == reason:
        by = "because no rule of its failure policy matches"
    if rule == INTERRUPTED_RULE:
        by += f", since a Pod was disrupted or its program was asked to stop (exit code {TERMINATED})"
    return Finding(
        Phase.RESTARTING,
        reason,
        f"{count}: {message}",
        f"JobSet starts all its pods again {by} ({count}): {without_full_stop(message)}",
    )
