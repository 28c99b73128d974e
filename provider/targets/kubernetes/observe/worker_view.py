"""Reads from the worker cluster of MultiKueue what a job does there: Kueue reports only the status of the job itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.client.api_resources import EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    labels_of,
    mappings,
    name_of,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import without_full_stop
from pulumi_trainer.provider.kueue.api_resources import MULTIKUEUE_CLUSTER
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, keep
from pulumi_trainer.provider.lifecycle.diagnosis.containers import has_crashed
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import pod_name
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.worker_copies import silent_worker
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

MOST_GONE = 4
"""Number of failed pods that are remembered for a job after their deletion."""
ANSWER_SECONDS = 5.0
"""Seconds for an answer of a worker cluster."""


def cluster_of(view: JobView) -> str:
    """Return the name of the MultiKueueCluster to which a job was sent; empty if it was not."""
    return text(section(view.workload, "status").get("clusterName"))


def client_of(client: Client, view: JobView) -> Client:
    """Return the client of the cluster that has the Pods of a job. client: Client of its own cluster."""
    found = client.workers.get(view.cluster)
    return client if found is None else found.within(client.patience)


def not_configured(name: str) -> Problem:
    """Return the problem that a job is in a worker cluster that the program does not know."""
    hint = f"name {name} in target=Kubernetes(workers=...) or trainer:workers, and run `pulumi up`"
    return Problem(f"worker cluster {name}", "this program does not know how to reach it", hint)


def with_worker(client: Client, view: JobView) -> JobView:
    """Return the view with what the worker cluster shows of a job that MultiKueue has sent there."""
    name = cluster_of(view)
    if view.main is None and not name:
        return _with_left(client, view)
    if derive_phase(view.jobset, view.train_job).phase.terminal:
        return replace(view, cluster=name)  # Kueue deletes a job that has ended from the worker cluster
    if not name:
        return replace(view, worker_fault=_lost(client)) if _waits_for_worker(view) else view
    view = replace(view, cluster=name)
    if lost := _lost(client, name):
        return replace(view, worker_fault=lost)
    if name not in client.workers:
        return replace(view, worker_fault=not_configured(name))
    try:
        return _read(client.workers[name].within(ANSWER_SECONDS), view)
    except TrainerError as fault:
        return replace(view, worker_fault=replace(fault.problems[0], where=f"worker cluster {name}"))


def _with_left(client: Client, view: JobView) -> JobView:
    """Return the view of a job that is gone in the manager cluster, with the worker clusters that run it or may run it."""
    if view.awaited or (view.recorded is not None and view.recorded.phase != Phase.DELETED):
        return view
    left = []
    for cluster, worker in client.workers.items():
        try:
            jobset = worker.within(ANSWER_SECONDS).get(JOBSET, view.namespace, view.name)
        except TrainerError as fault:
            left.append(str(replace(silent_worker(cluster, f"{view.namespace}/{view.name}", fault), hint="")))
            continue
        ours = text(labels_of(jobset).get(owner_labels.JOB)) == view.name
        if ours and not derive_phase(jobset, None).phase.terminal:
            left.append(f"worker cluster {cluster}: its JobSet is still there, and may run")
    return replace(view, left=left)


def with_gone(view: JobView, before: JobView) -> JobView:
    """Return the view with the failed pods that the worker cluster has shown before and does not show any more."""
    there = {*map(pod_name, view.pods)}
    gone = [pod for pod in (*before.gone, *before.pods) if has_crashed(pod) and pod_name(pod) not in there]
    return replace(view, gone=gone[-MOST_GONE:])


def _waits_for_worker(view: JobView) -> bool:
    """Return whether a job has its quota and waits for an admission check, such as MultiKueue's."""
    checks = mappings(section(view.workload, "status").get("admissionChecks"))
    reserved = true_condition(conditions(view.workload), "QuotaReserved")
    return bool(reserved) and any(check.get("state") != "Ready" for check in checks)


def _read(worker: Client, view: JobView) -> JobView:
    labels = f"{JOBSET_NAME}={view.name}"
    jobset = worker.get(JOBSET, view.namespace, view.name)
    jobs, pods = (_list_of_job(worker, kind, view, labels) for kind in (JOB, POD))
    events = [] if all(section(pod, "status").get("phase") == "Running" for pod in pods) else _events(worker, view)
    if jobset is not None and view.jobset is None:
        view = replace(view, jobset=keep(JOBSET.kind, jobset))
    return replace(view, jobs=jobs, pods=pods, events=[*view.events, *events])


def _list_of_job(worker: Client, kind: Kind, view: JobView, labels: str = "", fields: str = "") -> Sequence[Document]:
    found, _ = worker.list(kind, view.namespace, labels=labels, fields=fields, keep=lambda d: keep(kind.kind, d))
    return found


def _events(worker: Client, view: JobView) -> Sequence[Document]:
    """Return the warnings about the job's objects, whose names begin with that of the job."""
    try:
        found = _list_of_job(worker, EVENT, view, fields="type=Warning")
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return []
    return [e for e in found if text(section(e, "involvedObject").get("name")).startswith(view.name)]


def _lost(client: Client, name: str = "") -> Problem | None:
    """Return why Kueue has lost a worker cluster, in Kueue's words; None if it has not, or if that cannot be read."""
    try:
        found, _ = client.list(MULTIKUEUE_CLUSTER, fields=f"metadata.name={name}" if name else "")
    except TrainerError:
        return None
    for each in found:
        active = condition(conditions(each), "Active")
        if active.get("status") == "False":
            why = (
                f"Kueue has lost the connection to it ({text(active.get('reason'))}:"
                f" {without_full_stop(text(active.get('message')))})"
            )
            return Problem(f"worker cluster {name_of(each)}", why, _LOST)
    return None


_LOST = (
    "Kueue waits for it (multiKueue.workerLostTimeout of its configuration, 15 minutes by default), then takes the"
    " job back and sends it to another worker cluster of its queue that it reaches, or the job waits"
)
