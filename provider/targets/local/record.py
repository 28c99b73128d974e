"""Reads and writes the record of a job: owner, machine and objects, without the values of Secrets."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.attempts import read_attempts
from pulumi_trainer.provider.jobs.checkpoints import saves_checkpoints
from pulumi_trainer.provider.jobs.job_record import JobRecord
from pulumi_trainer.provider.jobs.manual import Override
from pulumi_trainer.provider.jobs.runs import Identity, Run, fault_of_runs, read_runs
from pulumi_trainer.provider.jobs.status import JobStatus, Phase, Step
from pulumi_trainer.provider.jobs.submission import Consumer, Submission
from pulumi_trainer.provider.jobs.usage import Demand, current_user, demand_of
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault, Unreadable
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.targets.local.isolation import find_isolation
from pulumi_trainer.provider.targets.local.jobset_controller import JobSet
from pulumi_trainer.provider.targets.local.machine import VISIBLE_GPUS, host_id
from pulumi_trainer.provider.targets.local.paths import make_folder, translate_os_errors
from pulumi_trainer.provider.targets.local.plan import Site, output_folder
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.store import JobFolder, read_json, unreadable, write_json


@dataclass(frozen=True, kw_only=True)
class Record(JobRecord):
    """The record of a job; `LocalTarget` writes it.

    Attributes:
        output: Folder that rank 0 mounts at the output path; empty if not found.
        temporary: The machine's folder for temporary files.
        first_uid: UID of the first run, by which the stack's state knows the job; empty if this run is the first one.
        stop: Message of a job that is to be stopped; empty if it is not.
        visible_gpus: CUDA_VISIBLE_DEVICES of the user that has created the job; None if it was not set.
    """

    objects: dict[str, Any] = field(repr=False)
    root: str
    python: str
    environments: str
    tuning: Tuning
    host: str = field(default_factory=host_id)
    hostname: str = field(default_factory=socket.gethostname)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: float = field(default_factory=time.time)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    resource: str = ""
    temporary: str = field(default_factory=tempfile.gettempdir)
    first_uid: str = ""
    stop: str = ""
    user: str = ""
    isolation: str = ""
    visible_gpus: str | None = None

    @classmethod
    def of(cls, submission: Submission, site: Site, tuning: Tuning, isolation: str = "") -> Record:
        """Return the record of a run. submission: The job with the identity of the run (`lineage.started`)."""
        return cls(
            namespace=submission.namespace,
            name=submission.name,
            owner=submission.owner,
            digest=submission.digest,
            run=submission.run,
            stack=sweep_label(submission),
            objects=submission.objects,
            root=str(site.root),
            python=site.python,
            environments=str(site.environments),
            tuning=tuning,
            uid=site.uid,
            output=output_folder(submission.jobset, submission.objects, site),
            runtime=dict(submission.runtime),
            program=submission.program,
            resource=submission.resource,
            inputs=dict(submission.inputs),
            earlier=submission.earlier,
            identity=submission.identity,
            user=current_user(),
            isolation=isolation,
            visible_gpus=os.environ.get(VISIBLE_GPUS),
        )

    @classmethod
    def read(cls, folder: JobFolder) -> Record:
        record = cls.find(folder)
        if record is None:
            raise TargetFault(Problem(str(folder.record), "is gone"))
        return record

    @classmethod
    def find(cls, folder: JobFolder) -> Record | None:
        """Return the record in a job's folder; None if not found.

        After the root folder was moved, root and output are those of the new place.
        """
        data = read_json(folder.record)
        if data is None:
            return None
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in known]
        if missing:
            raise unreadable(folder.record, f"is not a valid record of a job: it has no {', '.join(missing)}")
        if "uid" in known and not _is_uuid(known["uid"]):  # the job's processes are found and ended by it
            raise unreadable(folder.record, f"is not a valid record of a job: its uid is {known['uid']!r}, not a UUID")
        fault = next(_type_faults(known), "") or fault_of_runs(known.get("identity", {}), known.get("earlier", []))
        if fault:
            raise unreadable(folder.record, f"is not a valid record of a job: {fault}")
        known["identity"] = Identity.from_dict(known.get("identity"))
        known["earlier"], known["attempts"] = read_runs(known.get("earlier")), read_attempts(known.get("attempts"))
        known["override"] = Override.from_dict(known.get("override"))
        try:
            record = cls(**{**known, "tuning": Tuning(**known["tuning"])})
            record.jobset["spec"]["replicatedJobs"]
        except (KeyError, TypeError, AttributeError, StopIteration):
            why = "is not a valid record of a job: its tuning or its objects are not valid"
            raise unreadable(folder.record, why) from None
        was, output = Path(record.root), Path(record.output)
        if was == folder.root or (was / folder.record.relative_to(folder.root)).exists():
            return record
        if was in output.parents:
            record = replace(record, output=str(folder.root / output.relative_to(was)))
        return replace(record, root=str(folder.root))

    def write(self, folder: JobFolder) -> None:
        runs = {"identity": self.identity.to_dict(), "earlier": [run.to_dict() for run in self.earlier]}
        write_json(folder.record, {**asdict(self), **runs})

    @property
    def jobset(self) -> dict[str, Any]:
        return next(o for k, o in self.objects.items() if k.startswith("JobSet/"))

    @property
    def demand(self) -> Demand:
        return demand_of(self.jobset, self.user)

    @property
    def resource_uid(self) -> str:
        """Return the UID by which the stack's state knows the job."""
        return self.first_uid or self.uid

    @property
    def suspended(self) -> bool:
        """Return whether the job is suspended: by the program, or by a user instead."""
        if self.override is None:
            return bool(self.jobset["spec"].get("suspend"))
        return self.override.suspend

    @property
    def override_note(self) -> str:
        """Return who has suspended or resumed the job; empty if nobody has."""
        if self.override is None:
            return ""
        return self.override.note

    @property
    def suspended_by(self) -> str:
        """Return who has suspended the job."""
        if self.override is None:
            return "by its program"
        return f"by {self.override.by} with `pulumi-trainer suspend`"

    def with_override(self, override: Override | None) -> Record:
        """Return the record with an override, unless the program has the same value."""
        if override is None or not override.differs(self.jobset["spec"].get("suspend")):
            return replace(self, override=None)
        return replace(self, override=override)

    @property
    def ttl(self) -> float | None:
        """Return after how many seconds logs and scratch of a finished job are removed; None if never."""
        given = self.jobset["spec"].get("ttlSecondsAfterFinished")
        if given is None:
            return None
        return float(given)

    @property
    def grace(self) -> float:
        """Return the longest grace period of the pods, in seconds."""
        return max(float(job.pod.spec.get("terminationGracePeriodSeconds", 30)) for job in jobs_of(self.jobset))

    def check_host(self) -> None:
        if self.host != host_id():
            where = f"{self.namespace}/{self.name}"
            raise Refused(
                Problem(where, f"runs on another host, {self.hostname} (id {self.host})", "use it from there")
            )

    def site(
        self,
        folder: JobFolder,
        user_environment: Mapping[str, str],
        addresses: Mapping[str, str],
        ports: Mapping[int, int],
    ) -> Site:
        """Return the job's resources on this machine; the arguments are those of `Site`."""
        environments = Path(self.environments)
        isolation = None
        if self.isolation:
            environments = folder.path / "environments"
            isolation = find_isolation([self.python, sys.executable], user_environment, Path(self.root), environments)
        return Site(
            root=Path(self.root),
            folder=folder.path,
            uid=self.uid,
            python=self.python,
            environments=environments,
            user_environment=user_environment,
            addresses=addresses,
            ports=ports,
            isolation=isolation,
        )

    def write_run_manifest(self, inputs: Mapping[str, str], *, has_trained: bool = False) -> None:
        """Write what identifies the run beside its output folder, so that a copy of the output names the run that wrote it.

        Args:
            inputs: What identifies the inputs of the run, as far as it is known.
            has_trained: Whether the run has done a step, or has ended and not reported that it did none; until then, the folder
                has what an earlier run of its lineage wrote.
        """
        output = Path(self.output)
        if not inputs or Path(self.root, "volumes") not in output.parents:
            return
        known: dict[str, Any] | None = None
        with suppress(Unreadable):
            known = read_json(run_manifest(output))
        if known is not None and known.get("id") != self.identity.id and not has_trained:
            return
        about = {
            "job": f"{self.namespace}/{self.name}",
            "run": self.run,
            "created": self.created,
            **self.identity.to_dict(),
        }
        with translate_os_errors(output.parent):
            make_folder(output.parent, Path(self.root))  # of a claim that only a Pod mounts there is none yet
        write_json(run_manifest(output), {**about, "inputs": dict(inputs)})

    def consumer(self, status: JobStatus | None) -> Consumer:
        about: dict[str, Any] = {}
        for part in ("release", "channel", "follow", "interrupt"):
            about[part] = str(self.runtime.get(part, ""))
        ended = status is not None and status.terminal
        name = str(self.runtime.get("name", ""))
        return Consumer(
            f"{self.namespace}/{self.name}",
            name,
            stack=self.stack,
            ended=ended,
            runs=None if status is None else not ended,
            queue=self.demand.queue,
            gpus=self.demand.gpus,
            failed=status is not None and status.phase == Phase.FAILED,
            jobset=self.jobset,
            channel_of=str(self.runtime.get("of", "")),
            **about,
        )

    def status(self, phase: Phase, reason: str = "", message: str = "") -> JobStatus:
        """Return the status of a job that has not run yet."""
        jobs = JobSet(self.jobset)
        counts: dict[str, int] = {}
        for job in jobs.jobs:
            counts[job.step] = counts.get(job.step, 0) + job.parallelism
        state = Phase.PENDING
        if phase == Phase.SUSPENDED:
            state = Phase.SUSPENDED
        folder = Path(self.root) / "jobs" / self.namespace / self.name
        return replace(
            self.recorded_status(phase.value, reason, message),
            uid=self.resource_uid,
            steps=[Step(name, phase=state.value, count=count) for name, count in counts.items()],
            logs=str(folder / "logs"),
            checkpoints=saves_checkpoints(self.jobset),
        )

    def runs(self, status: JobStatus) -> list[Run]:
        """Return the runs of the job, the newest last. status: Status of the current one, or of the one before."""
        # `rerun` was interrupted, and the last of the earlier runs is that of the status.
        if status.created != self.created:
            return [*self.earlier]
        return self.all_runs(status, self.demand, self.earlier)


