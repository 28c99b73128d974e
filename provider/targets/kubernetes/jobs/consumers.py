"""Finds the jobs of a cluster that use a runtime, by the labels of their records, with their JobSets."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import place_of
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record, belongs
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import RUNTIME

_RUNS = (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)


def list_consumers(client: Client, runtime: str, namespace: str) -> tuple[list[Consumer], str]:
    """Return the jobs that use a runtime, and a note if only the jobs of `namespace` could be listed (empty: of all
    namespaces)."""
    try:
        return consumers_in(client, runtime, ""), ""
    except ApiError as error:
        if error.code != 403:
            raise
    note = f"only jobs of namespace {namespace} could be seen; listing ConfigMaps of all namespaces is not allowed"
    return consumers_in(client, runtime, namespace), note


def consumers_in(client: Client, runtime: str, namespace: str) -> list[Consumer]:
    """Return the jobs of a namespace that use a runtime. namespace: Empty for all namespaces."""

    def keep(document: dict[str, Any]) -> Any:
        record = Record.of(document)
        return None if record.deleting else record

    records: list[Any] = client.list(CONFIG_MAP, namespace, labels=f"{SELECTOR},{RUNTIME}={runtime}", keep=keep)[0]
    jobsets = _list_jobsets(client, runtime, namespace, records)
    return sorted((_consumer(record, jobsets) for record in records), key=lambda c: c.where)


def _list_jobsets(client: Client, runtime: str, namespace: str, records: list[Record]) -> dict[tuple[str, str], Any]:
    """Return the JobSets of jobs by namespace and name; none if they may not be listed."""
    made_by_trainer = any(record.kind is TRAIN_JOB for record in records)  # whose JobSets lack the label
    wanted = {(record.namespace, record.name) for record in records}
    labels = "" if made_by_trainer else f"{RUNTIME}={runtime}"
    try:
        found = client.list(
            JOBSET, namespace, labels=labels, keep=lambda each: each if place_of(each) in wanted else None
        )[0]
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return {}
    return {place_of(each): each for each in found}


def _consumer(record: Record, jobsets: dict[tuple[str, str], Any]) -> Consumer:
    jobset = jobsets.get((record.namespace, record.name))
    if jobset is not None and record.kind is JOBSET and not belongs(jobset, record.uid):
        jobset = None
    phase = None if jobset is None else derive_phase(jobset).phase
    if record.terminal:
        phase = Phase(record.ended["phase"])
    ended = phase is not None and phase.terminal  # the record may not have it yet
    return Consumer(
        f"{record.namespace}/{record.name}", record.runtime, record.release, record.channel, record.follow,
        record.stack, ended, record.channel_of, record.program, record.demand.queue, record.demand.gpus,
        None if phase is None else phase in _RUNS, record.interrupt, phase == Phase.FAILED, jobset,
    )  # fmt: skip
