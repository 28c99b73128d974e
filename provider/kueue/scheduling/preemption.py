"""Which Workloads Kueue preempts for another one.

Follows https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption with the default feature gates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot
from pulumi_trainer.provider.kueue.scheduling.shares import Share, dominant_share
from pulumi_trainer.provider.kueue.scheduling.snapshot import NEVER, Contender, Policy, Snapshot


class _How(Enum):
    """How a candidate may be preempted."""

    SAME_QUEUE = auto()
    BY_HIERARCHY = auto()
    WITHOUT_BORROWING = auto()
    WHILE_BORROWING = auto()


@dataclass(frozen=True)
class _Candidate:
    """A Workload that may be preempted. below: The cohort that it has in common with the preemptor."""

    contender: Contender
    how: _How
    below: Node | None = None


@dataclass(frozen=True)
class Demand:
    """What a preemptor wants. short: Slots in which others have to be preempted."""

    preemptor: Contender
    usage: Mapping[Slot, Fraction]
    short: Collection[Slot]


def find_victims(snapshot: Snapshot, demand: Demand) -> list[Contender]:
    """Return the Workloads to preempt so that another one fits; empty if that is not possible."""
    if snapshot.fair:
        return _find_fairly(snapshot, demand)
    return _find_by_priority(snapshot, demand)


# --- by priority ---


def _find_by_priority(snapshot: Snapshot, demand: Demand) -> list[Contender]:
    policy, node = snapshot.policy(demand.preemptor.queue), snapshot.node(demand.preemptor)
    hierarchy, by_priority = _candidates_of_others(snapshot, demand)
    same_queue = []
    if policy.within != NEVER:
        same_queue = _candidates_in(snapshot, demand, node, None, by_hierarchy=False)
    candidates: list[_Candidate] = []
    lists = [
        sorted(each, key=lambda c: candidate_order(c.contender, demand))
        for each in (hierarchy, by_priority, same_queue)
    ]
    for evicted in (True, False):
        for each in lists:
            candidates += [candidate for candidate in each if candidate.contender.evicted is evicted]
    forbidden = policy.borrowing == NEVER
    under_nominal = all(node.usage(slot) < node.quota(slot).nominal for slot in demand.short)
    if not (hierarchy or by_priority) or (forbidden and not under_nominal):
        attempts = [True]
    elif forbidden and not hierarchy:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for may_borrow in attempts:
        removed: list[Contender] = []
        for candidate in candidates:
            if not _is_valid(snapshot, demand, candidate, may_borrow):
                continue
            snapshot.remove(candidate.contender)
            removed.append(candidate.contender)
            if fits(snapshot, demand, may_borrow):
                removed = _fill_back(snapshot, demand, removed, may_borrow)
                _restore(snapshot, removed)
                return removed
        _restore(snapshot, removed)
    return []


def candidate_order(contender: Contender, demand: Demand) -> tuple[bool, bool, int, float, str]:
    """Return the place of a Workload among those that may be preempted: others' queues, low priority and late admission first."""
    same = contender.queue == demand.preemptor.queue
    return (not contender.evicted, same, contender.priority, -contender.reserved, contender.key)


def _candidates_of_others(snapshot: Snapshot, demand: Demand) -> tuple[list[_Candidate], list[_Candidate]]:
    """Return the candidates in other queues: those whose quota is the preemptor's by its place in the cohorts, and the others."""
    node = snapshot.node(demand.preemptor)
    hierarchy: list[_Candidate] = []
    by_priority: list[_Candidate] = []
    if node.parent is None or snapshot.policy(demand.preemptor.queue).reclaim == NEVER:
        return hierarchy, by_priority
    has_advantage, left = _fits_in_quota(node, demand.usage)
    before = None
    for cohort in node.path[1:]:
        candidates = hierarchy if has_advantage else by_priority
        for queue in _borrowing_queues(cohort, before, demand):
            if queue is not node:
                candidates += _candidates_in(snapshot, demand, queue, cohort, by_hierarchy=has_advantage)
        fitting, left = _fits_in_quota(cohort, left)
        has_advantage, before = has_advantage or fitting, cohort
    return hierarchy, by_priority


