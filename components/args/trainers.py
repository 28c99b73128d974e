"""What runs on every node: `CustomTrainer` (a function, a script, a command) and `Trainer` (the raw field)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import (
    Args,
    is_input_type,
    quoted,
    to_document,
)
from pulumi_trainer.provider.admission.pod_names import STANDARD_RESOURCES, resource_name
from pulumi_trainer.provider.admission.trainjob import AUTOMATIC
from pulumi_trainer.provider.api.model import quantity_problems
from pulumi_trainer.provider.kube.errors import Problem

ALIASES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}
"""Short names of resources, as in the Kubeflow SDK."""


def env_list(env: Any) -> Any:
    """{"A": "1"} as a list of EnvVars; a list stays, an Output is converted when it is known."""
    if isinstance(env, pulumi.Output):
        return env.apply(env_list)
    if isinstance(env, Mapping):
        return [{"name": k, "value": v} for k, v in env.items()]
    return to_document(env)


def env_problems(env: Any) -> list[Problem]:
    """Return what is no value of a variable in a mapping; the value itself may be secret, and is not shown."""
    found = []
    for name, value in env.items() if isinstance(env, Mapping) else ():
        if value is None:
            found.append(Problem(f"env[{quoted(name)}]", "must be a string, not None", 'give "", or leave it out'))
        elif isinstance(value, (list, tuple, Mapping, int, float)):
            found.append(Problem(f"env[{quoted(name)}]", f"must be a string, not {type(value).__name__}"))
    return found


def resource_requirements(resources: Any) -> Any:
    """The short form as requests and limits; {"limits": ..., "requests": ...} stays."""
    if isinstance(resources, pulumi.Output):
        return resources.apply(resource_requirements)
    if not isinstance(resources, Mapping) or resources.keys() & {"limits", "requests", "claims"}:
        return to_document(resources)
    full = {_resource(str(k)): v for k, v in resources.items()}
    return {"limits": full, "requests": dict(full)}


def _resource(name: str) -> str:
    short = name.lower()
    if short.startswith("mig-"):
        return f"nvidia.com/{short}"
    return ALIASES.get(short, short if short in ("cpu", "memory", "ephemeral-storage") else name)


def _name_problems(name: Any) -> list[Problem]:
    """Return what is wrong with a resource of the short form, as the API server would say when it makes Pods."""
    known = [*ALIASES, *STANDARD_RESOURCES, "mig-1g.5gb"]
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"such as {', '.join(known)} or example.com/device"
    return [Problem("", why, hint) for why in resource_name(_resource(str(name)))[:1]]


def resource_problems(resources: Any) -> list[Problem]:
    """Rules of the short form: one MIG profile at most, and never beside whole GPUs (as in the Kubeflow SDK)."""
    if not isinstance(resources, Mapping):
        return []
    if not resources.keys() & {"limits", "requests", "claims"}:
        wrong = [
            p.below(f'resources_per_node["{k}"]')
            for k, v in resources.items()
            for p in (*_name_problems(k), *quantity_problems(v))
        ]
        if wrong:
            return wrong
    names = [_resource(str(k)) for k in resources]
    migs = [n for n in names if n.startswith("nvidia.com/mig-")]
    if len(migs) > 1:
        return [Problem("resources_per_node", f"more than one MIG profile: {', '.join(migs)}", "ask for one")]
    if migs and "nvidia.com/gpu" in names:
        return [Problem("resources_per_node", f"both gpu and {migs[0]}", "ask for one of them")]
    return []


@dataclass(frozen=True)
class Code:
    """User code before its Outputs are known."""

    script: str
    func_args: Any
    packages: Any
    index_urls: Any
    framework: str


@dataclass(frozen=True)
class Compiled:
    """A trainer as a document (`spec.trainer`), the code it ships, and what is wrong with it. func: what func_args have to fit,
    once they are known. exact: the bytes of a script file."""

    document: dict[str, Any]
    code: Code | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    func: Callable[..., Any] | None = None
    exact: bytes | None = None


class Trainer(Args):
    """The field `spec.trainer` of a TrainJob as it is (pkg/apis/trainer/v1alpha1/trainjob_types.go, v2.3.0).

    env: a mapping, or a list of EnvVars. resources_per_node: {"limits": ..., "requests": ...}, or the short form of
    `CustomTrainer`. num_proc_per_node: processes a node; default: GPUs, else CPUs of the node.
    """

    image: pulumi.Input[str] | None = None
    command: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    args: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | Sequence[Mapping[str, Any]] | None = None
    num_nodes: pulumi.Input[int] | None = None
    resources_per_node: pulumi.Input[Mapping[str, Any]] | None = None
    num_proc_per_node: pulumi.Input[int] | None = None

    api = "TrainJob.spec.trainer"
    converters = {"env": env_list, "resources_per_node": resource_requirements}
    lists = frozenset({"env", "command", "args"})
    mappings = frozenset({"env", "resources_per_node"})

    def check(self) -> list[Problem]:
        found = super().check() + resource_problems(self.resources_per_node)
        if isinstance(self.num_proc_per_node, str):
            why = f"must be a whole number, not {self.num_proc_per_node!r}"
            found.append(Problem("num_proc_per_node", why, AUTOMATIC))
        found += env_problems(self.env)
        for place, env in enumerate(self.env if isinstance(self.env, (list, tuple)) else ()):
            if not isinstance(env, (Mapping, pulumi.Output)) and not is_input_type(env):
                mend = 'env={"A": "1"}, or a list of such as {"name": "A", "value": "1"}'
                found.append(Problem(f"env[{place}]", f"must be a mapping, not {type(env).__name__}", mend))
        return found

    def compiled(self, runtime: Mapping[str, Any], dataset: Any) -> Compiled:  # noqa: ARG002
        """The document, and the code that it runs. runtime: its document. dataset: that of the initializer, if any."""
        return Compiled(self.document())


class CustomTrainer(Trainer):
    """User code on every node: one of `func`, `script` and `command`. The runtime's framework decides what starts it:
    torchrun, with MPI mpirun, else Python.

    func: a plain function; its source travels as it was written, so what it uses is imported inside. func_args: keyword
    arguments of func, as JSON; see `json_values` for what they may hold. With a secret in them, all travel in the job's
    Secret. script: path of a Python file; modules beside it do not travel. packages_to_install: requirements, installed
    before the launcher starts. pip_index_urls: the first is the index, the others are added. resources_per_node: short form
    {"gpu": 2, "cpu": 3, "memory": "3Gi", "storage": ..., "mig-1g.5gb": 1}; requests equal limits.
    """

    func: Callable[..., Any] | None = None
    func_args: pulumi.Input[Mapping[str, Any]] | None = None
    script: str | None = None
    packages_to_install: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    pip_index_urls: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None

    shipped = frozenset({"func", "func_args", "script", "packages_to_install", "pip_index_urls"})
    free = frozenset({"func_args"})
    lists = Trainer.lists | {"packages_to_install", "pip_index_urls"}
    mappings = Trainer.mappings | {"func_args"}

    def check(self) -> list[Problem]:
        found = super().check()
        ways = [n for n in ("func", "script", "command") if self.__dict__.get(n) is not None]
        if len(ways) != 1:
            got = " and ".join(ways) if ways else "none"
            found.append(Problem("", f"takes exactly one of func, script and command, not {got}"))
        if self.func_args is not None and self.func is None:
            found.append(Problem("func_args", "are the arguments of func", "pass func, or use args for a script"))
        if self.command is not None and self.packages_to_install is not None:
            why = "are installed by the bootstrap that starts func or script"
            found.append(Problem("packages_to_install", why, "use script=, or install them in the command"))
        return found

    @property
    def ships_code(self) -> bool:
        """Whether code of the program travels with the job."""
        return self.command is None and (self.func is not None or self.script is not None)
