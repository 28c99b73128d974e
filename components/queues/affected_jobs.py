"""The jobs that a change of an object of Kueue's affects: those of its priority, of queues that refer to it, of borrowers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kueue.objects import references
from pulumi_trainer.provider.kueue.quota import amount
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
    if kind == "ClusterQueue":
        names = [about["name"], *_borrowers(target, live, version)]
    else:
        names = [*_queues(target, (kind, about["name"]), version)]
    found = []
    for name in names:
        for each in queries.queue_work(target, name, version):
            if kind != "WorkloadPriorityClass" or each.priority == about["name"]:
                found.append(each.text)
    return found


def _borrowers(target: Mapping[str, Any], live: Mapping[str, Any], version: str) -> Iterator[str]:
    """Yield the other ClusterQueues of a queue's cohort that borrow now: what they use may be the queue's quota."""
    cohort, own = _cohort_of(live), live["metadata"]["name"]
    if not cohort:
        return
    for each in queries.list_cluster_queues(target, version):
        if _cohort_of(each) == cohort and each["metadata"]["name"] != own and _borrows(each):
            yield each["metadata"]["name"]


def _cohort_of(cluster_queue: Mapping[str, Any]) -> str:
    spec = section(cluster_queue, "spec")
    return text(spec.get("cohortName")) or text(spec.get("cohort"))  # v1beta1


def _borrows(cluster_queue: Mapping[str, Any]) -> bool:
    for flavor in mappings(section(cluster_queue, "status").get("flavorsUsage")):
        for resource in mappings(flavor.get("resources")):
            if amount(resource.get("borrowed")):
                return True
    return False


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