def _fits_in_quota(node: Node, wanted: Mapping[Slot, Fraction]) -> tuple[bool, dict[Slot, Fraction]]:
    """Return whether more usage is within the quota of a node, and what is left for the cohort above it."""
    left = {slot: max(ZERO, amount - node.local_available(slot)) for slot, amount in wanted.items()}
    return not any(node.exceeds(slot, amount) for slot, amount in wanted.items()), left


def _borrowing_queues(cohort: Node, but: Node | None, demand: Demand) -> Iterator[Node]:
    """Yield the queues below a cohort that use more than their quota, through cohorts that do as well."""
    for child in cohort.children:
        if child is not but and not is_within(child, demand.short):
            if child.queue:
                yield child
            else:
                yield from _borrowing_queues(child, but, demand)


def is_within(node: Node, slots: Iterable[Slot]) -> bool:
    """Return whether a node uses no more than its quota of all slots."""
    return not any(map(node.exceeds, slots))


def _candidates_in(
    snapshot: Snapshot, demand: Demand, queue: Node, below: Node | None, *, by_hierarchy: bool
) -> list[_Candidate]:
    """Return the candidates in a queue."""
    policy, preemptor = snapshot.policy(demand.preemptor.queue), demand.preemptor
    same = queue.name == preemptor.queue
    rule = policy.within if same else policy.reclaim
    found = []
    for contender in snapshot.running.get(queue.name, {}).values():
        if not _uses(contender, demand.short) or not _may_preempt(preemptor, contender, rule):
            continue
        if same:
            how = _How.SAME_QUEUE
        elif by_hierarchy:
            how = _How.BY_HIERARCHY
        elif not _may_preempt_while_borrowing(policy, preemptor, contender):
            how = _How.WITHOUT_BORROWING
        else:
            how = _How.WHILE_BORROWING
        found.append(_Candidate(contender, how, below))
    return found


def _may_preempt_while_borrowing(policy: Policy, preemptor: Contender, candidate: Contender) -> bool:
    """Return whether a queue that borrows may preempt a Workload of another queue."""
    if policy.borrowing == NEVER or candidate.priority >= preemptor.priority:
        return False
    return policy.threshold is None or candidate.priority <= policy.threshold


def _uses(contender: Contender, slots: Collection[Slot]) -> bool:
    return any(slot in contender.held for slot in slots)


def _may_preempt(preemptor: Contender, candidate: Contender, rule: str) -> bool:
    """Return whether a policy of a ClusterQueue lets a Workload be preempted."""
    if rule == "Any":
        return True
    if rule == "LowerPriority":
        return candidate.priority < preemptor.priority
    newer = candidate.priority == preemptor.priority and preemptor.created < candidate.created
    return rule == "LowerOrNewerEqualPriority" and (candidate.priority < preemptor.priority or newer)


def _is_valid(snapshot: Snapshot, demand: Demand, candidate: _Candidate, may_borrow: bool) -> bool:
    """Return whether a candidate may still be preempted, after others have been."""
    if candidate.how is _How.SAME_QUEUE:
        return True
    if may_borrow and candidate.how is _How.WITHOUT_BORROWING:
        return False
    for node in snapshot.node(candidate.contender).path:
        if node is candidate.below:
            return True
        if is_within(node, demand.short):
            return False
    return True


def fits(snapshot: Snapshot, demand: Demand, may_borrow: bool = True) -> bool:
    """Return whether a Workload fits into what is free now."""
    node = snapshot.node(demand.preemptor)
    for slot, amount in demand.usage.items():
        if not may_borrow and node.usage(slot) + amount > node.quota(slot).nominal:
            return False
        if amount > max(ZERO, node.available(slot)):
            return False
    return True


