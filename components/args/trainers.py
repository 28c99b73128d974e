"""The trainers, which define what runs on every node: `CustomTrainer` (a function, a script, a command) and `Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import (
    Args,
    as_mapping,
    as_sequence,
    plain_value,
    quoted,
    shown_value,
    to_document,
    type_problems,
)
from pulumi_trainer.args.field_types import field_types
from pulumi_trainer.args.project import Source
from pulumi_trainer.provider.engine.pulumi_compat import is_input_type
from pulumi_trainer.provider.jobs.gpu_memory import read_parameters
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.quantity import quantity_problems
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.trainer.admission.pod_names import STANDARD_RESOURCES, resource_name
from pulumi_trainer.provider.trainer.admission.trainjob import AUTOMATIC

ALIASES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}
"""Short names of resources, as in the Kubeflow SDK."""


_INSTEAD_OF_MODULE: Mapping[str, str] = {
    "module": 'give its name: module="{value.__name__}"',
    "script": "give the path of its file",
    "source": 'give the path of the folder that contains it, such as source="."',
}
"""Argument -> what to give instead of a module."""


def env_list(env: Any) -> Any:
    """Return {"A": "1"} as a list of EnvVars; a list stays, an Output is converted when its value is known."""
    if isinstance(env, pulumi.Output):
        return env.apply(env_list)
    if isinstance(env, Mapping):
        return [{"name": plain_value(k), "value": plain_value(v)} for k, v in env.items()]
    return to_document(env)


def env_problems(env: Any) -> list[Problem]:
    """Return the variables of a mapping whose values are not valid; problems do not show values, as these may be secret."""
    found = []
    for name, value in as_mapping(env).items():
        if name == "":
            found.append(Problem('env[""]', "the name of a variable is empty"))
        if value is None:
            found.append(Problem(f"env[{quoted(name)}]", "must be a string, not None", 'give "", or leave it out'))
        elif not isinstance(value, (str, pulumi.Output, Unknown)) and not isawaitable(value):
            found.append(
                Problem(f"env[{quoted(name)}]", f"must be a string, not {type(value).__name__}", "write it in quotes")
            )
    return found


def image_problems(image: Any) -> list[Problem]:
    """Return why a text cannot be the name of an image."""
    if not isinstance(image, str) or (image and image == image.strip()):
        return []
    why = "is empty"
    if image.strip():
        why = "begins or ends with white space"
    return [Problem("image", why, "give the name of an image, or leave it out")]


def resource_requirements(resources: Any) -> Any:
    """Return the short form as requests and limits; {"limits": ..., "requests": ...} stays."""
    if isinstance(resources, pulumi.Output):
        return resources.apply(resource_requirements)
    if not isinstance(resources, Mapping) or resources.keys() & {"limits", "requests", "claims"}:
        return to_document(resources)
    full = {_full_resource_name(k): plain_value(v) for k, v in resources.items()}
    return {"limits": full, "requests": dict(full)}


def resources_given_twice(resources: Any) -> list[Problem]:
    """Return the resources that the short form names twice, with other amounts."""
    found, short = list[Problem](), as_mapping(resources)
    if short.keys() & {"limits", "requests", "claims"}:
        return []
    first: dict[str, str] = {}
    for name in short:
        other = first.setdefault(_full_resource_name(name), name)
        if isinstance(short[name], (str, int)) and str(short[name]) != str(short[other]):
            why = f"{other} is {short[other]}, but {name}, the same resource, is {short[name]}: the last one wins"
            found.append(Problem("resources_per_node", why, "leave one of the two out"))
    return found


def _full_resource_name(given: Any) -> str:
    name = str(plain_value(given))
    short = name.lower()
    if short.startswith("mig-"):
        return f"nvidia.com/{short}"
    if short in ("cpu", "memory", "ephemeral-storage"):
        return short
    return ALIASES.get(short, name)


def _name_problems(name: Any) -> list[Problem]:
    """Return why a name of the short form is not a valid resource, as the API server reports it when it creates Pods."""
    known = [*ALIASES, *STANDARD_RESOURCES, "mig-1g.5gb"]
    hint = did_you_mean(str(name), known, f"such as {', '.join(known)} or example.com/device", cutoff=0.5)
    return [Problem("", why, hint) for why in resource_name(_full_resource_name(name))[:1]]


NO_GPU = "needs a GPU, but the nodes request none"
ONE_GPU = 'resources_per_node={"gpu": 1}'


def asks_for_gpu(resources: Any) -> bool:
    """Return whether a node gets a GPU; true if this is not known, as of claims."""
    if not isinstance(resources, Mapping):
        return isinstance(resources, pulumi.Output)
    if resources.get("claims"):
        return True
    amounts = [*resources.items()]
    for part in ("limits", "requests"):
        amounts += as_mapping(resources.get(part)).items()
    names = {str(name).lower() for name, amount in amounts if str(amount) != "0"}
    return any(name == "gpu" or "/gpu" in name or "mig-" in name for name in names)


def resource_problems(resources: Any) -> list[Problem]:
    """Return violations of the short form's rules: at most one MIG profile, and none with whole GPUs (as in the SDK)."""
    if not isinstance(resources, Mapping):
        return []
    if not resources.keys() & {"limits", "requests", "claims"}:
        wrong: list[Problem] = []
        for name, value in resources.items():
            problems = [*_name_problems(name), *quantity_problems(plain_value(value))]
            wrong += problems_below(f'resources_per_node["{plain_value(name)}"]', problems)
        if wrong:
            return wrong
    names = [*map(_full_resource_name, resources)]
    migs = [n for n in names if n.startswith("nvidia.com/mig-")]
    if len(migs) > 1:
        return [Problem("resources_per_node", f"more than one MIG profile: {', '.join(migs)}", "request one profile")]
    if migs and "nvidia.com/gpu" in names:
        return [Problem("resources_per_node", f"requests both gpu and {migs[0]}", "request one of the two")]
    return []


