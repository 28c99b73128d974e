"""The values that an API server fills in. Rendering and the Local target take documents with them.

Nothing is checked or dropped here: that is `review`, which also says what would be stored. Sources: the CRDs (`kinds`),
and JobSet's mutating webhook (`jobset_webhook`).
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.admission import jobset_webhook
from pulumi_trainer.provider.admission.kinds import kinds
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.typed import Findings

Document = dict[str, Any]


def default_runtime(document: Document) -> Document:
    """A ClusterTrainingRuntime or TrainingRuntime as the API server stores it; the given one is not changed."""
    return _filled("ClusterTrainingRuntime", document)


def default_train_job(document: Document) -> Document:
    """A TrainJob as the API server stores it, less the time of its patches; the given one is not changed."""
    filled = _filled("TrainJob", document)
    metadata = section(filled, "metadata")
    if not metadata or metadata.get("namespace") is not None:
        return filled
    return {**filled, "metadata": {**metadata, "namespace": "default"}}


def default_jobset(document: Document) -> Document:
    """A JobSet as it runs: as `stored_jobset`, and each Job's `backoffLimit` (6), which is Kubernetes' default."""
    jobset = stored_jobset(document)
    jobs = [_with_backoff_limit(job) for job in listed(jobset["spec"].get("replicatedJobs"))]
    return {**jobset, "spec": {**jobset["spec"], "replicatedJobs": jobs}} if jobs else jobset


def stored_jobset(document: Document) -> Document:
    """A JobSet as the API server stores it, after its CRD's defaults and JobSet's webhook."""
    filled = _filled("JobSet", document)
    spec = jobset_webhook.mutated(section(filled, "spec"), Findings())
    return _filled("JobSet", {**filled, "spec": spec})


def _filled(kind: str, document: Document) -> Document:
    filled: Document = kinds()[kind].schema.filled(document)
    return filled


def _with_backoff_limit(job: Any) -> Any:
    """https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/batch/v1/defaults.go"""
    spec = section(job, "template", "spec")
    limit = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
    return {**job, "template": {**section(job, "template"), "spec": {"backoffLimit": limit, **spec}}}
