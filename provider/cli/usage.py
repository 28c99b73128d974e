"""`usage`: prints which GPUs and CPUs jobs have used in a window of time, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import gc
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.wording import join_names, plural
from pulumi_trainer.provider.lifecycle.usage_report import By, Ran, Row, summarize, to_json
from pulumi_trainer.provider.service.jobs import of_stack, open_cluster
from pulumi_trainer.provider.service.reach import ReachedJob, Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.kubernetes.client.client import Client

_MISSED = {
    "configmaps": "records of jobs",
    "jobsets": "jobs that still exist",
    "workloads": "other kinds of jobs, and when Kueue has admitted a job",
    "localqueues": "teams",
}
"""Plural of a kind -> what is missing without it."""
Usage: TypeAlias = tuple[list[Ran], Mapping[tuple[str, str], str], Collection[str]]
"""Times, teams by namespace and name of a LocalQueue, and plurals of the kinds that could not be listed."""


def usage(where: Where, *, since: float, by: By, output: str) -> None:
    """Print the usage of the jobs of a stack, a namespace or a cluster.

    Args:
        since: Length of the window, in seconds before now.
        output: table, csv, json or yaml.
    """
    now = time.time()
    if of_stack(None, where):
        runs, teams, unseen = _of_stack(where)
    else:
        client, namespace = open_cluster(where)
        if where.everywhere:
            namespace = ""
        runs, teams, unseen = _of_cluster(client, namespace)
    rows, total = summarize(runs, by, now - since, now, teams)
    if output in ("json", "yaml"):
        print_data({**to_json(rows, total, by, now - since, now), "unseen": list(unseen)}, output)
    elif output == "csv":
        _print_csv(rows, by)
    else:
        _print_table(rows, total, by, now - since)
    if unseen:
        missing = ", ".join(f"{each} ({_MISSED[each]})" for each in unseen)
        why = "no permission to list them, or no such kind; `pulumi-trainer rbac --usage` prints what is needed"
        print_line(f"not seen: {missing}: {why}", error=True)


def _of_cluster(client: Client, namespace: str, only_jobs: Collection[tuple[str, str]] | None = None) -> Usage:
    from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import read_usage

    gc.disable()  # nothing that is read becomes garbage before the end; searching for it takes a fifth of the time
    try:
        found = read_usage(client, namespace, only_jobs)
    finally:
        gc.enable()
    return found.runs, found.teams, found.unseen


def _of_stack(where: Where) -> Usage:
    """Return the usage of the jobs of a stack, on this machine and in clusters."""
    from pulumi_trainer.provider.service import stack

    runs: list[Ran] = []
    teams: dict[tuple[str, str], str] = {}
    unseen: set[str] = set()
    clusters: dict[tuple[int, str], list[ReachedJob]] = {}
    for job in stack.jobs(where.stack or None, None, where.project):
        if job.local is not None:
            runs += job.local.jobs.usage(job.namespace, job.name)
        else:
            clusters.setdefault((id(job.client), job.namespace), []).append(job)
    for (_, namespace), jobs in clusters.items():
        client = jobs[0].client
        assert client is not None
        found, queues, missing = _of_cluster(client, namespace, {(job.namespace, job.name) for job in jobs})
        runs += found
        teams.update(queues)
        unseen.update(missing)
    return runs, teams, sorted(unseen)


def _print_csv(rows: Sequence[Row], by: str) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([by, *Row("").numbers()])
    for row in rows:
        out.writerow([plain(row.key), *row.numbers().values()])


def _print_table(rows: Sequence[Row], total: Row, by: str, since: float) -> None:
    begin = datetime.fromtimestamp(max(0.0, since), timezone.utc)
    if not rows:
        print_line(f"no job has run since {begin:%Y-%m-%d %H:%M} UTC")
        return
    head = (by, "jobs", "running", "GPUs now", "GPU-hours", "CPU-hours")
    cells = [head, *map(_cells, rows)]
    if len(rows) > 1:
        cells.append(_cells(total))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print_lines(["  ".join([row[0].ljust(widths[0]), *numbers]).rstrip()])
    if total.incomplete:
        names = join_names(sorted(f"{plain(namespace)}/{plain(name)}" for namespace, name in total.incomplete))
        print_lines(["", f"GPUs or times of {plural(len(total.incomplete), 'job')} are only partly known: {names}"])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        plain(row.key), str(len(row.jobs)), str(len(row.running)), f"{row.gpus:g}",
        _hours(row.gpu_hours), _hours(row.cpu_hours),
    )  # fmt: skip


def _hours(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.1" if 0 < value < 0.05 else f"{value:,.1f}"
