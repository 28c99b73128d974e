"""Why Kueue holds a job, out of its Workload. Called for jobs that are suspended and have a queue.

Conditions: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go; the shapes of their
messages: pkg/scheduler/flavorassigner, pkg/scheduler/scheduler.go and pkg/cache/queue there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    condition,
    conditions,
    rows,
    seconds,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kube.values.wording import duration, ended, listed
from pulumi_trainer.provider.kueue.topology_fit import MEND

PATIENCE = 15.0
"""Seconds after which a Workload should be there."""


@dataclass(frozen=True)
class Waiting:
    """A job that Kueue holds.

    Args:
        queue: Its LocalQueue.
        workload: Kueue's Workload for it; None: there is none, or it cannot be read.
        kind: Of the job, as Kueue's integrations call it.
        age: Seconds since it was made.
        message: The job's own words, in case there are no better ones.
        readable: Whether Workloads can be read.
        preemptor: The job that it had to make room for, as in "JobSet team/llama"; empty: none, or nobody has looked.
        no_room: Why the nodes that there are never hold it where its topology wants it; empty likewise.
    """

    queue: str
    workload: Document | None
    kind: str = "jobset.x-k8s.io/jobset"
    age: float = 0.0
    message: str = ""
    readable: bool = True
    preemptor: str = ""
    no_room: str = ""


@dataclass(frozen=True)
class Reason:
    """Why a job waits.

    Args:
        reason: One word, Kueue's where it has one.
        message: Kueue's own words.
        why: The same for people, a sentence without its beginning and full stop.
        hint: What to do; empty if nothing.
        admitted: Whether Kueue has admitted it, and starts it.
    """

    reason: str
    message: str
    why: str
    hint: str = ""
    admitted: bool = False


@dataclass(frozen=True)
class Shape:
    """A message that is understood. never: waiting does not help. told: what it says, for people. mend: what to do."""

    pattern: re.Pattern[str]
    never: bool
    told: Callable[[re.Match[str]], str]
    mend: str = ""


def _shape(pattern: str, told: str, mend: str = "", *, never: bool = False) -> Shape:
    return Shape(re.compile(pattern), never, lambda m: m.expand(told), mend)


def _over_capacity(match: re.Match[str]) -> str:
    resource, flavor, others, own, most = match.groups()
    asked = f"{own} of {resource}" + (f" besides {others} for its other pods" if others != "0" else "")
    return f"it asks for {asked}, and its queue can never have more than {most} in flavor {flavor}"


_SMALLER = "ask for less (fewer nodes, fewer devices a node), or choose another queue"
_QUEUE = "ask whoever runs the queues, or choose another queue"
SHAPES = (
    Shape(
        re.compile(
            r"insufficient (?:unused )?quota for (\S+) in flavor (\S+), previously considered podsets requests \(([^)]*)\)"
            r" \+ current podset request \(([^)]*)\) > maximum capacity \(([^)]*)\)"
        ),
        True,
        _over_capacity,
        _SMALLER,
    ),
    _shape(
        r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed",
        r"\3 more of \1 must become free in flavor \2",
    ),
    _shape(r"resource (\S+) unavailable in ClusterQueue", r"its queue has no quota for \1 at all", _QUEUE, never=True),
    _shape(
        r"untolerated taint (\{.*?\}|\S+) in flavor ([^\s,]+)",
        r"flavor \2 has the taint \1, which its pods do not tolerate",
        "add a toleration, or choose another queue",
        never=True,
    ),
    _shape(
        r"flavor ([^\s,]+) doesn't match node affinity",
        r"the nodes of flavor \1 are not those that its pods ask for",
        "change node selector or affinity, or choose another queue",
        never=True,
    ),
    _shape(r"flavor ([^\s,]+) not found", r"its queue names the flavor \1, which does not exist", _QUEUE, never=True),
    _shape(
        r'Flavor "?([^\s",]+)"? does not support TopologyAwareScheduling',
        r"flavor \1 has no topology, and the job asks for one",
        "leave the topology out, or choose another queue",
        never=True,
    ),
    _shape(
        r'Flavor "?([^\s",]+)"? supports only TopologyAwareScheduling',
        r"flavor \1 has a topology, and the job asks for none",
        "ask for a topology, or choose another queue",
        never=True,
    ),
    _shape(
        r'Flavor "?([^\s",]+)"? does not contain the requested level',
        r"the topology of flavor \1 does not have the level that the job asks for",
        "ask for one of its levels, or choose another queue",
        never=True,
    ),
    _shape(
        r"failed to assign flavors to pod set (\S+): no TAS flavor assigned",
        r"each step has to be placed in the topology of its queue's flavors, and \1 asks for nothing that they have",
        r"let the step ask for something that the queue has quota for, such as cpu",
        never=True,
    ),
    _shape(
        r'topology "([^"]+)" allows to fit only (\d+) out of (\d+) pod\(s\)',
        r"there is quota, but in one domain of topology \1 only \2 of its \3 pods have room",
        f"if no domain is that large, waiting is in vain: {MEND}; else it starts once one has room",
    ),
    _shape(
        r'topology "([^"]+)" doesn\'t allow to fit any of (\d+) pod\(s\)',
        r"there is quota, but in no domain of topology \1 is room for any of its \2 pods",
        f"if no domain is that large, waiting is in vain: {MEND}; else it starts once one has room",
    ),
    _shape(
        r"no topology domains at level: ([^\s,;]+)",
        r"no node of its flavor has all labels of the flavor's topology, down to \1",
        "label the nodes, or correct the levels of the Topology",
        never=True,
    ),
    _shape(
        r"LocalQueue (\S+) doesn't exist",
        r"there is no LocalQueue \1 in its namespace",
        "correct queue=, or create the LocalQueue",
        never=True,
    ),
    _shape(
        r"LocalQueue (\S+) is inactive", r"the LocalQueue \1 is inactive: it, or its ClusterQueue, is stopped", _QUEUE
    ),
    _shape(
        r"ClusterQueue (\S+) doesn't exist",
        r"its LocalQueue leads to the ClusterQueue \1, which does not exist",
        _QUEUE,
        never=True,
    ),
    _shape(
        r"ClusterQueue (\S+) is inactive",
        r"the ClusterQueue \1 is inactive: it is stopped, or something that it needs (a flavor, a check, a topology) is missing",
        _QUEUE,
    ),
    _shape(
        r"[Ww]orkload namespace doesn't match ClusterQueue selector",
        "its ClusterQueue does not take jobs of this namespace",
        _QUEUE,
        never=True,
    ),
    _shape(r"The workload has failed admission checks", "an admission check has rejected it", _QUEUE),
    _shape(r"Workload no longer fits after processing another workload", "another job was admitted just before it"),
    _shape(
        r"waiting for all admitted workloads to be in PodsReady condition",
        "Kueue admits one job after the other, and the pods of an earlier one are not ready yet",
    ),
)


def explained(message: str) -> tuple[str, str, bool]:
    """(what a message of Kueue's says, what to do, whether waiting is in vain); the message itself where it is unknown.

    With several flavors a message tells of each: it is in vain only where none of them leaves hope.
    """
    found = [(shape, match) for shape in SHAPES for match in shape.pattern.finditer(message)]
    if not found:
        return ended(message), "", False
    hopeful = [(s, m) for s, m in found if not s.never]
    told = list(dict.fromkeys(s.told(m) for s, m in found))
    mends = list(dict.fromkeys(s.mend for s, _ in hopeful or found if s.mend))
    return "; ".join(told), mends[0] if mends else "", not hopeful


_CROWDED = re.compile(r'topology "[^"]+" (?:allows to fit only|doesn\'t allow to fit any)')


def crowded(workload: Document | None) -> bool:
    """Whether it waits for room in its topology, which there may never be."""
    return _CROWDED.search(text(condition(conditions(workload), "QuotaReserved").get("message"))) is not None


_PREEMPTOR = re.compile(
    r"Preempted to accommodate a workload \((.*?)\) due to (.*?)(?:; preemptor path: (\S+?); preemptee path: (\S+))?$"
)


def preemptor(workload: Document | None) -> tuple[str, str] | None:
    """UIDs of the Workload, and of the job, that a Workload had to make room for; None: it is not waiting because of that."""
    found = conditions(workload)
    said = text(true(found, "Preempted").get("message")) if true(found, "Evicted") else ""
    match = _PREEMPTOR.search(said) if not true(found, "QuotaReserved") else None
    uids = dict(re.findall(r"(\w*UID): ([\w-]+)", match[1])) if match else {}
    return (uids.get("UID", ""), uids.get("JobUID", "")) if uids else None


def preempted(message: str, by: str = "") -> str:
    """By what, out of the words of an eviction. by: the job, where it is known better than by its UID."""
    match = _PREEMPTOR.search(message)
    if not match:
        return ended(message)
    who, reason, path, _ = match.groups()
    job = re.search(r"JobUID: ([\w-]+)", who)
    by = by or (f"the job with UID {job[1]}" if job else f"a workload ({who})")
    return f"Kueue has stopped it to make room for {by}" + (f" in {path}" if path else "") + f", due to {reason}"


def why_queued(job: Waiting) -> Reason:
    """Return why a job waits."""
    held = f"it waits in the LocalQueue {job.queue}"
    work = job.workload
    if work is None:
        return _without_workload(job, held)
    found = conditions(work)
    if admitted := true(found, "Admitted"):
        why = "Kueue has admitted it, and starts it"
        return Reason("Admitted", text(admitted.get("message")), why, admitted=True)
    quota, evicted = condition(found, "QuotaReserved"), true(found, "Evicted")
    if section(work, "spec").get("active") is False:
        return _deactivated(held, text(evicted.get("message")) or "spec.active of its Workload is false")
    if quota.get("status") == "True":
        return _checking(work, found, quota)
    words = text(quota.get("message"))
    told, mend, never = explained(words) if words else ("", "", False)
    told, mend = (job.no_room, MEND) if job.no_room else (told, mend)
    if evicted:
        return _evicted(job, evicted, true(found, "Preempted"), words, told, mend)
    reason = text(quota.get("reason"))
    if not words:
        return Reason(reason, job.message, f"{held}, and Kueue has not looked at it yet")
    hopeless = f"Kueue will never admit it as it is (queue {job.queue})"
    held = f"{held}, in vain with the nodes that there are" if job.no_room else held
    hint = mend or ("" if never else "it starts by itself as soon as there is room")
    return Reason(reason, words, f"{hopeless if never else held}: {told}", hint)


def _without_workload(job: Waiting, held: str) -> Reason:
    if not job.readable:
        why = f"{held}; the Workload that says why cannot be read here: no such kind, or no permission"
        return Reason("", job.message, why, "`pulumi-trainer rbac` prints the permissions; is Kueue installed?")
    if job.age < PATIENCE:
        return Reason("", job.message, f"{held}, and Kueue has not looked at it yet")
    return Reason(
        "NoWorkload",
        f"Kueue has made no Workload for it in {duration(job.age)}",
        f"it has the queue {job.queue}, and Kueue has made no Workload for it since {duration(job.age)}",
        f"is Kueue's controller running, does its configuration have {job.kind} in integrations.frameworks, and does it take"
        " this namespace (managedJobsNamespaceSelector)?",
    )


def _deactivated(held: str, words: str) -> Reason:
    mend = "set spec.active of the Workload to true, or run the job again (run=)"
    if "maximum execution time" in words.lower():
        mend = "raise max_execution=, which it has used up, and run it again (run=)"
    why = f"{held}, and its Workload has been deactivated: {ended(words)}"
    return Reason("Deactivated", words, why, f"Kueue does not try it again by itself: {mend}")


def _checking(work: Document, found: list[Document], quota: Document) -> Reason:
    open_ = [c for c in rows(section(work, "status").get("admissionChecks")) if c.get("state") != "Ready"]
    said = [
        f"{c.get('name')} is {c.get('state')}" + (f" ({m})" if (m := text(c.get("message"))) else "") for c in open_
    ]
    admitted = condition(found, "Admitted")
    return Reason(
        text(admitted.get("reason")) or "UnsatisfiedAdmissionChecks",
        listed(said) or text(admitted.get("message")) or text(quota.get("message")),
        f"it has its quota, and waits for admission checks of its ClusterQueue: {listed(said) or 'none has answered yet'}",
    )


def _evicted(job: Waiting, evicted: Document, victim: Document, words: str, told: str, mend: str) -> Reason:
    reason, said = text(evicted.get("reason")), text(evicted.get("message"))
    by = f"Kueue has stopped it: {ended(said)}"
    if reason == "Preempted":
        by = preempted(text(victim.get("message")) or said, job.preemptor)
    at = seconds(section(job.workload, "status", "requeueState").get("requeueAt"))
    again = "; it is queued again" + (" after a pause" if at else "") + (f": {told}" if told else "")
    message = said + (f"; {words}" if words else "")
    return Reason(reason, message, by + again, mend or "it starts again by itself as soon as there is room")
