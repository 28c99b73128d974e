"""Explains why pods do not run: no node, no scheduler, no gang, no image, no volume, a crash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pulumi_trainer.provider.api.labels import KAI_SCHEDULER
from pulumi_trainer.provider.api.status import Phase
from pulumi_trainer.provider.kube.values.accessors import Document, condition, conditions, number, section, text
from pulumi_trainer.provider.kube.values.wording import duration, join_names, plural, without_full_stop
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    CRASH,
    IMAGES,
    SETUPS,
    Container,
    describe_pod,
    exit_hint,
    exit_text,
    list_containers,
)
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import (
    JobView,
    created_at,
    is_coscheduled,
    node_of,
    pod_group_of,
    pod_name,
    subject,
    waiting_pod_group,
)

SILENCE = 30.0
"""Seconds after which a scheduler should have set a condition on a pod."""
DEFAULT_SCHEDULER = "default-scheduler"
WAITING_FOR_GANG = "WaitingForGang"
_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox",)
_VAGUE = (
    "optimistic rejection", "rejection in Unreserve", "cannot find enough sibling pods",
    "once minAvailable is satisfied", "pod group is not ready",
)  # fmt: skip

_PULL = "correct the image's name, or give the pods an imagePullSecret (a RuntimePatch) for a private registry"
_CONFIG = "create what it refers to (Secret, ConfigMap, key), or correct the reference"


def find_fault(view: JobView, now: float) -> Finding | None:
    """Return what keeps pods from running, faults of the user's own first; None if nothing is found."""
    pods = [p for p in view.live if text(section(p, "status").get("phase")) in ("", "Pending", "Running", "Unknown")]
    return _container_fault(view, pods, now) or _unscheduled(view, pods, now) or _unmounted(view, pods)


def _container_fault(view: JobView, pods: Sequence[Document], now: float) -> Finding | None:
    found: list[Container] = []
    for pod in pods:
        found += list_containers(pod)
    for reasons, hint in ((IMAGES, _PULL), (SETUPS, _CONFIG)):
        if at_fault := [c for c in found if c.waiting in reasons]:
            return _cannot_start(view, at_fault, hint)
    crashing = [c for c in found if c.crashing(now)]
    return _crash_loop(view, crashing) if crashing else None


def _cannot_start(view: JobView, found: list[Container], hint: str) -> Finding:
    first = max(found, key=lambda c: len(c.message))
    message = without_full_stop(first.message)
    if first.waiting == "ImagePullBackOff":
        message = _pull_error(view, first) or message
    image = text(first.status.get("image"))
    what = f"its image {image} cannot be pulled" if first.waiting in IMAGES else "its container cannot be created"
    others = _others(found)
    return Finding(
        Phase.STARTING,
        first.waiting,
        f"{first.place()}{others}: {message or image}",
        f"{first.place()} does not start{others}: {what}" + (f" ({message})" if message else ""),
        hint,
    )


def _pull_error(view: JobView, container: Container) -> str:
    """Return the error of an image pull from the events: the back-off hides it."""
    events = [e for e in view.warnings("Pod", "Failed") if subject(e) == pod_name(container.pod)]
    message = [text(e.get("message")) for e in events]
    messages = [m for m in message if "pull" in m.lower() and m != "Error: ErrImagePull"]
    return without_full_stop(max(messages, key=len, default=""))


def _crash_loop(view: JobView, found: list[Container]) -> Finding:
    first = max(found, key=lambda c: c.restarts)
    how = exit_text(first.failure) if first.failure else without_full_stop(first.message)
    lines = last_lines(view, first.pod)
    others = _others(found)
    times = f", restarted {plural(first.restarts, 'time')}" if first.restarts else ""
    return Finding(
        Phase.STARTING,
        CRASH,
        f"{first.place()}{others}: {how}{times}{lines}",
        f"{first.place()} ends soon after each start{others}: {how}{times}{lines}",
        exit_hint(first.failure) or f"see its log: kubectl logs -n {view.namespace} {pod_name(first.pod)} --previous",
    )


def _others(found: list[Container]) -> str:
    pods = len({pod_name(c.pod) for c in found})
    return f" (and {pods - 1} more)" if pods > 1 else ""


def last_lines(view: JobView, pod: Document) -> str:
    """Return the end of a pod's log, indented; empty if it was not fetched."""
    lines = view.lines.get(pod_name(pod), ())
    return "\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


