"""Quota of ClusterQueues: their own, and what they can borrow from their cohorts.

Follows https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go, on plain documents of
v1beta2. Amounts are exact, in the resource's own unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity

Document = Mapping[str, Any]
Slot = tuple[str, str]
"""(flavor, resource)"""
ZERO = Fraction(0)


@dataclass(frozen=True)
class Quota:
    """The quota of a ClusterQueue or Cohort for a resource in one flavor."""

    nominal: Fraction = ZERO
    borrowing: Fraction | None = None
    lending: Fraction | None = None


@dataclass
class Node:
    """A ClusterQueue or a Cohort in the tree of cohorts.

    Args:
        own: What the workloads of a queue use; of a cohort: what its members use beyond the quota that they never lend.
    """

    name: str
    queue: bool
    parent: Node | None = None
    children: list[Node] = field(default_factory=list, repr=False)
    quotas: dict[Slot, Quota] = field(default_factory=dict)
    own: dict[Slot, Fraction] = field(default_factory=dict)
    _sums: dict[Slot, Fraction] = field(default_factory=dict, repr=False)
    """Cached sums over all children: the tree does not change after `tree` has built it."""

    def quota(self, slot: Slot) -> Quota:
        """Return its own quota; zero if it has none."""
        return self.quotas.get(slot, Quota())

    def subtree(self, slot: Slot) -> Fraction:
        """Return its nominal quota plus the quota that its children share."""
        for node in self._nodes_to_sum(slot):
            shared = sum((c.subtree(slot) - c.guaranteed(slot) for c in node.children), ZERO)
            node._sums[slot] = node.quota(slot).nominal + shared
        return self._sums[slot]

    def _nodes_to_sum(self, slot: Slot) -> list[Node]:
        """Return the nodes from here down whose sum is not cached, children before parents: a tree may have any depth."""
        nodes: list[Node] = [] if slot in self._sums else [self]
        for node in nodes:
            nodes += [child for child in node.children if slot not in child._sums]
        return nodes[::-1]

    def guaranteed(self, slot: Slot) -> Fraction:
        """Return the quota that it never lends."""
        limit = self.quota(slot).lending
        if limit is None:
            return ZERO
        return max(ZERO, self.subtree(slot) - limit)

    def usage(self, slot: Slot) -> Fraction:
        """Return the usage of its workloads."""
        return self.own.get(slot, ZERO)

    def local_available(self, slot: Slot) -> Fraction:
        """Return the unused part of the quota that it never lends."""
        return max(ZERO, self.guaranteed(slot) - self.usage(slot))

    def available(self, slot: Slot) -> Fraction:
        """Return what it can use now, beside what is in use; below zero if more is in use than there is quota."""
        *below, root = self.path
        free = root.subtree(slot) - root.usage(slot)
        for node in reversed(below):
            limit, guaranteed = node.quota(slot).borrowing, node.guaranteed(slot)
            if limit is not None:
                used_of_parent = max(ZERO, node.usage(slot) - guaranteed)
                free = min(free, node.subtree(slot) - guaranteed - used_of_parent + limit)
            free += node.local_available(slot)
        return free

    def add(self, slot: Slot, amount: Fraction) -> None:
        """Add usage, here and as far as it exceeds the quota that is never lent in the cohorts above."""
        for node in self.path:
            beyond = amount - node.local_available(slot)
            node.own[slot] = node.usage(slot) + amount
            if beyond <= 0:
                return
            amount = beyond

    def remove(self, slot: Slot, amount: Fraction) -> None:
        """Remove usage that was added."""
        for node in self.path:
            in_parent = node.usage(slot) - node.guaranteed(slot)
            node.own[slot] = node.usage(slot) - amount
            if in_parent <= 0:
                return
            amount = min(amount, in_parent)

    def exceeds(self, slot: Slot, amount: Fraction = ZERO) -> bool:
        """Return whether it uses more than its own quota, with an additional amount."""
        return self.usage(slot) + amount > self.subtree(slot)

    @cached_property
    def height(self) -> int:
        """How many levels are below it."""
        heights: dict[str, int] = {}
        for node in reversed([member for member in self.members if not member.queue]):
            below = [heights[child.name] + 1 for child in node.children if not child.queue]
            heights[node.name] = max(below, default=min(len(node.children), 1))
        return heights[self.name]

    def potential(self, slot: Slot) -> Fraction:
        """Return the maximum that it can use while nothing else is in use."""
        *below, root = self.path
        most = root.subtree(slot)
        for node in reversed(below):
            most, limit = node.guaranteed(slot) + most, node.quota(slot).borrowing
            if limit is not None:
                most = min(most, node.subtree(slot) + limit)
        return most

    def borrowed(self, slot: Slot) -> Fraction:
        """Return its usage beyond its own quota."""
        return max(ZERO, self.usage(slot) - self.subtree(slot))

    @property
    def members(self) -> list[Node]:
        """The node and all nodes below it."""
        nodes: list[Node] = [self]
        for node in nodes:
            nodes += node.children
        return nodes

    @property
    def path(self) -> list[Node]:
        """The nodes from this one to the root."""
        nodes: list[Node] = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes


@dataclass(frozen=True)
class Tree:
    """All ClusterQueues and Cohorts.

    Args:
        cycles: Cohorts that are their own ancestors, each cycle in its order. Members of a cycle have no parent in the tree.
    """

    queues: Mapping[str, Node]
    cohorts: Mapping[str, Node]
    cycles: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def in_cycles(self) -> frozenset[str]:
        """Names of the cohorts in a cycle, or below one."""
        nodes = [self.cohorts[name] for name in chain.from_iterable(self.cycles)]
        for node in nodes:
            nodes += [child for child in node.children if not child.queue]
        return frozenset(node.name for node in nodes)


def tree(documents: Iterable[Document], usage: Mapping[str, Mapping[Slot, Fraction]] | None = None) -> Tree:
    """Return the tree of the ClusterQueues and Cohorts among documents.

    Args:
        documents: Objects of Kueue; other kinds, and objects without a name or with a quantity that is not valid, are ignored. A
            cohort exists if an object refers to it.
    """
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
            parent = spec.get("parentName")
            if isinstance(parent, str) and parent:
                parents[name] = parent
    for name in {cohort for _, cohort in above} | set(parents.values()):
        cohorts.setdefault(name, Node(name, False))
    cycles = find_cycles(parents)
    inside = set(chain.from_iterable(cycles))
    above += [(cohorts[name], parent) for name, parent in parents.items() if name not in inside]
    for node, cohort in above:
        node.parent = cohorts[cohort]
        cohorts[cohort].children.append(node)
    return Tree(queues, cohorts, cycles)


def quotas(spec: Mapping[str, Any]) -> Iterator[tuple[Slot, Quota]]:
    """Yield the quotas in the resource groups of a ClusterQueue or Cohort."""
    for group in map(section, listed(spec.get("resourceGroups"))):
        for flavor in map(section, listed(group.get("flavors"))):
            for resource in map(section, listed(flavor.get("resources"))):
                nominal = amount(resource.get("nominalQuota")) or ZERO
                limits = amount(resource.get("borrowingLimit")), amount(resource.get("lendingLimit"))
                yield (str(flavor.get("name")), str(resource.get("name"))), Quota(nominal, *limits)


def amount(value: Any) -> Fraction | None:
    """Return the amount of a quantity; None if the value is not a valid quantity or not known yet."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    try:
        return Quantity.parse(str(value)).amount
    except ValueError:
        return None


def format_amount(resource: str, value: Fraction) -> str:
    """Return an amount (cores, bytes or a number), rounded up, as Kueue prints it (pkg/resources/resource_formatter.go)."""
    if resource == "cpu":
        return Quantity.parse(f"{math.ceil(value * 1000)}m").text
    whole = math.ceil(value)
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    if binary and whole % 1024 == 0:
        return Quantity.parse(f"{whole // 1024}Ki").text
    return Quantity.parse(str(whole)).text


def find_cycles(parents: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the cycles in a mapping of cohorts to their parents."""
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
