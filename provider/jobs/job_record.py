"""What the record of a job says of its runs, on this machine as in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.lineage import result_of
from pulumi_trainer.provider.jobs.manual import Override
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.runs import LONGEST, MOST_RUNS, Identity, Run, resumed_step
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.usage import Demand
from pulumi_trainer.provider.kubernetes.terminal import message as harmless_message


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The record of a job.

    Args:
        stack: Label of the stack; empty if a sweep does not delete the job of this machine.
        created: When the run was created, in seconds since the epoch.
        output: Folder or URI of the output; empty if there is none.
        override: Who has suspended or resumed the job with `pulumi-trainer`; None if nobody has.
        attempts: Attempts of the run before the record was written last.
    """

    namespace: str
    name: str
    owner: str
    digest: str
    run: str
    stack: str
    uid: str
    created: float
    output: str = ""
    program: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)
    earlier: Sequence[Run] = ()
    override: Override | None = None
    attempts: Sequence[Attempt] = ()

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.stack, self.program)

    def result(self, phase: str) -> str:
        """Return the folder or URI of the result of the job. phase: Phase of its run."""
        return result_of(self.output, self.identity.lineage, phase, self.earlier)

    def recorded_status(self, phase: str, reason: str, message: str) -> JobStatus:
        """Return a status with the data of the record alone."""
        return JobStatus(
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
            owner=self.owner,
            digest=self.digest,
            phase=phase,
            reason=reason,
            message=message,
            created=self.created,
            output=self.result(phase),
            stack=self.stack,
            program=self.program,
            run=self.run,
            identity=self.identity,
            inputs=dict(self.inputs),
            attempts=[*self.attempts],
        )

    def all_runs(self, status: JobStatus, demand: Demand, earlier: Sequence[Run], history: str = "") -> list[Run]:
        """Return the runs of the job, the newest last. status, demand, history: Those of the current run."""
        current = Run(
            self.run, status.phase, created=self.created, finished=status.finished, inputs=status.inputs or self.inputs,
            started=status.started, note=status.recorded_note, usage=demand,
            metrics=Metrics.from_text(history).summary(), history_text=history,
            message=harmless_message(status.message[:LONGEST]), resumed_from=resumed_step(status.progress),
            steps=status.steps_done, **self.identity.to_dict(),
        )  # fmt: skip
        return [*earlier, current][-MOST_RUNS:]
