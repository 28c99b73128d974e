"""What stands between a job and its pods: controllers that are not there, Jobs that cannot be made, stages that come first."""

from __future__ import annotations

from pulumi_trainer.provider.api.status import Phase
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    conditions,
    labels_of,
    name_of,
    number,
    rows,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kube.values.wording import (
    counted,
    duration,
    ended,
    listed,
)
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    JOB_NAME,
    Seen,
    born,
    lacks_jobs,
    lacks_pods,
    moment,
    replicas_of,
    subject,
    wanted_pods,
)

PATIENCE = 15.0
"""Seconds in which a controller should have done something."""
_RACE = "not found"
"""A Job that JobSet's controller makes before the webhook's cache knows its JobSet is refused once, and made again."""


def held(seen: Seen, now: float) -> Finding | None:
    """Why there is no JobSet, no Job or no pod yet; None: there is, or it is too early to tell."""
    return (
        _no_jobset(seen, now)
        or _refused_jobs(seen)
        or _no_controller(seen, now)
        or _refused_pods(seen)
        or _no_pods(seen, now)
    )


def _no_jobset(seen: Seen, now: float) -> Finding | None:
    if seen.jobset is not None or "jobsets" in seen.unseen:
        return None
    events = seen.warnings("TrainJob")
    if events:
        said = text(events[0].get("message"))
        return Finding(
            Phase.PENDING,
            text(events[0].get("reason")),
            said,
            f"Trainer's controller cannot make its JobSet: {ended(said)}",
            "correct the TrainJob or its runtime",
        )
    if seen.age(now) < PATIENCE:
        return None
    since = duration(seen.age(now))
    return Finding(
        Phase.PENDING,
        "NoController",
        f"there is no JobSet for the TrainJob after {since}",
        f"nobody has made a JobSet for the TrainJob since {since}",
        "is Trainer's controller running in this cluster?" + _managed(seen),
    )


def _no_controller(seen: Seen, now: float) -> Finding | None:
    if seen.jobs or section(seen.jobset, "status") or seen.jobset is None or seen.age(now) < PATIENCE:
        return None
    since = duration(seen.age(now))
    return Finding(
        Phase.PENDING,
        "NoController",
        f"no controller has touched the JobSet in {since}",
        f"no controller has touched its JobSet since {since}",
        "is the JobSet controller running in this cluster?" + _managed(seen),
    )


def _managed(seen: Seen) -> str:
    manager = text(section(seen.main, "spec").get("managedBy"))
    return f" managedBy gives it to {manager}" if manager else ""


def _refused_jobs(seen: Seen) -> Finding | None:
    events = [
        e
        for e in seen.warnings("JobSet", "JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed")
        if not _harmless(text(e.get("message")))
    ]
    if not events or (seen.jobs and not lacks_jobs(seen)):
        return None
    said = text(events[0].get("message"))
    return Finding(
        Phase.PENDING,
        text(events[0].get("reason")),
        said,
        f"the cluster refuses what JobSet's controller wants to make for it: {ended(said)}",
        "correct the job; JobSet's controller tries again by itself",
    )


def _harmless(message: str) -> bool:
    return "mjob.kb.io" in message and "JobSet" in message and message.rstrip().endswith(_RACE)


def _refused_pods(seen: Seen) -> Finding | None:
    """Return that the API server refuses pods: of those that a Job lacks, what its newest event says."""
    short = {name_of(job): job for job in seen.jobs if lacks_pods(job)}
    events = [
        e
        for e in seen.warnings("Job", "FailedCreate")
        if subject(e) in short and moment(e) >= _last_created(seen, short[subject(e)]) - 1
    ]
    if not events:
        return None
    said = text(events[0].get("message"))
    wanted = sum(map(wanted_pods, seen.jobs))
    lacking = sum(wanted_pods(job) - number(section(job, "status").get("active")) for job in short.values())
    which = f"{lacking} of its {counted(wanted, 'pod')}" if lacking < wanted else "its pods"
    some = f"{lacking} of {counted(wanted, 'pod')} cannot be created: " if lacking < wanted else ""
    return Finding(
        Phase.STARTING,
        "FailedCreate",
        f"{some}{said}",
        f"the cluster refuses {which}: {ended(said)}",
        "correct what the message names (quota of the namespace, service account, security policy); it is tried again",
    )


def _last_created(seen: Seen, job: Document) -> float:
    """Return when a Job or the newest of its pods was made: an older event is of an earlier attempt, or no longer true."""
    mine = (p for p in seen.pods if labels_of(p).get(JOB_NAME) == name_of(job))
    return max([born(job), *map(born, mine)])


def _no_pods(seen: Seen, now: float) -> Finding | None:
    if seen.pods or not seen.jobs:
        return None
    idle = [j for j in seen.jobs if not section(j, "status").get("startTime") and not conditions(j)]
    age = now - min(map(born, seen.jobs))
    if len(idle) < len(seen.jobs) or age < PATIENCE:
        return None
    since = duration(age)
    return Finding(
        Phase.PENDING,
        "NoJobController",
        f"its Jobs exist since {since}, and nobody has made pods for them",
        f"its Jobs exist since {since}, and nobody has made pods for them",
        "is kube-controller-manager running?",
    )


# --- stages -----------------------------------------------------------------------------------------------------------------


def depends(seen: Seen) -> Finding | None:
    """Which step waits for which; None: none does."""
    counts = {text(r.get("name")): r for r in rows(section(seen.jobset, "status").get("replicatedJobsStatus"))}
    sizes = {text(s.get("name")): replicas_of(s) for s in seen.steps}
    waits: list[str] = []
    before: list[str] = []
    for step in seen.steps:
        for dependency in rows(step.get("dependsOn")):
            name, wanted = text(dependency.get("name")), text(dependency.get("status"))
            found = counts.get(name, {})
            done = number(found.get("succeeded"))
            done += 0 if wanted == "Complete" else number(found.get("ready")) + number(found.get("failed"))
            if done < sizes.get(name, 1):
                verb = "completed" if wanted == "Complete" else "ready"
                waits.append(f"{text(step.get('name'))} waits for {name} to be {verb}")
                before.append(name)
    if not waits:
        return None
    message = listed(waits)
    return Finding(Phase.STARTING, "DependsOn", message, message)


def restart(seen: Seen) -> Finding | None:
    """That JobSet starts all again: how often, by which rule; None: it does not."""
    found = true(conditions(seen.jobset), "RestartingJobSet")
    if not found:
        return None
    status = section(seen.jobset, "status")
    most = number(section(seen.jobset, "spec", "failurePolicy").get("maxRestarts"))
    counting, all_ = number(status.get("restartsCountTowardsMax")), number(status.get("restarts"))
    reason, said = text(found.get("reason")), text(found.get("message"))
    free = "AndIgnoreMaxRestarts" in said
    count = (
        f"restart {all_}, which does not count towards the maximum of {most}"
        if free
        else f"restart {counting} of {most}"
    )
    rule = reason.removeprefix("FailurePolicy_")
    by = "for want of a rule" if rule == reason else f"by rule {rule} of its failure policy"
    return Finding(
        Phase.RESTARTING, reason, f"{count}: {said}", f"JobSet starts all its pods again {by} ({count}): {ended(said)}"
    )
