"""Why pods do not run: no node, no scheduler, no gang, no image, no volume, a crash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pulumi_trainer.provider.api.status import Phase
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    condition,
    conditions,
    number,
    section,
    text,
)
from pulumi_trainer.provider.kube.values.wording import (
    counted,
    duration,
    ended,
    listed,
)
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    CRASH,
    IMAGES,
    SETUPS,
    Container,
    containers,
    exit_mend,
    exit_words,
    placed,
)
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    Seen,
    born,
    gang_of,
    node_of,
    of_coscheduling,
    pod_name,
    subject,
    waiting_gang,
)

SILENCE = 30.0
"""Seconds after which a scheduler should have said something about a pod."""
DEFAULT_SCHEDULER = "default-scheduler"
WAITING_FOR_GANG = "WaitingForGang"
_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox",)
_VAGUE = ("optimistic rejection", "rejection in Unreserve", "cannot find enough sibling pods")

_PULL = "correct the image's name, or give the pods an imagePullSecret (a RuntimePatch) for a private registry"
_CONFIG = "create what it refers to (Secret, ConfigMap, key), or correct the reference"


def fault(seen: Seen, now: float) -> Finding | None:
    """What keeps pods from running, the nearest to the user's own doing first; None: nothing that one could name."""
    pods = [p for p in seen.live if text(section(p, "status").get("phase")) in ("", "Pending", "Running", "Unknown")]
    return _container_fault(seen, pods, now) or _unscheduled(seen, pods, now) or _unmounted(seen, pods)


def _container_fault(seen: Seen, pods: Sequence[Document], now: float) -> Finding | None:
    found = [c for p in pods for c in containers(p)]
    for reasons, mend in ((IMAGES, _PULL), (SETUPS, _CONFIG)):
        if at_fault := [c for c in found if c.waiting in reasons]:
            return _cannot_start(seen, at_fault, mend)
    crashing = [c for c in found if c.crashing(now)]
    return _crash_loop(seen, crashing) if crashing else None


def _cannot_start(seen: Seen, found: list[Container], mend: str) -> Finding:
    first = max(found, key=lambda c: len(c.said))
    said = ended(first.said)
    if first.waiting == "ImagePullBackOff":
        said = _pull_error(seen, first) or said
    image = text(first.status.get("image"))
    what = f"its image {image} cannot be pulled" if first.waiting in IMAGES else "it cannot be made"
    others = _others(found)
    return Finding(
        Phase.STARTING,
        first.waiting,
        f"{first.place()}{others}: {said or image}",
        f"{first.place()} does not start{others}: {what}" + (f" ({said})" if said else ""),
        mend,
    )


def _pull_error(seen: Seen, container: Container) -> str:
    """The back-off hides why: an event still says it."""
    events = [e for e in seen.warnings("Pod", "Failed") if subject(e) == pod_name(container.pod)]
    said = [text(e.get("message")) for e in events]
    best = max((s for s in said if "pull" in s.lower() and s != "Error: ErrImagePull"), key=len, default="")
    return ended(best)


def _crash_loop(seen: Seen, found: list[Container]) -> Finding:
    first = max(found, key=lambda c: c.restarts)
    how = exit_words(first.failure) if first.failure else ended(first.said)
    lines = last_lines(seen, first.pod)
    others = _others(found)
    times = f", restarted {counted(first.restarts, 'time')}" if first.restarts else ""
    return Finding(
        Phase.STARTING,
        CRASH,
        f"{first.place()}{others}: {how}{times}{lines}",
        f"{first.place()} ends soon after each start{others}: {how}{times}{lines}",
        exit_mend(first.failure)
        or f"its log says more: kubectl logs -n {seen.namespace} {pod_name(first.pod)} --previous",
    )


def _others(found: list[Container]) -> str:
    pods = len({pod_name(c.pod) for c in found})
    return f" (and {pods - 1} more)" if pods > 1 else ""


def last_lines(seen: Seen, pod: Document) -> str:
    """The end of a pod's log, each line on one of its own; empty where nobody has fetched it."""
    lines = seen.lines.get(pod_name(pod), ())
    return "\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


# --- pods without a node ----------------------------------------------------------------------------------------------------


def _unscheduled(seen: Seen, pods: Sequence[Document], now: float) -> Finding | None:
    waiting = [p for p in pods if not node_of(p)]
    if not waiting:
        return None
    told = [(p, condition(conditions(p), "PodScheduled")) for p in waiting]
    silent = [p for p, c in told if not c]
    if len(silent) == len(waiting):
        return _silence(silent, now)
    refused = [(p, c) for p, c in told if c.get("status") == "False"]
    if not refused:
        return None
    gated = [p for p, c in refused if c.get("reason") == "SchedulingGated"]
    if len(gated) == len(refused):
        return _gated(gated, text(refused[0][1].get("message")))
    refused = [(p, c) for p, c in refused if c.get("reason") != "SchedulingGated"]
    words = _shortage(seen, [text(c.get("message")) for _, c in refused])
    if any(gang_of(p) for p, _ in refused) and _own_scheduler(refused[0][0]):
        return _gang(seen, pods, words)
    pod = refused[0][0]
    return Finding(
        Phase.STARTING,
        text(refused[0][1].get("reason")) or "Unschedulable",
        f"{counted(len(refused), 'pod')} without a node, such as {pod_name(pod)}: {words}",
        f"{_nodeless(len(refused), len(seen.live), pod_name(pod))}: {ended(words)}",
        "free or add such nodes, ask for less a node, or correct node selector, tolerations and volumes;"
        " the scheduler tries again by itself",
    )


