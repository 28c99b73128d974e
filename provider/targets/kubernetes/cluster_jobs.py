"""The jobs of a cluster: JobSets, or TrainJobs in mode trainer."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.lineage import identified
from pulumi_trainer.provider.jobs.output_facts import Content
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Phase, Presence
from pulumi_trainer.provider.jobs.submission import Consumer, Draft, Submission
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import text, without
from pulumi_trainer.provider.targets.kubernetes import copy_pod
from pulumi_trainer.provider.targets.kubernetes.job_writer import JobWriter, check_foreign, outlived_record
from pulumi_trainer.provider.targets.kubernetes.jobs import adoption, consumers, drift, record, run_end, worker_copies
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.preflight import multikueue, server_review
from pulumi_trainer.provider.trainer.kinds import kind_of

Document = dict[str, Any]


class ClusterJobs(JobWriter):
    def review(self, draft: Draft) -> tuple[list[Problem], list[Problem]]:
        """Return refusals and warnings about a job that a program is about to submit. An unchanged job is not checked, except its
        queue."""
        namespace = text(draft.namespace)
        try:
            self.cluster.reachable_client(namespace)
        except TargetFault as fault:
            return multikueue.refusals(draft, self.client.workers), [server_review.unreachable_warning(fault)]
        known = self.cluster.overview(namespace).record(draft.name) if namespace else None
        status = self.cluster.overview(namespace).status(draft.name) if known is not None else None
        unfinished = status is not None and not status.terminal
        absent = known is not None and self.cluster.overview(namespace).lacks_job(draft.name)
        queued = status is not None and status.phase == Phase.QUEUED
        return server_review.review(
            self.client, draft, known, unfinished=unfinished and not absent, absent=absent, queued=queued
        )

    def check_workers(self, namespace: str, name: str) -> None:
        """Check that the worker clusters of MultiKueue answer to which a job may have been sent.

        Each is asked once for all jobs, as for a plan."""
        worker_copies.check_reachable(self.client, f"{namespace}/{name}", cached=True)

    def abandon_copies(self, namespace: str, name: str, owner: Owner) -> None:
        """Delete the copies of a job in worker clusters that the program no longer has, as far as these answer."""
        worker_copies.delete_unreachable(self.client, namespace, name, owner)

    def status(self, namespace: str, name: str) -> JobStatus | None:
        """Return the current status of a job; None if it has no record. The end of a job is written into its record."""
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
        run_end.write_end(self.client, owner, status, view)
        return status

    def cached_status(self, namespace: str, name: str, uid: str, phase: str, owner: Owner) -> JobStatus | None:
        """Return the status of a job from the overview. If the overview does not have that run (yet), return the status in the
        stack's state.
        """

        def is_final(found: Record | JobStatus | None) -> bool:
            if found is None or found.uid == uid:
                return found is not None
            # A record of the same stack is that of the previous run: the overview is older than this run.
            return not owner.owns(found.whose) and found.whose.stack != owner.stack

        overview = self.cluster.overview(namespace)
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
        return self.cluster.overview(namespace).presence(name, beside)

    def check_adoption(self, submission: Submission) -> str:
        """Return a note on the job that `create` would adopt, and what that changes; empty if no such job was found. Secrets are
        not read."""
        kind, me = kind_of(submission.main), Owner(submission.owner, submission.sweep)
        client = self.client.within(PLAN_SECONDS)
        job = client.get(kind, submission.namespace, submission.name)
        found = record.find(client, submission.namespace, submission.name)
        if found is None:
            if job is None or outlived_record(job, submission):
                return ""
            check_foreign(job, kind, submission, adopt=True, trainer=self.cluster.trainer_release)
            return adoption.adoption_note(f"was created by {adoption.field_managers(job)}", submission)
        if not found.is_record:
            raise Conflict(found.foreign_problem(f"{submission.namespace}/{submission.name}"))
        if found.deleting or (found.owner == me.id and found.stack in ("", me.stack)):
            return ""
        release = self.cluster.trainer_release()
        adoption.check(job, found.run, identified(submission, found.identity), kind, release)
        return adoption.adoption_note(f"belongs to {found.whose.called_by(me)}", submission)

    def current_owner(self, namespace: str, name: str) -> Owner | None:
        """Return the owner of the job of that name; None if the list of all jobs does not have it. The owner of a retained job
        has no stack.
        """
        if self.cluster.overview(namespace).cached_record(name) is None:
            return None
        found = record.find(self.client.within(PLAN_SECONDS), namespace, name)
        if found is None or not found.is_record or found.deleting:
            return None
        if found.retained:
            return replace(found.whose, stack="")
        return found.whose

    def progress(self, status: JobStatus) -> dict[str, Any] | None:
        """Return what rank 0 of a job has reported. status: The current status of the job."""
        from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
        from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import progress_of

        client = self.client.within(PLAN_SECONDS)
        return progress_of(client, snapshot(client, status.namespace, status.name)) or status.progress

    def runs(self, namespace: str, name: str) -> list[Run]:
        """Return the runs of the job of that name, the newest last; empty if it has no record."""
        found = record.find(self.client.within(PLAN_SECONDS), namespace, name)
        if found is None or not found.is_record:
            return []
        found.check()
        return found.runs(self.status(namespace, name) or found.last_status())

    def output_content(self, namespace: str, name: str, uri: str) -> Content:
        """Return what identifies the content of a job's output, which a Pod computes beside its claim."""
        found = record.find(self.client, namespace, name)
        if found is None or not found.is_record:
            raise TargetFault(Problem(f"{namespace}/{name}", "somebody has deleted it"))
        return copy_pod.digest(self.client, found, uri)

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        """Return path -> current value of what was changed externally in an unfinished job, except changes of controllers."""
        owner = record.find(self.client, namespace, name)
        if owner is None or owner.terminal or not owner.applied:
            return {}
        live = self.client.get(owner.kind, namespace, name)
        if live is None or not record.belongs(live, owner.uid):
            return {}
        found = drift.changed_fields(owner.applied, live)
        return found if owner.override is None else without(found, "spec.suspend")

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        """Return the jobs that were created from a runtime, and a note if some could not be listed."""
        return consumers.list_consumers(self.cluster.reachable_client(), runtime, self.cluster.namespace)

    def runtime_of(self, namespace: str, name: str) -> tuple[str, str]:
        """Return name and release of the runtime that a job was created from; empty strings if unknown."""
        record = self.cluster.overview(namespace).record(name)
        if record is None:
            return "", ""
        return record.runtime, record.release
