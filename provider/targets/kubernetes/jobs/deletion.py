"""Deletes jobs and waits, with a time limit, until they are gone; explains what blocks a deletion.

Objects are deleted in the foreground; a TrainJob is deleted first, in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, JOB, NAMESPACE, POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import mappings
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record, belongs, find
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

DELETE_SECONDS = 120.0
"""Time limit of a deletion, plus the grace period of its pods."""
LINGER_SECONDS = 10.0
"""How long an unused watch stays open."""
HINT = "fix this and run the command again; the deletion continues in the background"
_FOREGROUND = "foregroundDeletion"
_POLL = 0.25


class DeletionWatch:
    """Waits for the deletion of objects of one kind and namespace; all waiting threads share one watch."""

    def __init__(
        self, client: Client, namespace: str, kind: Kind, labels: str, run: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._client = client
        self._place = kind, namespace
        self._labels = labels
        self._run = run
        self._changed = threading.Condition()
        self._waiting = 0
        self._left = 0.0
        self._running = False
        self._gone: set[str] = set()
        self._present: tuple[float, set[str]] = (0.0, set())

    def wait(self, uid: str, asked: float, seconds: float) -> bool:
        """Return whether the objects of a record are gone within the time limit.

        Args:
            asked: When the deletion was requested (`time.monotonic`). The watch reports later deletions; objects that were
                deleted before it began are missing in its first list.
        """
        with self._changed:
            self._waiting += 1
            if not self._running:
                self._running = True
                threading.Thread(target=self._watch, name="departures", daemon=True).start()
            try:
                return self._changed.wait_for(lambda: self._is_gone(uid, asked), seconds)
            finally:
                self._waiting -= 1
                self._left = time.monotonic()

    def _is_gone(self, uid: str, asked: float) -> bool:
        listed, present = self._present
        return uid in self._gone or (listed > asked and uid not in present)

    def _watch(self) -> None:
        pause = 0.2
        while True:
            try:
                begun = time.monotonic()
                found, version = self._client.list(
                    *self._place, labels=self._labels, keep=lambda each: {"run": self._run(each)}
                )
                self._report({each["run"] for each in found}, begun)
                for event in self._client.watch(*self._place, version, labels=self._labels, seconds=60):
                    if event.get("type") == "DELETED":
                        self._report_gone(self._run(event["object"]))
                    if self._is_deleted():
                        return
                pause = 0.2
            except (TrainerError, KeyError):
                time.sleep(pause)
                pause = min(pause * 2, 5.0)
            if self._is_deleted():
                return

    def _is_deleted(self) -> bool:
        with self._changed:
            if self._waiting == 0 and time.monotonic() - self._left > LINGER_SECONDS:
                self._running = False
            return not self._running

    def _report(self, present: set[str], begun: float) -> None:
        with self._changed:
            self._present = begun, present
            self._changed.notify_all()

    def _report_gone(self, uid: str) -> None:
        with self._changed:
            self._gone.add(uid)
            self._changed.notify_all()


def watch_record_deletions(client: Client, namespace: str) -> DeletionWatch:
    return DeletionWatch(client, namespace, CONFIG_MAP, SELECTOR, lambda found: str(found["metadata"]["uid"]))


def watch_job_deletions(client: Client, namespace: str, kind: Kind) -> DeletionWatch:
    """Return the watch for the deletion of JobSets or TrainJobs."""
    return DeletionWatch(
        client,
        namespace,
        kind,
        owner_labels.JOB,
        lambda found: str(found["metadata"].get("annotations", {}).get(owner_labels.RECORD)),
    )


def blocking_reason(client: Client, namespace: str, name: str) -> tuple[str, float]:
    """Return what blocks the deletion of a job, and the longest grace period in seconds of its terminating Pods."""
    pods, _ = client.list(POD, namespace, labels=f"{JOBSET_NAME}={name}")
    grace = max((float(p["metadata"].get("deletionGracePeriodSeconds") or 0) for p in pods), default=0.0)
    reasons: list[str] = []
    for kind in (TRAIN_JOB, JOBSET):
        reasons.append(_finalizers(kind.where(namespace, name), client.get(kind, namespace, name)))
    reasons += [_finalizers(POD.where(namespace, p["metadata"]["name"]), p) for p in pods]
    ending = [p for p in pods if p["metadata"].get("deletionTimestamp")]
    if ending:
        nodes = sorted({str(p["spec"].get("nodeName")) for p in ending})
        reasons.append(f"{len(ending)} pods are still ending on {', '.join(nodes[:5])}")
    elif pods:
        reasons.append(
            f"{len(pods)} pods are not being deleted: is the garbage collector (kube-controller-manager) running?"
        )
    space = client.get(NAMESPACE, "", namespace)
    if space and space["metadata"].get("deletionTimestamp"):
        reasons.append(f"the namespace {namespace} is being deleted as well")
    found = "; ".join(dict.fromkeys(filter(None, reasons)))
    return (
        found or "no finalizer or Pod blocks the deletion: is the garbage collector (kube-controller-manager) running?",
        grace,
    )


def _finalizers(where: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    meta = found["metadata"]
    others = [f for f in meta.get("finalizers") or [] if f != _FOREGROUND]
    if others:
        return f"{where} has the finalizer {', '.join(others)}, which its owner has to remove"
    if not meta.get("deletionTimestamp"):
        return f"{where} is not being deleted yet: is the garbage collector (kube-controller-manager) running?"
    return ""


def delete_record(
    client: Client, namespace: str, name: str, mine: Callable[[Record], bool], known: Record | None = None
) -> Record | None:
    """Delete a record, and with it the job, if `mine` accepts the record. Return the record as it was last read, also if it
    belongs to another owner; None if not found."""
    found = known
    if found is None or not mine(found):
        found = find(client, namespace, name)
    while found is not None and mine(found):
        if client.delete(CONFIG_MAP, namespace, name, uid=found.uid, version=found.version):
            break
        found = find(client, namespace, name)  # the record has changed since it was read, and may have another owner
    return found


def end_train_jobs(client: Client, records: Iterable[Record]) -> None:
    """Delete the TrainJobs of records, and wait until the TrainJobs and their Pods are gone.

    Deleted through its record, a TrainJob would be deleted in the foreground, after its JobSet. Trainer recreates the JobSet as
    long as the TrainJob exists, so the training would start again.
    """
    asked = [each for each in records if each.kind is TRAIN_JOB]
    for each in asked:
        client.delete_if(TRAIN_JOB, each.namespace, each.name, partial(belongs, run=each.uid))
    for each in asked:
        poll_until_gone(client, partial(_is_left, client, each), each.namespace, each.name)


def _is_left(client: Client, ending: Record) -> bool:
    """Return whether a TrainJob or an object created from it exists."""
    namespace, name = ending.namespace, ending.name
    job = client.get(TRAIN_JOB, namespace, name)
    if job is not None:
        return belongs(job, ending.uid)
    jobset = client.get(JOBSET, namespace, name)
    if jobset is not None:
        return any(owner.get("kind") == TRAIN_JOB.kind for owner in mappings(jobset["metadata"].get("ownerReferences")))
    # Owners are listed before what they create, so nothing can appear after the last request.
    return any(client.list(kind, namespace, labels=f"{JOBSET_NAME}={name}", whole=False)[0] for kind in (JOB, POD))


def await_gone(client: Client, wait: Callable[[float], bool], namespace: str, name: str) -> None:
    """Wait until an object is gone whose deletion was requested. wait: Returns whether the object is gone after that many
    seconds."""
    if wait(DELETE_SECONDS):
        return
    why, grace = blocking_reason(client, namespace, name)
    if grace and wait(grace):
        return
    why, _ = blocking_reason(client, namespace, name)
    where = f"{namespace}/{name}"
    raise TargetFault(Problem(where, f"is not gone after {DELETE_SECONDS + grace:.0f} s: {why}", HINT))


def poll_until_gone(client: Client, is_left: Callable[[], bool], namespace: str, name: str) -> None:
    """Wait as `await_gone` does, by asking again and again whether the object exists."""

    def wait(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while is_left():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True

    await_gone(client, wait, namespace, name)


def delete_job(client: Client, found: Record) -> None:
    """Delete the JobSet or TrainJob of a record, and return when it is gone."""
    if found.kind is TRAIN_JOB:
        end_train_jobs(client, [found])
        return
    mine = partial(belongs, run=found.uid)
    client.delete_if(JOBSET, found.namespace, found.name, mine, propagation="Foreground")

    def is_left() -> bool:
        job = client.get(JOBSET, found.namespace, found.name)
        return job is not None and belongs(job, found.uid)

    poll_until_gone(client, is_left, found.namespace, found.name)


def sweep_selector(label: str) -> str:
    """Return the label selector of the records with a stack's label."""
    return f"{SELECTOR},{owner_labels.STACK}={label}"