# --- pods without a node ----------------------------------------------------------------------------------------------------


def _unscheduled(view: JobView, pods: Sequence[Document], now: float) -> Finding | None:
    waiting = [p for p in pods if not node_of(p)]
    if not waiting:
        return None
    scheduled = [(p, condition(conditions(p), "PodScheduled")) for p in waiting]
    silent = [p for p, c in scheduled if not c]
    if len(silent) == len(waiting):
        return _no_scheduler(view, silent, now)
    refused = [(p, c) for p, c in scheduled if c.get("status") == "False"]
    if not refused:
        return None
    gated = [p for p, c in refused if c.get("reason") == "SchedulingGated"]
    if len(gated) == len(refused):
        return _gated(gated, text(refused[0][1].get("message")))
    refused = [(p, c) for p, c in refused if c.get("reason") != "SchedulingGated"]
    message = re.sub(r"\s*\n\s*", " ", _best_message(view, [text(c.get("message")) for _, c in refused]))
    if any(pod_group_of(p) for p, _ in refused) and _has_gang_scheduler(refused[0][0]):
        return _gang(view, pods, message)
    pod = refused[0][0]
    hint = _NO_NODE_HINT if view.no_node else f"free or {_NO_NODE_HINT}; the scheduler tries again by itself"
    if text(section(pod, "spec").get("schedulerName")) == KAI_SCHEDULER:
        hint = "its pods start together or not at all: free or add nodes for all of them, use fewer nodes, or look at its queue"
        hint = f"{hint} in KAI; the scheduler tries again by itself"
    return Finding(
        Phase.STARTING,
        text(refused[0][1].get("reason")) or "Unschedulable",
        f"{plural(len(refused), 'pod')} without a node, such as {pod_name(pod)}: {message}",
        f"{_without_node(len(refused), len(view.live), pod_name(pod))}: {_unfit(view) or without_full_stop(message)}",
        hint,
    )


_NO_NODE_HINT = "add such nodes, request less per node, or correct node selector, tolerations and volumes"


def _unfit(view: JobView) -> str:
    """Return why even empty nodes do not take the pods; empty if they do, or if it was not looked up."""
    if view.no_node is None:
        return ""
    return view.no_node.why + (
        ", unless an autoscaler adds one" if view.no_node.on_demand else ", even when nothing runs"
    )


def _without_node(refused: int, pods: int, name: str) -> str:
    if pods == 1:
        return f"its pod {name} finds no node"
    verb = "finds" if refused == 1 else "find"
    return f"{refused} of its {plural(pods, 'pod')} {verb} no node, such as {name}"


def _has_gang_scheduler(pod: Document) -> bool:
    return text(section(pod, "spec").get("schedulerName")) not in ("", DEFAULT_SCHEDULER)


def _no_scheduler(view: JobView, pods: list[Document], now: float) -> Finding | None:
    oldest = min(filter(None, map(created_at, pods)), default=now)
    if now - oldest < SILENCE:
        return None
    scheduler = text(section(pods[0], "spec").get("schedulerName")) or DEFAULT_SCHEDULER
    since = duration(now - oldest)
    hint = "is kube-scheduler running?"
    if queue := text(section(view.pod_group, "spec").get("queue")):
        hint = f"is {scheduler} running, and does the queue {queue} exist: kubectl get queues.scheduling.volcano.sh {queue}?"
    elif scheduler != DEFAULT_SCHEDULER:
        hint = f"is the scheduler {scheduler} installed and running? Otherwise correct schedulerName, or leave it out"
    return Finding(
        Phase.STARTING,
        "NoScheduler",
        f"{plural(len(pods), 'pod')} of scheduler {scheduler} pending for {since}, and no scheduler has tried to"
        " place them",
        f"the scheduler {scheduler}, which its pods name, has not tried to place {plural(len(pods), 'pod')} for"
        f" {since}",
        hint,
    )


def _gated(pods: list[Document], message: str) -> Finding:
    return Finding(
        Phase.STARTING,
        "SchedulingGated",
        message,
        f"{plural(len(pods), 'pod')} may not be scheduled yet, such as {pod_name(pods[0])}: {without_full_stop(message)}",
        "the controller that set the schedulingGates removes them (Kueue does so for a topology)",
    )


