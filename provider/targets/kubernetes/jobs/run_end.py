"""Reads and writes how a run has ended, in the record of its job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.usage import demand_of, flavor_of
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kueue.workload_reasons import preemptor
from pulumi_trainer.provider.lifecycle.usage_report import began_at
from pulumi_trainer.provider.trainer.kinds import JOBSET

if TYPE_CHECKING:
    from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.targets.kubernetes.jobs.record import (
    ATTEMPTS,
    ENDED,
    ENDS,
    LONGEST_MESSAGE,
    METRICS,
    OBSERVED,
    PREEMPTOR,
    USAGE,
    Record,
    find,
    histories_as_data,
)

_TRIES = 5
"""How often the end of a job is written while its record keeps changing."""


def end_of(record: Record, status: JobStatus, view: JobView) -> dict[str, str | None]:
    """Return the end of a job as its record has it: the merge patch of its data."""
    end: dict[str, str | None] = {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message[:LONGEST_MESSAGE],
        "started": str(status.started),
        "finished": str(status.finished),
    }
    if status.progress:
        end["progress"] = json.dumps(status.progress)
    observed = {name: value for name, value in status.inputs.items() if record.inputs.get(name) != value}
    if observed:
        end[OBSERVED] = json.dumps(observed)
    metrics = _metrics_at_end(record, status, view)
    return {**end, **attempts_as_data(status.attempts), **_usage_at_end(record, view), **metrics}


def _metrics_at_end(record: Record, status: JobStatus, view: JobView) -> dict[str, str | None]:
    """Return the metrics of a run that has ended, and which ones of earlier runs are removed for them."""
    reported = view.metrics or Metrics.of([status.progress or {}], whole=False)
    text = record.histories.get(record.identity.id, "")
    if text and reported:  # the run was interrupted, and went on
        whole = Metrics.from_text(text)
        whole.extend(reported)
        reported = whole
    text = reported.to_text() or text
    known = {run.id for run in record.earlier}
    earlier = {run: history for run, history in record.histories.items() if run in known}
    kept = histories_as_data({**earlier, record.identity.id: text})
    return {**dict.fromkeys(f"{METRICS}{run}" for run in record.histories), **kept}


def attempts_as_data(attempts: Sequence[Attempt]) -> dict[str, str]:
    """Return attempts as the data of a record; empty if there are none."""
    texts = [*map(asdict, attempts)]
    if not texts:
        return {}
    return {ATTEMPTS: json.dumps(texts, separators=(",", ":"))}


def no_end() -> dict[str, None]:
    """Return the merge patch that removes the end of a job from its record's data."""
    return dict.fromkeys((*ENDED, ATTEMPTS, OBSERVED))


def _usage_at_end(record: Record, view: JobView) -> dict[str, str]:
    """Return what a run has requested and when it began, as far as its JobSet and Workload show that before they are deleted."""
    jobset = view.jobset
    if jobset is None:
        return {}
    seen = demand_of({**jobset, "kind": JOBSET.kind}, record.demand.user)
    found = replace(record.demand, since=began_at(jobset), flavor=flavor_of(view.workload))
    found = found.with_user_of(view.train_job or jobset)
    if found.queue is None:
        found = replace(found, queue=seen.queue)
    if found.gpus is None:
        found = replace(found, gpus=seen.gpus)
    if found.cpus is None:
        found = replace(found, cpus=seen.cpus)
    return {USAGE: found.to_text()}


def write_end(client: Client, record: Record, status: JobStatus, view: JobView) -> None:
    """Write how a job has ended into its record, unless the record has it as detailed or cannot be written."""
    if status.phase not in ENDS:
        return
    with suppress(TrainerError):
        _patch_end(client.within(5.0), record, end_of(record, status, view))


def write_preemptor(client: Client, record: Record, view: JobView) -> None:
    """Write who has preempted a job into its record, whose Workload has only an UID; nothing if the record has it or cannot be
    written."""
    uids = preemptor(view.workload)
    if uids is None or not view.preemptor or record.deleting or record.preemptor.get(uids[0]) == view.preemptor:
        return
    as_read = {"uid": record.uid, "resourceVersion": record.version}
    data = {PREEMPTOR: json.dumps({uids[0]: view.preemptor})}
    with suppress(TrainerError):
        client.within(5.0).patch(CONFIG_MAP, record.namespace, record.name, {"metadata": as_read, "data": data})


def _patch_end(client: Client, record: Record, data: Mapping[str, str | None]) -> None:
    """Write the end of a run into its record, unless the record has one that explains as much, or is that of another run by now.

    `rerun` keeps the record, and adds the run that has ended to the earlier ones.
    """
    current: Record | None = record
    for _ in range(_TRIES):
        if current is None or (current.uid, current.earlier) != (record.uid, record.earlier):
            return
        if current.deleting or (current.terminal and not _explains_more(data, current)):
            return
        as_read = {"uid": current.uid, "resourceVersion": current.version}
        try:
            client.patch(CONFIG_MAP, record.namespace, record.name, {"metadata": as_read, "data": dict(data)})
            return
        except ApiError as error:
            if error.code != 409:
                raise
        current = find(client, record.namespace, record.name)


def _explains_more(data: Mapping[str, str | None], recorded: Record) -> bool:
    """Return whether the end of a run has a longer message than its record: somebody else has not seen what its Pods printed."""
    ended = recorded.ended
    return data["phase"] == ended.get("phase") and len(data["message"] or "") > len(ended.get("message", ""))
