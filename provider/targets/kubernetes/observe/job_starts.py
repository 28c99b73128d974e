"""Reads what decides when waiting jobs start: Workloads, queues, how long jobs run, and Kueue's own order of those that wait."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, number, section, text
from pulumi_trainer.provider.kueue.api_resources import (
    LOCAL_QUEUE,
    PENDING_IN_CLUSTER_QUEUE,
    PENDING_IN_LOCAL_QUEUE,
    QUEUE_PRIORITY,
    RESOURCE_FLAVOR,
    WORKLOAD,
)
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.answer import forecast_waiting, with_position
from pulumi_trainer.provider.targets.kubernetes.observe.job_durations import read_expectations
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import list_as_served, read_queues

Place = tuple[str, str]
"""Namespace and name of a LocalQueue; an empty namespace and the name of a ClusterQueue."""
_AT_ONCE = 6


def read_starts(client: Client, queues: Collection[Place], documents: Sequence[Document] = ()) -> dict[str, str]:
    """Return behind whom the jobs that wait in some queues wait, and when they start, by namespace/name of the job.

    What the credentials may not read is left out of a sentence; of a job of which nothing is known there is none.

    Args:
        documents: LocalQueues and Workloads of all namespaces; default: they are read.
    """
    facts = Facts.of(client, PLAN_SECONDS)
    starts = facts.ask_once(("starts",), lambda: _forecast(client, documents))
    positions = read_positions(facts, queues)
    return {**starts, **{job: with_position(starts.get(job, ""), position) for job, position in positions.items()}}


def read_queued(client: Client) -> Queues:
    """Return all of what decides when a job in a queue starts, as far as it may be listed."""
    facts, found, whole = Facts.of(client, PLAN_SECONDS), list[Document](), set[str]()
    for kind in (WORKLOAD, LOCAL_QUEUE, QUEUE_PRIORITY):
        listed = list_as_served(facts, kind)
        if listed is not None:
            found += ({**document, "kind": kind.kind} for document in listed)
            whole.add(kind.kind)
    return Queues(tuple(found), frozenset(whole), below=read_queues(client))


def _forecast(client: Client, documents: Sequence[Document]) -> dict[str, str]:
    """Return when waiting jobs start; empty if Workloads or queues cannot be read."""
    if documents:
        kinds = frozenset((WORKLOAD.kind, LOCAL_QUEUE.kind))
        known = Queues(tuple(documents), kinds, below=read_queues(client))
    else:
        known = read_queued(client)
    if not all(map(known.has_all, (WORKLOAD.kind, LOCAL_QUEUE.kind, RESOURCE_FLAVOR.kind))):
        return {}
    return forecast_waiting(known, known.of(WORKLOAD.kind), time.time(), partial(read_expectations, client))


def read_positions(facts: Facts, queues: Collection[Place]) -> dict[str, int]:
    """Return the positions of waiting jobs in their ClusterQueues, from 1 on, by namespace/name of the job.

    One request for each queue, none where the cluster does not serve Kueue's visibility API. Empty where it may not be read.
    """
    versions = facts.served().get(PENDING_IN_LOCAL_QUEUE.group, []) if queues else []
    if not versions:
        return {}
    version = f"{PENDING_IN_LOCAL_QUEUE.group}/{versions[0]}"
    positions: dict[str, int] = {}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for pending in threads.map(partial(_pending, facts, version), sorted(place for place in queues if place[1])):
            positions.update({_job(each): number(each.get("positionInClusterQueue")) + 1 for each in pending})
    return positions


def _pending(facts: Facts, version: str, place: Place) -> list[Document]:
    """Return the waiting Workloads of a queue in Kueue's order; empty if they may not be read, or if Kueue does not answer."""
    namespace, name = place
    kind = replace(PENDING_IN_LOCAL_QUEUE if namespace else PENDING_IN_CLUSTER_QUEUE, api_version=version)

    def ask() -> list[Document]:
        with suppress(TrainerError):
            return mappings(facts.client.read(kind.path(namespace, name, "pendingworkloads")).get("items"))
        return []

    return facts.ask_once((kind, namespace, name, "pending"), ask)


def _job(pending: Document) -> str:
    """Return namespace/name of the job of a waiting Workload, in the visibility API's form: no owner is marked as controller."""
    about = section(pending, "metadata")
    owner = next(iter(mappings(about.get("ownerReferences"))), {})
    return f"{text(about.get('namespace'))}/{text(owner.get('name')) or name_of(pending)}"
