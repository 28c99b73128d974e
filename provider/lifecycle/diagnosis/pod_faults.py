"""Explains why pods do not run: no node, no scheduler, no gang, no image, no volume, a crash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values.accessors import Document, condition, conditions, number, section, text
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names, plural, without_full_stop
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    CRASH,
    IMAGES,
    SETUPS,
    ContainerStatus,
    describe_pod,
    exit_hint,
    exit_text,
    failure_order,
    in_parentheses,
    list_containers,
)
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import summarize
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
from pulumi_trainer.provider.trainer.labels import KAI_SCHEDULER

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
    found = [*chain.from_iterable(map(list_containers, pods))]
    for reasons, hint in ((IMAGES, _PULL), (SETUPS, _CONFIG)):
        at_fault = [c for c in found if c.waiting in reasons]
        if at_fault:
            return _cannot_start(view, at_fault, hint)
    crashing = [c for c in found if c.crashing(now)]
    if not crashing:
        return None
    return _crash_loop(view, crashing)


def _cannot_start(view: JobView, found: list[ContainerStatus], hint: str) -> Finding:
    first = max(found, key=lambda c: len(c.message))
    message = without_full_stop(first.message)
    if first.waiting == "ImagePullBackOff":
        message = _pull_error(view, first) or message
    image = text(first.status.get("image"))
    what = "its container cannot be created"
    if first.waiting in IMAGES:
        what = f"its image {image} cannot be pulled"
    others = _and_more_pods(found)
    return Finding(
        Phase.STARTING,
        first.waiting,
        f"{first.place()}{others}: {message or image}",
        f"{first.place()} does not start{others}: {what}{in_parentheses(message)}",
        hint,
    )


def _pull_error(view: JobView, container: ContainerStatus) -> str:
    """Return the error of an image pull from the events: the back-off hides it."""
    messages: list[str] = []
    for event in view.warnings("Pod", "Failed"):
        message = text(event.get("message"))
        is_of_pull = "pull" in message.lower() and message != "Error: ErrImagePull"
        if is_of_pull and subject(event) == pod_name(container.pod):
            messages.append(message)
    return without_full_stop(max(messages, key=len, default=""))


def _crash_loop(view: JobView, found: list[ContainerStatus]) -> Finding:
    first = min(found, key=lambda c: (pod_name(c.pod) not in view.lines, *failure_order(c, view.lines)))
    if first.failure:
        how = exit_text(first.failure)
    else:
        how = without_full_stop(first.message)
    lines = last_lines(view, first.pod)
    error = summarize(view.lines.get(pod_name(first.pod), ()))
    if error:
        error = f": {error}"
    others = _and_more_pods(found)
    times = ""
    if first.restarts:
        times = f", restarted {plural(first.restarts, 'time')}"
    return Finding(
        Phase.STARTING,
        CRASH,
        f"{first.place()}{others}: {how}{error}{times}{lines}",
        f"{first.place()} ends soon after each start{others}: {how}{times}{lines}",
        exit_hint(first.failure) or f"`pulumi-trainer logs {view.namespace}/{view.name} --all` shows its output",
    )


def _and_more_pods(found: list[ContainerStatus]) -> str:
    pods = {pod_name(c.pod) for c in found}
    if len(pods) <= 1:
        return ""
    return in_parentheses(f"and {len(pods) - 1} more")


def last_lines(view: JobView, pod: Document) -> str:
    """Return the end of a pod's log, indented; empty if it was not fetched."""
    lines = view.lines.get(pod_name(pod), ())
    if not lines:
        return ""
    return "\n" + "\n".join(f"  {line}" for line in lines)


# --- pods without a node ----------------------------------------------------------------------------------------------------


def _unscheduled(view: JobView, pods: Sequence[Document], now: float) -> Finding | None:
    waiting = [p for p in pods if not node_of(p)]
    untried: list[Document] = []
    gated: list[Document] = []
    refused: list[Document] = []
    for pod in waiting:
        scheduled = _scheduled(pod)
        if not scheduled:
            untried.append(pod)
        elif scheduled.get("status") == "False" and scheduled.get("reason") == "SchedulingGated":
            gated.append(pod)
        elif scheduled.get("status") == "False":
            refused.append(pod)
    if waiting and len(untried) == len(waiting):
        return _no_scheduler(view, untried, now)
    if refused:
        return _refused(view, pods, refused)
    if gated:
        return _gated(gated, text(_scheduled(gated[0]).get("message")))
    return None


def _scheduled(pod: Document) -> Document:
    """Return what the scheduler reports of a pod; empty if no scheduler has tried to place it."""
    return condition(conditions(pod), "PodScheduled")


