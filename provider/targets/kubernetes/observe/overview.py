"""Caches the status of all jobs of a namespace: two lists for a whole program, whatever the number of its jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

from pulumi_trainer.provider.jobs.status import JobStatus, Loss, Owner, Presence
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record, belongs, find, get_metadata
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.job_status import Observed, derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, VOLCANO_POD_GROUP

AGE = 5.0
"""Seconds after which the snapshot is read again."""
SEEN_AGE = 60.0
"""The same for jobs that this process has neither created nor changed."""
REST = 10
"""A snapshot is used this many times as long as reading it took: for a thousand jobs that is seconds, and a program that reads
one after the other does little else."""
LIST_SECONDS = 3.0
"""Timeout in seconds; a cluster out of reach is tried once per process."""
_BESIDE = {"ConfigMap": (CONFIG_MAP,), "Secret": (SECRET,), "PodGroup": (POD_GROUP, VOLCANO_POD_GROUP)}
"""Kinds of the objects beside a job. Secrets are not listed, because who may list them reads all of a namespace."""


class Overview:
    """The records and jobs of one namespace. fault: Why the cluster could not be read; None if it could."""

    def __init__(self, client: Client, namespace: str, kind: Kind) -> None:
        self._client = client.within(LIST_SECONDS)
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
        """Return the record of that name; None if not found, or if the cluster is out of reach (`fault`)."""
        return self._refresh()[0].get(name)

    def cached_record(self, name: str) -> Record | None:
        """Return the record in the last snapshot, without reading a new one."""
        return (self._records if self._taken > 0 else self._refresh()[0]).get(name)

    def status(self, name: str) -> JobStatus | None:
        """Return the status of a job, as the job and its record have it; None if neither was found."""
        records, jobs = self._refresh()
        record = records.get(name)
        if record is None:
            return None
        job = jobs.get(name)
        if job is None and not record.terminal:
            with suppress(TargetFault):
                job = self._missed(record)
        if record.terminal or job is None:
            return record.last_status()
        now = self._observed(job)
        return record.status(now.phase, now.reason, now.message)

    def lacks_job(self, name: str) -> bool:
        """Return whether an unfinished job has a record and nothing else, for example because its creation was rejected."""
        records, jobs = self._refresh()
        record = records.get(name)
        if record is None or record.terminal or name in jobs:
            return False
        try:
            return self._missed(record) is None
        except TargetFault:
            return False

    def _observed(self, job: dict[str, Any]) -> Observed:
        if self._kind is JOBSET:
            return derive_phase(job, None)
        return derive_phase(_counts_of_jobset(job), job)

    def _missed(self, record: Record) -> dict[str, Any] | None:
        """Return a job that was created after the snapshot and after its record."""
        found = self._client.get(self._kind, self._namespace, record.name)
        if found is None or not belongs(found, record.uid):
            return None
        return found

    def presence(self, name: str, beside: Collection[str]) -> Presence | None:
        """Return what exists of a job that this process did not create; None if the cluster cannot be read.

        One listing serves a whole program; only an object that is missing in it is requested by itself.
        """
        try:
            records, jobs = self._refresh(SEEN_AGE)
            record = records.get(name) or self._missed_record(name)
            if self.fault is not None:
                return None
            if record is None:
                return Presence(alone=self._without_record(name))
            return replace(self._presence_of(record, jobs.get(name), beside), fault=record.fault)
        except TrainerError as fault:
            self.fault = self.fault or fault
            return None

    def _presence_of(self, record: Record, job: dict[str, Any] | None, beside: Collection[str]) -> Presence:
        """Return what exists of a job with a record. job: The job in the snapshot; None if it is not there."""
        ended = (
            record.terminal
            or (job is None and record.removes_itself)
            or (job is not None and self._observed(job).phase.terminal)
        )
        if ended:
            return Presence(record.whose, note=record.stop_note)
        if job is None:
            job = self._client.get(self._kind, self._namespace, record.name)
            if job is None or not belongs(job, record.uid):
                return Presence(record.whose, record.version, another=job is not None, unsent=record.sending)
        taken = {key: self._is_taken(key, record) for key in beside if self._lacks(key)}
        missing = tuple(key for key, foreign in taken.items() if foreign is not None)
        note = record.override_note(job)
        return Presence(record.whose, missing=missing, taken=tuple(key for key in missing if taken[key]), note=note)

    def _without_record(self, name: str) -> Owner | None:
        """Return the owner of an unfinished job whose record is gone; None if not found."""
        job = self._alone.get(name)
        if job is None or self._observed(job).phase.terminal:
            return None
        return owner_labels.owner_of(job)

    def lost_claim(self, name: str, owner: Owner) -> Loss:
        """Return whether a volume that the owner created earlier was deleted or is being deleted."""
        self._refresh(SEEN_AGE)
        with self._lock:
            if self._claims is None and self.fault is None and self._claims_fault is None:
                try:
                    self._claims = claims.list_claims(self._client, self._namespace)
                except TargetFault as fault:
                    self._claims_fault = fault
            if self._claims is None:
                raise self.fault or self._claims_fault or TargetFault()
            there = self._claims
        place = self._namespace, name
        if place not in there:
            there = claims.list_claims(self._client, *place)
        return claims.loss_of(there, place, owner)

    def _lacks(self, key: str) -> bool:
        """Return whether an object is not among the listed ones. key: "Kind/name"."""
        kind, _, name = key.partition("/")
        if kind == SECRET.kind:
            return True  # `_is_taken` requests each
        with self._lock:
            if kind not in self._beside:
                self._beside[kind] = self._names(kind)
        names = self._beside[kind]
        return names is not None and name not in names

    def _is_taken(self, key: str, record: Record) -> bool | None:
        """Return whether a foreign object has the name of an object that the job lacks. None: the object exists, but was created
        after the snapshot or has lost its label; or it may not be read. key: "Kind/name"."""
        kind, _, name = key.partition("/")
        there: list[dict[str, Any]] = []
        readable = False
        for each in _BESIDE.get(kind, ()):
            with suppress(TargetFault):
                there += filter(None, [get_metadata(self._client, each, self._namespace, name)])
                readable = True
        if not readable or any(belongs(each, record.uid) for each in there):
            return None
        return bool(there)

    def _names(self, kind: str) -> set[str] | None:
        """Return the names of the objects of a kind that belong to jobs; None if they cannot be listed."""
        found: set[str] | None = None
        for each in _BESIDE.get(kind, ()):
            with suppress(TargetFault):
                listed, _ = self._client.list(each, self._namespace, labels=owner_labels.JOB, keep=_named, whole=False)
                found = (found or set()) | {document["name"] for document in listed}
        return found

    def _missed_record(self, name: str) -> Record | None:
        found = find(self._client, self._namespace, name)
        if found is not None and found.is_record and not found.deleting:
            return found
        return None

    def _refresh(self, age: float | None = None) -> tuple[Mapping[str, Record], Mapping[str, dict[str, Any]]]:
        if age is None:
            age = AGE
        with self._lock:
            if self.fault is None and time.monotonic() - self._taken > max(age, self._rest):
                try:
                    self._list_jobs_and_records()
                except TargetFault as fault:
                    self.fault = fault
            return self._records, self._jobs

    def _list_jobs_and_records(self) -> None:
        """Read all jobs and records of the namespace into the snapshot."""
        begun = time.monotonic()
        records, _ = self._client.list(CONFIG_MAP, self._namespace, labels=SELECTOR)
        jobs, _ = self._client.list(self._kind, self._namespace, labels=owner_labels.JOB, keep=_trimmed)
        self._records = {r.name: r for r in map(Record.of, records) if not r.deleting}
        named = {str(job["metadata"]["name"]): job for job in jobs}
        self._jobs = {n: j for n, j in named.items() if n in self._records and belongs(j, self._records[n].uid)}
        self._alone = {name: job for name, job in named.items() if name not in self._records}
        self._taken = time.monotonic()
        self._rest = REST * (self._taken - begun)


def _counts_of_jobset(train_job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the counts of its JobSet that Trainer has copied to a TrainJob; None if there are none, as with Trainer 2.1."""
    steps = section(train_job, "status").get("jobsStatus")
    if not steps:
        return None
    return {"status": {"replicatedJobsStatus": steps}}


