"""Implements the Kubernetes target: jobs as JobSets, or TrainJobs, of one cluster.

Every call can be repeated after a crash at any point.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.lineage import identified, started
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Loss, Owner, Phase, Presence, another_job
from pulumi_trainer.provider.jobs.submission import Consumer, Draft, Submission, Work, main_key, secret_name
from pulumi_trainer.provider.kubernetes.cache.discovery import PATIENCE, Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import section, text, without
from pulumi_trainer.provider.kueue.api_resources import api_resource
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import (
    adoption,
    apply,
    consumers,
    deletion,
    drift,
    record,
    runtime_objects,
    worker_copies,
)
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
from pulumi_trainer.provider.targets.kubernetes.observe.overview import JobNames, Overview
from pulumi_trainer.provider.targets.kubernetes.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.kubernetes.preflight import multikueue, server_review
from pulumi_trainer.provider.targets.kubernetes.preflight.referents import referents
from pulumi_trainer.provider.targets.kubernetes.preflight.trainer_release import nearest_release
from pulumi_trainer.provider.targets.kubernetes.queues import draining, queue_snapshot
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB, kind_of

Document = dict[str, Any]
T = TypeVar("T")

LEAVING_SECONDS = 60.0
"""How long a creation waits for the deletion of an earlier job of the same name."""
LATE_SECONDS = 1.0
"""How much later than a record's deletion the watch may report that of its job."""


