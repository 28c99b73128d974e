"""Watches the jobs and queues of a namespace or of the whole cluster, and keeps the few facts that metrics need.

A job is read again only if it has changed, so that asking often costs little.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, Demand, demand_of
from pulumi_trainer.provider.kubernetes.cache.reflector import Stream
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    epoch_seconds,
    labels_of,
    mappings,
    name_of,
    number,
    only,
    place_of,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.occupancy import Queue, occupancy
from pulumi_trainer.provider.kueue.workload_reasons import job_name
from pulumi_trainer.provider.targets.kubernetes.jobs.record import ENDS, SELECTOR, USAGE
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

Place = tuple[str, str]

KINDS = (CONFIG_MAP, JOBSET, TRAIN_JOB, WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, COHORT)
_QUEUES = (LOCAL_QUEUE, CLUSTER_QUEUE, COHORT)
_HOLDS = (Phase.ADMITTED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
SYNC = 30.0
"""Seconds that the first lists may take."""


@dataclass(frozen=True)
class JobFacts:
    """What metrics say of a job.

    Args:
        progress: Share that is done, 0 to 1, as the training has reported it to Trainer; None if unknown.
        queued_since: Since when it waits in its queue, in seconds since the epoch; 0 if it does not.
    """

    namespace: str
    name: str
    queue: str
    phase: Phase
    gpus: float = 0.0
    restarts: int = 0
    progress: float | None = None
    queued_since: float = 0.0


class JobMetrics:
    """The jobs and queues of a namespace."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._parts: dict[Place, dict[str, Document]] = {}
        self._facts: dict[Place, JobFacts] = {}
        self._queues: dict[tuple[str, str, str], Document] = {}
        self._summary: Sequence[Queue] | None = None
        self._streams: list[Stream] = []
        for kind in KINDS:
            where = namespace if kind.namespaced else ""
            self._streams.append(self._stream(client, kind, where))

    def start(self) -> JobMetrics:
        """Start watching, and wait for the first lists."""
        for stream in self._streams:
            name = f"metrics-{stream.kind.plural}"
            threading.Thread(target=stream.run, args=(self._stop,), name=name, daemon=True).start()
        deadline = time.monotonic() + SYNC
        for stream in self._streams:
            stream.synced.wait(max(0.0, deadline - time.monotonic()))
        return self

    def stop(self) -> None:
        """Stop the threads; each one ends with the next data on its connection."""
        self._stop.set()

    def readable(self) -> Iterator[tuple[str, bool]]:
        """Yield the plural of each kind, and whether the watch of the kind works."""
        for stream in self._streams:
            yield stream.kind.plural, stream.synced.is_set() and stream.fault is None

    def jobs(self) -> list[JobFacts]:
        """Return all jobs that have a record, a JobSet or a TrainJob."""
        with self._lock:
            for place in self._parts.keys() - self._facts.keys():
                facts = read_facts(place, self._parts[place])
                if facts is not None:
                    self._facts[place] = facts
            return list(self._facts.values())

    def cluster_queues(self) -> Sequence[Queue]:
        """Return the ClusterQueues, by their own status."""
        with self._lock:
            if self._summary is None:
                self._summary = occupancy(self._queues.values(), ()).cluster_queues
            return self._summary

    def _stream(self, client: Client, kind: Kind, namespace: str) -> Stream:
        labels = ""
        if kind is CONFIG_MAP:
            labels = SELECTOR
        return Stream(
            client,
            kind,
            namespace,
            labels=labels,
            keep=partial(_kept, kind),
            listed=partial(self._listed, kind),
            changed=partial(self._changed, kind),
            faulty=lambda _: None,
        )

    def _listed(self, kind: Kind, found: list[Document]) -> None:
        with self._lock:
            if kind in _QUEUES:
                self._queues = {key: each for key, each in self._queues.items() if key[0] != kind.kind}
            for place, parts in self._parts.items():
                if parts.pop(kind.plural, None) is not None:
                    self._facts.pop(place, None)
            for each in found:
                self._put(kind, each)

    def _changed(self, kind: Kind, type_: str, document: Document) -> None:
        with self._lock:
            self._put(kind, document, gone=type_ == "DELETED")

    def _put(self, kind: Kind, document: Document, *, gone: bool = False) -> None:
        if kind in _QUEUES:
            self._summary = None
            key = (kind.kind, *place_of(document))
            self._queues[key] = document
            if gone:
                del self._queues[key]
            return
        name = job_name(document) if kind is WORKLOAD else name_of(document)
        if not name:
            return
        place = place_of(document)[0], name
        parts = self._parts.setdefault(place, {})
        parts[kind.plural] = document
        self._facts.pop(place, None)
        if gone:
            del parts[kind.plural]
        if not parts:
            del self._parts[place]


