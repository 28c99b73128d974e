"""The progress that rank 0 prints, of jobs that somebody waits for: its log is followed, a few at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.api.progress import LONGEST_LINE, progress
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.errors import TrainerError
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    labels_of,
    section,
    text,
)
from pulumi_trainer.provider.lifecycle.diagnosis import Seen
from pulumi_trainer.provider.lifecycle.diagnosis.containers import containers
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    COMPLETION,
    JOB_INDEX,
    STEP,
    born,
    pod_name,
)

AT_ONCE = 8
"""Logs that are followed at the same time; jobs above that show no progress until one of them ends."""
EARLIER = 20
"""Lines of before that are read when a log is attached to."""
IDLE = 60.0
"""Seconds of silence after which it is attached to again: a connection may have died without a word."""
PAUSE = 1.0
_ORDER = ("launcher", "node")
"""Steps whose rank 0 prints the training's progress; before they run, any other's."""


class Progress:
    """Follows the logs of jobs that somebody wants. told: is given the name of a job and its newest trainerStatus."""

    def __init__(self, client: Client, namespace: str, told: Callable[[str, dict[str, Any]], None]) -> None:
        self._client, self._namespace, self._told = client.within(5.0), namespace, told
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._pods: dict[str, str] = {}
        self._stop = threading.Event()

    def want(self, name: str) -> None:
        with self._lock:
            self._wanted.add(name)

    def unwant(self, name: str) -> None:
        with self._lock:
            self._wanted.discard(name)

    def stop(self) -> None:
        self._stop.set()

    def look(self, name: str, seen: Seen, status: JobStatus) -> None:
        """Attaches to the job's rank 0, if it runs and there is room."""
        if status.phase not in (Phase.RUNNING, Phase.STARTING, Phase.RESTARTING):
            return
        found = rank_0(seen)
        if found is None:
            return
        pod, container = found
        with self._lock:
            if name not in self._wanted or self._pods.get(name) == pod or len(self._pods) >= AT_ONCE:
                return
            self._pods[name] = pod
        thread = threading.Thread(
            target=self._follow, args=(name, pod, container), name=f"progress-{name}", daemon=True
        )
        thread.start()

    def _wants(self, name: str, pod: str) -> bool:
        with self._lock:
            return name in self._wanted and self._pods.get(name) == pod and not self._stop.is_set()

    def _follow(self, name: str, pod: str, container: str) -> None:
        """Until the log ends; a broken connection is attached to again."""
        while self._wants(name, pod):
            if self._read(name, pod, container):
                break
            self._stop.wait(PAUSE)
        with self._lock:
            if self._pods.get(name) == pod:
                del self._pods[name]

    def _read(self, name: str, pod: str, container: str) -> bool:
        """One attempt; whether the log has come to its end."""
        query = {"container": container, "follow": "true", "tailLines": str(EARLIER)}
        rest = b""
        try:
            for chunk in self._client.logs(self._namespace, pod, query, idle=IDLE):
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest if len(rest) <= LONGEST_LINE else b""
                found = [p for line in lines if (p := progress(line, time.time()))]
                if found:
                    self._told(name, found[-1])
                if not self._wants(name, pod):
                    return True
        except TrainerError as error:
            return isinstance(error, ApiError) and error.code in (403, 404)
        return True


def rank_0(seen: Seen) -> tuple[str, str] | None:
    """Pod and container of the first rank that runs: of the training, before it of the step that runs."""
    pods = [p for p in seen.live if section(p, "status").get("phase") == "Running" and _first(p)]
    pods.sort(key=lambda p: (_rank(p), -born(p)))
    for pod in pods:
        names = [c.name for c in containers(pod) if section(c.status, "state", "running")]
        if names:
            step = text(labels_of(pod).get(STEP))
            chosen = next((n for n in (step, "node") if n in names), names[0])
            return pod_name(pod), chosen
    return None


def _first(pod: Document) -> bool:
    labels = labels_of(pod)
    return (labels.get(COMPLETION, "0"), labels.get(JOB_INDEX, "0")) == ("0", "0")


def _rank(pod: Document) -> int:
    step = text(labels_of(pod).get(STEP))
    return _ORDER.index(step) if step in _ORDER else len(_ORDER)
