"""Stores the trimmed documents of the jobs of a program while the program waits for them, and no documents of other jobs.

The store has no threads; `watch` fills it and does the locking.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.attempts import Attempts
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client.api_resources import EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kubernetes.values.accessors import labels_of, name_of, section, text
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.kueue.workload_reasons import job_name, job_of, preemptor
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose
from pulumi_trainer.provider.lifecycle.diagnosis.containers import has_crashed
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import created_at, pod_group_of, subject, waiting_pod_group
from pulumi_trainer.provider.lifecycle.diagnosis.pod_faults import is_vague
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record, belongs
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import pod_group_kind, without_stranger
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import MOST_GONE
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

Document = dict[str, Any]

SINGLE = (JOBSET, TRAIN_JOB)
GROUPS = (POD_GROUP, VOLCANO_POD_GROUP)
FOLLOWS = 15.0
"""Seconds in which a job follows its record; later, a missing job was deleted externally."""
YOUNG = 60.0
"""Seconds in which an object may be observed before the record of its job."""
MOST_EVENTS = 40
"""Number of events that are stored for a job, the newest."""


@dataclass(slots=True)
class ObservedJob:
    """The documents of one job.

    Args:
        since: When the job was first observed (`time.monotonic`).
        outcome: How the job ended, if that was observed before its objects were deleted.
        parts: Plural of a kind -> name -> document.
        met: Whether the JobSet or TrainJob of the record was observed.
        gone: Failed pods that were deleted since.
        lines: Pod -> what its log explained when it had failed; the newest ones.
        progress: The newest trainerStatus.
        steps: The steps in the logs of rank 0 that were read from their start, each as an attempt that begins with its container.
    """

    since: float
    record: Record | None = None
    outcome: JobStatus | None = None
    parts: dict[str, dict[str, Document]] = field(default_factory=dict)
    met: bool = False
    gone: deque[Document] | None = None
    lines: dict[str, Sequence[str]] = field(default_factory=dict)
    progress: dict[str, Any] | None = None
    metrics: Metrics | None = None
    steps: Attempts = field(default_factory=lambda: Attempts([]))

    def report_steps(self, began: float, steps: Iterable[int], now: float) -> None:
        """Take note of the steps that a log has reported, unless a newer one is read already. steps: The steps; none when the
        log is opened."""
        newest = 0.0
        if self.steps.all:
            newest = self.steps.all[-1].started
        if began < newest:
            return
        if began > newest:
            self.steps.end(now, "")
            self.steps.begin(began)
        for step in steps:
            self.steps.report(step, now)

    def keep_lines(self, lines: Mapping[str, Sequence[str]]) -> None:
        """Keep what the logs of failed pods explain, of as many pods as are remembered. lines: By pod."""
        found = {**self.lines, **lines}
        self.lines = dict([*found.items()][-MOST_GONE:])

    def part(self, kind: Kind) -> dict[str, Document]:
        """Return the documents of a kind, by name; changes of the result are stored."""
        return self.parts.setdefault(kind.plural, {})

    def one(self, kind: Kind) -> Document | None:
        """Return the single document of a kind; None if not found."""
        return next(iter(self.parts.get(kind.plural, {}).values()), None)

    def all(self, kind: Kind) -> list[Document]:
        return list(self.parts.get(kind.plural, {}).values())


class JobStore:
    """The jobs of a namespace, by name.

    Attributes:
        changed: Names of the jobs that have changed since they were last taken.
        passed: Names of the jobs whose documents were discarded because they did not belong to the program.
        groups: PodGroups by kind and name; only the pods of a job reference them.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.jobs: dict[str, ObservedJob] = {}
        self.changed: set[str] = set()
        self.passed: set[str] = set()
        self.groups: dict[Kind, dict[str, Document]] = {kind: {} for kind in GROUPS}
        self._members: dict[str, set[str]] = {}

    def job_view(self, name: str, unreadable: frozenset[str]) -> JobView:
        job = self.jobs.get(name)
        if job is None:
            return JobView(self.namespace, name, unreadable=unreadable)
        record = job.record
        recorded: JobStatus | None = None
        if record is not None:
            recorded = record.last_status()
            if job.outcome is not None and not record.terminal:
                recorded = job.outcome
        pods = job.all(POD)
        group = waiting_pod_group(pods)
        workload = max(job.all(WORKLOAD), key=created_at, default=None)
        found = JobView(
            self.namespace,
            name,
            jobset=job.one(JOBSET),
            train_job=job.one(TRAIN_JOB),
            workload=workload,
            preemptor=self._preemptor(workload, record),
            pod_group=self.groups[pod_group_kind(pods, group)].get(group),
            jobs=job.all(JOB),
            pods=pods,
            gone=tuple(job.gone or ()),
            lines=job.lines,
            events=job.all(EVENT),
            recorded=recorded,
            awaited=_follows(job),
            progress=job.progress,
            metrics=job.metrics,
            steps_done=next(iter(job.steps.all[-1:]), None),
            logs_before=sum(each.count for each in job.steps.all[:-1]),
            unreadable=unreadable,
        )
        return without_stranger(found, record)

    def _preemptor(self, workload: Document | None, record: Record | None) -> str:
        """Return the job that has preempted a job, if it is one of those that are stored, or in its record; else empty."""
        uids = preemptor(workload)
        if uids is None:
            return ""
        if record is not None and uids[0] in record.preemptor:
            return record.preemptor[uids[0]]
        others = chain.from_iterable(job.all(WORKLOAD) for job in self.jobs.values())
        return next((job_of(each) for each in others if section(each, "metadata").get("uid") == uids[0]), "")

    # --- records -------------------------------------------------------------------------------------------------------------

    def record(self, found: Record, *, deleted: bool = False) -> bool:
        """Store a record, and return whether documents of its job were discarded before. deleted: Whether the record was
        deleted."""
        job = self.jobs.get(found.name)
        if deleted:
            if job is not None and job.record is not None and job.record.uid == found.uid:
                job.record, job.since = None, time.monotonic()
                self.changed.add(found.name)
            return False
        if job is None:
            job = self.jobs[found.name] = ObservedJob(time.monotonic())
        if job.record is None or job.record.identity.id != found.identity.id:
            job.metrics = None
        if job.record is None or job.record.uid != found.uid:
            job.outcome, job.gone, job.since, job.steps = None, None, time.monotonic(), Attempts([])
            job.met = any(belongs(each, found.uid) for each in job.all(found.kind))
        if job.record != found:
            job.record = found
            self.changed.add(found.name)
        late = found.name in self.passed
        self.passed.discard(found.name)
        return late

    def records(self, found: Iterable[Record]) -> list[str]:
        """Replace all records, and return the names of the jobs whose documents were discarded before."""
        there = {r.name: r for r in found}
        for name, job in self.jobs.items():
            if job.record is not None and name not in there:
                self.record(job.record, deleted=True)
        return [name for name, each in there.items() if self.record(each)]

    # --- everything else -----------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, document: Document, *, old: bool = False) -> None:
        """Store an object that was created or changed. old: Store it only if no version of it is stored yet."""
        if kind in GROUPS:
            self._group(kind, name_of(document), document, old=old)
            return
        if kind is EVENT and is_vague(text(document.get("message"))):
            return  # it would replace an event with more detail
        name = self._job_of(kind, document)
        job = self._mine(name, document)
        if job is None:
            return
        part, key = job.part(kind), _key(kind, document)
        before = part.get(key)
        if before == document or (old and before is not None):
            return
        if kind is POD and before is not None and has_crashed(before) and not has_crashed(document):
            self._remember(name, job, kind, before)
        if kind in SINGLE:
            part.clear()
        part[key] = document
        job.met |= job.record is not None and kind is job.record.kind and belongs(document, job.record.uid)
        if kind is POD:
            group = pod_group_of(document)
            if group:
                self._members.setdefault(group, set()).add(name)
        if kind is EVENT and len(part) > MOST_EVENTS:
            part.pop(next(iter(part)))
        self.changed.add(name)

    def drop(self, kind: Kind, document: Document) -> None:
        """Remove an object that was deleted. document: Its last version."""
        if kind in GROUPS:
            self._group(kind, name_of(document), None)
            return
        name = self._job_of(kind, document)
        job = self.jobs.get(name)
        if job is None or kind is EVENT:
            return
        part, key = job.part(kind), _key(kind, document)
        if key not in part:
            return
        if kind in SINGLE and part[key]["metadata"].get("uid") != document["metadata"].get("uid"):
            return  # another object of that name exists already
        part[key] = document
        self._remember(name, job, kind, document)
        del part[key]
        self.changed.add(name)

    def replace(self, kind: Kind, found: Iterable[Document]) -> None:
        """Replace all objects of a kind; objects that are not in `found` were deleted."""
        if kind in GROUPS:
            groups = {name_of(document): document for document in found}
            for name in {*self.groups[kind], *groups}:
                self._group(kind, name, groups.get(name))
            return
        there: dict[str, dict[str, Document]] = {}
        for document in found:
            there.setdefault(self._job_of(kind, document), {})[_key(kind, document)] = document
        for name, job in self.jobs.items():
            mine = there.get(name, {})
            for key, document in list(job.parts.get(kind.plural, {}).items()):
                if key not in mine and kind is not EVENT:
                    self._remember(name, job, kind, document)
                    del job.parts[kind.plural][key]
                    self.changed.add(name)
        for documents in there.values():
            for document in documents.values():
                self.put(kind, document)

    def _group(self, kind: Kind, name: str, document: Document | None, *, old: bool = False) -> None:
        """Store a PodGroup; None: it was deleted."""
        groups = self.groups[kind]
        before = groups.get(name)
        if before == document or (old and before is not None):
            return
        if document is None:
            del groups[name]
        else:
            groups[name] = document
        self.changed |= self._members.get(name, set())

    def forget(self, now: float) -> None:
        """Remove the jobs that have not got a record within `YOUNG` seconds. now: As `time.monotonic` returns it."""
        for name in [n for n, j in self.jobs.items() if j.record is None and now - j.since > YOUNG]:
            if self.jobs.pop(name).parts:
                self.passed.add(name)

    def _mine(self, name: str, document: Document) -> ObservedJob | None:
        """Return the job that a document belongs to; None if the document is old and its job has no record."""
        job = self.jobs.get(name)
        if job is None and name and "involvedObject" not in document:
            if time.time() - created_at(document) > YOUNG:
                self.passed.add(name)
                return None
            job = self.jobs[name] = ObservedJob(time.monotonic())
        return job

    def _remember(self, name: str, job: ObservedJob, kind: Kind, document: Document) -> None:
        """Store what would be lost with an object: a failed pod, or the end of the job."""
        if kind is POD and (has_crashed(document) or section(document, "status").get("phase") == "Failed"):
            job.gone = job.gone or deque(maxlen=MOST_GONE)
            job.gone.append(document)
        if kind in (JOBSET, TRAIN_JOB) and job.record is not None:
            status = diagnose(self.job_view(name, frozenset()), time.time())
            if status.phase in ("Succeeded", "Failed"):
                job.outcome = status

    def _job_of(self, kind: Kind, document: Document) -> str:
        if kind in (JOB, POD):
            return text(labels_of(document).get(JOBSET_NAME))
        if kind is EVENT:
            return self._named(subject(document))
        if kind is WORKLOAD:
            return job_name(document)
        return name_of(document)

    def _named(self, name: str) -> str:
        """Return the job whose name is the longest prefix of an object's name."""
        while name and name not in self.jobs:
            name = name.rpartition("-")[0]
        return name


def _follows(job: ObservedJob) -> bool:
    """Return whether the job may have just been created, after its record: two watches do not deliver at the same time."""
    record = job.record
    if record is None or record.terminal or job.met:
        return False
    return time.monotonic() - job.since < FOLLOWS and time.time() - record.created < YOUNG


def _key(kind: Kind, document: Document) -> str:
    if kind is EVENT:
        return f"{subject(document)} {document.get('reason')}"
    return name_of(document)