def run_manifest(output: Path) -> Path:
    """Return the file beside an output folder that names its run."""
    return output.with_name(f".{output.name}.run.json")


def is_run_manifest(name: str) -> bool:
    """Return whether a file in the folder of a volume names the run of an output."""
    return _RUN_MANIFEST.fullmatch(name) is not None


_RUN_MANIFEST = re.compile(r"\.[0-9a-z]{1,16}\.run\.json")


def _type_faults(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield which values of a record's JSON have another type than the field."""
    for each in fields(Record):
        kind = str(each.type).partition("[")[0]
        if each.name in known and kind in _TYPES:
            types, expected = _TYPES[kind]
            value = known[each.name]
            if not isinstance(value, types) or isinstance(value, bool):
                yield f"{each.name} is {value!r:.80}, not {expected}"


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "str | None": ((str, type(None)), "a text"),
    "float": ((int, float), "seconds since the epoch"),
    "Mapping": ((dict,), "an object"),
    "Sequence": ((list,), "a list"),
}
"""Type of a field, without its parameters -> types of its value in JSON, and what is expected."""


def _is_uuid(value: object) -> bool:
    try:
        return str(uuid.UUID(str(value))) == value
    except ValueError:
        return False


def sweep_label(submission: Submission) -> str:
    """Return the label by which a sweep deletes the job; empty for a job that is retained."""
    if submission.retain:
        return ""
    return submission.sweep
