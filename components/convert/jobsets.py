"""Turns a JobSet into a TrainJob and its runtime, and compares it with the JobSet of the TrainJob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulumi_trainer.convert.defaults import without_defaults
from pulumi_trainer.convert.findings import Findings
from pulumi_trainer.convert.proof import differences, render_jobset, shown
from pulumi_trainer.convert.upgrade import PLACE, derived, hide_secrets
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, name_of, section, without
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.admission.defaults import stored_jobset, with_job_defaults
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.releases import DEFAULT


@dataclass
class JobSetJob(Findings):
    """A JobSet and the documents that take its place."""

    document: Document
    runtime: Document | None
    train_job: Document


def is_jobset(document: Document) -> bool:
    """Return whether a document is a JobSet."""
    return document.get("kind") == "JobSet" and document.get("apiVersion") == JOBSET.api_version


def read_jobset(document: Document) -> JobSetJob:
    """Return a JobSet with the documents that take its place. Raises Invalid if it holds a secret in plain text."""
    spec, notes = section(without_defaults(document), "spec"), list[str]()
    hide_secrets(document, (), notes)
    own: Document = {"runtimeRef": {"kind": "TrainingRuntime", "name": name_of(document)}, "trainer": {}}
    if spec.get("suspend") and labels_of(document).get(QUEUE):
        notes.append("suspend is left out: Kueue suspends and resumes the job of a queue")
    elif spec.get("suspend"):
        own["suspend"] = spec["suspend"]
    train_job = {**derived("TrainJob", document, (*PLACE, "labels", "annotations")), "spec": own}
    runtime = derived("TrainingRuntime", document, PLACE)
    runtime["spec"] = {"template": {"spec": without(spec, "suspend")}}
    return JobSetJob(document, runtime, train_job, notes=notes)


def compare_jobset(job: JobSetJob, runtime: Document, train_job: Document) -> None:
    """Note how the JobSet of a TrainJob differs from the one of the file."""
    made = render_jobset(runtime, train_job, job.differences)
    if not made:
        return
    for path, before, after in differences(_stored_spec(job.document), _stored_spec(made)):
        if path != "suspend":
            job.differences.append(f"spec.{path}: {shown(before)} became {shown(after)}")


def _stored_spec(jobset: Document) -> Any:
    """Return the spec of a JobSet with the defaults of the API server, as far as it accepts the JobSet."""
    try:
        jobset = stored_jobset(jobset, DEFAULT)
    except Invalid:
        pass
    return _without_empty(section(with_job_defaults(jobset), "spec"))


def _without_empty(value: Any) -> Any:
    """Return a document without empty mappings, which the API does not distinguish from missing ones here."""
    if isinstance(value, list):
        return [*map(_without_empty, value)]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, each in value.items():
        kept = _without_empty(each)
        if kept != {}:
            found[key] = kept
    return found
