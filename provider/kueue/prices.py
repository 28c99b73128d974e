"""Prices of GPUs by flavor and budgets of teams: annotations of Kueue's objects, and values of a stack's configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, section, text
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.queue_state import Queues

PRICE = "pulumi-trainer.dev/price-per-hour"
"""Annotation of a ResourceFlavor: what an hour of one of its GPUs costs, such as "3.20 USD"."""
BUDGET = "pulumi-trainer.dev/budget-per-month"
"""Annotation of a LocalQueue: what its team may use in a calendar month, such as "20000 USD" or "5000 GPU-hours"."""
GPU_HOURS = "GPU-hours"
CURRENCY = "USD"
"""Currency of a price without one."""
_AMOUNT = re.compile(r"(?P<number>\d{1,12}(\.\d{1,6})?)( (?P<unit>[A-Z]{3}|GPU-hours))?")


@dataclass(frozen=True)
class Amount:
    """A price, a sum of money, or a number of GPU-hours. unit: A currency such as USD, or `GPU_HOURS`."""

    number: Decimal
    unit: str

    def __str__(self) -> str:
        digits = max(2, -int(self.number.as_tuple().exponent))
        if self.number == self.number.to_integral_value():
            digits = 0
        return f"{self.number:,.{digits}f} {self.unit}"

    @property
    def written(self) -> str:
        """Return the text of an annotation."""
        return f"{self.number:f} {self.unit}"


def read_price(given: Any) -> Amount:
    """Return the price of an hour of a GPU: a number, in US dollars, or a text such as "3.20 EUR". Raises Invalid."""
    found = _read(given)
    if found is None or found.unit == GPU_HOURS:
        hint = 'for example 3.20, or "3.20 EUR"'
        raise Invalid(Problem("", f"must be the price of an hour of a GPU, 0 or more, not {given!r}", hint))
    return found


def read_budget(given: Any) -> Amount:
    """Return the budget of a month: a text such as "20000 USD" or "5000 GPU-hours". Raises Invalid."""
    found = _read(given, "")
    if found is None or not found.unit:
        hint = 'for example "20000 USD" or "5000 GPU-hours"'
        raise Invalid(Problem("", f"must be the money or the GPU-hours of a month, not {given!r}", hint))
    return found


def _read(given: Any, unit: str = CURRENCY) -> Amount | None:
    """Return an amount; None if it is none. unit: That of a number without one."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    match = _AMOUNT.fullmatch(given if isinstance(given, str) else f"{Decimal(str(given)):f}")
    if match is None:
        return None
    return Amount(Decimal(match["number"]), match["unit"] or unit)


@dataclass(frozen=True)
class Prices:
    """Prices of an hour of a GPU.

    Args:
        by_flavor: Price by the name of its flavor, with or without the digest that `GpuQueues` appends to it.
    """

    by_flavor: Mapping[str, Amount] = field(default_factory=dict)

    @classmethod
    def of(cls, flavors: Iterable[Document], configured: Mapping[str, Amount] | None = None) -> Prices:
        """Return the prices in annotations of ResourceFlavors, without invalid ones (`invalid_amounts` reports these)."""
        found = {name_of(flavor): _annotated(flavor, PRICE, read_price) for flavor in flavors}
        return cls({name: price for name, price in found.items() if price is not None} | dict(configured or {}))

    def find(self, flavor: str) -> Amount | None:
        """Return the price of a flavor; None if it has none."""
        return self.by_flavor.get(flavor) or self.by_flavor.get(without_digest(flavor))


def budget_of(local_queue: Document) -> Amount | None:
    """Return the budget of a LocalQueue's team; None if it has none, or an invalid one."""
    return _annotated(local_queue, BUDGET, read_budget)


def _annotated(document: Document, annotation: str, read: Callable[[Any], Amount]) -> Amount | None:
    given = section(document, "metadata", "annotations").get(annotation)
    try:
        return None if given is None else read(given)
    except Invalid:
        return None


def invalid_amounts(document: Document, _: Queues) -> Iterator[Problem]:
    """Yield that the price of a ResourceFlavor or the budget of a LocalQueue cannot be read: it counts as none."""
    for kind, annotation, read in (("ResourceFlavor", PRICE, read_price), ("LocalQueue", BUDGET, read_budget)):
        given = section(document, "metadata", "annotations").get(annotation)
        if document.get("kind") == kind and isinstance(given, str):
            try:
                read(given)
            except Invalid as error:
                at = f"{kind} {name_of(document)}: metadata.annotations[{annotation}]"
                yield from (
                    Problem(at, f"{problem.why}: it counts as none", problem.hint) for problem in error.problems
                )


def gpu_flavors(cluster_queue: Document | None, counts: Callable[[str], bool]) -> set[str]:
    """Return the flavors in which a ClusterQueue has GPUs, its own or borrowed ones."""
    groups = mappings(section(cluster_queue, "spec").get("resourceGroups"))
    flavors = chain.from_iterable(mappings(group.get("flavors")) for group in groups)
    return {
        text(flavor.get("name"))
        for flavor in flavors
        if any(counts(text(each.get("name"))) for each in mappings(flavor.get("resources")))
    }
