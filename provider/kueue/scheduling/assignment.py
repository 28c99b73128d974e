"""Which flavors Kueue's scheduler gives a Workload now, and whether it has to borrow or preempt for them.

Follows https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner with the default feature gates; whether
a topology has room is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction

from pulumi_trainer.provider.kueue.fit import FlavorSearch, PodGroup, Wanted, flavor_names
from pulumi_trainer.provider.kueue.quota import ZERO, Node, Slot
from pulumi_trainer.provider.kueue.scheduling.preemption import Demand, find_victims
from pulumi_trainer.provider.kueue.scheduling.snapshot import NEVER, Contender, Policy, Snapshot

Place = tuple[int, int]
"""A group of pod sets and a resource group, by their indices."""


class Mode(IntEnum):
    """How well a flavor fits; the larger, the better."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


@dataclass(frozen=True)
class Level:
    """How well a flavor fits, and how far up in the cohorts quota has to be borrowed (0 for not at all)."""

    mode: Mode
    borrowing: int = 0

    def is_better(self, other: Level, policy: Policy) -> bool:
        """Return whether a flavor that fits so is preferred to another."""
        if Mode.NO_FIT in (self.mode, other.mode):
            return self.mode != Mode.NO_FIT
        if (self.mode == Mode.NO_CANDIDATES) != (other.mode == Mode.NO_CANDIDATES):
            return other.mode == Mode.NO_CANDIDATES
        if policy.prefers_preemption:
            return (-self.borrowing, self.mode) > (-other.borrowing, other.mode)
        return (self.mode, -self.borrowing) > (other.mode, -other.borrowing)

    def ends_search(self, policy: Policy) -> bool:
        """Return whether the flavors behind this one are not tried."""
        if self.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
            return False
        if self.mode != Mode.FIT and policy.try_next_to_preempt:
            return False
        return not (self.borrowing and policy.try_next_to_borrow)


WORST = Level(Mode.NO_FIT, 1 << 30)


@dataclass
class Assignment:
    """The flavors that a Workload gets.

    Args:
        flavors: Flavors by index of the group of pod sets and resource.
        short: Slots in which others have to be preempted, or have to end.
        borrowing: How far up in the cohorts it borrows.
        next_flavors: From which flavor on the next attempt searches.
    """

    flavors: dict[tuple[int, str], str] = field(default_factory=dict)
    usage: dict[Slot, Fraction] = field(default_factory=dict)
    short: set[Slot] = field(default_factory=set)
    borrowing: int = 0
    next_flavors: dict[Place, int] = field(default_factory=dict)
    fits: bool = True
    victims: list[Contender] = field(default_factory=list)

    @property
    def fits_now(self) -> bool:
        """Whether the Workload fits without preemption."""
        return self.fits and not self.short

    @property
    def waits_for_ends(self) -> bool:
        """Whether the Workload would fit if others ended, and may preempt none of them."""
        return self.fits and bool(self.short) and not self.victims

    @property
    def is_incomplete(self) -> bool:
        """Whether flavors are left that the next attempt tries."""
        return any(self.next_flavors.values())


def assign_flavors(
    snapshot: Snapshot, contender: Contender, groups: Sequence[PodGroup], start: Mapping[Place, int]
) -> Assignment:
    """Return the flavors of a Workload, and the Workloads to preempt for it."""
    search = snapshot.search(contender.queue)
    found = Assignment()
    for at, group in enumerate(groups):
        for wanted in search.by_resource_group(group):
            if isinstance(wanted, str):
                found.fits = False
                return found
            if not _assign_group(snapshot, contender, search, (at, group), wanted, start, found):
                found.fits = False
                return found
    if found.short:
        found.victims = find_victims(snapshot, Demand(contender, found.usage, found.short))
    return found


def _assign_group(
    snapshot: Snapshot,
    contender: Contender,
    search: FlavorSearch,
    indexed: tuple[int, PodGroup],
    wanted: Wanted,
    start: Mapping[Place, int],
    found: Assignment,
) -> bool:
    """Choose the flavor of a resource group for a group of pod sets; return whether there is one."""
    at, group = indexed
    policy, names = snapshot.policy(contender.queue), flavor_names(wanted.group)
    place = (at, search.groups.index(wanted.group))
    best, chosen, modes, tried = WORST, "", {}, -1
    for tried in range(start.get(place, 0), len(names)):
        if search.mismatch(names[tried], group, wanted.group):
            continue
        levels = _judge_flavor(snapshot, contender, names[tried], wanted.requests, found)
        worst = Level(Mode.FIT)
        for level in levels.values():
            if worst.is_better(level, policy):
                worst = level
        if worst.ends_search(policy) or worst.is_better(best, policy):
            best, chosen, modes = worst, names[tried], levels
            if worst.ends_search(policy):
                break
    if not chosen or best.mode == Mode.NO_FIT:
        return not wanted.requests
    found.next_flavors[place] = 0 if tried == len(names) - 1 else tried + 1
    for resource, level in modes.items():
        slot = (chosen, resource)
        found.flavors[at, resource] = chosen
        found.usage[slot] = found.usage.get(slot, ZERO) + wanted.requests[resource]
        found.borrowing = max(found.borrowing, level.borrowing)
        if level.mode != Mode.FIT:
            found.short.add(slot)
    return True


