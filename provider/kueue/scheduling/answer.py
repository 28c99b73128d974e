"""Whether a job starts now, at whose expense, or behind whom it waits, computed from the queues and their Workloads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Literal

from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, mappings, name_of, section, text
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.fit import flavor_names
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.occupancy import admitted_by, reserved_by_status
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import Slot, format_amount
from pulumi_trainer.provider.kueue.scheduling.cycles import Outcome, Scheduler
from pulumi_trainer.provider.kueue.scheduling.forecast import LatestStart, find_latest_starts
from pulumi_trainer.provider.kueue.scheduling.snapshot import NEVER, Contender, Snapshot, take_snapshot
from pulumi_trainer.provider.kueue.workload_reasons import priority_class

_DAY = 86_400.0
NAMED = 3
"""How many jobs a sentence names."""
Verdict = Literal["starts", "preempts", "waits", "unknown"]


@dataclass(frozen=True)
class Answer:
    """What Kueue would do with a job now.

    Args:
        verdict: It starts at once, after it has preempted others, or it waits; or what decides is not known.
        sentence: The same in words, with who is affected, without the name of the job.
        victims: Namespace and name of the jobs that are preempted.
        depends: What is not simulated and may decide otherwise.
    """

    verdict: Verdict
    sentence: str
    victims: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.depends:
            return self.sentence
        return f"{self.sentence}; not counted: {join_names([*self.depends])}"


def contender_of(jobset: Document, queues: Queues, created: float, job: Document | None = None) -> Contender | None:
    """Return the contender that a new job will be; None if it has no queue, or one that is not known.

    Args:
        jobset: The JobSet, as it is rendered.
        queues: Known objects.
        created: When it is created, in seconds since the epoch.
        job: The TrainJob, in mode trainer, where Kueue reads its labels; default: the JobSet.
    """
    metadata = section(jobset, "metadata")
    namespace, labels = text(metadata.get("namespace")) or "default", labels_of(job or jobset)
    local = queues.find("LocalQueue", labels.get(QUEUE), namespace)
    queue = text(section(local, "spec").get("clusterQueue"))
    if not queue or queues.find("ClusterQueue", queue) is None:
        return None
    priority = 0
    if PRIORITY in labels:
        rank = queues.find("WorkloadPriorityClass", labels[PRIORITY])
        value = section({"rank": rank or {}}, "rank").get("value")
        if not isinstance(value, int):
            return None
        priority = value
    name = f"{namespace}/{name_of(jobset)}"
    return Contender(f"~{name}", queue, tuple(pod_sets(jobset, queues)), priority, created, job=name)


def answer(
    queues: Queues, workloads: Sequence[Document], asked: Contender, before: Iterable[Contender] = (), *, now: float
) -> Answer:
    """Return what Kueue would do with a job.

    Args:
        queues: Known objects.
        workloads: Workloads of all namespaces, as far as they may be read.
        asked: The job.
        before: Other jobs that are created before it.
        now: Seconds since the epoch.
    """
    snapshot, waiting = take_snapshot(queues, workloads)
    hidden = _hide_unread(snapshot, queues, workloads)
    scheduler = Scheduler(snapshot, [*waiting, *before, asked])
    scheduler.run()
    outcome = scheduler.outcomes[asked.key]
    depends = tuple(_not_simulated(queues, asked.queue))
    if outcome.unknown:
        return Answer("unknown", "it is not known whether it starts now: what its Pods request is not known yet")
    if outcome.admitted is not None and not outcome.victims:
        return Answer("starts", _starts(snapshot, outcome), depends=depends)
    if hidden:
        why = f"Workloads that you may not read use {join_names(sorted(hidden))}"
        return Answer(
            "unknown", f"it does not start at once, and whom it waits for is not known: {why}", depends=depends
        )
    if outcome.victims:
        jobs = tuple(victim.contender.job for victim in outcome.victims)
        return Answer("preempts", _preempts(outcome), jobs, depends)
    sentence = _waits(snapshot, scheduler, outcome)
    latest = find_latest_starts(scheduler, now)[asked.key]
    return Answer("waits", f"{sentence}; {_when(latest, now)}", depends=depends)


def forecast_waiting(queues: Queues, workloads: Sequence[Document], now: float) -> dict[str, str]:
    """Return behind whom each waiting job waits, and when it starts at the latest, by namespace/name of the job.

    Args:
        queues: All queues.
        workloads: All Workloads.
        now: Seconds since the epoch.
    """
    snapshot, waiting = take_snapshot(queues, workloads)
    scheduler = Scheduler(snapshot, waiting)
    scheduler.run()
    waits = [outcome for outcome in scheduler.outcomes.values() if outcome.admitted is None and not outcome.unknown]
    sentences = {outcome.contender.key: _waits(snapshot, scheduler, outcome) for outcome in waits}
    latest = find_latest_starts(scheduler, now)
    return {
        outcome.contender.job: f"{sentences[outcome.contender.key]}; {_when(latest[outcome.contender.key], now)}"
        for outcome in waits
    }


def _when(start: LatestStart, now: float) -> str:
    """Return when a job starts at the latest, or why that is open."""
    if start.at != math.inf:
        moment = time.strftime("%H:%M" if start.at - now < _DAY else "%Y-%m-%d %H:%M", time.localtime(start.at))
        return f"starts at {moment} at the latest, by the time limits of the jobs before it, if no other job comes"
    if start.open_for:
        verb = "has" if len(start.open_for) == 1 else "have"
        return f"when it starts is open: {join_names([*start.open_for])} {verb} no time limit"
    return "when it starts is open"


def _hide_unread(snapshot: Snapshot, queues: Queues, workloads: Sequence[Document]) -> set[str]:
    """Count the usage of Workloads that could not be read, by the status of the queues; return the queues that have some."""
    hidden = set()
    for name, node in snapshot.tree.queues.items():
        reserved = reserved_by_status(queues.find("ClusterQueue", name) or {})
        seen = sum(1 for workload in workloads if admitted_by(workload) == name)
        if seen:  # the status is older than the Workloads
            continue
        usage = {slot: value for slot, value in reserved.items() if value}
        if usage:
            snapshot.add_usage(node.name, usage)
            hidden.add(name)
    return hidden


def _not_simulated(queues: Queues, queue: str) -> Iterable[str]:
    """Yield what decides about a job of a queue as well."""
    spec = section(queues.find("ClusterQueue", queue), "spec")
    checks = section(spec, "admissionChecksStrategy").get("admissionChecks")
    if checks:
        yield f"the admission checks {join_names([text(section(check).get('name')) for check in checks])}"
    flavors = chain.from_iterable(map(flavor_names, mappings(spec.get("resourceGroups"))))
    placed = [f for f in flavors if section(queues.find("ResourceFlavor", f), "spec").get("topologyName")]
    if placed:
        yield f"whether the topology of {join_names([*map(without_digest, placed)])} has room"
    if section(spec, "admissionScope"):
        yield "AdmissionFairSharing"


def _starts(snapshot: Snapshot, outcome: Outcome) -> str:
    assert outcome.admitted is not None
    queue = outcome.contender.queue
    sentence = f"starts now: {_amounts(outcome.admitted.usage)} of {queue}"
    borrowed = _devices(outcome.borrowed)
    if not borrowed:
        return sentence
    lenders = _lenders(snapshot, queue, borrowed)
    whose = join_names(lenders) if 0 < len(lenders) <= NAMED else "its cohort"
    back = any(snapshot.policy(lender).reclaim != NEVER for lender in lenders)
    return f"{sentence}, {_amounts(borrowed)} of it borrowed from {whose}{' (they may take it back)' if back else ''}"


def _lenders(snapshot: Snapshot, queue: str, borrowed: Mapping[Slot, Fraction]) -> list[str]:
    """Return the queues of the cohort with quota that they do not use."""
    root = snapshot.tree.queues[queue].path[-1]
    return [
        node.name
        for node in root.members
        if node.queue and node.name != queue and any(node.usage(slot) < node.quota(slot).nominal for slot in borrowed)
    ]


def _preempts(outcome: Outcome) -> str:
    named = [_victim(victim.contender) for victim in outcome.victims[:NAMED]]
    more = len(outcome.victims) - len(named)
    if more:
        named.append(f"{more} more")
    return f"preempts {join_names(named)}"


def _victim(contender: Contender) -> str:
    rank = priority_class(contender.document or {}) or f"priority {contender.priority}"
    return f"{contender.job} ({rank}) in {contender.queue}"


def _waits(snapshot: Snapshot, scheduler: Scheduler, outcome: Outcome) -> str:
    """Return behind whom a job waits: those that are before it in its queue, and those that have what it lacks."""
    asked = outcome.contender
    if outcome.blocked_by is not None:
        return (
            f"waits behind {outcome.blocked_by.job}, which is before it in {asked.queue} (StrictFIFO) and waits itself"
        )
    short = scheduler.short_of(asked)
    ahead = [
        other.contender.job
        for other in scheduler.outcomes.values()
        if other.admitted is None and other.contender.queue == asked.queue and other.contender.order < asked.order
    ]
    holders = sorted(_holders(snapshot, asked, short), key=lambda each: each.reserved)
    parts = []
    if holders:
        named = [f"{each.job} ({_amounts(_only(each.held, short))})" for each in holders[:NAMED]]
        more = len(holders) - len(named)
        parts.append(f"{join_names(named)}{f' and {more} more' if more else ''}")
    if ahead:
        parts.append(
            f"{join_names(ahead[:NAMED])}{f' and {len(ahead) - NAMED} more' if len(ahead) > NAMED else ''} in its queue"
        )
    lacking = f": {_amounts(short)} more must become free" if short else ""
    if not parts:
        return f"waits{lacking}"
    return f"waits behind {', and '.join(parts)}{lacking}"


def _holders(snapshot: Snapshot, asked: Contender, short: Mapping[Slot, Fraction]) -> Iterable[Contender]:
    """Yield those that have quota of the slots that a job lacks, in the queues that share quota with its own."""
    for node in snapshot.node(asked).path[-1].members:
        for contender in snapshot.running.get(node.name, {}).values() if node.queue else ():
            if any(contender.held.get(slot) for slot in short):
                yield contender


def _only(held: Mapping[Slot, Fraction], slots: Iterable[Slot]) -> dict[Slot, Fraction]:
    return {slot: held[slot] for slot in slots if held.get(slot)}


def _devices(usage: Mapping[Slot, Fraction]) -> dict[Slot, Fraction]:
    """Return the usage of devices; that of all resources if there are none."""
    devices = {slot: value for slot, value in usage.items() if "/" in slot[1] and value}
    return devices or {slot: value for slot, value in usage.items() if value}


def _amounts(usage: Mapping[Slot, Fraction]) -> str:
    """Return amounts as in "64 h100": devices by their flavor, other resources with their name."""
    parts = []
    for (flavor, resource), value in sorted(_devices(usage).items()):
        shown = f"{format_amount(resource, value)} {without_digest(flavor)}"
        parts.append(
            shown if "/" in resource else f"{format_amount(resource, value)} {resource} in {without_digest(flavor)}"
        )
    return join_names(parts)
