"""Defaults that an API server writes into runtimes, TrainJobs and JobSets, for rendering and the Local target.

`review` also validates. Sources: the CRDs of a release, and JobSet's mutating webhook (`jobset_webhook`).
"""

from __future__ import annotations

import copy

from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.trainer.admission import jobset_webhook
from pulumi_trainer.provider.trainer.pipeline.release import Release

_ONE_POD = {"parallelism": 1, "completions": 1}
"""Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/batch/v1/defaults.go (SetDefaults_Job)"""


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


def with_job_defaults(jobset: Document) -> Document:
    """Return a JobSet with the number of Pods that Kubernetes gives to a Job without one; the argument is not changed."""
    made = copy.deepcopy(jobset)
    for job in jobs_of(made):
        if not _ONE_POD.keys() & job.job.keys():
            job.job.update(_ONE_POD)
    return made


def without_job_defaults(document: Document, live: Document) -> Document:
    """Return a JobSet or TrainJob without the defaults that the one in the cluster leaves out: most cannot be added there."""
    made = copy.deepcopy(document)
    for name, default in (("suspend", False), ("trainer", {})):
        if name not in live["spec"] and made["spec"].get(name) == default:
            del made["spec"][name]
    bare = {job.name for job in jobs_of(live) if not _ONE_POD.keys() & job.job.keys()}
    for job in jobs_of(made):
        if job.name in bare and job.job.items() >= _ONE_POD.items():
            for name in _ONE_POD:
                del job.job[name]
    return made


def _filled(kind: str, document: Document, release: Release) -> Document:
    filled: Document = release.kinds[kind].schema.with_defaults(document)
    return filled
