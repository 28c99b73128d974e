"""Why a job waits in its queue, derived from its Workload.

Conditions: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go; the shapes of their
messages: pkg/scheduler/flavorassigner, pkg/scheduler/scheduler.go and pkg/cache/queue there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    controller_of,
    epoch_seconds,
    mappings,
    only,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names, without_full_stop
from pulumi_trainer.provider.kueue.quota import amount
from pulumi_trainer.provider.kueue.topology_fit import HINT, TooSmall

Flavors = Sequence[Collection[str]]
JOB_KINDS = ("JobSet", "TrainJob")
"""Kinds of this package's jobs among the owners of Workloads."""
WORKLOAD_SECONDS = 15.0
"""Seconds after which Kueue should have created a Workload."""
SLOW = 60.0
"""Seconds after which Kueue should have looked at a Workload, unless other jobs are before it."""


@dataclass(frozen=True)
class Waiting:
    """A suspended job in a queue.

    Args:
        workload: Kueue's Workload for it; None if not found, or if it cannot be read.
        kind: Kind of the job, as Kueue's integrations call it.
        message: The job's own message, used if there is no better one.
        preemptor: The job that has preempted it, as in "team/llama (high)"; empty for none, or if it is not known.
        no_room: Why the existing nodes have no capacity for it in its topology; None if they may, or if it was not computed.
        inactive: Why its ClusterQueue takes no jobs, in Kueue's words; empty if it does, or if it was not looked up.
        flavors: The flavors of each resource group of its ClusterQueue; None if they are not known.
        peer: A Workload of its ClusterQueue that is equal for Kueue's scheduler, which judges one of them for all; None: none.
        turn: Whether Kueue has judged another Workload of its ClusterQueue since this one was created.
    """

    queue: str
    workload: Document | None
    kind: str = "jobset.x-k8s.io/jobset"
    age: float = 0.0
    message: str = ""
    readable: bool = True
    preemptor: str = ""
    no_room: TooSmall | None = None
    inactive: str = ""
    flavors: Flavors | None = None
    peer: Document | None = None
    turn: bool = False


@dataclass(frozen=True)
class Reason:
    """Why a job waits.

    Args:
        reason: One word, Kueue's if it has one.
        why: The same for people, a sentence without its beginning and full stop.
        admitted: Whether Kueue has admitted the job, and starts it.
    """

    reason: str
    message: str
    why: str
    hint: str = ""
    admitted: bool = False


@dataclass(frozen=True)
class Shape:
    """A known form of Kueue's messages. never: Whether waiting does not help."""

    pattern: re.Pattern[str]
    never: bool
    explain: Callable[[re.Match[str]], str]
    hint: str = ""


def _shape(pattern: str, explanation: str, hint: str = "", *, never: bool = False) -> Shape:
    return Shape(re.compile(pattern), never, lambda m: m.expand(explanation), hint)


def _over_capacity(match: re.Match[str]) -> str:
    resource, flavor, others, own, most = match.groups()
    request = f"{own} of {resource}"
    if others != "0":
        request += f" besides {others} for its other pods"
    return f"it requests {request}, but its queue can never have more than {most} in flavor {flavor}"


