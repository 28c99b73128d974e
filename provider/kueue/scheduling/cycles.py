"""What Kueue's scheduler does with all Workloads that wait, one cycle after the other.

Follows https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go and pkg/cache/queue there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot
from pulumi_trainer.provider.kueue.scheduling.assignment import Assignment, Place, assign_flavors, missing_quota
from pulumi_trainer.provider.kueue.scheduling.preemption import Demand, fits
from pulumi_trainer.provider.kueue.scheduling.shares import Share, dominant_share
from pulumi_trainer.provider.kueue.scheduling.snapshot import ANY, Contender, Snapshot

_CYCLES_FOR_EACH = 20
"""Cycles for each Workload: some settings let Workloads preempt each other for ever, in Kueue as here."""


@dataclass
class Outcome:
    """What becomes of a Workload.

    Args:
        borrowed: How much of that is beyond the quota of its own queue.
        blocked_by: The Workload of a StrictFIFO queue behind which it waits.
    """

    contender: Contender
    admitted: Assignment | None = None
    borrowed: Mapping[Slot, Fraction] = field(default_factory=dict)
    victims: list[Contender] = field(default_factory=list)
    blocked_by: Contender | None = None
    unknown: bool = False


@dataclass
class _Line:
    """The Workloads that wait in a ClusterQueue. parked: Those that do not fit until something ends. first: The preemptor."""

    active: list[Contender] = field(default_factory=list)
    parked: list[Contender] = field(default_factory=list)
    first: str = ""

    def pop(self) -> Contender:
        """Return the head, and take it out."""
        head = min(self.active, key=lambda each: (each.key != self.first, *each.order))
        self.active.remove(head)
        return head


@dataclass
class _Entry:
    contender: Contender
    assignment: Assignment


class Scheduler:
    """Runs cycles until nothing changes any more. snapshot: The queues; changes with each decision."""

    def __init__(self, snapshot: Snapshot, waiting: Iterable[Contender]) -> None:
        self.snapshot = snapshot
        self.outcomes: dict[str, Outcome] = {}
        self._lines: dict[str, _Line] = {}
        self._starts: dict[str, Mapping[Place, int]] = {}
        self._freed: list[str] = []
        for contender in waiting:
            self.put(contender)

    def put(self, contender: Contender) -> None:
        """Let a Workload wait."""
        line = self._lines.setdefault(contender.queue, _Line())
        if contender.judged and not self.snapshot.policy(contender.queue).strict:
            line.parked.append(contender)
        else:
            line.active.append(contender)
        if contender.preempting:
            line.first = contender.key
        outcome = self.outcomes.setdefault(contender.key, Outcome(contender))
        outcome.contender, outcome.admitted = contender, None

    def end(self, contender: Contender) -> None:
        """Let a running Workload end."""
        self.snapshot.remove(contender)
        self._freed.append(contender.queue)

    def short_of(self, contender: Contender) -> dict[Slot, Fraction]:
        """Return what would have to become free for a Workload that waits."""
        return missing_quota(self.snapshot, contender, self.snapshot.groups(contender) or [])

    def run(self) -> None:
        """Run cycles until none admits or preempts a Workload."""
        tried: set[str] = set()
        for _ in range(_CYCLES_FOR_EACH * (1 + len(self.outcomes))):
            freed, self._freed = self._freed, []
            heads = [line.pop() for line in self._lines.values() if line.active]
            keys = {head.key for head in heads}
            changed = bool(heads) and self._run_cycle(heads)
            for queue in freed:  # after a cycle: a preemptor is tried before those that have waited
                self._wake(queue)
            if not (changed or freed or self._freed) and keys == tried:
                return
            tried = keys

    def _run_cycle(self, heads: list[Contender]) -> bool:
        """Return whether something changed, or flavors are left to try."""
        entries = [entry for entry in map(self._nominate, heads) if entry is not None]
        reserved: list[_Entry] = []
        kept: list[tuple[str, dict[Slot, Fraction]]] = []
        preempted: dict[str, Contender] = {}
        changed = len(entries) < len(heads)
        for entry in self._in_order(entries):
            if not self._has_room(entry, preempted):
                if entry.assignment.waits_for_ends and self.snapshot.policy(entry.contender.queue).reclaim != ANY:
                    kept.append((entry.contender.queue, self._to_keep(entry)))
                    self.snapshot.add_usage(*kept[-1])
                changed |= self._requeue(entry)
                continue
            changed = True
            self.snapshot.add_usage(entry.contender.queue, entry.assignment.usage)
            reserved.append(entry)
            if not entry.assignment.fits_now:
                self._preempt(entry)
        for entry in reserved:
            self.snapshot.remove_usage(entry.contender.queue, entry.assignment.usage)
        for queue, usage in kept:
            self.snapshot.remove_usage(queue, usage)
        for entry in reserved:
            if entry.assignment.fits_now:
                self._admit(entry.contender, entry.assignment)
        for victim in preempted.values():
            self.snapshot.remove(victim)
            self.put(replace(victim, held={}, reserved=0.0, evicted=False, judged=False))
            self._freed.append(victim.queue)
        return changed

    def _nominate(self, head: Contender) -> _Entry | None:
        groups = self.snapshot.groups(head)
        if groups is None:
            self.outcomes[head.key].unknown = True
            return None
        return _Entry(head, assign_flavors(self.snapshot, head, groups, self._starts.get(head.key, {})))

    def _has_room(self, entry: _Entry, preempted: dict[str, Contender]) -> bool:
        """Return whether a Workload is admitted in this cycle, or preempts others.

        Args:
            preempted: Workloads that are preempted in this cycle; those that make room for this one are added.
        """
        assignment = entry.assignment
        if not assignment.fits or assignment.waits_for_ends:
            return False
        if any(victim.key in preempted for victim in assignment.victims):
            return False
        leaving = [*preempted.values(), *assignment.victims]
        for victim in leaving:
            self.snapshot.remove_usage(victim.queue, victim.held)
        has_room = fits(self.snapshot, Demand(entry.contender, assignment.usage, ()))
        for victim in leaving:
            self.snapshot.add_usage(victim.queue, victim.held)
        if has_room:
            preempted.update({victim.key: victim for victim in assignment.victims})
        return has_room

    def _to_keep(self, entry: _Entry) -> dict[Slot, Fraction]:
        """Return the quota that is kept in a cycle for a Workload that waits and may not reclaim it.

        In a StrictFIFO queue such a Workload is in each cycle, in another queue only in the next one.
        """
        node = self.snapshot.node(entry.contender)
        kept = dict(entry.assignment.usage)
        for slot, amount in kept.items():
            quota = node.quota(slot)
            beyond = quota.borrowing if entry.assignment.borrowing else ZERO
            if beyond is not None:  # Kueue lets it be negative for a queue that uses more: that gives others nothing
                kept[slot] = max(ZERO, min(amount, quota.nominal + beyond - node.usage(slot)))
        return kept

    def _requeue(self, entry: _Entry) -> bool:
        """Let a Workload wait on; return whether the next cycle tries other flavors for it."""
        contender, assignment = entry.contender, entry.assignment
        line = self._lines[contender.queue]
        self._starts[contender.key] = assignment.next_flavors
        if assignment.is_incomplete:
            line.active.append(contender)
            return True
        if self.snapshot.policy(contender.queue).strict:
            line.active.append(contender)
            for behind in line.active:
                if behind is not contender:
                    self.outcomes[behind.key].blocked_by = contender
            return False
        if assignment.fits and not assignment.waits_for_ends:
            line.active.append(contender)  # only another one of this cycle was before it
            return False
        line.parked.append(contender)
        return bool(line.active)

    def _preempt(self, entry: _Entry) -> None:
        contender = entry.contender
        outcome = self.outcomes[contender.key]
        known = {victim.key for victim in outcome.victims}
        outcome.victims += [v for v in entry.assignment.victims if v.key not in known]
        line = self._lines[contender.queue]
        line.active.append(contender)
        if not self.snapshot.policy(contender.queue).strict:
            line.first = contender.key
        self._starts.pop(contender.key, None)

    def _admit(self, contender: Contender, assignment: Assignment) -> None:
        node, outcome = self.snapshot.node(contender), self.outcomes[contender.key]
        running = self.snapshot.take(contender, assignment.usage)
        outcome.contender, outcome.admitted, outcome.blocked_by = running, assignment, None
        beyond = {slot: node.usage(slot) - node.quota(slot).nominal for slot in assignment.usage}
        outcome.borrowed = {s: min(b, assignment.usage[s]) for s, b in beyond.items() if b > 0}
        line = self._lines[contender.queue]
        if line.first == contender.key:
            line.first = ""

    def _wake(self, queue: str) -> None:
        """Try the parked Workloads of all queues again that share quota with one."""
        for name in {node.name for node in self.snapshot.tree.queues[queue].path[-1].members if node.queue}:
            line = self._lines.get(name)
            if line is not None:
                line.active += line.parked
                line.parked = []
                for contender in line.active:
                    self._starts.pop(contender.key, None)

    def _in_order(self, entries: list[_Entry]) -> Iterable[_Entry]:
        """Return the heads of the queues in the order in which they are decided."""
        if not self.snapshot.fair:
            return sorted(entries, key=lambda e: (e.assignment.borrowing, *e.contender.order))
        return self._by_share(entries)

    def _by_share(self, entries: list[_Entry]) -> Iterable[_Entry]:
        """Yield the heads by fair shares: in each cohort the one whose branch has the lowest share with it comes first."""
        left = {entry.contender.queue: entry for entry in entries}
        while left:
            name = next(iter(left))
            root = self.snapshot.tree.queues[name].path[-1]
            if root.queue:
                yield left.pop(name)
                continue
            members = [left[m.name] for m in root.members if m.queue and m.name in left]
            shares = {entry.contender.queue: self._shares_with(entry) for entry in members}
            winner = self._winner(root, left, shares)
            if winner is None:
                return
            yield left.pop(winner.contender.queue)

    def _shares_with(self, entry: _Entry) -> dict[int, Share]:
        """Return the shares from a queue to the root as if its head were admitted, by the id of the cohort above each."""
        queue, usage = entry.contender.queue, entry.assignment.usage
        self.snapshot.add_usage(queue, usage)
        shares = {
            id(node.parent): dominant_share(self.snapshot, node)
            for node in self.snapshot.tree.queues[queue].path
            if node.parent is not None
        }
        self.snapshot.remove_usage(queue, usage)
        return shares

    def _winner(
        self, cohort: Node, left: Mapping[str, _Entry], shares: Mapping[str, dict[int, Share]]
    ) -> _Entry | None:
        candidates = [self._winner(child, left, shares) for child in cohort.children if not child.queue]
        candidates += [left[child.name] for child in cohort.children if child.queue and child.name in left]
        found = [each for each in candidates if each is not None]

        def order(entry: _Entry) -> tuple[bool, Share, tuple[int, float, str]]:
            share = shares[entry.contender.queue][id(cohort)]
            return (bool(share.slots & entry.assignment.usage.keys()), share, entry.contender.order)

        return min(found, key=order, default=None)
