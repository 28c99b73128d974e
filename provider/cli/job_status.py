"""`status` and `why`: show what jobs are doing, as a table, as JSON, or as a paragraph for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.cli.formats import add_row, print_data, report_no_jobs, shortened, table_console
from pulumi_trainer.provider.jobs.attempts import Attempt, goodput
from pulumi_trainer.provider.jobs.status import JobStatus, Phase, describe
from pulumi_trainer.provider.jobs.tracking import where_tracked
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.service.jobs import State, check_single, chosen_jobs, find_states
from pulumi_trainer.provider.service.jobs import why as explained
from pulumi_trainer.provider.service.reach import Where
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_COLOURS = {
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.DELETED: "red",
    Phase.UNKNOWN: "red",
    Phase.RUNNING: "cyan",
}
_WAITING = (Phase.PENDING, Phase.QUEUED, Phase.ADMITTED, Phase.STARTING)
_WIDE = 2**12
"""Width of a table that is not printed on a terminal."""
_MOST_OF_WHY = 160
"""Characters of what a job waits for; `why` prints all of it."""
_LEAST_OF_WHY = 40
"""Characters of it in the table of a narrow terminal; where they have no room, it is printed below the table."""


def status(job: str | None, where: Where, *, output: str) -> None:
    """Print the status of jobs. output: table, json or yaml."""
    found = find_states(job, where)
    if output != "table":
        print_data([each.to_dict() for each in found], output)
        return
    if not found:
        report_no_jobs(job, where)
        return
    head, rows = _table(found, namespaces=where.everywhere)
    awaited = [*map(_awaited, found)]
    if any(awaited) and _add_reasons(head, rows, awaited):
        awaited = []
    print_table(head, rows)
    if any(awaited):
        print_line()
    for each, reason in zip(found, awaited, strict=False):
        if reason:
            print_line(f"{each.job.label}: {shortened(reason, _MOST_OF_WHY)}")
    links = {each.job.label: where_tracked(each.status) for each in found if each.status}
    if any(links.values()):
        print_line()
    for label, link in links.items():
        if link:
            print_line(f"{label}: {link}")
    for each in found:
        now = each.status
        if now and _is_below(each):
            print_line()
            print_line(f"{each.job.label}: {plain(now.reason)}\n{now.message}")
        if each.adopted:
            print_line()
            print_line(f"{each.job.label}: {each.adopted}")


def _is_below(each: State) -> bool:
    """Return whether the message of a job is printed below the table: of one that has failed, or has lost something."""
    now = each.status
    if now is None or not now.message:
        return False
    lossy = each.view is not None and bool(each.view.remarks)
    return lossy or now.phase in (Phase.FAILED, Phase.DELETED, Phase.UNKNOWN)


def _awaited(each: State) -> str:
    """Return what a job waits for; empty if it does not wait, or if that is printed below the table."""
    now = each.status
    if now is None or now.phase not in _WAITING or _is_below(each):
        return ""
    return plain("; ".join(filter(None, (now.message, each.start))))


def _add_reasons(head: list[str], rows: list[list[Any]], reasons: Sequence[str]) -> bool:
    """Add a column with what jobs wait for to the table, and return whether the terminal has room for it."""
    out = table_console(_WIDE)
    gap, dots = 2, 3
    room = out.width - out.measure(_made_table(head, rows)).maximum - gap
    if room < min(_LEAST_OF_WHY, max(map(len, reasons))):
        return False
    head.append("why")
    for row, reason in zip(rows, reasons, strict=True):
        if len(reason) > room:
            reason = shortened(reason, room - dots)
        row.append(shortened(reason, _MOST_OF_WHY))
    return True


def history(job: str | None, where: Where, *, output: str) -> None:
    """Print the attempts of one job and its goodput."""
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
    out = table_console(_WIDE)
    with out.capture() as text:  # nothing is cut off where a program reads it, and no line ends in blanks
        out.print(_made_table(head, rows))
    print_lines(line.rstrip() for line in text.get().splitlines())


def _made_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        add_row(table, *row)
    return table


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
    ids = [each.status.identity.id if each.status else "" for each in found]
    if any(ids):
        head.insert(1, "run")
        for row, name in zip(rows, ids, strict=True):
            row.insert(1, name)
    losses = [each.loss for each in found]
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
        until = now.finished or time.time()
        seconds = until - now.started
        known = goodput(now.attempts, until)
        if known:  # without the time in which it was suspended or queued again
            seconds = known.training
        ran = duration(seconds)
    return [each.job.label, phase, bar, describe(now, phase=False), _steps(now), _restarts(now), age, ran]


def _restarts(now: JobStatus) -> str:
    """Return the restarts of the JobSet, and those in its pods, if there are any."""
    restarts = []
    if now.restarts:
        restarts.append(str(now.restarts))
    in_pods = sum(step.restarts for step in now.steps)
    if in_pods:
        restarts.append(f"{in_pods} in pods")
    return " + ".join(restarts)


def _steps(now: JobStatus) -> str:
    """Return for each step how many of its pods are ready or have succeeded."""
    return ", ".join(f"{plain(s.name)} {s.succeeded or s.ready}/{s.count}" for s in now.steps)
