"""Follows the logs of rank 0 of some jobs for the progress that the training prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.progress import LONGEST_LINE, progress, with_kept
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, labels_of, section, text
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.diagnosis.containers import list_containers
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import COMPLETION, JOB_INDEX, STEP, created_at, pod_name
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import client_of

AT_ONCE = 8
"""Number of logs that are followed at the same time; other jobs show no progress until one of these ends."""
LAST_LINES = {"tailLines": "20"}
"""Existing lines that are read when a log is opened that is not new."""
YOUNG = 60.0
"""Seconds since the start of a container in which all its lines are read: its first step tells which steps are done again."""
LINES = 100
"""Number of last lines of rank 0 that are searched for its progress."""
BYTES = 2**20
ALL_LINES = 5_000
"""Number of last lines of rank 0 that are searched for the metrics of a job that has ended."""
ALL_BYTES = 4 * 2**20
IDLE = 60.0
"""Seconds without data after which a log is opened again: the connection may have broken silently."""
PAUSE = 1.0
_ORDER = ("launcher", "chief", "node")
"""Steps whose rank 0 prints the training's progress; before these steps run, other steps are read."""


Report = Callable[[str, float, Sequence[dict[str, Any]]], None]
"""Takes the name of a job, when the container of the log began, and new reports; 0 unless the log of a rank is read from its
start."""


class Rank(NamedTuple):
    """A container whose log has the progress of a job.

    Args:
        started: Seconds since the epoch.
        trains: Whether its step trains.
        order: Place of its step in `_ORDER`.
    """

    pod: str
    container: str
    started: float
    trains: bool
    order: int = 0


class Progress:
    """Follows the logs of registered jobs. report: Called when the log of a Pod is opened, and with what it reports."""

    def __init__(self, client: Client, namespace: str, report: Report) -> None:
        self._client, self._namespace, self._report = client.within(5.0), namespace, report
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._pods: dict[str, str] = {}
        self._stop = threading.Event()

    def add(self, name: str) -> None:
        """Register a job whose progress is followed."""
        with self._lock:
            self._wanted.add(name)

    def remove(self, name: str) -> None:
        with self._lock:
            self._wanted.discard(name)

    def stop(self) -> None:
        self._stop.set()

    def follow(self, name: str, view: JobView, status: JobStatus) -> None:
        """Follow the job's rank 0, if it runs and fewer than AT_ONCE logs are followed."""
        if status.phase not in (Phase.RUNNING, Phase.STARTING, Phase.RESTARTING):
            return
        found = rank_0(view)
        if found is None:
            return
        with self._lock:
            if name not in self._wanted or self._pods.get(name) == found.pod or len(self._pods) >= AT_ONCE:
                return
            self._pods[name] = found.pod
        thread = threading.Thread(
            target=self._follow, args=(client_of(self._client, view), name, found), name=f"progress-{name}", daemon=True
        )
        thread.start()

    def _wants(self, name: str, pod: str) -> bool:
        with self._lock:
            return name in self._wanted and self._pods.get(name) == pod and not self._stop.is_set()

    def _follow(self, client: Client, name: str, rank: Rank) -> None:
        """Follow a log until it ends, and reopen broken connections."""
        whole = time.time() - rank.started < YOUNG
        began = rank.started if whole and rank.trains else 0.0
        self._report(name, began, [])
        query = {"container": rank.container, "follow": "true"}
        if not whole:
            query |= LAST_LINES
        while self._wants(name, rank.pod):
            if self._read(client, name, rank.pod, query, began):
                break
            self._stop.wait(PAUSE)
        with self._lock:
            if self._pods.get(name) == rank.pod:
                del self._pods[name]

    def _read(self, client: Client, name: str, pod: str, query: dict[str, str], began: float) -> bool:
        """Read a log with one request, and return whether it has ended. query: Asks for the last lines after a first report."""
        rest = b""
        try:
            for chunk in client.logs(self._namespace, pod, {**query}, idle=IDLE):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LONGEST_LINE:
                    rest = b""
                found = [*reports(lines)]
                if found:
                    query |= LAST_LINES
                    self._report(name, began, found)
                if not self._wants(name, pod):
                    return True
        except TrainerError as error:
            return isinstance(error, ApiError) and error.code in (403, 404)
        return True