_SMALLER = "request less (fewer nodes, or fewer devices per node), or choose another queue"
_QUEUE = "ask the administrator of the queue, or choose another queue"
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
        r"the nodes of flavor \1 do not match the node selector or affinity of its pods",
        "change node selector or affinity, or choose another queue",
        never=True,
    ),
    _shape(r"flavor ([^\s,]+) not found", r"its queue names the flavor \1, which does not exist", _QUEUE, never=True),
    _shape(
        r'Flavor "?([^\s",]+)"? does not support TopologyAwareScheduling',
        r"flavor \1 has no topology, but the job requests one",
        "leave the topology out, or choose another queue",
        never=True,
    ),
    _shape(
        r'Flavor "?([^\s",]+)"? supports only TopologyAwareScheduling',
        r"flavor \1 has a topology, but the job requests none",
        "request a topology, or choose another queue",
        never=True,
    ),
    _shape(
        r'Flavor "?([^\s",]+)"? does not contain the requested level',
        r"the topology of flavor \1 does not have the level that the job requests",
        "request a level that this topology has, or choose another queue",
        never=True,
    ),
    _shape(
        r"failed to assign flavors to pod set (\S+): no TAS flavor assigned",
        r"every step must be placed in the topology of its queue's flavors, but \1 requests none of their resources",
        r"let the step request a resource for which the queue has quota, such as cpu",
        never=True,
    ),
    _shape(
        r'topology "([^"]+)" allows to fit only (\d+) out of (\d+) pod\(s\)',
        r"there is quota, but in one domain of topology \1 only \2 of its \3 pods have room",
        f"if no domain is that large, the job never starts: {HINT}; else it starts once one has room",
    ),
    _shape(
        r'topology "([^"]+)" doesn\'t allow to fit any of (\d+) pod\(s\)',
        r"there is quota, but no domain of topology \1 has room for any of its \2 pods",
        f"if no domain is that large, the job never starts: {HINT}; else it starts once one has room",
    ),
    _shape(
        r"no topology domains at level: ([^\s,;]+)",
        r"no node of its flavor has all labels of the flavor's topology, down to \1",
        "label the nodes, or correct the levels of the Topology",
        never=True,
    ),
    _shape(
        r"LocalQueue (\S+) doesn't exist",
        r"LocalQueue \1 does not exist in its namespace",
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
        "its ClusterQueue does not admit jobs from this namespace",
        _QUEUE,
        never=True,
    ),
    _shape(
        r"resources didn't satisfy LimitRange constraints: (.*)",
        r"a LimitRange of its namespace rejects its pods: \1",
        "request what the LimitRange allows: kubectl describe limitrange shows the limits",
        never=True,
    ),
    _shape(r"The workload has failed admission checks", "an admission check has rejected it", _QUEUE),
    _shape(r"Workload no longer fits after processing another workload", "another job was admitted just before it"),
    _shape(
        r"waiting for all admitted workloads to be in PodsReady condition",
        "Kueue admits one job after the other, and the pods of an earlier one are not ready yet",
    ),
)


def explain_message(message: str, groups: Flavors | None) -> tuple[str, str, bool]:
    """Return the meaning of a message of Kueue, what to do, and whether the job can never start; an unknown message unchanged.

    A message has parts for sets of Pods, flavors and resources, but may leave out a flavor whose topology has no room now.
    groups: As `Waiting.flavors`.
    """
    matched: list[Shape] = []
    explanations: dict[str, None] = {}
    for shape in SHAPES:
        for match in shape.pattern.finditer(message):
            matched.append(shape)
            explanations[shape.explain(match)] = None
    if not matched:
        return without_full_stop(message), "", False
    never = any(_never_fits(part, groups) for part in _POD_SET.split(message))
    hint = next((shape.hint for shape in matched if shape.never == never and shape.hint), "")
    return "; ".join(explanations), hint, never


_POD_SET = re.compile(r"; (?=couldn't assign flavors to pod set)")
_NAME_OF_SET = re.compile(r"pod set ([^\s:]+)")
_FLAVOR = re.compile(r'[Ff]lavor "?([^\s",;]+)')


def _parts(message: str, groups: Flavors | None) -> Iterator[tuple[str, bool]]:
    """Yield the flavor, "" for none, of each part of a message, and whether waiting does not help there."""
    several = any(len(group) > 1 for group in groups or ())
    for shape in SHAPES:
        for match in shape.pattern.finditer(message):
            named = _FLAVOR.search(match[0])
            yield named[1] if named else "", shape.never and not (several and _fits_alone(shape, match))


def _fits_alone(shape: Shape, match: re.Match[str]) -> bool:
    """Return whether a request is too large only beside other pods of the job, which may get another flavor."""
    if shape is not SHAPES[0]:
        return False
    own, most = amount(match[4]), amount(match[5])
    return own is None or most is None or own <= most


def _never_fits(message: str, groups: Flavors | None) -> bool:
    """Return whether waiting does not help a set of Pods: in each flavor of a resource group, there is too little for ever.

    A part that names no flavor, such as one about a topology, stands for one of the flavors that the message does not name.
    """
    flavors: dict[str, list[bool]] = {}
    for flavor, never in _parts(message, groups):
        flavors.setdefault(flavor, []).append(never)
    others = flavors.pop("", [])
    closed = {flavor for flavor, parts in flavors.items() if any(parts)}
    if not flavors:
        return bool(others) and all(others)
    for group in groups or ():
        left = set(group) - closed
        if closed.intersection(group) and (not left or (all(others) and len(left) <= len(others))):
            return True
    return False


