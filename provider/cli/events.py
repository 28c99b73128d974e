"""`events`: lists the events of a job and its objects in time order, as a table or as JSON."""

from __future__ import annotations

import sys
import time

from pulumi_trainer.provider.cli.formats import print_data, report_no_jobs
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.lifecycle.events import JobEvent
from pulumi_trainer.provider.service.jobs import check_own, check_single, chosen_jobs
from pulumi_trainer.provider.service.reach import Where

_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"


def events(job: str | None, where: Where, *, output: str) -> None:
    """Print the events of a job and its objects."""
    jobs = chosen_jobs(job, where)
    check_single(jobs, "events")
    if not jobs and output != "table":
        print_data([], output)
    elif not jobs:
        report_no_jobs(job, where)
    for each in jobs:
        if each.client is None:
            hint = f"`pulumi-trainer why {each.label}` and `pulumi-trainer logs {each.label}` show what it does"
            raise TargetFault(Problem(each.label, "runs on this machine, which has no events", hint))
        from pulumi_trainer.provider.targets.kubernetes.observe.listing import list_events

        check_own(each)
        found = list_events(each.client, each.namespace, each.name, each.kind)
        if output != "table":
            print_data([one.to_dict() for one in found], output)
        elif found:
            if found[0].run:
                print_line(f"run {found[0].run}")
            _print(found)
        else:
            why = "no events; a cluster forgets them, most after an hour"
            print_line(f"{each.namespace}/{each.name}: {why}", error=True)


def _print(found: list[JobEvent]) -> None:
    days = set()
    for one in found:
        days |= {_local_time(one.first, "%Y-%m-%d"), _local_time(one.last, "%Y-%m-%d")}
    form = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S"
    rows = [_row(one, form) for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    coloured = sys.stdout.isatty()
    for one, (*cells, message) in zip(found, rows, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths[:-1], strict=True)]
        line = "  ".join([*padded, message])
        if coloured and one.type == "Warning":
            line = f"{_YELLOW}{line}{_RESET}"
        print_lines([line])


def _local_time(seconds: float, form: str) -> str:
    return time.strftime(form, time.localtime(seconds))


def _row(one: JobEvent, form: str) -> tuple[str, str, str, str]:
    about = plain(f"{one.kind}/{one.objects[0]}")
    if len(one.objects) > 1:
        about += f" and {len(one.objects) - 1} more"
    return _local_time(one.first, form), about, plain(one.reason), plain(one.message) + _repeated(one)


def _repeated(one: JobEvent) -> str:
    """Return how often an event has occurred, and for how long."""
    if one.count <= len(one.objects):
        return ""
    seconds = one.last - one.first
    if seconds < 1:
        return f" (x{one.count})"
    return f" (x{one.count} in {duration(seconds)})"
