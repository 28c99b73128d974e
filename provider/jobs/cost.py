"""What a run of a job will use and cost, from its GPUs, the prices of their flavors, and how long it will run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.usage import demand_of, is_gpu
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, section, text
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.prices import GPU_HOURS, Amount, Prices, gpu_flavors
from pulumi_trainer.provider.kueue.quota import Slot

_HOUR = 3600
ABOUT, AT_MOST = "about", "at most"


@dataclass(frozen=True)
class Time:
    """How long a run will take. words: What that rests on. limited: Whether it is a limit instead of an estimate."""

    seconds: float
    words: str
    limited: bool = False


def estimate_time(expected: float | None, runs: Sequence[Run], limit: float | None, gpus: float | None) -> Time | None:
    """Return how long a new run takes, as the program expects, as the last successful run took, or as a limit allows; None if
    nothing is known.

    Args:
        expected: Hours that the program expects.
        runs: Earlier runs of the job, the newest last.
        limit: Seconds after which the job is stopped.
        gpus: GPUs of the new run.
    """
    found: Time | None = None
    done = [(run.seconds, run.usage.gpus) for run in runs if run.seconds]
    if expected is not None:
        found = Time(expected * _HOUR, "by expected_hours")
    elif done:
        seconds, before = done[-1]
        with_gpus = "" if before in (None, gpus) else f" with {before:g} GPUs"
        found = Time(seconds, f"its last successful run took {duration(seconds)}{with_gpus}")
    if limit is not None and (found is None or limit < found.seconds):
        found = Time(limit, f"its time limit is {duration(limit)}", limited=True)
    return found


def time_limit(*jobs: Document | None) -> float | None:
    """Return the seconds after which a job is stopped, by its JobSet or its TrainJob; None for no limit."""
    limits = [text(labels_of(job).get(MAX_EXECUTION)) for job in jobs if job is not None]
    found = [float(limit) for limit in limits if limit.isdecimal()]
    deadlines = [section(job, "spec").get("activeDeadlineSeconds") for job in jobs]
    found += [float(deadline) for deadline in deadlines if isinstance(deadline, int)]
    return min(found, default=None)


@dataclass(frozen=True)
class Cost:
    """What a run uses, and what that costs.

    Args:
        gpus: Its GPUs; None if they are not known.
        time: How long it takes; None if that is not known.
        flavors: Flavors of which it gets one; empty if not known.
        prices: Prices by flavor.
    """

    gpus: float | None
    time: Time | None
    flavors: frozenset[str]
    prices: Prices

    @property
    def price(self) -> Amount | None:
        """Return the price of an hour of one of its GPUs; None if that is not known."""
        found = {*map(self.prices.find, self.flavors)}
        return found.pop() if len(found) == 1 else None

    def amount(self, unit: str) -> float | None:
        """Return what it uses in a unit; None if that is not known."""
        if self.time is None or self.gpus is None:
            return None
        hours = self.gpus * self.time.seconds / _HOUR
        if unit == GPU_HOURS:
            return hours
        price = self.price
        return float(price.number) * hours if price is not None and price.unit == unit else None

    def __str__(self) -> str:
        if self.gpus is None:
            return ""
        price, names = self.price, join_names(sorted({*map(without_digest, self.flavors)}))
        parts = [f"{names} {price} an hour" if price else self._unpriced(names)]
        if self.time is None:
            if price is None:
                return ""
            hourly = rounded(self.gpus * float(price.number), price.unit)
            return f"{hourly} an hour ({', '.join(parts)}), and how long it runs is not known"
        parts.append(self.time.words)
        used = [rounded(self.amount(GPU_HOURS) or 0.0, GPU_HOURS)]
        if price is not None:
            used.append(rounded(self.amount(price.unit) or 0.0, price.unit))
        bound = AT_MOST if self.time.limited else ABOUT
        return f"{bound} {', '.join(used)} ({'; '.join(filter(None, parts))})"

    def _unpriced(self, names: str) -> str:
        """Return why no price is known; empty if nothing has one."""
        if not self.prices.by_flavor:
            return ""
        if any(map(self.prices.find, self.flavors)):
            return f"its cost depends on which flavor it gets: {names}"
        return f"its cost is not known: {names} has no price" if names else "its cost is not known, nor is its flavor"


def cost_of(jobset: Document, time: Time | None, flavors: Iterable[str], prices: Prices) -> Cost | None:
    """Return what a run uses and costs; None for one without GPUs."""
    gpus = demand_of(jobset).gpus
    return None if gpus == 0 else Cost(gpus, time, frozenset(flavors), prices)


def flavors_of(cluster_queue: Document | None, slots: Collection[Slot] = ()) -> set[str]:
    """Return the flavors of which a job gets one for its GPUs; empty if they are not known. slots: Where it gets quota; empty
    if that is not known."""
    return {flavor for flavor, resource in slots if is_gpu(resource)} or gpu_flavors(cluster_queue, is_gpu)


def rounded(number: float, unit: str) -> str:
    """Return an amount that was computed, with as many digits as readers need, for example 307 USD or 0.25 USD."""
    return str(Amount(round(Decimal(number), 0 if number >= 10 else 2), unit))