def _nodeless(refused: int, pods: int, name: str) -> str:
    if pods == 1:
        return f"its pod {name} finds no node"
    return f"{refused} of its {counted(pods, 'pod')} {'finds' if refused == 1 else 'find'} no node, such as {name}"


def _own_scheduler(pod: Document) -> bool:
    return text(section(pod, "spec").get("schedulerName")) not in ("", DEFAULT_SCHEDULER)


def _silence(pods: list[Document], now: float) -> Finding | None:
    oldest = min((b for p in pods if (b := born(p))), default=now)
    if now - oldest < SILENCE:
        return None
    scheduler = text(section(pods[0], "spec").get("schedulerName")) or DEFAULT_SCHEDULER
    since = duration(now - oldest)
    mend = (
        "is kube-scheduler running?"
        if scheduler == DEFAULT_SCHEDULER
        else f"is a scheduler of that name installed and running? Otherwise correct schedulerName, or leave {scheduler} out"
    )
    return Finding(
        Phase.STARTING,
        "NoScheduler",
        f"{counted(len(pods), 'pod')} of scheduler {scheduler} pending since {since}, and nobody has tried to schedule them",
        f"the scheduler {scheduler}, which its pods name, has not looked at {counted(len(pods), 'pod')} for {since}",
        mend,
    )


def _gated(pods: list[Document], words: str) -> Finding:
    return Finding(
        Phase.STARTING,
        "SchedulingGated",
        words,
        f"{counted(len(pods), 'pod')} may not be scheduled yet, such as {pod_name(pods[0])}: {ended(words)}",
        "whoever has set the schedulingGates removes them (Kueue does, for a topology)",
    )


def _shortage(seen: Seen, words: list[str]) -> str:
    """The words that say most: a gang's pods mostly say that another one has no node, and only an event which one."""
    clear = [w for w in words if w and not vague(w)]
    if clear:
        return max(clear, key=len)
    events = [text(e.get("message")) for e in seen.warnings("Pod", "FailedScheduling")]
    clear = [w for w in events if not vague(w)]
    return clear[0] if clear else (words[0] if words else "")


def vague(words: str) -> bool:
    """Whether the gang scheduler says only that another pod has no node. Sometimes no pod's condition says more."""
    return any(each in words for each in _VAGUE)


def _gang(seen: Seen, pods: Sequence[Document], words: str) -> Finding:
    group, name = seen.pod_group, waiting_gang(pods)
    members = [p for p in pods if gang_of(p) == name]
    least = number(section(group, "spec").get("minMember")) or len(members)
    with_node = sum(bool(node_of(p)) for p in members)
    phase = text(section(group, "status").get("phase"))
    state = f" ({phase})" if phase else ""
    if group is None and "podgroups" not in seen.unseen:
        return Finding(
            Phase.STARTING,
            "NoPodGroup",
            f"pods name the PodGroup {name}, which does not exist",
            f"its pods name the PodGroup {name}, which does not exist: {ended(words)}",
            "create it, or correct the label",
        )
    again = "Volcano tries again by itself"
    if any(map(of_coscheduling, members)):
        touch = f"kubectl annotate -n {seen.namespace} podgroups.scheduling.x-k8s.io {name} --overwrite woken=1"
        again = f"the scheduler looks at new nodes after some minutes, or at once if the PodGroup is touched: {touch}"
    return Finding(
        Phase.STARTING,
        WAITING_FOR_GANG,
        f"{with_node} of {least} pods of PodGroup {name}{state} have a node: {words}",
        f"its {least} pods start together or not at all, and {with_node} have a node{state}: {ended(_readable(words))}",
        f"free or add nodes for all of them, or use fewer nodes; {again}",
    )


def _readable(words: str) -> str:
    """The coscheduling plugin prints the Go value of what the whole cluster lacks for the group's minResources."""
    found = _GAP.search(words)
    amounts = _AMOUNT.findall(found[1]) if found else []
    lacks = ", ".join(f"{int(value) * 10 ** int(scale):.12g} {name}" for name, value, scale in amounts)
    return f"the cluster lacks {lacks} for all of them together" if lacks else words


_GAP = re.compile(r"resource gap: map\[([^\]]*)\]")
_AMOUNT = re.compile(r"(\S+?):\{\{(\d{1,18}) (-?\d)\}")


# --- pods with a node -------------------------------------------------------------------------------------------------------


def _unmounted(seen: Seen, pods: Sequence[Document]) -> Finding | None:
    waiting = [
        p
        for p in pods
        if node_of(p) and any(c.waiting in ("ContainerCreating", "PodInitializing") for c in containers(p))
    ]
    names = {pod_name(p): p for p in waiting}
    for reasons, what, mend in (
        (
            _MOUNTS,
            "a volume cannot be mounted",
            "create what it refers to (claim, Secret, ConfigMap), or correct the reference",
        ),
        (_SANDBOX, "its node cannot make it", "look at the node: network plugin, runtime class"),
    ):
        events = [e for e in seen.warnings("Pod", *reasons) if subject(e) in names]
        if events:
            said, pod = ended(text(events[0].get("message"))), names[subject(events[0])]
            others = sorted({subject(e) for e in events} - {pod_name(pod)})
            more = f" (and {listed(others)})" if others else ""
            return Finding(
                Phase.STARTING,
                text(events[0].get("reason")),
                f"{placed(pod)}{more}: {said}",
                f"{placed(pod)} does not start{more}: {what} ({said})",
                mend,
            )
    return None
