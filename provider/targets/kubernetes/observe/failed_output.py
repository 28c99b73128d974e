"""Reads the logs of failed containers while their jobs go on.

Kubernetes deletes these logs with their Pods: at the backoff limit of a Job, or when JobSet restarts the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer, failed_containers
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import with_lines

Report = Callable[[str, Mapping[str, Sequence[str]]], None]
"""Takes the name of a job, and what explains the failures of its Pods, by Pod."""


class FailedOutput:
    """Reads the logs of failed containers in one thread, each again after every failure."""

    def __init__(self, client: Client, report: Report) -> None:
        self._client, self._report = client.within(5.0), report
        self._asked: dict[str, set[FailedContainer]] = {}
        self._wanted: dict[str, JobView] = {}
        self._changed = threading.Condition()
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="failed-output", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread after the logs that it reads now."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def look(self, view: JobView) -> None:
        """Have the logs of the job's failed containers read, unless they were read since these failed."""
        failed = {*failed_containers(view)}
        if not failed or self._asked.get(view.name) == failed:
            return
        self._asked[view.name] = failed
        with self._changed:
            self._wanted[view.name] = view
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                view = self._wanted.pop(next(iter(self._wanted)))
            self._report(view.name, with_lines(self._client, view).lines)
