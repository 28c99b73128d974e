"""What a cluster knows of Kueue's queues, as far as we may read it: for the lints of previews. Called by `target`.

Lists cost one request a kind and process, whatever the number of jobs. Who may not list ClusterQueues hears less, and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulumi_trainer.provider.admission.queues import Queues

from . import kinds
from .client import Client
from .facts import Document, Facts
from .kinds import Kind
from .review import PATIENCE

LISTED = (
    kinds.CLUSTER_QUEUE, kinds.COHORT, kinds.RESOURCE_FLAVOR, kinds.TOPOLOGY, kinds.ADMISSION_CHECK, kinds.NODE,
)  # fmt: skip
OLDER = "kueue.x-k8s.io/v1beta1"


def known(client: Client, namespace: str = "", queue: str = "") -> Queues:
    """All queues of the cluster. queue: the LocalQueue of a job. Raises TargetFault: the cluster cannot be asked."""
    facts = Facts.of(client, PATIENCE)
    found: list[Document] = []
    whole = set()
    for kind in LISTED:
        if (listed := listed_as_served(facts, kind)) is not None:
            found += ({"apiVersion": kind.api_version, "kind": kind.kind, **document} for document in listed)
            whole.add(kind.kind)
    local = facts.find(kinds.LOCAL_QUEUE, namespace, queue) if namespace and queue else None
    if isinstance(local, Mapping):
        found.append({**local})
    return Queues(tuple(found), frozenset(whole))


def listed_as_served(facts: Facts, kind: Kind, namespace: str = "") -> list[Document] | None:
    """In the version that we speak, or the one before it."""
    listed = facts.all(kind, namespace)
    if listed is None and kind.group == kinds.CLUSTER_QUEUE.group:
        return facts.all(replace(kind, api_version=OLDER), namespace)
    return listed
