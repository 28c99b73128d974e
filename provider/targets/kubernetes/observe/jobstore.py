"""What is remembered of the jobs of a program while it waits for them: trimmed documents by job, nothing of anybody else's.

Pure, and no threads of its own: `watch` feeds it, and holds the lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.kube.client.kinds import EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kube.values.accessors import (
    labels_of,
    name_of,
    rows,
    section,
    text,
)
from pulumi_trainer.provider.kueue.resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import Seen, diagnose
from pulumi_trainer.provider.lifecycle.diagnosis.containers import containers, wake
from pulumi_trainer.provider.lifecycle.diagnosis.pods import vague
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    JOBSET_NAME,
    born,
    gang_of,
    subject,
    waiting_gang,
)
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record, belongs
from pulumi_trainer.provider.targets.kubernetes.observe.seen import group_of, without_stranger

Document = dict[str, Any]

SINGLE = (JOBSET, TRAIN_JOB)
GROUPS = (POD_GROUP, VOLCANO_POD_GROUP)
FOLLOWS = 15.0
"""Seconds in which a job follows its record. If it does not, somebody has deleted it."""
YOUNG = 60.0
"""Seconds in which an object may be there before we have seen the record of its job."""
MOST_EVENTS = 40
"""Events of a job that are remembered: the newest."""
MOST_GONE = 4
"""Failed pods of a job that are remembered after they have been deleted."""


@dataclass(slots=True)
class Job:
    """One job. since: when we have first heard of it (`time.monotonic`). record: None as long as nobody has shown it. met:
    whether the JobSet or TrainJob of that record was ever there. outcome: how it was seen to end before it went."""

    since: float
    record: Record | None = None
    outcome: JobStatus | None = None
    parts: dict[str, dict[str, Document]] = field(default_factory=dict)
    met: bool = False
    gone: deque[Document] | None = None
    progress: dict[str, Any] | None = None

    def part(self, kind: Kind) -> dict[str, Document]:
        return self.parts.setdefault(kind.plural, {})

    def one(self, kind: Kind) -> Document | None:
        return next(iter(self.parts.get(kind.plural, {}).values()), None)

    def all(self, kind: Kind) -> list[Document]:
        return list(self.parts.get(kind.plural, {}).values())


class JobStore:
    """Jobs by name. changed: names of those that have changed since somebody has taken them. passed: names of jobs whose
    documents were passed over, because they were nobody's of ours. groups: PodGroups, which pods name and nothing else ties
    to a job, by kind and name."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.jobs: dict[str, Job] = {}
        self.changed: set[str] = set()
        self.passed: set[str] = set()
        self.groups: dict[Kind, dict[str, Document]] = {kind: {} for kind in GROUPS}
        self._members: dict[str, set[str]] = {}

    def seen(self, name: str, unseen: frozenset[str]) -> Seen:
        """What is known of a job now."""
        job = self.jobs.get(name)
        if job is None:
            return Seen(self.namespace, name, unseen=unseen)
        record = job.record
        remembered = record.without_job() if record is not None else None
        if remembered is not None and job.outcome is not None and record is not None and not record.terminal:
            remembered = job.outcome
        pods = job.all(POD)
        group = waiting_gang(pods)
        found = Seen(
            self.namespace,
            name,
            jobset=job.one(JOBSET),
            train_job=job.one(TRAIN_JOB),
            workload=max(job.all(WORKLOAD), key=born, default=None),
            pod_group=self.groups[group_of(pods, group)].get(group),
            jobs=job.all(JOB),
            pods=pods,
            gone=tuple(job.gone or ()),
            events=job.all(EVENT),
            remembered=remembered,
            awaited=_follows(job),
            progress=job.progress,
            unseen=unseen,
        )
        return without_stranger(found, record)

    # --- records -------------------------------------------------------------------------------------------------------------

    def record(self, found: Record, *, deleted: bool = False) -> bool:
        """A record as it is now; whether documents of its job were passed over before."""
        job = self.jobs.get(found.name)
        if deleted:
            if job is not None and job.record is not None and job.record.uid == found.uid:
                job.record, job.since = None, time.monotonic()
                self.changed.add(found.name)
            return False
        if job is None:
            job = self.jobs[found.name] = Job(time.monotonic())
        if job.record is None or job.record.uid != found.uid:
            job.outcome, job.gone, job.since = None, None, time.monotonic()
            job.met = any(belongs(each, found.uid) for each in job.all(found.kind))
        if job.record != found:
            job.record = found
            self.changed.add(found.name)
        late = found.name in self.passed
        self.passed.discard(found.name)
        return late

    def records(self, found: Iterable[Record]) -> list[str]:
        """All records; names of jobs whose documents were passed over before."""
        there = {r.name: r for r in found}
        for name, job in self.jobs.items():
            if job.record is not None and name not in there:
                self.record(job.record, deleted=True)
        return [name for name, each in there.items() if self.record(each)]

    # --- everything else -----------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, document: Document, *, old: bool = False) -> None:
        """An object that has come or changed. old: only if there is nothing of it yet."""
        if kind in GROUPS:
            self._group(kind, name_of(document), document, old=old)
            return
        if kind is EVENT and vague(text(document.get("message"))):
            return  # it would take the place of one that says more
        name = self._job_of(kind, document)
        if (job := self._mine(name, document)) is None:
            return
        part, key = job.part(kind), _key(kind, document)
        before = part.get(key)
        if before == document or (old and before is not None):
            return
        if kind is POD and before is not None and _crashed(before) and not _crashed(document):
            self._remember(name, job, kind, before)
        if kind in SINGLE:
            part.clear()
        part[key] = document
        job.met |= job.record is not None and kind is job.record.kind and belongs(document, job.record.uid)
        if kind is POD and (group := gang_of(document)):
            self._members.setdefault(group, set()).add(name)
        if kind is EVENT and len(part) > MOST_EVENTS:
            part.pop(next(iter(part)))
        self.changed.add(name)

    def drop(self, kind: Kind, document: Document) -> None:
        """An object that has gone, as it was at last."""
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
            return  # there is another one already
        part[key] = document
        self._remember(name, job, kind, document)
        del part[key]
        self.changed.add(name)

    def replace(self, kind: Kind, found: Iterable[Document]) -> None:
        """All objects of a kind: what is not among them has gone."""
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
        """A PodGroup as it is now; None: it has gone."""
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
        """Jobs that have turned out not to be ours."""
        for name in [n for n, j in self.jobs.items() if j.record is None and now - j.since > YOUNG]:
            if self.jobs.pop(name).parts:
                self.passed.add(name)

    def _mine(self, name: str, document: Document) -> Job | None:
        """The job that a document belongs to; None where it is nobody's of ours. What is young may become ours."""
        job = self.jobs.get(name)
        if job is None and name and "involvedObject" not in document:
            if time.time() - born(document) > YOUNG:
                self.passed.add(name)
                return None
            job = self.jobs[name] = Job(time.monotonic())
        return job

    def _remember(self, name: str, job: Job, kind: Kind, document: Document) -> None:
        """What would be lost with an object: the pods that failed, the end of the job."""
        if kind is POD and (_crashed(document) or section(document, "status").get("phase") == "Failed"):
            job.gone = job.gone or deque(maxlen=MOST_GONE)
            job.gone.append(document)
        if kind in (JOBSET, TRAIN_JOB) and job.record is not None:
            status = diagnose(self.seen(name, frozenset()), time.time())
            if status.phase in ("Succeeded", "Failed"):
                job.outcome = status

    def _job_of(self, kind: Kind, document: Document) -> str:
        if kind in (JOB, POD):
            return text(labels_of(document).get(JOBSET_NAME))
        if kind is EVENT:
            return self._named(subject(document))
        if kind is WORKLOAD:
            owners = rows(section(document, "metadata").get("ownerReferences"))
            return next((text(o.get("name")) for o in owners if o.get("kind") in ("JobSet", "TrainJob")), "")
        return name_of(document)

    def _named(self, name: str) -> str:
        """The job that the name of one of its objects begins with; the longest such."""
        while name and name not in self.jobs:
            name = name.rpartition("-")[0]
        return name


def _follows(job: Job) -> bool:
    """Whether the job may have been made just now, with its record: two watches do not show it at once."""
    record = job.record
    if record is None or record.terminal or job.met:
        return False
    return time.monotonic() - job.since < FOLLOWS and time.time() - record.created < YOUNG


def _key(kind: Kind, document: Document) -> str:
    if kind is EVENT:
        return f"{subject(document)} {document.get('reason')}"
    return name_of(document)


def _crashed(pod: Document) -> bool:
    """Whether it says how something in it has failed of its own accord."""
    return any(c.failure and not wake(c.failure) for c in containers(pod))