_MOST_PARAMETERS = 10**14


def read_size(given: Any) -> int | None:
    """Return the number of parameters of a model, given as a number or as a text such as "8B"; None if it is not valid."""
    found = read_parameters(given) if isinstance(given, str) else given
    if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= _MOST_PARAMETERS:
        return found
    return None


def size_problems(given: Any) -> list[Problem]:
    """Return why a number or a text is not the number of parameters of a model."""
    if not isinstance(given, (int, str)) or read_size(given) is not None:
        return []
    why = f"must be the number of the model's parameters, not {shown_value(given)}"
    return [Problem("parameters", why, 'for example "8B", "350M" or 8_030_261_248')]


class Trainer(Args):
    """The field `spec.trainer` of a TrainJob as it is (pkg/apis/trainer/v1alpha1/trainjob_types.go, v2.3.0).

    Args:
        image: Image of the nodes; default: the runtime's.
        command: Command of the nodes; default: the runtime's.
        args: Arguments of the command; default: the runtime's.
        env: Environment variables, as a mapping or as a list of EnvVars.
        num_nodes: Number of nodes; default: the runtime's (`numNodes`).
        resources_per_node: Resources of each node: {"limits": ..., "requests": ...}, or the short form {"gpu": 2,
            "cpu": 3, "memory": "3Gi", "storage": ..., "mig-1g.5gb": 1}, whose requests equal its limits.
        num_proc_per_node: Processes per node; default: the node's GPUs, else its CPUs (`numProcPerNode`).
    """

    described: ClassVar[str] = "CustomTrainer, Trainer"
    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("gpus", "gpu", "gpus_per_node"), 'resources_per_node={"gpu": ...}'),
        **{name: f'resources_per_node={{"{name.rstrip("s")}": ...}}' for name in ("cpu", "cpus", "memory")},
        **dict.fromkeys(("nodes", "nnodes", "replicas", "workers"), "num_nodes=..."),
        **dict.fromkeys(("environment", "environ", "envs"), "env=..."),
        **dict.fromkeys(("packages", "dependencies"), "packages_to_install=..."),
        **dict.fromkeys(("nproc_per_node", "nprocs", "processes"), "num_proc_per_node=..."),
    }
    """What other tools call an argument -> the argument."""

    image: pulumi.Input[str] | None = None
    command: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    args: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | Sequence[Mapping[str, Any]] | None = None
    num_nodes: pulumi.Input[int] | None = None
    resources_per_node: pulumi.Input[Mapping[str, Any]] | None = None
    num_proc_per_node: pulumi.Input[int] | None = None

    api = "TrainJob.spec.trainer"
    converters = {"env": env_list, "resources_per_node": resource_requirements}

    def check(self) -> list[Problem]:
        found = super().check() + resource_problems(self.resources_per_node)
        found += image_problems(self.image)
        if isinstance(self.num_proc_per_node, str):
            why = f"must be a whole number, not {self.num_proc_per_node!r}"
            found.append(Problem("num_proc_per_node", why, AUTOMATIC))
        found += env_problems(self.env)
        for place, env in enumerate(as_sequence(self.env)):
            if not isinstance(env, (Mapping, pulumi.Output)) and not is_input_type(env):
                hint = 'env={"A": "1"}, or a list, [{"name": "A", "value": "1"}]'
                found.append(Problem(f"env[{place}]", f"must be a mapping, not {type(env).__name__}", hint))
        return found

    @property
    def own_nodes(self) -> Any:
        """The number of nodes that the program gives; None for that of the runtime."""
        return self.num_nodes

    def given_twice(self) -> list[Problem]:
        """Return the settings that are given twice, with other values."""
        return resources_given_twice(self.resources_per_node)


