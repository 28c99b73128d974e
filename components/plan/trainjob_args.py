"""The arguments of a TrainJob, and their checks without access to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pulumi
from pulumi_trainer.args import queue_labels, sources
from pulumi_trainer.args.arguments import as_sequence, shown_value, type_problems
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.fine_tuning import ToolTrainer
from pulumi_trainer.args.fork import RESET_OF_TOOLS, Fork
from pulumi_trainer.args.patches import RuntimePatch
from pulumi_trainer.args.signatures import not_one_of
from pulumi_trainer.args.topology import Topology
from pulumi_trainer.args.tracking import Tracker, writes_files
from pulumi_trainer.args.trainers import CustomTrainer, Trainer
from pulumi_trainer.plan import runtime_ref
from pulumi_trainer.plan.checkpoint_policy import CheckpointPolicy, output_of
from pulumi_trainer.plan.runtime_ref import RuntimeSource
from pulumi_trainer.plan.tool_inputs import input_problems
from pulumi_trainer.plan.volume_claims import OutputVolume
from pulumi_trainer.program import session
from pulumi_trainer.program.constructors import ComponentArgs
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.watch import Timeouts, timeout_problems
from pulumi_trainer.provider.jobs.identity import job_name
from pulumi_trainer.provider.jobs.lineage import UNFINISHED
from pulumi_trainer.provider.jobs.retention import KEEP_RUNS, MOST_KEPT
from pulumi_trainer.provider.jobs.runs import KEEP, is_run_id
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kueue.labels import QUEUE

WRITTEN = "written"
"""First part of the paths of what the user wrote."""

_MOST_HOURS = 1_000_000

RERUN_ON = ("code", "data", "runtime")
"""What may start a new run of a job when it changes."""


def _places_of_labels(path: str) -> dict[str, str]:
    """Return path -> argument for the labels that arguments set. path: Path of a label, with `LABEL` in place of its name."""
    return {path.replace("LABEL", label): name for name, label in queue_labels.ARGUMENTS.items()}


class TrainJobArgs(ComponentArgs):
    """The arguments of `TrainJob`."""

    runtime: RuntimeSource | str | pulumi.Output[Any]
    follow: Literal["pin", "patch", "minor", "any"] | None = None
    trainer: Trainer | BuiltinTrainer | None = None
    initializer: sources.Initializer | None = None
    runtime_patches: pulumi.Input[Sequence[RuntimePatch | Mapping[str, Any]]] | None = None
    labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    annotations: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    queue: pulumi.Input[str] | pulumi.Resource | None = None
    priority: pulumi.Input[str] | pulumi.Resource | None = None
    topology: Topology | None = None
    flavors: Sequence[str] | None = None
    max_execution: pulumi.Input[int] | None = None
    expected_hours: float | None = None
    suspend: pulumi.Input[bool] | None = None
    active_deadline_seconds: pulumi.Input[int] | None = None
    managed_by: pulumi.Input[str] | None = None
    hardening: Literal["restricted", "none"] | None = None
    name: str | None = None
    output: bool | OutputVolume = False
    checkpoint: CheckpointPolicy | None = None
    tracking: Tracker | None = None
    resume: bool | str = UNFINISHED
    fork: Fork | None = None
    keep_runs: int = KEEP_RUNS
    run: str | None = "1"
    rerun_on: Sequence[Literal["code", "data", "runtime"]] | None = None
    wait_for: Literal["created", "admitted", "running", "complete"] = "created"
    may_fail: bool = False
    timeouts: Timeouts | None = None
    logs: bool | Literal["keep"] = False
    interrupt: Literal["refuse", "allow", "checkpoint"] = "refuse"
    adopt: bool | Literal["existing"] = False
    target: Destination | None = None

    elsewhere = {
        **{field: f"trainer=CustomTrainer({field}=...)" for field in CustomTrainer.fields},
        **{name: f"trainer=CustomTrainer({there})" for name, there in CustomTrainer.elsewhere.items()},
        **{field: f"target=Kubernetes({field}=...)" for field in ("namespace", "kubeconfig", "context", "mode")},
        **{field: f"initializer=Initializer({field}=...)" for field in ("dataset", "model")},
        **dict.fromkeys(("max_runtime", "max_duration"), "active_deadline_seconds=..."),
        **dict.fromkeys(("pod_template_overrides", "pod_spec_overrides"), "runtime_patches=[RuntimePatch(...)]"),
    }
    documents = frozenset({"runtime"})
    places = {
        **_places_of_labels("metadata.labels[LABEL]"),
        **_places_of_labels(f'{WRITTEN}.metadata.labels["LABEL"]'),
        **_places_of_labels("metadata.labels['LABEL']"),
        f"{WRITTEN}.code.packages": "trainer.packages_to_install", f"{WRITTEN}.code.index_urls": "trainer.pip_index_urls",
        f"{WRITTEN}.code.": "trainer.", "mounts.": "initializer.", f"{WRITTEN}.spec.": "", f"{WRITTEN}.metadata.": "",
        f"{WRITTEN}.": "",
        "metadata.namespace": "target.namespace",
        "spec.runtimeRef.name": "runtime",
        "spec.runtimeRef": "runtime", "spec.mlPolicy": "runtime.spec.mlPolicy",
        "spec.podGroupPolicy": "runtime.spec.podGroupPolicy", "spec.template": "runtime.spec.template",
        "spec.": "", "metadata.": "",
    }  # fmt: skip

    if not TYPE_CHECKING:  # type checkers make the constructor from the fields

        def __init__(self, *unnamed: Any, **named: Any) -> None:
            super().__init__(*unnamed, **named)
            self.misnamed = [*map(_with_required_hint, self.misnamed)]

    def check(self) -> list[Problem]:
        found = super().check()
        for problem in type_problems(self):
            if problem.where == "keep_runs":
                continue
            hint = problem.hint or _hint(problem.where, getattr(self, problem.where))
            found.append(replace(problem, hint=hint))
        found += runtime_ref.problems(self.runtime, self.follow)
        if isinstance(self.output, OutputVolume) and isinstance(getattr(self.checkpoint, "to", None), OutputVolume):
            found.append(
                Problem(
                    "checkpoint.to",
                    "cannot be combined with output: the policy has its own volume",
                    "leave one of the two out",
                )
            )
        if self.interrupt == "checkpoint" and self.checkpoint is None:
            hint = 'set checkpoint=CheckpointPolicy(...), or interrupt="allow"'
            found.append(Problem("interrupt", "is 'checkpoint', but the job has no checkpoint policy", hint))
        if isinstance(self.resume, str) and self.resume != UNFINISHED and not is_run_id(self.resume):
            hint = "`pulumi-trainer runs JOB` lists the ids of a job's runs"
            why = f"{self.resume!r} is not a valid id of a run (expected True, False, {UNFINISHED!r} or an id such as 't4kz1f')"
            found.append(Problem("resume", why, hint))
        found += self._fork_problems()
        if type(self.keep_runs) is not int or not 1 <= self.keep_runs <= MOST_KEPT:
            hint = "1 keeps the newest run only; `outputs JOB --run ID --copy DEST` copies an output"
            why = f"must be an int from 1 to {MOST_KEPT}, not {shown_value(self.keep_runs)}"
            found.append(Problem("keep_runs", why, hint))
        if isinstance(self.expected_hours, (int, float)) and not 0 < self.expected_hours < _MOST_HOURS:
            found.append(Problem("expected_hours", f"must be a number of hours above 0, not {self.expected_hours!r}"))
        if self.keeps_logs and self.output_volume is None:
            found.append(Problem("logs", "'keep' requires an output volume, which has the logs", "set output=True"))
        if isinstance(self.tracking, Tracker) and writes_files(self.tracking) and self.output_volume is None:
            why = f"{self.tracking.title} writes into the output volume, and the job has none"
            found.append(Problem("tracking", why, "set output=True"))
        if isinstance(self.trainer, ToolTrainer):
            found += problems_below("trainer", self.tool_problems(self.trainer))
            found += input_problems(self.trainer, self.initializer)
        return found + timeout_problems(self.timeouts) + self._rerun_problems()

    def tool_problems(self, made: ToolTrainer) -> list[Problem]:
        """Return conflicts of the job's trainer with its other arguments."""
        policy = None
        if isinstance(self.checkpoint, CheckpointPolicy):
            policy = self.checkpoint
        fetched = [kind for kind, source in sources.parts(self.initializer).items() if source is not None]
        return made.job_problems(fetched, policy, output=output_of(self.output, policy) is not None)

    @property
    def run_key(self) -> str:
        """Return `run`, or its default for None, as `Config().get("run")` may be."""
        return "1" if self.run is None else self.run

    @property
    def keeps_logs(self) -> bool:
        """Return whether the output of the containers is kept in the output volume."""
        return isinstance(self.logs, str) and self.logs == KEEP

    @property
    def output_volume(self) -> OutputVolume | None:
        """Return the volume for output and checkpoints; None if the job has none."""
        return output_of(self.output, self.checkpoint)

    def _fork_problems(self) -> list[Problem]:
        if not isinstance(self.fork, Fork):
            return []
        found = list[Problem]()
        if self.checkpoint is None:
            found.append(Problem("fork", "requires a checkpoint policy", "set checkpoint=CheckpointPolicy(...)"))
        if self.resume != UNFINISHED:
            found.append(Problem("fork", "cannot be combined with resume=", "leave one of the two out"))
        if isinstance(self.trainer, ToolTrainer):
            for i, name in enumerate(as_sequence(self.fork.reset)):
                found += not_one_of(f"fork.reset[{i}]", name, RESET_OF_TOOLS)
        return found

    def _rerun_problems(self) -> list[Problem]:
        if not isinstance(self.rerun_on, (list, tuple)):
            return []
        found: list[Problem] = []
        for i, word in enumerate(self.rerun_on):
            found += not_one_of(f"rerun_on[{i}]", word, RERUN_ON)
        return found


