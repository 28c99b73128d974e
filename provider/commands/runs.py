"""`runs`: lists the runs of a job, with the inputs of the first and what differed in each later one."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.api.observed_inputs import DATA
from pulumi_trainer.provider.api.runs import NODES, Run
from pulumi_trainer.provider.commands.formats import print_data
from pulumi_trainer.provider.commands.jobs import check_single, chosen_jobs, read_states, report_no_jobs
from pulumi_trainer.provider.commands.reach import Job, Where
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.terminal import plain, print_lines
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs

_UNNAMED = ("", "1")
"""Keys of runs to which the program gives none: of an edited record, and the default."""
_DIGEST = re.compile(r"\b([0-9a-f]{16})[0-9a-f]{48}\b")
"""A sha256, and the characters of it that are shown."""


def runs(job: str | None, where: Where, *, output: str) -> None:
    """Print the runs of a job, the newest last, as text or as JSON.

    Raises:
        TargetFault: Nothing is known of the job's runs.
    """
    jobs = chosen_jobs(job, where)
    check_single(jobs, "runs")
    if not jobs and output != "table":
        print_data([], output)
    elif not jobs:
        report_no_jobs(job, where)
    for each in jobs:
        found = read_runs_of(each)
        if output != "table":
            print_data([entry(run) for run in found], output)
        else:
            print_lines(_lines(each, found))


def read_runs_of(job: Job) -> list[Run]:
    """Return the runs of a job, the newest last.

    Raises:
        TargetFault: The job has no record.
    """
    found: list[Run] = []
    if job.local is not None:
        found = job.local.runs(job.namespace, job.name)
    elif job.client is not None:
        from pulumi_trainer.provider.targets.kubernetes.jobs import record

        kept = record.find(job.client, job.namespace, job.name)
        if kept is not None and kept.is_record:
            (state,) = read_states([job])
            found = kept.runs(state.status or kept.last_status())
    if not found:
        why = "no record of its runs was found"
        raise TargetFault(Problem(f"{job.namespace}/{job.name}", why, "only jobs that `pulumi up` creates have one"))
    return found


def entry(run: Run) -> dict[str, Any]:
    """Return a run as JSON, with all keys."""
    return {**run.to_dict(), "started": run.started, "usage": run.demand.to_dict()}


def _lines(job: Job, found: list[Run]) -> list[str]:
    lines = []
    before: Run | None = None
    for run in found:
        label = f"{job.label} {run.id}".rstrip()
        if run.run not in _UNNAMED:
            label += f' (run="{plain(run.run)}")'
        lines.append(f"{label}: {plain(run.phase)}, {_times(run)}{_origin(run, before)}")
        shown = run.inputs
        if before is not None:
            shown = changed_inputs(before.inputs, run.inputs)
        width = max(map(len, shown), default=0)
        for name, text in shown.items():
            if name in DATA:
                text = _DIGEST.sub(r"\1", text)
            lines.append(f"  {name:<{width}}  {text}")
        if before is not None and not shown:
            lines.append(f"  {_same(run)}")
        before = run
    return lines


def _origin(run: Run, before: Run | None) -> str:
    """Return which run a run continues; empty for the first one."""
    if before is None or not run.id:
        return ""
    if before.id == run.id:
        return ", went on after it was interrupted"
    if run.parent:
        return f", continues {run.parent}"
    return ", started anew"


def _same(run: Run) -> str:
    """Return what a run has in common with another one that has the same inputs."""
    if NODES not in run.inputs:  # both are of an earlier version
        return "the same code, arguments, packages, images, runtime and data"
    return "the same code, arguments, environment, packages, images, runtime, nodes, resources and data"


def _times(run: Run) -> str:
    if not run.created:
        return "created at an unknown time"
    created = datetime.fromtimestamp(run.created, timezone.utc)
    times = f"created {created:%Y-%m-%d %H:%M:%S} UTC"
    if run.finished:
        times += f", ended after {duration(run.finished - run.created)}"
    return times