class CustomTrainer(Trainer):
    """User code on every node: one of `func`, `script`, `module` and `command`.

    The runtime's framework decides what starts it: torchrun, with MPI mpirun, otherwise Python. With `source`, the copy of the
    project is the current folder of the code, and its modules can be imported.

    Args:
        func: A plain function. Its source is shipped as written, so it imports what it uses. A function of a module of
            `source` is imported from there instead.
        func_args: Keyword arguments of `func`, as JSON (`json_values` lists the types). If one is secret, all are
            stored in the job's Secret.
        script: Path of a Python file, in `source` relative to the project. Without `source`, modules beside it are not
            shipped.
        module: Name of a module of `source` that is started as `python -m MODULE` does.
        source: Project whose files travel with the job: a `Source`, or the path of its folder. Default: none.
        requirements: Path of a file of requirements, a `uv.lock` or a `pyproject.toml`, in `source` relative to the project;
            installed together with `packages_to_install`. Default: none.
        packages_to_install: Requirements of pip, installed before the launcher starts.
        pip_index_urls: Package indexes: the first is the index, the others are extra indexes.
        parameters: Number of the model's parameters, such as "8B" or 8_030_261_248. With it, the plan estimates the memory of
            each GPU from the arguments below, which change nothing of the job. Default: no estimate.
        method: What is trained: `full` (default), `lora`, or `qlora`, beside a model in 4 bits.
        lora_rank: Rank of the matrices of LoRA; default: the adapter is not counted.
        precision: `fp32`; `bf16`: weights, gradients and optimizer in 16 bit; `mixed`: weights in fp32, computation in 16 bit
            (torch.autocast, DeepSpeed). Default: any of these.
        optimizer: `adamw` (default), `adamw_8bit` or `sgd`.
        sharding: What the GPUs share: `ddp` nothing, `zero1` the optimizer, `zero2` also gradients, `zero3` or `fsdp` also
            weights. Default: any of these.
        batch_size: Samples of a step on one GPU; default: activations are not counted.
        sequence_length: Tokens of a sample; default: activations are not counted.
        hidden_size: Width of the model's layers; default: activations are not counted.
        num_layers: Number of the model's layers; default: activations are not counted.
        gradient_checkpointing: Whether activations are computed again in the backward pass; default: either.
        image: Image of the nodes; default: the runtime's.
        command: Command of the nodes; default: the runtime's.
        args: Arguments of the command; default: the runtime's.
        env: Environment variables, as a mapping or as a list of EnvVars.
        num_nodes: Number of nodes; default: the runtime's (`numNodes`).
        resources_per_node: Resources of each node: {"limits": ..., "requests": ...}, or the short form {"gpu": 2,
            "cpu": 3, "memory": "3Gi", "storage": ..., "mig-1g.5gb": 1}, whose requests equal its limits.
        num_proc_per_node: Processes per node; default: the node's GPUs, else its CPUs (`numProcPerNode`).
    """

    func: Callable[..., Any] | None = None
    func_args: pulumi.Input[Mapping[str, Any]] | None = None
    script: str | Path | None = None
    module: str | None = None
    source: Source | str | Path | None = None
    requirements: str | Path | None = None
    packages_to_install: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    pip_index_urls: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    parameters: int | str | None = None
    method: Literal["full", "lora", "qlora"] = "full"
    lora_rank: int | None = None
    precision: Literal["fp32", "bf16", "mixed"] | None = None
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] = "adamw"
    sharding: Literal["ddp", "zero1", "zero2", "zero3", "fsdp"] | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    gradient_checkpointing: bool | None = None

    sizes = (
        "method", "lora_rank", "precision", "optimizer", "sharding", "batch_size", "sequence_length", "hidden_size",
        "num_layers", "gradient_checkpointing",
    )  # fmt: skip
    shipped = frozenset({
        "func", "func_args", "script", "module", "source", "requirements", "packages_to_install", "pip_index_urls",
        "parameters", *sizes,
    })  # fmt: skip
    free = frozenset({"func_args"})

    def check(self) -> list[Problem]:
        found = [*super().check(), *self._type_problems(), *self._size_problems()]
        ways = [n for n in ("func", "script", "module", "command") if self.__dict__.get(n) is not None]
        if len(ways) != 1:
            got = "none"
            if ways:
                got = " and ".join(ways)
            found.append(Problem("", f"takes exactly one of func, script, module and command, not {got}"))
        if self.module is not None and self.source is None:
            found.append(Problem("module", "requires source", 'give the project: source=".", or use script='))
        if isinstance(self.script, (str, Path)) and Path(self.script).suffix == ".ipynb":
            hint = f"jupyter nbconvert --to script {self.script}, and give the file that it writes"
            found.append(Problem("script", "is a notebook, which Python does not run", hint))
        if self.func_args is not None and self.func is None:
            found.append(Problem("func_args", "requires func", "pass func=, or use args= for a script"))
        if self.command is not None and not self.ships_code:
            for name in ("packages_to_install", "requirements"):
                if self.__dict__.get(name) is not None:
                    why = "requires func, script, module or source: a command of your own does not install packages"
                    found.append(Problem(name, why, "use script=, or install it in the command"))
        return found

    def _type_problems(self) -> list[Problem]:
        """Return the names and paths of a wrong type, which the plan reads before any schema checks them."""
        types, found = field_types(CustomTrainer), list[Problem]()
        for name in ("script", "module", "source", "requirements"):
            value = getattr(self, name)
            if not types[name].accepts(value):
                hint = ""
                if isinstance(value, ModuleType):
                    hint = _INSTEAD_OF_MODULE.get(name, "").format(value=value)
                found.append(Problem(name, f"must be {types[name].wanted}, not {shown_value(value)}", hint))
        return found

    def _size_problems(self) -> list[Problem]:
        """Return what is wrong with the arguments from which the memory of a GPU is estimated."""
        found = size_problems(self.parameters)
        found += [problem for problem in type_problems(self) if problem.where in ("parameters", *self.sizes)]
        for name in self.sizes:
            value = getattr(self, name)
            if self.parameters is None and value != getattr(CustomTrainer, name):
                found.append(Problem(name, "requires parameters, the size of the model", 'for example parameters="8B"'))
            elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
                found.append(Problem(name, f"must be at least 1, not {value}"))
        return found

    @property
    def ships_code(self) -> bool:
        """Return whether code of the program travels with the job."""
        ways = (self.func, self.script, self.module)
        return any(way is not None for way in ways) or (self.source is not None and self.command is not None)
