"""The Kubernetes target: jobs as JobSets, or TrainJobs, of one cluster.

Every call may be repeated after a crash at any place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, of
from pulumi_trainer.provider.api.status import (
    JobStatus,
    Loss,
    Owner,
    Phase,
    Presence,
)
from pulumi_trainer.provider.api.submission import (
    Consumer,
    Draft,
    Submission,
    Work,
    main_key,
)
from pulumi_trainer.provider.kube.cache.discovery import PATIENCE
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, SECRET
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Invalid,
    Problem,
    TargetFault,
)
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import (
    adoption,
    apply,
    consumers,
    deletion,
    drift,
    record,
    runtimes,
)
from pulumi_trainer.provider.targets.kubernetes.jobs.deletion import (
    Departures,
    await_gone,
    delete_record,
    end_train_jobs,
    held,
    job_departures,
    record_departures,
    sweepable,
)
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.overview import Names, Overview
from pulumi_trainer.provider.targets.kubernetes.preflight import multikueue, review
from pulumi_trainer.provider.targets.kubernetes.queues import draining, queues
from pulumi_trainer.provider.targets.kubernetes.storage import claims

Document = dict[str, Any]
T = TypeVar("T")

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
            return multikueue.refusals(draft), [review.unseen(fault)]
        known = self.overview(namespace).record(draft.name) if namespace else None
        status = self.overview(namespace).status(draft.name) if known is not None else None
        unfinished = status is not None and not status.terminal
        absent = known is not None and self.overview(namespace).lacks_job(draft.name)
        return review.review(self.client, draft, known, unfinished=unfinished and not absent, absent=absent)

    def at_hand(self, namespace: str = "") -> Client:
        """For what a program asks: a client of little patience. Raises TargetFault at once where the cluster has not answered
        before."""
        overview = self.overview(namespace or self.namespace)
        overview.record("")
        if overview.fault is not None and not isinstance(overview.fault, ApiError):
            raise overview.fault
        return self.client.within(PATIENCE)

    def pod_group(self, api_version: str, namespace: str, name: str) -> Document | None:
        """The PodGroup of that name, of the scheduler plugins or Volcano's; None: there is none."""
        kind = of({"apiVersion": api_version, "kind": "PodGroup"})
        return self.at_hand(namespace).get(kind, namespace, name)

    def queue_versions(self) -> dict[str, list[str]]:
        """Version of Kueue's API -> the plurals that the cluster has in it."""
        return draining.versions(self.client, PATIENCE)

    def queue_objects(self, kind: str, version: str) -> list[Document]:
        """All of a kind of Kueue's that the cluster has, as far as we may list them."""
        return queues.there(self.client, kind, version)

    def queue_work(self, name: str, version: str) -> list[Work]:
        """What the jobs of a ClusterQueue hold, or that they wait."""
        return draining.work(self.client.within(PATIENCE), name, version)

    def lacks_namespace(self, namespace: str) -> bool:
        """Whether it is certain that there is no such namespace."""
        return queues.lacks_namespace(self.client, namespace)

    def reopen_queue(self, name: str, version: str) -> None:
        """Takes back what a deletion of a ClusterQueue that was given up has left."""
        draining.reopen(self.client, name, version)

    def release_queue(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        stack: str = "",
        beside: Sequence[Mapping[str, str]] = (),
    ) -> list[str]:
        """Makes sure that a ClusterQueue of that stack has no work, or raises Refused, TargetFault; what to tell. beside: what is
        deleted after it."""
        draining.check_owner(self.client, beside, stack)
        return draining.release(self.client, name, version, drain=drain, seconds=seconds, stack=stack)

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Accepts a job. Safe to repeat: what is there with the same owner and digest is taken over as it is.

        adopt: take over a job of another owner, or one that somebody made by hand, if the program says what it is.
        Raises Invalid, Conflict, TargetFault.
        """
        promised = [f"{SECRET.kind}/{name}" for name in submission.secrets]
        if absent := review.missing(self.client, submission.objects, submission.namespace, promised):
            raise Invalid(*absent)
        owner, fresh = self._claim(submission, adopt)
        kind, name = of(submission.main), submission.name
        alone = fresh and not adopt and not self._names(submission.namespace).may_hold(name)
        found = None if alone else self._settled(kind, submission.namespace, name)
        if found is None and (owner.terminal or (owner.ttl and owner.sent)):
            return owner.without_job()
        if found is not None and not record.belongs(found, owner.uid) and not _outlived_record(found, submission):
            try:
                _check_foreign(found, kind, submission, adopt)
            except Conflict:
                self.client.delete(CONFIG_MAP, submission.namespace, name, uid=owner.uid, version=owner.version)
                raise
        if found is not None:
            live = {main_key(submission.objects): found, **self._beside(submission)}
            answer = self._send(submission, live, force=adopt)
        else:
            answer = apply.send(self.client, submission, owner)
        if found is None and (not fresh or owner.ttl):
            self._write(submission, owner, remade=not fresh)
        return _status(owner, kind, answer)

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:
        """Changes what may change in place. force: take the fields back from who has changed them since.

        Raises TargetFault if there is no such job, Conflict if it is not ours or somebody else holds a field.
        """
        live = self._live(submission)
        owner = self._own(submission)
        kind, found = of(submission.main), live.get(main_key(submission.objects))
        if found is None and (owner.terminal or owner.ttl):
            status = owner.without_job()
        elif found is None:
            status = _status(owner, kind, apply.send(self.client, submission, owner, live=live, force=force))
        else:
            if force and (change := drift.additions(owner.applied, found)):
                only = {"metadata": {part: found["metadata"][part] for part in ("uid", "resourceVersion")}}
                self.client.patch(kind, submission.namespace, submission.name, {**only, **change})
                live = self._live(submission)
            status = _status(owner, kind, self._send(submission, live, force=force))
        self._write(submission, owner, remade=found is None)
        status.digest = submission.digest
        return status

    def update_secrets(self, submission: Submission) -> None:
        """Changes the values of a job's Secrets and nothing else: Pods read them when they start. Raises as `update` does."""
        self._while_ours(
            submission,
            self._beside(submission),
            lambda owner, live: apply.send_secrets(self.client, submission, owner, live),
        )

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """The job now; None: nothing is known of it. A job that has ended is written down in its record."""
        from pulumi_trainer.provider.lifecycle.diagnosis import diagnose
        from pulumi_trainer.provider.targets.kubernetes.observe.seen import snapshot

        owner = record.find(self.client, namespace, name)
        if owner is None or not owner.ours:
            return None
        status = diagnose(snapshot(self.client, namespace, name, owner), time.time())
        status.uid, status.owner, status.digest, status.created = owner.uid, owner.owner, owner.digest, owner.created
        status.output, status.stack, status.program = owner.output, owner.stack, owner.program
        record.write_end(self.client, owner, status)
        return status

    def glance(self, namespace: str, name: str, uid: str, phase: str, owner: Owner) -> JobStatus | None:
        """The job as the overview has it; as the stack's state has it where that run is not in there (yet, or because the
        cluster is out of reach)."""

        def told(found: Record | JobStatus | None) -> bool:
            if found is None or found.uid == uid:
                return found is not None
            # Of the same stack it is the run of before: the overview is older than this one.
            return not owner.owns(found.whose) and found.whose.stack != owner.stack

        overview = self.overview(namespace)
        status = overview.status(name) if told(overview.known(name)) else None
        if status is not None and told(status):
            return status
        return JobStatus(
            name=name,
            namespace=namespace,
            uid=uid,
            phase=phase or Phase.PENDING.value,
            owner=owner.id,
            stack=owner.stack,
        )

    def seen(self, namespace: str, name: str, beside: Collection[str] = ()) -> Presence | None:
        """What there is of a job, without a request for it alone as long as it is there; None: that cannot be seen. beside:
        "Kind/name" of its other objects."""
        return self.overview(namespace).seen(name, beside)

    def check_adoption(self, submission: Submission) -> None:
        """Raises Conflict where a job of others is not what the program says, or is held by something else than a record."""
        kind = of(submission.main)
        client = self.client.within(PATIENCE)
        job = client.get(kind, submission.namespace, submission.name)
        found = record.find(client, submission.namespace, submission.name)
        if found is not None and found.owner != submission.owner:
            adoption.check(job, found.run, submission, kind)
        elif found is None and job is not None:
            _check_foreign(job, kind, submission, adopt=True)

    def holder(self, namespace: str, name: str) -> Owner | None:
        """Return who has a job of that name, without a stack if that has left it behind; None: nobody, as far as one list of
        all jobs tells."""
        if self.overview(namespace).known(name) is None:
            return None
        found = record.find(self.client.within(PATIENCE), namespace, name)
        if found is None or not found.ours or found.deleting:
            return None
        return replace(found.whose, stack="") if found.retained else found.whose

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        """Path -> value now of what somebody else has changed in a job that has not ended; what controllers change as part
        of their work is left out."""
        owner = record.find(self.client, namespace, name)
        if owner is None or owner.terminal or not owner.applied:
            return {}
        live = self.client.get(owner.kind, namespace, name)
        return drift.changed(owner.applied, live) if live is not None else {}

    def delete(self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None) -> Owner | None:
        """Ends the job and removes all its objects; returns when they are gone. Safe to repeat.

        uid: only this run of it. owner: only while it is theirs; whose it is by now is returned, and nothing is touched then.
        Raises TargetFault that says what holds it.
        """

        def mine(found: Record) -> bool:
            return found.ours and uid in ("", found.uid) and (owner is None or owner.owns(found.whose))

        asked = time.monotonic()
        known = self.overview(namespace).record(name) if uid else None
        if self.mode == "trainer":
            known = record.find(self.client, namespace, name)
            end_train_jobs(self.client, [known] if known is not None and mine(known) else [])
        found = delete_record(self.client, namespace, name, mine, known)
        if found is not None and mine(found):
            self._await_gone(found, asked)
            self._delete_late(namespace, name, found.uid, asked)
        elif found is not None and found.ours and owner is not None and not owner.owns(found.whose):
            return found.whose
        elif uid:
            self._delete_orphans(namespace, name, uid)
        return None

    def sweep(self, label: str, tell: Callable[[str], None] = lambda _: None) -> list[str]:
        """Deletes all jobs of the namespace that carry the stack's label, and its volumes that nobody mounts.

        Returns their names. It waits for all of them together. tell: called with size and age of a volume that goes.
        """
        namespace = self.namespace
        found, _ = self.client.list(CONFIG_MAP, namespace, labels=sweepable(label))

        def mine(each: Record) -> bool:
            return each.ours and each.stack == label and not each.retained

        asked = time.monotonic()
        records = [each for each in map(Record.of, found) if mine(each)]
        end_train_jobs(self.client, records)
        gone = [delete_record(self.client, namespace, each.name, mine, each) for each in records]
        left = [each for each in gone if each is not None and mine(each)]
        for each in left:
            self._await_gone(each, asked)
            self._delete_late(namespace, each.name, each.uid, asked)
        return [f"{namespace}/{r.name}" for r in left] + claims.sweep(self.client, namespace, label, tell)

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """A PersistentVolumeClaim: {"path", "generation"}. Safe to repeat; data stays."""
        return claims.create(self.client, namespace, name, owner, sweep, claim or {})

    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """Another size, and whether a sweep leaves it alone."""
        claims.update(self.client, namespace, name, generation, claim)

    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """{"path", "generation"}, and whose it is; None: there is none."""
        return claims.read(self.client, namespace, name)

    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss:
        """What has become of a volume that its owner has made before, without a request for it alone as long as it is there."""
        return self.overview(namespace).lost_claim(name, owner)

    def describe_volume(self, namespace: str, name: str) -> str:
        """Return size and age of a volume; empty if nothing can be in it."""
        return claims.describe(self.client, namespace, name)

    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str:
        """With all its data; whose another generation is is returned. One that an unfinished job mounts is left to it; returns
        that."""
        return claims.delete(self.client, namespace, name, generation)

    def review_volume(
        self, namespace: str, name: str, claim: Mapping[str, Any], job: str, owner: str, *, adopt: bool
    ) -> tuple[list[Problem], list[Problem]]:
        """(refusals, warnings) about a claim that is to be made. job: which mounts it. owner: who makes it. adopt: the job may
        have been made by others, and its claims with it."""
        client = self.at_hand(namespace)
        if (found := client.get(kinds.CLAIM, namespace, name)) is None:
            return claims.review(client, namespace, name, claim)
        taken, record = claims.taken(found, owner), self.overview(namespace).record(job)
        if record is None or not claims.is_of(found, record.whose):
            return taken, []
        # The URN of one's own job may be another one by now: its stack has been renamed.
        return [], taken if adopt else []

    def apply_runtime(self, document: Mapping[str, Any], owner: str, sweep: str) -> str:
        """Makes or updates a ClusterTrainingRuntime or TrainingRuntime, and tells its uid. Raises Conflict, Invalid."""
        return runtimes.apply(self.client, document, owner, sweep)

    def check_runtime(self, document: Mapping[str, Any], owner: str, sweep: str | None) -> None:
        """Raises Conflict where the cluster has a runtime of that name that is not ours. sweep: None if it is not known yet."""
        runtimes.check(self.client, document, owner, sweep)

    def edited_runtime(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None:
        """Paths of what others have changed in a runtime, unless it is as `document` says; None if it is gone. applied: what it
        was made from. Raises Conflict where it is not ours, and TargetFault."""
        return runtimes.edited(self.at_hand(), document, applied, owner, sweep)

    def runtime(self, kind: str, namespace: str, name: str) -> Document | None:
        """The runtime as the cluster has it; None if it has none of that name."""
        return runtimes.read(self.client, kind, namespace, name)

    def runtime_owner(self, found: Mapping[str, Any]) -> Owner:
        """Whose a runtime of the cluster is."""
        return runtimes.whose(found)

    def delete_runtime(
        self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False
    ) -> Owner | None:
        """Whose it is by now is returned. Raises Refused while an unfinished TrainJob was made from it, unless `force`."""
        return runtimes.delete(self.client, document, uid, owner, force=force)

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
        while True:
            try:
                change = {**record.change(submission, owner.version), "data": data}
                self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change)
                return
            except ApiError as error:
                if error.code != 409:
                    raise
            owner = self._own(submission, owner.uid)

    def _own(self, submission: Submission, uid: str = "") -> Record:
        """The record of a job that is there and ours. uid: of this run of it. Raises TargetFault if it is gone, Conflict if it
        is another program's."""
        where = f"{submission.namespace}/{submission.name}"
        found = record.find(self.client, submission.namespace, submission.name)
        if found is None or found.deleting or not found.ours or uid not in ("", found.uid):
            raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
        if not (me := Owner(submission.owner, submission.sweep)).owns(found.whose):
            raise Conflict(Problem(where, f"belongs to {found.whose.called_by(me)}", "give the TrainJob another name"))
        return found

    def _send(self, submission: Submission, live: Mapping[str, Document], *, force: bool) -> Document:
        """Updates a job that is there. live: see `apply.send`."""
        return self._while_ours(
            submission, live, lambda owner, now: apply.send(self.client, submission, owner, live=now, force=force)
        )

    def _while_ours(
        self, submission: Submission, live: Mapping[str, Document], send: Callable[[Record, Mapping[str, Document]], T]
    ) -> T:
        """What `send` returns. The objects were read before the record, and are sent as changes of what was read: so a program
        that adopts the job in the meantime is not overwritten."""
        deadline = time.monotonic() + self.client.patience
        while True:
            owner = self._own(submission)
            try:
                return send(owner, live)
            except apply.Changed:
                if time.monotonic() > deadline:
                    raise
            live = self._live(submission)

    def _live(self, submission: Submission) -> dict[str, Document]:
        """The objects of a job as the cluster has them, by "Kind/name"."""
        main = main_key(submission.objects)
        found = self.client.get(of(submission.main), submission.namespace, submission.name)
        return self._beside(submission) | ({main: found} if found is not None else {})

    def _beside(self, submission: Submission) -> dict[str, Document]:
        """The objects beside the job itself."""
        found: dict[str, Document] = {}
        for kind in {of(each) for each in submission.objects.values()} | ({SECRET} if submission.secrets else set()):
            if kind is of(submission.main):
                continue
            with suppress(ApiError):  # those that may not be listed are sent without a look
                there, _ = self.client.list(kind, submission.namespace, labels=f"{marks.JOB}={submission.name}")
                found |= {f"{kind.kind}/{each['metadata']['name']}": each for each in there}
        return found

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
                try:
                    return self._taken_over(found, submission, adopt), False
                except ApiError as error:
                    if not (error.code == 409 or error.absent) or time.monotonic() > deadline:
                        raise
                    continue  # it has changed since it was read
            if found is not None:
                if time.monotonic() > deadline:
                    why, _ = held(self.client, submission.namespace, submission.name)
                    raise TargetFault(Problem(where, f"an earlier job of that name is still going: {why}"))
                departures = self._records_leaving(submission.namespace)
                departures.wait(found.uid, time.monotonic(), deadline - time.monotonic())

    def _taken_over(self, found: Record, submission: Submission, adopt: bool) -> Record:
        """The record with us as its owner. Raises Conflict where it is another's, and ApiError 409 where that changes now."""
        where = f"{submission.namespace}/{submission.name}"
        if not found.ours:
            raise Conflict(found.foreign(where))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.created))
        here = not found.stack or found.stack == submission.sweep
        ours = found.owner == submission.owner
        if here and ours and found.digest == submission.digest:
            return found
        if here and ours:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt and found.stack and here:
            why = f"exists since {since}, from an `up` of this stack that was cut off or from another TrainJob of that name"
            what = "trainjob,configmap" if found.kind is TRAIN_JOB else "configmap --cascade=foreground"
            mend = f"give the TrainJob another name, or end that job: kubectl delete {what}"
            mend = f"{mend} -n {submission.namespace} {submission.name}"
            raise Conflict(Problem(where, why, mend))
        kept = ours and found.retained and found.digest == submission.digest
        if not adopt and not kept:
            whose = found.whose.called_by(Owner(submission.owner, submission.sweep))
            why = f"exists since {since} and belongs to {whose}"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        kind = of(submission.main)
        job = self.client.get(kind, submission.namespace, submission.name)
        if not kept:
            adoption.check(job, found.run, submission, kind)
        change = record.change(submission, found.version)
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

    def _await_gone(self, found: Record, asked: float) -> None:
        wait = partial(self._records_leaving(found.namespace).wait, found.uid, asked)
        await_gone(self.client, wait, found.namespace, found.name)

    def _delete_late(self, namespace: str, name: str, run: str, asked: float) -> None:
        """A job that the garbage collector did not know to be the record's, as its kind is new in this cluster."""
        if self._jobs_leaving(namespace).wait(run, asked, LATE_SECONDS):
            return
        kind = self._kind
        deadline = time.monotonic() + deletion.DELETE_SECONDS
        while (found := self.client.get(kind, namespace, name)) is not None and record.belongs(found, run):
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
                    self._delete_orphan(kind, namespace, each, run)

    def _delete_orphan(self, kind: kinds.Kind, namespace: str, found: Document, run: str) -> None:
        """Unless another run has it by now."""
        left: Document | None = found
        how = "Background" if kind is TRAIN_JOB else "Foreground"  # see `end_train_jobs`
        while left is not None and (left["metadata"].get("annotations") or {}).get(marks.RECORD) == run:
            meta = left["metadata"]
            about = {"uid": meta["uid"], "version": meta["resourceVersion"], "propagation": how}
            if self.client.delete(kind, namespace, meta["name"], **about):
                return
            again, _ = self.client.list(kind, namespace, fields=f"metadata.name={meta['name']}")
            left = next(iter(again), None)


