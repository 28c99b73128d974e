"""What the jobs use and cost that a plan starts, in total and against the budgets of their teams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.program import amounts
from pulumi_trainer.provider.jobs.cost import ABOUT, Cost, rounded
from pulumi_trainer.provider.kubernetes.values.accessors import Document, name_of
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, join_names, plural
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.prices import GPU_HOURS, Amount, Prices
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from pulumi_trainer.provider.trainer.admission.warnings.budgets import BEYOND, HINT, WITHOUT_EFFECT

KINDS = ("ResourceFlavor", "LocalQueue")
TOTAL = "this plan starts"
"""How the note with the total of a plan begins."""


@dataclass(frozen=True)
class Started:
    """A new run of a job with GPUs. place: Equal for runs in the same cluster."""

    job: str
    cost: Cost
    target: Mapping[str, Any]
    place: str
    namespace: str
    queue: str
    budget: Amount | None
    prices: Prices


def total_note(started: Sequence[Started]) -> str:
    """Return what several new runs use and cost together; empty for less than two, or if nothing is known of them."""
    units = sorted({each.cost.price.unit for each in started if each.cost.price})
    used = [_amounts(started, unit) for unit in (GPU_HOURS, *units) if _sum(started, unit)]
    if len(started) < 2 or not used:
        return ""
    unknown = [each.job for each in started if each.cost.time is None or (units and not each.cost.price)]
    rest = f"; and what is not known of {join_names(unknown)}" if unknown else ""
    return f"{TOTAL} {plural(len(started), 'job')} with GPUs: {', '.join(used)}{rest}"


async def judge_budgets(started: Sequence[Started]) -> tuple[list[str], list[Warning]]:
    """Return notes and warnings on the budgets of those teams whose jobs a plan starts."""
    groups: dict[tuple[str, str, str], list[Started]] = {}
    for each in started:
        if each.budget is not None:
            groups.setdefault((each.place, each.namespace, each.queue), []).append(each)
    notes, warnings = list[str](), list[Warning]()
    for (_, namespace, queue), group in groups.items():
        first = group[0]
        assert first.budget is not None
        used, gaps = await asyncio.to_thread(
            queries.month_usage, first.target, namespace, queue, first.budget.unit, first.prices
        )
        gaps += [f"what {each.job} uses" for each in group if each.cost.amount(first.budget.unit) is None]
        where, month = f"LocalQueue {namespace}/{queue}", time.strftime("%Y-%m", time.gmtime())
        sums = f"its team has used {rounded(used, first.budget.unit)} in {month}"
        sums += f", and this plan starts {_amounts(group, first.budget.unit)}"
        if used + _sum(group, first.budget.unit) > first.budget.number:
            warnings.append(Warning(where, f"{sums}: the budget of a month is {first.budget}", HINT, code=BEYOND))
        elif gaps:
            why = f"whether its team stays within its budget of {first.budget} for {month} is not known"
            notes.append(f"{where}: {why}: {'; '.join(gaps)}")
        else:
            notes.append(f"{where}: {sums}, within the budget of {first.budget} a month")
    return notes, warnings


async def judge_names(started: Sequence[Started], documents: Sequence[Document]) -> list[Warning]:
    """Return warnings on prices and budgets of the configuration for flavors and queues that do not exist."""
    prices, budgets = amounts.configured("prices"), amounts.configured("budget")
    known: dict[str, set[str]] = {
        kind: {name_of(each) for each in documents if each.get("kind") == kind} for kind in KINDS
    }
    unread = {kind for kind in KINDS if not started}
    for target in {each.place: each.target for each in started if prices or budgets}.values():
        there = await asyncio.to_thread(queries.find_queues, target) or Queues()
        work = await asyncio.to_thread(queries.list_queued_work, target)
        for kind, queues in zip(KINDS, (there, Queues(tuple(work or ()))), strict=True):
            found = queues.of(kind)
            known[kind] |= set(map(name_of, found))
            unread |= set() if found else {kind}  # it may not be listed, or there are none
    flavors = {*known["ResourceFlavor"], *map(without_digest, known["ResourceFlavor"])}
    missing = [("prices", "ResourceFlavor", name) for name in prices.keys() - flavors]
    missing += [("budget", "LocalQueue", name) for name in budgets.keys() - known["LocalQueue"]]
    return [
        Warning(
            f"trainer:{key}.{name} of the stack",
            f"no {kind} is called {name}",
            did_you_mean(name, known[kind], f"pulumi config rm --path 'trainer:{key}.{name}'"),
            code=WITHOUT_EFFECT,
        )
        for key, kind, name in sorted(missing)
        if kind not in unread
    ]


def _sum(started: Sequence[Started], unit: str) -> float:
    return sum(each.cost.amount(unit) or 0.0 for each in started)


def _amounts(started: Sequence[Started], unit: str) -> str:
    """Return the sum of what is known: it is an upper limit of those runs of which only a time limit is known."""
    limited = any(each.cost.time is not None and each.cost.time.limited for each in started)
    return f"{'up to about' if limited else ABOUT} {rounded(_sum(started, unit), unit)}"
