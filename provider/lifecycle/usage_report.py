"""Sums up which GPUs and CPUs jobs have used in a window of time, by team, queue, user or job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, Demand
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    epoch_seconds,
    number,
    section,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.kueue.prices import GPU_HOURS, Amount
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, UsageSum
from pulumi_trainer.provider.trainer.job_status import derive_phase

By = Literal["team", "queue", "user", "job"]

NONE, UNKNOWN = "none", "unknown"
_HOUR = 3600.0
_ACTIVE = (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)


@dataclass
class Row:
    """The usage of a team, queue, user or job.

    Args:
        key: Its name; `none` without a queue, `unknown` if not recorded.
        deleted: Deleted jobs that count as well; one that ran in two months counts twice.
        gpu_hours: GPUs times hours in the window.
        cpu_hours: CPUs times hours in the window, of the jobs that request CPUs; None if none of them does.
        cost: What the GPU-hours with a price cost, by currency.
        incomplete: Jobs whose GPUs or times are not, or not completely, known; what is known of them is counted.
        unpriced: Jobs with GPUs whose price is not known.
    """

    key: str
    jobs: set[tuple[str, str]] = field(default_factory=set)
    running: set[tuple[str, str]] = field(default_factory=set)
    deleted: int = 0
    gpus: float = 0.0
    gpu_hours: float = 0.0
    cpu_hours: float | None = None
    cost: dict[str, float] = field(default_factory=dict)
    incomplete: set[tuple[str, str]] = field(default_factory=set)
    unpriced: set[tuple[str, str]] = field(default_factory=set)

    @property
    def job_count(self) -> int:
        """All its jobs, deleted ones included."""
        return len(self.jobs) + self.deleted

    def numbers(self) -> dict[str, Any]:
        cpu_hours = None if self.cpu_hours is None else round(self.cpu_hours, 3)
        return {
            "jobs": self.job_count, "running": len(self.running), "gpus": round(self.gpus, 3),
            "gpuHours": round(self.gpu_hours, 3), "cpuHours": cpu_hours,
            "incomplete": len(self.incomplete), "unpriced": len(self.unpriced),
            "cost": {currency: round(cost, 2) for currency, cost in sorted(self.cost.items())},
        }  # fmt: skip

    def amount(self, unit: str) -> tuple[float, list[str]]:
        """Return what is known to be used, in a unit, and what is not known."""
        used, gaps = (self.gpu_hours, []) if unit == GPU_HOURS else (self.cost.get(unit, 0.0), [])
        if self.incomplete:
            gaps.append(f"GPUs or times of {plural(len(self.incomplete), 'job')}")
        if self.unpriced and unit != GPU_HOURS:
            gaps.append(f"the price of the GPUs of {plural(len(self.unpriced), 'job')}")
        return used, gaps

    def add(self, ran: Ran, begin: float, now: float) -> None:
        job = (ran.namespace, ran.name)
        if not ran.begin:
            if begin <= ran.known < now:
                self.incomplete.add(job)
            return
        hours = (min(ran.end or now, now) - max(ran.begin, begin)) / _HOUR
        if ran.begin > now or (hours <= 0 and not ran.running):
            return
        self.jobs.add(job)
        if ran.demand.gpus is None:
            self.incomplete.add(job)
        gpus, hours = ran.demand.gpus or 0.0, max(0.0, hours)
        self._add_hours(job, gpus * hours, ran.demand.cpus and ran.demand.cpus * hours, ran.price, priced=gpus > 0)
        if ran.running:
            self.running.add(job)
            self.gpus += gpus

    def add_sum(self, used: UsageSum) -> None:
        self.deleted += used.jobs
        deleted, hours = (used.namespace, f"deleted jobs of {used.month}"), used.gpu_seconds / _HOUR
        self._add_hours(deleted, hours, used.cpu_seconds and used.cpu_seconds / _HOUR, used.price, priced=hours > 0)
        if used.unknown:
            self.incomplete.add(deleted)

    def _add_hours(
        self, job: tuple[str, str], gpus: float, cpus: float | None, price: Amount | None, *, priced: bool
    ) -> None:
        """Add GPU-hours and CPU-hours. priced: Whether a job without a price has used what has one."""
        self.gpu_hours += gpus
        if cpus is not None:
            self.cpu_hours = (self.cpu_hours or 0.0) + cpus
        if price is not None:
            self.cost[price.unit] = self.cost.get(price.unit, 0.0) + float(price.number) * gpus
        elif priced:
            self.unpriced.add(job)


@dataclass(frozen=True)
class ClusterUsage:
    """What jobs of a cluster have used, or of a stack.

    Args:
        teams: Namespace and name of a LocalQueue -> its team.
        budgets: Team -> its budget of a month.
        unseen: Plurals of the kinds that do not exist, or may not be listed.
        deleted: What deleted jobs have used in each month; of a stack nothing is known of them.
    """

    runs: list[Ran]
    teams: Mapping[tuple[str, str], str]
    budgets: Mapping[str, Amount]
    unseen: Collection[str]
    deleted: Sequence[UsageSum] = ()


def join_usage(found: Iterable[tuple[str, ClusterUsage]]) -> ClusterUsage:
    """Return what several clusters, or parts of one, have used together. found: Each with the name of its cluster, which its
    namespaces get in front; empty where there is only one cluster."""
    runs, deleted, teams, budgets = list[Ran](), list[UsageSum](), dict[tuple[str, str], str](), dict[str, Amount]()
    unseen = set[str]()
    for cluster, each in found:
        above = f"{cluster}/" if cluster else ""
        runs += (replace(ran, namespace=above + ran.namespace) for ran in each.runs)
        deleted += (replace(used, namespace=above + used.namespace) for used in each.deleted)
        teams |= {(above + namespace, queue): team for (namespace, queue), team in each.teams.items()}
        budgets |= each.budgets
        unseen |= {*each.unseen}
    return ClusterUsage(runs, teams, budgets, sorted(unseen), deleted)


def summarize(
    runs: Iterable[Ran],
    by: By,
    since: float,
    now: float,
    teams: Mapping[tuple[str, str], str],
    deleted: Iterable[UsageSum] = (),
) -> tuple[list[Row], Row]:
    """Return the rows, the largest usage first, and the total. Of deleted jobs the months within the window count."""
    rows: dict[str, Row] = {}
    total = Row("total")
    key_of = _keys(teams)[by]
    for ran in runs:
        key = key_of(ran)
        rows.setdefault(key, Row(key)).add(ran, since, now)
        total.add(ran, since, now)
    for used in deleted:
        if since <= used.window[0] < now:
            key = key_of(used)
            rows.setdefault(key, Row(key)).add_sum(used)
            total.add_sum(used)
    counted = [row for row in rows.values() if row.jobs or row.deleted or row.incomplete]
    return sorted(counted, key=lambda row: (-row.gpu_hours, -(row.cpu_hours or 0.0), row.key)), total


def uncounted(found: ClusterUsage, since: float) -> list[UsageSum]:
    """Return what deleted jobs have used in the month in which a window begins."""
    return [used for used in found.deleted if used.window[0] < since < used.window[1]]


def _keys(teams: Mapping[tuple[str, str], str]) -> dict[By, Callable[[Ran | UsageSum], str]]:
    def queue(ran: Ran | UsageSum) -> str:
        if not ran.demand.queue:
            return _absent(ran.demand.queue)
        return f"{ran.namespace}/{ran.demand.queue}"

    return {
        "team": lambda ran: _team(ran, teams),
        "queue": queue,
        "user": lambda ran: ran.demand.user_shown or UNKNOWN,
        "job": lambda ran: f"{ran.namespace}/{ran.name if isinstance(ran, Ran) else 'deleted jobs'}",
    }


def _team(used: Ran | UsageSum, teams: Mapping[tuple[str, str], str]) -> str:
    queue = used.demand.queue
    if not queue:
        return _absent(queue)
    return teams.get((used.namespace, queue), queue)  # `GpuQueues` names LocalQueues like their teams


def labels_of_usage(used: Ran | UsageSum, teams: Mapping[tuple[str, str], str]) -> tuple[str, str, str, str]:
    """Return namespace, team, queue and user of a run or of deleted jobs."""
    return (
        used.namespace,
        _team(used, teams),
        used.demand.queue or _absent(used.demand.queue),
        used.demand.user or UNKNOWN,
    )


def gpu_seconds(used: Ran | UsageSum, now: float) -> float:
    """Return GPUs times seconds until a moment, as far as they are known."""
    if not isinstance(used, Ran):
        return used.gpu_seconds
    if not used.begin:
        return 0.0
    return max(0.0, (used.end or now) - used.begin) * (used.demand.gpus or 0.0)


def _absent(queue: str | None) -> str:
    """Return the key of a job without a queue. queue: None if it was not recorded, otherwise empty."""
    if queue is None:
        return UNKNOWN
    return NONE


def team_of(local_queue: str, cluster_queue: str) -> str:
    """Return the team of a LocalQueue.

    `GpuQueues` names ClusterQueues NAME-TEAM and their LocalQueues TEAM; in all other cases the ClusterQueue counts as the team.

    Args:
        cluster_queue: Name of its ClusterQueue; empty if unknown, so that the LocalQueue counts as the team.
    """
    named_like_team = cluster_queue.endswith(f"-{local_queue}")
    if named_like_team or not cluster_queue:
        return local_queue
    return cluster_queue


def earlier_runs(namespace: str, name: str, runs: Sequence[Run], created: float) -> Iterator[Ran]:
    """Yield the earlier runs of a job."""
    later = [*(run.created for run in runs), created][1:]
    for run, next_ in zip(runs, later, strict=True):
        begin = run.usage.since or run.started
        never_began = not begin and run.usage != NOTHING_KNOWN
        if never_began:
            continue
        end = 0.0
        if begin:
            end = run.finished or next_
        yield Ran(namespace, name, run.usage, begin, end, run.created)


def recorded_run(namespace: str, name: str, demand: Demand, started: float, finished: float) -> Iterator[Ran]:
    """Yield the run of a job by what its record says."""
    begin = demand.since or started
    if begin:
        yield Ran(namespace, name, demand, begin, finished)


def observed_runs(
    namespace: str, name: str, demand: Demand, jobset: Document, workload: Document | None
) -> Iterator[Ran]:
    """Yield the times for which a job has run, as its JobSet and its Workload show them. workload: The Workload of the job;
    None if it has none, or if Workloads cannot be read."""
    begin = max(began_at(jobset), _admitted_at(workload))
    phase = derive_phase(jobset).phase
    evicted = true_condition(conditions(workload), "Evicted")
    before = number(section(workload, "status").get("accumulatedPastExecutionTimeSeconds"))
    if phase in _ACTIVE:
        yield Ran(namespace, name, demand, begin)
    elif phase.terminal:
        yield Ran(namespace, name, demand, begin, _ended_at(jobset))
    if before:  # of earlier admissions
        end = begin or epoch_seconds(evicted.get("lastTransitionTime"))
        yield Ran(namespace, name, demand, end - before, end)
    elif _was_evicted(workload):
        yield Ran(namespace, name, demand, 0.0, known=epoch_seconds(evicted.get("lastTransitionTime")) or begin)


def began_at(jobset: Document) -> float:
    """Return when a JobSet was created, or last resumed; 0 while it is suspended."""
    suspended = next((c for c in conditions(jobset) if c.get("type") == "Suspended"), None)
    if suspended is not None and suspended.get("status") == "True":
        return 0.0
    created = epoch_seconds(section(jobset, "metadata").get("creationTimestamp"))
    if suspended is None:
        return created
    return epoch_seconds(suspended.get("lastTransitionTime"), created)


def other_workload(workload: Document, namespace: str, name: str, demand: Demand) -> Iterator[Ran]:
    """Yield the time of a Workload that is neither of a JobSet nor of a TrainJob, by its conditions."""
    begin = _admitted_at(workload)
    if begin:
        finished = true_condition(conditions(workload), "Finished")
        yield Ran(namespace, name, demand, begin, epoch_seconds(finished.get("lastTransitionTime")))


def _admitted_at(workload: Document | None) -> float:
    return epoch_seconds(true_condition(conditions(workload), "Admitted").get("lastTransitionTime"))


def _was_evicted(workload: Document | None) -> bool:
    evictions = section(workload, "status", "schedulingStats").get("evictions")
    return bool(evictions) or bool(true_condition(conditions(workload), "Evicted"))


def _ended_at(jobset: Document) -> float:
    ends = [true_condition(conditions(jobset), type_).get("lastTransitionTime") for type_ in ("Completed", "Failed")]
    return max(map(epoch_seconds, ends))


def to_json(rows: Sequence[Row], total: Row, by: By, since: float, now: float) -> dict[str, Any]:
    """Return usage as `--output json` prints it."""
    return {
        "by": by,
        "since": since,
        "until": now,
        "rows": [{by: row.key, **row.numbers()} for row in rows],
        "total": total.numbers(),
    }
