"""Reads Kueue's queues, the limits of a namespace and the nodes from a cluster, as far as the credentials allow, for the warnings
of previews and the command `queues`.

Each kind is listed once per process and namespace, whatever the number of jobs. Users who may not list a kind get less detail,
and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue import configuration
from pulumi_trainer.provider.kueue.api_resources import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    MULTIKUEUE_CONFIG,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    WORKLOAD,
    api_resource,
    older,
)
from pulumi_trainer.provider.kueue.objects import GROUP
from pulumi_trainer.provider.kueue.queue_state import DEFAULT_QUEUE, Queues

Answer = TypeVar("Answer")

LISTED = (
    CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, TOPOLOGY, ADMISSION_CHECK,
    MULTIKUEUE_CONFIG, kinds.NODE,
)  # fmt: skip
LIMITS = (kinds.LIMIT_RANGE, kinds.RESOURCE_QUOTA, kinds.RUNTIME_CLASS)
CLAIMS = (kinds.RESOURCE_CLAIM_TEMPLATE, kinds.RESOURCE_CLAIM, kinds.DEVICE_CLASS)


def read_queues(client: Client, namespace: str = "", queue: str = "", *, claims: bool = False) -> Queues:
    """Return what decides whether a job starts: the limits of its namespace, the nodes, Kueue's Configuration, and if it has a
    queue, all queues. queue: LocalQueue of the job; empty for none, or for the one that Kueue gives it."""
    facts = Facts.of(client, PLAN_SECONDS)
    has_kueue = GROUP in facts.served()
    local = has_kueue and namespace and facts.find(LOCAL_QUEUE, namespace, queue or DEFAULT_QUEUE)
    kinds_read: tuple[Kind, ...] = (kinds.NODE,)
    if queue or not namespace or isinstance(local, Mapping):
        kinds_read = LISTED
    below = facts.ask_once(("queues", kinds_read), lambda: _listed(facts, kinds_read, has_kueue=has_kueue))
    if not namespace:
        return below
    limits = facts.ask_once(("limits", namespace), lambda: _limits(facts, namespace))
    found = [*limits.documents]
    if claims:
        found += _list_each(facts, CLAIMS, namespace)
    if isinstance(local, Mapping):
        found.append({**local})
    return Queues(tuple(found), below=below)


def read_limits(facts: Facts, namespace: str) -> Queues:
    """Return the LimitRanges, ResourceQuotas and NetworkPolicies of a namespace, and the RuntimeClasses, as far as they may be
    listed.
    """
    return Queues(tuple(_list_each(facts, LIMITS, namespace)))


def _list_each(facts: Facts, listed_kinds: Iterable[Kind], namespace: str) -> Iterator[Document]:
    for kind in listed_kinds:
        for document in facts.all(kind, namespace if kind.namespaced else "") or ():
            yield {"apiVersion": kind.api_version, "kind": kind.kind, **document}


def _limits(facts: Facts, namespace: str) -> Queues:
    """Return the limits of a namespace with its labels."""
    own = facts.find(kinds.NAMESPACE, "", namespace)
    found = [*read_limits(facts, namespace).documents, *_list_each(facts, (kinds.NETWORK_POLICY,), namespace)]
    if isinstance(own, Mapping):
        found.append({"apiVersion": "v1", "kind": "Namespace", **own})
    return Queues(tuple(found))


def _listed(facts: Facts, listed_kinds: Iterable[Kind], *, has_kueue: bool) -> Queues:
    found: list[Document] = []
    whole = set()
    for kind in listed_kinds:
        listed = list_as_served(facts, kind)
        if listed is not None:
            found += ({"apiVersion": kind.api_version, "kind": kind.kind, **document} for document in listed)
            whole.add(kind.kind)
    if has_kueue:
        found += _configuration(facts)
    return Queues(tuple(found), frozenset(whole))


def _configuration(facts: Facts) -> Iterator[Document]:
    """Yield Kueue's Configuration, if it may be read and Kueue has its usual namespace."""
    found = facts.find(kinds.CONFIG_MAP, configuration.NAMESPACE, configuration.CONFIGMAP)
    if not isinstance(found, dict) or not configuration.is_configuration({**found, "kind": kinds.CONFIG_MAP.kind}):
        return
    with suppress(Invalid):  # Kueue does not start with such a file
        yield configuration.configuration_of({**found, "kind": kinds.CONFIG_MAP.kind})


def overview(client: Client, namespace: str = "") -> tuple[list[Document], set[str]]:
    """Return the queues and Workloads of a namespace, and the plurals of the kinds that cannot be listed.

    If LocalQueues cannot be listed, those that Workloads name are read one by one.
    """
    facts = Facts.of(client)
    found: list[Document] = []
    unreadable: set[str] = set()
    for kind in (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, COHORT):
        listed = list_as_served(facts, kind, namespace if kind.namespaced else "")
        if listed is None:
            unreadable.add(kind.plural)
        found += ({**document, "kind": kind.kind} for document in listed or ())
    if LOCAL_QUEUE.plural in unreadable:
        found += _named(facts, found)
    if len(unreadable) == len(("workloads", "localqueues", "clusterqueues", "cohorts")):
        where = f"namespace {namespace}" if namespace else "all namespaces"
        hint = "is Kueue installed? `pulumi-trainer rbac --quotas` prints the permissions"
        raise TargetFault(
            Problem("queues", f"neither Workloads nor queues of {where} can be read in {client.host}", hint)
        )
    return found, unreadable


def list_queued_work(client: Client) -> list[Document]:
    """Return the LocalQueues and Workloads of all namespaces, as far as they may be listed."""
    facts, found = Facts.of(client, PLAN_SECONDS), list[Document]()
    for kind in (LOCAL_QUEUE, WORKLOAD):
        found += ({**document, "kind": kind.kind} for document in list_as_served(facts, kind) or ())
    return found


def list_objects(client: Client, kind: str, version: str) -> list[Document]:
    """Return all objects of a kind of Kueue in an API version; empty if they may not be listed."""
    return Facts.of(client, PLAN_SECONDS).all(api_resource(kind, version)) or []


def lacks_namespace(client: Client, namespace: str) -> bool:
    """Return whether a namespace certainly does not exist."""
    return Facts.of(client, PLAN_SECONDS).find(kinds.NAMESPACE, "", namespace) is False


def _named(facts: Facts, workloads: list[Document]) -> Iterator[Document]:
    places = {(d["metadata"].get("namespace", ""), (d.get("spec") or {}).get("queueName", "")) for d in workloads}
    for namespace, name in sorted(places):
        queue = facts.find(LOCAL_QUEUE, namespace, name) if name else None
        if isinstance(queue, Mapping):
            yield {**queue, "kind": LOCAL_QUEUE.kind}


def ask_as_served(kind: Kind, ask: Callable[[Kind], Answer]) -> Answer:
    """Return the answer to a request about a kind; one of Kueue in the older version if the cluster does not serve the newest."""
    try:
        return ask(kind)
    except ApiError as error:
        if error.code != 404 or kind.group != GROUP:
            raise
    return ask(older(kind))


def list_as_served(facts: Facts, kind: Kind, namespace: str = "") -> list[Document] | None:
    """Return the objects of a kind in the supported version or the one before it; None if they cannot be listed."""
    listed = facts.all(kind, namespace)
    if listed is None and kind.group == GROUP:
        return facts.all(older(kind), namespace)
    return listed
