"""What a ClusterQueue can have of a resource: its own quota, and what its cohorts lend it.

The tree of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go, on plain documents of
v1beta2. Amounts are exact, in the resource's own unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.quantity import Quantity

Document = Mapping[str, Any]
Slot = tuple[str, str]
"""(flavor, resource)"""
ZERO = Fraction(0)


@dataclass(frozen=True)
class Quota:
    """borrowing, lending: None: no limit."""

    nominal: Fraction = ZERO
    borrowing: Fraction | None = None
    lending: Fraction | None = None


@dataclass
class Node:
    """A ClusterQueue or a Cohort. own: usage of a queue's workloads; that of a cohort is its children's."""

    name: str
    queue: bool
    parent: Node | None = None
    children: list[Node] = field(default_factory=list, repr=False)
    quotas: dict[Slot, Quota] = field(default_factory=dict)
    own: dict[Slot, Fraction] = field(default_factory=dict)
    _sums: dict[tuple[str, Slot], Fraction] = field(default_factory=dict, repr=False)
    """Of all children: counted once, as the tree stays as it was made."""

    def quota(self, slot: Slot) -> Quota:
        return self.quotas.get(slot, Quota())

    def subtree(self, slot: Slot) -> Fraction:
        """Its own nominal quota, and what its children share."""
        for node in self._not_summed("subtree", slot):
            shared = sum((c.subtree(slot) - c.guaranteed(slot) for c in node.children), ZERO)
            node._sums["subtree", slot] = node.quota(slot).nominal + shared
        return self._sums["subtree", slot]

    def _not_summed(self, what: str, slot: Slot) -> list[Node]:
        """Itself and all below of which a sum is not known, children before their parents: a tree may have any depth."""
        found: list[Node] = [] if (what, slot) in self._sums else [self]
        for node in found:
            found += [child for child in node.children if (what, slot) not in child._sums]
        return found[::-1]

    def guaranteed(self, slot: Slot) -> Fraction:
        """What it never lends."""
        limit = self.quota(slot).lending
        return ZERO if limit is None else max(ZERO, self.subtree(slot) - limit)

    def usage(self, slot: Slot) -> Fraction:
        if self.queue:
            return self.own.get(slot, ZERO)
        for node in self._not_summed("usage", slot):
            used = (max(ZERO, c.usage(slot) - c.guaranteed(slot)) for c in node.children)
            node._sums["usage", slot] = node.own.get(slot, ZERO) if node.queue else sum(used, ZERO)
        return self._sums["usage", slot]

    def potential(self, slot: Slot) -> Fraction:
        """The most that it could ever have, with nothing in use."""
        *below, root = self.path
        most = root.subtree(slot)
        for node in reversed(below):
            most, limit = node.guaranteed(slot) + most, node.quota(slot).borrowing
            most = most if limit is None else min(most, node.subtree(slot) + limit)
        return most

    def available(self, slot: Slot) -> Fraction:
        """What is free for it now, at least nothing."""
        *below, root = self.path
        left = root.subtree(slot) - root.usage(slot)
        for node in reversed(below):
            kept, used, limit = node.guaranteed(slot), node.usage(slot), node.quota(slot).borrowing
            if limit is not None:
                left = min(left, node.subtree(slot) - kept - max(ZERO, used - kept) + limit)
            left = max(ZERO, kept - used) + left
        return max(ZERO, left)

    def borrowed(self, slot: Slot) -> Fraction:
        """What it uses beyond its own."""
        return max(ZERO, self.usage(slot) - self.subtree(slot))

    @property
    def path(self) -> list[Node]:
        """From itself to the root."""
        found: list[Node] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found


@dataclass(frozen=True)
class Tree:
    """queues, cohorts: by name. cycles: cohorts that are their own ancestors, each cycle in its order; none of them, and
    nothing below them, has a parent here."""

    queues: Mapping[str, Node]
    cohorts: Mapping[str, Node]
    cycles: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def looped(self) -> frozenset[str]:
        """Cohorts of a cycle, or below one."""
        found = [self.cohorts[name] for cycle in self.cycles for name in cycle]
        for node in found:
            found += [child for child in node.children if not child.queue]
        return frozenset(node.name for node in found)


def tree(documents: Iterable[Document], usage: Mapping[str, Mapping[Slot, Fraction]] | None = None) -> Tree:
    """Of ClusterQueues and Cohorts; other kinds, and what has no name or no quantities, is passed over. A cohort that only
    others name exists. usage: name of a ClusterQueue -> what its workloads have reserved."""
    queues: dict[str, Node] = {}
    cohorts: dict[str, Node] = {}
    parents: dict[str, str] = {}
    above: list[tuple[Node, str]] = []
    for document in documents:
        name, spec = section(document, "metadata").get("name"), section(document, "spec")
        if not isinstance(name, str):
            continue
        if document.get("kind") == "ClusterQueue":
            node = queues[name] = Node(name, True, quotas=dict(quotas(spec)), own=dict((usage or {}).get(name, {})))
            cohort = spec.get("cohortName") or spec.get("cohort")  # v1beta1
            if isinstance(cohort, str) and cohort:
                above.append((node, cohort))
        elif document.get("kind") == "Cohort":
            cohorts[name] = Node(name, False, quotas=dict(quotas(spec)))
            if isinstance(parent := spec.get("parentName"), str) and parent:
                parents[name] = parent
    for name in {cohort for _, cohort in above} | set(parents.values()):
        cohorts.setdefault(name, Node(name, False))
    cycles = _cycles(parents)
    inside = {name for cycle in cycles for name in cycle}
    above += [(cohorts[name], parent) for name, parent in parents.items() if name not in inside]
    for node, cohort in above:
        node.parent = cohorts[cohort]
        cohorts[cohort].children.append(node)
    return Tree(queues, cohorts, cycles)


def quotas(spec: Mapping[str, Any]) -> Iterator[tuple[Slot, Quota]]:
    """Of the resource groups of a ClusterQueue or Cohort."""
    for group in listed(spec.get("resourceGroups")):
        for flavor in listed(section(group).get("flavors")):
            for resource in listed(section(flavor).get("resources")):
                slot = (str(section(flavor).get("name")), str(section(resource).get("name")))
                nominal, borrowing, lending = (
                    amount(section(resource).get(name)) for name in ("nominalQuota", "borrowingLimit", "lendingLimit")
                )
                yield slot, Quota(nominal or ZERO, borrowing, lending)


def amount(value: Any) -> Fraction | None:
    """Of a quantity; None if there is none, or if it is not known."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    try:
        return Quantity.parse(str(value)).amount
    except ValueError:
        return None


def text(resource: str, value: Fraction) -> str:
    """As Kueue prints an amount of a resource: pkg/resources/resource_formatter.go there."""
    if resource == "cpu":
        return Quantity.parse(f"{math.ceil(value * 1000)}m").text
    whole = math.ceil(value)
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return Quantity.parse(f"{whole // 1024}Ki" if binary and whole % 1024 == 0 else str(whole)).text


def _cycles(parents: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in sorted(parents):
        path: dict[str, int] = {}
        name: str | None = start
        while name is not None and name not in done and name not in path:
            path[name] = len(path)
            name = parents.get(name)
        if name in path:
            found.append(tuple(path)[path[name] :])
        done.update(path)
    return tuple(found)
