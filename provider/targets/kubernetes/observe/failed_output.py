"""Reads the logs of failed containers while their jobs go on.

Kubernetes deletes these logs with their Pods: at the backoff limit of a Job, or when JobSet restarts the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from pulumi_trainer.provider.kube.client.client import Client
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer, failed_container
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import with_lines

Report = Callable[[str, Mapping[str, Sequence[str]]], None]
"""Takes the name of a job, and what explains the failures of its Pods, by Pod."""


class FailedOutput:
    """Reads the logs of failed containers in one thread, each once after every failure.

    Args:
        client: Client of the cluster to which the jobs were submitted.
        report: Called when a log was read.
    """

    def __init__(self, client: Client, report: Report) -> None:
        self._client, self._report = client.within(5.0), report
        self._asked: dict[str, FailedContainer] = {}
        self._wanted: SimpleQueue[JobView | None] = SimpleQueue()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="failed-output", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread once it has read what was asked for."""
        self._wanted.put(None)

    def look(self, view: JobView) -> None:
        """Have the log of the job's failed container read, unless it was read since that failed."""
        failed = failed_container(view)
        if failed is None or self._asked.get(view.name) == failed:
            return
        self._asked[view.name] = failed
        self._wanted.put(view)

    def _run(self) -> None:
        for view in iter(self._wanted.get, None):
            found = with_lines(self._client, view)
            if found.lines != view.lines:
                self._report(view.name, found.lines)
