"""Watches all jobs of a program in one namespace while the program waits for them: one list and watch per kind.

Threads watch; everything else is under one lock. A job is diagnosed again only if it has changed, or once a second if the absence
of changes may be a symptom.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.progress import with_kept
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.cache.reflector import Stream
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose, explain, keep
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import (
    created_at,
    is_coscheduled,
    node_of,
    pod_group_of,
    waiting_pod_group,
)  # fmt: skip
from pulumi_trainer.provider.lifecycle.diagnosis.pod_faults import WAITING_FOR_GANG
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import record, run_end
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.failed_output import FailedOutput
from pulumi_trainer.provider.targets.kubernetes.observe.gang_wakeup import Waker
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import pod_group_kind, snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import JobStore
from pulumi_trainer.provider.targets.kubernetes.observe.printed_output import with_output
from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import Progress
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import cluster_of, with_gone, with_worker
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

Document = dict[str, Any]

AGAIN = 2.0
"""Seconds between two diagnoses of a job without changes, if the absence of changes may be a symptom."""
SILENT = 5.0
"""Seconds without an answer after which the outage is reported."""
TIDY = 1.0
"""Seconds between two searches for jobs of other programs in the store."""
REFUSED = 20.0
"""Seconds after which a rejected watch of jobs counts as permanent."""
SYNC = 30.0
"""Seconds that the first lists may take before a job is requested by itself."""
APPEARS = 3.0
"""Seconds in which the watch delivers the record of a job that was just created."""
_RESTLESS = (Phase.PENDING, Phase.STARTING, Phase.RESTARTING)
_MISSING = {
    WORKLOAD: "why a job is queued is not shown",
    EVENT: "what only events report is not shown",
    TRAIN_JOB: "TrainJobs are not shown",
    POD_GROUP: "the state of gangs is not shown",
    VOLCANO_POD_GROUP: "the state of gangs is not shown",
}


@dataclass
class _Known:
    """The newest diagnosis. It stays until the next one: whoever reads it in between must not take the job for one of which
    nothing is known.

    Args:
        current: Whether the job has not changed since.
    """

    status: JobStatus | None
    at: float
    current: bool

    def stale(self, now: float) -> bool:
        """Return whether the absence of changes may be a symptom by now."""
        status = self.status
        silent = status is not None and (
            status.phase in _RESTLESS or (status.phase == Phase.QUEUED and not status.reason)
        )
        return silent and now - self.at > AGAIN


class Observer:
    """The jobs of a program in a namespace. stack: Label of the program's records; empty for all records in the namespace."""

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
        self._attempts: dict[str, tuple[str, list[Attempt]]] = {}
        """Name of a job -> UID of its JobSet or TrainJob, and its attempts as they were observed."""
        self._sent: dict[str, JobView] = {}
        """Jobs that MultiKueue has sent to worker clusters, with what these show of them."""
        self._kept: set[tuple[str, str]] = set()
        """Names of jobs and of those that have preempted them, of which the records were written."""
        self._noted: set[str] = set()
        self._trouble_reported = False
        self._late: set[str] = set()
        labels = record.SELECTOR
        if stack:
            labels += f",{owner_labels.STACK}={stack}"
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
        ]
        if trainer:
            self._streams.append(self._stream(TRAIN_JOB))
        self._main = (self._records, *[s for s in self._streams if s.kind in (JOBSET, TRAIN_JOB)])
        self._gangs: dict[Kind, Stream] = {}
        self._progress = Progress(client, namespace, self._store_progress)
        self._failed_output = FailedOutput(client, self._failure_read)
        self._waker = Waker(client, namespace)

    def start(self) -> Observer:
        for stream in (self._records, *self._streams):
            self._run(stream)
        self._failed_output.start()
        threading.Thread(target=self._tidy, name="watch-tidy", daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop the threads; each one ends with the next data on its connection."""
        self._stop.set()
        self._progress.stop()
        self._failed_output.stop()
        with self._lock:
            self._lock.notify_all()

    # --- for waiting callers ----------------------------------------------------------------------------------------------------

    def first(self, name: str) -> JobStatus | None:
        """Return the status of a job that the caller begins to wait for, and follow its progress.

        Waits for the first lists; a job that no watch has delivered is then requested by itself.
        """
        self._progress.add(name)
        deadline = time.monotonic() + SYNC
        for stream in (self._records, *self._streams):
            stream.synced.wait(max(0.0, deadline - time.monotonic()))
        until = time.monotonic() + APPEARS
        with self._lock:
            while not self._shown(name) and time.monotonic() < until and not self._stop.is_set():
                self._lock.wait(0.1)
            shown = self._shown(name)
        if shown:
            return self.status(name)
        fault = self._fetch(name)
        if fault is None:
            return self.status(name)
        if _refusal(fault):
            raise fault
        return JobStatus(name, self._namespace, reason="NoAnswer", message=str(fault))

    def leave(self, name: str) -> None:
        """Stop following the progress of a job that no caller waits for any more."""
        self._progress.remove(name)

    def changed(self) -> set[str]:
        """Return the names of the jobs whose status may have changed since the last call."""
        now = time.monotonic()
        with self._lock:
            found, self._store.changed = self._store.changed, set()
            for name in found & self._known.keys():
                self._known[name].current = False
            restless = {name for name, known in self._known.items() if known.stale(now)}
        return found | restless

    def wait(self, timeout: float) -> set[str]:
        """Return the result of `changed` as soon as it is not empty; empty after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.changed()
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return found
            with self._lock:
                if not self._store.changed:
                    self._lock.wait(min(left, 0.25))

    def job_view(self, name: str) -> JobView:
        with self._lock:
            late = [s for s in self._gangs.values() if not s.synced.is_set()]
            unreadable = frozenset(s.kind.plural for s in (*self._streams, *late) if s.absent or s in late)
            view, sent = self._store.job_view(name, unreadable), self._sent.get(name)
            uid, attempts = self._attempts.get(name, ("", []))
        if uid and uid == _uid(view):
            view = replace(view, attempts=attempts)
        cluster = cluster_of(view)
        if sent is None or not cluster or sent.cluster != cluster:
            return replace(view, cluster=cluster)
        parts = {part: getattr(sent, part) for part in ("cluster", "worker_fault", "jobs", "pods", "gone", "events")}
        return replace(view, **parts, jobset=view.jobset or sent.jobset)

    def status(self, name: str) -> JobStatus | None:
        """Return the status of a job; None if no record or object of it was observed."""
        now = time.monotonic()
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.current and not known.stale(now) and name not in self._store.changed:
                return known.status
        view = self.job_view(name)
        status: JobStatus | None = None
        if view.recorded is not None or view.main is not None:
            status = diagnose(view, time.time())
        with self._lock:
            if status is not None and _uid(view):
                self._attempts[name] = _uid(view), status.attempts
            self._known[name] = _Known(status, now, name not in self._store.changed)
        self._keep_preemptor(name, view)
        if status is not None:
            self._progress.follow(name, view, status)
        if status is not None and not status.terminal:
            self._failed_output.look(view)
        return status

    def why(self, name: str) -> str:
        """Return a paragraph with what the job waits for or why it has ended."""
        view = self.job_view(name)
        self._keep_preemptor(name, view)
        return explain(view, diagnose(view, time.time()), time.time())

    def _keep_preemptor(self, name: str, view: JobView) -> None:
        """Write once who has preempted a job into its record, which outlives the other job."""
        with self._lock:
            owner = self._store.jobs[name].record if name in self._store.jobs else None
            if owner is None or not view.preemptor or (name, view.preemptor) in self._kept:
                return
            self._kept.add((name, view.preemptor))
        run_end.write_preemptor(self._client, owner, view)

    def conclude(self, name: str) -> JobStatus | None:
        """Return the status of a job that runs or has ended, with what its Pods have printed, and record its end."""
        with self._lock:
            # Before the logs: a rerun may change the record while they are read.
            owner: Record | None = None
            if name in self._store.jobs:
                owner = self._store.jobs[name].record
        view = self.job_view(name)
        if view.main is not None:
            view = with_output(self._client, view)
        status = diagnose(view, time.time())
        if owner is not None:
            status.output = owner.result(status.phase)
            run_end.write_end(self._client, owner, status, view)
        return status

    def trouble(self) -> str:
        """Return why no changes arrive; empty if the watches work. Raise TargetFault if the server has rejected the watches for
        `REFUSED` seconds."""
        faults = [s.fault for s in (*self._main, *self._streams) if s.fault and not s.absent]
        worst = min(faults, key=lambda fault: fault[1], default=None)
        for stream in self._main:
            if stream.fault and _refusal(stream.fault[0]) and time.monotonic() - stream.fault[1] > REFUSED:
                raise stream.fault[0]
        if worst is None:
            return ""
        silence = time.monotonic() - worst[1]
        if silence < SILENT:
            return ""
        return f"no news from the cluster for {duration(silence)}: {worst[0]}"

    def _run(self, stream: Stream) -> None:
        name = f"watch-{stream.kind.plural}"
        threading.Thread(target=stream.run, args=(self._stop,), name=name, daemon=True).start()

    # --- called by the watches --------------------------------------------------------------------------------------------------

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
            self._late.update(self._store.records([*map(_trimmed, found)]))
            self._lock.notify_all()

    def _record_changed(self, type_: str, document: Document) -> None:
        with self._lock:
            if self._store.record(_trimmed(document), deleted=type_ == "DELETED"):
                self._late.add(str(document["metadata"]["name"]))
            self._lock.notify_all()

    def _listed(self, kind: Kind, found: list[Document]) -> None:
        self._records.synced.wait(SYNC)  # the records name the owners
        with self._lock:
            self._store.replace(kind, found)
            self._lock.notify_all()
        if kind is POD:
            for pod in found:
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
        """Watch PodGroups once a pod references one: most programs have none."""
        group = pod_group_of(pod)
        if not group:
            return
        kind = pod_group_kind([pod], group)
        if kind in self._gangs:
            return
        with self._lock:
            stream = self._gangs[kind] = self._stream(kind)
            self._streams = [*self._streams, stream]
        self._run(stream)

    def _waiting(self) -> dict[str, float]:
        """Return the pending gangs of the scheduler plugins, and when the first of their pods was created."""
        found: dict[str, float] = {}
        for name, known in self._known.items():
            if known.status is not None and known.status.reason == WAITING_FOR_GANG and name in self._store.jobs:
                pods = [p for p in self._store.jobs[name].all(POD) if is_coscheduled(p) and not node_of(p)]
                found.update({pod_group_of(p): min(map(created_at, pods)) for p in pods})
        return found

    def _read_workers(self) -> None:
        """Read what worker clusters of MultiKueue show of the jobs that callers wait for."""
        with self._lock:
            views = {name: self._store.job_view(name, frozenset()) for name in self._known}
        for name, view in views.items():
            if not cluster_of(view):
                continue
            found = with_worker(self._client, view)
            with self._lock:
                found = with_gone(found, self._sent.get(name, found))
                if found != self._sent.get(name):
                    self._sent[name] = found
                    self._store.changed.add(name)
                    self._lock.notify_all()

    def _store_progress(self, name: str, began: float, reports: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            job = self._store.jobs.get(name)
            if job is None:
                return
            for report in reports:
                job.progress = with_kept(job.progress, report)
                job.metrics = job.metrics or Metrics(whole=began > 0)
                job.metrics.report(report)
            if began:
                steps = [report["step"] for report in reports if "step" in report]
                job.report_steps(began, steps, time.time())
            self._store.changed.add(name)

    def _failure_read(self, name: str, lines: Mapping[str, Sequence[str]]) -> None:
        with self._lock:
            job = self._store.jobs.get(name)
            if job is not None:
                job.keep_lines(lines)
                self._store.changed.add(name)
                self._lock.notify_all()

    def _faulty(self, stream: Stream) -> None:
        """Report a fault once for each kind; `trouble` reports faults of the jobs themselves."""
        missing = _MISSING.get(stream.kind)
        if stream.fault is None or not stream.absent or stream.kind.plural in self._noted or missing is None:
            return
        self._noted.add(stream.kind.plural)
        fault = stream.fault[0]
        if isinstance(fault, ApiError) and fault.code == 403:
            self._note(f"{missing}: {fault}")

    def _tidy(self) -> None:
        """Remove jobs of other programs, fetch jobs whose record has arrived late, and wake gangs, once a second."""
        while not self._stop.wait(TIDY):
            with self._lock:
                self._store.forget(time.monotonic())
                late, self._late = self._late, set()
                waiting = self._waiting()
            self._waker.wake(waiting)
            self._read_workers()
            failed = {name for name in late if self._fetch(name) is not None}
            with self._lock:
                self._late |= failed

    def _fetch(self, name: str) -> TrainerError | None:
        """Store a job that no watch has delivered, and return why it could not be read; None if it was."""
        try:
            view = snapshot(self._client.within(5.0), self._namespace, name)
            owner = record.find(self._client.within(5.0), self._namespace, name)
        except TrainerError as fault:
            return fault
        found: Iterable[tuple[Kind, Any]] = (
            (JOBSET, view.jobset), (TRAIN_JOB, view.train_job), (WORKLOAD, view.workload),
            (pod_group_kind(view.pods, waiting_pod_group(view.pods)), view.pod_group),
            *((JOB, j) for j in view.jobs), *((POD, p) for p in view.pods), *((EVENT, e) for e in view.events),
        )  # fmt: skip
        with self._lock:
            if owner is not None and owner.is_record:
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


def _uid(view: JobView) -> str:
    return str(section(view.main, "metadata").get("uid") or "")


def _refusal(fault: TrainerError) -> bool:
    return isinstance(fault, ApiError) and (fault.code in (401, 403) or fault.absent)