def _best_message(view: JobView, messages: list[str]) -> str:
    """Return the message that explains most: a gang's pods mostly report that another pod has no node, and only events name
    it."""
    clear = [m for m in messages if m and not is_vague(m)]
    if clear:
        return max(clear, key=len)
    events = [*view.warnings("Pod", "FailedScheduling"), *view.warnings("PodGroup", "Unschedulable")]
    clear = [m for m in map(_message, events) if not is_vague(m)]
    return next(iter([*clear, *messages]), "")


def _message(event: Document) -> str:
    return text(event.get("message"))


def is_vague(message: str) -> bool:
    """Return whether a message of the gang scheduler only reports that another pod has no node."""
    return any(phrase in message for phrase in _VAGUE)


def _gang(view: JobView, pods: Sequence[Document], message: str) -> Finding:
    group, name = view.pod_group, waiting_pod_group(pods)
    members = [p for p in pods if pod_group_of(p) == name]
    least = number(section(group, "spec").get("minMember")) or len(members)
    with_node = sum(bool(node_of(p)) for p in members)
    phase = text(section(group, "status").get("phase"))
    state = f" ({phase})" if phase else ""
    if group is None and "podgroups" not in view.unreadable:
        return Finding(
            Phase.STARTING,
            "NoPodGroup",
            f"pods name the PodGroup {name}, which does not exist",
            f"its pods name the PodGroup {name}, which does not exist: {without_full_stop(message)}",
            "create it, or correct the label",
        )
    queue = text(section(group, "spec").get("queue"))
    retry = "Volcano tries again by itself"
    if queue and phase == "Pending":  # later it is Inqueue, and only nodes are missing
        retry = f"{retry} as soon as its queue {queue} and the cluster have room for all of them"
    if any(map(is_coscheduled, members)):
        touch = f"kubectl annotate -n {view.namespace} podgroups.scheduling.x-k8s.io {name} --overwrite woken=1"
        retry = f"the scheduler tries again after some minutes, or at once if the PodGroup changes: {touch}"
    why = without_full_stop(_readable(message))
    return Finding(
        Phase.STARTING,
        WAITING_FOR_GANG,
        f"{with_node} of {least} pods of PodGroup {name}{state} have a node: {message}",
        f"its {least} pods start together or not at all, but only {with_node} have a node{state}: {why}",
        f"free or add nodes for all of them, or use fewer nodes; {retry}",
    )


def _readable(message: str) -> str:
    """Return the missing resources of a message of the coscheduling plugin, which prints them as a Go value."""
    found = _GAP.search(message)
    amounts = _AMOUNT.findall(found[1]) if found else []
    lacks = ", ".join(f"{int(value) * 10 ** int(scale):.12g} {name}" for name, value, scale in amounts)
    return f"the cluster lacks {lacks} for all of them together" if lacks else message


_GAP = re.compile(r"resource gap: map\[([^\]]*)\]")
_AMOUNT = re.compile(r"(\S+?):\{\{(\d{1,18}) (-?\d)\}")


# --- pods with a node -------------------------------------------------------------------------------------------------------


def _unmounted(view: JobView, pods: Sequence[Document]) -> Finding | None:
    names = {pod_name(p): p for p in pods if node_of(p) and _is_creating(p)}
    for reasons, what, hint in (
        (
            _MOUNTS,
            "a volume cannot be mounted",
            "create what it refers to (claim, Secret, ConfigMap), or correct the reference",
        ),
        (_SANDBOX, "its node cannot create its sandbox", "check the network plugin and the runtime class of the node"),
    ):
        events = [e for e in view.warnings("Pod", *reasons) if subject(e) in names]
        if events:
            message, pod = without_full_stop(text(events[0].get("message"))), names[subject(events[0])]
            others = sorted({*map(subject, events)} - {pod_name(pod)})
            more = f" (and {join_names(others)})" if others else ""
            return Finding(
                Phase.STARTING,
                text(events[0].get("reason")),
                f"{describe_pod(pod)}{more}: {message}",
                f"{describe_pod(pod)} does not start{more}: {what} ({message})",
                hint,
            )
    return None


def _is_creating(pod: Document) -> bool:
    return any(c.waiting in ("ContainerCreating", "PodInitializing") for c in list_containers(pod))
