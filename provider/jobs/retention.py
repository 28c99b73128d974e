"""What a job keeps of its earlier runs: which of them in full, which as a row, and whose folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values.wording import plural

KEEP_RUNS = 20
"""Default of `keep_runs`."""
MOST_KEPT = 100
"""The greatest `keep_runs`."""
REMOVED = "its output and checkpoints were removed (keep_runs)"
"""Note of a run whose folder is gone."""
_MOST_REMOVED = 50
"""Folders that one new run removes; the next ones remove what is left."""
_MOST_METRICS = 20
"""Metrics of a run that is kept as a row."""


def outdated_lineages(earlier: Sequence[Run], identity: Identity, keep: int) -> list[str]:
    """Return the lineages whose folders a new run removes, the oldest first.

    Kept are those of the last lineages, of the newest run that has succeeded, and the one that the new run continues or forks.
    A folder in another place than that of the new run is left alone.
    """
    if not identity.place:
        return []
    newest = {run.lineage: run for run in earlier if run.lineage}
    succeeded = [run.lineage for run in earlier if run.phase == Phase.SUCCEEDED]
    kept = {identity.lineage, identity.origin, *succeeded[-1:]}
    others = sorted((name for name in newest if name != identity.lineage), key=lambda name: int(name, 36))
    outdated = others[: max(0, len(others) - keep + 1)]
    return [name for name in outdated if name not in kept and newest[name].place == identity.place][:_MOST_REMOVED]


def shorten_runs(earlier: Sequence[Run], identity: Identity, keep: int) -> list[Run]:
    """Return the earlier runs of a job as the record of a new run has them, the newest last."""
    ids = [*dict.fromkeys(run.id for run in earlier if run.id != identity.id)]
    full = {identity.id, *ids[max(0, len(ids) - keep + 1) :]}
    removed = identity.removed_lineages
    shortened = list[Run]()
    for run in earlier:
        if run.lineage in removed:
            run = replace(run, place="", note="; ".join(filter(None, (run.note, REMOVED))))
        shortened.append(run if run.id in full else as_row(run))
    return shortened


def removal(earlier: Sequence[Run], identity: Identity, keep: int, *, removes_folders: bool) -> str:
    """Return what a new run removes of which earlier runs, without a subject; empty for nothing. removes_folders: Whether the
    folders of outdated lineages go."""
    outdated = outdated_lineages(earlier, identity, keep) if removes_folders else []
    folders = dict.fromkeys(run.id for run in earlier if run.lineage in outdated)
    kept = {run.id for run in shorten_runs(earlier, identity, keep) if run.inputs}
    rows = dict.fromkeys(run.id for run in earlier if run.inputs and run.id not in kept)
    parts = [("output and checkpoints", [*folders]), ("logs and inputs", [*rows])]
    if parts[0][1] == parts[1][1]:
        parts = [("output, checkpoints, logs and inputs", [*folders])]
    # all of them are named, since what goes does not come back
    shown = [f"{what} of {plural(len(ids), 'run')}: {', '.join(ids)}" for what, ids in parts if ids]
    return f"removes {'; '.join(shown)} (keep_runs={keep})" if shown else ""


def as_row(run: Run) -> Run:
    """Return a run with its identity, phase, times, usage and last metrics alone."""
    metrics = {name: Metric(last=metric.last) for name, metric in [*run.metrics.items()][:_MOST_METRICS]}
    return replace(run, inputs={}, metrics=metrics, history_text="", message="")
