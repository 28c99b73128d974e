"""Implements the Local target: JobSets as processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.targets.local import places
from pulumi_trainer.provider.targets.local.job_logs import LocalLogs
from pulumi_trainer.provider.targets.local.local_jobs import LocalJobs
from pulumi_trainer.provider.targets.local.local_volumes import LocalVolumes
from pulumi_trainer.provider.targets.local.paths import EARLIER_LOGS
from pulumi_trainer.provider.targets.local.store import JobFolder


class LocalTarget:
    """Jobs and volumes below one folder, on one host.

    Args:
        python: Interpreter that replaces the images; its folder is the first in PATH. Default: the interpreter of this process.
        environments: Folder of the cached Python environments. Default: `~/.cache/pulumi-trainer/environments`.
    """

    def __init__(self, root: str | Path, *, python: str = sys.executable, environments: Path | None = None) -> None:
        self.root = Path(root).absolute()
        self.jobs = LocalJobs(self.root, python, environments or cache_folder() / "environments")
        self.volumes = LocalVolumes(self.root, self.jobs.users)
        self.logs = LocalLogs(self.jobs)

    def identity(self) -> dict[str, str]:
        """Return {}: `host` in the `target` input identifies this machine."""
        return {}

    def limit_jobs(self, limit: int | None) -> None:
        """Set how many jobs of the root run at once, also for those that wait already. None: the default."""
        places.set_limit(self.root, limit)

    def sweep(self, label: str, report: Callable[[str], None] = lambda _: None) -> list[str]:
        """Delete all jobs with a label, and the volumes with that label that are empty or were left to a job."""
        swept = []
        for record in self.jobs.records():
            if label and record.stack == label:
                left = self.jobs.delete(record.namespace, record.name, uid=record.resource_uid, owner=record.whose)
                swept.append(f"{record.namespace}/{record.name}")
                if isinstance(left, str):
                    report(left)
        for kept in (self.root / EARLIER_LOGS).glob("*/*"):  # of jobs that a failed replacement has deleted
            if label and not (self.root / "jobs" / kept.parent.name / kept.name).exists():
                JobFolder.of(self.root, kept.parent.name, kept.name).forget_logs()
        return swept + self.volumes.sweep(label, report)
