"""Reads container statuses: why a container cannot start, and how it has ended.

Reasons: https://github.com/kubernetes/kubernetes/tree/v1.36.3/pkg/kubelet (images/types.go, kuberuntime, container).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulumi_trainer.provider.jobs.observed_inputs import Observed, split_message
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, mappings, number, section, text
from pulumi_trainer.provider.kubernetes.values.wording import without_full_stop
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import is_consequence
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import created_at, node_of, pod_name
from pulumi_trainer.provider.trainer.pipeline.disruptions import TERMINATED

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
"""Seconds after which a restarted container counts as running."""

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
"""End of the imageID of a container."""
_HINTS = {
    "OOMKilled": "it needs more memory than its limit: raise resources_per_node, or use a smaller batch",
    "ContainerCannotRun": "correct its command",
    "StartError": "correct its command",
}
_SIGNALS = {
    135: "often because /dev/shm is too small: mount an emptyDir of medium Memory there",
    TERMINATED: "it was asked to stop (SIGTERM); with checkpoint= this restarts the job without counting towards"
    " max_restarts",
    137: "it was killed (SIGKILL), for example because its node ran out of memory",
}


@dataclass(frozen=True)
class ContainerStatus:
    pod: Document
    status: Document

    @property
    def name(self) -> str:
        return text(self.status.get("name"))

    @property
    def waiting(self) -> str:
        """The reason why it does not run; empty if it runs or has ended."""
        return text(section(self.status, "state", "waiting").get("reason"))

    @property
    def message(self) -> str:
        return text(section(self.status, "state", "waiting").get("message"))

    @property
    def restarts(self) -> int:
        return number(self.status.get("restartCount"))

    @property
    def failure(self) -> Document:
        """How it has last ended, if not with exit code 0; empty otherwise."""
        ends = [section(self.status, state, "terminated") for state in ("state", "lastState")]
        failures = [e for e in ends if number(e.get("exitCode")) or number(e.get("signal"))]
        return min(failures, key=is_secondary, default={})

    @property
    def failed_before(self) -> bool:
        """Whether its failure is that of its previous run: the log of the current one does not explain it."""
        return bool(self.failure) and self.failure != section(self.status, "state", "terminated")

    def crashing(self, now: float) -> bool:
        if self.waiting == CRASH:
            return True
        begun = epoch_seconds(section(self.status, "state", "running").get("startedAt"))
        return bool(self.restarts and self.failure and begun and now - begun < SETTLED)

    def place(self) -> str:
        """Return for example "container node of pod train-node-0-1-abcde on node gpu-3"."""
        return f"container {self.name} of {describe_pod(self.pod)}"


def list_containers(pod: Document) -> Iterator[ContainerStatus]:
    """Yield the containers of a pod, init containers first."""
    status = section(pod, "status")
    for found in (*mappings(status.get("initContainerStatuses")), *mappings(status.get("containerStatuses"))):
        yield ContainerStatus(pod, found)


def observed_inputs(pods: Sequence[Document]) -> Observed:
    """Return what identifies the inputs of a job, as far as its pods show it."""
    found = Observed()
    for pod in sorted(pods, key=created_at):
        images = {
            text(each.get("name")): text(each.get("image")) for each in mappings(section(pod, "spec").get("containers"))
        }
        for container in list_containers(pod):
            for state in ("lastState", "state"):
                message = text(section(container.status, state, "terminated").get("message"))
                found = found.merged(split_message(message)[0])
            pulled = _DIGEST.search(text(container.status.get("imageID")))
            if pulled and images.get(container.name):
                found = found.merged(Observed(images={images[container.name]: pulled[1]}))
    return found


def has_crashed(pod: Document) -> bool:
    """Return whether a container of a pod has failed, and not because another one did."""
    return any(c.failure and not is_secondary(c.failure) for c in list_containers(pod))


def has_succeeded(pod: Document) -> bool:
    """Return whether a pod has ended without a failure, or is about to: a container of it has."""
    ends = [section(each, "state", "terminated") for each in mappings(section(pod, "status").get("containerStatuses"))]
    return any(end and not number(end.get("exitCode")) for end in ends)


def is_secondary(end: Document) -> bool:
    """Return whether a container has probably ended only because another one had."""
    return end.get("exitCode") == TERMINATED or end.get("reason") == "ContainerStatusUnknown"


def failure_order(container: ContainerStatus, lines: Mapping[str, Sequence[str]]) -> tuple[bool, bool, float]:
    """Return the place of a failed container among the failures that explain that of the job: causes before consequences."""
    failure = container.failure
    ended = epoch_seconds(failure.get("finishedAt"), float("inf"))
    return is_secondary(failure), is_consequence(lines.get(pod_name(container.pod), ())), ended


def describe_pod(pod: Document) -> str:
    """Return for example "pod train-node-0-1-abcde on node gpu-3"."""
    node = node_of(pod)
    if not node:
        return f"pod {pod_name(pod)}"
    return f"pod {pod_name(pod)} on node {node}"


def exit_text(failure: Document) -> str:
    """Return for example "exit code 137 (OOMKilled)", with the container's termination message."""
    code = number(failure.get("exitCode"))
    name = text(failure.get("reason"))
    if name in ("", "Error", "Completed"):
        name = _signal(code)
    ending = f"exit code {code}{in_parentheses(name)}"
    _, message = split_message(text(failure.get("message")))
    message = without_full_stop(message)
    if not message:
        return ending
    return f"{ending}: {message}"


def in_parentheses(detail: str) -> str:
    """Return a space and a detail in parentheses; empty for an empty detail."""
    if not detail:
        return ""
    return f" ({detail})"


def exit_hint(failure: Document) -> str:
    """Return what to do about a failure; empty if only the log of the container can tell."""
    return _HINTS.get(text(failure.get("reason"))) or _SIGNALS.get(number(failure.get("exitCode")), "")


def _signal(code: int) -> str:
    """Return the signal that an exit code stands for; empty if it stands for none."""
    if code <= 128:
        return ""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""
