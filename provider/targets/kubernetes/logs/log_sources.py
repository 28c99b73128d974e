"""Lists the logs of a job: the containers of its pods, and which of them belong to its newest attempt.

Rules: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/kubelet_pods.go (validateContainerLogStatus): a container
that waits for its restart has the log of its last run. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import (
    epoch_seconds,
    labels_of,
    mappings,
    number,
    section,
    text,
)
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import ATTEMPT, COMPLETION, JOB_INDEX, JOB_NAME, STEP

Document = dict[str, Any]

_LISTS = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


@dataclass(frozen=True)
class Source:
    """One container of one pod.

    Args:
        ended: Whether it does not run, and is not known to start again.
        begun: When it started last, in seconds since the epoch.
    """

    uid: str
    pod: str
    container: str
    alone: bool
    restarts: int
    started: bool
    ended: bool
    begun: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """The UID of the pod and the name of the container."""
        return self.uid, self.container


def trim_pod(pod: Document) -> Document:
    """Return the fields of a pod that this module reads, so that thousands of pods fit into memory."""
    meta, spec, status = section(pod, "metadata"), section(pod, "spec"), section(pod, "status")
    metadata: Document = {name: text(meta.get(name)) for name in ("name", "uid", "creationTimestamp")}
    metadata["labels"] = {name: _label(pod, name) for name in (STEP, ATTEMPT, JOB_INDEX, JOB_NAME, COMPLETION)}
    trimmed_spec: Document = {}
    trimmed_status: Document = {"phase": text(status.get("phase"))}
    for containers, statuses in _LISTS:
        trimmed_spec[containers] = [{"name": text(each.get("name"))} for each in mappings(spec.get(containers))]
        trimmed_status[statuses] = [*map(_status, mappings(status.get(statuses)))]
    return {"metadata": metadata, "spec": trimmed_spec, "status": trimmed_status}


def _status(status: Document) -> Document:
    state: Document = {}
    for name in ("running", "terminated"):
        if name in section(status, "state"):
            state[name] = {"startedAt": section(status, "state", name).get("startedAt")}
    return {"name": text(status.get("name")), "restartCount": number(status.get("restartCount")), "state": state}


def steps(pods: Iterable[Document]) -> list[str]:
    """Return the names of the steps that the pods belong to."""
    return sorted({_label(pod, STEP) for pod in pods} - {""})


def newest_pods(pods: Iterable[Document]) -> list[Document]:
    """Return the last pod of each node, of the JobSet's last attempt."""
    found = list(pods)
    last = max((_number(_label(p, ATTEMPT)) for p in found), default=0)
    chosen: dict[tuple[str, ...], Document] = {}
    for pod in sorted(found, key=lambda p: str(p["metadata"]["creationTimestamp"])):
        if _number(_label(pod, ATTEMPT)) == last:
            index = _label(pod, COMPLETION)
            chosen[_label(pod, JOB_NAME), index or pod["metadata"]["uid"]] = pod
    return list(chosen.values())


def sort_pods(pods: Iterable[Document]) -> list[Document]:
    """Return the pods by step, job and node; earlier attempts first."""

    def place(pod: Document) -> tuple[Any, ...]:
        meta = pod["metadata"]
        numbers = [_number(_label(pod, k)) for k in (JOB_INDEX, COMPLETION, ATTEMPT)]
        return _label(pod, STEP), _label(pod, JOB_NAME), *numbers, meta["creationTimestamp"], meta["name"]

    return sorted(pods, key=place)


def sources(pod: Document) -> list[Source]:
    """Return the logs of a pod's containers, in the order in which they start."""
    meta, spec, status = section(pod, "metadata"), section(pod, "spec"), section(pod, "status")
    over = status.get("phase") in ("Succeeded", "Failed")
    names: list[tuple[str, str]] = []
    for which, statuses in _LISTS:
        names += [(str(c["name"]), statuses) for c in mappings(spec.get(which)) if text(c.get("name"))]
    found = []
    for name, list_ in names:
        own = next((s for s in mappings(status.get(list_)) if s.get("name") == name), {})
        state, restarts = section(own, "state"), number(own.get("restartCount"))
        running, terminated = "running" in state, "terminated" in state
        found.append(
            Source(
                uid=text(meta.get("uid")),
                pod=text(meta.get("name")),
                container=name,
                alone=len(names) == 1,
                restarts=restarts,
                started=running or terminated or restarts > 0,
                ended=over or not running,
                begun=max(epoch_seconds(section(state, k).get("startedAt")) for k in ("running", "terminated")),
            )
        )
    return found


def _label(pod: Document, name: str) -> str:
    return text(labels_of(pod).get(name))


def _number(label: str) -> int:
    if label.isascii() and label.isdecimal() and len(label) < 10:
        return int(label)
    return 0
