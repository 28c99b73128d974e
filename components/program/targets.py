"""Where jobs run: `Local` and `Kubernetes`, and how the stack's configuration chooses."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env
from pulumi_trainer.args.arguments import Args, said
from pulumi_trainer.args.signatures import not_one_of, unknown_fields
from pulumi_trainer.program.absent_outputs import absent
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.extras import missing
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown

MODES = ("jobset", "trainer")


class Local(Args):
    """Processes on this machine.

    root: folder of jobs, logs and volumes; default `.pulumi-trainer` beside Pulumi.yaml. python: interpreter that stands in
    for the images; default: the one that runs the program.
    """

    root: str | Path | None = None
    python: str | Path | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for name in ("root", "python"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, Path)):
                hint = _HERE if isinstance(value, pulumi.Output) else ""
                found.append(Problem(name, f"must be text or a path, not {said(value)}", hint))
            elif value is not None and ("\0" in str(value) or not str(value)):
                found.append(Problem(name, f"is no path: {str(value)!r}"))
        return found


_HERE = "a value that is known only later has no place there: write it out, or take it from pulumi.Config()"


class Kubernetes(Args):
    """A cluster. Configuration `trainer:{mode,namespace,kubeconfig,context}` gives what is not given here.

    namespace: of the jobs, default `default`. mode: `jobset` (needs only JobSet in the cluster) or `trainer` (drives
    Kubeflow Trainer's own resources). kubeconfig: path; default as kubectl. context: default the current one. content: of a
    kubeconfig, a secret Output. provider: a `pulumi_kubernetes.Provider` whose kubeconfig, context and namespace are used.
    """

    namespace: pulumi.Input[str] | None = None
    mode: Literal["jobset", "trainer"] | None = None
    kubeconfig: pulumi.Input[str] | None = None
    context: pulumi.Input[str] | None = None
    content: pulumi.Input[str] | None = None
    provider: pulumi.ProviderResource | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if self.content is not None and not isinstance(self.content, pulumi.Output):
            found.append(Problem("content", _PLAIN, _MEND))
        if isinstance(self.kubeconfig, str) and dynamic.is_content(self.kubeconfig):
            found.append(Problem("kubeconfig", "is the content of a kubeconfig, and a path is wanted here", _MEND))
        if self.kubeconfig is not None and self.content is not None:
            found.append(Problem("content", "is given, and kubeconfig too", "give one of them"))
        provider = self.provider
        if provider is not None and getattr(provider, "package", None) != "kubernetes":
            found.append(Problem("provider", "must be a pulumi_kubernetes.Provider"))
        return found


_PLAIN = "is plain text; credentials would stand in plan and state"
_MEND = 'use content=pulumi.Config().require_secret("kubeconfig")'

Destination = Local | Kubernetes


def choose(given: Destination | None) -> Destination:
    """What the program says, else `trainer:target` of the stack, else Local."""
    if given is not None:
        return given
    return Kubernetes() if pulumi.Config("trainer").get("target") == "kubernetes" else Local()


def problems(given: Any) -> list[Problem]:
    """What is wrong with the argument and the configuration."""
    if given is not None and not isinstance(given, (Local, Kubernetes)):
        return [Problem("target", f"must be Local(...) or Kubernetes(...), not {said(given)}")]
    if found := configuration_problems():
        return found
    found = [p.below("target") for p in given.check()] if given is not None else []
    if isinstance(choose(given), Kubernetes):
        found += missing("kubernetes", "target")
    mode = mode_of(choose(given))
    if mode not in MODES:
        found += not_one_of("target.mode", mode, MODES)
    return found


KEYS = ("target", "mode", "namespace", "kubeconfig", "context", "warnings")
"""What the stack's configuration may say below `trainer:`."""


CONFIGURATION = "Configuration"
"""Type of a problem of the stack's configuration: every component meets it, and none is to blame."""


def configuration_problems() -> list[Problem]:
    """Return what is wrong with the stack's configuration. In a project that is called trainer, other keys may be its own."""
    config = pulumi.Config("trainer")
    given = [*get_config_env(), *CONFIG.get()]
    keys = dict.fromkeys(key.removeprefix("trainer:") for key in given if key.startswith("trainer:"))
    unknown = unknown_fields(keys, KEYS) if pulumi.get_project() != "trainer" else []
    found = [
        Problem(p.where, "unknown key of the configuration", f"{p.mend}; pulumi config rm trainer:{p.where}")
        for p in unknown
    ]
    for key, allowed in (("target", ("local", "kubernetes")), ("mode", MODES)):
        if value := config.get(key):
            hint = f"pulumi config set trainer:{key} {allowed[0]}"
            found += [replace(p, mend=p.mend or hint) for p in not_one_of(key, value, allowed)]
    if dynamic.is_content(config.get("kubeconfig") or ""):
        hint = 'give a path, or target=Kubernetes(content=pulumi.Config().require_secret("kubeconfig"))'
        found.append(Problem("kubeconfig", "is the content of a kubeconfig, and a path is wanted here", hint))
    return [Problem("", f"trainer:{p.where}: {p.why}", p.mend, CONFIGURATION) for p in found]


def mode_of(destination: Destination) -> str:
    """jobset or trainer."""
    if isinstance(destination, Local):
        return "jobset"
    return destination.mode or pulumi.Config("trainer").get("mode") or "jobset"


@dataclass(frozen=True)
class Place:
    """Where jobs go. target: the `target` input of their resources. unknown: token of an unknown leaf -> its Output. needs:
    resources that say where it is."""

    namespace: Any
    target: dynamic.Reach
    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    needs: list[pulumi.Resource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def place(destination: Destination) -> Place:
    """Waits for Outputs. What is not known yet stays an Output, and so does what is secret."""
    config = pulumi.Config("trainer")
    dynamic.configure({k: config.get(k) for k in ("kubeconfig", "context")})
    if isinstance(destination, Local):
        root = destination.root or _project() / ".pulumi-trainer"
        local = dynamic.local(str(root), str(destination.python or sys.executable))
        return Place(config.get("namespace") or "default", _reach(local, local))
    given = {k: getattr(destination, k) for k in ("namespace", "kubeconfig", "context", "content")}
    if destination.provider is not None:
        given = {k: _of_provider(destination.provider, k) if v is None else v for k, v in given.items()}
    if destination.provider is None and destination.content is None:
        given = {k: config.get(k) if v is None and k in ("kubeconfig", "context") else v for k, v in given.items()}
    found = {k: await _awaited(v) for k, v in given.items()}
    missing = {k: await absent(v) for k, v in given.items() if isinstance(v, pulumi.Output)}
    problems = [p.below(f"target.{k}") for k, p in missing.items() if p is not None]
    if destination.content is not None and not found["content"].secret:
        problems.append(Problem("target.content", _PLAIN, _MEND))
    kubeconfig = found["kubeconfig"]
    if isinstance(kubeconfig.value, str) and dynamic.is_content(kubeconfig.value):
        if destination.kubeconfig is not None:  # that of the configuration has been judged before
            problems.append(Problem("target.kubeconfig", "is the content of a kubeconfig", _MEND))
        found["content"], found["kubeconfig"] = kubeconfig, await _awaited(None)
    namespace = found.pop("namespace")
    named = namespace.value if namespace.value is not None else (config.get("namespace") or "default")
    target: dict[str, Any] = {"kind": "kubernetes", "mode": mode_of(destination), "namespace": named}
    plain = dict(target)
    for key, each in found.items():
        if each.value is not None:
            plain[key] = each.value
            secret = key == "content" or each.secret
            target[key] = pulumi.Output.secret(each.value) if secret and not each.unknown else each.value
    needs = [resource for each in (namespace, *found.values()) for resource in each.needs]
    unknown: dict[str, Any] = {"namespace": namespace.value} if namespace.unknown else {}
    return Place(Unknown("namespace") if unknown else named, _reach(target, plain, needs), unknown, needs, problems)


def _reach(target: dict[str, Any], plain: dict[str, Any], needs: Sequence[pulumi.Resource] = ()) -> dynamic.Reach:
    reach = dynamic.Reach(target)
    reach.plain, reach.needs = plain, needs
    return reach


@dataclass(frozen=True)
class _Awaited:
    """value: itself an Output where it is not known."""

    value: Any = field(repr=False)
    secret: bool = False
    unknown: bool = False
    needs: frozenset[pulumi.Resource] = frozenset()


async def _awaited(given: Any) -> _Awaited:
    if not isinstance(given, pulumi.Output):
        return _Awaited(given)
    value = await given.future(with_unknowns=True)
    needs, secret = frozenset(await given.resources()), await given.is_secret()
    if not await given.is_known() or pulumi.output.contains_unknowns(value):
        return _Awaited(given, secret, True, needs)
    return _Awaited(value, secret, False, needs)


def _of_provider(provider: pulumi.ProviderResource, name: str) -> Any:
    """An input of a provider: it has them as Outputs, though not declared. Its kubeconfig may be a path or a content."""
    return provider.__dict__.get(name) if name != "content" else None


def _project() -> Path:
    """The folder of Pulumi.yaml: the program may run in a folder below it."""
    here = Path.cwd()
    names = ("Pulumi.yaml", "Pulumi.yml")
    return next((f for f in (here, *here.parents) if any((f / n).is_file() for n in names)), here)


_providers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, pulumi.ProviderResource]] = WeakKeyDictionary()


def provider(place: Place) -> pulumi.ProviderResource | None:
    """The provider of pulumi-kubernetes for a cluster, one for all objects that a program makes there; None: the default one,
    which reads what kubectl reads."""
    given = {k: place.target[k] for k in ("kubeconfig", "context", "content") if k in place.target}
    if not given:
        return None
    providers = _providers.setdefault(asyncio.get_event_loop(), {})
    at = str(sorted((k, v if isinstance(v, str) else "") for k, v in place.target.plain.items() if k in given))
    if at not in providers:
        name = "cluster" if not providers else f"cluster-{len(providers) + 1}"
        kubeconfig = given.get("content", given.get("kubeconfig"))
        props = {"kubeconfig": kubeconfig, "context": given.get("context")}
        providers[at] = pulumi.ProviderResource(
            "kubernetes", name, props, pulumi.ResourceOptions(version=plugin_version())
        )
    return providers[at]


def plugin_version() -> str:
    """Of pulumi-kubernetes, whose version is that of its plugin; empty: it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # a job alone does not need it

    try:
        return version("pulumi_kubernetes")
    except PackageNotFoundError:
        return ""


def without_plugin() -> list[Problem]:
    """That objects which are no jobs cannot be made here."""
    return missing("pulumi_kubernetes")
