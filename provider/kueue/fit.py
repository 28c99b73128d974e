"""Whether a ClusterQueue could ever admit a job, with all that it may borrow and nothing in use; if not, why, in Kueue's words.

A search over the flavors, in the order of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner.
What Kueue's configuration leaves out of its counts (excludeResourcePrefixes, transformations, quotaCheckStrategy) is not known
here, and neither is whether nodes have room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pulumi_trainer.provider.kube.schema.tolerations import Tolerations
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
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.podsets import PodSet, pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import (
    ZERO,
    Node,
    Slot,
    text,
)

Cause = Literal["uncovered", "flavor", "capacity"]
_ASKING = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES)
_TRIES = 4096
"""Combinations of flavors that are tried before a job counts as one that may fit."""


@dataclass(frozen=True)
class Never:
    """Why a job is never admitted. cause: a resource without quota, flavors that do not match its pods, or too little quota.
    words: as Kueue writes them into the Workload."""

    cause: Cause
    pod_set: PodSet
    words: str


@dataclass(frozen=True)
class _Group:
    """Pod sets that get the same flavors: one, or those of a TAS group."""

    members: tuple[PodSet, ...]
    requests: Mapping[str, Fraction]


@dataclass(frozen=True)
class _Try:
    """What one choice of flavors has come to. slots: what is taken; cause: None: it fits."""

    slots: Mapping[Slot, Fraction]
    cause: Cause | None = None
    reasons: tuple[str, ...] = ()


def never(jobset: Document, cluster_queue: Document, queues: Queues) -> Never | None:
    """None: it may be admitted, or not enough is known."""
    name = section(cluster_queue, "metadata").get("name")
    node = queues.tree.queues.get(name) if isinstance(name, str) else None
    if node is None or first_unknown(section(cluster_queue, "spec")) is not None or _adrift(node, queues):
        return None
    search = _Search(cluster_queue, node, queues)
    groups = _grouped(pod_sets(jobset), search)
    return None if groups is None else search.refusal(groups)


def _adrift(node: Node, queues: Queues) -> bool:
    """Whether members of its cohorts may be missing here, who could lend it something."""
    whole = queues.has_all("ClusterQueue") and queues.has_all("Cohort")
    return node.parent is not None and (not whole or bool({n.name for n in node.path} & queues.tree.looped))


def _grouped(sets: list[PodSet], search: _Search) -> list[_Group] | None:
    groups: dict[str, list[PodSet]] = {}
    for i, each in enumerate(sets):
        name = each.annotations.get(TOGETHER) if isinstance(each.annotations, Mapping) else None
        groups.setdefault(f"/{name}" if isinstance(name, str) else str(i), []).append(each)
    found = []
    for members in groups.values():
        total: dict[str, Fraction] = {}
        for each in members:
            requests = each.requests()
            if requests is None or first_unknown(each.template) is not None:
                return None
            if search.counts_pods:
                requests["pods"] = Fraction(each.count or 0)
            for resource, amount in requests.items():
                total[resource] = total.get(resource, ZERO) + amount
        found.append(_Group(tuple(members), total))
    return found


class _TooMany(Exception):
    """There are more combinations than are tried."""


class _Search:
    def __init__(self, cluster_queue: Document, node: Node, queues: Queues) -> None:
        self.node, self.queues = node, queues
        self.groups = [section(group) for group in listed(section(cluster_queue, "spec").get("resourceGroups"))]
        self.counts_pods = any("pods" in texts(g.get("coveredResources")) for g in self.groups)
        names = {flavor for group in self.groups for flavor in _names(group)}
        known = [queues.find("ResourceFlavor", name) for name in names]
        self.topology_only = bool(known) and all(
            f is not None and section(f, "spec").get("topologyName") for f in known
        )
        self._left = _TRIES
        self._most: dict[Slot, Fraction] = {}

    def refusal(self, groups: list[_Group]) -> Never | None:
        """What Kueue would say of the first group for which nothing fits, whatever those before it get."""
        try:
            return self._refusal(groups)
        except _TooMany:
            return None

    def _refusal(self, groups: list[_Group]) -> Never | None:
        states: list[Mapping[Slot, Fraction]] = [{}]
        for group in groups:
            if (lost := self._unplaced(group)) is not None:
                return Never("flavor", lost, f"failed to assign flavors to pod set {lost.name}: no TAS flavor assigned")
            tries = [each for taken in states for each in self._tries(group, taken)]
            states = [each.slots for each in tries if each.cause is None]
            if not states:
                first = tries[0]
                words = ", ".join(sorted(dict.fromkeys(first.reasons)))
                pods = group.members[0]
                return Never(
                    first.cause or "capacity", pods, f"couldn't assign flavors to pod set {pods.name}: {words}"
                )
        return None

    def _tries(self, group: _Group, taken: Mapping[Slot, Fraction]) -> list[_Try]:
        """All choices of flavors for a group that fit, or the one failure."""
        open_: list[Mapping[Slot, Fraction]] = [taken]
        for resources in self._by_resource_group(group):
            if isinstance(resources, str):
                return [_Try(taken, "uncovered", (f"resource {resources} unavailable in ClusterQueue",))]
            found: list[Mapping[Slot, Fraction]] = []
            reasons, mismatched = list[str](), True
            for flavor in _names(resources.group):
                if why := self._mismatch(flavor, group, resources.group):
                    reasons.append(why)
                    continue
                mismatched = False
                for state in open_:
                    self._left -= 1
                    if self._left < 0:
                        raise _TooMany
                    slots, short = self._fill(flavor, resources.requests, state)
                    reasons += short
                    if not short:
                        found.append(slots)
            if not found:
                return [_Try(taken, "flavor" if mismatched else "capacity", tuple(reasons))]
            open_ = found
        return [_Try(slots) for slots in open_]

    def _unplaced(self, group: _Group) -> PodSet | None:
        """Pods that need a place in a topology, and ask for nothing that would give them a flavor: pods of their group may."""
        covered = {name for g in self.groups for name in texts(g.get("coveredResources"))}
        if covered & group.requests.keys():
            return None
        placed = (p for p in group.members if p.count and (self.topology_only or _asks(p)))
        return next(placed, None)

    def _by_resource_group(self, group: _Group) -> Iterator[_Wanted | str]:
        """What a group of pod sets wants of each resource group, or a resource that none covers."""
        wanted: dict[int, dict[str, Fraction]] = {}
        for resource, amount in sorted(group.requests.items()):
            at = next((i for i, g in enumerate(self.groups) if resource in texts(g.get("coveredResources"))), None)
            if at is not None:
                wanted.setdefault(at, {})[resource] = amount
            elif amount:
                yield resource
        for at, requests in wanted.items():
            yield _Wanted(self.groups[at], requests)

    def _fill(
        self, flavor: str, requests: Mapping[str, Fraction], taken: Mapping[Slot, Fraction]
    ) -> tuple[dict[Slot, Fraction], list[str]]:
        slots, short = dict(taken), []
        for resource, amount in requests.items():
            slot = (flavor, resource)
            if slot not in self._most:
                self._most[slot] = self.node.potential(slot)
            before, most = taken.get(slot, ZERO), self._most[slot]
            slots[slot] = before + amount
            if slots[slot] > most:
                before_, asked, most_ = (text(resource, each) for each in (before, amount, most))
                short.append(
                    f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
                    f" ({before_}) + current podset request ({asked}) > maximum capacity ({most_})"
                )
        return slots, short

    def _mismatch(self, name: str, group: _Group, resources: Document) -> str:
        """Why a flavor is none for these pods; empty: it is one, or it is not known."""
        flavor = self.queues.find("ResourceFlavor", name)
        if flavor is None:
            return f"flavor {name} not found" if self.queues.lacks("ResourceFlavor", name) else ""
        if first_unknown(flavor) is not None:
            return ""
        for pods in group.members:
            if why := self._off_topology(name, flavor, pods, resources) or _off_node(name, flavor, pods):
                return why
        return ""

    def _off_topology(self, name: str, flavor: Document, pods: PodSet, resources: Document) -> str:
        notes = pods.annotations if isinstance(pods.annotations, Mapping) else {}
        levels = self.queues.levels(flavor)
        if not _asks(pods):
            only = bool(levels is None or levels) and not self.topology_only
            return f'Flavor "{name}" supports only TopologyAwareScheduling' if only else ""
        if levels is None:
            return ""
        if not levels:
            own = set(pods.requests() or {})
            overlap = own & set(texts(resources.get("coveredResources")))
            return f'Flavor "{name}" does not support TopologyAwareScheduling' if overlap else ""
        wanted = [notes[key] for key in (REQUIRED, PREFERRED, SLICE_LEVEL) if key in notes]
        missing = [level for level in wanted if level not in levels]
        return f'Flavor "{name}" does not contain the requested level' if missing else ""


def _asks(pods: PodSet) -> bool:
    """Whether they ask for a place in a topology."""
    return isinstance(pods.annotations, Mapping) and any(key in pods.annotations for key in _ASKING)


@dataclass(frozen=True)
class _Wanted:
    group: Document
    requests: Mapping[str, Fraction]


def _names(group: Document) -> list[str]:
    return [str(section(flavor).get("name")) for flavor in listed(group.get("flavors"))]


def _off_node(name: str, flavor: Document, pods: PodSet) -> str:
    """Taints of the flavor's nodes that the pod does not tolerate, or labels that it does not want."""
    spec, pod = section(flavor, "spec"), pods.spec
    added = Tolerations(listed(spec.get("tolerations")))
    for taint in map(section, listed(spec.get("nodeTaints"))):
        borne = taint.get("effect") not in ("NoSchedule", "NoExecute") or pods.tolerations.bear(taint)
        if not borne and not added.bear(taint):
            shown = " ".join(str(taint.get(k, "")) for k in ("key", "value", "effect"))
            return f"untolerated taint {{{shown} <nil>}} in flavor {name}"
    labels = section(spec, "nodeLabels")
    selector = {k: v for k, v in section(pod, "nodeSelector").items() if k in labels}
    if any(labels[k] != v for k, v in selector.items()) or not _wanted(pod, labels):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _wanted(pod: Document, labels: Mapping[str, Any]) -> bool:
    """Whether the pod's required node affinity takes such labels; what it says of other labels does not count."""
    required = section(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = []
    for term in listed(required.get("nodeSelectorTerms")):
        asked = [section(e) for e in listed(section(term).get("matchExpressions"))]
        known = [e for e in asked if e.get("key") in labels]
        if not known:
            return True
        terms.append(known)
    return not terms or any(all(_holds(e, labels[str(e["key"])]) for e in term) for term in terms)


def _holds(expression: Document, value: Any) -> bool:
    values, operator = listed(expression.get("values")), expression.get("operator")
    if operator in ("Gt", "Lt"):
        try:
            more = int(value) - int(values[0])
        except (ValueError, TypeError, IndexError):
            return False
        return more > 0 if operator == "Gt" else more < 0
    return {"In": value in values, "NotIn": value not in values, "Exists": True}.get(str(operator), False)
