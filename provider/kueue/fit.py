"""Decides whether a ClusterQueue can ever admit a job, with all quota it may borrow, and if not, why.

Searches the flavors in the order of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner, and
returns Kueue's words. Kueue's configuration (excludeResourcePrefixes, transformations, quotaCheckStrategy) and the capacity of
nodes are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, only, section, texts
from pulumi_trainer.provider.kubernetes.values.label_selectors import matches
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.labels import (
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.podsets import PodSet, pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot, format_amount

Cause = Literal["uncovered", "flavor", "capacity"]
_TOPOLOGY_REQUESTS = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES)
_MOST_TRIES = 4096
"""Combinations of flavors that are tried before a job counts as one that may fit."""


@dataclass(frozen=True)
class NotFitting:
    """Why a job is never admitted. words: The message that Kueue writes into the Workload."""

    cause: Cause
    pod_set: PodSet
    words: str


@dataclass(frozen=True)
class PodGroup:
    """Pod sets that get the same flavors: a single one, or those of a TAS group."""

    members: tuple[PodSet, ...]
    requests: Mapping[str, Fraction]


@dataclass(frozen=True)
class _Try:
    """The result of one choice of flavors. slots: Quota then in use. cause: Why the pods do not fit; None if they do."""

    slots: Mapping[Slot, Fraction]
    cause: Cause | None = None
    reasons: tuple[str, ...] = ()


def reason_not_fitting(jobset: Document, cluster_queue: Document, queues: Queues) -> NotFitting | None:
    """Return why a queue never admits a job, as `reason_pods_not_fitting` does for pod sets; None if it may admit the job."""
    return reason_pods_not_fitting(pod_sets(jobset, queues), cluster_queue, queues)


def reason_pods_not_fitting(sets: list[PodSet], cluster_queue: Document, queues: Queues) -> NotFitting | None:
    """Return why a queue never admits the pod sets of a job; None if it may, or if not enough is known."""
    name = section(cluster_queue, "metadata").get("name")
    if not isinstance(name, str):
        return None
    node = queues.tree.queues.get(name)
    if node is None or first_unknown(section(cluster_queue, "spec")) is not None or _has_unknown_cohorts(node, queues):
        return None
    search = FlavorSearch(cluster_queue, node, queues)
    groups = group_pod_sets(sets, search)
    if groups is None:
        return None
    return search.refusal(groups)


def _has_unknown_cohorts(node: Node, queues: Queues) -> bool:
    """Return whether unknown members of its cohorts may lend it something."""
    if node.parent is None:
        return False
    whole = queues.has_all("ClusterQueue") and queues.has_all("Cohort")
    return not whole or any(n.name in queues.tree.in_cycles for n in node.path)


def group_pod_sets(sets: list[PodSet], search: FlavorSearch) -> list[PodGroup] | None:
    groups: dict[str, list[PodSet]] = {}
    for i, each in enumerate(sets):
        key = str(i)
        name = each.annotations_or_empty.get(TOGETHER)
        if isinstance(name, str):
            key = f"/{name}"
        groups.setdefault(key, []).append(each)
    found = []
    for members in groups.values():
        total: dict[str, Fraction] = {}
        for each in members:
            requests = each.quota_requests()
            if requests is None or first_unknown(each.template) is not None:
                return None
            if search.counts_pods:
                requests["pods"] = Fraction(each.count or 0)
            for resource, amount in requests.items():
                total[resource] = total.get(resource, ZERO) + amount
        found.append(PodGroup(tuple(members), total))
    return found


class _TooMany(Exception):
    """More combinations of flavors than are tried."""


class FlavorSearch:
    def __init__(self, cluster_queue: Document, node: Node, queues: Queues) -> None:
        self.node, self.queues = node, queues
        self.groups = [*map(section, listed(section(cluster_queue, "spec").get("resourceGroups")))]
        self.counts_pods = any("pods" in covered_resources(group) for group in self.groups)
        self.topology_only = queues.has_only_topologies(cluster_queue)
        self._tries_left = _MOST_TRIES
        self._most: dict[Slot, Fraction] = {}

    def refusal(self, groups: list[PodGroup]) -> NotFitting | None:
        """Return Kueue's message on the first group for which nothing fits, whatever the groups before it get."""
        try:
            return self._refusal(groups)
        except _TooMany:
            return None

    def _refusal(self, groups: list[PodGroup]) -> NotFitting | None:
        states: list[Mapping[Slot, Fraction]] = [{}]
        for group in groups:
            unplaced = self.unplaced(group)
            if unplaced is not None:
                words = f"failed to assign flavors to pod set {unplaced.name}: no TAS flavor assigned"
                return NotFitting("flavor", unplaced, words)
            tries: list[_Try] = []
            for taken in states:
                tries += self._tries(group, taken)
            states = [each.slots for each in tries if each.cause is None]
            if not states:
                first, pods = tries[0], group.members[0]
                reasons = ", ".join(sorted(set(first.reasons)))
                words = f"couldn't assign flavors to pod set {pods.name}: {reasons}"
                return NotFitting(first.cause or "capacity", pods, words)
        return None

    def _tries(self, group: PodGroup, taken: Mapping[Slot, Fraction]) -> list[_Try]:
        """Return all choices of flavors for a group that fit, or the one failure."""
        open_: list[Mapping[Slot, Fraction]] = [taken]
        for resources in self.by_resource_group(group):
            if isinstance(resources, str):
                return [_Try(taken, "uncovered", (f"resource {resources} unavailable in ClusterQueue",))]
            found: list[Mapping[Slot, Fraction]] = []
            reasons, mismatched = list[str](), True
            for flavor in flavor_names(resources.group):
                why = self.mismatch(flavor, group, resources.group)
                if why:
                    reasons.append(why)
                    continue
                mismatched = False
                for state in open_:
                    self._tries_left -= 1
                    if self._tries_left < 0:
                        raise _TooMany
                    slots, short = self._fill(flavor, resources.requests, state)
                    reasons += short
                    if not short:
                        found.append(slots)
            if not found:
                cause: Cause = "capacity"
                if mismatched:
                    cause = "flavor"
                return [_Try(taken, cause, tuple(reasons))]
            open_ = found
        return [*map(_Try, open_)]

    def unplaced(self, group: PodGroup) -> PodSet | None:
        """Return pods that need a topology domain, if their group requests no resource for which it would get a flavor."""
        if any(group.requests.keys() & set(covered_resources(each)) for each in self.groups):
            return None
        for pods in group.members:
            if pods.count and (self.topology_only or _requests_topology(pods)):
                return pods
        return None

    def by_resource_group(self, group: PodGroup) -> Iterator[Wanted | str]:
        """Yield what a group of pod sets requests of each resource group, or a resource that no group covers."""
        wanted: dict[int, dict[str, Fraction]] = {}
        for resource, amount in sorted(group.requests.items()):
            at = self._group_covering(resource)
            if at is not None:
                wanted.setdefault(at, {})[resource] = amount
            elif amount:
                yield resource
        for at, requests in wanted.items():
            yield Wanted(self.groups[at], requests)

    def _group_covering(self, resource: str) -> int | None:
        """Return the index of the resource group that covers a resource; None if not found."""
        for at, group in enumerate(self.groups):
            if resource in covered_resources(group):
                return at
        return None

    def _fill(
        self, flavor: str, requests: Mapping[str, Fraction], taken: Mapping[Slot, Fraction]
    ) -> tuple[dict[Slot, Fraction], list[str]]:
        slots, short = dict(taken), []
        for resource, amount in requests.items():
            slot = (flavor, resource)
            if slot not in self._most:
                self._most[slot] = self.node.potential(slot)
            earlier, most = taken.get(slot, ZERO), self._most[slot]
            slots[slot] = earlier + amount
            if slots[slot] > most:
                short.append(
                    f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
                    f" ({format_amount(resource, earlier)}) + current podset request ({format_amount(resource, amount)})"
                    f" > maximum capacity ({format_amount(resource, most)})"
                )
        return slots, short

    def mismatch(self, name: str, group: PodGroup, resources: Document) -> str:
        """Return why a flavor does not match the pods of a group; empty if it does, or if it is not known."""
        flavor = self.queues.find("ResourceFlavor", name)
        if flavor is None:
            if not self.queues.lacks("ResourceFlavor", name):
                return ""
            return f"flavor {name} not found"
        if first_unknown(flavor) is not None:
            return ""
        for pods in group.members:
            why = self._off_topology(name, flavor, pods, resources) or off_node(name, flavor, pods)
            if why:
                return why
        return ""

    def _off_topology(self, name: str, flavor: Document, pods: PodSet, resources: Document) -> str:
        levels = self.queues.levels(flavor)
        if not _requests_topology(pods):
            only = bool(levels is None or levels) and not self.topology_only
            if not only:
                return ""
            return f'Flavor "{name}" supports only TopologyAwareScheduling'
        if levels is None:
            return ""
        if not levels:
            overlap = set(pods.quota_requests() or {}) & set(covered_resources(resources))
            if not overlap:
                return ""
            return f'Flavor "{name}" does not support TopologyAwareScheduling'
        annotations = pods.annotations_or_empty
        for key in (REQUIRED, PREFERRED, SLICE_LEVEL):
            if key in annotations and annotations[key] not in levels:
                return f'Flavor "{name}" does not contain the requested level'
        return ""