_REQUIRED = 'name one that `pulumi-trainer runtime list` shows, such as runtime="torch-distributed"'


def _with_required_hint(problem: Problem) -> Problem:
    """Return the problem of a missing runtime with a hint; any other one stays."""
    if problem == Problem("runtime", "is required"):
        return replace(problem, hint=_REQUIRED)
    return problem


def _hint(field: str, value: Any) -> str:
    """Return the hint for a value of another type, if the value shows what was meant."""
    if isinstance(value, pulumi.StackReference):
        return 'give one of its outputs: get_output("NAME") of the StackReference'
    if field == "trainer" and (callable(value) or isinstance(value, Mapping)):
        return "give CustomTrainer(func=...)"
    if field == "run" and type(value) is int:
        return f'give run="{value}"'
    if field == "checkpoint":
        return "give CheckpointPolicy(...)"
    if field == "fork":
        return 'give Fork("RUN", step=...)'
    if field == "initializer" and "Model" in type(value).__name__:
        return "give Initializer(model=...)"
    if field == "initializer":
        return "give Initializer(dataset=...)"
    return ""


def note_queue(args: TrainJobArgs) -> None:
    """Remember the queue of a job of the program, before any resource of the program is created."""
    queue = None
    if args.queue is not None:
        queue = queue_labels.queue_name(args.queue)
    elif isinstance(args.labels, Mapping):
        queue = args.labels.get(QUEUE)
    session.current().queue_of[name_of(args)] = queue


def name_of(args: TrainJobArgs) -> str:
    """Return the name of the job in its target: the argument `name`, else a name from resource, project and stack."""
    if isinstance(args.name, str) and args.name:
        return args.name
    return job_name(args.resource_name, pulumi.get_project(), pulumi.get_stack())
