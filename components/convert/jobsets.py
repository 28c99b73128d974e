"""Turns a JobSet into a TrainJob and its runtime, and compares the Pod templates of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.convert.proof import differences
from pulumi_trainer.convert.upgrade import hide_secrets
from pulumi_trainer.plan.runtime_ref import API_VERSION
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.accessors import Document, name_of, section, without
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.admission.defaults import stored_jobset
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.offline import Cluster
from pulumi_trainer.provider.trainer.releases import DEFAULT


@dataclass
class JobSetJob:
    """A JobSet and the documents that take its place.

    Attributes:
        notes: What differs, each with its reason.
        differences: What differs without a reason.
    """

    document: Document
    runtime: Document | None
    train_job: Document
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def is_jobset(document: Document) -> bool:
    """Return whether a document is a JobSet."""
    return document.get("kind") == "JobSet" and document.get("apiVersion") == JOBSET.api_version


def read_jobset(document: Document) -> JobSetJob:
    """Return a JobSet with the documents that take its place. Raises Invalid if it holds a secret in plain text."""
    about, spec = section(document, "metadata"), section(document, "spec")
    place = {key: about[key] for key in ("name", "namespace") if about.get(key)}
    own: Document = {"runtimeRef": {"kind": "TrainingRuntime", "name": name_of(document)}, "trainer": {}}
    notes = list[str]()
    hide_secrets(document, (), notes)
    if spec.get("suspend") and section(about, "labels").get(QUEUE):
        notes.append("suspend is left out: Kueue suspends and resumes the job of a queue")
    elif spec.get("suspend"):
        own["suspend"] = spec["suspend"]
    metadata = {**place, **{key: about[key] for key in ("labels", "annotations") if about.get(key)}}
    train_job = {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": own}
    template = {"spec": without(spec, "suspend")}
    runtime = {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": place, "spec": {"template": template}}
    return JobSetJob(document, runtime, train_job, notes)


def compare_jobset(job: JobSetJob, runtime: Document, train_job: Document) -> None:
    """Note how the JobSet of a TrainJob differs from the one of the file."""
    cluster = Cluster("jobset", DEFAULT)
    objects = list[Document]()
    for document in (runtime, train_job):
        result = cluster.apply(document)
        if result is None or not result.admitted:
            why = [str(error) for error in result.errors] if result else []
            job.differences.append(f"the {document['kind']} is refused: {'; '.join(why)}")
            return
        objects = result.objects
    made = next((each for each in objects if each["kind"] == "JobSet"), {})
    for path, before, after in differences(_without_empty(_stored(job.document)), _without_empty(_stored(made))):
        if path.startswith("spec") and path != "spec.suspend":
            job.differences.append(f"{path}: {before!r} became {after!r}")


def _stored(jobset: Document) -> Document:
    """Return a JobSet with the defaults of the API server, as far as it accepts the JobSet; metadata is not compared."""
    try:
        stored = stored_jobset(jobset, DEFAULT)
    except Invalid:
        stored = jobset
    return {"spec": section(stored, "spec")}


def _without_empty(value: Any) -> Any:
    """Return a document without empty mappings and lists, which the API does not distinguish from missing ones here."""
    if isinstance(value, dict):
        fields = {key: _without_empty(each) for key, each in value.items()}
        return {key: each for key, each in fields.items() if each not in ({}, [])}
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    return value

