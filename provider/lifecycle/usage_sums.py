"""The times for which jobs have run, and sums of what deleted jobs have used in each month, which outlive their records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, Demand
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, plausible_seconds, section, without
from pulumi_trainer.provider.kueue.prices import Amount

BOOKED = "booked"
"""Key of the UIDs of the records that were counted last, with the time: what they show up to then counts in the sums."""
_MOST_BOOKED = 500
_MOST_MONTHS = 60
_MOST_BYTES = 500_000
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


@dataclass(frozen=True)
class Ran:
    """A time for which a job has run, or has run for an unknown time.

    Args:
        begin: Seconds since the epoch; 0 if unknown.
        end: Seconds since the epoch; 0 if it still runs, or if `begin` is unknown.
        known: When the job is known to have existed, for a job whose time is unknown.
        price: Price of an hour of one of its GPUs; None if it is not known.
    """

    namespace: str
    name: str
    demand: Demand
    begin: float
    end: float = 0.0
    known: float = 0.0
    price: Amount | None = None

    @property
    def running(self) -> bool:
        return bool(self.begin) and not self.end


@dataclass
class UsageSum:
    """What the deleted jobs of one queue, user and flavor have used in a month.

    Args:
        month: As 2026-11 (UTC).
        demand: Queue, user and flavor; its amounts mean nothing.
        jobs: How many jobs ran in that month.
        cpu_seconds: None if none of them has requested CPUs.
        unknown: Jobs whose GPUs or times are not, or not completely, known.
        price: Price of an hour of one of their GPUs; None if it is not known.
    """

    namespace: str
    month: str
    demand: Demand
    jobs: int = 0
    gpu_seconds: float = 0.0
    cpu_seconds: float | None = None
    unknown: int = 0
    price: Amount | None = field(default=None, compare=False)

    @property
    def window(self) -> tuple[float, float]:
        """Begin and end of the month, in seconds since the epoch."""
        return month_window(self.month)

    def add(self, other: UsageSum) -> None:
        self.jobs += other.jobs
        self.gpu_seconds += other.gpu_seconds
        self.unknown += other.unknown
        if other.cpu_seconds is not None:
            self.cpu_seconds = (self.cpu_seconds or 0.0) + other.cpu_seconds

    def to_dict(self) -> dict[str, Any]:
        found = {**self.demand.to_dict(), "jobs": self.jobs, "gpuSeconds": round(self.gpu_seconds)}
        if self.cpu_seconds is not None:
            found["cpuSeconds"] = round(self.cpu_seconds)
        if self.unknown:
            found["unknown"] = self.unknown
        return found

    @classmethod
    def from_dict(cls, namespace: str, month: str, given: Mapping[str, Any]) -> UsageSum:
        """Return a sum from JSON that anybody may have written."""
        known = Demand.from_dict(given)
        found = cls(namespace, month, _key_of(known), gpu_seconds=plausible_seconds(given.get("gpuSeconds")))
        found.jobs, found.unknown = map(int, map(plausible_seconds, (given.get("jobs"), given.get("unknown"))))
        if "cpuSeconds" in given:
            found.cpu_seconds = plausible_seconds(given["cpuSeconds"])
        return found


def month_of(moment: float) -> str:
    """Return the calendar month of a moment in UTC, as 2026-11."""
    return f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m}"


def month_window(month: str) -> tuple[float, float]:
    """Return when a month begins and ends, in seconds since the epoch. month: As 2026-11."""
    year, number = map(int, month.split("-"))
    begin = datetime(year, number, 1, tzinfo=timezone.utc)
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=timezone.utc)
    return begin.timestamp(), end.timestamp()


def is_month(given: str) -> bool:
    return _MONTH.fullmatch(given) is not None and "1970-01" <= given < "9999-12"


def sum_up(runs: Iterable[Ran], now: float) -> list[UsageSum]:
    """Return the sums of one job that is deleted now."""
    sums: dict[tuple[str, Demand], UsageSum] = {}
    for ran in runs:
        for month, seconds in _seconds_by_month(ran, now):
            demand = _key_of(ran.demand)
            found = sums.setdefault((month, demand), UsageSum(ran.namespace, month, demand, jobs=1))
            found.gpu_seconds += seconds * (ran.demand.gpus or 0.0)
            if ran.demand.cpus is not None:
                found.cpu_seconds = (found.cpu_seconds or 0.0) + seconds * ran.demand.cpus
            if not ran.begin or ran.demand.gpus is None:
                found.unknown = 1
    return [*sums.values()]


def _seconds_by_month(ran: Ran, now: float) -> Iterator[tuple[str, float]]:
    if not ran.begin:
        yield month_of(ran.known or now), 0.0
        return
    begin, end = ran.begin, ran.end or now
    while begin < end:
        month = month_of(begin)
        until = min(end, month_window(month)[1])
        yield month, until - begin
        begin = until


def _key_of(demand: Demand) -> Demand:
    return Demand(user=demand.user, queue=demand.queue, flavor=demand.flavor, annotated=demand.annotated)


def read_sums(namespace: str, data: Mapping[str, Any]) -> list[UsageSum]:
    """Return the sums in the data of a ConfigMap that anybody may have edited."""
    found = list[UsageSum]()
    for month in filter(is_month, data):
        found += map(partial(UsageSum.from_dict, namespace, month), mappings(parse(data[month])))
    return found


def booked(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the UIDs of the records that were counted last, with the time until which they count in the sums."""
    return {uid: plausible_seconds(until) for uid, until in section(parse(data.get(BOOKED))).items()}


