"""Defaults that an API server writes into runtimes, TrainJobs and JobSets, for rendering and the Local target.

`review` also validates. Sources: the CRDs (`crd_schemas`), and JobSet's mutating webhook (`jobset_webhook`).
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission import jobset_webhook
from pulumi_trainer.provider.trainer.admission.crd_schemas import kinds

Document = dict[str, Any]


def default_runtime(document: Document) -> Document:
    """Return a ClusterTrainingRuntime or TrainingRuntime as the API server stores it; the argument is not changed."""
    return _filled("ClusterTrainingRuntime", document)


def default_train_job(document: Document) -> Document:
    """Return a TrainJob as the API server stores it, without the time of its patches; the argument is not changed."""
    filled = _filled("TrainJob", document)
    metadata = section(filled, "metadata")
    if not metadata or metadata.get("namespace") is not None:
        return filled
    return {**filled, "metadata": {**metadata, "namespace": "default"}}


def default_jobset(document: Document) -> Document:
    """Return a JobSet as it runs: as `stored_jobset`, with each Job's `backoffLimit` (6), which is Kubernetes' default."""
    jobset = stored_jobset(document)
    jobs = [*map(_with_backoff_limit, listed(jobset["spec"].get("replicatedJobs")))]
    if not jobs:
        return jobset
    return {**jobset, "spec": {**jobset["spec"], "replicatedJobs": jobs}}


def stored_jobset(document: Document) -> Document:
    """Return a JobSet as the API server stores it, with the defaults of its CRD and JobSet's webhook."""
    filled = _filled("JobSet", document)
    spec = jobset_webhook.mutated(section(filled, "spec"), Findings())
    return _filled("JobSet", {**filled, "spec": spec})


def _filled(kind: str, document: Document) -> Document:
    filled: Document = kinds()[kind].schema.with_defaults(document)
    return filled


def _with_backoff_limit(job: Any) -> Any:
    """Source: https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/batch/v1/defaults.go"""
    spec = section(job, "template", "spec")
    limit = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
    return {**job, "template": {**section(job, "template"), "spec": {"backoffLimit": limit, **spec}}}
