"""All jobs of a namespace at one glance: two lists for a whole program, whatever the number of its jobs.

Tells a program which of its jobs are as it says, and what they are doing, without a request for each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.api.status import JobStatus, Loss, Owner, Presence
from pulumi_trainer.provider.kube.client.client import Client
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kube.errors import TargetFault, TrainerError
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.lifecycle.status import Observed, observed
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs.record import (
    SELECTOR,
    Record,
    belongs,
    find,
    look,
)
from pulumi_trainer.provider.targets.kubernetes.storage import claims

AGE = 5.0
"""Seconds after which a glance is taken anew."""
SEEN_AGE = 60.0
"""The same for jobs that this process has neither made nor changed."""
REST = 10
"""How many times as long as taking it a snapshot is used: with a thousand jobs one takes seconds, and a program that takes one
after the other does little else."""
PATIENCE = 3.0
"""Seconds that it tries; a cluster out of reach is asked once a process."""
_BESIDE = {"ConfigMap": (CONFIG_MAP,), "Secret": (SECRET,), "PodGroup": (POD_GROUP, VOLCANO_POD_GROUP)}
"""Kinds of the objects beside a job."""


class Overview:
    """Records and jobs of one namespace."""

    def __init__(self, client: Client, namespace: str, kind: Kind) -> None:
        self._client = client.within(PATIENCE)
        self._namespace = namespace
        self._kind = kind
        self._lock = threading.Lock()
        self._taken = -inf
        self._rest = 0.0
        self._records: dict[str, Record] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._alone: dict[str, dict[str, Any]] = {}
        self._beside: dict[str, set[str] | None] = {}
        self._claims: dict[claims.Place, dict[str, Any]] | None = None
        self._claims_fault: TargetFault | None = None
        self.fault: TrainerError | None = None

    def record(self, name: str) -> Record | None:
        """The record of that name; None: there is none, or the cluster is out of reach (`fault`)."""
        return self._look()[0].get(name)

    def known(self, name: str) -> Record | None:
        """The record as it was when the glance was last taken: one that was made since needs no other."""
        return (self._records if self._taken > 0 else self._look()[0]).get(name)

    def status(self, name: str) -> JobStatus | None:
        """What the job is doing, as far as it and its record say; None: nothing is known of it."""
        records, jobs = self._look()
        record = records.get(name)
        if record is None:
            return None
        job = jobs.get(name)
        if job is None and not record.terminal:
            with suppress(TargetFault):
                job = self._missed(record)
        if record.terminal or job is None:
            return record.without_job()
        now = self._observed(job)
        return record.status(now.phase, now.reason, now.message)

    def lacks_job(self, name: str) -> bool:
        """Whether an unfinished job has a record and nothing else, as when its creation was refused."""
        records, jobs = self._look()
        record = records.get(name)
        if record is None or record.terminal or name in jobs:
            return False
        try:
            return self._missed(record) is None
        except TargetFault:
            return False

    def _observed(self, job: dict[str, Any]) -> Observed:
        return observed(job if self._kind is JOBSET else None, job if self._kind is TRAIN_JOB else None)

    def _missed(self, record: Record) -> dict[str, Any] | None:
        """A job that has been made since the glance was taken; its record was made before."""
        found = self._client.get(self._kind, self._namespace, record.name)
        return found if found is not None and belongs(found, record.uid) else None

    def seen(self, name: str, beside: Collection[str]) -> Presence | None:
        """What there is of a job that this process has not made; None: the cluster is out of reach, or may not be asked.

        One glance serves a whole program; what is missing in it is asked for by itself. beside: "Kind/name" of the job's other
        objects.
        """
        try:
            records, jobs = self._look(SEEN_AGE)
            record = records.get(name) or self._missed_record(name)
            if self.fault is not None:
                return None
            if record is None:
                return Presence(alone=self._without_record(name))
            job = jobs.get(name)
            ended = (
                record.terminal
                or (job is None and record.ttl)
                or (job is not None and self._observed(job).phase.terminal)
            )
            if ended:
                return Presence(record.whose)
            if job is None:
                job = self._client.get(self._kind, self._namespace, name)
                if job is None or not belongs(job, record.uid):
                    return Presence(record.whose, record.version, another=job is not None)
            taken = {key: self._is_taken(key, record) for key in beside if self._lacks(key)}
            missing = tuple(key for key, held in taken.items() if held is not None)
            return Presence(record.whose, missing=missing, taken=tuple(key for key in missing if taken[key]))
        except TrainerError as fault:
            self.fault = self.fault or fault
            return None

    def _without_record(self, name: str) -> Owner | None:
        """Return whose the job of that name is, if it goes on although its record is gone."""
        job = self._alone.get(name)
        if job is None or self._observed(job).phase.terminal:
            return None
        annotations, labels = section(job, "metadata", "annotations"), section(job, "metadata", "labels")
        return Owner(str(annotations.get(marks.OWNER, "")), str(labels.get(marks.STACK, "")))

    def lost_claim(self, name: str, owner: Owner) -> Loss:
        """Whether the claim of a volume of that owner, which this process has not made, is gone or is going. Raises TargetFault,
        for all claims what the first one met."""
        self._look(SEEN_AGE)
        with self._lock:
            if self._claims is None and self.fault is None and self._claims_fault is None:
                try:
                    self._claims = claims.claims_there(self._client, self._namespace)
                except TargetFault as fault:
                    self._claims_fault = fault
            if self._claims is None:
                raise self.fault or self._claims_fault or TargetFault()
            there = self._claims
        place = self._namespace, name
        if place not in there:
            there = claims.claims_there(self._client, *place)
        return claims.loss(there, place, owner)

    def _lacks(self, key: str) -> bool:
        """Whether it is certain that there is no such object. key: "Kind/name"."""
        kind, _, name = key.partition("/")
        with self._lock:
            if kind not in self._beside:
                self._beside[kind] = self._names(kind)
        names = self._beside[kind]
        return names is not None and name not in names

    def _is_taken(self, key: str, record: Record) -> bool | None:
        """Whether others have the name of an object that the job lacks; None: it is there, and was not when the glance was taken,
        or is not marked any more. key: "Kind/name"."""
        kind, _, name = key.partition("/")
        there: list[dict[str, Any]] = []
        for each in _BESIDE.get(kind, ()):
            with suppress(TargetFault):
                there += filter(None, [look(self._client, each, self._namespace, name)])
        return None if any(belongs(each, record.uid) for each in there) else bool(there)

    def _names(self, kind: str) -> set[str] | None:
        """Of the objects of a kind that belong to jobs; None: they cannot be listed."""
        found: set[str] | None = None
        for each in _BESIDE.get(kind, ()):
            with suppress(TargetFault):
                listed, _ = self._client.list(each, self._namespace, labels=marks.JOB, keep=_named, whole=False)
                found = (found or set()) | {document["name"] for document in listed}
        return found

    def _missed_record(self, name: str) -> Record | None:
        found = find(self._client, self._namespace, name)
        return found if found is not None and found.ours and not found.deleting else None

    def _look(self, age: float | None = None) -> tuple[Mapping[str, Record], Mapping[str, dict[str, Any]]]:
        with self._lock:
            if self.fault is None and time.monotonic() - self._taken > max(AGE if age is None else age, self._rest):
                try:
                    self._take()
                except TargetFault as fault:
                    self.fault = fault
            return self._records, self._jobs

    def _take(self) -> None:
        begun = time.monotonic()
        records, _ = self._client.list(CONFIG_MAP, self._namespace, labels=SELECTOR)
        jobs, _ = self._client.list(self._kind, self._namespace, labels=marks.JOB, keep=_trimmed)
        self._records = {r.name: r for r in map(Record.of, records) if not r.deleting}
        named = {str(job["metadata"]["name"]): job for job in jobs}
        self._jobs = {n: j for n, j in named.items() if n in self._records and belongs(j, self._records[n].uid)}
        self._alone = {name: job for name, job in named.items() if name not in self._records}
        self._taken = time.monotonic()
        self._rest = REST * (self._taken - begun)


def _trimmed(job: dict[str, Any]) -> dict[str, Any]:
    """What `observed` and `belongs` read."""
    return {
        "metadata": {
            "name": job["metadata"]["name"],
            "labels": section(job, "metadata", "labels"),
            "annotations": {
                mark: section(job, "metadata", "annotations").get(mark) for mark in (marks.RECORD, marks.OWNER)
            },
            "ownerReferences": job["metadata"].get("ownerReferences"),
        },
        "spec": {"suspend": section(job, "spec").get("suspend")},
        "status": section(job, "status"),
    }


def _named(found: dict[str, Any]) -> dict[str, Any]:
    return {"name": str(found["metadata"].get("name"))}


class Names:
    """The names of all jobs of a namespace, whoever has made them, as they were at most `AGE` seconds ago: one list instead of
    a look at each name that is to be taken."""

    def __init__(self, client: Client, namespace: str, kind: Kind) -> None:
        self._client = client
        self._namespace = namespace
        self._kind = kind
        self._lock = threading.Lock()
        self._taken = -AGE
        self._names: set[str] = set()

    def may_hold(self, name: str) -> bool:
        """Raises TargetFault."""
        with self._lock:
            if time.monotonic() - self._taken > AGE:
                asked = time.monotonic()
                found, _ = self._client.list(self._kind, self._namespace, keep=_named, whole=False)
                self._names, self._taken = {str(job["name"]) for job in found}, asked
            return name in self._names
