"""Yields the log lines of a job: the existing ones, then new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.targets.kubernetes.logs.log_follow import LogFollower
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import Line
from pulumi_trainer.provider.targets.kubernetes.logs.log_sources import steps, trim_pod
from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection, Positions, history
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import client_of, not_configured
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.pipeline.modes import MULTIKUEUE

_POLL = 1.0


def tail(
    client: Client,
    namespace: str,
    name: str,
    selection: LogSelection,
    *,
    follow: bool = False,
    note: Callable[[str], None] | None = None,
) -> Iterator[Line]:
    """Yield the existing lines, by time. client: Client of the cluster to which the job was submitted; logs of a job that
    MultiKueue has sent on are read in its worker cluster."""
    note = note or (lambda _: None)
    pods, _ = client.list(POD, namespace, labels=selection.labels(name), keep=trim_pod)
    if not pods:
        worker = _worker(client, namespace, name, note, wait=follow)
        if worker is not None:
            client = worker
            pods, _ = client.list(POD, namespace, labels=selection.labels(name), keep=trim_pod)
    if selection.step and not pods:
        _check_step(client, namespace, name, selection.step)
    positions: Positions = {}
    yield from history(client, namespace, pods, selection, positions, note)
    if follow:
        yield from LogFollower(client, namespace, name, selection, positions, note).lines(pods)


def _worker(client: Client, namespace: str, name: str, note: Callable[[str], None], *, wait: bool) -> Client | None:
    """Return the client of the worker cluster to which MultiKueue has sent a job; None if its Pods are in its own cluster."""
    while True:
        view = snapshot(client, namespace, name)
        if section(view.main, "spec").get("managedBy") != MULTIKUEUE:
            return None
        ended = derive_phase(view.jobset, view.train_job).phase.terminal
        if view.cluster and view.cluster not in client.workers:
            raise TargetFault(not_configured(view.cluster))
        if view.cluster:
            end = ", from which Kueue has deleted it at its end, with its logs" if ended else ""
            note(f"{namespace}/{name} is on the worker cluster {view.cluster}{end}")
            return client_of(client, view)
        if ended or not wait:
            return None
        time.sleep(_POLL)


def _check_step(client: Client, namespace: str, name: str, step: str) -> None:
    """Raise TargetFault if the job does not have the step; the step may not have started yet, and the steps of a job whose JobSet
    and Pods are gone are not known."""
    jobset = client.get(JOBSET, namespace, name)
    known = [str(job.name) for job in jobs_of(jobset)]
    if jobset is None and client.get(TRAIN_JOB, namespace, name) is not None:
        return
    if step in known:
        return
    known = known or steps(client.list(POD, namespace, labels=LogSelection().labels(name), keep=trim_pod)[0])
    if known:
        raise TargetFault(Problem(f"{namespace}/{name}", f"has no step {step}", f"available: {', '.join(known)}"))
