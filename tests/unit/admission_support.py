"""Documents for the tests of admission, and what comes out of a review."""

from __future__ import annotations

import copy
from typing import Any

from pulumi_trainer.provider.trainer.admission import Verdict

from tests.trainer import review

Document = dict[str, Any]
Fault = tuple[str, str, str]

TRAINER = "trainer.kubeflow.org/v1alpha1"
BLOCKED: Fault = (
    "<nil>",
    "Invalid",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation",
)


def job_template(container: str = "node", ancestor: str | None = "trainer", **pod: Any) -> Document:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": ancestor} if ancestor else {}
    spec = {"containers": [{"name": container, "image": "img:1"}], **pod}
    return {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}


def runtime(kind: str = "ClusterTrainingRuntime", /, **spec: Any) -> Document:
    jobs = [{"name": "node", "template": job_template()}]
    metadata = {"name": "torch", **({"namespace": "ns"} if kind == "TrainingRuntime" else {})}
    full = {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}, **spec}
    return {"apiVersion": TRAINER, "kind": kind, "metadata": metadata, "spec": full}


def train_job(**spec: Any) -> Document:
    metadata = {"name": "job", "namespace": "ns"}
    return {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


def jobset(*jobs: Document, **spec: Any) -> Document:
    template = {"spec": {"parallelism": 2, "completions": 2, **job_template(ancestor=None)["spec"]}}
    replicated = list(jobs) or [{"name": "node", "template": template}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "job", "namespace": "ns"},
        "spec": {"replicatedJobs": replicated, **spec},
    }


def pod_patch(manager: str = "example.io/me", /, time: str | None = None, **pod: Any) -> Document:
    """A runtimePatch for the Pods of the job node."""
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    patch = {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    return {**patch, **({"time": time} if time else {})}


def changed(document: Document, path: str, value: Any = ...) -> Document:
    """A copy with the value at a path such as `spec.runtimePatches.0.manager`; without one, it is removed."""
    document = copy.deepcopy(document)
    holder: Any = document
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return document


class Store:
    """A cluster of documents to look up."""

    def __init__(self, *documents: Document) -> None:
        self.documents = [review(d).stored if d["kind"].endswith("Runtime") else d for d in documents]

    def __call__(self, kind: str, namespace: str, name: str) -> Document | None:
        for document in self.documents:
            assert document is not None
            metadata = document["metadata"]
            if (document["kind"], metadata.get("namespace", ""), metadata["name"]) == (kind, namespace, name):
                return document
        return None


def faults(verdict: Verdict) -> set[Fault]:
    return {(p.where, p.type.removeprefix("FieldValue"), p.why) for p in verdict.errors}


def answer(verdict: Verdict) -> tuple[str | None, set[Fault]]:
    """Which stage refuses, and why."""
    assert verdict.admitted is (verdict.stage is None) is (verdict.stored is not None) is (not verdict.errors)
    return verdict.stage, faults(verdict)


def admitted(document: dict[str, Any], **how: Any) -> dict[str, Any]:
    before = copy.deepcopy(document)
    verdict = review(document, **how)
    assert answer(verdict) == (None, set())
    assert document == before
    assert verdict.stored is not None
    return verdict.stored


def body(where: str, words: str) -> tuple[str, str, str]:
    return (where, "Invalid", f"{where} in body should {words}")


def many(where: str, most: int) -> set[tuple[str, str, str]]:
    return {(where, "TooMany", f"must have at most {most} items"), BLOCKED}


def long(where: str, most: int) -> set[tuple[str, str, str]]:
    return {(where, "TooLong", f"may not be more than {most} bytes"), BLOCKED}


def required(where: str) -> set[tuple[str, str, str]]:
    return {(where, "Required", ""), BLOCKED}


def names(count: int) -> list[dict[str, Any]]:
    return [{"name": f"n{i}"} for i in range(count)]


def jobs_of(*jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {"replicatedJobs": list(jobs), **spec}}}


def job(name: str = "node", /, template: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "template": job_template() if template is None else template, **more}
