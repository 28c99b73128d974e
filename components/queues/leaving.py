"""Queues that a stack has made and its program no longer names: what becomes of their work. Called by `component`, in previews.

The engine asks no provider in the preview of a deletion, so the program itself looks: the objects say whose they are. A
program without any of Kueue's objects in a cluster does not look there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem, several
from pulumi_trainer.provider.api.labels import MADE_BY, ON_DELETE

Place = tuple[str, str, str]
"""Kind, namespace (empty: of the cluster), name."""


def leaving(target: Mapping[str, Any], version: str, stack: str, named: Collection[Place]) -> Iterator[Problem]:
    """target: the cluster. version: of its ClusterQueues and LocalQueues. named: what the program makes."""
    gone = set[str]()
    for found in _left(target, "ClusterQueue", version, stack, named):
        name = found["metadata"]["name"]
        gone.add(name)
        work = [each for told in dynamic.queue_work(target, name, version).values() for each in told]
        if work:
            yield _of_cluster_queue(name, several(work), drain=_how(found) == "drain")
    for found in _left(target, "LocalQueue", version, stack, named):
        place, behind = _place("LocalQueue", found), (found.get("spec") or {}).get("clusterQueue")
        queue = f"{place[1]}/{place[2]}"
        held = dynamic.queue_work(target, behind, version).get(queue) if behind and behind not in gone else None
        if held:
            why = f"is no longer in the program, and goes while it has work: {several(held)}"
            mend = "what runs goes on; what waits, or is suspended later, waits for a LocalQueue of that name"
            yield Problem(f"LocalQueue {queue}", why, mend)


def _of_cluster_queue(name: str, work: str, *, drain: bool) -> Problem:
    where = f"ClusterQueue {name}"
    if drain:
        why = f"is no longer in the program, and is drained before it is deleted: {work}"
        return Problem(where, why, "what runs is suspended; it waits for another queue of that name")
    why = f"is no longer in the program, and its deletion is refused while it has work: {work}"
    mend = 'end or move these jobs; or leave the queue in the program with on_delete="drain" for one `pulumi up`'
    return Problem(where, why, mend)


def _left(
    target: Mapping[str, Any], kind: str, version: str, stack: str, named: Collection[Place]
) -> Iterator[Mapping[str, Any]]:
    for found in dynamic.queue_objects(target, kind, version):
        metadata = found["metadata"]
        ours = (metadata.get("annotations") or {}).get(MADE_BY) == stack and "deletionTimestamp" not in metadata
        if ours and _place(kind, found) not in named and _how(found) != "retain":
            yield found


def _place(kind: str, found: Mapping[str, Any]) -> Place:
    return kind, found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _how(found: Mapping[str, Any]) -> str:
    return str((found["metadata"].get("annotations") or {}).get(ON_DELETE, ""))
