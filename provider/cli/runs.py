"""`runs`: lists the runs of a job, with the inputs of the first and what differed in each later one, and the metrics of runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.cli.formats import print_data, report_no_jobs, shortened
from pulumi_trainer.provider.jobs.lineage import find_run
from pulumi_trainer.provider.jobs.metrics import Metric, in_order, is_lower_better, number_of
from pulumi_trainer.provider.jobs.observed_inputs import DATA
from pulumi_trainer.provider.jobs.runs import NODES, Run
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.wording import aligned, did_you_mean, plural
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs
from pulumi_trainer.provider.lifecycle.source_changes import Changes, compare_archives
from pulumi_trainer.provider.service.jobs import check_single, chosen_jobs
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.runs import (
    check_recorded,
    distinct,
    read_runs_of,
    read_runs_of_all,
    times_of,
    went_on,
)
from pulumi_trainer.provider.source_archives import find_digest

_MOST_METRICS = 6
"""Metrics that a table shows."""
_MOST_OF_ARGUMENTS = 60
"""Characters of the arguments of a run in a table."""
_UNNAMED = ("", "1")
"""Keys of runs to which the program gives none: of an edited record, and the default."""
_DIGEST = re.compile(r"\b([0-9a-f]{16})[0-9a-f]{48}\b")
"""A sha256, and the characters of it that are shown."""
_FILES = re.compile(r"(?:^|, \w+ |\bproject )([0-9a-f]{12})\b")
"""The digests of a function, a script, functions that a tool calls, and a project in the code of a run."""


def runs(job: str | None, where: Where, *, output: str, metrics: bool = False, sort: str = "") -> None:
    """Print the runs of a job, the newest last, or the metrics of the runs of all jobs, as text or as JSON.

    Args:
        metrics: Whether the table has the metrics of each run; then it may have the runs of several jobs.
    """
    if sort and not metrics:
        raise Invalid(Problem("--sort", "has no effect without --metrics"))
    jobs = chosen_jobs(job, where)
    if not metrics:
        check_single(jobs, "runs")
    of_jobs = read_runs_of_all(jobs)
    if len(of_jobs) == 1:
        check_recorded(*of_jobs[0])
    found: list[tuple[ReachedJob, Run]] = []
    for each, of_job in of_jobs:
        if len(of_jobs) == 1 or not _fetches_data(of_job):
            found += [(each, run) for run in distinct(of_job)]
    if sort and jobs:
        found = _sorted(found, sort)
    if output != "table":
        # 1,000 runs with the history of their metrics are 69 MB
        print_data([entry(each, run, history=len(of_jobs) == 1) for each, run in found], output)
    elif not jobs:
        report_no_jobs(job, where)
    elif metrics:
        _print_metrics(found, sort)
    else:
        print_lines(_lines(jobs[0], [run for _, run in found], went_on(of_jobs[0][1])))


def _fetches_data(found: Sequence[Run]) -> bool:
    """Return whether the runs are those of a dataset or a model, which have no nodes."""
    known = [run.inputs for run in found if run.inputs]
    return bool(known) and not any(NODES in inputs for inputs in known)


def compare(job: str | None, where: Where, names: Sequence[str], *, output: str) -> None:
    """Print what differed in two runs of a job, as text or as JSON."""
    if len(names) != 2:
        hint = "name the job and two of the ids that `runs` shows: runs JOB RUN RUN"
        raise Invalid(Problem("runs", f"compares two runs, not {len(names)} ({', '.join(names)})", hint))
    jobs = chosen_jobs(job, where)
    check_single(jobs, "runs")
    (each,) = jobs
    known = distinct(read_runs_of(each))
    one, other = (find_run(known, name, "RUN") for name in names)
    for run in (one, other):
        if not run.inputs:
            why = f"the inputs of run {run.id} are not kept: it is older than the last runs"
            raise Invalid(Problem("RUN", why, "keep_runs= of the TrainJob keeps more of them"))
    changed = changed_inputs(one.inputs, other.inputs)
    files = _changed_files(one, other)
    if output != "table":
        listed = None if files is None else files.files
        print_data({"runs": [entry(each, one), entry(each, other)], "changed": changed, "files": listed}, output)
        return
    lines = [_head(each, one), _head(each, other), *_shown(changed)]
    if not changed:
        lines.append(f"  {_SAME}")
    if files is None:
        lines.append(
            "  the code of one of the runs is not in the cache of this machine, so its lines cannot be compared"
        )
    else:
        lines += files.lines
    print_lines(lines)


def _changed_files(one: Run, other: Run) -> Changes | None:
    """Return what differs in the functions, scripts and projects of two runs; None if these are not known."""
    was, now = (_FILES.findall(run.inputs.get("code", "")) for run in (one, other))
    if not was or not now:
        return Changes({}, [])
    common = {*was} & {*now}
    before, after = ([find_digest(each) for each in digests if each not in common] for digests in (was, now))
    return compare_archives(before, after)


def entry(job: ReachedJob, run: Run, *, history: bool = True) -> dict[str, Any]:
    """Return a run of a job as JSON, with all keys. history: Whether the history of its metrics is not left empty."""
    shown = {"metrics": {}, "fork": "", "origin": "", "removed": "", **run.to_dict(), "usage": run.usage.to_dict()}
    shown |= {"started": run.started, "note": run.note, "message": run.message}
    shown |= {"resumedFrom": run.resumed_from, "steps": run.steps}
    points = dict[str, list[Any]]()
    for name, each in run.history.items() if history else ():
        points[name] = [*map(vars, each)]
    return {"job": job.resource or job.name, "namespace": job.namespace, **shown, "history": points}


def _sorted(found: Sequence[tuple[ReachedJob, Run]], metric: str) -> list[tuple[ReachedJob, Run]]:
    """Return runs sorted by the last value of a metric, the best first; runs whose value is not a finite number come last."""
    names = _metric_names(found)
    if metric not in names:
        hint = "no run has reported metrics"
        if names:
            hint = f"{did_you_mean(metric, names)} available: {', '.join(names)}".strip()
        raise Invalid(Problem("--sort", f"unknown metric {metric!r}", hint))
    sign = -1 if is_lower_better(metric) is False else 1

    def place(each: tuple[ReachedJob, Run]) -> tuple[bool, float]:
        value = number_of(each[1].metrics.get(metric, Metric()).last)
        if value is None:
            return True, 0.0
        return False, sign * value

    return sorted(found, key=place)


def _metric_names(found: Sequence[tuple[ReachedJob, Run]]) -> list[str]:
    """Return the names of the metrics of runs."""
    names: dict[str, None] = {}
    for _, run in found:
        names |= dict.fromkeys(run.metrics)
    return [*in_order(names)]


def _print_metrics(found: Sequence[tuple[ReachedJob, Run]], first: str) -> None:
    """Print the metrics of runs as a table. first: Name of the metric in the first column; empty for the usual order."""
    names = _metric_names(found)
    names.sort(key=lambda name: name != first)
    shown, others = names[:_MOST_METRICS], names[_MOST_METRICS:]
    rows = [["job", "run", "phase", *map(plain, shown), "arguments"]]
    for job, run in found:
        values = [_value(run.metrics.get(name, Metric())) for name in shown]
        arguments = shortened(run.inputs.get("arguments", ""), _MOST_OF_ARGUMENTS)
        rows.append([job.label, run.id, plain(run.phase), *values, arguments])
    print_lines(aligned(rows))
    if others:
        print_line(f"{plural(len(others), 'more metric')}, with -o json: {', '.join(map(plain, others))}")


def _value(metric: Metric) -> str:
    """Return the last value of a metric, with the best one if that is another one."""
    if metric.best in ("", metric.last):
        return plain(metric.last)
    return plain(f"{metric.last} (best {metric.best})")


def _lines(job: ReachedJob, found: list[Run], resumed: Collection[str] = ()) -> list[str]:
    """Return the lines of the runs of a job. resumed: Ids of those that went on after an interruption."""
    lines = []
    before: Run | None = None
    for run in found:
        note = ", went on after it was interrupted" if run.id in resumed else ""
        note += f", {run.note}" if run.note else ""
        if run.removed:
            note += f"; it has removed output and checkpoints of {_members(run, found)}"
        lines.append(f"{_head(job, run)}{_origin(run, before)}{note}")
        shown = run.inputs
        if before is not None and before.inputs and run.inputs:
            shown = changed_inputs(before.inputs, run.inputs)
        if run.inputs and not shown:
            lines.append(f"  {_SAME}")
        if run.metrics:
            values = ", ".join(f"{plain(name)} {_value(metric)}" for name, metric in run.metrics.items())
            shown = {**shown, "metrics": values}
        lines += _shown(shown)
        before = run
    return lines


def _members(run: Run, found: Sequence[Run]) -> str:
    """Return the runs whose folders a run has removed."""
    lineages = run.removed_lineages
    return ", ".join(dict.fromkeys(each.id for each in found if each.lineage in lineages)) or plain(run.removed)


def _head(job: ReachedJob, run: Run) -> str:
    label = f"{job.label} {run.id}".rstrip()
    if run.run not in _UNNAMED:
        label += f' (run="{plain(run.run)}")'
    return f"{label}: {plain(run.phase)}, {times_of(run)}"


def _shown(inputs: Mapping[str, str]) -> list[str]:
    """Return the lines of inputs, or of changes of them."""
    lines = []
    width = max(map(len, inputs), default=0)
    for name, text in inputs.items():
        if name in DATA:
            text = _DIGEST.sub(r"\1", text)
        lines.append(f"  {name:<{width}}  {text}")
    return lines


def _origin(run: Run, before: Run | None) -> str:
    """Return which run a run continues; empty for the first one."""
    if before is None or not run.id:
        return ""
    if run.fork and run.id == run.lineage:
        return f", forked from {run.fork}"
    if run.parent:
        step = "" if run.resumed_from is None else f" from step {run.resumed_from:,}"
        return f", continues {run.parent}{step}"
    return ", started anew"


_SAME = "the same code, arguments, environment, packages, images, runtime, nodes, resources and data"
"""What two runs have in common whose inputs are the same."""
