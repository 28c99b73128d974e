"""Suspends, resumes, stops and reruns one job of a cluster.

The record is changed first, at the resourceVersion at which its owner was compared: a job that another stack adopts at the same
time is left alone. Each call can be repeated after a crash.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.attempts import SUSPENDED, before_rerun, ended
from pulumi_trainer.provider.jobs.lineage import rerun_identity, started
from pulumi_trainer.provider.jobs.manual import STOPPED, Override, not_ended_problem
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, Refused, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import apply, record, run_end, worker_copies
from pulumi_trainer.provider.targets.kubernetes.jobs.deletion import delete_job
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import with_reports
from pulumi_trainer.provider.targets.kubernetes.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.kubernetes.preflight import server_review
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import ask_as_served
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB


def set_suspend(client: Client, namespace: str, name: str, override: Override, owner: Owner | None) -> JobStatus:
    """Suspend or resume a job, whoever created it. If a user has done that before, and it is still so, nothing is changed.

    Only Kueue may set `suspend` of a job in a queue. Such a job is suspended by `spec.active: false` of its Workload
    (https://kueue.sigs.k8s.io/docs/concepts/workload/#active), which evicts it and keeps it out of the queue.

    Returns:
        The status before the change; a job that has ended is not changed.
    """
    found = _find_record(client, namespace, name, owner)
    view, status = _diagnosed(client, namespace, name, found)
    if status.terminal or view.main is None:
        return status
    if view.queue and view.workload is None:
        why = f"waits in the queue {view.queue}, but has no Workload to suspend"
        raise Refused(Problem(f"{namespace}/{name}", why, "is Kueue running? `pulumi-trainer why` explains it"))
    known = None if found is None else found.override
    if known is not None and known.suspend == override.suspend == is_suspended(view):
        return status
    written = _write_override(client, found, view, status, override) if found is not None else None
    try:
        if view.workload is not None:
            _set_active(client, namespace, view.workload, active=not override.suspend)
        else:
            kind = JOBSET if view.train_job is None else TRAIN_JOB
            _patch(client, kind, namespace, view.main, {"spec": {"suspend": override.suspend}})
    except ApiError as error:
        if found is not None and written is not None and 400 <= error.code < 500:
            with suppress(TargetFault):
                _patch_record(client, written, _override_of(found))
        raise
    return status


def is_suspended(view: JobView) -> bool:
    """Return whether a job is suspended, by its program or by a user; a job in a queue is only if its Workload is inactive."""
    if view.workload is not None:
        return section(view.workload, "spec").get("active") is False
    return section(view.main, "spec").get("suspend") is True


def suspension(client: Client, namespace: str, name: str) -> Override | None:
    """Return who has suspended or resumed a job with `pulumi-trainer`; None if nobody has."""
    found = record.find(client, namespace, name)
    return None if found is None else found.override


def _write_override(client: Client, found: Record, view: JobView, status: JobStatus, override: Override) -> Record:
    """Write who suspends or resumes a job into its record, before that is done: a crash in between loses no name."""
    suspend = False if view.queue else found.applied.get("spec.suspend")
    text = json.dumps(override.to_dict()) if override.differs(suspend) else None
    change: dict[str, Any] = {"metadata": {"annotations": {owner_labels.OVERRIDE: text}}}
    if override.suspend:
        who = f"by {override.by} with `pulumi-trainer suspend`"
        attempts = ended(status.attempts, override.at, SUSPENDED, who)
        change["data"] = run_end.attempts_as_data(attempts)
    return _patch_record(client, found, change)


def _override_of(found: Record) -> dict[str, Any]:
    """Return the change that writes what a record has of an override and of attempts back."""
    text = json.dumps(found.override.to_dict()) if found.override is not None else None
    attempts = {record.ATTEMPTS: None, **run_end.attempts_as_data(found.attempts)}
    return {"metadata": {"annotations": {owner_labels.OVERRIDE: text}}, "data": attempts}


def stop(client: Client, namespace: str, name: str, owner: Owner | None, message: str) -> JobStatus:
    """End a job for good: its record gets the end, and its JobSet or TrainJob is deleted. Its volumes stay. Return the status;
    of a job that has ended before the unchanged one."""
    found = _find_record(client, namespace, name, owner)
    if found is None:
        hint = "`pulumi-trainer suspend` keeps it, `kubectl delete` deletes it"
        why = "was not created by pulumi-trainer, so nothing would record that it was stopped"
        raise Refused(Problem(f"{namespace}/{name}", why, hint))
    view, status = _diagnosed(client, namespace, name, found)
    if status.terminal and found.ended.get("reason") != STOPPED:
        return status
    worker_copies.check_reachable(client, f"{namespace}/{name}")
    if not found.terminal:
        status.fail(STOPPED, message, time.time())
        data = run_end.end_of(found, status, with_reports(client, view))
        found = _patch_record(client, found, {"data": data})
    delete_job(client, found)
    return found.last_status()


def rerun(client: Client, submission: Submission) -> JobStatus:
    """Run a job that has ended again. Its volumes stay.

    Raises:
        Invalid: Something that its Pods need does not exist, such as a volume that was replaced.
        TargetFault: The job does not exist, the archive of its project is gone, or something blocks the deletion of its last
            run.
    """
    owner = Owner(submission.owner, submission.sweep)
    found = _find_record(client, submission.namespace, submission.name, owner)
    assert found is not None
    found.check()
    view, status = _diagnosed(client, submission.namespace, submission.name, found)
    if not status.terminal:
        raise Refused(not_ended_problem(status))
    worker_copies.check_reachable(client, f"{submission.namespace}/{submission.name}")
    promised = [f"Secret/{name}" for name in submission.secrets]
    absent = server_review.missing(client, submission.objects, submission.namespace, promised)
    if absent:
        raise Invalid(*absent)
    submission = apply.with_archives(client, submission)  # without it, the job that has ended stays
    if status.phase in record.ENDS and not found.terminal:  # only the job itself shows its end
        found = _patch_record(client, found, {"data": run_end.end_of(found, status, with_reports(client, view))})
    earlier = found.runs(status)
    identity = rerun_identity(found.identity, status.phase, status.reason)
    submission = started(replace(submission, earlier=earlier, identity=identity), time.time())
    attempts = before_rerun(status.attempts) if identity.id else []
    delete_job(client, found)
    fresh: dict[str, Any] = {
        "metadata": {
            "annotations": {owner_labels.OVERRIDE: None},
            "labels": {owner_labels.RUN_ID: submission.identity.id},
        },
        "data": {
            **run_end.no_end(),
            **run_end.attempts_as_data(attempts),
            **record.usage(submission),
            record.SENT: None,
            record.SENDING: "true",
            record.BEGUN: str(time.time()),
            record.EARLIER: record.runs_as_text(submission.earlier),
            **record.identity_data(submission),
        },
    }
    found = _patch_record(client, found, fresh)
    worker_copies.send(client, submission, found.uid)
    apply.send(client, submission, found)
    # Without the version: a watcher may have changed the record since the job exists.
    sent = {"metadata": {"uid": found.uid}, "data": {record.SENT: str(time.time()), record.SENDING: None}}
    client.patch(CONFIG_MAP, found.namespace, found.name, sent)
    note = remove_outdated_folders(client, found, submission)
    if note:
        print_line(f"note: {note}", error=True)
    return _diagnosed(client, submission.namespace, submission.name, found)[1]


def _find_record(client: Client, namespace: str, name: str, owner: Owner | None) -> Record | None:
    """Return the record of a job; None if it has none, and any owner is accepted."""
    found = record.find(client, namespace, name)
    where = f"{namespace}/{name}"
    if found is None or not found.is_record or found.deleting:
        if owner is None:
            return None
        raise TargetFault(Problem(where, "is gone", "run `pulumi refresh`, then `pulumi up`"))
    if owner is not None and not owner.owns(found.whose):
        raise Conflict(Problem(where, found.whose.adopted_from(owner)))
    return found


def _diagnosed(client: Client, namespace: str, name: str, found: Record | None) -> tuple[JobView, JobStatus]:
    """Return what the cluster shows of a job, and its status."""
    view = snapshot(client, namespace, name, found)
    if view.main is None and found is None:
        raise TargetFault(Problem(f"{namespace}/{name}", f"no such JobSet or TrainJob in {client.host}"))
    return view, diagnose(view, time.time())


def _patch_record(client: Client, found: Record, change: Mapping[str, Any]) -> Record:
    """Change a record as it was read, and return it as stored."""
    meta = {**section(change, "metadata"), "uid": found.uid, "resourceVersion": found.version}
    try:
        return Record.of(client.patch(CONFIG_MAP, found.namespace, found.name, {**change, "metadata": meta}))
    except ApiError as error:
        if error.code != 409:
            raise
        why = "another program has just changed it"
        raise TargetFault(Problem(f"{found.namespace}/{found.name}", why, "run the same command again")) from None


def _set_active(client: Client, namespace: str, workload: Mapping[str, Any], *, active: bool) -> None:
    """Set `spec.active` of a Workload, in the version that the cluster serves."""
    change = {"spec": {"active": active}}
    ask_as_served(WORKLOAD, lambda kind: _patch(client, kind, namespace, workload, change))


def _patch(client: Client, kind: Kind, namespace: str, document: Mapping[str, Any], change: Mapping[str, Any]) -> None:
    """Change an object, unless another one has its name now."""
    meta = section(document, "metadata")
    client.patch(kind, namespace, str(meta["name"]), {**change, "metadata": {"uid": meta["uid"]}})
