"""`logs`: prints the logs of one or several jobs, each line with its pod."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence

from pulumi_trainer.provider.cli.formats import report_no_jobs
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import Prefixes, escaped, plain, safe_line
from pulumi_trainer.provider.service.jobs import check_single, chosen_jobs, read_states
from pulumi_trainer.provider.service.logs import MOST_FOLLOWED, LogLine, Selection, check_rank, log_lines, print_note
from pulumi_trainer.provider.service.reach import ReachedJob, Where


def logs(job: str | None, where: Where, selection: Selection, *, output: str = "text") -> None:
    """Print the selected lines of a job, or of all jobs. output: text or json (an object for each line)."""
    jobs = chosen_jobs(job, where)
    if not jobs:
        report_no_jobs(job, where, error=True)
        return
    if selection.run:
        check_single(jobs, "--run")
    in_cluster = sum(job.local is None for job in jobs)
    if selection.follow and in_cluster > MOST_FOLLOWED:
        why = f"there are {len(jobs)} jobs, but only {MOST_FOLLOWED} can be followed at the same time"
        raise Invalid(Problem("logs -f", why, "name one"))
    if selection.since is not None and in_cluster < len(jobs):
        raise Invalid(Problem("--since", "the logs of a job on this machine hold no times", "use --tail"))
    if selection.follow and in_cluster:
        _announce(jobs)
    try:
        printed = print_logs(jobs, selection, output=output)
        if not printed:
            check_rank(jobs, selection)
        if not printed and selection.lines != 0:
            why = "nothing was printed, or the pods that did are gone"
            names = ", ".join(each.label for each in jobs[:3])
            print_note(f"{names}: {why}; `pulumi-trainer why` explains it")
    except KeyboardInterrupt:
        sys.exit(130)


def print_logs(jobs: Sequence[ReachedJob], selection: Selection, *, output: str = "text") -> bool:
    """Print the selected lines of jobs, and return whether there were any."""
    show = _as_json if output == "json" else _as_text()
    printed = False
    for line in log_lines(jobs, selection):
        sys.stdout.write(f"{show(line)}\n")
        printed = True
        if selection.follow:
            sys.stdout.flush()
    return printed


def _as_json(line: LogLine) -> str:
    return escaped(json.dumps(line.to_dict()))


def _as_text() -> Callable[[LogLine], str]:
    """Return how lines are printed on this terminal or into a file."""
    terminal = sys.stdout.isatty()
    prefixes = Prefixes(coloured=terminal and "NO_COLOR" not in os.environ)

    def show(line: LogLine) -> str:
        text = line.text
        if terminal:
            text = safe_line(text)
        return f"{prefixes.of(line.pod, line.container)}{text}"

    return show


def _announce(jobs: Sequence[ReachedJob]) -> None:
    """Explain why some jobs print nothing yet."""
    for each in read_states(jobs):
        now = each.status
        if now is not None and not now.terminal and now.phase != Phase.RUNNING:
            reason = f" ({plain(now.reason)})" if now.reason else ""
            print_note(f"{each.job.label} is {now.phase}{reason}; `pulumi-trainer why` explains it")
