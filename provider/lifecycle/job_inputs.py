"""What the state of a stack has of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.jobs.lineage import UNFINISHED
from pulumi_trainer.provider.jobs.manual import SUSPENDED
from pulumi_trainer.provider.jobs.retention import KEEP_RUNS
from pulumi_trainer.provider.jobs.runs import Identity, read_runs
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.submission import Objects, Submission, from_state, secret_name
from pulumi_trainer.provider.kubernetes.values.accessors import number, section
from pulumi_trainer.provider.lifecycle.connection import Inputs, Located
from pulumi_trainer.provider.lifecycle.resource import Props


@dataclass(frozen=True, kw_only=True)
class _Job(Located):
    """What inputs and outputs of a job have in common.

    Attributes:
        digest: Of what the user wrote; an equal digest means that nothing changes.
        owner: Set by `check`: identity of the job in its target.
        generation: Set by `check`: counts the runs; a change that needs another run raises it.
        identity: Set by `check`: parent, lineage, cause and place of the run, as far as they are known before it is created.
        secret_revisions: Set by `check`: "Secret/key" -> how often that value has changed in place, which a plan shows where it
            hides the value itself.
        again: Set by `check`: marks that the job was deleted externally and is to be created again, or that nothing has started
            it and `update` is to do that.
    """

    namespace: Any
    name: str
    digest: Any
    retain: bool = False
    owner: Any = ""
    generation: int = 0
    identity: Mapping[str, Any] = field(default_factory=dict)
    secret_revisions: Mapping[str, int] = field(default_factory=dict)
    again: str = ""

    @property
    def where(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.label)


@dataclass(frozen=True, kw_only=True)
class JobInputs(_Job, Inputs):
    """Inputs of a job, as its component writes them and `check` freezes them.

    Attributes:
        objects: Rendered objects, keyed "Kind/name", as `submission.to_state` has them.
        run: The user's `run` key.
        fork: {run, step} of the checkpoint that a new run starts from, and what it leaves out of it (reset).
        resume: Which run a new run continues: True, False or an id; default: the one before it, unless that has succeeded.
        place: Where the job keeps output and checkpoints, without the folder of a lineage; empty if nowhere.
        runtime: {name, digest} of the runtime that was rendered; release where it has one, channel and follow of a job that
            takes its releases from a channel: they decide whether it moves with it; of: "project/stack" of a channel of the
            same program.
        secrets: Secret name -> key -> value.
        interrupt: "allow": a change may replace unfinished work; "checkpoint": only that of a job with a checkpoint policy;
            "refuse": it may not.
        data: "dataset" or "model" -> {name, version} of the data that the job reads, if a version is known.
        arguments: JSON of the function's arguments without what is secret, where all of them travel in a Secret; else None.
        run_inputs: What identifies the inputs of the run: name -> short text.
        rerun_on: The user's rerun_on; None for the default.
        without_code: Digest of what the user wrote apart from the code; empty if a change of the code starts a new run.
        fills: Generation of the volume that a fetch fills: in a volume that was made anew it runs again; empty for another job.
        earlier_runs: Set by `check`: the runs before this one, from the record of the previous one.
    """

    objects: Any
    run: str
    fork: Mapping[str, Any] | None = None
    resume: bool | str = UNFINISHED
    keep_runs: int = KEEP_RUNS
    place: Any = ""
    runtime: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    interrupt: str = "refuse"
    adopt: bool | str = False
    data: Any = field(default_factory=dict)
    arguments: Any = None
    run_inputs: Mapping[str, str] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    rerun_on: Sequence[str] | None = None
    without_code: str = ""
    fills: Any = ""
    earlier_runs: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> JobInputs:
        if "owner" in state:
            state["generation"]
        return super().from_state(state)

    @cached_property
    def documents(self) -> Objects:
        return from_state(self.objects)

    @property
    def kept_runs(self) -> int:
        """Return how many runs are kept in full."""
        return max(1, number(self.keep_runs, KEEP_RUNS))

    @property
    def release(self) -> str:
        """Return the release of the runtime that the job was rendered from; empty if it has none."""
        return str(section(self.runtime).get("release", ""))

    def secrets_of(self, name: str) -> dict[str, Any]:
        """Return the values of the job's Secret by the name of the Secret in the target. A renamed job keeps its Secret, but the
        inputs name the Secret after the new name, because the engine encrypts inputs by the name that the program uses.

        Args:
            name: Name of the job in its target.
        """
        return {secret_name(name): values for values in self.secrets.values()}

    def submission(self) -> Submission:
        return Submission(
            namespace=self.namespace,
            name=self.name,
            owner=self.owner,
            digest=self.digest,
            objects=self.documents,
            run=self.run,
            sweep=self.target.get("sweep", ""),
            secrets=self.secrets_of(self.name),
            retain=self.retain,
            runtime={**self.runtime, "interrupt": self.interrupt} if "channel" in self.runtime else self.runtime,
            program=self.program,
            resource=self.resource,
            inputs=self.run_inputs,
            earlier=read_runs(self.earlier_runs),
            identity=Identity.from_dict(self.identity),
            keep_runs=self.kept_runs,
            removes_folders=not self.workers,
            gpus=self.summary.get("gpus"),
        )

    def outputs(self, status: JobStatus, identity: Props) -> JobOutputs:
        known = {"identity": status.identity.to_dict(), "uid": status.uid, "phase": stored_phase(status)}
        return JobOutputs.of(self, target={**self.location, **identity}, **known)


@dataclass(frozen=True, kw_only=True)
class JobOutputs(_Job):
    """Outputs of a job: what `diff`, `read` and `delete` need, because these only receive outputs.

    Attributes:
        uid: UID of the job.
        phase: Its phase when the stack has last written its state (`stored_phase`).
        drift: Path -> current value, if a refresh has found that the job was changed externally.
    """

    uid: str = ""
    phase: str = ""
    drift: Mapping[str, Any] = field(default_factory=dict)


def stored_phase(status: JobStatus) -> str:
    """Return the phase of a job as the state has it; the reason of one that a user has suspended and may resume, so that it ends
    before the stack looks again."""
    return SUSPENDED if status.reason == SUSPENDED else status.phase