def closed_flavors(workload: Document | None, groups: Flavors) -> dict[str, set[str]]:
    """Return pod set -> flavors that can never take it, as Kueue says of a Workload. groups: As `Waiting.flavors`."""
    message = text(condition(conditions(workload), "QuotaReserved").get("message"))
    found: dict[str, set[str]] = {}
    for part in _POD_SET.split(message):
        name = _NAME_OF_SET.search(part)
        if name:
            found[name[1]] = {flavor for flavor, never in _parts(part, groups) if never}
    return found


_PREEMPTOR = re.compile(
    r"Preempted to accommodate a workload \((.*?)\) due to (.*?)(?:; preemptor path: (\S+?); preemptee path: (\S+))?$"
)


def preemptor(workload: Document | None) -> tuple[str, str] | None:
    """Return the UIDs of the Workload and the job that have preempted a Workload; None if it does not wait because of that."""
    found = conditions(workload)
    if not true_condition(found, "Evicted") or true_condition(found, "QuotaReserved"):
        return None
    match = _PREEMPTOR.search(text(true_condition(found, "Preempted").get("message")))
    if not match:
        return None
    uids = dict(re.findall(r"(\w*UID): ([\w-]+)", match[1]))
    if not uids:
        return None
    return uids.get("UID", ""), uids.get("JobUID", "")


_INACTIVE = re.compile(r"(?:ClusterQueue|LocalQueue) \S+ is inactive")


def waits_for_queue(workload: Document | None) -> bool:
    """Return whether a job waits because its queue is inactive."""
    return _INACTIVE.search(text(condition(conditions(workload), "QuotaReserved").get("message"))) is not None


def job_of(workload: Document) -> str:
    """Return the job of a Workload with its priority class, as in "team/llama (high)"."""
    about = section(workload, "metadata")
    owner, rank = owner_of(workload) or about, priority_class(workload)
    job = f"{text(about.get('namespace'))}/{text(owner.get('name'))}"
    if rank:
        job += f" ({rank})"
    return job


def job_name(workload: Document) -> str:
    """Return the name of the JobSet or TrainJob of a Workload; empty if it belongs to something else."""
    owners = mappings(section(workload, "metadata").get("ownerReferences"))
    return next((text(owner.get("name")) for owner in owners if owner.get("kind") in JOB_KINDS), "")


def local_queue_of(workload: Document) -> tuple[str, str]:
    """Return namespace and name of the LocalQueue of a Workload."""
    return text(section(workload, "metadata").get("namespace")), text(section(workload, "spec").get("queueName"))


def belongs_to(workload: Document, namespace: str, name: str) -> bool:
    """Return whether a Workload is that of a job. name: Of the JobSet or TrainJob."""
    return section(workload, "metadata").get("namespace") == namespace and owner_of(workload).get("name") == name


def owner_of(workload: Document) -> Document:
    """Return the reference to the job of a Workload; empty if it has none."""
    return controller_of(workload)


def priority_class(workload: Document) -> str:
    """Return the name of the priority class of a Workload; empty if it has none."""
    spec = section(workload, "spec")
    return text(section(spec, "priorityClassRef").get("name")) or text(spec.get("priorityClassName"))


_PREEMPTIONS = {
    "prioritization in the ClusterQueue": "which has a higher priority in its own queue",
    "reclamation within the cohort": "whose queue reclaims quota that it had lent",
    "Fair Sharing within the cohort": "whose queue has less than its fair share",
    "reclamation within the cohort while borrowing": "which has a higher priority, and whose queue borrows quota",
}
"""Kueue's reasons of a preemption (pkg/scheduler/preemption), as clauses about the job that it made room for."""


def explain_preemption(message: str, by: str = "") -> str:
    """Return which job has preempted a job, from the message of its eviction; another message is returned without a full stop."""
    match = _PREEMPTOR.search(message)
    if not match:
        return without_full_stop(message)
    reason, path = match[2], match[3]
    whose = _PREEMPTIONS.get(reason, f"due to {reason}")
    if by:
        return f"Kueue has stopped it for {by}, {whose}"
    place = ""
    if path:
        place = f" in {path}"
    return f"Kueue has stopped it for another job{place}, {whose}"


def _with_name(message: str, by: str) -> str:
    """Return a message about a preemption with the name of the job instead of its UIDs."""
    match = _PREEMPTOR.search(message)
    if match is None:
        return message
    return message.replace(f"a workload ({match[1]})", by or "another job")


