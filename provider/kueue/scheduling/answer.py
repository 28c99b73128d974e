"""Whether a job starts now, at whose expense, or behind whom it waits, computed from the queues and their Workloads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain

from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, mappings, name_of, section, text
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names
from pulumi_trainer.provider.kueue.fit import flavor_names
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.occupancy import admitted_by, reserved_by_status
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import Node, Slot, format_amount
from pulumi_trainer.provider.kueue.scheduling.cycles import Outcome, Scheduler
from pulumi_trainer.provider.kueue.scheduling.durations import (
    LIMITS,
    Ends,
    Expect,
    Expectation,
    Expectations,
    expect_nothing,
)
from pulumi_trainer.provider.kueue.scheduling.forecast import Start, find_starts
from pulumi_trainer.provider.kueue.scheduling.snapshot import NEVER, Contender, Snapshot, take_snapshot

_DAY = 86_400.0


def contender_of(jobset: Document, queues: Queues, created: float, job: Document | None = None) -> Contender | None:
    """Return the contender that a new job will be; None if it has no queue, or one that is not known.

    Args:
        job: The TrainJob, in mode trainer, where Kueue reads its labels; default: the JobSet.
    """
    labels = labels_of(job or jobset)
    namespace, rank = text(section(jobset, "metadata").get("namespace")) or "default", text(labels.get(PRIORITY))
    local = queues.find("LocalQueue", queues.queue_of(job or jobset), namespace)
    queue = text(section(local, "spec").get("clusterQueue"))
    if not queue or queues.find("ClusterQueue", queue) is None:
        return None
    priority = (queues.find("WorkloadPriorityClass", rank) or {}).get("value") if rank else 0
    if not isinstance(priority, int):
        return None
    limit = text(labels.get(MAX_EXECUTION))
    return Contender(
        f"~{namespace}/{name_of(jobset)}",
        queue,
        tuple(pod_sets(jobset, queues)),
        priority,
        created,
        job=f"{namespace}/{name_of(jobset)}",
        rank=rank,
        limit=float(limit) if limit.isdecimal() else math.inf,
    )


def answer(
    queues: Queues,
    workloads: Sequence[Document],
    asked: Contender,
    before: Sequence[Contender] = (),
    *,
    now: float,
    expect: Expect = expect_nothing,
) -> tuple[str, Collection[Slot]]:
    """Return what Kueue would do with a job, as a sentence without the name of the job, and where it would get quota now.

    Args:
        workloads: Workloads of all namespaces, as far as they may be read.
        before: Other jobs that are created before it.
        expect: Returns what is known of how long jobs run; called with the jobs that are preempted, or, if the job waits, with
            those that have what it lacks.
    """
    simulate = partial(_simulate, queues, workloads, [*before, asked])
    scheduler = simulate()
    snapshot, hidden = scheduler.snapshot, _find_unread(scheduler.snapshot, queues, workloads)
    outcome = scheduler.outcomes[asked.key]
    if outcome.unknown:
        return "it is not known whether it starts now: what its Pods request is not known yet", ()
    slots = () if outcome.admitted is None else tuple(outcome.admitted.usage)
    if outcome.admitted is not None and not outcome.victims:
        sentence = _starts(snapshot, outcome)
    elif hidden:
        why = f"Workloads that you may not read use {join_names(sorted(hidden))}"
        sentence = f"it does not start at once, and whom it waits for is not known: {why}"
    elif outcome.victims:
        known = expect([each.job for each in outcome.victims])
        sentence = f"preempts {join_names([_victim(each, known, now) for each in outcome.victims])}"
    else:
        sentence = _waits(snapshot, scheduler, outcome) or "waits"
        sentence = f"{sentence}; {_forecast(simulate, expect(_find_holders(scheduler, [outcome])), now)(asked)}"
    return f"{sentence}{_not_counted(queues, asked.queue)}", slots


def forecast_waiting(queues: Queues, workloads: Sequence[Document], now: float, expect: Expect) -> dict[str, str]:
    """Return behind whom each waiting job waits, and when it starts, by namespace/name of the job.

    Args:
        expect: Returns what is known of how long jobs run; called with those that have what others lack.
    """
    simulate = partial(_simulate, queues, workloads, ())
    scheduler = simulate()
    waiting = [each for each in scheduler.outcomes.values() if each.admitted is None and not each.unknown]
    sentences = []
    for outcome in waiting:
        sentence = _waits(scheduler.snapshot, scheduler, outcome)
        if sentence:
            sentences.append((outcome.contender, sentence))
    when = _forecast(simulate, expect(_find_holders(scheduler, waiting)), now)
    return {asked.job: f"{sentence}; {when(asked)}{_not_counted(queues, asked.queue)}" for asked, sentence in sentences}


def with_position(start: str, position: int) -> str:
    """Return when a job starts, with its position. position: In its ClusterQueue, from 1 on, as Kueue orders it."""
    return f"waits at position {position} of its ClusterQueue{start.removeprefix('waits')}"


def _simulate(queues: Queues, workloads: Sequence[Document], coming: Iterable[Contender]) -> Scheduler:
    """Return the scheduler after its cycles. coming: Jobs that are created now."""
    snapshot, waiting = take_snapshot(queues, workloads, fair=shares_fairly(queues))
    for name in _find_unread(snapshot, queues, workloads):
        snapshot.add_usage(name, reserved_by_status(queues.find("ClusterQueue", name) or {}))
    scheduler = Scheduler(snapshot, [*waiting, *coming])
    scheduler.run()
    return scheduler


def shares_fairly(queues: Queues) -> bool:
    """Return whether Kueue shares fairly in a cluster: it writes the shares of ClusterQueues into their status then."""
    return any("fairSharing" in section(queue, "status") for queue in queues.of("ClusterQueue"))


def _forecast(simulate: Callable[[], Scheduler], expected: Expectations, now: float) -> Callable[[Contender], str]:
    """Return what says when a job that waits starts: about when, by what is known of the others, and at the latest."""
    latest = find_starts(simulate(), now, LIMITS)
    about = [find_starts(simulate(), now, Ends(expected, bound)) for bound in (0, 1)] if expected else []

    return lambda asked: _when([each[asked.key] for each in about], latest[asked.key], expected, now)


def _when(about: Sequence[Start], latest: Start, expected: Expectations, now: float) -> str:
    """Return when a job starts. about: The earliest and the last start that are expected; empty if nothing is known."""
    guess = _guess(about, expected, now)
    if latest.at != math.inf:
        moment = f"at {_clock(latest.at, now)} UTC at the latest, by the time limits of the jobs before it"
        silent = [each.job for each in latest.after if not Ends(expected).basis(each, now)]
        verb = "ends" if len(silent) == 1 else "end"
        earlier = f"; how much earlier is open: when {join_names(silent)} {verb} is not known" if silent else ""
        return f"{guess}; {moment}" if guess else f"starts {moment}, if no other job comes{earlier}"
    opening = f"{guess}; how late is open" if guess else "when it starts is open"
    unlimited = [each.job for each in latest.open_for if each.limit == math.inf]
    strange = [each.job for each in latest.open_for if each.limit != math.inf]
    why = []
    if unlimited:
        why.append(f"{join_names(unlimited)} {'has' if len(unlimited) == 1 else 'have'} no time limit")
    if strange:
        why.append(f"the times of {join_names(strange)} cannot be right by this clock")
    return f"{opening}: {', and '.join(why)}" if why else opening


def _guess(about: Sequence[Start], expected: Expectations, now: float) -> str:
    """Return about when a job starts, and on what that rests; empty if it is open, or rests on time limits alone."""
    if not about or any(start.at == math.inf for start in about):
        return ""
    first, last = sorted(about, key=lambda start: start.at)
    by: dict[str, list[str]] = {}
    for each in last.after:
        by.setdefault(Ends(expected).basis(each, now), []).append(each.job)
    reported, ran = by.get("progress", []), by.get("runs", [])
    parts = [f"the progress of {join_names(reported)}"] if reported else []
    parts += [f"earlier runs of {join_names(ran)}"] if ran else []
    moments = dict.fromkeys([_clock(first.at, now), _clock(last.at, now)])
    when = f"about {' to '.join(moments)} UTC" if first.at > now else f"by about {_clock(last.at, now)} UTC"
    moment = f"starts {when}, if no other job comes"
    return f"{moment} (by {' and '.join(parts)})" if parts else ""


def _clock(at: float, now: float) -> str:
    return time.strftime("%H:%M" if at - now < _DAY else "%Y-%m-%d %H:%M", time.gmtime(at))


def _find_unread(snapshot: Snapshot, queues: Queues, workloads: Sequence[Document]) -> set[str]:
    """Return the queues with usage, by their status, of Workloads that could not be read."""
    seen = {*map(admitted_by, workloads)}  # where Workloads were read, the status is the older of the two
    return {
        name
        for name in snapshot.tree.queues.keys() - seen
        if any(reserved_by_status(queues.find("ClusterQueue", name) or {}).values())
    }


def _not_counted(queues: Queues, queue: str) -> str:
    """Return what decides about a job of a queue as well and is not simulated, as the end of a sentence; empty for nothing."""
    parts, spec = [], section(queues.find("ClusterQueue", queue), "spec")
    checks = mappings(section(spec, "admissionChecksStrategy").get("admissionChecks"))
    if checks:
        parts.append(f"the admission checks {join_names([text(check.get('name')) for check in checks])}")
    flavors = chain.from_iterable(map(flavor_names, mappings(spec.get("resourceGroups"))))
    placed = [f for f in flavors if section(queues.find("ResourceFlavor", f), "spec").get("topologyName")]
    if placed:
        parts.append(f"whether the topology of {join_names([*map(without_digest, placed)])} has room")
    if section(spec, "admissionScope"):
        parts.append("AdmissionFairSharing")
    if section(spec, "concurrentAdmissionPolicy"):
        parts.append("ConcurrentAdmission")
    return f"; not counted: {join_names(parts)}" if parts else ""


def _starts(snapshot: Snapshot, outcome: Outcome) -> str:
    assert outcome.admitted is not None
    queue = outcome.contender.queue
    sentence = f"starts now: {_amounts(outcome.admitted.usage)} of {queue}"
    borrowed = _devices(outcome.borrowed)
    if not borrowed:
        return sentence
    members = snapshot.tree.queues[queue].path[-1].members
    lenders = [m.name for m in members if m.queue and m.name != queue and any(_spare(m, slot) for slot in borrowed)]
    back = " (they may take it back)" if any(snapshot.policy(each).reclaim != NEVER for each in lenders) else ""
    return f"{sentence}, {_amounts(borrowed)} of it borrowed from {join_names(lenders) or 'its cohort'}{back}"


def _spare(node: Node, slot: Slot) -> bool:
    """Return whether a queue lends quota that it does not use itself."""
    return node.subtree(slot) > max(node.usage(slot), node.guaranteed(slot))


def _victim(contender: Contender, known: Expectations, now: float) -> str:
    """Return who is preempted, with what is known of what that loses: the time since its newest checkpoint."""
    about = contender.rank or f"priority {contender.priority}"
    saved = known.get(contender.job, Expectation()).saved
    if saved and contender.reserved <= saved <= now:
        about += f", {duration(now - saved)} since its checkpoint"
    return f"{contender.job} ({about}) in {contender.queue}"


def _waits(snapshot: Snapshot, scheduler: Scheduler, outcome: Outcome) -> str:
    """Return behind whom a job waits: those before it in its queue, and those that have what it lacks; empty if behind nobody."""
    asked, before = outcome.contender, outcome.blocked_by
    if before is not None:
        return f"waits behind {before.job}, which is before it in {asked.queue} (StrictFIFO) and waits itself"
    short = scheduler.short_of(asked)
    others = [other.contender for other in scheduler.outcomes.values() if other.admitted is None]
    ahead = [other.job for other in others if other.queue == asked.queue and other.order < asked.order]
    holders = sorted(_holders(snapshot, asked, short), key=lambda each: each.reserved)
    parts = []
    if holders:
        parts.append(join_names([f"{each.job} ({_amounts(_only(each.held, short))})" for each in holders]))
    if ahead:
        parts.append(f"{join_names(ahead)} in its queue")
    if not parts:
        return ""
    lacking = f": {_amounts(short)} more must become free" if short else ""
    return f"waits behind {', and '.join(parts)}{lacking}"


def _find_holders(scheduler: Scheduler, waiting: Iterable[Outcome]) -> list[str]:
    """Return the jobs that have what waiting ones lack, those first that have had it the longest."""
    found: dict[str, float] = {}
    for outcome in waiting:
        asked = outcome.contender
        found |= {each.job: each.reserved for each in _holders(scheduler.snapshot, asked, scheduler.short_of(asked))}
    return sorted(found, key=lambda job: found[job])


def _holders(snapshot: Snapshot, asked: Contender, short: Mapping[Slot, Fraction]) -> Iterator[Contender]:
    """Yield those that have quota of the slots that a job lacks, in the queues that share quota with its own."""
    for node in snapshot.node(asked).path[-1].members:
        for contender in snapshot.running.get(node.name, {}).values() if node.queue else ():
            if any(contender.held.get(slot) for slot in short):
                yield contender


def _only(held: Mapping[Slot, Fraction], slots: Iterable[Slot]) -> dict[Slot, Fraction]:
    return {slot: held[slot] for slot in slots if held.get(slot)}


def _devices(usage: Mapping[Slot, Fraction]) -> dict[Slot, Fraction]:
    """Return the usage of devices; that of all resources if there are none."""
    used = {slot: value for slot, value in usage.items() if value}
    return {slot: value for slot, value in used.items() if "/" in slot[1]} or used


def _amounts(usage: Mapping[Slot, Fraction]) -> str:
    """Return amounts as in "64 h100": devices by their flavor, other resources with their name."""
    parts = []
    for (flavor, resource), value in sorted(_devices(usage).items()):
        what = "" if "/" in resource else f"{resource} in "
        parts.append(f"{format_amount(resource, value)} {what}{without_digest(flavor)}")
    return join_names(parts)
