"""Runtimes and TrainJobs for the tests of warnings."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.trainer.admission.warnings import Warning

from tests.trainer import default_runtime, default_train_job, render, warnings

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
Document = dict[str, Any]


def step(name: str = "node", ancestor: str = "trainer", pod: Document | None = None, **more: Any) -> Document:
    """A replicated job with the container `node`, whose fields `container` gives, and those of its Jobs `ended`."""
    container = {"name": more.pop("called", "node"), "image": "example.com/train:1", **more.pop("container", {})}
    spec = {"containers": [container], **(pod or {})}
    template: Document = {"spec": {**more.pop("ended", {}), "template": {"spec": spec}}}
    if ancestor:
        template["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": name, "template": template, **more}


def runtime(policy: Document | None, *steps: Document, name: str = "torch-distributed", **spec: Any) -> Document:
    gang = {"podGroupPolicy": spec.pop("gang")} if "gang" in spec else {}
    template = {"spec": {"replicatedJobs": list(steps or [step()]), **spec}}
    policies = {} if policy is None else {"mlPolicy": policy}
    return {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {**policies, **gang, "template": template},
    }


def job(trainer: Document | None = None, name: str = "job", **spec: Any) -> Document:
    given = {} if trainer is None else {"trainer": trainer}
    return {"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "torch-distributed"}, **given, **spec}}


def patched(**pod: Any) -> list[Document]:
    """`runtimePatches` with one that changes the Pods of `node`."""
    jobs = [{"name": pod.pop("job", "node"), "template": {"spec": {"template": {"spec": pod}}}}]
    return [{"manager": "acme.io/team", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


def found(given: Document, train_job: Document, mode: Any = "jobset", **known: Any) -> list[Warning]:
    """All warnings about a job as the pipeline renders it; one that cannot be rendered has no objects."""
    train_job["spec"]["runtimeRef"]["name"] = given["metadata"]["name"]
    documents = default_runtime(given), default_train_job(train_job)
    try:
        objects = render(*documents, mode=mode).objects
    except Invalid:
        objects = {}
    return list(warnings(*documents, objects, mode=mode, **known))


def codes(given: Document, train_job: Document, **known: Any) -> list[str]:
    return [warning.code for warning in found(given, train_job, **known)]
