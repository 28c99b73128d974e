"""Completes rendered objects for a mode.

In mode trainer the objects belong to the TrainJob. In mode jobset there is no controller, so the objects contain what it would
do.
"""

from __future__ import annotations

from typing import Any, Literal

from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import Container, jobs_of
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.labels import ancestor_of
from pulumi_trainer.provider.trainer.pipeline.gangs import split_by_stage
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER, Info, TrainJob
from pulumi_trainer.provider.trainer.pipeline.plugins.mpi import KEEP_FQDN, LAUNCHER, OPEN_MPI_5

Mode = Literal["jobset", "trainer"]

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_DEADLINE = "DeadlineExceeded"
"""Why a Job has failed."""


def finish(objects: list[dict[str, Any]], info: Info, job: TrainJob, mode: Mode) -> None:
    """Complete the objects for a mode, in place."""
    if mode == "jobset":
        split_by_stage(objects, info, job)
    for document in objects:
        if mode == "trainer":
            _own(document, job)
        elif document["kind"] == "JobSet":
            _mark(document, job)
            _leave_to_kueue(document)
            if job.spec.get("managedBy") == MULTIKUEUE:  # Trainer's controller ignores such a TrainJob
                document["spec"]["managedBy"] = MULTIKUEUE
            _limit_time(document, job)
            if info.policy("mpi") is not None:
                _connect_open_mpi_5(document)


def queued_object(train_job: dict[str, Any], jobset: dict[str, Any] | None, mode: Mode) -> dict[str, Any]:
    """Return the object that Kueue admits, if it has a queue: the TrainJob; in mode jobset the JobSet, in its namespace.

    Args:
        jobset: The rendered JobSet; None or empty if rendering failed.
    """
    if mode == "trainer" or not jobset:
        return {"kind": "TrainJob", **train_job}
    of_job = section(train_job, "metadata")
    metadata = {**section(jobset, "metadata"), "namespace": of_job.get("namespace")}
    if isinstance(of_job.get("labels"), Unknown):
        metadata["labels"] = of_job["labels"]
    return {**jobset, "metadata": metadata}


def _own(document: dict[str, Any], job: TrainJob) -> None:
    """Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go"""
    if job.uid:
        owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": job.name, "uid": job.uid}
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]


def _mark(jobset: dict[str, Any], job: TrainJob) -> None:
    """Set the TrainJob's own labels and annotations, which override the runtime's.

    Kueue reads queue and priority from the object it manages: without these labels on the JobSet, the job would bypass its queue.
    """
    metadata = jobset["metadata"]
    for name, values in (("labels", job.labels), ("annotations", job.annotations)):
        if values:
            metadata[name] = dict(sorted({**metadata.get(name, {}), **values}.items()))


def _leave_to_kueue(jobset: dict[str, Any]) -> None:
    """Remove `suspend`, which Kueue's webhook sets for a new job with a queue, and only Kueue resets.

    If it were applied, the next apply without the field, or with false, would start the job outside its queue.
    """
    if jobset["metadata"].get("labels", {}).get(QUEUE):
        jobset["spec"].pop("suspend", None)


def _limit_time(jobset: dict[str, Any], job: TrainJob) -> None:
    """Set the deadline of the trainer's Job, since no controller ends a TrainJob at its deadline."""
    deadline: Any = job.spec.get("activeDeadlineSeconds")
    for replicated in jobs_of(jobset):
        if deadline is not None and ancestor_of(replicated) == TRAINER:
            spec = replicated.job
            own: Any = spec.get("activeDeadlineSeconds", deadline)
            spec["activeDeadlineSeconds"] = first_unknown([deadline, own]) or min(own, deadline)


def end_at_deadline(jobset: dict[str, Any], job: TrainJob) -> None:
    """Let the JobSet fail at the TrainJob's deadline: its `failurePolicy` would restart the Job, with a new deadline.

    Rules of the runtime for this reason stay as they are, and so does a lower limit of the runtime.
    """
    deadline: Any = job.spec.get("activeDeadlineSeconds")
    policy = jobset["spec"].get("failurePolicy")
    if deadline is None or not isinstance(policy, dict):
        return
    trainers = [each for each in jobs_of(jobset) if ancestor_of(each) == TRAINER]
    limited = [each.name for each in trainers if each.job.get("activeDeadlineSeconds") == deadline]
    rules = items(policy, "rules")
    if limited and not any(_DEADLINE in listed(rule.get("onJobFailureReasons")) for rule in rules):
        rule = {
            "name": "activeDeadlineSeconds",
            "action": "FailJobSet",
            "onJobFailureReasons": [_DEADLINE],
            "targetReplicatedJobs": limited,
        }
        jobset["spec"]["failurePolicy"] = {**policy, "rules": [rule, *rules]}


def _connect_open_mpi_5(jobset: dict[str, Any]) -> None:
    """Set the variables of Open MPI 5 beside those of 4, unless the user has set them.

    Without a hostfile, `mpirun` starts all ranks on the launcher, and the job succeeds. PRRTE compares the names in the hostfile,
    which are short, with its own: with full names it would take the launcher for another host.
    """
    for replicated in jobs_of(jobset):
        if replicated.name != LAUNCHER:
            continue
        for container in replicated.pod.containers:
            if container.name == NODE:
                _add_successors(container)


def _add_successors(container: Container) -> None:
    """Set each variable of Open MPI 5 whose predecessor a container has."""
    values = {env.get("name"): env.get("value") for env in container.env}
    for name, successor in OPEN_MPI_5.items():
        if name in values and successor not in values:
            value = values[name]
            if name == KEEP_FQDN:
                value = "false"
            container.document["env"].append({"name": successor, "value": value})