def _requests_topology(pods: PodSet) -> bool:
    """Return whether pods request a place in a topology."""
    annotations = pods.annotations_or_empty
    return any(key in annotations for key in _TOPOLOGY_REQUESTS)


@dataclass(frozen=True)
class Wanted:
    group: Document
    requests: Mapping[str, Fraction]


def covered_resources(group: Document) -> list[str]:
    return texts(group.get("coveredResources"))


def flavor_names(group: Document) -> list[str]:
    return [str(section(flavor).get("name")) for flavor in listed(group.get("flavors"))]


def off_node(name: str, flavor: Document, pods: PodSet) -> str:
    """Return which taint or label of a flavor's nodes keeps pods away; empty for none."""
    spec, pod = section(flavor, "spec"), pods.spec
    added = Tolerations(listed(spec.get("tolerations")))
    for taint in map(section, listed(spec.get("nodeTaints"))):
        tolerated = taint.get("effect") not in ("NoSchedule", "NoExecute") or pods.tolerations.tolerate(taint)
        if not tolerated and not added.tolerate(taint):
            shown = " ".join(str(taint.get(k, "")) for k in ("key", "value", "effect"))
            return f"untolerated taint {{{shown} <nil>}} in flavor {name}"
    labels = section(spec, "nodeLabels")
    selector = only(section(pod, "nodeSelector"), labels)
    if any(labels[k] != v for k, v in selector.items()) or not _affinity_matches(pod, labels):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _affinity_matches(pod: Document, labels: Mapping[str, Any]) -> bool:
    """Return whether the pod's required node affinity matches labels; expressions on other labels do not count."""
    required = section(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = []
    for term in listed(required.get("nodeSelectorTerms")):
        expressions = map(section, listed(section(term).get("matchExpressions")))
        relevant = [e for e in expressions if e.get("key") in labels]
        if not relevant:
            return True
        terms.append(relevant)
    return not terms or any(all(matches(e, labels) for e in term) for term in terms)
