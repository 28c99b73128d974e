"""A JobSet that has the name of a job and is not its record's, among what is remembered of jobs."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe import job_store
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import JobStore
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import RECORD


def created_at() -> str:
    """A moment ago: the store gives something young the time to be told of."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(uid: str) -> Record:
    labels = {RECORD: "true"}
    return Record.of({"metadata": {"name": "job", "uid": uid, "labels": labels, "creationTimestamp": created_at()}})


def of(run: str, state: str = "Completed") -> dict[str, Any]:
    metadata = {"name": "job", "uid": f"of-{run}", "creationTimestamp": created_at(), "annotations": {RECORD: run}}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [{"type": state, "status": "True"}]}}


def phase(store: JobStore) -> str:
    return diagnose(store.job_view("job", frozenset()), time.time()).phase


def test_the_run_of_before_is_neither_the_new_one_nor_its_end(monkeypatch: Any) -> None:
    """Two watches tell of the new record and of the old JobSet's deletion, in any order."""
    store = JobStore("ns")
    store.record(record("old"))
    store.put(JOBSET, of("old"))
    assert phase(store) == Phase.SUCCEEDED
    store.record(record("new"))
    assert phase(store) == Phase.PENDING
    store.drop(JOBSET, of("old"))
    assert phase(store) == Phase.PENDING
    store.put(JOBSET, of("new"))
    assert phase(store) == Phase.SUCCEEDED
    store.drop(JOBSET, of("new"))
    store.put(JOBSET, of("somebody"))
    monkeypatch.setattr(job_store, "FOLLOWS", 0.0)
    status = diagnose(store.job_view("job", frozenset()), time.time())
    assert status.phase == Phase.SUCCEEDED, "as it was seen to end"


def test_a_stranger_in_the_place_of_a_job_that_was_met() -> None:
    store = JobStore("ns")
    store.record(record("run"))
    store.put(JOBSET, of("run", "StartupPolicyInProgress"))
    store.drop(JOBSET, of("run", "StartupPolicyInProgress"))
    store.put(JOBSET, of("somebody"))
    status = diagnose(store.job_view("job", frozenset()), time.time())
    assert status.phase == Phase.DELETED and "the JobSet of that name is another one" in status.message
