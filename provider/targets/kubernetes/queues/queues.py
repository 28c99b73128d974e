"""What a cluster knows of Kueue's queues, as far as we may read it: for the lints of previews, and for the command `queues`.

Lists cost one request a kind and process, whatever the number of jobs. Who may not list ClusterQueues hears less, and no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulumi_trainer.provider.kube.cache.discovery import PATIENCE, Document, Facts
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import Client
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.resources import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    MULTIKUEUE_CONFIG,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    WORKLOAD,
)

LISTED = (
    CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, TOPOLOGY, ADMISSION_CHECK,
    MULTIKUEUE_CONFIG, kinds.NODE,
)  # fmt: skip
OLDER = "kueue.x-k8s.io/v1beta1"


def known(client: Client, namespace: str = "", queue: str = "") -> Queues:
    """All queues of the cluster. queue: the LocalQueue of a job. Raises TargetFault: the cluster cannot be asked."""
    facts = Facts.of(client, PATIENCE)
    with facts.alone("queues", None):
        there: Queues | None = facts.recall("queues", None)
        if there is None:
            there = _listed(facts)
            facts.remember("queues", None, there)
    local = facts.find(LOCAL_QUEUE, namespace, queue) if namespace and queue else None
    return Queues(({**local},), below=there) if isinstance(local, Mapping) else there


def _listed(facts: Facts) -> Queues:
    found: list[Document] = []
    whole = set()
    for kind in LISTED:
        if (listed := listed_as_served(facts, kind)) is not None:
            found += ({"apiVersion": kind.api_version, "kind": kind.kind, **document} for document in listed)
            whole.add(kind.kind)
    return Queues(tuple(found), frozenset(whole))


def overview(client: Client, namespace: str = "") -> tuple[list[Document], set[str]]:
    """(queues and Workloads of a namespace, or of all; plurals of kinds that cannot be read). Who may not list LocalQueues gets
    those that Workloads name, if they may be read one by one. Raises TargetFault where nothing at all can be read."""
    facts = Facts.of(client)
    found: list[Document] = []
    unseen: set[str] = set()
    for kind in (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, COHORT):
        listed = listed_as_served(facts, kind, namespace if kind.namespaced else "")
        if listed is None:
            unseen.add(kind.plural)
        found += ({**document, "kind": kind.kind} for document in listed or ())
    if LOCAL_QUEUE.plural in unseen:
        found += _named(facts, found)
    if len(unseen) == len(("workloads", "localqueues", "clusterqueues", "cohorts")):
        where = f"namespace {namespace}" if namespace else "all namespaces"
        mend = "is Kueue installed? `pulumi-trainer rbac --quotas` prints the permissions"
        raise TargetFault(
            Problem("queues", f"neither Workloads nor queues of {where} can be read in {client.host}", mend)
        )
    return found, unseen


def there(client: Client, kind: str, version: str) -> list[Document]:
    """All objects of a kind of Kueue's, in a version of its API; none where we may not list them."""
    of = Kind(f"{GROUP}/{version}", kind, KINDS[kind], kind == NAMESPACED)
    return Facts.of(client, PATIENCE).all(of) or []


def lacks_namespace(client: Client, namespace: str) -> bool:
    """Whether it is certain that there is no such namespace."""
    return Facts.of(client, PATIENCE).find(kinds.NAMESPACE, "", namespace) is False


def _named(facts: Facts, workloads: list[Document]) -> Iterator[Document]:
    """The LocalQueues that Workloads name."""
    places = {(d["metadata"].get("namespace", ""), (d.get("spec") or {}).get("queueName", "")) for d in workloads}
    for namespace, name in sorted(places):
        queue = facts.find(LOCAL_QUEUE, namespace, name) if name else None
        if isinstance(queue, Mapping):
            yield {**queue, "kind": LOCAL_QUEUE.kind}


def listed_as_served(facts: Facts, kind: Kind, namespace: str = "") -> list[Document] | None:
    """In the version that we speak, or the one before it."""
    listed = facts.all(kind, namespace)
    if listed is None and kind.group == CLUSTER_QUEUE.group:
        return facts.all(replace(kind, api_version=OLDER), namespace)
    return listed