def _refused(view: JobView, pods: Sequence[Document], refused: list[Document]) -> Finding:
    """Return why the scheduler finds no node for some of the pods."""
    pod = refused[0]
    messages = [text(_scheduled(p).get("message")) for p in refused]
    message = re.sub(r"\s*\n\s*", " ", _best_message(view, messages))
    scheduler = text(section(pod, "spec").get("schedulerName"))
    if any(map(pod_group_of, refused)) and scheduler not in ("", DEFAULT_SCHEDULER):
        return _gang(view, pods, message)
    hint = f"free or {_NO_NODE_HINT}; the scheduler tries again by itself"
    if view.unbound:
        hint = view.unbound.hint
    elif view.no_node:
        hint = _NO_NODE_HINT
    if scheduler == KAI_SCHEDULER:
        hint = "its pods start together or not at all: free or add nodes for all of them, use fewer nodes, or look at its queue"
        hint = f"{hint} in KAI; the scheduler tries again by itself"
    return Finding(
        Phase.STARTING,
        text(_scheduled(pod).get("reason")) or "Unschedulable",
        f"{plural(len(refused), 'pod')} without a node, such as {pod_name(pod)}: {message}",
        f"{_without_node(len(refused), len(view.live), pod_name(pod))}: {_unfit(view) or without_full_stop(message)}",
        hint,
    )


_NO_NODE_HINT = "add such nodes, request less per node, or correct node selector, tolerations and volumes"


def _unfit(view: JobView) -> str:
    """Return why even empty nodes do not take the pods; empty if they do, or if it was not looked up."""
    if view.unbound:
        return f"{view.unbound.where}: {view.unbound.why}"
    if view.no_node is None:
        return ""
    if view.no_node.on_demand:
        return f"{view.no_node.why}, unless an autoscaler adds one"
    return f"{view.no_node.why}, even when nothing runs"


def _without_node(refused: int, pods: int, name: str) -> str:
    if pods == 1:
        return f"its pod {name} finds no node"
    verb = "finds" if refused == 1 else "find"
    return f"{refused} of its {plural(pods, 'pod')} {verb} no node, such as {name}"


def _no_scheduler(view: JobView, pods: list[Document], now: float) -> Finding | None:
    oldest = min(filter(None, map(created_at, pods)), default=now)
    if now - oldest < SILENCE:
        return None
    scheduler = text(section(pods[0], "spec").get("schedulerName")) or DEFAULT_SCHEDULER
    since = duration(now - oldest)
    hint = "is kube-scheduler running?"
    queue = text(section(view.pod_group, "spec").get("queue"))
    if queue:
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
    for event in [*view.warnings("Pod", "FailedScheduling"), *view.warnings("PodGroup", "Unschedulable")]:
        message = text(event.get("message"))
        if not is_vague(message):
            return message
    return next(iter(messages), "")


def is_vague(message: str) -> bool:
    """Return whether a message of the gang scheduler only reports that another pod has no node."""
    return any(phrase in message for phrase in _VAGUE)


def _gang(view: JobView, pods: Sequence[Document], message: str) -> Finding:
    group, name = view.pod_group, waiting_pod_group(pods)
    members = [p for p in pods if pod_group_of(p) == name]
    least = number(section(group, "spec").get("minMember")) or len(members)
    with_node = sum(bool(node_of(p)) for p in members)
    phase = text(section(group, "status").get("phase"))
    state = in_parentheses(phase)
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
    if found is None:
        return message
    missing = [f"{int(value) * 10 ** int(scale):.12g} {name}" for name, value, scale in _AMOUNT.findall(found[1])]
    if not missing:
        return message
    return f"the cluster lacks {', '.join(missing)} for all of them together"


_GAP = re.compile(r"resource gap: map\[([^\]]*)\]")
_AMOUNT = re.compile(r"(\S+?):\{\{(\d{1,18}) (-?\d)\}")


# --- pods with a node -------------------------------------------------------------------------------------------------------


def _unmounted(view: JobView, pods: Sequence[Document]) -> Finding | None:
    creating = {pod_name(p): p for p in pods if node_of(p) and _is_creating(p)}
    for reasons, what, hint in (
        (
            _MOUNTS,
            "a volume cannot be mounted",
            "create what it refers to (claim, Secret, ConfigMap), or correct the reference",
        ),
        (_SANDBOX, "its node cannot create its sandbox", "check the network plugin and the runtime class of the node"),
    ):
        events = [e for e in view.warnings("Pod", *reasons) if subject(e) in creating]
        if not events:
            continue
        message, pod = without_full_stop(text(events[0].get("message"))), creating[subject(events[0])]
        others = sorted({*map(subject, events)} - {pod_name(pod)})
        more = ""
        if others:
            more = in_parentheses(f"and {join_names(others)}")
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
