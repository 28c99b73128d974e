"""Dominant resource shares, by which Kueue shares fairly.

Follows https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/fair_sharing.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering

from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot
from pulumi_trainer.provider.kueue.scheduling.snapshot import Snapshot, slots_below


@total_ordering
@dataclass(frozen=True)
class Share:
    """How much a queue or cohort has borrowed of what its cohort can lend; the larger, the sooner others preempt from it.

    Args:
        ratio: The largest ratio among its resources.
    """

    ratio: Fraction = ZERO
    weight: Fraction = Fraction(1)
    slots: frozenset[Slot] = frozenset()

    @property
    def borrows(self) -> bool:
        """Whether it uses more than its quota."""
        return bool(self.slots)

    @property
    def _rank(self) -> tuple[bool, Fraction]:
        if not self.weight and self.ratio:  # borrows with a weight of 0: above all others
            return True, self.ratio
        return False, self.ratio / self.weight if self.weight else ZERO

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self._rank == other._rank

    def __lt__(self, other: Share) -> bool:
        return self._rank < other._rank

    def __hash__(self) -> int:
        return hash(self._rank)


def dominant_share(snapshot: Snapshot, node: Node) -> Share:
    """Return the share of a queue or cohort with what it uses now."""
    weight = snapshot.weights.get(id(node), Fraction(1))
    if node.parent is None:
        return Share(weight=weight)
    borrowed: dict[str, Fraction] = {}
    slots = set()
    for slot in slots_below(node):
        beyond = node.usage(slot) - node.subtree(slot)
        if beyond > 0:
            borrowed[slot[1]] = borrowed.get(slot[1], ZERO) + beyond
            slots.add(slot)
    lendable = snapshot.lendable(node.parent) if borrowed else {}
    ratios = [amount / lendable[resource] for resource, amount in borrowed.items() if lendable.get(resource)]
    return Share(max(ratios, default=ZERO), weight, frozenset(slots))