class KubernetesTarget:
    """The jobs of one cluster.

    Args:
        client: Client of the cluster.
        cluster: Returns the identity of the cluster, the UID of its namespace kube-system.
        mode: jobset or trainer.
        namespace: Namespace of the stack's jobs, which `sweep` searches.
    """

    def __init__(
        self, client: Client, *, cluster: Callable[[], str], mode: str = "jobset", namespace: str = "default"
    ) -> None:
        self.client = client
        self.mode = mode
        self.namespace = namespace
        self._cluster = cluster
        self._departures: dict[tuple[str, str], DeletionWatch] = {}
        self._overviews: dict[str, Overview] = {}
        self._taken: dict[str, JobNames] = {}
        self._lock = threading.Lock()

    @property
    def _kind(self) -> kinds.Kind:
        return TRAIN_JOB if self.mode == "trainer" else JOBSET

    def identity(self) -> dict[str, str]:
        """Return the identity of the cluster: the UID of its namespace kube-system."""
        return {"cluster": self._cluster()}

    def queues(self, namespace: str, queue: str) -> Queues:
        """Return Kueue's queues, as far as the credentials may read them.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        self.reachable_client(namespace)
        return queue_snapshot.read_queues(self.client, namespace, queue)

    def review(self, draft: Draft) -> tuple[list[Problem], list[Problem]]:
        """Return refusals and warnings about a job that a program is about to submit. An unchanged job is not checked, except its
        queue."""
        namespace = text(draft.namespace)
        try:
            self.reachable_client(namespace)
        except TargetFault as fault:
            return multikueue.refusals(draft, self.client.workers), [server_review.unreachable_warning(fault)]
        known = self.overview(namespace).record(draft.name) if namespace else None
        status = self.overview(namespace).status(draft.name) if known is not None else None
        unfinished = status is not None and not status.terminal
        absent = known is not None and self.overview(namespace).lacks_job(draft.name)
        queued = status is not None and status.phase == Phase.QUEUED
        return server_review.review(
            self.client, draft, known, unfinished=unfinished and not absent, absent=absent, queued=queued
        )

    def reachable_client(self, namespace: str = "") -> Client:
        """Return a client with a short timeout, for requests of a program.

        Args:
            namespace: Namespace of the program's jobs; empty for that of the target.

        Raises:
            TargetFault: The cluster did not answer an earlier request; raised without another request.
        """
        overview = self.overview(namespace or self.namespace)
        overview.record("")
        if overview.fault is not None and not isinstance(overview.fault, ApiError):
            raise overview.fault
        return self.client.within(PATIENCE)

    def trainer_version(self) -> str:
        """Return the version of the known release of Trainer that is nearest to the cluster's; empty if it has no TrainJobs.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        served = Facts.of(self.reachable_client(), PATIENCE).schema(TRAIN_JOB, PREDICATES)
        return "" if served is None else nearest_release(served).version

    def find_object(self, kind: kinds.Kind, namespace: str, name: str) -> Document | None:
        """Return an object; None if not found.

        Args:
            namespace: Namespace of the object; empty for an object of the cluster.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        return self.reachable_client(namespace).get(kind, namespace, name)

    def queue_versions(self) -> dict[str, list[str]]:
        """Return the versions of Kueue's API, with the plurals that the cluster serves in each."""
        return draining.served_versions(self.client, PATIENCE)

    def queue_objects(self, kind: str, version: str) -> list[Document]:
        """Return all objects of a kind of Kueue; empty if they may not be listed.

        Args:
            kind: A kind of Kueue's API, for example `ClusterQueue`.
            version: Version of the API that the cluster serves, for example `v1beta2`.
        """
        return queue_snapshot.list_objects(self.client, kind, version)

    def queued_work(self) -> list[Document]:
        """Return the LocalQueues and Workloads of all namespaces, as far as the credentials may list them.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        return queue_snapshot.list_queued_work(self.reachable_client())

    def queue_work(self, name: str, version: str) -> list[Work]:
        """Return the unfinished Workloads of a ClusterQueue, with their quota or that they wait.

        Args:
            version: Version of Kueue's API that the cluster serves, for example `v1beta2`.
        """
        return draining.list_work(self.client.within(PATIENCE), name, version)

    def lacks_namespace(self, namespace: str) -> bool:
        """Return whether a namespace certainly does not exist."""
        return queue_snapshot.lacks_namespace(self.client, namespace)

    def reopen_queue(self, name: str, version: str) -> None:
        """Revert the stopPolicy that an interrupted deletion of a ClusterQueue has left.

        Args:
            version: Version of Kueue's API that the cluster serves, for example `v1beta2`.
        """
        draining.reopen(self.client, name, version)

    def release_queue(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        marks: Sequence[str],
        beside: Sequence[Mapping[str, str]],
    ) -> list[str]:
        """Make sure that a ClusterQueue of that stack has no work, and return notes for the user.

        Args:
            seconds: Time limit for a drained job to stop.
            beside: The objects that are deleted after the queue.

        Raises:
            Refused: The queue or an object beside it belongs to another stack, or the queue has work and is not to be drained.
            TargetFault: The queue could not be drained in time.
        """
        places = [(api_resource(each["kind"], each["version"]), each["namespace"], each["name"]) for each in beside]
        draining.check_owner(self.client, places, marks)
        return draining.release(self.client, name, version, drain=drain, seconds=seconds, marks=marks)

    def check_owner(self, objects: Sequence[Mapping[str, str]], marks: Sequence[str]) -> None:
        """Check the owner of objects that pulumi-kubernetes is about to delete.

        Args:
            objects: apiVersion, kind, plural, namespace and name of each object.

        Raises:
            Refused: An object belongs to another stack.
        """
        found = []
        for each in objects:
            kind = kinds.Kind(each["apiVersion"], each["kind"], each["plural"], bool(each["namespace"]))
            found.append((kind, each["namespace"], each["name"]))
        draining.check_owner(self.client, found, marks)

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Create a job. Safe to repeat: an existing job with the same owner and digest is taken over as it is.

        Args:
            adopt: Whether to adopt an equal job that belongs to another owner or was created by hand.

        Raises:
            Invalid: The cluster rejects an object, or something that the job needs is missing.
            Conflict: The name is taken.
            TargetFault: The cluster fails.
        """
        promised = [f"{SECRET.kind}/{name}" for name in submission.secrets]
        absent = server_review.missing(self.client, submission.objects, submission.namespace, promised)
        if absent:
            raise Invalid(*absent)
        owner, fresh = self._claim(submission, adopt)
        kind, name = kind_of(submission.main), submission.name
        alone = fresh and not adopt and not self._names(submission.namespace).may_contain(name)
        found = None if alone else self._settled(kind, submission.namespace, name)
        is_another = found is not None and _is_another(found, owner, submission)
        if (found is None or is_another) and (owner.terminal or owner.removes_itself):
            return owner.last_status()
        if found is not None and is_another:
            try:
                _check_foreign(found, kind, submission, adopt)
            except Conflict:
                self.client.delete(CONFIG_MAP, submission.namespace, name, uid=owner.uid, version=owner.version)
                raise
        worker_copies.send(self.client, submission, owner.uid)
        if found is not None:
            live = {main_key(submission.objects): found, **self._beside(submission)}
            answer = self._send(submission, live, force=adopt)
        else:
            answer = apply.send(self.client, submission, owner)
        if (found is None and not fresh) or (owner.ttl and not owner.sent) or owner.sending:
            self._write(submission, owner, remade=found is None and not fresh)
        if fresh:
            note = remove_outdated_folders(self.client, owner, submission)
            if note:
                print_line(f"note: {note}")
        return _status(owner, kind, answer)

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:
        """Change a job in place.

        Args:
            force: Whether to take back fields that were changed externally.

        Raises:
            TargetFault: The job does not exist.
            Conflict: The job belongs to another owner, another job has its name, or another manager owns a field.
        """
        live = self._live(submission)
        owner = self._own(submission)
        kind, found = kind_of(submission.main), live.get(main_key(submission.objects))
        if found is not None and _is_another(found, owner, submission):
            if not owner.terminal and not owner.removes_itself:
                raise Conflict(another_job(f"{submission.namespace}/{submission.name}"))
            found = None
        if not owner.terminal:
            worker_copies.send(self.client, submission, owner.uid)
        if found is None and not owner.sending:  # it has ended, or may have
            status = owner.last_status()
        elif found is None:
            status = _status(owner, kind, apply.send(self.client, submission, owner, live=live, force=force))
        else:
            change: Document = {}
            if force:
                change = drift.removal_patch(owner.applied, found)
            if change:
                only = {"metadata": {part: found["metadata"][part] for part in ("uid", "resourceVersion")}}
                self.client.patch(kind, submission.namespace, submission.name, {**only, **change})
                live = self._live(submission)
            status = _status(owner, kind, self._send(submission, live, force=force))
        self._write(submission, owner, remade=found is None and owner.sending)
        status.digest = submission.digest
        return status

    def update_secrets(self, submission: Submission) -> None:
        """Change only the values of a job's Secrets; Pods read them when they start. Raises the errors of `update`."""
        self.update_copies(submission)
        self._while_ours(
            submission,
            self._beside(submission),
            lambda owner, live: apply.send_secrets(self.client, submission, owner, live),
        )

    def update_copies(self, submission: Submission) -> None:
        """Create or update what an unfinished job needs in the worker clusters of MultiKueue. Raises the errors of `update`."""
        if not self.client.workers:
            return
        owner = self._own(submission)
        if not owner.terminal:
            worker_copies.send(self.client, submission, owner.uid)

    def check_workers(self, namespace: str, name: str) -> None:
        """Check that the worker clusters of MultiKueue answer to which a job may have been sent.

        Each is asked once for all jobs, as for a plan.

        Raises:
            TargetFault: A worker cluster does not answer, and may still run the job.
        """
        worker_copies.check_reachable(self.client, f"{namespace}/{name}", cached=True)

    def abandon_copies(self, namespace: str, name: str, owner: Owner) -> None:
        """Delete the copies of a job in worker clusters that the program no longer has, as far as these answer.

        Args:
            owner: Owner of the job; copies of another one stay.
        """
        worker_copies.delete_unreachable(self.client, namespace, name, owner)

    def relabel(self, submission: Submission, was: Owner) -> None:
        """Write our stack's label into the record and the objects of a job that came from another stack.

        Args:
            was: The owner of the job in the state.

        Raises:
            TargetFault: As for `update`.
            Conflict: As for `update`.
        """
        found = record.find(self.client, submission.namespace, submission.name)
        if found is not None and found.is_record and found.stack != submission.sweep and was.owns(found.whose):
            change = record.update_patch(submission, found.version)
            self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change)
        self.update(submission)

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """Return the current status of a job; None if it has no record. The end of a job is written into its record.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        from pulumi_trainer.provider.lifecycle.diagnosis import diagnose
        from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
        from pulumi_trainer.provider.targets.kubernetes.observe.printed_output import with_output

        owner = record.find(self.client, namespace, name)
        if owner is None or not owner.is_record:
            return None
        view = snapshot(self.client, namespace, name, owner)
        status = diagnose(view, time.time())
        if status.phase in record.ENDS and not owner.terminal:  # the Pods may be deleted soon
            view = with_output(self.client, view)
            status = diagnose(view, time.time())
        status.uid, status.owner, status.digest, status.created = owner.uid, owner.owner, owner.digest, owner.created
        status.output = owner.result(status.phase)
        status.stack, status.program = owner.stack, owner.program
        record.write_end(self.client, owner, status, view)
        return status

    def cached_status(self, namespace: str, name: str, uid: str, phase: str, owner: Owner) -> JobStatus | None:
        """Return the status of a job from the overview. If the overview does not have that run (yet), return the status in the
        stack's state.

        Args:
            uid: UID of the run in the state.
        """

        def is_final(found: Record | JobStatus | None) -> bool:
            if found is None or found.uid == uid:
                return found is not None
            # A record of the same stack is that of the previous run: the overview is older than this run.
            return not owner.owns(found.whose) and found.whose.stack != owner.stack

        overview = self.overview(namespace)
        status = overview.status(name) if is_final(overview.cached_record(name)) else None
        if status is not None and is_final(status):
            return status
        return JobStatus(
            name=name,
            namespace=namespace,
            uid=uid,
            phase=phase or Phase.PENDING.value,
            owner=owner.id,
            stack=owner.stack,
        )

    def presence(self, namespace: str, name: str, beside: Collection[str] = ()) -> Presence | None:
        """Return what exists of a job, without a request for an existing job alone; None if the cluster cannot be read."""
        return self.overview(namespace).presence(name, beside)

    def check_adoption(self, submission: Submission) -> str:
        """Return a note on the job that `create` would adopt, and what that changes; empty if no such job was found. Secrets are
        not read.

        Raises:
            Conflict: A job of another owner differs from the program, or a ConfigMap that is not a record has the name.
        """
        kind, me = kind_of(submission.main), Owner(submission.owner, submission.sweep)
        client = self.client.within(PATIENCE)
        job = client.get(kind, submission.namespace, submission.name)
        found = record.find(client, submission.namespace, submission.name)
        if found is None:
            if job is None or _outlived_record(job, submission):
                return ""
            _check_foreign(job, kind, submission, adopt=True)
            return adoption.adoption_note(f"was created by {adoption.field_managers(job)}", submission)
        if not found.is_record:
            raise Conflict(found.foreign_problem(f"{submission.namespace}/{submission.name}"))
        if found.deleting or (found.owner == me.id and found.stack in ("", me.stack)):
            return ""
        adoption.check(job, found.run, identified(submission, found.identity), kind)
        return adoption.adoption_note(f"belongs to {found.whose.called_by(me)}", submission)

    def current_owner(self, namespace: str, name: str) -> Owner | None:
        """Return the owner of the job of that name; None if the list of all jobs does not have it. The owner of a retained job
        has no stack.
        """
        if self.overview(namespace).cached_record(name) is None:
            return None
        found = record.find(self.client.within(PATIENCE), namespace, name)
        if found is None or not found.is_record or found.deleting:
            return None
        if found.retained:
            return replace(found.whose, stack="")
        return found.whose

    def progress(self, status: JobStatus) -> dict[str, Any] | None:
        """Return what rank 0 of a job has reported. status: The current status of the job."""
        from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
        from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import progress_of

        client = self.client.within(PATIENCE)
        return progress_of(client, snapshot(client, status.namespace, status.name)) or status.progress

    def runs(self, namespace: str, name: str) -> list[Run]:
        """Return the runs of the job of that name, the newest last; empty if it has no record.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        found = record.find(self.client.within(PATIENCE), namespace, name)
        if found is None or not found.is_record:
            return []
        found.check()
        return found.runs(self.status(namespace, name) or found.last_status())

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        """Return path -> current value of what was changed externally in an unfinished job, except changes of controllers.

        Raises:
            TargetFault: The cluster cannot be read.
        """
        owner = record.find(self.client, namespace, name)
        if owner is None or owner.terminal or not owner.applied:
            return {}
        live = self.client.get(owner.kind, namespace, name)
        if live is None or not record.belongs(live, owner.uid):
            return {}
        found = drift.changed_fields(owner.applied, live)
        return found if owner.override is None else without(found, "spec.suspend")

    def delete(
        self,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        owner: Owner | None = None,
        replaced: bool = False,  # noqa: ARG002
    ) -> Owner | None:
        """End the job, remove all its objects, and return when they are gone. Safe to repeat.

        Args:
            uid: UID of the only run to delete; empty for any.
            owner: Delete the job only while it belongs to this owner; None for any.
            replaced: Has no effect: Kubernetes removes the logs with the Pods.

        Returns:
            The current owner if it is another one, in which case nothing is deleted; None otherwise.

        Raises:
            TargetFault: Something blocks the deletion; the message names it.
        """

        def mine(found: Record) -> bool:
            return found.is_record and uid in ("", found.uid) and (owner is None or owner.owns(found.whose))

        asked = time.monotonic()
        known = self.overview(namespace).record(name) if uid else None
        if self.mode == "trainer" or self.client.workers:
            known = record.find(self.client, namespace, name)
        if known is None or mine(known):
            worker_copies.check_reachable(self.client, f"{namespace}/{name}")
        if self.mode == "trainer" and known is not None and mine(known):
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
        return None

    def sweep(self, label: str, note: Callable[[str], None] = lambda _: None) -> list[str]:
        """Delete all jobs of the namespace with the stack's label, and the stack's volumes that are not mounted.

        Args:
            note: Called with size and age of each volume that is deleted with its data.

        Returns:
            The names of the deleted jobs and volumes.
        """
        namespace = self.namespace
        worker_copies.check_reachable(self.client, "")
        found, _ = self.client.list(CONFIG_MAP, namespace, labels=sweep_selector(label))

        def mine(each: Record) -> bool:
            return each.is_record and each.stack == label and not each.retained

        asked = time.monotonic()
        records = [each for each in map(Record.of, found) if mine(each)]
        end_train_jobs(self.client, records)
        gone = [delete_record(self.client, namespace, each.name, mine, each) for each in records]
        left = [each for each in gone if each is not None and mine(each)]
        for each in left:
            self._await_gone(each, asked)
            self._delete_late(namespace, each.name, each.uid, asked)
        copies = worker_copies.sweep(self.client, namespace, label)
        swept = claims.sweep(self.client, namespace, label, note)
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                swept += [f"{volume} in {cluster}" for volume in claims.sweep(worker, namespace, label, note)]
        return [f"{namespace}/{r.name}" for r in left] + copies + swept

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """Create a PersistentVolumeClaim, and return its path and generation. Safe to repeat; existing data stays.

        Args:
            sweep: Label of the stack; empty if a sweep must not delete the claim.
            claim: Settings of the claim: size, class, access mode; None for the defaults.

        Raises:
            Conflict: The claim belongs to another owner, or differs in an immutable field.
            TargetFault: The StorageClass does not exist, or an earlier claim is not gone in time.
        """
        made = claims.create(self.client, namespace, name, owner, sweep, claim or {})
        self.copy_volume(namespace, name, owner, sweep, claim or {}, made["generation"])
        return made

    def copy_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any], generation: str
    ) -> None:
        """Create a claim of the same name and generation in each worker cluster of MultiKueue. Safe to repeat.

        Args:
            sweep: Label of the stack; empty if a sweep must not delete the claim.
            claim: Settings of the claim: size, class, access mode.
            generation: Generation of the claim in this cluster.
        """
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.create(worker, namespace, name, owner, sweep, claim, generation)

    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """Change the size of a claim, and whether a sweep leaves the claim alone.

        Raises:
            Conflict: The claim has another generation.
            TargetFault: The claim is gone, or its class does not allow the new size.
        """
        claims.update(self.client, namespace, name, generation, claim)
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.update(worker, namespace, name, generation, claim)

    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """Return path and generation of a claim, and its owner; None if not found."""
        return claims.read(self.client, namespace, name)

    def relabel_volume(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
        """Write our owner and label on a claim that came from another stack, if it is of that generation.

        Args:
            generation: Generation in the state; a claim of another generation is not changed.
            sweep: Label of our stack; empty if a sweep must not delete the claim.
        """
        for client in (self.client, *self.client.workers.values()):
            claims.relabel(client, namespace, name, generation, owner, sweep)

    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss:
        """Return whether a volume that its owner created before was lost, without a request for an existing volume alone.

        Args:
            owner: Owner of the claim in the state.
        """
        return self.overview(namespace).lost_claim(name, owner)

    def describe_volume(self, namespace: str, name: str) -> str:
        """Return size and age of a volume; empty if it has no data."""
        return claims.describe(self.client, namespace, name)

    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str:
        """Delete a claim with all its data.

        Args:
            generation: Generation in the state; a claim of another generation is not deleted.

        Returns:
            The owner of a claim of another generation, or a note that the claim stays for unfinished jobs; empty otherwise.
        Raises:
            Refused: Another unfinished Pod mounts the claim.
            TargetFault: The claim is not gone in time.
        """
        worker_copies.check_reachable(self.client, f"{namespace}/{name}")
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.delete(worker, namespace, name, generation)
        return claims.delete(self.client, namespace, name, generation)

    def review_volume(
        self, namespace: str, name: str, claim: Mapping[str, Any], job: str, owner: str, *, adopt: bool
    ) -> tuple[list[Problem], list[Problem]]:
        """Return refusals and warnings about a claim that is to be created.

        Args:
            job: Name of the job that mounts it.
            owner: Id of the owner who creates it.
            adopt: Whether the job may be adopted, and its claims with it.
        """
        client = self.reachable_client(namespace)
        found = client.get(kinds.CLAIM, namespace, name)
        if found is None:
            return claims.review(client, namespace, name, claim)
        taken, record = claims.ownership_problems(found, owner), self.overview(namespace).record(job)
        if record is None or not claims.is_owned_by(found, record.whose):
            return taken, []
        if not adopt:
            return [], []  # the URN of an own job differs if its stack was renamed
        return [], taken

    def apply_runtime(self, document: Mapping[str, Any], owner: str, sweep: str) -> str:
        """Create or update a ClusterTrainingRuntime or TrainingRuntime, and return its UID.

        Raises:
            Conflict: The runtime belongs to another owner.
            Invalid: The server rejects the runtime.
        """
        return runtime_objects.apply(self.client, document, owner, sweep)

    def check_runtime(self, document: Mapping[str, Any], owner: str, sweep: str | None) -> None:
        """Check that no runtime of that name belongs to another owner.

        Args:
            sweep: Label of the stack; None if not known yet.

        Raises:
            Conflict: The runtime belongs to another owner.
        """
        runtime_objects.check_owner(self.client, document, owner, sweep)

    def edited_runtime(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None:
        """Return the paths of what was changed externally in a runtime; None if not found.

        Args:
            document: The runtime of the program; empty result if the live one is equal to it.
            applied: The runtime as it was last applied.

        Raises:
            Conflict: The runtime belongs to another owner.
            TargetFault: The cluster cannot be read.
        """
        return runtime_objects.changed_paths(self.reachable_client(), document, applied, owner, sweep)

    def runtime(self, kind: str, namespace: str, name: str) -> Document | None:
        """Return the runtime as the cluster has it; None if not found.

        Args:
            kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
            namespace: Namespace of the runtime; empty for a ClusterTrainingRuntime.
        """
        return runtime_objects.read(self.client, kind, namespace, name)

    def runtime_owner(self, found: Mapping[str, Any]) -> Owner:
        """Return the owner of a runtime of the cluster."""
        return runtime_objects.owner_of(found)

    def delete_runtime(
        self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False
    ) -> Owner | None:
        """Delete a runtime, and return its current owner if that is another one; None otherwise.

        Args:
            uid: UID of the runtime in the state; a runtime with another one is not deleted.
            force: Whether to delete it although unfinished TrainJobs were created from it.

        Raises:
            Refused: An unfinished TrainJob was created from the runtime, and `force` is not set.
            TargetFault: The runtime is not gone in time.
        """
        return runtime_objects.delete(self.client, document, uid, owner, force=force)

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """Return the jobs that were created from a runtime, and a note if some could not be listed."""
        return consumers.list_consumers(self.reachable_client(), runtime, self.namespace)

    def runtime_of_job(self, namespace: str, name: str) -> tuple[str, str]:
        """Return name and release of the runtime that a job was created from; empty strings if unknown."""
        record = self.overview(namespace).record(name)
        if record is None:
            return "", ""
        return record.runtime, record.release

    def overview(self, namespace: str) -> Overview:
        """Return the cached status of the jobs of a namespace."""
        kind = self._kind
        with self._lock:
            return self._overviews.setdefault(namespace, Overview(self.client, namespace, kind))

    def _names(self, namespace: str) -> JobNames:
        with self._lock:
            return self._taken.setdefault(namespace, JobNames(self.client, namespace, self._kind))

    def _records_leaving(self, namespace: str) -> DeletionWatch:
        with self._lock:
            return self._departures.setdefault((namespace, ""), watch_record_deletions(self.client, namespace))

    def _jobs_leaving(self, namespace: str) -> DeletionWatch:
        kind = self._kind
        with self._lock:
            return self._departures.setdefault(
                (namespace, kind.kind), watch_job_deletions(self.client, namespace, kind)
            )

    def _write(self, submission: Submission, owner: Record, *, remade: bool) -> None:
        """Write the record after the job itself was sent: a crash between the two repeats what was done.

        The key `sent` distinguishes a job that its TTL has removed from one that was never created.

        Args:
            remade: Whether the job was created again because it was deleted externally; the version of the record has changed
                then.
        """
        known = identified(replace(submission, earlier=()), owner.identity)  # a rerun has extended the recorded ones
        data = {
            **record.document(known)["data"],
            record.SENT: str(time.time()) if remade else "0",
            record.SENDING: None,
        }
        while True:
            try:
                change = {**record.update_patch(submission, owner.version), "data": data}
                if remade or not apply.is_overridden(submission, owner):
                    change["metadata"]["annotations"][owner_labels.OVERRIDE] = None
                self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change)
                return
            except ApiError as error:
                if error.code != 409:
                    raise
            owner = self._own(submission, owner.uid)

    def _own(self, submission: Submission, uid: str = "") -> Record:
        """Return the record of an existing job of this owner.

        Args:
            uid: UID of the only accepted run; empty for any.

        Raises:
            TargetFault: The record is gone.
            Conflict: The job belongs to another owner.
        """
        where = f"{submission.namespace}/{submission.name}"
        found = record.find(self.client, submission.namespace, submission.name)
        if found is None or found.deleting or not found.is_record or uid not in ("", found.uid):
            raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
        me = Owner(submission.owner, submission.sweep)
        if not me.owns(found.whose):
            raise Conflict(Problem(where, f"belongs to {found.whose.called_by(me)}", "give the TrainJob another name"))
        return found

    def _send(self, submission: Submission, live: Mapping[str, Document], *, force: bool) -> Document:
        """Update an existing job. live: As for `apply.send`."""
        return self._while_ours(
            submission, live, lambda owner, now: apply.send(self.client, submission, owner, live=now, force=force)
        )

    def _while_ours(
        self, submission: Submission, live: Mapping[str, Document], send: Callable[[Record, Mapping[str, Document]], T]
    ) -> T:
        """Return what `send` returns, and retry it if the job changes meanwhile.

        The objects are read before the record, and are sent as changes of what was read: a program that adopts the job in the
        meantime is not overwritten.
        """
        deadline = time.monotonic() + self.client.patience
        main = main_key(submission.objects)
        while True:
            owner = self._own(submission)
            try:
                return send(owner, live)
            except apply.Changed:
                now = self._live(submission)
                # A job that was replaced may be anybody's, and one that has gone may have ended.
                if time.monotonic() > deadline or (main in live and _uid(now.get(main)) != _uid(live[main])):
                    raise
            live = now

    def _live(self, submission: Submission) -> dict[str, Document]:
        """Return the objects of a job as the cluster has them, by "Kind/name"."""
        main = main_key(submission.objects)
        found = self.client.get(kind_of(submission.main), submission.namespace, submission.name)
        live = self._beside(submission)
        if found is not None:
            live[main] = found
        return live

    def _beside(self, submission: Submission) -> dict[str, Document]:
        """Return the objects beside the job itself, by "Kind/name"."""
        found: dict[str, Document] = {}
        for kind in {*map(kind_of, submission.objects.values())} - {kind_of(submission.main), SECRET}:
            with suppress(ApiError):  # kinds that may not be listed are sent without the live objects
                there, _ = self.client.list(kind, submission.namespace, labels=f"{owner_labels.JOB}={submission.name}")
                found |= {f"{kind.kind}/{each['metadata']['name']}": each for each in there}
        secrets = {key.partition("/")[2] for key in submission.objects if key.startswith("Secret/")}
        for name in sorted(secrets | {*submission.secrets}):
            secret = record.get_metadata(self.client, SECRET, submission.namespace, name)
            if secret is not None and record.job_name_of(secret) == submission.name:
                found[f"{SECRET.kind}/{name}"] = secret
        return found

    def _claim(self, submission: Submission, adopt: bool) -> tuple[Record, bool]:
        """Return the record of this run, and whether it was created now and not by an earlier attempt.

        The record keeps a second creator out, because a server creates a name once.
        """
        where = f"{submission.namespace}/{submission.name}"
        deadline = time.monotonic() + LEAVING_SECONDS
        document = record.document(started(submission, time.time()))
        while True:
            try:
                return Record.of(self.client.create(CONFIG_MAP, document)), True
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise apply.apply_error(error, CONFIG_MAP, document) from None
            found = record.find(self.client, submission.namespace, submission.name)
            if found is not None and not found.deleting:
                try:
                    return self._taken_over(found, submission, adopt), False
                except ApiError as error:
                    if not (error.code == 409 or error.absent) or time.monotonic() > deadline:
                        raise
                    continue  # the record has changed since it was read
            if found is not None:
                if time.monotonic() > deadline:
                    why, _ = blocking_reason(self.client, submission.namespace, submission.name)
                    raise TargetFault(Problem(where, f"an earlier job with this name is still being deleted: {why}"))
                departures = self._records_leaving(submission.namespace)
                departures.wait(found.uid, time.monotonic(), deadline - time.monotonic())

    def _taken_over(self, found: Record, submission: Submission, adopt: bool) -> Record:
        """Return the record with this program as its owner.

        Raises:
            Conflict: The job belongs to another owner.
            ApiError: The record has changed since it was read (409).
        """
        where = f"{submission.namespace}/{submission.name}"
        if not found.is_record:
            raise Conflict(found.foreign_problem(where))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.created))
        here = not found.stack or found.stack == submission.sweep
        ours = found.owner == submission.owner
        if here and ours and found.digest == submission.digest:
            return found
        if here and ours:
            why = f"exists since {since} from an earlier state of this program"
            raise Conflict(Problem(where, why, "run `pulumi refresh`, then `pulumi up`"))
        if not adopt and found.stack and here:
            why = (
                f"exists since {since}, from an interrupted `pulumi up` of this stack or from another TrainJob with"
                " this name"
            )
            hint = (
                f"give the TrainJob another name, or end that job: kubectl delete {found.kind.kind.lower()},configmap"
            )
            hint = f"{hint} -n {submission.namespace} {submission.name}"
            raise Conflict(Problem(where, why, hint))
        kept = ours and found.retained and found.digest == submission.digest
        if not adopt and not kept:
            whose = found.whose.called_by(Owner(submission.owner, submission.sweep))
            why = f"exists since {since} and belongs to {whose}"
            raise Conflict(Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True"))
        kind = kind_of(submission.main)
        job = self.client.get(kind, submission.namespace, submission.name)
        if not kept:
            adoption.check(job, found.run, identified(submission, found.identity), kind)
        change = record.update_patch(submission, found.version)
        return Record.of(self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change))

    def _settled(self, kind: kinds.Kind, namespace: str, name: str) -> Document | None:
        """Return the job of that name; None if not found. Waits for a job that is being deleted."""
        deadline = time.monotonic() + LEAVING_SECONDS
        while True:
            found = self.client.get(kind, namespace, name)
            if found is None or not found["metadata"].get("deletionTimestamp"):
                return found
            if time.monotonic() > deadline:
                why, _ = blocking_reason(self.client, namespace, name)
                raise TargetFault(
                    Problem(
                        kind.where(namespace, name), f"an earlier object with this name is still being deleted: {why}"
                    )
                )
            time.sleep(0.25)

    def _await_gone(self, found: Record, asked: float) -> None:
        wait = partial(self._records_leaving(found.namespace).wait, found.uid, asked)
        await_gone(self.client, wait, found.namespace, found.name)

    def _delete_late(self, namespace: str, name: str, run: str, asked: float) -> None:
        """Delete a job that the garbage collector did not delete with its record, because the job's kind is new in this
        cluster."""
        if self._jobs_leaving(namespace).wait(run, asked, LATE_SECONDS):
            return
        kind = self._kind
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


