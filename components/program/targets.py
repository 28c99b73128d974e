"""The targets of jobs, `Local` and `Kubernetes`, and their choice by the stack's configuration."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import pulumi
from pulumi_trainer.args.arguments import Args, as_mapping, shown_value
from pulumi_trainer.args.signatures import not_one_of, unknown_fields
from pulumi_trainer.program import amounts
from pulumi_trainer.program.absent_outputs import absent_output
from pulumi_trainer.provider.engine import pulumi_compat
from pulumi_trainer.provider.jobs.submission import WORKERS
from pulumi_trainer.provider.kubernetes.client.kubeconfig import is_content
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import section, text, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.machine.extras import missing
from pulumi_trainer.provider.targets import connection
from pulumi_trainer.provider.trainer.releases import RELEASES

MODES = ("jobset", "trainer")
HARDENING = ("restricted", "none")


class Local(Args):
    """Processes on this machine.

    Args:
        root: Folder of jobs, logs and volumes; default: `.pulumi-trainer` beside Pulumi.yaml.
        python: Interpreter that replaces the images; default: the one that runs the program.
        max_parallel: How many jobs of `root` run at once; others wait in the order in which they came. Default: the number of
            CPUs or GPUs, whichever is larger, and at least 4.
        log_bytes: Bytes of the log that is kept of each container, at least 1,048,576; newer lines replace the oldest ones.
            Default: 50,331,648 (48 MiB). A job has the value with which it was created.
        isolation: `bwrap`: containers see no home folder, no files of the machine but programs, packages and their volumes, and
            no processes of others; needs bubblewrap (Linux). Default: they see what you see. A job has the value with which it
            was created.
    """

    root: str | Path | None = None
    python: str | Path | None = None
    max_parallel: int | None = None
    log_bytes: int | None = None
    isolation: Literal["bwrap"] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for name in ("root", "python"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, Path)):
                found.append(Problem(name, f"must be text or a path, not {shown_value(value)}", _hint_of(value)))
            elif value is not None and ("\0" in str(value) or not str(value)):
                found.append(Problem(name, f"is not a path: {str(value)!r}"))
        if self.isolation not in (None, "bwrap"):
            why = f"must be bwrap, not {shown_value(self.isolation)}"
            found.append(Problem("isolation", why, 'write isolation="bwrap", or leave it out'))
        for name, least, expected in _NUMBERS:
            given = getattr(self, name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < least):
                why = f"must be a whole number {expected}, not {shown_value(given)}"
                found.append(Problem(name, why, _hint_of(given)))
        return found


_NUMBERS = (("max_parallel", 1, "above 0"), ("log_bytes", 1 << 20, "of at least 1,048,576 (1 MiB)"))
"""Field, its least value, and the values that are valid."""
_HERE = "an Output is not supported here: write the value out, or take it from pulumi.Config()"


def _hint_of(value: Any) -> str:
    """Return how to give a value that must be known when the program runs; empty if it is no Output."""
    if isinstance(value, pulumi.Output):
        return _HERE
    return ""


class Worker(Args):
    """A worker cluster of MultiKueue, as this program reaches it.

    Args:
        kubeconfig: Path of a kubeconfig; default: as kubectl.
        context: Context of the kubeconfig; default: the current one.
    """

    kubeconfig: str | None = None
    context: str | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        given = {name: getattr(self, name) for name in self.fields if getattr(self, name) is not None}
        if not given:
            found.append(Problem("", "requires kubeconfig or context", "give kubeconfig=, context= or both"))
        for name, value in given.items():
            if not isinstance(value, str) or not value or is_content(value):
                what = "name"
                if name == "kubeconfig":
                    what = "path"
                found.append(Problem(name, f"must be the {what} of a {name} as text", _HERE))
        return found


class Kubernetes(Args):
    """A cluster. Configuration `trainer:{mode,namespace,kubeconfig,context,workers}` sets the arguments that are left out.

    Args:
        namespace: Namespace of the jobs; default: `default`.
        mode: `jobset` (default; the cluster only needs JobSet) or `trainer` (uses the resources of Kubeflow Trainer).
        kubeconfig: Path of a kubeconfig; default: as kubectl.
        context: Context of the kubeconfig; default: the current one.
        content: Content of a kubeconfig, as a secret Output.
        provider: A `pulumi_kubernetes.Provider` whose kubeconfig, context and namespace are used.
        workers: Worker clusters of MultiKueue, by the names of their MultiKueueClusters. They get copies of the code, Secrets and
            output volumes of the jobs that a queue sends there; `status`, `logs` and `why` read Pods there. Default: none.
    """

    namespace: pulumi.Input[str] | None = None
    mode: Literal["jobset", "trainer"] | None = None
    kubeconfig: pulumi.Input[str] | None = None
    context: pulumi.Input[str] | None = None
    content: pulumi.Input[str] | None = None
    provider: pulumi.ProviderResource | None = None
    workers: Mapping[str, Worker] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if self.content is not None and not isinstance(self.content, pulumi.Output):
            found.append(Problem("content", _PLAIN, _HINT))
        if isinstance(self.kubeconfig, str) and is_content(self.kubeconfig):
            found.append(Problem("kubeconfig", "must be the path of a kubeconfig file, not its content", _HINT))
        if self.kubeconfig is not None and self.content is not None:
            found.append(Problem("content", "cannot be combined with kubeconfig", "set only one of the two"))
        provider = self.provider
        if provider is not None and getattr(provider, "package", None) != "kubernetes":
            found.append(Problem("provider", "must be a pulumi_kubernetes.Provider"))
        for name, worker in as_mapping(self.workers).items():
            if not isinstance(worker, Worker):
                found.append(Problem(f"workers[{name!r}]", f"must be a Worker(...), not {shown_value(worker)}"))
        return found


_PLAIN = "is plain text, so the plan and the state would show its credentials"
_HINT = 'use content=pulumi.Config().require_secret("kubeconfig")'

Destination = Local | Kubernetes


def choose(given: Destination | None) -> Destination:
    """Return the program's target, else `trainer:target` of the stack, else Local."""
    if given is not None:
        return given
    if pulumi.Config("trainer").get("target") == "kubernetes":
        return Kubernetes()
    return Local()


