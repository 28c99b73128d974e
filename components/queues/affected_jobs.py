"""The jobs that a change of one of Kueue's objects affects: those of the priority, or of ClusterQueues that refer to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kueue.objects import references
from pulumi_trainer.provider.targets import queries

_BETWEEN = ("Cohort", "ResourceFlavor", "AdmissionCheck", "MultiKueueConfig")
"""Kinds through which ClusterQueues refer to others."""
Named = tuple[str, str]
"""Kind and name."""


def affected_jobs(target: Mapping[str, Any], live: Mapping[str, Any], kind: str, version: str) -> list[str]:
    """Return the running and waiting jobs that a change of an object affects, as text.

    Raises:
        TargetFault: They cannot be listed.
    """
    about, spec = live["metadata"], live.get("spec") or {}
    if kind == "LocalQueue":
        queue = f"{about['namespace']}/{about['name']}"
        work = queries.queue_work(target, str(spec.get("clusterQueue")), version)
        return [each.text for each in work if each.queue == queue]
    names = [about["name"]]
    if kind != "ClusterQueue":
        names = [*_queues(target, (kind, about["name"]), version)]
    found = []
    for name in names:
        for each in queries.queue_work(target, name, version):
            if kind != "WorkloadPriorityClass" or each.priority == about["name"]:
                found.append(each.text)
    return found


def _queues(target: Mapping[str, Any], asked: Named, version: str) -> Iterator[str]:
    """Yield the ClusterQueues that refer to an object, also through other objects."""
    referred = dict[Named, set[Named]]()
    listed = {"ClusterQueue": queries.list_cluster_queues(target, version)}
    listed |= {kind: queries.list_queue_objects(target, kind, version) for kind in _BETWEEN}
    for kind, objects in listed.items():
        for each in objects:
            named = {(to, name) for to, name, _ in references({**each, "kind": kind})}
            referred[kind, each["metadata"]["name"]] = named
    for kind, name in referred:
        if kind == "ClusterQueue" and (asked[0] == "WorkloadPriorityClass" or _leads_to((kind, name), asked, referred)):
            yield name


def _leads_to(start: Named, asked: Named, referred: Mapping[Named, set[Named]]) -> bool:
    reached = {start}
    while asked not in reached:
        more = set().union(*(referred.get(each, ()) for each in reached)) - reached
        if not more:
            return False
        reached |= more
    return True
