"""Deletes jobs of a cluster with their objects, and waits until they are gone."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.jobs.submission import secret_name
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.cluster import Cluster
from pulumi_trainer.provider.targets.kubernetes.jobs import deletion, record, worker_copies
from pulumi_trainer.provider.targets.kubernetes.jobs.deletion import (
    DeletionWatch,
    await_gone,
    blocking_reason,
    delete_record,
    end_train_jobs,
    sweep_selector,
    watch_job_deletions,
    watch_record_deletions,
)
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.usage_ledger import UsageLedger
from pulumi_trainer.provider.trainer.admission.referents import referents
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB

Document = dict[str, Any]

LATE_SECONDS = 1.0
"""How much later than a record's deletion the watch may report that of its job."""


class JobRemoval:
    """The deletion of jobs of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self._ledger = UsageLedger(cluster.client)
        self._departures: dict[tuple[str, str], DeletionWatch] = {}
        self._lock = threading.Lock()

    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False
    ) -> Owner | str | None:
        """End the job, remove all its objects, and return when they are gone. Safe to repeat.

        Args:
            replaced: Whether the record of the next run has what this one has used.

        Returns:
            The current owner of a job that was left alone, or what could not be kept; else None.
        """

        def mine(found: Record) -> bool:
            return found.is_record and uid in ("", found.uid) and (owner is None or owner.owns(found.whose))

        asked = time.monotonic()
        known = self.cluster.overview(namespace).record(name) if uid else None
        if self.cluster.mode == "trainer" or self.client.workers:
            known = record.find(self.client, namespace, name)
        if known is None or mine(known):
            worker_copies.check_reachable(self.client, f"{namespace}/{name}")
        note = ""
        if not replaced and (known is None or mine(known)):
            note = self._ledger.book(namespace, [name], mine)
        if self.cluster.mode == "trainer" and known is not None and mine(known):
            end_train_jobs(self.client, [known])
        found = delete_record(self.client, namespace, name, mine, known)
        if found is not None and mine(found):
            self._await_gone(found, asked)
            self._delete_late(namespace, name, found.uid, asked)
        elif found is not None and found.is_record and owner is not None and not owner.owns(found.whose):
            return found.whose
        elif uid:
            self._delete_orphans(namespace, name, uid)
        worker_copies.delete(self.client, namespace, name, uid, owner)
        return note or None

    def sweep(self, namespace: str, label: str) -> list[str]:
        """Delete all jobs of a namespace with the stack's label, and return their names."""
        found, _ = self.client.list(CONFIG_MAP, namespace, labels=sweep_selector(label))

        def mine(each: Record) -> bool:
            return each.is_record and each.stack == label and not each.retained

        asked = time.monotonic()
        records = [*filter(mine, map(Record.of, found))]
        self._ledger.book(namespace, [each.name for each in records], mine)
        end_train_jobs(self.client, records)
        gone = [delete_record(self.client, namespace, each.name, mine, each) for each in records]
        left = [each for each in gone if each is not None and mine(each)]
        for each in left:
            self._await_gone(each, asked)
            self._delete_late(namespace, each.name, each.uid, asked)
        return [f"{namespace}/{each.name}" for each in left]

    def _records_leaving(self, namespace: str) -> DeletionWatch:
        with self._lock:
            return self._departures.setdefault((namespace, ""), watch_record_deletions(self.client, namespace))

    def _jobs_leaving(self, namespace: str) -> DeletionWatch:
        kind = self.cluster.kind
        with self._lock:
            return self._departures.setdefault(
                (namespace, kind.kind), watch_job_deletions(self.client, namespace, kind)
            )

    def _await_gone(self, found: Record, asked: float) -> None:
        wait = partial(self._records_leaving(found.namespace).wait, found.uid, asked)
        await_gone(self.client, wait, found.namespace, found.name)

    def _delete_late(self, namespace: str, name: str, run: str, asked: float) -> None:
        """Delete a job that the garbage collector did not delete with its record, because the job's kind is new in this
        cluster."""
        if self._jobs_leaving(namespace).wait(run, asked, LATE_SECONDS):
            return
        kind = self.cluster.kind
        deadline = time.monotonic() + deletion.DELETE_SECONDS
        while True:
            found = self.client.get(kind, namespace, name)
            if found is None or not record.belongs(found, run):
                return
            if not found["metadata"].get("deletionTimestamp"):
                self.client.delete(kind, namespace, name, uid=str(found["metadata"]["uid"]))
            elif time.monotonic() > deadline:
                why, _ = blocking_reason(self.client, namespace, name)
                raise TargetFault(Problem(kind.where(namespace, name), f"is not gone: {why}", deletion.HINT))
            else:
                time.sleep(0.25)

    def _delete_orphans(self, namespace: str, name: str, run: str) -> None:
        """Delete the objects of a job whose record was deleted externally."""
        secrets = {secret_name(name)}
        for kind in (TRAIN_JOB, JOBSET, POD_GROUP, CONFIG_MAP):
            try:
                found, _ = self.client.list(kind, namespace, labels=f"{owner_labels.JOB}={name}")
            except ApiError as error:
                if error.code == 404:  # no such kind in this cluster
                    continue
                raise
            for each in found:
                if (each["metadata"].get("annotations") or {}).get(owner_labels.RECORD) == run:
                    secrets |= {r.name for r in referents({kind.kind: each}) if r.kind is SECRET}
                    self._delete_orphan(kind, namespace, each, run)
        for secret in sorted(secrets):
            left = record.get_metadata(self.client, SECRET, namespace, secret)
            if left:
                self._delete_orphan(SECRET, namespace, left, run)

    def _delete_orphan(self, kind: kinds.Kind, namespace: str, found: Document, run: str) -> None:
        """Delete an object, unless it belongs to another run by now."""
        left: Document | None = found
        how = "Background" if kind is TRAIN_JOB else "Foreground"  # see `end_train_jobs`
        while left is not None and (left["metadata"].get("annotations") or {}).get(owner_labels.RECORD) == run:
            meta = left["metadata"]
            about = {"uid": meta["uid"], "version": meta["resourceVersion"], "propagation": how}
            if self.client.delete(kind, namespace, meta["name"], **about):
                return
            left = record.get_metadata(self.client, kind, namespace, meta["name"])
