"""Reads and controls jobs from a notebook or a program: the functions of `pulumi-trainer`, with types. Loads no Pulumi.

Example:
    from pulumi_trainer import client

    jobs = client.connect(stack="dev", project_dir="training")
    job = jobs.wait("digits", timeout=3600)
    print(job.phase, job.progress)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.lineage import find_run
from pulumi_trainer.provider.jobs.metrics import Metric, Point
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import Phase, Step
from pulumi_trainer.provider.kubernetes.errors import Invalid, NotFound, Problem, TrainerError
from pulumi_trainer.provider.service import jobs as commands
from pulumi_trainer.provider.service import logs, operations, outputs
from pulumi_trainer.provider.service.reach import ReachedJob as Found
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.service.runs import distinct, read_runs_of

__all__ = [
    "Attempt",
    "Invalid",
    "Job",
    "JobFailed",
    "Jobs",
    "Metric",
    "Output",
    "Phase",
    "Point",
    "Run",
    "Step",
    "TrainerError",
    "connect",
]

Until = Literal["running", "finished"]
"""What `Jobs.wait` waits for: `running` is reached when Pods or processes run, or when the job has ended."""

_RUNNING = (Phase.RUNNING, Phase.RESTARTING)


class JobFailed(TrainerError):
    """A job has not succeeded. job: Its last status."""

    def __init__(self, job: Job) -> None:
        why = f"is {job.phase}"
        if job.reason:
            why += f" ({job.reason})"
        if job.message:
            why += f": {job.message}"
        super().__init__(Problem(f"{job.namespace}/{job.name}", why))
        self.job = job


@dataclass(frozen=True)
class Job:
    """A job, as `pulumi-trainer status -o json` shows it. Times are seconds since the epoch, 0 for "not yet".

    Args:
        name: Name of the JobSet or TrainJob.
        namespace: Its namespace.
        resource: Name of its resource in the stack; empty without a stack.
        kind: JobSet or TrainJob; empty if the job is gone.
        phase: Phase of the job.
        reason: One word; empty if nothing needs an explanation.
        message: What the job waits for or why it has ended.
        steps: Its replicated jobs.
        restarts: Restarts of the whole JobSet.
        created: Time of the creation.
        started: Time of the start.
        finished: Time of the end.
        progress: The newest `trainerStatus` that rank 0 has printed, with metrics by name; None if it has printed none.
        queue: Its LocalQueue; empty if it has none.
        start: Behind whom it waits in its queue, and when it starts; empty if it does not wait, or if that is not known.
        cluster: Name of the MultiKueueCluster where its Pods run; empty if that is the cluster itself.
        output: Path of its output.
        logs: Folder of its logs on this machine; empty for a job of a cluster.
        uid: Identity of the job on its target.
        owner: Id of the owner in its stack.
        digest: Digest of what the user wrote.
        stack: Label of its stack.
        program: PROJECT/STACK of its program.
        run: The user's `run` key.
        identity: Id, lineage, parent, cause and place of the run, as those of `Run`.
        inputs: What identifies the inputs of the run: code, arguments, env, packages, images, runtime, nodes and data.
        attempts: Starts of its Pods, the newest last.
        checkpoints: Whether it has a checkpoint policy.
        loss: What it would lose if it were stopped now: steps, seconds and the step of the newest checkpoint, which may be None;
            None if not known.
        tracking: Address of the run on its tracker, or the command that opens the tracker's files; empty if not known.
        goodput: Training time without steps done again, divided by the time since the first start; None if not known.
    """

    name: str
    namespace: str
    resource: str
    kind: str
    phase: Phase
    reason: str
    message: str
    steps: tuple[Step, ...]
    restarts: int
    created: float
    started: float
    finished: float
    progress: Mapping[str, Any] | None
    queue: str
    start: str
    cluster: str
    output: str = field(repr=False)
    logs: str = field(repr=False)
    uid: str = field(repr=False)
    owner: str = field(repr=False)
    digest: str = field(repr=False)
    stack: str = field(repr=False)
    program: str = field(repr=False)
    run: str = field(repr=False)
    identity: Mapping[str, str] = field(repr=False)
    inputs: Mapping[str, str] = field(repr=False)
    tracking: str
    attempts: tuple[Attempt, ...] = field(repr=False)
    checkpoints: bool = field(repr=False)
    loss: Mapping[str, Any] | None = field(repr=False)
    goodput: float | None = field(repr=False)

    @property
    def finished_successfully(self) -> bool:
        """Whether the job has succeeded."""
        return self.phase == Phase.SUCCEEDED

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self.phase.terminal


def connect(
    *, stack: str = "", project_dir: str = ".", namespace: str = "", context: str = "", kubeconfig: str = ""
) -> Jobs:
    """Return the jobs of a stack, or of a namespace of a cluster. Nothing is read yet.

    Args:
        stack: Stack, for example dev or organization/project/dev; default: the selected one of the project.
        project_dir: Folder of the Pulumi project.
        namespace: Namespace of a cluster; default: that of the context.
        context: Context of the kubeconfig; default: the current one.
        kubeconfig: Path of a kubeconfig; default: as for kubectl.

    Raises:
        Invalid: The arguments name both a stack and a cluster, or no folder.
    """
    if not Path(project_dir).is_dir():
        raise Invalid(Problem("project_dir", f"no such folder: {project_dir}"))
    where = Where(stack, namespace, context, kubeconfig, project=project_dir, arguments=True)
    commands.of_stack(None, where)
    return Jobs(where)


class Jobs:
    """The jobs of a stack or a namespace; `connect` returns it.

    A name is that of a resource or of a job; in a cluster also jobset/NAME or trainjob/NAME. All methods raise `TrainerError` if
    the job or the target cannot be read.
    """

    def __init__(self, where: Where) -> None:
        self._where = where

    def jobs(self) -> list[Job]:
        """Return all jobs."""
        return [*map(_job, commands.find_states(None, self._where))]

    def status(self, name: str) -> Job:
        """Return one job.

        Args:
            name: The job.
        """
        (state,) = commands.with_starts(commands.with_progress([*commands.read_states([self._find(name)])]))
        return _job(state)

    def wait(self, name: str, until: Until = "finished", timeout: float | None = None, interval: float = 2.0) -> Job:
        """Wait for a job, and return it.

        Args:
            name: The job.
            until: running or finished.
            timeout: Seconds after which the wait ends; default: no limit.
            interval: Seconds between two reads.

        Raises:
            TimeoutError: The job has not got that far in time; it goes on.
            JobFailed: The job has failed or was deleted.
        """
        if until not in ("running", "finished"):
            raise Invalid(Problem("until", f"must be 'running' or 'finished', not {until!r}"))
        found = self._find(name)
        deadline = float("inf")
        if timeout is not None:
            deadline = time.monotonic() + timeout
        job: Job | None = None
        while True:
            try:
                (state,) = commands.read_states([found])
            except NotFound:
                if job is None:
                    raise
                raise JobFailed(replace(job, phase=Phase.DELETED, reason="", message="it is gone")) from None
            job = _job(state)
            if job.terminal and not job.finished_successfully:
                raise JobFailed(job)
            if job.terminal or (until == "running" and job.phase in _RUNNING):
                return _job(commands.with_progress([state])[0])
            left = deadline - time.monotonic()
            if left <= 0:
                why = ""
                if job.reason or job.message:
                    why = f" ({'; '.join(filter(None, (job.reason, job.message)))})"
                raise TimeoutError(f"{job.namespace}/{job.name} is {job.phase}{why} and not {until} after {timeout} s")
            time.sleep(min(interval, left))

    def logs(
        self, name: str, rank: int | str | None = 0, follow: bool = False, step: str | None = None, run: str = ""
    ) -> Iterator[str]:
        """Yield the lines of a job's logs.

        Args:
            name: The job.
            rank: Index of the Pod in its step, for example 1, or NODE.PROCESS, for example "1.3" for its process 3; None for all.
            follow: Whether to go on until the job has ended.
            step: Name of a step, for example node; default: all steps.
            run: Id of a run of the job; default: the newest one.

        Raises:
            Invalid: The rank is not valid, or the job does not have it or the run.
        """
        node, process = _parse_rank(rank)
        selection = logs.Selection(follow=follow, step=step or "", node=node, process=process, run=run)
        found, printed = self._find(name), False
        if run:
            find_run(read_runs_of(found), run, "run")
        for line in logs.log_lines([found], selection):
            printed = True
            yield line.text
        if not printed:
            logs.check_rank([found], selection, where="rank")

    def outputs(self, name: str, run: str = "") -> Output | None:
        """Return what is known of a job's output; None if it has none, or if its volume is gone.

        Args:
            name: The job.
            run: Id of a run of the job, for the folder of its lineage; default: the result of the job.

        Raises:
            Invalid: The job does not have the run.
        """
        (state,) = commands.read_states([self._find(name)])
        found = outputs.find_output(state, run, "run")
        if found is None:
            return None
        return found.output

    def why(self, name: str) -> str:
        """Return what a job waits for or why it has ended, as a paragraph.

        Args:
            name: The job.
        """
        return commands.why(self._find(name)).text

    def runs(self, name: str) -> list[Run]:
        """Return the runs of a job, the newest last.

        Args:
            name: The job.
        """
        return distinct(read_runs_of(self._find(name)))

    def metrics(self, name: str, run: str = "") -> Mapping[str, Metric]:
        """Return the metrics of a run by name: first, last, best, least and greatest value of each.

        Args:
            name: The job.
            run: Id of the run; default: the newest one.

        Raises:
            Invalid: The job has no such run.
        """
        return self._run(name, run).metrics

    def history(self, name: str, run: str = "") -> Mapping[str, list[Point]]:
        """Return the history of the metrics of a run by name, the newest point last, of at most 200 points each.

        Args:
            name: The job.
            run: Id of the run; default: the newest one.

        Raises:
            Invalid: The job has no such run.
        """
        return self._run(name, run).history

    def suspend(self, name: str) -> None:
        """End the processes or Pods of a job until it is resumed; returns before they have ended.

        Args:
            name: The job.
        """
        self._operate("suspend", name)

    def resume(self, name: str) -> None:
        """Continue a suspended job.

        Args:
            name: The job.
        """
        self._operate("resume", name)

    def stop(self, name: str) -> None:
        """End a job for good; its output and its record stay. Returns when it has ended.

        Args:
            name: The job.
        """
        self._operate("stop", name)

    def rerun(self, name: str) -> None:
        """Run a job of a stack that has ended again, as it was submitted.

        Args:
            name: The job.
        """
        self._operate("rerun", name)

    def _run(self, name: str, run: str) -> Run:
        found = self.runs(name)
        if not run:
            return found[-1]
        return find_run(found, str(run), "run")

    def _operate(self, operation: operations.Operation, name: str) -> None:
        operations.apply(operation, operations.find_job(operation, name, self._where))

    def _find(self, name: str) -> Found:
        if not name:  # it would select all jobs
            raise Invalid(Problem("name", "is empty"))
        found = commands.chosen_jobs(name, self._where)
        commands.check_single(found, name)
        return found[0]


def _parse_rank(rank: int | str | None) -> tuple[int | None, int | None]:
    """Return node and process of the argument `rank`; None for all."""
    if rank is None:
        return None, None
    text = ""
    if isinstance(rank, int | str):  # no float: 1.10 is 1.1
        text = str(rank)
    try:
        return logs.parse_rank(text)
    except Invalid:
        why = f"""invalid rank {rank!r} (expected for example 0, or "0.3" for process 3 of node 0; None for all)"""
        raise Invalid(Problem("rank", why)) from None


def _job(state: commands.State) -> Job:
    entry = state.to_dict()
    known = {each.name: entry[each.name] for each in fields(Job)}
    steps = tuple(Step(**step) for step in entry["steps"])
    attempts = tuple(Attempt(**attempt) for attempt in entry["attempts"])
    return Job(**{**known, "phase": Phase(entry["phase"]), "steps": steps, "attempts": attempts})
