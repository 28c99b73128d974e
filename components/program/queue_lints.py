"""The checks of the program's queues, and the queues that apply to a job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.program.severities import by_severity
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kueue.queue_state import REQUIRED_BY_QUEUES, Queues, complete_queues
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.warnings import queue_warnings
from pulumi_trainer.provider.trainer.admission.warnings.quota_changes import has_changed_quota

Documents = Sequence[dict[str, Any]]
ABOUT_QUEUES = ("LocalQueue ", "ClusterQueue ", "Cohort ", "ResourceFlavor ")
"""Prefixes of the path of a warning about a queue instead of a job."""


async def find_queues(
    documents: Documents, target: Mapping[str, Any], namespace: Any, queue: Any, *, claims: bool = False
) -> Queues:
    """Return what decides whether a job starts, of the program and of the job's cluster, as far as the cluster is reachable: the
    limits of its namespace, the nodes, for a job with a queue the queues, and the devices that it claims.

    Args:
        target: Connection settings of the job's cluster; a target on this machine has no queues.
    """
    if not isinstance(namespace, str):
        return Queues()
    there = await asyncio.to_thread(queries.find_queues, target, namespace, text(queue), claims=claims)
    return _with_cluster(documents, there)


async def queue_problems(
    documents: Documents, target: Mapping[str, Any] | None
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Return errors and warnings of the program's queues in one cluster; a preview also says whom a change of quota affects."""
    there = await asyncio.to_thread(_queues_of, documents, target) if target is not None else None
    return by_severity(queue_warnings(documents, _with_cluster(documents, there)), {})


def _queues_of(documents: Documents, target: Mapping[str, Any]) -> Queues | None:
    """Return the queues of a cluster, with its Workloads if a preview changes quota; None if it is unreachable."""
    there = queries.find_queues(target)
    if there is None or not pulumi.runtime.is_dry_run() or not any(has_changed_quota(d, there) for d in documents):
        return there
    return Queues(tuple(queries.list_queued_work(target) or ()), below=there)


def _with_cluster(documents: Documents, there: Queues | None) -> Queues:
    """Return the queues of program and cluster; only the program's if the cluster is unreachable."""
    own = complete_queues(documents)
    if there is None:  # what its queues refer to may be in the cluster
        return Queues(own.documents, own.whole - {*REQUIRED_BY_QUEUES})
    return Queues(own.documents, below=there)
