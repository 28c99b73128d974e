"""All jobs of a program in one namespace, while somebody waits for them: one list+watch a kind, whatever their number.

Threads do the watching; everything else is under one lock. A diagnosis is made
again only for a job that has changed, and once a second for one whose silence begins to say something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.kube.cache.reflector import Stream
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kube.errors import TrainerError
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.kueue.resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import (
    Seen,
    diagnose,
    keep,
    why,
)
from pulumi_trainer.provider.lifecycle.diagnosis.pods import WAITING_FOR_GANG
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    JOBSET_NAME,
    born,
    gang_of,
    node_of,
    of_coscheduling,
    waiting_gang,
)  # fmt: skip
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.jobstore import JobStore
from pulumi_trainer.provider.targets.kubernetes.observe.progress import Progress
from pulumi_trainer.provider.targets.kubernetes.observe.seen import group_of, snapshot, with_lines
from pulumi_trainer.provider.targets.kubernetes.observe.waking import Waker

Document = dict[str, Any]

AGAIN = 2.0
"""Seconds between two looks at a job that shows nothing new, as long as silence means something there."""
SILENT = 5.0
"""Seconds without an answer after which it is told."""
TIDY = 1.0
"""Seconds between two looks at what is not ours after all."""
REFUSED = 20.0
"""Seconds after which a server that refuses us to see jobs is believed."""
SYNC = 30.0
"""Seconds that the first lists may take before a job is asked for by itself."""
APPEARS = 3.0
"""Seconds in which the record of a job that was just made shows up."""
_RESTLESS = (Phase.PENDING, Phase.STARTING, Phase.RESTARTING)
_MISSING = {
    WORKLOAD: "why a job is queued is not shown",
    EVENT: "what only events say is not shown",
    TRAIN_JOB: "TrainJobs are not shown",
    POD_GROUP: "the state of gangs is not shown",
    VOLCANO_POD_GROUP: "the state of gangs is not shown",
}


@dataclass
class _Known:
    """The newest diagnosis. at: when (`time.monotonic`)."""

    status: JobStatus | None
    at: float

    def stale(self, now: float) -> bool:
        """Whether the job's silence may mean something by now."""
        status = self.status
        silent = status is not None and (
            status.phase in _RESTLESS or (status.phase == Phase.QUEUED and not status.reason)
        )
        return silent and now - self.at > AGAIN


