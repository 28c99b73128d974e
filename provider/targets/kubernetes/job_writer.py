"""Creates and changes jobs of a cluster: the record of a job first, then its objects, as changes of what was read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.lineage import identified, started
from pulumi_trainer.provider.jobs.manual import utc_time
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, another_job
from pulumi_trainer.provider.jobs.submission import Submission, main_key
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import controller_of, section
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.cluster import Cluster
from pulumi_trainer.provider.targets.kubernetes.job_removal import JobRemoval
from pulumi_trainer.provider.targets.kubernetes.jobs import adoption, apply, drift, record, worker_copies
from pulumi_trainer.provider.targets.kubernetes.jobs.deletion import blocking_reason
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.overview import JobNames
from pulumi_trainer.provider.targets.kubernetes.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.kubernetes.preflight import server_review
from pulumi_trainer.provider.trainer.kinds import JOBSET, kind_of
from pulumi_trainer.provider.trainer.pipeline import Release

Document = dict[str, Any]
T = TypeVar("T")

LEAVING_SECONDS = 60.0
"""How long a creation waits for the deletion of an earlier job of the same name."""


class JobWriter(JobRemoval):
    """The creation and the changes of jobs of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._taken: dict[str, JobNames] = {}

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        """Create a job. Safe to repeat: an existing job with the same owner and digest is taken over as it is."""
        promised = [f"{SECRET.kind}/{name}" for name in submission.secrets]
        absent = server_review.missing(self.client, submission.objects, submission.namespace, promised)
        if absent and not (adopt and self._is_there(submission)):
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
                check_foreign(found, kind, submission, adopt, self.cluster.trainer_release)
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
        """Change a job in place."""
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

    def relabel(self, submission: Submission, was: Owner) -> None:
        """Write our stack's label into the record and the objects of a job that came from another stack."""
        found = record.find(self.client, submission.namespace, submission.name)
        if found is not None and found.is_record and found.stack != submission.sweep and was.owns(found.whose):
            change = record.update_patch(submission, found.version)
            self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change)
        self.update(submission)

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
        """Return the record of an existing job of this owner."""
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
        """Return the record with this program as its owner."""
        where = f"{submission.namespace}/{submission.name}"
        if not found.is_record:
            raise Conflict(found.foreign_problem(where))
        since = utc_time(found.created)
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
            release = self.cluster.trainer_release()
            adoption.check(job, found.run, identified(submission, found.identity), kind, release)
        change = record.update_patch(submission, found.version)
        return Record.of(self.client.patch(CONFIG_MAP, submission.namespace, submission.name, change))

    def _is_there(self, submission: Submission) -> bool:
        return self.client.get(kind_of(submission.main), submission.namespace, submission.name) is not None

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

    def _names(self, namespace: str) -> JobNames:
        with self._lock:
            return self._taken.setdefault(namespace, JobNames(self.client, namespace, self.cluster.kind))


def check_foreign(
    found: Document, kind: kinds.Kind, submission: Submission, adopt: bool, trainer: Callable[[], Release]
) -> None:
    """Raise Conflict if a job without a record cannot be adopted: it was created by hand or by another tool."""
    where = kind.where(submission.namespace, submission.name)
    controller = controller_of(found)
    if controller:
        why = f"exists and belongs to {controller.get('kind')} {controller.get('name')}"
        raise Conflict(Problem(where, why, "give the TrainJob another name"))
    if not adopt:
        raise Conflict(adoption.unadopted_problem(found, where))
    adoption.check(found, "", submission, kind, trainer())


def _is_another(job: Document, owner: Record, submission: Submission) -> bool:
    """Return whether somebody else has created a job with the name of one that has gone."""
    return not record.belongs(job, owner.uid) and not outlived_record(job, submission)


def _uid(job: Mapping[str, Any] | None) -> object:
    return section(job, "metadata").get("uid")


def outlived_record(job: Mapping[str, Any], submission: Submission) -> bool:
    """Return whether this is the job of the submission, and only its record was deleted externally."""
    ours = Owner(submission.owner, submission.sweep).owns(owner_labels.owner_of(job))
    same = section(job, "metadata", "annotations").get(owner_labels.DIGEST) == submission.digest
    return ours and same and not job["metadata"].get("ownerReferences")


def _status(owner: Record, kind: kinds.Kind, answer: Document) -> JobStatus:
    """Return the status in the server's answer to an apply."""
    from pulumi_trainer.provider.trainer.job_status import derive_phase

    now = derive_phase(answer, None) if kind is JOBSET else derive_phase(None, answer)
    return owner.status(now.phase, now.reason, now.message)
