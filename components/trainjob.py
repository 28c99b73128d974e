"""The TrainJob component: typed arguments in, one resource with the rendered JobSet out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import pulumi
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.patches import RuntimePatch
from pulumi_trainer.args.sources import Initializer, parts
from pulumi_trainer.args.topology import Topology
from pulumi_trainer.args.trainers import CustomTrainer, Trainer
from pulumi_trainer.channel import RuntimeChannel
from pulumi_trainer.datasets import Fetched
from pulumi_trainer.job_component import OUTPUTS, Job
from pulumi_trainer.plan import trainjob_plan
from pulumi_trainer.plan.trainjob_plan import TrainJobArgs
from pulumi_trainer.plan.volume_claims import OutputVolume
from pulumi_trainer.program import session
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.lifecycle.identity import job_name
from pulumi_trainer.runtime import ClusterTrainingRuntime
from typing_extensions import NotRequired


class Progress(TypedDict):
    """What rank 0 reported last (Trainer's `status.trainerStatus`), metrics by name. lastUpdatedTime: when, as
    2026-01-31T12:00:00Z."""

    progressPercentage: NotRequired[int]
    estimatedRemainingSeconds: NotRequired[int]
    metrics: dict[str, str]
    lastUpdatedTime: str


class Timeouts(TypedDict, total=False):
    """Seconds that `pulumi up` waits for a job to come so far, none by default. The first counts from when waiting begins,
    each further one from when the one before it was reached (again: a preempted job is queued anew)."""

    admitted: float
    running: float
    complete: float


class TrainJob(Job):
    """A training job (TrainJob of Kubeflow Trainer v1alpha1, pkg/apis/trainer/v1alpha1/trainjob_types.go, v2.3.0).

    runtime: a runtime of the program, one of the catalogue as "name" (its newest release) or "name@release", or a channel: a
    `RuntimeChannel`, or the `offer` of one of another stack. follow: how far the job goes with its channel: "pin" (default)
    keeps the release that it has, "patch" and "minor" take new ones as long as their number is no larger step, "any" all, older
    ones too. A release is taken on the next run, or at once where `interrupt="allow"` and the job has not ended. trainer:
    `CustomTrainer`, `BuiltinTrainer` or `Trainer`; default: what the runtime runs. initializer: dataset and model.
    runtime_patches: what managers change in the runtime, each a `RuntimePatch` or the API's mapping. labels, annotations:
    of the TrainJob; `kueue.x-k8s.io/*` labels reach the JobSet. queue: the LocalQueue of Kueue that admits the job, and then
    suspends and resumes it. priority: its WorkloadPriorityClass. Both by name, or as the resource that makes them. topology:
    where its nodes have to be (`Required`, `Preferred`, `Unconstrained`); initializers are not held. max_execution: seconds
    from its admission after which Kueue stops it and takes its quota back; default: none. active_deadline_seconds: of the
    training, with or without a queue. suspend: hold or stop a job without a queue. name: of the JobSet; default: the
    resource's name and a short digest of project and stack.
    output: a volume at /workspace/output in every node (True, or `OutputVolume`). resume: True: a run sees what earlier
    runs have left there; False: every run has an empty folder of its own. run: a change of it runs the job again. wait_for:
    how far `pulumi up` waits (created, admitted, running, complete), and what depends on the job with it (`depends_on`).
    timeouts: how long it does, in seconds for each of admitted, running and complete (`Timeouts`); default: as long as it
    takes; the job itself goes on. interrupt: whether a change may end an unfinished run. adopt: take over an equal live
    object of that name. target: `Local` or `Kubernetes`; default: `trainer:target` of the stack, else Local.

    Outputs: phase, reason, message, steps, progress, output_path and seconds (from start to finish), as far as `wait_for`
    goes; `completion` (a phase) always waits for the end. A job that fails while `up` waits for it fails the `up`.
    """

    elsewhere = {field: f"trainer=CustomTrainer({field}=...)" for field in CustomTrainer.fields}

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        runtime: ClusterTrainingRuntime | RuntimeChannel | str | pulumi.Output[Any],
        follow: Literal["pin", "patch", "minor", "any"] | None = None,
        trainer: Trainer | BuiltinTrainer | None = None,
        initializer: Initializer | None = None,
        runtime_patches: pulumi.Input[Sequence[RuntimePatch | Mapping[str, Any]]] | None = None,
        labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        annotations: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        queue: pulumi.Input[str] | pulumi.Resource | None = None,
        priority: pulumi.Input[str] | pulumi.Resource | None = None,
        topology: Topology | None = None,
        max_execution: pulumi.Input[int] | None = None,
        suspend: pulumi.Input[bool] | None = None,
        active_deadline_seconds: pulumi.Input[int] | None = None,
        managed_by: pulumi.Input[str] | None = None,
        name: str | None = None,
        output: bool | OutputVolume = False,
        resume: bool = True,
        run: str = "1",
        wait_for: Literal["created", "admitted", "running", "complete"] = "created",
        timeouts: Timeouts | None = None,
        interrupt: Literal["refuse", "allow"] = "refuse",
        adopt: bool = False,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        args = TrainJobArgs(**given)
        self.where = f'TrainJob("{resource_name}")'
        site = session.call_site()
        for source in parts(args.initializer).values():
            if isinstance(source, Fetched):
                source.consumers.append(args)
        trainjob_plan.note_queue(resource_name, args)
        with dynamic.few_frames(2):
            super().__init__("trainer:index:TrainJob", resource_name, None, opts)
        name = args.name or job_name(resource_name, pulumi.get_project(), pulumi.get_stack())
        self.start(
            str(name),
            args.target,
            lambda: trainjob_plan.plan(resource_name, args),
            args.wait_for,
            site,
            opts,
            args.timeouts,
        )

    @property
    def phase(self) -> pulumi.Output[str]:
        """What the job is doing: Pending, Queued, Running, Succeeded, Failed, ..."""
        return self.status.apply(OUTPUTS["phase"])

    @property
    def reason(self) -> pulumi.Output[str]:
        """Why it is in that phase, in one word."""
        return self.status.apply(OUTPUTS["reason"])

    @property
    def message(self) -> pulumi.Output[str]:
        """The same in words; of a failed job its step, rank, exit code, traceback, last lines and log."""
        return self.status.apply(OUTPUTS["message"])

    @property
    def steps(self) -> pulumi.Output[list[dict[str, Any]]]:
        """Replicated jobs with their counts of pods, restarts and times (Trainer's `status.jobsStatus`)."""
        return self.status.apply(OUTPUTS["steps"])

    @property
    def progress(self) -> pulumi.Output[Progress]:
        """What rank 0 reported last."""
        return self.status.apply(OUTPUTS["progress"])

    @property
    def output_path(self) -> pulumi.Output[str]:
        """Where the output volume is (Local: the folder)."""
        return self.status.apply(OUTPUTS["output_path"])

    @property
    def seconds(self) -> pulumi.Output[float]:
        """From start to finish."""
        return self.status.apply(OUTPUTS["seconds"])

    @property
    def completion(self) -> pulumi.Output[str]:
        """The phase at the end (Succeeded); whoever uses it makes `pulumi up` wait for it."""
        return self.until("complete").apply(OUTPUTS["phase"])
