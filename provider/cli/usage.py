"""`usage`: prints which GPUs and CPUs jobs have used in a window of time, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import gc
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.jobs.cost import rounded
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.wording import join_names, plural
from pulumi_trainer.provider.lifecycle.usage_report import (
    By,
    ClusterUsage,
    Row,
    join_usage,
    summarize,
    to_json,
    uncounted,
)
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, is_month, month_of, month_window
from pulumi_trainer.provider.service.jobs import of_stack, open_cluster
from pulumi_trainer.provider.service.reach import ReachedJob, Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.kubernetes.client.client import Client

_NOW = 60.0
"""Seconds before now in which a window still ends now."""
_MISSED = {
    "configmaps": "records of jobs",
    "jobsets": "jobs that still exist",
    "workloads": "other kinds of jobs, and when Kueue has admitted a job",
    "localqueues": "teams",
}
"""Plural of a kind -> what is missing without it."""


def read_window(month: str, since: float) -> tuple[float, float]:
    """Return a calendar month, as far as it is over, or if there is none, the time of that many seconds before now."""
    now = time.time()
    if not month:
        return now - since, now
    if not is_month(month) or month > month_of(now):
        raise Invalid(
            Problem("--month", f"{month!r} is not a month up to now (expected YYYY-MM)", f"for example {month_of(now)}")
        )
    begin, end = month_window(month)
    return begin, min(end, now)


def usage(places: Sequence[Where], *, window: tuple[float, float], by: By, output: str) -> None:
    """Print the usage of the jobs of a stack, a namespace, or one or more clusters."""
    found = _read(places)
    rows, total = summarize(found.runs, by, *window, found.teams, found.deleted)
    if output in ("json", "yaml"):
        print_data({**to_json(rows, total, by, *window), "unseen": list(found.unseen)}, output)
    elif output == "csv":
        _print_csv(rows, total, by)
    else:
        _print_table(rows, total, by, window)
    left_out = uncounted(found, window[0])
    if left_out:
        hours = sum(each.gpu_seconds for each in left_out) / 3600
        month = left_out[0].month
        why = f"{_hours(hours)} GPU-hours of deleted jobs, of which only the month is known: --month {month}"
        print_line(f"not counted: {why}", error=True)
    _report_unseen(found.unseen)


def budgets(where: Where, *, output: str) -> None:
    """Print what each team with a budget has used of it in this calendar month. output: table, csv, json or yaml."""
    now = time.time()
    begin, _ = month_window(month_of(now))
    found = _read([where], whole=True)
    rows, _ = summarize(found.runs, "team", begin, now, found.teams, found.deleted)
    by_team = {row.key: row for row in rows}
    entries = list[dict[str, Any]]()
    for team, budget in sorted(found.budgets.items()):
        used, unknown = by_team.get(team, Row(team)).amount(budget.unit)
        shown = {"team": team, "unit": budget.unit, "used": round(used, 2), "budget": float(budget.number)}
        entries.append({**shown, "unknown": [*unknown, *found.unseen]})
    if output in ("json", "yaml"):
        print_data({"since": begin, "until": now, "budgets": entries}, output)
    elif output == "csv":
        _write_csv([list(each.values())[:4] for each in entries], ["team", "unit", "used", "budget"])
    elif not entries:
        print_line("no team has a budget")
    else:
        month = time.strftime("%Y-%m", time.gmtime(now))
        _print_aligned([("team", f"used in {month}", "budget", ""), *map(_budget_cells, entries)])
        notes = [
            f"not known of {plain(each['team'])}: {', '.join(each['unknown'])}" for each in entries if each["unknown"]
        ]
        print_lines(["", *notes] if notes else [])
    _report_unseen(found.unseen)


def _budget_cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    used, budget, unit = entry["used"], entry["budget"], entry["unit"]
    share = f"{100 * used / budget:.0f} %" if budget else ""
    least = "at least " if entry["unknown"] else ""
    return plain(entry["team"]), f"{least}{rounded(used, unit)}", rounded(budget, unit), share


def _report_unseen(unseen: Collection[str]) -> None:
    if unseen:
        missing = ", ".join(f"{each} ({_MISSED[each]})" for each in unseen)
        why = "no permission to list them, or no such kind; `pulumi-trainer rbac --usage` prints what is needed"
        print_line(f"not seen: {missing}: {why}", error=True)


def _read(places: Sequence[Where], *, whole: bool = False) -> ClusterUsage:
    """Return the usage of the jobs of a stack, a namespace, or one or more clusters. whole: Of a stack read all jobs of its
    namespaces.
    """
    if of_stack(None, places[0]):
        return _of_stack(places[0], whole=whole)
    found = list[tuple[str, ClusterUsage]]()
    for where in places:
        client, namespace = open_cluster(where)
        found.append((where.context if places[1:] else "", _of_cluster(client, "" if where.everywhere else namespace)))
    return join_usage(found)


def _of_cluster(client: Client, namespace: str, only_jobs: Collection[tuple[str, str]] | None = None) -> ClusterUsage:
    from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import read_usage

    gc.disable()  # nothing that is read becomes garbage before the end; searching for it takes a fifth of the time
    try:
        return read_usage(client, namespace, only_jobs)
    finally:
        gc.enable()


def _of_stack(where: Where, *, whole: bool) -> ClusterUsage:
    """Return the usage of the jobs of a stack, on this machine and in clusters."""
    from pulumi_trainer.provider.service import stack

    runs: list[Ran] = []
    clusters: dict[tuple[int, str], list[ReachedJob]] = {}
    hosts = dict[int, str]()
    for job in stack.jobs(where.stack or None, None, where.project):
        if job.local is not None:
            runs += job.local.jobs.usage(job.namespace, job.name)
        elif job.client is not None:
            clusters.setdefault((id(job.client), job.namespace), []).append(job)
            hosts[id(job.client)] = job.client.host
    several = len({*hosts.values()}) > 1
    found = [("", ClusterUsage(runs, {}, {}, ()))]
    for (number, namespace), jobs in clusters.items():
        client, names = jobs[0].client, {(job.namespace, job.name) for job in jobs}
        assert client is not None
        found.append((hosts[number] if several else "", _of_cluster(client, namespace, None if whole else names)))
    return join_usage(found)


def _print_csv(rows: Sequence[Row], total: Row, by: str) -> None:
    head = [by, *without(Row("").numbers(), "cost"), *(f"cost {currency}" for currency in sorted(total.cost))]
    lines = []
    for row in rows:
        costs = (round(row.cost.get(currency, 0.0), 2) for currency in sorted(total.cost))
        lines.append([plain(row.key), *without(row.numbers(), "cost").values(), *costs])
    _write_csv(lines, head)


def _write_csv(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows([head, *rows])


def _print_table(rows: Sequence[Row], total: Row, by: str, window: tuple[float, float]) -> None:
    begin, end = (datetime.fromtimestamp(max(0.0, moment), timezone.utc) for moment in window)
    if not rows:
        until = "" if window[1] > time.time() - _NOW else f" until {end:%Y-%m-%d %H:%M} UTC"
        print_line(f"no job has run since {begin:%Y-%m-%d %H:%M} UTC{until}")
        return
    currencies = sorted(total.cost)
    costs = [f"cost in {currency}" for currency in currencies]
    head = (by, "jobs", "running", "GPUs now", "GPU-hours", "CPU-hours", *costs)
    lines = [*rows, total] if len(rows) > 1 else rows
    _print_aligned([head, *(_cells(row, currencies) for row in lines)])
    if total.incomplete:
        count, names = _named(total.incomplete)
        print_lines(["", f"GPUs or times of {count} are only partly known: {names}"])
    if total.unpriced and currencies:
        count, names = _named(total.unpriced)
        print_lines(["", f"the price of the GPUs of {count} is not known: {names}"])


def _print_aligned(rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose columns are numbers, apart from the first one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print_lines(["  ".join([row[0].ljust(widths[0]), *numbers]).rstrip()])


def _named(jobs: Collection[tuple[str, str]]) -> tuple[str, str]:
    names = sorted(f"{plain(namespace)}/{plain(name)}" for namespace, name in jobs)
    return plural(len(names), "job"), join_names(names)


def _cells(row: Row, currencies: Sequence[str]) -> tuple[str, ...]:
    return (
        plain(row.key), str(row.job_count), str(len(row.running)), f"{row.gpus:g}",
        _hours(row.gpu_hours), _hours(row.cpu_hours), *(f"{row.cost.get(each, 0.0):,.2f}" for each in currencies),
    )  # fmt: skip


def _hours(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.1" if 0 < value < 0.05 else f"{value:,.1f}"
