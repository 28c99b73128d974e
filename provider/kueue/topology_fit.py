"""Whether the nodes that there are could ever hold a job where its topology wants it, with nothing else on them.

Counted as in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go, and never less:
taints, node selectors and pods of others are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    listed,
    section,
    texts,
)
from pulumi_trainer.provider.kube.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.labels import (
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, amount
from pulumi_trainer.provider.kueue.quota import text as shown

Domain = tuple[str, ...]
"""Values of the labels of the levels, from the widest."""


@dataclass(frozen=True)
class Cramped:
    """Pods that have no room. level: of which one domain has to hold them; empty: anywhere in the topology will do. domain: the
    one with most room, which is for so many of them. nodes: of the flavor."""

    pods: PodSet
    flavor: str
    level: str
    domain: str
    most: int
    nodes: int

    def __str__(self) -> str:
        each = ", ".join(f"{shown(name, n)} {name}" for name, n in sorted((_each(self.pods) or {}).items()) if n)
        asked = f"{self.most} of {self.pods.count} pods of {self.pods.name} ({each} each), even when nothing else runs"
        if not self.level:
            return f"the {self.nodes} nodes of flavor {self.flavor} have room for {asked}"
        where = f"the largest, {self.domain}, has room for {asked}"
        return f"no domain of {self.level} in flavor {self.flavor} is large enough: {where}"


MEND = "ask for a wider level, fewer nodes, or less a node"


def cramped(sets: Sequence[PodSet], cluster_queue: Document, queues: Queues) -> Cramped | None:
    """The first of some pod sets for which no flavor of the queue has room; None: there may be some, or not enough is known."""
    if not queues.has_all("Node") or first_unknown(section(cluster_queue, "spec")) is not None:
        return None
    return next((found for pods in sets if (found := _cramped(pods, cluster_queue, queues)) is not None), None)


def _cramped(pods: PodSet, cluster_queue: Document, queues: Queues) -> Cramped | None:
    notes, each = pods.annotations, _each(pods)
    if (
        not isinstance(notes, Mapping)
        or SLICES in notes
        or not pods.count
        or not each
        or first_unknown([*notes.values()])
    ):
        return None
    if not any(key in notes for key in (REQUIRED, PREFERRED, UNCONSTRAINED)):
        return None
    for group in listed(section(cluster_queue, "spec").get("resourceGroups")):
        if each.keys() & {*texts(section(group).get("coveredResources"))}:
            names = [section(flavor).get("name") for flavor in listed(section(group).get("flavors"))]
            found = [_in_flavor(pods, notes, each, queues.find("ResourceFlavor", name), queues) for name in names]
            full = [one for one in found if one is not None]
            if found and len(full) == len(found):
                return max(full, key=lambda one: one.most)
    return None


def _in_flavor(
    pods: PodSet, notes: Mapping[str, Any], each: Mapping[str, Fraction], flavor: Document | None, queues: Queues
) -> Cramped | None:
    levels = queues.levels(flavor) if flavor is not None and first_unknown(flavor) is None else None
    level, slice_ = notes.get(REQUIRED, ""), notes.get(SLICE_LEVEL)
    if flavor is None or not levels or any(wanted and wanted not in levels for wanted in (level, slice_)):
        return None
    labels, size = section(flavor, "spec", "nodeLabels"), notes.get(SLICE_SIZE, "1")
    nodes = [node for node in queues.of("Node") if labels.items() <= section(node, "metadata", "labels").items()]
    free = _leaves(nodes, levels)
    if not free or not re.fullmatch("[0-9]{1,10}", str(size)) or not int(size):
        return None
    room = {leaf: _pods(amounts, each) for leaf, amounts in free.items()}
    if slice_:
        whole = _within(room, levels.index(slice_))
        room = {domain: n // int(size) * int(size) for domain, n in whole.items()}
    by_domain: dict[Domain, int] = _within(room, levels.index(level)) if level else {(): sum(room.values())}
    best = max(by_domain, key=lambda domain: by_domain[domain])
    if by_domain[best] >= (pods.count or 0):
        return None
    name = str(section(flavor, "metadata").get("name"))
    return Cramped(pods, name, level, best[-1] if best else "", by_domain[best], len(nodes))


def _leaves(nodes: Sequence[Document], levels: Sequence[str]) -> dict[Domain, dict[str, Fraction]]:
    """What the nodes of each narrowest domain have; nothing where that is not known of all."""
    found: dict[Domain, dict[str, Fraction]] = {}
    for node in nodes:
        labels, there = section(node, "metadata", "labels"), section(node, "status", "allocatable")
        if not all(level in labels for level in levels):
            continue  # Kueue places nothing there
        if not there:
            return {}
        leaf = found.setdefault(tuple(str(labels[level]) for level in levels), {})
        for resource, quantity in there.items():
            leaf[resource] = leaf.get(resource, ZERO) + (amount(quantity) or ZERO)
    return found


def _within(room: Mapping[Domain, int], level: int) -> dict[Domain, int]:
    """The room of the domains of a level."""
    found: dict[Domain, int] = {}
    for domain, pods in room.items():
        found[domain[: level + 1]] = found.get(domain[: level + 1], 0) + pods
    return found


def _pods(free: Mapping[str, Fraction], each: Mapping[str, Fraction]) -> int:
    return min(int(free.get(resource, ZERO) // asked) for resource, asked in _asked(each))


def _asked(each: Mapping[str, Fraction]) -> Iterator[tuple[str, Fraction]]:
    yield from ((resource, asked) for resource, asked in each.items() if asked > 0)


def _each(pods: PodSet) -> dict[str, Fraction] | None:
    """What one of the pods asks for; None: nothing, or not known."""
    total = pods.requests()
    if total is None or not pods.count:
        return None
    each = {resource: asked / pods.count for resource, asked in total.items()}
    return each if any(True for _ in _asked(each)) else None