def problems(given: Any) -> list[Problem]:
    """Return the problems of the argument and of the configuration."""
    if given is not None and not isinstance(given, (Local, Kubernetes)):
        return [Problem("target", f"must be Local(...) or Kubernetes(...), not {shown_value(given)}")]
    found = configuration_problems()
    if found:
        return found
    if given is not None:
        found = problems_below("target", given.check())
    if isinstance(choose(given), Kubernetes):
        found += missing("kubernetes", "target")
    mode = mode_of(choose(given))
    if mode not in MODES:
        found += not_one_of("target.mode", mode, MODES)
    return found


KEYS = (
    "target",
    "mode",
    "namespace",
    "kubeconfig",
    "context",
    "workers",
    "warnings",
    "hardening",
    "version",
    "prices",
    "budget",
    "policy",
)
"""Keys of the stack's configuration below `trainer:`."""


WORDS = {"target": ("local", "kubernetes"), "mode": MODES, "hardening": HARDENING, "version": tuple(RELEASES)}
"""Key -> its values."""

CONFIGURATION = "Configuration"
"""Type of a problem of the stack's configuration, which is reported for no component, as it affects all of them."""


def configuration_problems() -> list[Problem]:
    """Return the problems of the stack's configuration. In a project named trainer, unknown keys may be its own."""
    config = pulumi.Config("trainer")
    given = pulumi_compat.configuration_keys()
    keys = dict.fromkeys(key.removeprefix("trainer:") for key in given if key.startswith("trainer:"))
    found = list[Problem]()
    if pulumi.get_project() != "trainer":
        for p in unknown_fields(keys, KEYS):
            hint = f"{p.hint}. Remove it with `pulumi config rm trainer:{p.where}`".replace("?.", "?")
            found.append(Problem(p.where, "unknown key of the configuration", hint))
    for key, allowed in WORDS.items():
        value = config.get(key)
        if value:
            hint = f"pulumi config set trainer:{key} {allowed[0]}"
            found += [replace(p, hint=p.hint or hint) for p in not_one_of(key, value, allowed)]
    if is_content(config.get("kubeconfig") or ""):
        hint = 'give a path, or target=Kubernetes(content=pulumi.Config().require_secret("kubeconfig"))'
        found.append(Problem("kubeconfig", "must be the path of a kubeconfig file, not its content", hint))
    found += [*_configured_worker_problems(config), *amounts.problems()]
    return [Problem("", f"trainer:{p.where}: {p.why}", p.hint, CONFIGURATION) for p in found]