def progress_of(client: Client, view: JobView) -> dict[str, Any] | None:
    """Return the newest trainerStatus among the last log lines of rank 0, which may have ended; None if not found, or if the log
    cannot be read.
    """
    found, _ = _last_reports(client, view, LINES, BYTES)
    return reduce(with_kept, found, None)


def with_reports(client: Client, view: JobView) -> JobView:
    """Return the view of a job with the newest trainerStatus and the metrics in the log of rank 0, as far as they can be read."""
    found, whole = _last_reports(client, view, ALL_LINES, ALL_BYTES)
    if not found and not whole:  # the last lines may be behind so many bytes
        found, whole = _last_reports(client, view, LINES, BYTES)
    return replace(view, progress=reduce(with_kept, found, None), metrics=Metrics.of(found, whole))


def _last_reports(client: Client, view: JobView, lines: int, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Return what the last log lines of rank 0 report, and whether these are all lines of the log."""
    rank = rank_0(view) or _ended_rank_0(view)
    if rank is None:
        return [], True
    query = {"container": rank.container, "tailLines": str(lines), "timestamps": "true"}
    try:
        log = client_of(client, view).log_tail(view.namespace, rank.pod, query, most)
    except TrainerError:
        return [], True
    if len(log) >= most and lines > LINES:
        return [], False
    printed = log.split(b"\n")
    return [*filter(None, map(_stamped_progress, printed))], len(printed) <= lines


def _stamped_progress(line: bytes) -> dict[str, Any] | None:
    """Return the trainerStatus in a line behind the time at which it was printed; None for any other line."""
    stamp, _, printed = line.partition(b" ")
    printed_at = epoch_seconds(stamp.decode(errors="replace"))
    if printed_at:
        return progress(printed, printed_at)
    return progress(line, time.time())


def reports(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the trainerStatus of each line that has one."""
    now = time.time()
    return filter(None, (progress(line, now) for line in lines))


def rank_0(view: JobView) -> Rank | None:
    """Return the first rank that runs: of the training, or of the step that runs before it; None if none runs, or if the chief
    or launcher has ended, whose job is over.
    """
    ended = _ended_rank_0(view)
    pods = [p for p in view.live if section(p, "status").get("phase") == "Running" and _first(p)]
    pods.sort(key=lambda p: (_rank(p), -created_at(p)))
    for pod in pods:
        running = {c.name: c.status for c in list_containers(pod) if section(c.status, "state", "running")}
        if running:
            step = text(labels_of(pod).get(STEP))
            chosen = _choose(step, [*running])
            if ended is not None and ended.order < _rank(pod):
                return None
            started = epoch_seconds(section(running[chosen], "state", "running").get("startedAt"))
            return Rank(pod_name(pod), chosen, started, step == view.trainer_step)
    return None


def _ended_rank_0(view: JobView) -> Rank | None:
    """Return the newest first rank of the training, which has ended; None if it is gone."""
    pods = [pod for pod in view.pods if labels_of(pod).get(STEP) in (*_ORDER, view.trainer_step) and _first(pod)]
    pod = min(pods, key=lambda each: (_rank(each), -created_at(each)), default=None)
    ended = [c.name for c in list_containers(pod or {}) if section(c.status, "state", "terminated")]
    if pod is None or not ended:
        return None
    return Rank(pod_name(pod), _choose(text(labels_of(pod).get(STEP)), ended), 0.0, trains=True, order=_rank(pod))


def _choose(step: str, containers: Sequence[str]) -> str:
    """Return the container of a Pod that trains."""
    return next((name for name in (step, "node") if name in containers), containers[0])


def _first(pod: Document) -> bool:
    labels = labels_of(pod)
    return (labels.get(COMPLETION, "0"), labels.get(JOB_INDEX, "0")) == ("0", "0")


def _rank(pod: Document) -> int:
    step = text(labels_of(pod).get(STEP))
    return _ORDER.index(step) if step in _ORDER else len(_ORDER)
