"""Reads what is known of how long the jobs of a cluster run: the progress in TrainJobs, and the earlier runs in records."""

from __future__ import annotations

from pulumi_trainer.provider.jobs.progress import kept_progress
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, place_of, section, text
from pulumi_trainer.provider.kueue.scheduling.durations import Expectation, Expectations
from pulumi_trainer.provider.targets.kubernetes.jobs.record import EARLIER, seconds
from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import list_if_readable, read_earlier
from pulumi_trainer.provider.trainer.kinds import TRAIN_JOB

_NEWEST = 5
"""Earlier runs of a job that count."""


def read_expectations(client: Client) -> Expectations:
    """Return what is known of how long the jobs of all namespaces run, asked once per process; empty if nothing may be listed.

    Raises:
        TargetFault: The cluster cannot be read.
    """
    facts = Facts.of(client, PLAN_SECONDS)
    with facts.alone("durations", None):
        known: Expectations | None = facts.recall("durations", None)
        if known is None:
            known = _read(facts.client)
            facts.remember("durations", None, known)
    return known


def _read(client: Client) -> Expectations:
    unseen: set[str] = set()
    runs = {_job(record): _seconds_of_runs(record) for record in list_if_readable(client, CONFIG_MAP, "", unseen)}
    progress = {_job(job): _progress(job) for job in list_if_readable(client, TRAIN_JOB, "", unseen)}
    found = {}
    for job in runs.keys() | progress.keys():
        reported, remaining = progress.get(job, (0.0, 0.0))
        if reported or runs.get(job):
            found[job] = Expectation(reported, remaining, runs.get(job, ()))
    return found


def _job(document: Document) -> str:
    return "/".join(place_of(document))


def _progress(train_job: Document) -> tuple[float, float]:
    """Return when a job has reported how long it still runs, and how long; zeros if it has not."""
    given = kept_progress(section(train_job, "status").get("trainerStatus")) or {}
    remaining, updated = given.get("estimatedRemainingSeconds"), epoch_seconds(given.get("lastUpdatedTime"))
    return (updated, float(remaining)) if remaining is not None and updated else (0.0, 0.0)


def _seconds_of_runs(record: Document) -> tuple[float, ...]:
    """Return how long the newest runs of a job that have succeeded took."""
    data = section(record, "data")
    started, finished = seconds(data.get("started")), seconds(data.get("finished"))
    newest = Run(phase=text(data.get("phase")), started=started, finished=finished)
    runs = [*read_earlier(text(data.get(EARLIER))), newest]
    return tuple([run.seconds for run in runs if run.seconds][-_NEWEST:])