def cluster_key(target: Any, provider: pulumi.ProviderResource | None = None) -> str:
    """Return a text that is equal for the same settings of a connection; empty for those of the stack."""
    given: Mapping[str, Any] = {"provider": provider}
    if isinstance(target, Kubernetes):
        given = vars(target)
    values: dict[str, str | int] = {}
    for name, value in without(given, "namespace", "mode", "workers", "misnamed").items():
        if isinstance(value, str):
            values[name] = value
        elif value is not None:
            values[name] = id(value)
    if not values:
        return ""
    return str(values)


def _configured_worker_problems(config: pulumi.Config) -> list[Problem]:
    hint = "pulumi config set --path trainer:workers.NAME.kubeconfig PATH (or .context)"
    try:
        given = config.get_object("workers") or {}
    except pulumi.ConfigTypeError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        return [Problem("workers", "must map the name of each MultiKueueCluster to its kubeconfig and context", hint)]
    found = list[Problem]()
    for name, each in given.items():
        reasons = [f"{key}: unknown" for key in each if key not in Worker.fields]
        if not reasons:
            reasons = [f"{p.where}: {p.why}" for p in Worker(**each).check()]
        for why in reasons:
            found.append(Problem(f"workers.{name}", why.removeprefix(": "), hint))
    return found


def _workers(destination: Kubernetes) -> dict[str, dict[str, str]]:
    """Return the connections to the worker clusters of MultiKueue; empty if none are configured."""
    workers = destination.workers
    if workers is None:
        configured = pulumi.Config("trainer").get_object("workers") or {}
        workers = {name: Worker(**each) for name, each in configured.items()}
    return {name: _settings_of_worker(worker) for name, worker in workers.items()}


def _settings_of_worker(worker: Worker) -> dict[str, str]:
    given = {key: getattr(worker, key) for key in Worker.fields}
    return {key: value for key, value in given.items() if value}


def mode_of(destination: Destination) -> str:
    """Return the mode: jobset or trainer."""
    if isinstance(destination, Local):
        return "jobset"
    return destination.mode or pulumi.Config("trainer").get("mode") or "jobset"


def is_restricted(hardening: str | None, destination: Destination) -> bool:
    """Return whether Pods are hardened."""
    wanted = hardening or pulumi.Config("trainer").get("hardening")
    return wanted == "restricted" and isinstance(destination, Kubernetes)


