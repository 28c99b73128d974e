"""Finds the clusters to which MultiKueue sends jobs, from the known queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulumi_trainer.provider.jobs.submission import Dispatch
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section, texts
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.pipeline.modes import MULTIKUEUE


def find_dispatch(job: Document, queues: Queues) -> Dispatch | None:
    """Return the clusters to which MultiKueue may send a job; None if it stays here or its queue is not known.

    A job is sent if its ClusterQueue has an AdmissionCheck of MultiKueue's controller, whatever the flavor
    (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/admissionchecks/multikueue), or if its own fields
    request it.
    """
    behind = cluster_queue_of(job, queues)
    for name in _checks(behind):
        check = queues.find("AdmissionCheck", name)
        if check is not None and section(check, "spec").get("controllerName") == MULTIKUEUE:
            reason = f"AdmissionCheck {name} of ClusterQueue {section(behind, 'metadata').get('name')}"
            return Dispatch(_clusters(check, queues), reason)
    if section(job, "spec").get("managedBy") == MULTIKUEUE:
        return Dispatch((), f"managedBy: {MULTIKUEUE}")
    return None


def cluster_queue_of(job: Document, queues: Queues) -> Document | None:
    """Return the ClusterQueue of a TrainJob or a JobSet; None if it has no queue, or if that is not known."""
    metadata = section(job, "metadata")
    local = queues.find("LocalQueue", queues.queue_of(job), metadata.get("namespace") or "default")
    return queues.find("ClusterQueue", section(local, "spec").get("clusterQueue"))


def _checks(cluster_queue: Document | None) -> Iterator[Any]:
    spec = section(cluster_queue, "spec")
    yield from texts(spec.get("admissionChecks"))  # v1beta1
    for each in listed(section(spec, "admissionChecksStrategy").get("admissionChecks")):
        yield section(each).get("name")


def _clusters(check: Document, queues: Queues) -> Sequence[str]:
    config = queues.find("MultiKueueConfig", section(check, "spec", "parameters").get("name"))
    return () if config is None else tuple(texts(section(config, "spec").get("clusters")))
