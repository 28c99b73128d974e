"""Reads the runs of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pulumi_trainer.provider.jobs.metrics import Metric, in_order
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, Unreadable
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.lifecycle.earlier_runs import stored_runs, with_outputs
from pulumi_trainer.provider.service.jobs import State, read_states, with_progress
from pulumi_trainer.provider.service.reach import ReachedJob

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record


def distinct(found: Sequence[Run]) -> list[Run]:
    """Return runs, the newest last: one that went on after an interruption once, as it is now."""
    entries: dict[str | int, Run] = {}
    for number, run in enumerate(found):
        first = entries.get(run.id or number, run)
        entries[run.id or number] = replace(run, created=first.created)
    return [*entries.values()]


def went_on(found: Sequence[Run]) -> set[str]:
    """Return the ids of the runs that went on after an interruption."""
    ids = [run.id for run in found if run.id]
    return {each for each in ids if ids.count(each) > 1}


def read_runs_of(job: ReachedJob) -> list[Run]:
    """Return the runs of a job, the newest last."""
    ((_, found),) = read_runs_of_all([job])
    check_recorded(job, found)
    return found


def check_recorded(job: ReachedJob, found: Sequence[Run]) -> None:
    if not found:
        why, hint = "no record of its runs was found", "`pulumi up` makes one, which somebody may have deleted"
        raise TargetFault(Problem(f"{job.namespace}/{job.name}", why, hint))


def read_runs_of_all(jobs: Sequence[ReachedJob]) -> list[tuple[ReachedJob, list[Run]]]:
    """Return jobs with their runs, the newest last; of a job without a record those in the state of its stack."""
    in_cluster = [job for job in jobs if job.client is not None]
    shown = with_progress([*read_states(in_cluster)]) if in_cluster else []
    states = {id(state.job): state for state in shown}
    records = _records(in_cluster)
    found: list[tuple[ReachedJob, list[Run]]] = []
    for job in jobs:
        try:
            if job.local is not None:
                of_job = job.local.jobs.runs(job.namespace, job.name)
            else:
                of_job = _runs_in_cluster(states[id(job)], records.get((id(job.client), job.namespace, job.name)))
            found.append((job, of_job or stored_runs_of(job)))
        except Unreadable as fault:
            if len(jobs) == 1:
                raise
            print_line(f"note: {job.label}: {fault}", error=True)  # it costs itself alone
    return found


def stored_runs_of(job: ReachedJob) -> list[Run]:
    """Return the runs of a job as the state of its stack has them, the newest last; none without a stack."""
    if job.stored is None:
        return []
    return with_outputs(stored_runs(job.stored), job.stored.identity, job.phase)


def _records(jobs: Sequence[ReachedJob]) -> dict[tuple[int, str, str], Record]:
    """Return the records of jobs in clusters. Those of several jobs of a namespace are listed together."""
    from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
    from pulumi_trainer.provider.targets.kubernetes.jobs import record

    found: dict[tuple[int, str, str], Record] = {}
    groups: dict[tuple[int, str], list[ReachedJob]] = {}
    for job in jobs:
        groups.setdefault((id(job.client), job.namespace), []).append(job)
    for (number, namespace), members in groups.items():
        client = members[0].client
        assert client is not None
        if len(members) == 1:
            one = record.find(client, namespace, members[0].name)
            kept = [one] if one is not None and one.is_record else []
        else:
            documents, _ = client.list(CONFIG_MAP, namespace, labels=record.SELECTOR)
            kept = [*map(record.Record.of, documents)]
        found |= {(number, namespace, each.name): each for each in kept}
    return found


def _runs_in_cluster(state: State, record: Record | None) -> list[Run]:
    """Return the runs of a job in a cluster; of one that has not ended, the newest metrics alone are known."""
    if record is None:
        return []
    record.check()
    found = record.runs(state.status or record.last_status())
    reported = section(state.status and state.status.progress, "metrics")
    if found and not found[-1].metrics and reported:
        metrics = {name: Metric(last=value) for name, value in reported.items()}
        found[-1] = replace(found[-1], metrics=in_order(metrics))
    return found


def times_of(run: Run) -> str:
    """Return when a run was created, and how long it has taken."""
    if not run.created:
        return "created at an unknown time"
    created = datetime.fromtimestamp(run.created, timezone.utc)
    times = f"created {created:%Y-%m-%d %H:%M:%S} UTC"
    if run.finished:
        times += f", ended after {duration(run.finished - run.created)}"
    return times
