"""All jobs of a namespace at one glance: two lists for a whole program, whatever the number of its jobs.

Tells a program which of its jobs are as it says, and what they are doing, without a request for each. Called by `target`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.api.errors import TargetFault
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.lifecycle.status import observed

from . import marks
from .client import Client
from .kinds import CONFIG_MAP, JOBSET, TRAIN_JOB, Kind
from .record import SELECTOR, Record

AGE = 5.0
"""Seconds after which a glance is taken anew."""
PATIENCE = 3.0
"""Seconds that it tries; a cluster out of reach is asked once a process."""


class Overview:
    """Records and jobs of one namespace."""

    def __init__(self, client: Client, namespace: str, kind: Kind) -> None:
        self._client = client.within(PATIENCE)
        self._namespace = namespace
        self._kind = kind
        self._lock = threading.Lock()
        self._taken = 0.0
        self._records: dict[str, Record] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self.fault: TargetFault | None = None

    def record(self, name: str) -> Record | None:
        """The record of that name; None: there is none, or the cluster is out of reach (`fault`)."""
        return self._look()[0].get(name)

    def holds(self, name: str, uid: str) -> bool:
        """Whether that run was there when the glance was last taken: one that was made since needs no other."""
        records = self._records if self._taken else self._look()[0]
        return name in records and records[name].uid == uid

    def status(self, name: str) -> JobStatus | None:
        """What the job is doing, as far as it and its record say; None: nothing is known of it."""
        records, jobs = self._look()
        record = records.get(name)
        if record is None:
            return None
        job = jobs.get(name)
        if job is None and not record.terminal:
            job = self._missed(name)
        if record.terminal or job is None:
            return record.without_job()
        now = observed(job if self._kind is JOBSET else None, job if self._kind is TRAIN_JOB else None)
        return record.status(now.phase, now.reason, now.message)

    def _missed(self, name: str) -> dict[str, Any] | None:
        """A job that has been made since the glance was taken; its record was made before."""
        try:
            return self._client.get(self._kind, self._namespace, name)
        except TargetFault:
            return None

    def vanished(self, name: str, digest: str) -> str:
        """The record's version, of a job that is as the program says and that somebody has deleted before it ended."""
        record, status = self.record(name), self.status(name)
        if record is None or status is None or record.digest != digest:
            return ""
        return record.version if status.phase == Phase.DELETED and not record.ttl else ""

    def _look(self) -> tuple[Mapping[str, Record], Mapping[str, dict[str, Any]]]:
        with self._lock:
            if self.fault is None and time.monotonic() - self._taken > AGE:
                try:
                    self._take()
                except TargetFault as fault:
                    self.fault = fault
            return self._records, self._jobs

    def _take(self) -> None:
        records, _ = self._client.list(CONFIG_MAP, self._namespace, labels=SELECTOR)
        jobs, _ = self._client.list(self._kind, self._namespace, labels=marks.JOB, keep=_trimmed)
        self._records = {r.name: r for r in map(Record.of, records) if not r.deleting}
        self._jobs = {str(j["metadata"]["name"]): j for j in jobs}
        self._taken = time.monotonic()


def _trimmed(job: dict[str, Any]) -> dict[str, Any]:
    """What `observed` reads."""
    meta, spec = job["metadata"], job.get("spec") or {}
    return {
        "metadata": {"name": meta["name"], "labels": meta.get("labels") or {}},
        "spec": {"suspend": spec.get("suspend")},
        "status": job.get("status") or {},
    }


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
                found, _ = self._client.list(
                    self._kind, self._namespace, keep=lambda job: {"name": job["metadata"]["name"]}
                )
                self._names, self._taken = {str(job["name"]) for job in found}, asked
            return name in self._names