def why_queued(job: Waiting) -> Reason:
    """Return why a job waits."""
    waits = f"it waits in the LocalQueue {job.queue}"
    work = job.workload
    if work is None:
        return _without_workload(job, waits)
    found = conditions(work)
    quota, evicted = condition(found, "QuotaReserved"), true_condition(found, "Evicted")
    admitted = true_condition(found, "Admitted")
    if admitted and not evicted:
        why = "Kueue has admitted it and is starting it"
        return Reason("Admitted", text(admitted.get("message")), why, admitted=True)
    if section(work, "spec").get("active") is False:
        return _deactivated(work, waits, text(evicted.get("message")) or "spec.active of its Workload is false")
    if quota.get("status") == "True" and not evicted:
        return _checking(work, found, quota)
    message, explanation, hint, never = "", "", "", False
    if quota.get("status") != "True":
        message = text(quota.get("message")) or _judgement(job.peer)
    if message:
        explanation, hint, never = explain_message(message, job.flavors)
    if message and job.peer is not None and work is not job.peer:
        explanation += f", as Kueue says of {job_of(job.peer)}, which requests the same"
    if job.inactive:
        explanation = f"its ClusterQueue is inactive: {without_full_stop(job.inactive)}"
    if job.no_room:
        explanation, hint = str(job.no_room), job.no_room.hint
        waits = f"{waits} and does not fit the existing nodes"
    if evicted:
        quota_message = message
        if never:
            quota_message = f"{message}; {_NEVER}"
            explanation = f"{_NEVER}: {explanation}"
            hint = hint or _CHANGE
        preempted = true_condition(found, "Preempted")
        return _evicted(job, evicted, preempted, quota_message, explanation, hint)
    reason = text(quota.get("reason"))
    if not message:
        return _not_looked_at(job, reason)
    if never:
        why = f"{_NEVER} (queue {job.queue}): {explanation}"
        return Reason(reason, f"{message}; {_NEVER}", why, hint or _CHANGE)
    if job.flavors is None and _never_fits(message, [{*_FLAVOR.findall(message)}]):
        hint = f"unless its queue has another flavor, which cannot be read, it never starts: {_CHANGE}"
    return Reason(reason, message, f"{waits}: {explanation}", hint or "it starts by itself as soon as there is room")


def _judgement(workload: Document | None) -> str:
    """Return why Kueue has not admitted a Workload, in its words; empty if it has not said."""
    quota = condition(conditions(workload), "QuotaReserved")
    if quota.get("status") == "True":
        return ""
    return text(quota.get("message"))


@dataclass(frozen=True)
class Judgements:
    """What Kueue has said of Workloads.

    Attributes:
        peers: Of equal Workloads of a LocalQueue, the first one that was judged. Source: computeSchedulingHash in
            https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/workload
        last: When it has judged one of a LocalQueue last, by namespace and name of the queue.
    """

    peers: Mapping[str, Document]
    last: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, workloads: Iterable[Document]) -> Judgements:
        peers, last = dict[str, Document](), dict[tuple[str, str], float]()
        for each in workloads:
            queue, quota = local_queue_of(each), condition(conditions(each), "QuotaReserved")
            last[queue] = max(last.get(queue, 0.0), epoch_seconds(quota.get("lastTransitionTime")))
            if _judgement(each):
                peers.setdefault(_shape_of(each), each)
        return cls(peers, last)

    def peer_of(self, workload: Document) -> Document | None:
        """Return a judged Workload that is equal to one that was not judged; None: there is none."""
        return self.peers.get(_shape_of(workload))

    def is_later(self, workload: Document) -> bool:
        """Return whether another one of its queue was judged since a Workload that was not judged was created."""
        created = epoch_seconds(section(workload, "metadata").get("creationTimestamp"))
        return self.last[local_queue_of(workload)] > created


def _shape_of(workload: Document) -> str:
    spec = section(workload, "spec")
    about = [section(workload, "metadata").get("namespace"), spec.get("queueName"), spec.get("priority")]
    for each in mappings(spec.get("podSets")):
        pod = section(each, "template", "spec")
        parts = only(pod, _PLACING)
        for name in ("initContainers", "containers"):
            parts[name] = [[section(c, "resources").get("requests"), c.get("ports")] for c in mappings(pod.get(name))]
        about += [parts, only(each, ("name", "count", "minCount", "topologyRequest"))]
    return json.dumps(about, sort_keys=True)


_PLACING = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "topologySpreadConstraints", "overhead", "resourceClaims",
)  # fmt: skip