@dataclass(frozen=True)
class Place:
    """The resolved target of jobs.

    Attributes:
        unknown: Token of an unknown leaf -> its Output.
        needs: Resources that the target's values come from.
    """

    namespace: Any
    target: connection.TargetInput
    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    needs: list[pulumi.Resource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def place(destination: Destination) -> Place:
    """Return the resolved target; unknown and secret values stay Outputs."""
    config = pulumi.Config("trainer")
    connection.configure({k: config.get(k) for k in ("kubeconfig", "context")})
    if isinstance(destination, Local):
        root = destination.root or project_folder() / ".pulumi-trainer"
        local = connection.local(
            str(root),
            str(destination.python or sys.executable),
            destination.max_parallel,
            destination.log_bytes,
            destination.isolation,
        )
        default = config.get("namespace") or "default"
        return Place(default, _reach(local, local), problems=_limit_problems(local["root"], destination.max_parallel))
    given = _settings_of(destination)
    found = {k: await _awaited(v) for k, v in given.items()}
    problems = list[Problem]()
    for key, value in given.items():
        if not isinstance(value, pulumi.Output):
            continue
        problem = await absent_output(value)
        if problem is not None:
            problems.append(problem.below(f"target.{key}"))
    if destination.content is not None and not found["content"].secret:
        problems.append(Problem("target.content", _PLAIN, _HINT))
    kubeconfig = found["kubeconfig"]
    if isinstance(kubeconfig.value, str) and is_content(kubeconfig.value):
        if destination.kubeconfig is not None:  # `configuration_problems` checks that of the configuration
            problems.append(Problem("target.kubeconfig", "is the content of a kubeconfig", _HINT))
        found["content"], found["kubeconfig"] = kubeconfig, await _awaited(None)
    namespace = found.pop("namespace")
    named = namespace.value
    if named is None:
        named = config.get("namespace") or "default"
    target: dict[str, Any] = {"kind": "kubernetes", "mode": mode_of(destination), "namespace": named}
    workers = _workers(destination)
    if workers:
        target[WORKERS] = workers
    plain = dict(target)
    for key, each in found.items():
        if each.value is None:
            continue
        plain[key] = target[key] = each.value
        is_secret = key == "content" or each.secret
        if is_secret and not each.unknown:
            target[key] = pulumi.Output.secret(each.value)
    needs = [*chain.from_iterable(each.needs for each in (namespace, *found.values()))]
    unknown: dict[str, Any] = {}
    if namespace.unknown:
        unknown["namespace"] = namespace.value
        named = Unknown("namespace")
    return Place(named, _reach(target, plain, needs), unknown, needs, problems)


def _settings_of(destination: Kubernetes) -> dict[str, Any]:
    """Return the settings of a connection: the arguments, else those of the provider or of the stack's configuration."""
    config = pulumi.Config("trainer")
    given = {name: getattr(destination, name) for name in ("namespace", "kubeconfig", "context", "content")}
    for name, value in given.items():
        if value is not None:
            continue
        if destination.provider is not None:
            given[name] = _provider_input(destination.provider, name)
        elif destination.content is None and name in ("kubeconfig", "context"):
            given[name] = config.get(name)
    return given


def worker_places(place: Place) -> list[Place]:
    """Return the worker clusters of MultiKueue in which jobs of a place may run, with the same mode and namespace."""

    def connected(target: Mapping[str, Any], worker: Mapping[str, Any]) -> dict[str, Any]:
        return {**without(target, *connection.CONFIGURED, "content", WORKERS), **worker}

    target = place.target
    places = []
    for worker in section(target.get(WORKERS)).values():
        reached = _reach(connected(target, worker), connected(target.plain, worker), target.needs)
        places.append(replace(place, target=reached))
    return places


def with_workers(target: dict[str, Any], copies: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a target with only those of its worker clusters that get copies of a resource's objects.

    Args:
        copies: Worker cluster -> "Kind/name" of the objects that it gets, which a plan shows.
    """
    workers = section(target.get(WORKERS))
    if not isinstance(target, connection.TargetInput) or not workers:
        return target
    chosen = {name: {**workers[name], "copies": list(keys)} for name, keys in copies.items() if name in workers}
    made, plain = without(target, WORKERS), without(target.plain, WORKERS)
    if chosen:
        made[WORKERS] = plain[WORKERS] = chosen
    return _reach(made, plain, target.needs)


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, int | None]] = WeakKeyDictionary()


def _limit_problems(root: str, limit: int | None) -> list[Problem]:
    """Return a problem if the program gives one root several limits."""
    first = _limits.setdefault(asyncio.get_event_loop(), {}).setdefault(root, limit)
    if first == limit:
        return []
    why = f"is {limit} here, but {first} elsewhere in the program for the same root {root}"
    return [Problem("target.max_parallel", why, "use one Local(...) for all jobs with this root")]


def _reach(
    target: dict[str, Any], plain: dict[str, Any], needs: Sequence[pulumi.Resource] = ()
) -> connection.TargetInput:
    reach = connection.TargetInput(target)
    reach.plain, reach.needs = plain, needs
    return reach


@dataclass(frozen=True)
class _Awaited:
    """An awaited value, which stays an Output if it is unknown."""

    value: Any = field(repr=False)
    secret: bool = False
    unknown: bool = False
    needs: frozenset[pulumi.Resource] = frozenset()


async def _awaited(given: Any) -> _Awaited:
    if not isinstance(given, pulumi.Output):
        return _Awaited(given)
    value = await given.future(with_unknowns=True)
    needs, secret = frozenset(await given.resources()), await given.is_secret()
    if not await given.is_known() or pulumi.contains_unknowns(value):
        return _Awaited(given, secret, True, needs)
    return _Awaited(value, secret, False, needs)


def _provider_input(provider: pulumi.ProviderResource, name: str) -> Any:
    """Return an input of a provider, which has undeclared Outputs for them. Its kubeconfig may be a path or the content."""
    if name == "content":
        return None
    return provider.__dict__.get(name)


@lru_cache(maxsize=256)
def resolve_once(path: str) -> Path:
    """Return an absolute path without links, as it was when a program first asked for it."""
    return Path(path).resolve()


def project_folder() -> Path:
    """Return the folder of the project; the program may run in a folder below it, which may be a project of its own as well."""
    root = pulumi.get_root_directory()
    if root:
        return resolve_once(root)
    here = Path.cwd()  # an inline program of the Automation API
    for folder in (here, *here.parents):
        if any((folder / name).is_file() for name in ("Pulumi.yaml", "Pulumi.yml")):
            return folder
    return here


_numbers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, int]] = WeakKeyDictionary()


def number_cluster(key: str) -> None:
    """Number a cluster of the program, in the order of the program: the name of its provider must not depend on which cluster
    answers first. key: As `cluster_key` returns it."""
    config = pulumi.Config("trainer")
    if key or config.get("kubeconfig") or config.get("context"):
        numbers = _numbers.setdefault(asyncio.get_event_loop(), {})
        numbers.setdefault(key, len(numbers) + 1)


_providers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, pulumi.ProviderResource]] = WeakKeyDictionary()


def provider(place: Place, key: str) -> pulumi.ProviderResource | None:
    """Return the provider of pulumi-kubernetes for a cluster, one for all objects of the program there.

    None stands for the default provider, which uses kubectl's configuration.
    """
    given = {k: place.target[k] for k in ("kubeconfig", "context", "content") if k in place.target}
    if not given:
        return None
    providers = _providers.setdefault(asyncio.get_event_loop(), {})
    at = str(sorted((k, text(v)) for k, v in place.target.plain.items() if k in given))
    if at not in providers:
        number_cluster(key)
        number = _numbers[asyncio.get_event_loop()][key]
        name = "trainer-cluster"  # a program may well call a provider of its own `cluster`
        if number > 1:
            name = f"trainer-cluster-{number}"
        kubeconfig = given.get("content", given.get("kubeconfig"))
        props = {"kubeconfig": kubeconfig, "context": given.get("context")}
        providers[at] = pulumi.ProviderResource(
            "kubernetes", name, props, pulumi.ResourceOptions(version=plugin_version())
        )
    return providers[at]


def plugin_version() -> str:
    """Return the version of pulumi-kubernetes, which its plugin has as well; empty if not installed."""
    from importlib.metadata import PackageNotFoundError, version  # a job alone does not need it

    try:
        return version("pulumi_kubernetes")
    except PackageNotFoundError:
        return ""


def plugin_problems() -> list[Problem]:
    """Return a problem if pulumi-kubernetes is not installed, which creates all objects except jobs."""
    return missing("pulumi_kubernetes")
