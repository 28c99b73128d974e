"""What the user wrote of a TrainJob, with resolved Outputs: the first step of its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pulumi
from pulumi_trainer.args import plaintext_secrets, queue_labels, sources, topology
from pulumi_trainer.args.arguments import quoted, to_document
from pulumi_trainer.args.fine_tuning import ToolTrainer
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.args.topology import Topology
from pulumi_trainer.args.trainers import Trainer
from pulumi_trainer.code import entry_source, user_code
from pulumi_trainer.code.compiled import Compiled
from pulumi_trainer.plan.checkpoint_policy import CheckpointPolicy
from pulumi_trainer.plan.outputs import FreeForm, Resolved, resolve, resolve_json
from pulumi_trainer.plan.trainjob_args import WRITTEN, TrainJobArgs
from pulumi_trainer.plan.volume_claims import FetchedData
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import listed, mappings, section
from pulumi_trainer.provider.pod.code import ARGS_FILE


@dataclass(frozen=True)
class WrittenJob:
    """What the user wrote of a job.

    Attributes:
        fields: `trainer` and `initializer` as documents, `code` that travels with the job, `spec` with other fields of the
            TrainJob, `metadata`, and annotations of `topology`.
        mounts: Kind of folder -> name of the claim with its fetched data.
        resolved: Unknown and secret values of all of it.
        tool: The trainer of a fine-tuning tool, with fields that are known by now; None for another trainer.
    """

    fields: dict[str, Any]
    mounts: dict[str, Any]
    runtime: dict[str, Any]
    func_args: FreeForm
    compiled: Compiled
    resolved: Resolved
    tool: ToolTrainer | None = None

    @property
    def shipped(self) -> dict[str, Any]:
        """Return the fields with the function's arguments as they travel with the code: None if they are secret, with the paths
        of what is secret in them."""
        if not self.fields["code"]:
            return {**self.fields, "code": {}}
        code = {**self.fields["code"], "func_args": self.func_args.document}
        if self.func_args.secrets:
            code["secrets"] = self.func_args.secrets
        return {**self.fields, "code": code}

    def problems(self) -> list[Problem]:
        """Return the problems of values of Outputs, of the code and of mounted data, by the paths of the arguments."""
        found = self.code_problems()
        for kind, claim in self.mounts.items():
            if claim is None:
                found.append(Problem(f"initializer.{kind}", "was rejected: fix it first"))
        return found

    def code_problems(self) -> list[Problem]:
        """Return the problems of the code, and of the arguments of its function."""
        found = [*self.compiled.problems, *user_code.package_problems(self.fields["code"])]
        if self.compiled.func is not None:
            found += entry_source.argument_problems(self.compiled.func, self.func_args.visible)
        if self.compiled.check is not None:
            found += self.compiled.check(self.func_args.visible)
        if self.compiled.prints and self.func_args.document is None:
            why = f"has a secret value, but {self.compiled.prints} writes its configuration into log and output"
            found.append(Problem("config", why, "read it from a variable of env, which may be secret"))
        for path in self.func_args.secrets:
            if tuple(path[:2]) == ("generation", "config"):
                where = "generation.config" + "".join(f"[{quoted(key)}]" for key in path[2:])
                why = "is secret, but would be an argument of a command, which log and process list show"
                found.append(Problem(where, why, "give it in env, such as HF_TOKEN or VLLM_API_KEY"))
        return problems_below("trainer", found)

    def cluster_problems(self) -> list[Problem]:
        """Return the packages of this machine, which nodes of a cluster do not have unless the job's own image does."""
        if self.fields["trainer"].get("image") is not None:
            return []
        return problems_below("trainer", user_code.unshipped_packages(self.fields["code"]))

    def code_warnings(self) -> list[Problem]:
        """Return the warnings about the code."""
        found = [*self.compiled.warnings]
        if self.compiled.func is not None:
            found += entry_source.argument_warnings(self.compiled.func, self.func_args.visible)
        return problems_below("trainer", found)


