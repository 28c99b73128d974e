"""Decides whether the existing nodes have capacity for a job in its topology while nothing else runs on them.

Counts as https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go, but ignores taints,
node selectors and other pods, so it never underestimates the capacity.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section, texts
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.labels import PREFERRED, REQUIRED, SLICE_LEVEL, SLICE_SIZE, SLICES, UNCONSTRAINED
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, amount
from pulumi_trainer.provider.kueue.quota import format_amount as shown

Domain = tuple[str, ...]
"""Values of the labels of the levels, from the widest."""


@dataclass(frozen=True)
class TooSmall:
    """Pods that do not fit into the topology.

    Args:
        level: Topology level of which one domain must fit all pods; empty if the whole topology may be used.
        domain: The domain of that level with most capacity.
    """

    pods: PodSet
    flavor: str
    level: str
    domain: str
    most: int
    nodes: int

    def __str__(self) -> str:
        requests = sorted((_pod_requests(self.pods) or {}).items())
        pod = ", ".join(f"{shown(name, n)} {name}" for name, n in requests if n)
        room = f"{self.most} of {self.pods.count} pods of {self.pods.name} ({pod} each), even when nothing else runs"
        if not self.level:
            return f"the {self.nodes} nodes of flavor {self.flavor} have room for {room}"
        largest = f"the largest, {self.domain}, has room for {room}"
        return f"no domain of {self.level} in flavor {self.flavor} is large enough: {largest}"

    @property
    def hint(self) -> str:
        """What to change in the job."""
        if self.level:
            return HINT
        return "request fewer nodes, or less per node"


HINT = "request a wider level, fewer nodes, or less per node"


def find_unfitting_podset(
    sets: Sequence[PodSet], cluster_queue: Document, queues: Queues, closed: Mapping[str, Collection[str]] | None = None
) -> TooSmall | None:
    """Return the first pod set that fits into no flavor of a queue; None if all may fit, or if not enough is known.

    Args:
        queues: Known objects: flavors, topologies and nodes; nothing is known unless all nodes are.
        closed: Name of a pod set -> flavors that cannot take it for another reason; default: none is known.
    """
    if not queues.has_all("Node") or first_unknown(section(cluster_queue, "spec")) is not None:
        return None
    for pods in sets:
        found = _unfitting(pods, cluster_queue, queues, (closed or {}).get(pods.name, ()))
        if found is not None:
            return found
    return None


def _unfitting(pods: PodSet, cluster_queue: Document, queues: Queues, closed: Collection[str]) -> TooSmall | None:
    annotations, requests = pods.annotations, _pod_requests(pods)
    if not isinstance(annotations, Mapping) or SLICES in annotations or first_unknown([*annotations.values()]):
        return None
    explicit = bool(annotations.keys() & {REQUIRED, PREFERRED, UNCONSTRAINED})
    implied = annotations.keys().isdisjoint((SLICE_LEVEL, SLICE_SIZE)) and queues.has_only_topologies(cluster_queue)
    if not pods.count or not requests or not (explicit or implied):
        return None
    for group in map(section, listed(section(cluster_queue, "spec").get("resourceGroups"))):
        if not requests.keys() & {*texts(group.get("coveredResources"))}:
            continue
        results = []
        for quotas in listed(group.get("flavors")):
            name = section(quotas).get("name")
            if name not in closed:
                results.append(_in_flavor(pods, annotations, requests, queues.find("ResourceFlavor", name), queues))
        failures = [result for result in results if result is not None]
        if failures and len(failures) == len(results):
            return max(failures, key=lambda failure: failure.most)
    return None


def _in_flavor(
    pods: PodSet,
    annotations: Mapping[str, Any],
    requests: Mapping[str, Fraction],
    flavor: Document | None,
    queues: Queues,
) -> TooSmall | None:
    if flavor is None or first_unknown(flavor) is not None:
        return None
    levels = queues.levels(flavor)
    level, slice_level = annotations.get(REQUIRED, ""), annotations.get(SLICE_LEVEL)
    if not levels or any(wanted and wanted not in levels for wanted in (level, slice_level)):
        return None
    labels, size = section(flavor, "spec", "nodeLabels"), annotations.get(SLICE_SIZE, "1")
    nodes = [node for node in queues.of("Node") if labels.items() <= section(node, "metadata", "labels").items()]
    capacity = _capacity(nodes, levels)
    if not capacity or not re.fullmatch("[0-9]{1,10}", str(size)) or not int(size):
        return None
    room = {domain: _pods_that_fit(amounts, requests) for domain, amounts in capacity.items()}
    if slice_level:
        slices = _sum_to_level(room, levels.index(slice_level))
        room = {domain: n // int(size) * int(size) for domain, n in slices.items()}
    by_domain: dict[Domain, int]
    if level:
        by_domain = _sum_to_level(room, levels.index(level))
    else:
        by_domain = {(): sum(room.values())}
    best = max(by_domain, key=lambda domain: by_domain[domain])
    if by_domain[best] >= (pods.count or 0):
        return None
    name = str(section(flavor, "metadata").get("name"))
    largest = ""
    if best:
        largest = best[-1]
    return TooSmall(pods, name, level, largest, by_domain[best], len(nodes))


def _capacity(nodes: Sequence[Document], levels: Sequence[str]) -> dict[Domain, dict[str, Fraction]]:
    """Return what the nodes of each narrowest domain can allocate; nothing if that is unknown for one of them."""
    found: dict[Domain, dict[str, Fraction]] = {}
    for node in nodes:
        labels, allocatable = section(node, "metadata", "labels"), section(node, "status", "allocatable")
        if not all(level in labels for level in levels):
            continue  # Kueue places nothing there
        if not allocatable:
            return {}
        domain = found.setdefault(tuple(str(labels[level]) for level in levels), {})
        for resource, quantity in allocatable.items():
            domain[resource] = domain.get(resource, ZERO) + (amount(quantity) or ZERO)
    return found


def _sum_to_level(room: Mapping[Domain, int], level: int) -> dict[Domain, int]:
    """Return how many pods fit into each domain of a level."""
    found: dict[Domain, int] = {}
    for domain, pods in room.items():
        found[domain[: level + 1]] = found.get(domain[: level + 1], 0) + pods
    return found


def _pods_that_fit(capacity: Mapping[str, Fraction], requests: Mapping[str, Fraction]) -> int:
    return min(int(capacity.get(resource, ZERO) // request) for resource, request in requests.items() if request > 0)


def _pod_requests(pods: PodSet) -> dict[str, Fraction] | None:
    """Return what one of the pods requests; None if that is nothing, or unknown."""
    total = pods.requests()
    if total is None or not pods.count:
        return None
    requests = {resource: request / pods.count for resource, request in total.items()}
    if not any(request > 0 for request in requests.values()):
        return None
    return requests
