"""What containers say: why one cannot start, and how one has ended.

Reasons: https://github.com/kubernetes/kubernetes/tree/v1.36.3/pkg/kubelet (images/types.go, kuberuntime, container).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    number,
    rows,
    seconds,
    section,
    text,
)
from pulumi_trainer.provider.kube.values.wording import ended
from pulumi_trainer.provider.lifecycle.diagnosis.seen import node_of, pod_name

IMAGES = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
    "SignatureValidationFailed",
)  # fmt: skip
SETUPS = (
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError",
    "PostStartHookError", "CreatePodSandboxError", "ConfigPodSandboxError",
)  # fmt: skip
CRASH = "CrashLoopBackOff"
SETTLED = 10.0
"""Seconds that a container which has crashed has to run before it counts as running again."""

_MENDS = {
    "OOMKilled": "it needs more memory than its limit: raise resources_per_node, or use a smaller batch",
    "ContainerCannotRun": "correct its command",
    "StartError": "correct its command",
}
_SIGNALS = {
    135: "often /dev/shm is too small: mount a volume of medium Memory there",
    137: "something has killed it; a node that ran out of memory does so too",
}


@dataclass(frozen=True)
class Container:
    """A container of a pod as its status has it."""

    pod: Document
    status: Document

    @property
    def name(self) -> str:
        return text(self.status.get("name"))

    @property
    def waiting(self) -> str:
        """Why it does not run; empty: it does, or has ended."""
        return text(section(self.status, "state", "waiting").get("reason"))

    @property
    def said(self) -> str:
        return text(section(self.status, "state", "waiting").get("message"))

    @property
    def restarts(self) -> int:
        return number(self.status.get("restartCount"))

    @property
    def failure(self) -> Document:
        """How it has last ended, if that was with another code than 0; empty otherwise."""
        ends = [section(self.status, state, "terminated") for state in ("state", "lastState")]
        bad = [e for e in ends if number(e.get("exitCode")) or number(e.get("signal"))]
        return next((e for e in bad if not wake(e)), bad[0] if bad else {})

    def crashing(self, now: float) -> bool:
        """Whether it is started again and again."""
        if self.waiting == CRASH:
            return True
        begun = seconds(section(self.status, "state", "running").get("startedAt"))
        return bool(self.restarts and self.failure and begun and now - begun < SETTLED)

    def place(self) -> str:
        """container node of pod train-node-0-1-abcde on gpu-3."""
        return f"container {self.name} of {placed(self.pod)}"


def containers(pod: Document) -> Iterator[Container]:
    status = section(pod, "status")
    for found in (*rows(status.get("initContainerStatuses")), *rows(status.get("containerStatuses"))):
        yield Container(pod, found)


def wake(end: Document) -> bool:
    """Whether it has probably ended only because something else had."""
    return end.get("exitCode") == 143 or end.get("reason") == "ContainerStatusUnknown"


def placed(pod: Document) -> str:
    """pod train-node-0-1-abcde on gpu-3."""
    node = node_of(pod)
    return f"pod {pod_name(pod)}" + (f" on node {node}" if node else "")


def exit_words(failure: Document) -> str:
    """exit code 137 (OOMKilled), with what the container has said at its end."""
    code = number(failure.get("exitCode"))
    reason = text(failure.get("reason"))
    names = [reason] if reason not in ("", "Error", "Completed") else []
    if not names and code > 128 and (name := _signal(code - 128)):
        names = [name]
    said = ended(text(failure.get("message")))
    return f"exit code {code}" + (f" ({names[0]})" if names else "") + (f": {said}" if said else "")


def exit_mend(failure: Document) -> str:
    """What to do about a way to end; empty where only its log knows."""
    return _MENDS.get(text(failure.get("reason"))) or _SIGNALS.get(number(failure.get("exitCode")), "")


def _signal(value: int) -> str:
    try:
        return signal.Signals(value).name
    except ValueError:
        return ""