async def read_written(args: TrainJobArgs, runtime: dict[str, Any], secret_name: str) -> WrittenJob:
    """Return what the user wrote, for a job of a runtime."""
    labels = queue_labels.labels(args.labels, queue_arguments(args))
    metadata = {}
    for name, value in (("labels", labels), ("annotations", args.annotations)):
        if value is not None:
            metadata[name] = to_document(value)
    fields = {"metadata": metadata}
    if args.topology is not None:
        fields["topology"] = args.topology.annotations()
    volumes = {kind: source.volume for kind, source in fetched_data(args).items()}
    return await _resolved(args, _compiled(args, runtime), fields, volumes, runtime, secret_name)


async def read_accepted(args: TrainJobArgs) -> WrittenJob:
    """Return what the user wrote without rejected values, as far as this needs no runtime and no target."""
    trainer = args.trainer or Trainer()
    if isinstance(trainer, Trainer):
        compiled = user_code.compile_trainer(trainer, {}, None)
    elif trainer.config is not None:  # its other problems depend on the runtime
        compiled = Compiled(trainer.train_job_field(None))
    else:
        compiled = Compiled({})
    return await _resolved(args, compiled, {"metadata": {}}, {}, {}, "")


async def _resolved(
    args: TrainJobArgs,
    compiled: Compiled,
    fields: dict[str, Any],
    volumes: dict[str, Any],
    runtime: dict[str, Any],
    secret_name: str,
) -> WrittenJob:
    resolved = Resolved(None)
    code: dict[str, Any] = {}
    if compiled.code:
        code = compiled.code.document()
    func_args = await resolve_json(code.get("func_args"), f"{WRITTEN}.code.func_args", ARGS_FILE, resolved)
    if code:
        code = {**code, "func_args": func_args.content}
    written = {
        "trainer": compiled.document,
        "code": code,
        "initializer": _inline_sources(args.initializer),
        "spec": _own_fields(args),
        **fields,
    }
    if isinstance(args.checkpoint, CheckpointPolicy) and args.checkpoint.in_s3:
        written["checkpoint"] = {"to": args.checkpoint.to}
    if args.tracking is not None:
        written["tracking"] = args.tracking.document()
    if compiled.server is not None:
        written["generation"] = compiled.server
    await resolve({WRITTEN: written, "mounts": volumes, "runtime": runtime}, secret_name, resolved)
    found = resolved.document
    tool = await _with_known_fields(args.trainer)
    if tool is not None and tool is not args.trainer:
        problems = (*compiled.problems, *tool.check(), *args.tool_problems(tool))
        compiled = replace(compiled, problems=problems, check=tool.argument_problems)
    return WrittenJob(found[WRITTEN], found["mounts"], found["runtime"], func_args, compiled, resolved, tool)


async def _with_known_fields(made: Any) -> ToolTrainer | None:
    """Return the trainer of a fine-tuning tool, with the fields of an Output that is known by now; None for another trainer."""
    if not isinstance(made, ToolTrainer):
        return None
    if not isinstance(made.config, pulumi.Output):
        return made
    config = (await resolve({"config": made.config}, "")).document["config"]
    if not isinstance(config, Mapping):
        return made
    known = copy(made)
    known.config = config
    return known