def _trimmed(job: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that `derive_phase` and `belongs` read."""
    annotations = section(job, "metadata", "annotations")
    return {
        "metadata": {
            "name": job["metadata"]["name"],
            "labels": section(job, "metadata", "labels"),
            "annotations": {
                owner_labels.RECORD: annotations.get(owner_labels.RECORD),
                owner_labels.OWNER: annotations.get(owner_labels.OWNER),
            },
            "ownerReferences": job["metadata"].get("ownerReferences"),
        },
        "spec": {"suspend": section(job, "spec").get("suspend")},
        "status": section(job, "status"),
    }


def _named(found: dict[str, Any]) -> dict[str, Any]:
    return {"name": str(found["metadata"].get("name"))}


class JobNames:
    """The names of all jobs of a namespace, whoever created them, at most `AGE` seconds old: one list instead of a request per
    name."""

    def __init__(self, client: Client, namespace: str, kind: Kind) -> None:
        self._client = client
        self._namespace = namespace
        self._kind = kind
        self._lock = threading.Lock()
        self._taken = -AGE
        self._names: set[str] = set()

    def may_contain(self, name: str) -> bool:
        """Return whether a job of that name may exist."""
        with self._lock:
            if time.monotonic() - self._taken > AGE:
                asked = time.monotonic()
                found, _ = self._client.list(self._kind, self._namespace, keep=_named, whole=False)
                self._names, self._taken = {str(job["name"]) for job in found}, asked
            return name in self._names