def flavors_of(cluster_queue: Document) -> list[set[str]]:
    """Return the flavors of each resource group of a ClusterQueue."""
    groups = mappings(section(cluster_queue, "spec").get("resourceGroups"))
    return [{text(each.get("name")) for each in mappings(group.get("flavors"))} for group in groups]


_NEVER = "Kueue will never admit it as it is"
_CHANGE = "change the job, or choose another queue"
_RUNNING = "does Kueue's controller run? kubectl get pods -n kueue-system"


def _not_looked_at(job: Waiting, reason: str) -> Reason:
    why = f"it waits in the LocalQueue {job.queue}, and Kueue has not looked at it"
    if job.age < SLOW:
        return Reason(reason, job.message, f"{why} yet")
    if job.turn:
        hint = "Kueue judges other jobs of its queue: whether it fits is known once it is its turn"
        return Reason(reason, job.message, f"{why} yet", hint)
    since = duration(job.age)
    message = f"Kueue has not looked at its Workload in {since}"
    hint = f"jobs before it in a StrictFIFO queue hold it up, or Kueue does not answer: {_RUNNING}"
    return Reason(reason or "NoAnswer", message, f"{why} in {since}", hint)


def _without_workload(job: Waiting, waits: str) -> Reason:
    if not job.readable:
        why = (
            f"{waits}; its Workload, which has the reason, cannot be read: the cluster has no such kind, or the"
            " permission is missing"
        )
        return Reason("", job.message, why, "`pulumi-trainer rbac` prints the permissions; is Kueue installed?")
    if job.age < WORKLOAD_SECONDS:
        return Reason("", job.message, f"{waits}, and Kueue has not looked at it yet")
    return Reason(
        "NoWorkload",
        f"Kueue has created no Workload for it in {duration(job.age)}",
        f"it is in the queue {job.queue}, but Kueue has created no Workload for it in {duration(job.age)}",
        f"{_RUNNING} If it does: does Kueue's configuration list {job.kind} in integrations.frameworks, and select"
        " this namespace (managedJobsNamespaceSelector)? kubectl get configmap -n kueue-system kueue-manager-config"
        " -o yaml",
    )


DEACTIVATED = "Deactivated"
"""Reason of a job whose Workload has `spec.active: false`."""


def _deactivated(work: Document, waits: str, message: str) -> Reason:
    about = section(work, "metadata")
    patch = """--type merge -p '{"spec":{"active":true}}'"""
    hint = (
        f"run the job again (run=), or kubectl patch workload -n {about.get('namespace')} {about.get('name')} {patch}"
    )
    if "maximum execution time" in message.lower():
        hint = "raise max_execution=, which it has used up, and run it again (run=)"
    why = f"{waits}, and its Workload has been deactivated: {without_full_stop(message)}"
    return Reason(DEACTIVATED, message, why, f"Kueue does not start it again by itself: {hint}")


def _checking(work: Document, found: list[Document], quota: Document) -> Reason:
    checks = [c for c in mappings(section(work, "status").get("admissionChecks")) if c.get("state") != "Ready"]
    unmet = join_names([*map(_check_state, checks)])
    admitted = condition(found, "Admitted")
    return Reason(
        text(admitted.get("reason")) or "UnsatisfiedAdmissionChecks",
        unmet or text(admitted.get("message")) or text(quota.get("message")),
        f"it has quota and waits for admission checks of its ClusterQueue: {unmet or 'none has answered yet'}",
    )


def _check_state(check: Document) -> str:
    message = text(check.get("message"))
    state = f"{check.get('name')} is {check.get('state')}"
    if message:
        state += f" ({message})"
    return state


def _evicted(
    job: Waiting, evicted: Document, preemption: Document, quota_message: str, explanation: str, hint: str
) -> Reason:
    reason, message = text(evicted.get("reason")), text(evicted.get("message"))
    why = f"Kueue has stopped it: {without_full_stop(message)}"
    if reason == "Preempted":
        why = explain_preemption(text(preemption.get("message")) or message, job.preemptor)
        message = _with_name(message, job.preemptor)
    why += "; it is queued again"
    if epoch_seconds(section(job.workload, "status", "requeueState").get("requeueAt")):
        why += " after a pause"
    if explanation:
        why += f": {explanation}"
    if quota_message:
        message += f"; {quota_message}"
    return Reason(reason, message, why, hint or "it starts again by itself as soon as there is room")