class Observer:
    """The jobs of a program in a namespace.

    stack: label of the program's records; empty: all jobs of this project's in the namespace. trainer: whether there are
    TrainJobs. note: is told once what cannot be seen, and why.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        stack: str = "",
        trainer: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client, self._namespace, self._note = client, namespace, note
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._store = JobStore(namespace)
        self._known: dict[str, _Known] = {}
        self._noted: set[str] = set()
        self._told = False
        self._late: set[str] = set()
        labels = record.SELECTOR + (f",{marks.STACK}={stack}" if stack else "")
        self._records = Stream(
            client,
            CONFIG_MAP,
            namespace,
            labels=labels,
            keep=lambda document: document,
            listed=self._records_listed,
            changed=self._record_changed,
            faulty=self._faulty,
        )
        self._streams = [
            self._stream(JOBSET),
            self._stream(JOB, labels=JOBSET_NAME),
            self._stream(POD, labels=JOBSET_NAME),
            self._stream(WORKLOAD),
            self._stream(EVENT, fields="type=Warning"),
            *([self._stream(TRAIN_JOB)] if trainer else []),
        ]
        self._main = (self._records, *[s for s in self._streams if s.kind in (JOBSET, TRAIN_JOB)])
        self._gangs: dict[Kind, Stream] = {}
        self._progress = Progress(client, namespace, self._progressed)
        self._waker = Waker(client, namespace)

    def start(self) -> Observer:
        """Starts watching. Returns at once."""
        for stream in (self._records, *self._streams):
            self._run(stream)
        threading.Thread(target=self._tidy, name="watch-tidy", daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends the threads; each at the next word of its connection."""
        self._stop.set()
        self._progress.stop()
        with self._lock:
            self._lock.notify_all()

    # --- for whoever waits ---------------------------------------------------------------------------------------------------

    def first(self, name: str) -> JobStatus | None:
        """Whoever calls it waits for that job: its progress is followed, and it is asked for by itself where no watch shows
        it. Takes as long as the first lists do. Raises TargetFault where it can be seen in no way."""
        self._progress.want(name)
        deadline = time.monotonic() + SYNC
        for stream in (self._records, *self._streams):
            stream.synced.wait(max(0.0, deadline - time.monotonic()))
        until = time.monotonic() + APPEARS
        with self._lock:
            while not self._shown(name) and time.monotonic() < until and not self._stop.is_set():
                self._lock.wait(0.1)
            shown = self._shown(name)
        fault = None if shown else self._fetch(name)
        if fault is not None and _refusal(fault):
            raise fault
        if fault is not None:
            return JobStatus(name, self._namespace, reason="NoAnswer", message=str(fault))
        return self.status(name)

    def leave(self, name: str) -> None:
        """Nobody waits for it any more."""
        self._progress.unwant(name)

    def changed(self) -> set[str]:
        """Names of jobs whose status may be another one since the last call."""
        now = time.monotonic()
        with self._lock:
            found, self._store.changed = self._store.changed, set()
            for name in found:
                self._known.pop(name, None)
            restless = {name for name, known in self._known.items() if known.stale(now)}
        return found | restless

    def wait(self, timeout: float) -> set[str]:
        """The same, as soon as there are any; none after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not (found := self.changed()) and (left := deadline - time.monotonic()) > 0:
            with self._lock:
                if not self._store.changed:
                    self._lock.wait(min(left, 0.25))
        return found

    def seen(self, name: str) -> Seen:
        """What is known of a job."""
        with self._lock:
            late = [s for s in self._gangs.values() if not s.synced.is_set()]
            unseen = frozenset(s.kind.plural for s in (*self._streams, *late) if s.absent or s in late)
            return self._store.seen(name, unseen)

    def status(self, name: str) -> JobStatus | None:
        """What it is doing; None: nothing is known of it."""
        now = time.monotonic()
        with self._lock:
            known = self._known.get(name)
            if known is not None and not known.stale(now) and name not in self._store.changed:
                return known.status
        seen = self.seen(name)
        status = diagnose(seen, time.time()) if seen.remembered is not None or seen.main is not None else None
        with self._lock:
            if name not in self._store.changed:
                self._known[name] = _Known(status, now)
        if status is not None:
            self._progress.look(name, seen, status)
        return status

    def why(self, name: str) -> str:
        """The paragraph that says what it waits for, or why it has ended."""
        seen = self.seen(name)
        return why(seen, diagnose(seen, time.time()), time.time())

    def conclude(self, name: str) -> JobStatus | None:
        """The status of a job that has ended, with the last lines of what has failed; it is written down in its record."""
        seen = self.seen(name)
        if seen.main is not None:
            seen = with_lines(self._client, seen)
        status = diagnose(seen, time.time())
        with self._lock:
            job = self._store.jobs.get(name)
            owner = job.record if job is not None else None
        if owner is not None:
            record.write_end(self._client, owner, status)
        return status

    def trouble(self) -> str:
        """Why there is no news of jobs, if there should be; empty: all is well. Raises TargetFault where waiting is in vain:
        the server refuses us, and goes on refusing."""
        worst = max(
            (s.fault for s in (*self._main, *self._streams) if s.fault and not s.absent), key=_since, default=None
        )
        for stream in self._main:
            if stream.fault and _refusal(stream.fault[0]) and time.monotonic() - stream.fault[1] > REFUSED:
                raise stream.fault[0]
        if worst is None or (silence := time.monotonic() - worst[1]) < SILENT:
            return ""
        return f"no news from the cluster for {duration(silence)}: {worst[0]}"

    def _run(self, stream: Stream) -> None:
        name = f"watch-{stream.kind.plural}"
        threading.Thread(target=stream.run, args=(self._stop,), name=name, daemon=True).start()

    # --- what the threads say --------------------------------------------------------------------------------------------------

    def _stream(self, kind: Kind, *, labels: str = "", fields: str = "") -> Stream:
        return Stream(
            self._client,
            kind,
            self._namespace,
            labels=labels,
            fields=fields,
            keep=partial(keep, kind.kind),
            listed=partial(self._listed, kind),
            changed=partial(self._changed, kind),
            faulty=self._faulty,
        )

    def _records_listed(self, found: list[Document]) -> None:
        with self._lock:
            self._late.update(self._store.records([_trimmed(d) for d in found]))
            self._lock.notify_all()

    def _record_changed(self, type_: str, document: Document) -> None:
        with self._lock:
            if self._store.record(_trimmed(document), deleted=type_ == "DELETED"):
                self._late.add(str(document["metadata"]["name"]))
            self._lock.notify_all()

    def _listed(self, kind: Kind, found: list[Document]) -> None:
        self._records.synced.wait(SYNC)  # so that it is known whose they are
        with self._lock:
            self._store.replace(kind, found)
            self._lock.notify_all()
        for pod in found if kind is POD else ():
            self._follow_gang(pod)

    def _changed(self, kind: Kind, type_: str, document: Document) -> None:
        with self._lock:
            if type_ == "DELETED":
                self._store.drop(kind, document)
            else:
                self._store.put(kind, document)
            if self._store.changed:
                self._lock.notify_all()
        if kind is POD:
            self._follow_gang(document)

    def _follow_gang(self, pod: Document) -> None:
        """PodGroups are watched once a pod names one: most programs have none."""
        group = gang_of(pod)
        if not group or (kind := group_of([pod], group)) in self._gangs:
            return
        with self._lock:
            stream = self._gangs[kind] = self._stream(kind)
            self._streams = [*self._streams, stream]
        self._run(stream)

    def _waiting(self) -> dict[str, float]:
        """Gangs of the scheduler plugins that wait, and when the first of their pods was made."""
        found: dict[str, float] = {}
        for name, known in self._known.items():
            if known.status is not None and known.status.reason == WAITING_FOR_GANG and name in self._store.jobs:
                pods = [p for p in self._store.jobs[name].all(POD) if of_coscheduling(p) and not node_of(p)]
                found.update({gang_of(p): min(map(born, pods)) for p in pods})
        return found

    def _progressed(self, name: str, progress: dict[str, Any]) -> None:
        with self._lock:
            job = self._store.jobs.get(name)
            if job is not None:
                job.progress = progress
                self._store.changed.add(name)

    def _faulty(self, stream: Stream) -> None:
        """Told once for each kind; what is told of jobs themselves is `trouble`'s."""
        missing = _MISSING.get(stream.kind)
        if stream.fault is None or not stream.absent or stream.kind.plural in self._noted or missing is None:
            return
        self._noted.add(stream.kind.plural)
        fault = stream.fault[0]
        if isinstance(fault, ApiError) and fault.code == 403:
            self._note(f"{missing}: {fault}")

    def _tidy(self) -> None:
        """Lets go of jobs that are not ours, fetches those that have become so, and wakes gangs."""
        while not self._stop.wait(TIDY):
            with self._lock:
                self._store.forget(time.monotonic())
                late, self._late = self._late, set()
                waiting = self._waiting()
            self._waker.look(waiting)
            failed = {name for name in late if self._fetch(name) is not None}
            with self._lock:
                self._late |= failed

    def _fetch(self, name: str) -> TrainerError | None:
        """A job that no watch has shown; returns why it could not be asked for."""
        try:
            seen = snapshot(self._client.within(5.0), self._namespace, name)
            owner = record.find(self._client.within(5.0), self._namespace, name)
        except TrainerError as fault:
            return fault
        found: Iterable[tuple[Kind, Any]] = (
            (JOBSET, seen.jobset), (TRAIN_JOB, seen.train_job), (WORKLOAD, seen.workload),
            (group_of(seen.pods, waiting_gang(seen.pods)), seen.pod_group),
            *((JOB, j) for j in seen.jobs), *((POD, p) for p in seen.pods), *((EVENT, e) for e in seen.events),
        )  # fmt: skip
        with self._lock:
            if owner is not None and owner.ours:
                self._store.record(replace(owner, applied={}))
            for kind, document in found:
                if document is not None and name in self._store.jobs:
                    self._store.put(kind, dict(document), old=True)
            self._lock.notify_all()
        return None

    def _shown(self, name: str) -> bool:
        job = self._store.jobs.get(name)
        return job is not None and job.record is not None


def _trimmed(document: Document) -> Record:
    return replace(Record.of(document), applied={})


def _since(fault: tuple[TrainerError, float]) -> float:
    return time.monotonic() - fault[1]


def _refusal(fault: TrainerError) -> bool:
    return isinstance(fault, ApiError) and (fault.code in (401, 403) or fault.absent)
