"""The Kubernetes target: jobs as JobSets, or TrainJobs, of one cluster.

Called by the dynamic provider, by the program's watch and by the command line; the cluster holds all state, so any process
may call. Every call may be repeated after a crash at any place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pulumi_trainer.provider.admission.known_queues import Queues
from pulumi_trainer.provider.api.errors import Conflict, Invalid, Problem, TargetFault
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.api.submission import Consumer, Draft, Submission

from . import (
    adoption,
    apply,
    consumers,
    deletion,
    draining,
    drift,
    kinds,
    marks,
    queues,
    record,
    review,
    runtimes,
    volumes,
)
from .client import ApiError, Client
from .deletion import Departures, await_gone, delete_record, held, job_departures, record_departures, sweepable
from .kinds import CONFIG_MAP, JOBSET, POD_GROUP, SECRET, TRAIN_JOB
from .overview import Names, Overview
from .record import Record

Document = dict[str, Any]

LEAVING_SECONDS = 60.0
"""How long a creation waits for an earlier job of the same name that is on its way out."""
LATE_SECONDS = 1.0
"""How much later than its record the watch may tell of a job's end."""


class KubernetesTarget:
    """Jobs of one cluster. cluster: tells its identity, the UID of its namespace kube-system. mode: jobset or trainer.
    namespace: of the stack's jobs, which a sweep looks through."""

    def __init__(
        self, client: Client, *, cluster: Callable[[], str], mode: str = "jobset", namespace: str = "default"
    ) -> None:
        self.client = client
        self.mode = mode
        self.namespace = namespace
        self._cluster = cluster
        self._departures: dict[tuple[str, str], Departures] = {}
        self._overviews: dict[str, Overview] = {}
        self._taken: dict[str, Names] = {}
        self._lock = threading.Lock()

    @property
    def _kind(self) -> kinds.Kind:
        return TRAIN_JOB if self.mode == "trainer" else JOBSET

    def identity(self) -> dict[str, str]:
        """Which cluster this is: the UID of its namespace kube-system."""
        return {"cluster": self._cluster()}

    def queues(self, namespace: str, queue: str) -> Queues:
        """What is known of Kueue's queues here. queue: a LocalQueue, such as that of a job. Raises TargetFault."""
        self.at_hand(namespace)
        return queues.known(self.client, namespace, queue)

    def review(self, draft: Draft) -> tuple[list[Problem], list[Problem]]:
        """(refusals, warnings) about a job that a program is about to submit; nothing is asked for one that is unchanged."""
        namespace = draft.namespace if isinstance(draft.namespace, str) else ""
        try:
            self.at_hand(namespace)
        except TargetFault as fault:
            return [], [review.unseen(fault)]
        known = self.overview(namespace).record(draft.name) if namespace else None
        return review.review(self.client, draft, known)

    def at_hand(self, namespace: str = "") -> Client:
        """For what a program asks: a client of little patience. Raises TargetFault at once where the cluster has not answered
        before."""
        overview = self.overview(namespace or self.namespace)
        overview.record("")
        if overview.fault is not None and not isinstance(overview.fault, ApiError):
            raise overview.fault
        return self.client.within(review.PATIENCE)

    def queue_versions(self) -> dict[str, list[str]]:
        """Version of Kueue's API -> the plurals that the cluster has in it."""
        return draining.versions(self.client, review.PATIENCE)

    def queue_objects(self, kind: str, version: str) -> list[Document]:
        """All of a kind of Kueue's that the cluster has, as far as we may list them."""
        return queues.there(self.client, kind, version)

    def queue_work(self, name: str, version: str) -> dict[str, list[str]]:
        """LocalQueue of a ClusterQueue -> what its jobs hold, or that they wait."""
        return draining.work(self.client.within(review.PATIENCE), name, version)

    def lacks_namespace(self, namespace: str) -> bool:
        """Whether it is certain that there is no such namespace."""
        return queues.lacks_namespace(self.client, namespace)

    def reopen_queue(self, name: str, version: str) -> None:
        """Takes back what a deletion of a ClusterQueue that was given up has left."""
        draining.reopen(self.client, name, version)

    def release_queue(self, name: str, version: str, *, drain: bool, seconds: float) -> list[str]:
        """Makes sure that a ClusterQueue has no work, or raises Refused, TargetFault; what to tell."""
        return draining.release(self.client, name, version, drain=drain, seconds=seconds)

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Accepts a job. Safe to repeat: what is there with the same owner and digest is taken over as it is.

        adopt: take over a job of another owner, or one that somebody made by hand, if the program says what it is.
        Raises Invalid, Conflict, TargetFault.
        """
        promised = [f"{SECRET.kind}/{name}" for name in submission.secrets]
        if absent := review.missing(self.client, submission.objects, submission.namespace, promised):
            raise Invalid(*absent)
        owner, fresh = self._claim(submission, adopt)
        kind, name = kinds.of(submission.main), submission.name
        alone = fresh and not adopt and not self._names(submission.namespace).may_hold(name)
        found = None if alone else self._settled(kind, submission.namespace, name)
        if found is None and (owner.terminal or (owner.ttl and owner.sent)):
            return owner.without_job()
        if found is not None and not _made_by(found, owner.uid):
            try:
                _check_foreign(found, kind, submission, adopt)
            except Conflict:
                self.client.delete(CONFIG_MAP, submission.namespace, name, uid=owner.uid)
                raise
        force = found is not None and adopt
        answer = apply.send(self.client, submission, owner, live=found, force=force)
        if found is None and (not fresh or owner.ttl):
            self._write(submission, owner, remade=not fresh)
        return _status(owner, kind, answer)

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:
        """Changes what may change in place. force: take the fields back from who has changed them since.

        Raises TargetFault if there is no such job, Conflict if it is not ours or somebody else holds a field.
        """
        where = f"{submission.namespace}/{submission.name}"
        owner = record.find(self.client, submission.namespace, submission.name)
        if owner is None or owner.deleting or not owner.ours:
            raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
        if owner.owner != submission.owner:
            raise Conflict(Problem(where, "belongs to another program", "give the TrainJob another name"))
        kind = kinds.of(submission.main)
        found = self.client.get(kind, submission.namespace, submission.name)
        if found is None and (owner.terminal or owner.ttl):
            status = owner.without_job()
        else:
            if force and found is not None and (change := drift.additions(owner.applied, found)):
                only = {"metadata": {"uid": found["metadata"]["uid"]}}
                self.client.patch(kind, submission.namespace, submission.name, {**only, **change})
            status = _status(owner, kind, apply.send(self.client, submission, owner, live=found, force=force))
        self._write(submission, owner, remade=found is None)
        status.digest = submission.digest
        return status

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """The job now; None: nothing is known of it. A job that has ended is written down in its record."""
        from pulumi_trainer.provider.lifecycle.diagnosis import diagnose

        from .seen import snapshot

        owner = record.find(self.client, namespace, name)
        if owner is None or not owner.ours:
            return None
        status = diagnose(snapshot(self.client, namespace, name, owner), time.time())
        status.uid, status.owner, status.digest, status.created = owner.uid, owner.owner, owner.digest, owner.created
        status.output = owner.output
        record.write_end(self.client, owner, status)
        return status

    def glance(self, namespace: str, name: str, uid: str, phase: str) -> JobStatus | None:
        """The job as the overview has it; as the stack's state has it where that run is not in there (yet, or because the
        cluster is out of reach)."""
        overview = self.overview(namespace)
        status = overview.status(name) if overview.holds(name, uid) else None
        if status is not None and status.uid == uid:
            return status
        return JobStatus(name=name, namespace=namespace, uid=uid, phase=phase or Phase.PENDING.value)

    def vanished(self, namespace: str, name: str, digest: str) -> str:
        """A mark, another one each time, of a job with that digest which somebody has deleted before it ended; empty: no."""
        return self.overview(namespace).vanished(name, digest)

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        """Path -> value now of what somebody else has changed in a job that has not ended; what controllers change as part
        of their work is left out."""
        owner = record.find(self.client, namespace, name)
        if owner is None or owner.terminal or not owner.applied:
            return {}
        live = self.client.get(owner.kind, namespace, name)
        return drift.changed(owner.applied, live) if live is not None else {}

    def delete(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Ends the job and removes all its objects; returns when they are gone. Safe to repeat.

        uid: only this run of it. Raises TargetFault that says what holds it.
        """
        run = uid
        if not run:
            owner = record.find(self.client, namespace, name)
            if owner is None or not owner.ours:
                return
            run = owner.uid
        asked = time.monotonic()
        if delete_record(self.client, self._records_leaving(namespace), namespace, name, run):
            self._delete_late(namespace, name, run, asked)
        else:
            self._delete_orphans(namespace, name, run)

    def sweep(self, label: str) -> list[str]:
        """Deletes all jobs of the namespace that carry the stack's label, and its volumes that nobody mounts.

        Returns their names. It waits for all of them together.
        """
        namespace = self.namespace
        found, _ = self.client.list(CONFIG_MAP, namespace, labels=sweepable(label))
        left = [r for r in map(Record.of, found) if not r.retained]
        asked = time.monotonic()
        for each in left:
            self.client.delete(CONFIG_MAP, namespace, each.name, uid=each.uid)
        for each in left:
            await_gone(self.client, self._records_leaving(namespace), namespace, each.name, each.uid, asked)
            self._delete_late(namespace, each.name, each.uid, asked)
        return [f"{namespace}/{r.name}" for r in left] + volumes.sweep(self.client, namespace, label)

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """A PersistentVolumeClaim: {"path", "generation"}. Safe to repeat; data stays."""
        return volumes.create(self.client, namespace, name, owner, sweep, claim or {})

    def update_volume(self, namespace: str, name: str, claim: Mapping[str, Any]) -> None:
        """Another size, and whether a sweep leaves it alone."""
        volumes.update(self.client, namespace, name, claim)

    def volume(self, namespace: str, name: str) -> dict[str, str] | None:
        """{"path", "generation"}, or None."""
        return volumes.read(self.client, namespace, name)

    def delete_volume(self, namespace: str, name: str, generation: str) -> None:
        """With all its data. Raises Refused while an unfinished job mounts it."""
        volumes.delete(self.client, namespace, name, generation)

    def review_volume(self, namespace: str, name: str, claim: Mapping[str, Any]) -> tuple[list[Problem], list[Problem]]:
        """(refusals, warnings) about a claim that is to be made."""
        return volumes.review(self.at_hand(namespace), namespace, name, claim)

    def apply_runtime(self, document: Mapping[str, Any], owner: str, sweep: str) -> str:
        """Makes or updates a ClusterTrainingRuntime or TrainingRuntime, and tells its uid. Raises Conflict, Invalid."""
        return runtimes.apply(self.client, document, owner, sweep)

    def runtime(self, kind: str, namespace: str, name: str) -> Document | None:
        """The runtime as the cluster has it; None if it has none of that name."""
        return runtimes.read(self.client, kind, namespace, name)

    def delete_runtime(self, document: Mapping[str, Any], uid: str, *, force: bool = False) -> None:
        """Raises Refused while an unfinished TrainJob was made from it, unless `force`."""
        runtimes.delete(self.client, document, uid, force=force)

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """The jobs that were made from a runtime, and what could not be seen."""
        return consumers.consumers(self.at_hand(), runtime, self.namespace)

    def held(self, namespace: str, name: str) -> tuple[str, str]:
        """Name and release of the runtime that the job there was made from; empty where that is not known."""
        record = self.overview(namespace).record(name)
        return (record.runtime, record.release) if record is not None else ("", "")

    def overview(self, namespace: str) -> Overview:
        """The jobs of a namespace at one glance."""
        kind = self._kind
        with self._lock:
            return self._overviews.setdefault(namespace, Overview(self.client, namespace, kind))

    def _names(self, namespace: str) -> Names:
        with self._lock:
            return self._taken.setdefault(namespace, Names(self.client, namespace, self._kind))

    def _records_leaving(self, namespace: str) -> Departures:
        with self._lock:
            return self._departures.setdefault((namespace, ""), record_departures(self.client, namespace))

    def _jobs_leaving(self, namespace: str) -> Departures:
        kind = self._kind
        with self._lock:
            return self._departures.setdefault((namespace, kind.kind), job_departures(self.client, namespace, kind))

    def _write(self, submission: Submission, owner: Record, *, remade: bool) -> None:
        """What the record says, after the job itself: a crash between them repeats what was done. That the job has been sent
        tells one that its TTL has removed from one that was never made. remade: somebody had deleted the job; the record's
        version then differs from the one that told so."""
        data = {**record.document(submission)["data"], record.SENT: str(time.time()) if remade else "0"}
        change = {"metadata": {"uid": owner.uid, "annotations": record.notes(submission)}, "data": data}
        self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change)

    def _claim(self, submission: Submission, adopt: bool) -> tuple[Record, bool]:
        """The record of this run, and whether it was made now; else an earlier attempt has made it. It is what keeps a
        second creator out, as a server creates a name once."""
        where = f"{submission.namespace}/{submission.name}"
        deadline = time.monotonic() + LEAVING_SECONDS
        document = record.document(submission)
        while True:
            try:
                return Record.of(self.client.create(CONFIG_MAP, document)), True
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise apply.told(error, CONFIG_MAP, document) from None
            found = record.find(self.client, submission.namespace, submission.name)
            if found is not None and not found.deleting:
                return self._taken_over(found, submission, adopt), False
            if found is not None:
                if time.monotonic() > deadline:
                    why, _ = held(self.client, submission.namespace, submission.name)
                    raise TargetFault(Problem(where, f"an earlier job of that name is still going: {why}"))
                departures = self._records_leaving(submission.namespace)
                departures.wait(found.uid, deadline - time.monotonic(), time.monotonic())

    def _taken_over(self, found: Record, submission: Submission, adopt: bool) -> Record:
        where = f"{submission.namespace}/{submission.name}"
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.created))
        if not found.ours:
            why = f"a ConfigMap of that name exists since {since} and is not a record of a job"
            raise Conflict(Problem(where, why, "give the TrainJob another name"))
        here = not found.stack or found.stack == submission.sweep
        ours = found.owner == submission.owner
        if here and ours and found.digest == submission.digest:
            return found
        if here and ours:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt and found.stack and here:
            why = f"exists since {since}, from an `up` of this stack that was cut off or from another TrainJob of that name"
            mend = (
                "give the TrainJob another name, or end that job: kubectl delete configmap --cascade=foreground"
                f" -n {submission.namespace} {submission.name}"
            )
            raise Conflict(Problem(where, why, mend))
        kept = ours and found.retained and found.digest == submission.digest
        if not adopt and not kept:
            alike = found.stack.partition("-")[0] == submission.sweep.partition("-")[0] != ""
            why = f"exists since {since} and belongs to {marks.NAMESAKE if alike else 'another program'}"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        kind = kinds.of(submission.main)
        job = self.client.get(kind, submission.namespace, submission.name)
        if job is not None and not kept:
            adoption.check(job, submission, kind)
        change = {
            "metadata": {
                "resourceVersion": found.version,
                "annotations": record.notes(submission),
                "labels": record.labels(submission),
            }
        }
        return Record.of(self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change))

    def _settled(self, kind: kinds.Kind, namespace: str, name: str) -> Document | None:
        """The job of that name, if there is one; one that is on its way out is waited for."""
        deadline = time.monotonic() + LEAVING_SECONDS
        while True:
            found = self.client.get(kind, namespace, name)
            if found is None or not found["metadata"].get("deletionTimestamp"):
                return found
            if time.monotonic() > deadline:
                why, _ = held(self.client, namespace, name)
                raise TargetFault(Problem(kind.where(namespace, name), f"an earlier one is still going: {why}"))
            time.sleep(0.25)

    def _delete_late(self, namespace: str, name: str, run: str, asked: float) -> None:
        """A job that the garbage collector did not know to be the record's, as its kind is new in this cluster."""
        if self._jobs_leaving(namespace).wait(run, LATE_SECONDS, asked):
            return
        kind = self._kind
        deadline = time.monotonic() + deletion.DELETE_SECONDS
        while (found := self.client.get(kind, namespace, name)) is not None and _made_by(found, run):
            if not found["metadata"].get("deletionTimestamp"):
                self.client.delete(kind, namespace, name, uid=str(found["metadata"]["uid"]))
            elif time.monotonic() > deadline:
                why, _ = held(self.client, namespace, name)
                raise TargetFault(Problem(kind.where(namespace, name), f"is not gone: {why}", deletion.MEND))
            else:
                time.sleep(0.25)

    def _delete_orphans(self, namespace: str, name: str, run: str) -> None:
        """What is left of a job whose record somebody has deleted alone."""
        for kind in (TRAIN_JOB, JOBSET, POD_GROUP, CONFIG_MAP, SECRET):
            try:
                found, _ = self.client.list(kind, namespace, labels=f"{marks.JOB}={name}")
            except ApiError as error:
                if error.code == 404:  # no such kind in this cluster
                    continue
                raise
            for each in found:
                if (each["metadata"].get("annotations") or {}).get(marks.RECORD) == run:
                    self.client.delete(kind, namespace, each["metadata"]["name"], uid=each["metadata"]["uid"])


def _check_foreign(found: Document, kind: kinds.Kind, submission: Submission, adopt: bool) -> None:
    """A job that nobody's record owns: made by hand, or by another tool."""
    where = kind.where(submission.namespace, submission.name)
    controller = next((o for o in found["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    if controller:
        why = f"exists and belongs to {controller.get('kind')} {controller.get('name')}"
        raise Conflict(Problem(where, why, "give the TrainJob another name"))
    if not adopt:
        raise Conflict(adoption.unasked(found, where))
    adoption.check(found, submission, kind)


def _made_by(job: Mapping[str, Any], run: str) -> bool:
    return any(o.get("uid") == run for o in job["metadata"].get("ownerReferences") or [])


def _status(owner: Record, kind: kinds.Kind, answer: Document) -> JobStatus:
    """What the server's answer to an apply says about the job."""
    from pulumi_trainer.provider.lifecycle.status import observed

    now = observed(answer if kind is JOBSET else None, answer if kind is TRAIN_JOB else None)
    return owner.status(now.phase, now.reason, now.message)
