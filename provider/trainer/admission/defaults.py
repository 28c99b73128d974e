"""Defaults that an API server writes into runtimes, TrainJobs and JobSets, for rendering and the Local target.

`review` also validates. Sources: the CRDs of a release, and JobSet's mutating webhook (`jobset_webhook`).
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission import jobset_webhook
from pulumi_trainer.provider.trainer.pipeline.release import Release


def default_runtime(document: Document, release: Release) -> Document:
    """Return a ClusterTrainingRuntime or TrainingRuntime as the API server stores it; the argument is not changed."""
    return _filled("ClusterTrainingRuntime", document, release)


def default_train_job(document: Document, release: Release) -> Document:
    """Return a TrainJob as the API server stores it, without the time of its patches; the argument is not changed."""
    filled = _filled("TrainJob", document, release)
    metadata = section(filled, "metadata")
    if not metadata or metadata.get("namespace") is not None:
        return filled
    return {**filled, "metadata": {**metadata, "namespace": "default"}}


def stored_jobset(document: Document, release: Release) -> Document:
    """Return a JobSet as the API server stores it, with the defaults of its CRD and JobSet's webhook."""
    filled = _filled("JobSet", document, release)
    spec = jobset_webhook.mutated(section(filled, "spec"), release.go, Findings())
    return _filled("JobSet", {**filled, "spec": spec}, release)


def _filled(kind: str, document: Document, release: Release) -> Document:
    filled: Document = release.kinds[kind].schema.with_defaults(document)
    return filled
