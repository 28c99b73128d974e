"""`status` and `why`: show what jobs are doing, as a table, as JSON, or as a paragraph for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.api.attempts import Attempt, goodput
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe
from pulumi_trainer.provider.commands.formats import add_row, print_data
from pulumi_trainer.provider.commands.jobs import State, check_single, chosen_jobs, find_states, report_no_jobs
from pulumi_trainer.provider.commands.jobs import why as explained
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.lifecycle.interruption_cost import interruption_cost
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_COLOURS = {Phase.SUCCEEDED: "green", Phase.FAILED: "red", Phase.DELETED: "red", Phase.RUNNING: "cyan"}


def status(job: str | None, where: Where, *, output: str) -> None:
    """Print the status of jobs. output: table, json or yaml."""
    found = find_states(job, where)
    if output != "table":
        print_data([each.to_dict() for each in found], output)
        return
    if not found:
        report_no_jobs(job, where)
        return
    print_table(*_table(found, namespaces=where.everywhere))
    for each in found:
        now = each.status
        lossy = each.view is not None and each.view.losses
        if now and now.message and (lossy or now.phase in (Phase.FAILED, Phase.DELETED)):
            print_line()
            print_line(f"{each.job.label}: {plain(now.reason)}\n{now.message}")
        if each.adopted:
            print_line()
            print_line(f"{each.job.label}: {each.adopted}")


def history(job: str | None, where: Where, *, output: str) -> None:
    """Print the attempts of one job and its goodput.

    Args:
        job: The job argument of the command.
        where: The options of the command.
        output: table, json or yaml; the last two are those of `status`.
    """
    found = find_states(job, where)
    check_single([each.job for each in found], "--history")
    if output != "table":
        print_data([each.to_dict() for each in found], output)
        return
    if not found:
        report_no_jobs(job, where)
    for each in found:
        now = time.time()
        known = each.status.attempts if each.status else []
        if not known:
            print_line(f"{each.job.label} has not started yet, or its attempts were not recorded.")
            continue
        ended = each.status.finished if each.status else 0.0
        print_table(["attempt", "start", "ran", "cause", "steps", "redone"], [_attempt_row(a, now) for a in known])
        used = goodput(known, ended or now)
        print_line(f"goodput {used if used else 'not known: nobody has observed when some attempts began and ended'}")


def _attempt_row(each: Attempt, now: float) -> list[str]:
    ran = each.seconds(now)
    first, last = ("" if step is None else f"{step:,}" for step in (each.first, each.last))
    cause = f"{each.cause}: {each.detail}" if each.detail else each.cause
    if each.count > 1 and each.ran:
        cause = f"{each.count} attempts"
    redone = "" if each.redone is None else f"{each.redone:,}"
    if each.redone:
        redone += f" ({duration(each.repeating)})"
    return [
        str(each.number) if each.count == 1 else f"{each.number - each.count + 1}-{each.number}",
        f"{datetime.fromtimestamp(each.started, timezone.utc):%Y-%m-%d %H:%M:%S}" if each.started else "not known",
        "not known" if ran is None else duration(ran),
        cause or ("runs" if not each.ended else ""),
        f"{first}-{last}" if first or last else "",
        redone,
    ]


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table."""
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        add_row(table, *row)
    out = Console(width=None if sys.stdout.isatty() else 2**12, markup=False, emoji=False)  # names are no markup
    with out.capture() as text:  # nothing is cut off where a program reads it, and no line ends in blanks
        out.print(table)
    print_lines(line.rstrip() for line in text.get().splitlines())


def why(job: str | None, where: Where, *, output: str = "table") -> None:
    """Print why jobs wait or have failed. output: table (a paragraph for each job), json or yaml."""
    jobs = chosen_jobs(job, where)
    if output != "table":
        print_data([explained(each).to_dict() for each in jobs], output)
        return
    if not jobs:
        report_no_jobs(job, where)
    for i, each in enumerate(jobs):
        if i:
            print_line()
        print_line(explained(each).text)


def _table(found: Sequence[State], *, namespaces: bool) -> tuple[list[str], list[list[Any]]]:
    """Return head and rows of the table."""
    queues = any(each.queue for each in found)
    head = ["job", "phase", "progress", "", "steps", "restarts", "age", "ran"]
    rows = [*map(_row, found)]
    losses = [interruption_cost(each.status, time.time()) for each in found]
    if any(losses):
        head.append("a stop loses")
        rows = [[*row, loss.short if loss else ""] for row, loss in zip(rows, losses, strict=True)]
    if namespaces:
        head.insert(0, "namespace")
        rows = [[each.job.namespace, *row] for each, row in zip(found, rows, strict=True)]
    if queues:
        head.append("queue")
        rows = [[*row, each.queue] for each, row in zip(found, rows, strict=True)]
    return head, rows


def _row(each: State) -> list[Any]:
    now = each.status
    if now is None:
        return [each.job.label, Text("Deleted", style="red"), "", "", "", "", "", ""]
    phase = Text(now.phase, style=_COLOURS.get(Phase(now.phase), "yellow"))
    if now.reason and not now.terminal:
        phase.append(f" {plain(now.reason)}", style="dim")
    if now.cluster:
        phase.append(f" on {plain(now.cluster)}", style="dim")
    percent = (now.progress or {}).get("progressPercentage")
    bar = ProgressBar(total=100, completed=percent, width=20) if isinstance(percent, (int, float)) else ""
    return [
        each.job.label,
        phase,
        bar,
        describe(now, phase=False),
        _steps(now),
        _restarts(now),
        duration(time.time() - now.created) if now.created else "",
        duration((now.finished or time.time()) - now.started) if now.started else "",
    ]


def _restarts(now: JobStatus) -> str:
    """Return the restarts of the JobSet, and of its containers, if there are any."""
    containers = sum(step.restarts for step in now.steps)
    of_containers = f"{containers} of containers" if containers else ""
    return ", ".join(filter(None, (str(now.restarts or ""), of_containers)))


def _steps(now: JobStatus) -> str:
    """Return for each step how many of its pods are ready or have succeeded."""
    return ", ".join(f"{plain(s.name)} {s.succeeded or s.ready}/{s.count}" for s in now.steps)