def _fill_back(snapshot: Snapshot, demand: Demand, removed: list[Contender], may_borrow: bool) -> list[Contender]:
    """Return the victims without those that may stay. They are put back; the others stay removed."""
    removed = list(removed)
    for i in range(len(removed) - 2, -1, -1):
        snapshot.add(removed[i])
        if fits(snapshot, demand, may_borrow):
            removed[i] = removed[-1]
            removed.pop()
        else:
            snapshot.remove(removed[i])
    return removed


def _restore(snapshot: Snapshot, removed: Iterable[Contender]) -> None:
    for contender in removed:
        snapshot.add(contender)


# --- by fair shares ---


def _find_fairly(snapshot: Snapshot, demand: Demand) -> list[Contender]:
    candidates = sorted(_fair_candidates(snapshot, demand), key=lambda c: candidate_order(c, demand))
    if not candidates:
        return []
    queue = demand.preemptor.queue
    snapshot.add_usage(queue, demand.usage)  # shares count the Workload as admitted
    search = _FairSearch(snapshot, demand, candidates)
    has_room = search.preempt_by_final_share() or search.preempt_by_initial_share()
    snapshot.remove_usage(queue, demand.usage)
    if not has_room:
        _restore(snapshot, search.removed)
        return []
    removed = _fill_back(snapshot, demand, search.removed, True)
    _restore(snapshot, removed)
    return removed


def _fair_candidates(snapshot: Snapshot, demand: Demand) -> Iterator[Contender]:
    preemptor, node = demand.preemptor, snapshot.node(demand.preemptor)
    policy = snapshot.policy(preemptor.queue)
    queues: list[tuple[Node, str]] = [(node, policy.within)]
    if node.parent is not None:
        others = [m for m in node.path[-1].members if m.queue and m is not node]
        queues += [(m, policy.reclaim) for m in others if not is_within(m, demand.short)]
    for queue, rule in queues:
        for contender in snapshot.running.get(queue.name, {}).values():
            if rule != NEVER and _may_preempt(preemptor, contender, rule) and _uses(contender, demand.short):
                yield contender


class _FairSearch:
    """Preempts from the queue with the largest share until the Workload fits."""

    def __init__(self, snapshot: Snapshot, demand: Demand, candidates: Iterable[Contender]) -> None:
        self.snapshot, self.demand = snapshot, demand
        self.node = snapshot.node(demand.preemptor)
        self.removed: list[Contender] = []
        self.left_over: list[Contender] = []
        self._candidates = list(candidates)

    def preempt_by_final_share(self) -> bool:
        """Preempt while the share of the preemptor stays at most that of the other queue after its loss."""
        within = is_within(self.node, self.demand.short)
        order = _FairOrder(self.snapshot, self.demand, self._candidates)
        for queue in order:
            if queue is self.node or within:
                if self._preempt(order.pop(queue)):
                    return True
                continue
            ours, _ = self._shares(queue)
            while order.has(queue):
                contender = order.pop(queue)
                if ours <= self._share_without(queue, contender):
                    if self._preempt(contender):
                        return True
                    break
                self.left_over.append(contender)
        return False

    def preempt_by_initial_share(self) -> bool:
        """Preempt of what is left over while the share of the preemptor stays below that of the other queue."""
        order = _FairOrder(self.snapshot, self.demand, self.left_over)
        for queue in order:
            ours, theirs = self._shares(queue)
            contender = order.pop(queue)
            if ours < theirs and self._preempt(contender):
                return True
            order.drop(queue)
        return False

    def _preempt(self, contender: Contender) -> bool:
        """Preempt a Workload; return whether there is room now."""
        self.snapshot.remove(contender)
        self.removed.append(contender)
        queue, usage = self.demand.preemptor.queue, self.demand.usage
        self.snapshot.remove_usage(queue, usage)
        has_room = fits(self.snapshot, self.demand)
        self.snapshot.add_usage(queue, usage)
        return has_room

    def _shares(self, queue: Node) -> tuple[Share, Share]:
        """Return the shares of the preemptor and of another queue, each of the node below the cohort that they have in common."""
        ours, theirs = below_common_cohort(self.node, queue)
        return dominant_share(self.snapshot, ours), dominant_share(self.snapshot, theirs)

    def _share_without(self, queue: Node, contender: Contender) -> Share:
        self.snapshot.remove(contender)
        share = self._shares(queue)[1]
        self.snapshot.add(contender)
        return share