def read_facts(place: Place, parts: dict[str, Document]) -> JobFacts | None:
    """Return the facts of a job; None if there is only a Workload, or nothing."""
    record, workload = parts.get(CONFIG_MAP.plural), parts.get(WORKLOAD.plural)
    jobset, train_job = parts.get(JOBSET.plural), parts.get(TRAIN_JOB.plural)
    data = section(record, "data")
    demand = NOTHING_KNOWN
    if record is not None:
        demand = Demand.from_text(data.get(USAGE))
    labels = {**labels_of(jobset), **labels_of(train_job)}
    queue = text(section(workload, "spec").get("queueName")) or text(labels.get(QUEUE)) or demand.queue or ""
    if jobset is None and train_job is None:
        if record is None:
            return None
        ended = text(data.get("phase"))
        if ended in ENDS:
            return JobFacts(*place, queue, Phase(ended))
        return JobFacts(*place, queue, Phase.DELETED)
    phase = derive_phase(jobset, train_job).phase
    gpus = 0.0
    if phase in _HOLDS:
        requested = demand.gpus
        if requested is None:
            requested = section(jobset, "demand").get("gpus")
        gpus = float(requested or 0.0)
    queued_since = 0.0
    if phase is Phase.QUEUED:
        queued_since = _queued_since(workload, jobset or train_job)
    return JobFacts(
        *place,
        queue,
        phase,
        gpus=gpus,
        restarts=number(section(jobset, "status").get("restarts")),
        progress=_progress(train_job) if phase == Phase.RUNNING else None,
        queued_since=queued_since,
    )


def _progress(train_job: Document | None) -> float | None:
    percent = section(train_job, "status", "trainerStatus").get("progressPercentage")
    if not isinstance(percent, (int, float)) or isinstance(percent, bool):
        return None
    return percent / 100


def _queued_since(workload: Document | None, job: Document | None) -> float:
    evicted = true_condition(conditions(workload), "Evicted")
    created = section(workload or job, "metadata").get("creationTimestamp")
    return epoch_seconds(evicted.get("lastTransitionTime")) or epoch_seconds(created)


def _kept(kind: Kind, found: Document) -> Document:
    """Return the fields of an object that metrics need."""
    meta: dict[str, Any] = found["metadata"]
    metadata = only(meta, ("name", "namespace", "creationTimestamp"))
    spec, status = section(found, "spec"), section(found, "status")
    if kind in _QUEUES:
        return {"kind": kind.kind, "metadata": metadata, "spec": spec, "status": status}
    metadata["labels"] = only(section(meta, "labels"), (QUEUE,))
    if kind is CONFIG_MAP:
        return {"metadata": metadata, "data": only(section(found, "data"), ("phase", USAGE))}
    if kind is WORKLOAD:
        metadata["ownerReferences"] = [only(o, ("kind", "name")) for o in mappings(meta.get("ownerReferences"))]
        shown = [only(c, ("type", "status", "lastTransitionTime")) for c in conditions(found)]
        return {"metadata": metadata, "spec": only(spec, ("queueName",)), "status": {"conditions": shown}}
    shown = [only(c, ("type", "status")) for c in conditions(found)]
    kept = only(status, ("restarts", "replicatedJobsStatus", "trainerStatus"))
    trimmed = {"metadata": metadata, "spec": only(spec, ("suspend",)), "status": {**kept, "conditions": shown}}
    if kind is JOBSET:
        trimmed["demand"] = {"gpus": demand_of(found).gpus}
    return trimmed