def after(until: float, runs: Iterable[Ran]) -> Iterator[Ran]:
    """Yield the times of a job that are not in the sums. until: When it was counted; 0 if it was not."""
    for ran in runs:
        if not until:
            yield ran
        elif ran.begin and not 0 < ran.end <= until:
            yield replace(ran, begin=max(ran.begin, until))


def sums_patch(
    namespace: str, data: Mapping[str, Any], added: Mapping[str, Sequence[Ran]], now: float
) -> dict[str, str | None]:
    """Return a patch of a ConfigMap's data that adds the times of jobs to its sums, as far as the sums lack them.

    Args:
        added: UID of the record of a job -> its times.
    """
    before = booked(data)
    sums: dict[tuple[str, Demand], UsageSum] = {}
    fresh = [sum_up(after(before.get(uid, 0.0), runs), now) for uid, runs in added.items()]
    for each in chain(read_sums(namespace, data), *fresh):
        found = sums.setdefault((each.month, each.demand), UsageSum(namespace, each.month, each.demand))
        found.add(each)
    texts = _as_texts([*sums.values()])
    counted = {**without(before, *added), **dict.fromkeys(added, now)}
    gone = dict.fromkeys(month for month in section(data) if is_month(month) and month not in texts)
    return {**gone, **texts, BOOKED: json.dumps(dict([*counted.items()][-_MOST_BOOKED:]))}


def _as_texts(sums: list[UsageSum]) -> dict[str, str]:
    """Return sums as data; of the oldest months without users if it is too much."""
    by_month: dict[str, list[UsageSum]] = {}
    for each in sorted(sums, key=lambda found: found.month, reverse=True):
        by_month.setdefault(each.month, []).append(each)
    texts: dict[str, str] = {}
    left = _MOST_BYTES
    for month in [*by_month][:_MOST_MONTHS]:
        found = _as_text(by_month[month])
        if len(found) > left:
            found = _as_text(_without_users(by_month[month]))
        left -= len(found)
        texts[month] = found
    return texts


def _as_text(sums: Iterable[UsageSum]) -> str:
    return json.dumps([*map(UsageSum.to_dict, sums)], separators=(",", ":"))


def _without_users(sums: Iterable[UsageSum]) -> list[UsageSum]:
    found: dict[Demand, UsageSum] = {}
    for each in sums:
        demand = replace(each.demand, user=NOTHING_KNOWN.user, annotated=False)
        found.setdefault(demand, UsageSum(each.namespace, each.month, demand)).add(each)
    return [*found.values()]