def _judge_flavor(
    snapshot: Snapshot, contender: Contender, flavor: str, requests: Mapping[str, Fraction], found: Assignment
) -> dict[str, Level]:
    """Return how well a flavor fits for each resource; up to the first that does not fit at all."""
    levels = {}
    for resource, requested in requests.items():
        slot = (flavor, resource)
        levels[resource] = _judge_slot(snapshot, contender, slot, found.usage.get(slot, ZERO) + requested)
        if levels[resource].mode == Mode.NO_FIT:
            break
    return levels


def _judge_slot(snapshot: Snapshot, contender: Contender, slot: Slot, wanted: Fraction) -> Level:
    """Return how well a request fits into a slot. wanted: The request, with those of the pod sets before it."""
    node = snapshot.node(contender)
    if wanted > node.potential(slot):
        return Level(Mode.NO_FIT)
    borrowing, is_below_root = find_lender(node, slot, wanted)
    if wanted <= max(ZERO, node.available(slot)):
        return Level(Mode.FIT, borrowing)
    policy = snapshot.policy(contender.queue)
    while_borrowing = policy.borrowing != NEVER or (snapshot.fair and policy.reclaim != NEVER)
    if wanted > node.quota(slot).nominal and not is_below_root and not while_borrowing:
        return Level(Mode.NO_FIT, borrowing)
    return _judge_preemption(snapshot, contender, slot, wanted)


def _judge_preemption(snapshot: Snapshot, contender: Contender, slot: Slot, wanted: Fraction) -> Level:
    """Return how well a request fits into a slot if others are preempted for it."""
    node = snapshot.node(contender)
    victims = find_victims(snapshot, Demand(contender, {slot: wanted}, (slot,)))
    held = [(victim.queue, victim.held) for victim in victims]
    for queue, usage in held:
        snapshot.remove_usage(queue, usage)
    borrowing, _ = find_lender(node, slot, wanted)
    for queue, usage in held:
        snapshot.add_usage(queue, usage)
    if not victims:
        return Level(Mode.NO_CANDIDATES, borrowing)
    same = any(queue == contender.queue for queue, _ in held)
    return Level(Mode.PREEMPT if same else Mode.RECLAIM, borrowing)


def find_lender(node: Node, slot: Slot, wanted: Fraction) -> tuple[int, bool]:
    """Return the height of the lowest cohort with room for a request (0 for the queue), and whether that is below the root."""
    if node.parent is None or node.usage(slot) + wanted <= node.quota(slot).nominal:
        return 0, node.parent is not None
    left = wanted - node.local_available(slot)
    for cohort in node.path[1:]:
        if not cohort.exceeds(slot, left):
            return cohort.height, cohort.parent is not None
        left -= cohort.local_available(slot)
    return node.path[-1].height, False


def missing_quota(snapshot: Snapshot, contender: Contender, groups: Sequence[PodGroup]) -> dict[Slot, Fraction]:
    """Return what would have to become free for a Workload, in the flavors of which least is missing."""
    search, node = snapshot.search(contender.queue), snapshot.node(contender)
    missing: dict[Slot, Fraction] = {}
    taken: dict[Slot, Fraction] = {}
    for group in groups:
        for wanted in search.by_resource_group(group):
            if isinstance(wanted, str):
                continue
            choices = []
            for flavor in flavor_names(wanted.group):
                slots = {(flavor, resource): amount for resource, amount in wanted.requests.items()}
                possible = all(taken.get(s, ZERO) + amount <= node.potential(s) for s, amount in slots.items())
                if possible and not search.mismatch(flavor, group, wanted.group):
                    lacking = {s: taken.get(s, ZERO) + amount - node.available(s) for s, amount in slots.items()}
                    choices.append((slots, {s: value for s, value in lacking.items() if value > 0}))
            if choices:
                slots, lacking = min(choices, key=lambda choice: sum(choice[1].values(), ZERO))
                missing |= lacking
                for slot, amount in slots.items():
                    taken[slot] = taken.get(slot, ZERO) + amount
    return missing
