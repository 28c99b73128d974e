"""The logs of the jobs of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pulumi_trainer.provider.jobs.status import NOT_STARTED, Phase
from pulumi_trainer.provider.pod.code import with_user_paths
from pulumi_trainer.provider.targets.local import logs
from pulumi_trainer.provider.targets.local.local_jobs import LocalJobs
from pulumi_trainer.provider.targets.local.paths import inside
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder


class LocalLogs:
    """The logs of the jobs of one root folder."""

    def __init__(self, jobs: LocalJobs) -> None:
        self.jobs = jobs
        self.root = jobs.root

    def steps(self, namespace: str, name: str) -> list[str]:
        record = Record.find(JobFolder.of(self.root, namespace, name))
        if record is None:
            return []
        return [str(step["name"]) for step in record.jobset["spec"]["replicatedJobs"]]

    def files(
        self, namespace: str, name: str, step: str | None = None, earlier: str = ""
    ) -> list[tuple[str, str, Path]]:
        """Return (pod, container, file) of every container with output of a job."""
        folder = JobFolder.of(self.root, namespace, name)
        place = inside(folder.earlier_logs, earlier) if earlier else folder.logs
        return logs.files(place, name, step)

    def dropped(self, namespace: str, name: str, step: str | None = None, earlier: str = "") -> list[tuple[str, int]]:
        """Return pod and bytes of the logs whose beginning was replaced by newer lines."""
        sizes = [(pod, logs.dropped_bytes(path)) for pod, _, path in self.files(namespace, name, step, earlier)]
        return [(pod, size) for pod, size in sizes if size]

    def tail(
        self,
        namespace: str,
        name: str,
        step: str | None = None,
        *,
        earlier: str = "",
        lines: int = 100,
        follow: bool = False,
        filter_of: Callable[[str], logs.LineFilter | None] = lambda _: None,
    ) -> Iterator[tuple[str, str, str]]:
        """Yield (pod, container, line) of the last lines of each log, which name files of the user's code as the project does.

        Args:
            earlier: Id of an earlier run, which has ended; empty for the current one.
            filter_of: Returns the filter of the last lines of a pod; None for all lines.
        """

        def over() -> bool:
            status = self.jobs.status(namespace, name)
            if status is None or status.terminal:
                return True
            return status.phase == Phase.SUSPENDED or status.reason == NOT_STARTED

        until: Callable[[], bool] | None = None
        if follow and not earlier:
            until = over
        listing = partial(self.files, namespace, name, step, earlier)
        for pod, container, line in logs.show(listing, lines, until, filter_of):
            yield pod, container, with_user_paths(line)
