"""`status` and `why`: what jobs are doing, as a table, as JSON, or one of them in a paragraph."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from pulumi_trainer.provider.api.status import JobStatus, Phase, describe
from pulumi_trainer.provider.commands.jobs import State, chosen, everything, none, of_stack, states, with_progress
from pulumi_trainer.provider.commands.jobs import why as paragraph
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.terminal import message, plain
from pulumi_trainer.provider.kube.values.wording import duration
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_COLOURS = {Phase.SUCCEEDED: "green", Phase.FAILED: "red", Phase.DELETED: "red", Phase.RUNNING: "cyan"}


def status(job: str | None, where: Where, *, as_json: bool) -> None:
    """Prints what the jobs are doing: a table, or JSON."""
    found = _found(job, where)
    if as_json:
        print(json.dumps([each.to_dict() for each in found], indent=2))
        return
    if not found and not of_stack(job, where):
        raise none(where)
    out = Console(width=None if sys.stdout.isatty() else 2**12, markup=False, emoji=False)  # names are no markup
    with out.capture() as table:  # nothing is cut off where a program reads it, and no line ends in blanks
        out.print(_table(found, namespaces=where.everywhere))
    print("\n".join(line.rstrip() for line in table.get().splitlines()))
    for each in found:
        now = each.status
        lossy = each.seen is not None and each.seen.losses
        if now and now.message and (lossy or now.phase in (Phase.FAILED, Phase.DELETED)):
            out.print(Text(f"\n{each.job.label}: {plain(now.reason)}\n{message(now.message)}"), soft_wrap=True)


def why(job: str | None, where: Where) -> None:
    """Prints a paragraph for each job."""
    for i, each in enumerate(chosen(job, where)):
        if i:
            print()
        print(message(paragraph(each)))


def _found(job: str | None, where: Where) -> Sequence[State]:
    if job is None and not of_stack(job, where):
        found = everything(where)
    else:
        found = list(states(chosen(job, where)))
    return with_progress(found) if any(each.seen for each in found) else found


def _table(found: Sequence[State], *, namespaces: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    queues = any(each.queue for each in found)
    head = [
        *(["namespace"] if namespaces else []), "job", "phase", "progress", "", "steps", "restarts", "age", "ran",
        *(["queue"] if queues else []),
    ]  # fmt: skip
    for name in head:
        table.add_column(name, overflow="fold")
    for each in found:
        row = _row(each)
        table.add_row(*([each.job.namespace] if namespaces else []), *row, *([plain(each.queue)] if queues else []))
    return table


def _row(each: State) -> list[Any]:
    now = each.status
    if now is None:
        return [each.job.label, Text("Deleted", style="red"), "", "", "", "", "", ""]
    phase = Text(now.phase, style=_COLOURS.get(Phase(now.phase), "yellow"))
    if now.reason and not now.terminal:
        phase.append(f" {plain(now.reason)}", style="dim")
    percent = (now.progress or {}).get("progressPercentage")
    bar = ProgressBar(total=100, completed=percent, width=20) if isinstance(percent, (int, float)) else ""
    return [
        each.job.label,
        phase,
        bar,
        plain(describe(now, phase=False)),
        _steps(now),
        str(now.restarts or ""),
        duration(time.time() - now.created) if now.created else "",
        duration((now.finished or time.time()) - now.started) if now.started else "",
    ]


def _steps(now: JobStatus) -> str:
    """Pods that are ready or have succeeded, of all."""
    return ", ".join(f"{plain(s.name)} {s.succeeded or s.ready}/{s.count}" for s in now.steps)
