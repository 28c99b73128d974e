"""`status` and `why`: show what jobs are doing, as a table, as JSON, or as a paragraph for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.api.attempts import Attempt, goodput
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe
from pulumi_trainer.provider.commands.formats import add_row, print_data, table_console
from pulumi_trainer.provider.commands.jobs import State, check_single, chosen_jobs, find_states, report_no_jobs
from pulumi_trainer.provider.commands.jobs import why as explained
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.lifecycle.interruption_cost import interruption_cost
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
        if not each.status or not each.status.attempts:
            print_line(f"{each.job.label} has not started yet, or its attempts were not recorded.")
            continue
        attempts, ended = each.status.attempts, each.status.finished
        print_table(["attempt", "start", "ran", "cause", "steps", "redone"], [_attempt_row(a, now) for a in attempts])
        used = goodput(attempts, ended or now)
        if used:
            print_line(f"goodput {used}")
        else:
            print_line("goodput not known: nobody has observed when some attempts began and ended")


def _attempt_row(each: Attempt, now: float) -> list[str]:
    number = str(each.number)
    if each.count != 1:
        number = f"{each.number - each.count + 1}-{each.number}"
    started = ran = "not known"
    if each.started:
        started = f"{datetime.fromtimestamp(each.started, timezone.utc):%Y-%m-%d %H:%M:%S}"
    seconds = each.seconds(now)
    if seconds is not None:
        ran = duration(seconds)
    steps = ""
    if each.first is not None or each.last is not None:
        steps = f"{_step_number(each.first)}-{_step_number(each.last)}"
    redone = _step_number(each.redone)
    if each.redone:
        redone += f" ({duration(each.repeating)})"
    return [number, started, ran, _cause(each), steps, redone]


def _step_number(step: int | None) -> str:
    """Return a number of steps as text; empty if it is not known."""
    if step is None:
        return ""
    return f"{step:,}"


def _cause(each: Attempt) -> str:
    """Return why an attempt has ended, or that it runs."""
    if each.count > 1 and each.ran:
        return f"{each.count} attempts"
    if each.detail:
        return f"{each.cause}: {each.detail}"
    if each.cause or each.ended:
        return each.cause
    return "runs"


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table."""
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        add_row(table, *row)
    out = table_console(2**12)
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
    head = ["job", "phase", "progress", "", "steps", "restarts", "age", "ran"]
    rows = [*map(_row, found)]
    losses = [interruption_cost(each.status, time.time()) for each in found]
    if any(losses):
        head.append("a stop loses")
        for row, loss in zip(rows, losses, strict=True):
            short = loss.short if loss else ""
            row.append(short)
    if namespaces:
        head.insert(0, "namespace")
        for row, each in zip(rows, found, strict=True):
            row.insert(0, each.job.namespace)
    if any(each.queue for each in found):
        head.append("queue")
        for row, each in zip(rows, found, strict=True):
            row.append(each.queue)
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
    bar: ProgressBar | str = ""
    if isinstance(percent, (int, float)):
        bar = ProgressBar(total=100, completed=percent, width=20)
    age = ran = ""
    if now.created:
        age = duration(time.time() - now.created)
    if now.started:
        ran = duration((now.finished or time.time()) - now.started)
    return [each.job.label, phase, bar, describe(now, phase=False), _steps(now), _restarts(now), age, ran]


def _restarts(now: JobStatus) -> str:
    """Return the restarts of the JobSet, and of its containers, if there are any."""
    restarts = []
    if now.restarts:
        restarts.append(str(now.restarts))
    containers = sum(step.restarts for step in now.steps)
    if containers:
        restarts.append(f"{containers} of containers")
    return ", ".join(restarts)


def _steps(now: JobStatus) -> str:
    """Return for each step how many of its pods are ready or have succeeded."""
    return ", ".join(f"{plain(s.name)} {s.succeeded or s.ready}/{s.count}" for s in now.steps)