def _check_foreign(found: Document, kind: kinds.Kind, submission: Submission, adopt: bool) -> None:
    """A job that nobody's record owns: made by hand, or by another tool."""
    where = kind.where(submission.namespace, submission.name)
    controller = next((o for o in found["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    if controller:
        why = f"exists and belongs to {controller.get('kind')} {controller.get('name')}"
        raise Conflict(Problem(where, why, "give the TrainJob another name"))
    if not adopt:
        raise Conflict(adoption.unasked(found, where))
    adoption.check(found, "", submission, kind)


def _outlived_record(job: Mapping[str, Any], submission: Submission) -> bool:
    """Whether it is this very job, and somebody has deleted its record alone."""
    said, labels = job["metadata"].get("annotations") or {}, job["metadata"].get("labels") or {}
    ours = Owner(submission.owner, submission.sweep).owns(Owner(said.get(marks.OWNER, ""), labels.get(marks.STACK, "")))
    return ours and said.get(marks.DIGEST) == submission.digest and not job["metadata"].get("ownerReferences")


def _status(owner: Record, kind: kinds.Kind, answer: Document) -> JobStatus:
    """What the server's answer to an apply says about the job."""
    from pulumi_trainer.provider.lifecycle.status import observed

    now = observed(answer if kind is JOBSET else None, answer if kind is TRAIN_JOB else None)
    return owner.status(now.phase, now.reason, now.message)