def below_common_cohort(one: Node, other: Node) -> tuple[Node, Node]:
    """Return the nodes on the way up from two queues that are below the first cohort which they have in common."""
    ancestors = {*map(id, one.path[1:])}
    common = next(node for node in other.path[1:] if id(node) in ancestors)

    def child_of_common(node: Node) -> Node:
        return next(each for each in node.path if each.parent is common)

    return child_of_common(one), child_of_common(other)


class _FairOrder:
    """Queues from which to preempt next: on the way from the root, the child with the largest share."""

    def __init__(self, snapshot: Snapshot, demand: Demand, candidates: Iterable[Contender]) -> None:
        self._snapshot, self._demand = snapshot, demand
        self._node = snapshot.node(demand.preemptor)
        self._way = {*map(id, self._node.path[1:])}
        self._done: set[int] = set()
        self._of: dict[str, list[Contender]] = {}
        for contender in candidates:
            self._of.setdefault(contender.queue, []).append(contender)

    def has(self, queue: Node) -> bool:
        """Return whether a queue has candidates left."""
        return bool(self._of.get(queue.name))

    def pop(self, queue: Node) -> Contender:
        """Return the next candidate of a queue, and take it out."""
        return self._of[queue.name].pop(0)

    def drop(self, queue: Node) -> None:
        """Consider a queue no more."""
        self._done.add(id(queue))

    def __iter__(self) -> Iterator[Node]:
        root = self._node.path[-1]
        if root is self._node:
            while id(root) not in self._done and self.has(root):
                yield root
            return
        while id(root) not in self._done:
            queue = self._next(root)
            if queue is not None:
                yield queue

    def _next(self, cohort: Node) -> Node | None:
        """Return the queue below a cohort to preempt from; None if a cohort turned out to have none."""
        queue = self._largest(
            [child for child in cohort.children if child.queue], self._is_queue_done, self._comes_first
        )
        below = self._largest(
            [c for c in cohort.children if not c.queue], self._is_cohort_done, lambda _one, _other: True
        )
        if queue is None and below is None:
            self._done.add(id(cohort))
            return None
        if below is not None and (queue is None or below[0] >= queue[0]):
            return self._next(below[1])
        return None if queue is None else queue[1]

    def _largest(
        self, nodes: Iterable[Node], is_done: Callable[[Node, Share], bool], wins_tie: Callable[[Node, Node], bool]
    ) -> tuple[Share, Node] | None:
        best: tuple[Share, Node] | None = None
        for node in nodes:
            if id(node) in self._done:
                continue
            share = dominant_share(self._snapshot, node)
            if is_done(node, share):
                self._done.add(id(node))
            elif best is None or share > best[0] or (share == best[0] and wins_tie(node, best[1])):
                best = (share, node)
        return best

    def _is_queue_done(self, queue: Node, share: Share) -> bool:
        return not self.has(queue) or (not share.borrows and queue is not self._node)

    def _is_cohort_done(self, cohort: Node, share: Share) -> bool:
        return not share.borrows and id(cohort) not in self._way

    def _comes_first(self, one: Node, other: Node) -> bool:
        first, second = self._of[one.name][0], self._of[other.name][0]
        return candidate_order(first, self._demand) < candidate_order(second, self._demand)
