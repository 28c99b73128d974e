"""Queues that were removed from the program: their remaining work, and their new owners.

The engine asks no provider in the preview of a deletion, and an update deletes last, so the program checks the objects before
any change; annotations of the objects name their stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pulumi_trainer.program.object_owner import ObjectOwner, mark_of
from pulumi_trainer.program.removals import URN, Resources, guarded_targets, jobs_of
from pulumi_trainer.provider.jobs.submission import MAIN, Work
from pulumi_trainer.provider.kubernetes.errors import Problem, several
from pulumi_trainer.provider.kueue.api_resources import api_resource
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST, served_version
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import ON_DELETE

Place = tuple[str, str, str]
"""Kind, namespace (empty for cluster scope), name."""


def queues_with_work(
    target: Mapping[str, Any], version: str, owner: ObjectOwner, named: Collection[str]
) -> dict[str, list[Work]]:
    """Return the removed ClusterQueues that cannot be deleted because they have work -> this work."""
    places = {("ClusterQueue", "", name) for name in named}
    left = [queue for queue in _left(target, "ClusterQueue", version, owner, places) if _how(queue) != "drain"]
    found: dict[str, list[Work]] = {}
    for queue in left:
        name = str(queue["metadata"]["name"])
        work = [*queries.list_queue_work(target, name, version)]
        if work:
            found[name] = work
    return found


def refusals(work: Mapping[str, list[Work]], own: Collection[str], wanted: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each ClusterQueue that cannot be deleted.

    Args:
        own: namespace/name of the stack's jobs.
        wanted: Name of a job of the program -> its queue.
    """

    def stays(each: Work) -> bool:
        """Return whether a job still has its work when the queue is deleted: its queue stays the same, and the job in the
        program.
        """
        kind, _, where = each.job.partition(" ")
        name = where.rpartition("/")[2]
        if kind not in MAIN or where not in own:
            return True
        return name in wanted and wanted[name] == each.queue.rpartition("/")[2]

    hint = 'end or move these jobs; or leave the queue in the program with on_delete="drain" for one `pulumi up`'
    for name, found in work.items():
        left = [each.text for each in found if stays(each)]
        if left:
            why = f"was removed from the program, but is not deleted while it has jobs: {several(left)}"
            yield Problem(f"ClusterQueue {name}", why, hint)


def removal_warnings(
    target: Mapping[str, Any], version: str, owner: ObjectOwner, named: Collection[Place]
) -> Iterator[Problem]:
    """Yield what happens to the work of removed queues that can be deleted."""
    gone = set[str]()
    for found in _left(target, "ClusterQueue", version, owner, named):
        name = found["metadata"]["name"]
        gone.add(name)
        if _how(found) != "drain":
            continue
        work = [each.text for each in queries.list_queue_work(target, name, version)]
        if work:
            why = f"was removed from the program, and is drained before its deletion: {several(work)}"
            yield Problem(
                f"ClusterQueue {name}",
                why,
                "running jobs are suspended, and wait until a queue with this name exists again",
            )
    for found in _left(target, "LocalQueue", version, owner, named):
        place, behind = _place("LocalQueue", found), (found.get("spec") or {}).get("clusterQueue")
        if not behind or behind in gone:
            continue
        queue = f"{place[1]}/{place[2]}"
        work = [each.text for each in queries.list_queue_work(target, behind, version) if each.queue == queue]
        if work:
            why = f"was removed from the program, and is deleted although it has jobs: {several(work)}"
            hint = (
                "running jobs continue; jobs that wait, or are suspended later, wait until a LocalQueue with this"
                " name exists again"
            )
            yield Problem(f"LocalQueue {queue}", why, hint)


def review_undeclared(
    recorded: Resources, owner: ObjectOwner, wanted: Mapping[str, Any]
) -> tuple[list[Problem], list[Problem]]:
    """Return why Kueue's objects of a stack whose program declares none any more cannot be deleted, and what happens to their
    work.

    Args:
        wanted: Name of a job of the program -> its queue.
    """
    refused, warnings = list[Problem](), list[Problem]()
    for target in guarded_targets(recorded, GROUP):
        served = queries.queue_api_versions(target) or {}
        versions = {kind: served_version(kind, served) or NEWEST for kind in KINDS}
        version = versions["ClusterQueue"]
        refused += refusals(queues_with_work(target, version, owner, ()), jobs_of(recorded), wanted)
        refused += transferred_objects(target, versions, recorded, owner, ())
        warnings += removal_warnings(target, version, owner, ())
    return refused, warnings


def recorded_kinds(recorded: Resources) -> set[str]:
    """Return the kinds of Kueue's objects that a stack has."""
    return {kind for kind, _ in _recorded(recorded)}


def transferred_objects(
    target: Mapping[str, Any],
    versions: Mapping[str, str],
    recorded: Resources,
    owner: ObjectOwner,
    named: Collection[Place],
) -> Iterator[Problem]:
    """Yield a problem for each object that was removed from the program and belongs to another stack now."""
    gone: dict[tuple[str, Any, Any], str] = {}
    for kind, (metadata, urn) in _recorded(recorded):
        namespace: Any = ""
        if kind == NAMESPACED:
            namespace = metadata.get("namespace")
        gone[kind, namespace, metadata.get("name")] = urn
    for (kind, namespace, name), urn in gone.items():
        if (kind, namespace, name) in named:
            continue
        for found in queries.list_queue_objects(target, kind, versions[kind]):
            if _place(kind, found) != (kind, namespace, name) or _how(found) == "retain":
                continue
            maker = mark_of(found["metadata"])
            if maker and not owner.owns(target, api_resource(kind, versions[kind]), found["metadata"]):
                why = (
                    f"was removed from the program, but belongs to {owner.called(maker)} now: this stack would"
                    " delete it"
                )
                yield Problem(f"{kind} {name}", why, f"make this stack forget it: pulumi state delete '{urn}'")


def _recorded(recorded: Resources) -> Iterator[tuple[str, tuple[Mapping[str, Any], str]]]:
    """Yield kind, metadata and URN of Kueue's objects that a stack has."""
    for type_, outputs in recorded:
        group, _, kind = type_.removeprefix("kubernetes:").rpartition(":")
        metadata = outputs.get("metadata")
        if group.partition("/")[0] == GROUP and kind in KINDS and isinstance(metadata, Mapping):
            yield kind, (metadata, str(outputs[URN]))


def _left(
    target: Mapping[str, Any], kind: str, version: str, owner: ObjectOwner, named: Collection[Place]
) -> Iterator[Mapping[str, Any]]:
    for found in queries.list_queue_objects(target, kind, version):
        metadata = found["metadata"]
        left = _place(kind, found) not in named and _how(found) != "retain" and "deletionTimestamp" not in metadata
        if left and owner.owns(target, api_resource(kind, version), metadata):
            yield found


def _place(kind: str, found: Mapping[str, Any]) -> Place:
    return kind, found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _how(found: Mapping[str, Any]) -> str:
    return str((found["metadata"].get("annotations") or {}).get(ON_DELETE, ""))