def plain_secrets(written: WrittenJob) -> list[Problem]:
    """Return the plain-text secrets in all parts of a job that a plan and a cluster show."""
    fields, code = written.fields, written.fields["code"]
    trainer = fields["trainer"]
    shown = {"trainer.args": trainer.get("args"), "trainer.command": trainer.get("command")}
    shown["trainer.env"] = mappings(trainer.get("env"))
    arguments = written.func_args.visible
    if code.get("tool") and isinstance(arguments, dict):
        shown["trainer.config"] = arguments.get("config")
        shown["trainer.generation.config"] = section(arguments, "generation").get("config")
        shown["trainer.generation.env"] = listed(section(fields, "generation").get("env"))
    else:
        shown["trainer.func_args"] = arguments
    shown["trainer.packages_to_install"] = code.get("packages")
    shown["trainer.requirements"] = (code.get("requirements") or "").splitlines()
    shown["trainer.pip_index_urls"] = code.get("index_urls")
    for kind, source in fields["initializer"].items():
        shown[f"initializer.{kind}"] = source
    shown["tracking"] = mappings(section(fields, "tracking").get("env"))
    for part in ("annotations", "labels"):
        shown[part] = fields["metadata"].get(part)
    shown["runtime_patches"] = fields["spec"].get("runtimePatches")
    found: list[Problem] = []
    for where, value in shown.items():
        found += plaintext_secrets.problems(value, where)
    found += plaintext_secrets.problems_of_source(code.get("script"), "trainer.func or script")
    for name, text in section(code, "modules").items():
        if name.startswith("reward_"):
            found += plaintext_secrets.problems_of_source(text, "trainer.reward")
    return found


def queue_arguments(args: TrainJobArgs) -> dict[str, Any]:
    """Return the arguments for queue labels, with the names of queues and classes that the program creates."""
    return {name: queue_labels.queue_name(getattr(args, name)) for name in queue_labels.ARGUMENTS}


async def queue_problems(args: TrainJobArgs, refused: Sequence[Problem]) -> list[Problem]:
    """Return the problems of the arguments for queues, whatever else is wrong."""
    fields = {re.split(r"[.[]", p.where)[0] for p in refused}
    placing = queue_arguments(args)
    for name in fields & placing.keys():
        placing[name] = None
    labels = None
    if isinstance(args.labels, (Mapping, pulumi.Output)) and "labels" not in fields:
        labels = args.labels
    has_topology = isinstance(args.topology, Topology)
    if labels is None and not has_topology and not any(value is not None for value in placing.values()):
        return []
    given = {
        "written": to_document(labels),
        "merged": to_document(queue_labels.labels(labels, placing)),
        "suspend": args.suspend,
        "topology": {},
    }
    if isinstance(args.topology, Topology):
        given["topology"] = args.topology.annotations()
    known = (await resolve(given, "")).document
    found = queue_labels.problems(placing, known.get("written"), known.get("merged"), known.get("suspend"))
    return [*found, *topology.problems(known.get("topology"))]


def fetched_data(args: TrainJobArgs) -> dict[str, FetchedData]:
    """Return kind of folder -> data that is fetched into a volume before the job."""
    given = sources.parts(args.initializer)
    return {kind: source for kind, source in given.items() if isinstance(source, FetchedData)}


def writable_data(args: TrainJobArgs) -> list[str]:
    """Return the kinds of fetched data that the job may change."""
    return sorted(kind for kind, source in fetched_data(args).items() if source.writable)


def _compiled(args: TrainJobArgs, runtime: dict[str, Any]) -> Compiled:
    try:
        return user_code.compile_trainer(
            args.trainer or Trainer(), runtime, sources.parts(args.initializer).get("dataset")
        )
    except TrainerError as error:  # of a plugin that names a launcher
        return Compiled({}, problems=error.problems)


def _inline_sources(initializer: sources.Initializer | None) -> dict[str, Any]:
    """Return `spec.initializer`: the sources that are fetched inside the job."""
    given = sources.parts(initializer)
    return {kind: source.document() for kind, source in given.items() if isinstance(source, sources.DataSource)}


def _own_fields(args: TrainJobArgs) -> dict[str, Any]:
    fields = {
        "suspend": args.suspend,
        "activeDeadlineSeconds": args.active_deadline_seconds,
        "managedBy": args.managed_by,
        "runtimePatches": args.runtime_patches,
    }
    return {k: api_names(f"TrainJob.spec.{k}", to_document(v)) for k, v in fields.items() if v is not None}