def _check_foreign(found: Document, kind: kinds.Kind, submission: Submission, adopt: bool) -> None:
    """Raise Conflict if a job without a record cannot be adopted: it was created by hand or by another tool."""
    where = kind.where(submission.namespace, submission.name)
    controller = next((o for o in found["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    if controller:
        why = f"exists and belongs to {controller.get('kind')} {controller.get('name')}"
        raise Conflict(Problem(where, why, "give the TrainJob another name"))
    if not adopt:
        raise Conflict(adoption.unadopted_problem(found, where))
    adoption.check(found, "", submission, kind)


def _is_another(job: Document, owner: Record, submission: Submission) -> bool:
    """Return whether somebody else has created a job with the name of one that has gone."""
    return not record.belongs(job, owner.uid) and not _outlived_record(job, submission)


def _uid(job: Mapping[str, Any] | None) -> object:
    return section(job, "metadata").get("uid")


def _outlived_record(job: Mapping[str, Any], submission: Submission) -> bool:
    """Return whether this is the job of the submission, and only its record was deleted externally."""
    metadata = job["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    owner = Owner(annotations.get(owner_labels.OWNER, ""), labels.get(owner_labels.STACK, ""))
    ours = Owner(submission.owner, submission.sweep).owns(owner)
    same = annotations.get(owner_labels.DIGEST) == submission.digest
    return ours and same and not metadata.get("ownerReferences")


def _status(owner: Record, kind: kinds.Kind, answer: Document) -> JobStatus:
    """Return the status in the server's answer to an apply."""
    from pulumi_trainer.provider.trainer.job_status import derive_phase

    now = derive_phase(answer, None) if kind is JOBSET else derive_phase(None, answer)
    return owner.status(now.phase, now.reason, now.message)
