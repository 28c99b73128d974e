"""The TrainJob component: from typed arguments to one resource with the rendered JobSet."""

from __future__ import annotations

from typing import Any, TypedDict

import pulumi
from pulumi_trainer.args.sources import parts
from pulumi_trainer.datasets import Fetched
from pulumi_trainer.job_component import OUTPUTS, JobComponent
from pulumi_trainer.plan import trainjob_plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs, note_queue
from pulumi_trainer.program import session
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.provider.engine.pulumi_compat import few_frames
from pulumi_trainer.provider.jobs.identity import job_name
from typing_extensions import NotRequired


class Progress(TypedDict):
    """The latest progress of rank 0 (Trainer's `status.trainerStatus`), with metrics by name.

    Attributes:
        progressPercentage: Percent of the training that is done, 0 to 100.
        estimatedRemainingSeconds: Seconds until the end, as the training estimates.
        metrics: Value of each metric by its name, as text.
        lastUpdatedTime: Time of the report, such as 2026-01-31T12:00:00Z.
    """

    progressPercentage: NotRequired[int]
    estimatedRemainingSeconds: NotRequired[int]
    metrics: dict[str, str]
    lastUpdatedTime: str


class TrainJob(JobComponent):
    """A training job (TrainJob of Kubeflow Trainer v1alpha1, pkg/apis/trainer/v1alpha1/trainjob_types.go, v2.3.0).

    Outputs: phase, reason, message, steps, progress, output_path, tracking_link, run_inputs and seconds (from start to
    finish), as far as `wait_for` goes; `completion` (a phase) always waits for the end. A job that fails while `up` waits
    for it fails the `up`, once it waits for no other job; the outputs of the failed job are unknown then.

    Args:
        resource_name: Name of the Pulumi resource.
        runtime: A runtime of the program, one of the catalogue as `name` (its newest release) or `name@release`, a
            `RuntimeChannel`, or the `offer` of a channel of another stack (`runtimeRef`).
        follow: How far the job follows its channel: `pin` (default) keeps its release, `patch` and `minor` take new
            releases up to that version step, `any` takes all, older ones too. A release is taken on the next run, or at
            once with `interrupt="allow"` or `"checkpoint"` if the job has not ended.
        trainer: What the nodes run: `CustomTrainer`, `BuiltinTrainer` or `Trainer`; default: what the runtime runs
            (`trainer`).
        initializer: Dataset and model (`initializer`); default: none.
        runtime_patches: What managers change in the runtime, each a `RuntimePatch` or the API's mapping
            (`runtimePatches`).
        labels: Labels of the TrainJob; `kueue.x-k8s.io/*` labels reach the JobSet.
        annotations: Annotations of the TrainJob.
        queue: LocalQueue of Kueue that admits, suspends and resumes the job: a `LocalQueue` or its name.
        priority: WorkloadPriorityClass of the job: a `WorkloadPriorityClass` or its name.
        topology: Where in the queue's topology the nodes must be: `Required`, `Preferred` or `Unconstrained`.
            Initializers are not constrained.
        flavors: Flavors of the queue that the nodes may get, such as `["h100"]`: the names in the queue, or the kinds of
            `GpuQueues`; default: all of the queue. Kueue tells flavors apart by node labels, so the job gets a required node
            affinity for theirs.
        max_execution: Seconds after admission until Kueue stops the job and takes its quota back; default: no limit.
        suspend: Whether a job without a queue is suspended (`suspend`).
        expected_hours: Hours that a run is expected to take, from which a plan computes its cost; changes nothing of the job.
            Default: the time of its last successful run, or else `max_execution`.
        active_deadline_seconds: Seconds that the training may run, with or without a queue (`activeDeadlineSeconds`).
        managed_by: Controller that manages the TrainJob (`managedBy`).
        hardening: `restricted`: Pods get what the profile of Pod Security of this name demands, and no service account token;
            `none`: they are left alone. Default: `trainer:hardening` of the stack, else what
            the TeamNamespace of its namespace wants, else `none`. Ignored on this machine.
        name: Name of the JobSet; default: the resource's name and a short digest of project and stack.
        output: Volume at /workspace/output in every node: True, or an `OutputVolume`; default: none.
        checkpoint: How the job saves checkpoints and goes on after an interruption, a `CheckpointPolicy`;
            default: as the program and the runtime do.
        tracking: Where the metrics of the job go: `MLflow(...)`, `WandB(...)`, `TensorBoard()` or `Trackio()`; default: nowhere.
        resume: Which run a new run continues, in its folder of the output volume or of S3: `unfinished` (default): the one before
            it, unless that has succeeded; True: the one before it; False: none, it gets an empty folder; or the id of a run.
        fork: Checkpoint of an earlier run that a new run starts from, in a folder of its own (`Fork`); default: none.
        keep_runs: How many runs are kept in full, from 1 to 100. Of older ones a row stays in `pulumi-trainer runs`, and a new
            run removes their folders from the output volume and S3, except for that of the newest run that has succeeded and the
            one that it goes on from. Default: 20.
        run: Key of the run: changing it runs the job again.
        rerun_on: Which changes run the job again: `code` (code, arguments and the other fields of this job), `data` (a dataset,
            a model or a package of this machine that has changed), `runtime` (its document or its release). Default:
            `["code"]`; other changes are noted in the plan, and are for the next run.
        wait_for: How far `pulumi up` and resources with `depends_on` wait: `created` (default), `admitted`, `running`
            or `complete`.
        may_fail: Whether a failed job is a warning of an `up` that waits for it, as a trial of a search may be: its outputs have
            their values then, and what depends on it goes on; default: False.
        timeouts: Longest waits in seconds for `admitted`, `running` and `complete` (`Timeouts`); default: none. The job
            itself continues.
        logs: True: `pulumi up` shows the log of rank 0 while it waits for the job; `keep`: all lines of each run are kept in the
            output volume, below `logs/RUN`. Default: False.
        interrupt: Whether a change may end an unfinished run: `refuse` (default), `allow`, or `checkpoint`, for jobs
            with a checkpoint policy: the run saves a checkpoint first, and the new run goes on from it.
        adopt: Whether to take over an equal live object of the same name, and a folder of checkpoints in S3 that belongs to
            another stack; `existing`: a job that is missing is refused, and does not train. Default: False.
        target: `Local(...)` or `Kubernetes(...)`; default: `trainer:target` of the stack, else Local.
        opts: Resource options.
    """

    @constructor(TrainJobArgs)
    def __init__(self) -> None: ...

    def construct(self, args: TrainJobArgs) -> None:
        """Start the job."""
        self.where = f'TrainJob("{args.resource_name}")'
        self.may_fail, self.expected_hours = args.may_fail, args.expected_hours
        site = session.call_site()
        for source in parts(args.initializer).values():
            if isinstance(source, Fetched):
                source.consumers.append(args)
        note_queue(args)
        with few_frames(2):
            super().__init__("trainer:index:TrainJob", args.resource_name, None, args.opts)
        name = args.name or job_name(args.resource_name, pulumi.get_project(), pulumi.get_stack())
        self.start(
            str(name), args.target, lambda: trainjob_plan.plan(args), args.wait_for, site, args.opts, args.timeouts
        )

    @property
    def phase(self) -> pulumi.Output[str]:
        """Return the phase of the job: Pending, Queued, Running, Succeeded, Failed, ..."""
        return self.status.apply(OUTPUTS["phase"])

    @property
    def reason(self) -> pulumi.Output[str]:
        """Return the reason of the phase, in one word."""
        return self.status.apply(OUTPUTS["reason"])

    @property
    def message(self) -> pulumi.Output[str]:
        """Return the reason as text; for a failed job with its step, rank, exit code, traceback, last lines and log."""
        return self.status.apply(OUTPUTS["message"])

    @property
    def steps(self) -> pulumi.Output[list[dict[str, Any]]]:
        """Return the replicated jobs with their counts of pods, restarts and times (Trainer's `status.jobsStatus`)."""
        return self.status.apply(OUTPUTS["steps"])

    @property
    def progress(self) -> pulumi.Output[Progress]:
        """Return the latest progress of rank 0."""
        return self.status.apply(OUTPUTS["progress"])

    @property
    def output_path(self) -> pulumi.Output[str]:
        """Return the location of the output volume (Local: the folder)."""
        return self.status.apply(OUTPUTS["output_path"])

    @property
    def tracking_link(self) -> pulumi.Output[str]:
        """Return the address of the run on its tracker, or the command that opens the tracker's files."""
        return self.status.apply(OUTPUTS["tracking_link"])

    @property
    def run_inputs(self) -> pulumi.Output[dict[str, str]]:
        """Return what identifies the inputs of the run, such as code, arguments, environment, image, runtime, nodes, dataset."""
        return self.status.apply(OUTPUTS["run_inputs"])

    @property
    def seconds(self) -> pulumi.Output[float]:
        """Return the seconds from start to finish."""
        return self.status.apply(OUTPUTS["seconds"])

    @property
    def completion(self) -> pulumi.Output[str]:
        """Return the phase at the end (Succeeded); using this output makes `pulumi up` wait for the end."""
        return self.until("complete").apply(OUTPUTS["phase"])
