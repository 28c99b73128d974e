"""What is written down about a job when it is created: whose it is, where it runs, and its objects.

Written by `LocalTarget`, read by everybody. The values of Secrets are no part of it.
"""

from __future__ import annotations

import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.status import (
    JobStatus,
    Owner,
    Phase,
    Step,
)
from pulumi_trainer.provider.api.submission import Consumer, Submission
from pulumi_trainer.provider.kube.errors import Problem, Refused, TargetFault
from pulumi_trainer.provider.targets.local.jobset import JobSet
from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.plan import Site, output_folder
from pulumi_trainer.provider.targets.local.pods import Tuning
from pulumi_trainer.provider.targets.local.store import (
    JobFolder,
    read_json,
    unreadable,
    write_json,
)


@dataclass(frozen=True)
class Record:
    """root, python, environments: of the target that created the job. uid: of this run of it. owner, program: see `Owner`. sweep:
    label of its stack, empty where a sweep leaves it alone. temporary: the machine's folder for temporary files."""

    namespace: str
    name: str
    owner: str
    digest: str
    run: str
    sweep: str
    objects: dict[str, Any] = field(repr=False)
    root: str
    python: str
    environments: str
    tuning: Tuning
    host: str = field(default_factory=host_id)
    hostname: str = field(default_factory=socket.gethostname)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: float = field(default_factory=time.time)
    output: str = ""
    runtime: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    temporary: str = field(default_factory=tempfile.gettempdir)

    @classmethod
    def of(cls, submission: Submission, site: Site, tuning: Tuning) -> Record:
        jobset = submission.jobset
        return cls(
            namespace=submission.namespace,
            name=submission.name,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            sweep="" if submission.retain else submission.sweep,
            objects=submission.objects,
            root=str(site.root),
            python=site.python,
            environments=str(site.environments),
            tuning=tuning,
            uid=site.uid,
            output=output_folder(jobset, submission.objects, site),
            runtime=dict(submission.runtime),
            program=submission.program,
        )

    @classmethod
    def read(cls, folder: JobFolder) -> Record:
        record = cls.find(folder)
        if record is None:
            raise TargetFault(Problem(str(folder.record), "is gone"))
        return record

    @classmethod
    def find(cls, folder: JobFolder) -> Record | None:
        """None: there is no job. Raises Unreadable."""
        data = read_json(folder.record)
        if data is None:
            return None
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in needed if name not in known]:
            raise unreadable(folder.record, f"is not the record of a job: it has no {', '.join(missing)}")
        try:
            record = cls(**{**known, "tuning": Tuning(**known["tuning"])})
            record.jobset["spec"]["replicatedJobs"]
        except (KeyError, TypeError, AttributeError, StopIteration):
            why = "is not the record of a job: its tuning or its objects are not understood"
            raise unreadable(folder.record, why) from None
        return record

    def write(self, folder: JobFolder) -> None:
        write_json(folder.record, asdict(self))

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.sweep, self.program)

    @property
    def jobset(self) -> dict[str, Any]:
        return next(o for k, o in self.objects.items() if k.startswith("JobSet/"))

    @property
    def suspended(self) -> bool:
        return bool(self.jobset["spec"].get("suspend"))

    @property
    def ttl(self) -> float | None:
        """Seconds after the end until logs and scratch go; None: they stay."""
        given = self.jobset["spec"].get("ttlSecondsAfterFinished")
        return None if given is None else float(given)

    @property
    def grace(self) -> float:
        """The longest grace period of its pods."""
        steps = self.jobset["spec"]["replicatedJobs"]
        pods = [s["template"]["spec"]["template"]["spec"] for s in steps]
        return max(float(p.get("terminationGracePeriodSeconds", 30)) for p in pods)

    def check_host(self) -> None:
        """Refuses to act for a job of another host: its processes are not here."""
        if self.host != host_id():
            where = f"{self.namespace}/{self.name}"
            raise Refused(
                Problem(where, f"runs on another host, {self.hostname} (id {self.host})", "use it from there")
            )

    def site(
        self, folder: JobFolder, ours: Mapping[str, str], addresses: Mapping[str, str], ports: Mapping[int, int]
    ) -> Site:
        return Site(
            root=Path(self.root),
            folder=folder.path,
            uid=self.uid,
            python=self.python,
            environments=Path(self.environments),
            ours=ours,
            addresses=addresses,
            ports=ports,
        )

    def consumer(self, status: JobStatus | None) -> Consumer:
        """The job as a user of its runtime."""
        about = {part: str(self.runtime.get(part, "")) for part in ("release", "channel", "follow")}
        ended = status is not None and status.terminal
        name = str(self.runtime.get("name", ""))
        return Consumer(
            f"{self.namespace}/{self.name}",
            name,
            stack=self.sweep,
            ended=ended,
            channel_of=str(self.runtime.get("of", "")),
            **about,
        )

    def status(self, phase: Phase, reason: str = "", message: str = "") -> JobStatus:
        """A status before anything has run."""
        jobs = JobSet(self.jobset)
        counts: dict[str, int] = {}
        for job in jobs.jobs:
            counts[job.step] = counts.get(job.step, 0) + job.completions
        state = Phase.SUSPENDED if phase == Phase.SUSPENDED else Phase.PENDING
        folder = Path(self.root) / "jobs" / self.namespace / self.name
        return JobStatus(
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
            owner=self.owner,
            digest=self.digest,
            phase=phase.value,
            reason=reason,
            message=message,
            steps=[Step(name, phase=state.value, count=count) for name, count in counts.items()],
            created=self.created,
            output=self.output,
            logs=str(folder / "logs"),
            stack=self.sweep,
            program=self.program,
        )
