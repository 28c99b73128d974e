"""Reads what is known of how long the jobs of a cluster run: the progress in TrainJobs, and the earlier runs in records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.progress import kept_progress
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, place_of, section, text
from pulumi_trainer.provider.kueue.scheduling.durations import Expectation, Expectations
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.targets.kubernetes.jobs.record import EARLIER, seconds
from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import list_if_readable, read_earlier
from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import progress_of
from pulumi_trainer.provider.trainer.kinds import TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

_NEWEST = 5
"""Earlier runs of a job that count."""
_MOST_LOGS = 5
"""Jobs whose logs are read."""
_NOTHING = Expectation()


def read_expectations(client: Client, running: Sequence[str] = ()) -> Expectations:
    """Return what is known of how long the jobs of all namespaces run, asked once per process; empty if nothing may be listed.

    Args:
        running: Jobs that run and decide, as namespace/name, the most important first. The logs of the first ones that report no
            progress to Trainer are read, as far as they may be: they alone say when a checkpoint was saved.

    Raises:
        TargetFault: The cluster cannot be read.
    """
    facts = Facts.of(client, PLAN_SECONDS)
    known: Expectations = facts.ask_once(("durations",), lambda: _read(facts.client))
    silent = [job for job in running if not known.get(job, _NOTHING).reported][:_MOST_LOGS]
    if not silent:
        return known
    with ThreadPoolExecutor(len(silent)) as threads:
        printed = dict(zip(silent, threads.map(partial(_read_log, facts), silent), strict=True))
    return {**known, **{job: replace(each, runs=known.get(job, _NOTHING).runs) for job, each in printed.items()}}


def _read_log(facts: Facts, job: str) -> Expectation:
    """Return what a job has printed of its progress; nothing if it has not, or if its log may not be read."""
    namespace, _, name = job.partition("/")

    def ask() -> Expectation:
        with suppress(TrainerError):
            pods, _ = facts.client.list(POD, namespace, labels=f"{JOBSET_NAME}={name}")
            progress = progress_of(facts.client, JobView(namespace, name, pods=pods))
            saved = epoch_seconds(section(progress or {}, "checkpoint").get("time"))
            return Expectation(*_remaining(progress), saved=saved)
        return _NOTHING

    return facts.ask_once(("printed progress", job), ask)


def _read(client: Client) -> Expectations:
    unseen: set[str] = set()
    runs = {_job(record): _seconds_of_runs(record) for record in list_if_readable(client, CONFIG_MAP, "", unseen)}
    progress = {}
    for job in list_if_readable(client, TRAIN_JOB, "", unseen):
        progress[_job(job)] = _remaining(kept_progress(section(job, "status").get("trainerStatus")))
    found = {}
    for name in runs.keys() | progress.keys():
        reported, remaining = progress.get(name, (0.0, 0.0))
        if reported or runs.get(name):
            found[name] = Expectation(reported, remaining, runs.get(name, ()))
    return found


def _job(document: Document) -> str:
    return "/".join(place_of(document))


def _remaining(progress: Mapping[str, Any] | None) -> tuple[float, float]:
    """Return when progress was reported and how long the job still runs by it; zeros if it does not say."""
    given = progress or {}
    remaining, updated = given.get("estimatedRemainingSeconds"), epoch_seconds(given.get("lastUpdatedTime"))
    return (updated, float(remaining)) if remaining is not None and updated else (0.0, 0.0)


def _seconds_of_runs(record: Document) -> tuple[float, ...]:
    """Return how long the newest runs of a job that have succeeded took."""
    data = section(record, "data")
    started, finished = seconds(data.get("started")), seconds(data.get("finished"))
    newest = Run(phase=text(data.get("phase")), started=started, finished=finished)
    runs = [*read_earlier(text(data.get(EARLIER))), newest]
    return tuple([run.seconds for run in runs if run.seconds][-_NEWEST:])
