"""`events`: what happened to a job in its cluster, in order, as a table or as JSON."""

from __future__ import annotations

import json
import sys
import time

from pulumi_trainer.provider.commands.jobs import check_own, chosen, only_one
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.terminal import plain
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.lifecycle.events import Happened

_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"


def events(job: str | None, where: Where, *, as_json: bool) -> None:
    """Prints the events about a job and its objects."""
    jobs = chosen(job, where)
    only_one(jobs, "events")
    for each in jobs:
        if each.client is None:
            mend = f"`pulumi-trainer why {each.label}` and `pulumi-trainer logs {each.label}` tell what it does"
            raise TargetFault(Problem(each.label, "runs on this machine, where nothing keeps events", mend))
        from pulumi_trainer.provider.targets.kubernetes.observe.listing import happened

        check_own(each)
        found = happened(each.client, each.namespace, each.name, each.kind)
        if as_json:
            print(json.dumps([one.to_dict() for one in found], indent=2))
        elif found:
            _print(found)
        else:
            print(
                f"{each.namespace}/{each.name}: no events; a cluster forgets them, most after an hour", file=sys.stderr
            )


def _print(found: list[Happened]) -> None:
    days = {time.strftime("%Y-%m-%d", time.localtime(one.last)) for one in found}
    form = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S"
    rows = [
        (
            time.strftime(form, time.localtime(one.first)),
            plain(f"{one.kind}/{one.objects[0]}")
            + (f" and {len(one.objects) - 1} more" if len(one.objects) > 1 else ""),
            plain(one.reason),
            plain(one.message) + _repeated(one),
        )
        for one in found
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    coloured = sys.stdout.isatty()
    for one, row in zip(found, rows, strict=True):
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        print(f"{_YELLOW}{line}{_RESET}" if coloured and one.type == "Warning" else line)


def _repeated(one: Happened) -> str:
    """How often, and for how long."""
    if one.count <= len(one.objects):
        return ""
    lasted = f" in {duration(one.last - one.first)}" if one.last - one.first >= 1 else ""
    return f" (x{one.count}{lasted})"
