"""Deleting in the foreground and waiting, bounded, until it is done; and saying what holds it. A TrainJob goes first, in the
background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.kube.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, JOB, NAMESPACE, POD, Kind
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.values.accessors import rows
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record, belongs, find

DELETE_SECONDS = 120.0
"""How long a deletion may take, besides the grace period of the pods that it ends."""
LINGER_SECONDS = 10.0
"""How long a watch of departures stays open when nobody waits."""
MEND = "mend that, and run the same command again: what has been asked for goes on meanwhile"
_FOREGROUND = "foregroundDeletion"
_POLL = 0.25


class Departures:
    """Tells when objects of one kind and namespace are gone: one watch for all who wait, open while somebody does.

    labels: which objects. run: the uid of the record of an object's job, by which it is called here.
    """

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
        """Whether what belongs to the record with that uid is gone within that time. asked: when its deletion was asked for
        (monotonic): what goes after the watch has begun is seen by it, and what went before is missing in its first list."""
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
                self._tell({each["run"] for each in found}, begun)
                for event in self._client.watch(*self._place, version, labels=self._labels, seconds=60):
                    if event.get("type") == "DELETED":
                        self._tell_gone(self._run(event["object"]))
                    if self._over():
                        return
                pause = 0.2
            except (ApiError, Unreachable, KeyError):
                time.sleep(pause)
                pause = min(pause * 2, 5.0)
            if self._over():
                return

    def _over(self) -> bool:
        with self._changed:
            if self._waiting == 0 and time.monotonic() - self._left > LINGER_SECONDS:
                self._running = False
            return not self._running

    def _tell(self, present: set[str], begun: float) -> None:
        with self._changed:
            self._present = begun, present
            self._changed.notify_all()

    def _tell_gone(self, uid: str) -> None:
        with self._changed:
            self._gone.add(uid)
            self._changed.notify_all()


def record_departures(client: Client, namespace: str) -> Departures:
    """Of records."""
    return Departures(client, namespace, CONFIG_MAP, SELECTOR, lambda found: str(found["metadata"]["uid"]))


def job_departures(client: Client, namespace: str, kind: Kind) -> Departures:
    """Of jobs."""
    return Departures(
        client,
        namespace,
        kind,
        marks.JOB,
        lambda found: str(found["metadata"].get("annotations", {}).get(marks.RECORD)),
    )


def held(client: Client, namespace: str, name: str) -> tuple[str, float]:
    """What keeps a job from going, in words, and the longest grace period in seconds of the pods that are still ending."""
    pods, _ = client.list(POD, namespace, labels=_of_jobset(name))
    grace = max((float(p["metadata"].get("deletionGracePeriodSeconds") or 0) for p in pods), default=0.0)
    said = [_finalizers(kind.where(namespace, name), client.get(kind, namespace, name)) for kind in (TRAIN_JOB, JOBSET)]
    said += [_finalizers(POD.where(namespace, p["metadata"]["name"]), p) for p in pods]
    ending = [p for p in pods if p["metadata"].get("deletionTimestamp")]
    if ending:
        nodes = sorted({str(p["spec"].get("nodeName")) for p in ending})
        said.append(f"{len(ending)} pods are still ending on {', '.join(nodes[:5])}")
    elif pods:
        said.append(
            f"{len(pods)} pods are not being deleted: is the garbage collector (kube-controller-manager) running?"
        )
    if (space := client.get(NAMESPACE, "", namespace)) and space["metadata"].get("deletionTimestamp"):
        said.append(f"the namespace {namespace} is being deleted as well")
    found = "; ".join(dict.fromkeys(s for s in said if s))
    return (
        found or "nothing is left that would hold it: is the garbage collector (kube-controller-manager) running?",
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
    """Asks for the deletion of a record, and with it of the job, if it is ours at that moment. Returns the record as it was then,
    ours or not; None: there is none. known: the record as it was seen before."""
    found = known if known is not None and mine(known) else find(client, namespace, name)
    while found is not None and mine(found):
        if client.delete(CONFIG_MAP, namespace, name, uid=found.uid, version=found.version):
            break
        found = find(client, namespace, name)  # somebody has changed it since it was read: another owner may have it
    return found


def end_train_jobs(client: Client, records: Iterable[Record]) -> None:
    """Deletes the TrainJobs of records, and waits until they and their Pods are gone. Raises TargetFault.

    With its record, a TrainJob would go in the foreground, after its JobSet, which Trainer makes anew as long as there is the
    TrainJob: the training would start again.
    """
    asked = [each for each in records if each.kind is TRAIN_JOB]
    for each in asked:
        client.delete_if(TRAIN_JOB, each.namespace, each.name, partial(belongs, run=each.uid))
    for each in asked:
        await_gone(client, partial(_end, client, each), each.namespace, each.name)


def _end(client: Client, ending: Record, seconds: float) -> bool:
    """Whether a TrainJob and what was made of it are gone within that time."""
    deadline = time.monotonic() + seconds
    while _is_left(client, ending):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _is_left(client: Client, ending: Record) -> bool:
    namespace, name = ending.namespace, ending.name
    if (job := client.get(TRAIN_JOB, namespace, name)) is not None:
        return belongs(job, ending.uid)
    if (jobset := client.get(JOBSET, namespace, name)) is not None:
        return any(owner.get("kind") == TRAIN_JOB.kind for owner in rows(jobset["metadata"].get("ownerReferences")))
    # Makers before what they make: nothing can come after the last look.
    return any(client.list(kind, namespace, labels=_of_jobset(name), whole=False)[0] for kind in (JOB, POD))


def _of_jobset(name: str) -> str:
    return f"jobset.sigs.k8s.io/jobset-name={name}"


def await_gone(client: Client, wait: Callable[[float], bool], namespace: str, name: str) -> None:
    """Waits for what has been asked to go. wait: seconds -> whether it is gone by then. Raises TargetFault that says what holds
    it."""
    if wait(DELETE_SECONDS):
        return
    why, grace = held(client, namespace, name)
    if grace and wait(grace):
        return
    why, _ = held(client, namespace, name)
    where = f"{namespace}/{name}"
    raise TargetFault(Problem(where, f"is not gone after {DELETE_SECONDS + grace:.0f} s: {why}", MEND))


def sweepable(label: str) -> str:
    """Label selector of the records of a stack and target."""
    return f"{SELECTOR},{marks.STACK}={label}"
