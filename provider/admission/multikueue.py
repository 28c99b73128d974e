"""Which jobs MultiKueue sends to other clusters, as far as queues are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    listed,
    section,
    texts,
)
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.pipeline.modes import MULTIKUEUE

ELSEWHERE = "the worker clusters of MultiKueue"


def workers(train_job: Document, queues: Queues) -> str:
    """Return the clusters that MultiKueue may send a job to, in words; empty if it stays here or its queue is not known.

    A job goes elsewhere if its ClusterQueue has an AdmissionCheck of MultiKueue's controller, whatever the flavor
    (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/admissionchecks/multikueue), or says so itself.
    """
    metadata = section(train_job, "metadata")
    local = queues.find("LocalQueue", section(metadata, "labels").get(QUEUE), metadata.get("namespace") or "default")
    behind = queues.find("ClusterQueue", section(local, "spec").get("clusterQueue")) if local is not None else None
    for name in _checks(behind) if behind is not None else ():
        check = queues.find("AdmissionCheck", name)
        if check is not None and section(check, "spec").get("controllerName") == MULTIKUEUE:
            clusters = _clusters(check, queues) or ELSEWHERE
            return f"{clusters} (AdmissionCheck {name} of ClusterQueue {section(behind, 'metadata').get('name')})"
    managed = section(train_job, "spec").get("managedBy") == MULTIKUEUE
    return f"{ELSEWHERE} (managedBy: {MULTIKUEUE})" if managed else ""


def _checks(cluster_queue: Document) -> Iterator[Any]:
    spec = section(cluster_queue, "spec")
    yield from texts(spec.get("admissionChecks"))  # v1beta1
    for each in listed(section(spec, "admissionChecksStrategy").get("admissionChecks")):
        yield section(each).get("name")


def _clusters(check: Document, queues: Queues) -> str:
    config = queues.find("MultiKueueConfig", section(check, "spec", "parameters").get("name"))
    return ", ".join(texts(section(config, "spec").get("clusters"))) if config is not None else ""
