"""What differs between rendering what Trainer's controller makes and what is applied where no controller is.

The last step of `render`. In mode trainer the objects belong to the TrainJob. In mode jobset there is none, so what
the controller would do with it later has to stand in the objects.
"""

from __future__ import annotations

from typing import Any, Literal

from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.kube.values.accessors import items, section
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.pipeline.gangs import by_stage
from pulumi_trainer.provider.pipeline.info import TRAINER, Info, TrainJob

Mode = Literal["jobset", "trainer"]

MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def finish(objects: list[dict[str, Any]], info: Info, job: TrainJob, mode: Mode) -> None:
    """Complete the objects for a mode, in place."""
    if mode == "jobset":
        by_stage(objects, info, job)
    for document in objects:
        if mode == "trainer":
            _own(document, job)
        elif document["kind"] == "JobSet":
            _mark(document, job)
            _leave_to_kueue(document)
            _hand_over(document, job)
            _limit_time(document, job)


def _own(document: dict[str, Any], job: TrainJob) -> None:
    """https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go"""
    if job.uid:
        owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": job.name, "uid": job.uid}
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]


def _mark(jobset: dict[str, Any], job: TrainJob) -> None:
    """The TrainJob's own labels and annotations. Kueue reads queue and priority from the object it manages: without its
    labels on the JobSet the queue would be bypassed in silence. What a reader of the plan wrote wins over the runtime."""
    metadata = jobset["metadata"]
    for name, values in (("labels", job.labels), ("annotations", job.annotations)):
        if values:
            metadata[name] = dict(sorted({**metadata.get(name, {}), **values}.items()))


def _leave_to_kueue(jobset: dict[str, Any]) -> None:
    """Kueue's webhook suspends a job with a queue when it is created, and Kueue alone resumes it. With a manager that
    applies `suspend`, the next apply without the field, or with false, would start the job past its queue."""
    if jobset["metadata"].get("labels", {}).get(QUEUE):
        jobset["spec"].pop("suspend", None)


def _hand_over(jobset: dict[str, Any], job: TrainJob) -> None:
    """A TrainJob that MultiKueue manages is left alone by Trainer's controller; a JobSet needs the same mark."""
    if job.spec.get("managedBy") == MULTIKUEUE:
        jobset["spec"]["managedBy"] = MULTIKUEUE


def _limit_time(jobset: dict[str, Any], job: TrainJob) -> None:
    """Trainer's controller ends a TrainJob at its deadline; without it the trainer's Job has to, by its own."""
    deadline: Any = job.spec.get("activeDeadlineSeconds")
    for replicated in items(jobset["spec"], "replicatedJobs"):
        ancestor = section(replicated, "template", "metadata", "labels").get(ANCESTOR)
        if deadline is not None and ancestor == TRAINER:
            spec = section(replicated, "template", "spec")
            own: Any = spec.get("activeDeadlineSeconds", deadline)
            unknown = next((limit for limit in (deadline, own) if isinstance(limit, Unknown)), None)
            spec["activeDeadlineSeconds"] = unknown or min(own, deadline)
