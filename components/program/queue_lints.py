"""What is known of Kueue's queues where a program looks at a job, and what is wrong with the queues that it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pulumi_trainer.program.severities import by_severity
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.admission.warnings import queue_warnings
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kueue.queue_state import Queues, among

Documents = Sequence[dict[str, Any]]
ABOUT_QUEUES = ("LocalQueue ", "ClusterQueue ", "Cohort ", "ResourceFlavor ")
"""How the path of a warning begins that is not about a job."""


async def known(documents: Documents, target: Mapping[str, Any], namespace: Any, queue: Any) -> Queues:
    """The program's own documents, and those of the cluster that a job goes to, as far as it can be asked. queue: of the job;
    without one there is nothing to know."""
    if not isinstance(namespace, str) or not isinstance(queue, str) or not queue:
        return Queues()
    return _with_cluster(documents, await asyncio.to_thread(dynamic.queues, target, namespace, queue))


async def of_queues(
    documents: Documents, clusters: Iterable[Mapping[str, Any]]
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """What is wrong with the program's queues by themselves: what refuses it, and what is only told."""
    target = next(iter(clusters), None)
    there = None if target is None else await asyncio.to_thread(dynamic.queues, target)
    return by_severity(queue_warnings(documents, _with_cluster(documents, there)), {})


def _with_cluster(documents: Documents, there: Queues | None) -> Queues:
    """A cluster that cannot be asked leaves the program's own word: a cohort is then as large as the program makes it."""
    own = among(documents)
    return own if there is None else Queues(own.documents, below=there)
