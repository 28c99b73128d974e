"""The registry of plugins: built-in ones, those of installed packages, and those that a program has registered.

Frameworks that Kubeflow Trainer does not have are plugins of this package, which are loaded for runtimes with their policies.

Plugins outside this package are validated when they are loaded, and problems name the plugin.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section, without
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.pipeline import interface
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob
from pulumi_trainer.provider.trainer.pipeline.interface import Plugin
from pulumi_trainer.provider.trainer.pipeline.plugins import BUILT_IN

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pulumi_trainer.provider.trainer.pipeline.policy import Policy

GROUP = "pulumi_trainer.plugins"
"""Entry points of packages with plugins: each names a plugin, or its class."""

PHASES: Mapping[str, Any] = {
    "validate": interface.CustomValidationPlugin,
    "enforce_ml_policy": interface.EnforceMLPolicyPlugin,
    "enforce_pod_group_policy": interface.EnforcePodGroupPolicyPlugin,
    "enforce_pod_spec": interface.EnforcePodSpecPlugin,
    "pre_build_sync": interface.PreComponentBuilderPlugin,
    "build": interface.ComponentBuilderPlugin,
}
"""Method -> protocol, in the order in which the phases run."""

SHIPPED = ("paddle", "tensorflow")
"""Policies of `spec.mlPolicy` that Kubeflow Trainer does not have, and plugins of this package implement."""

_registered: list[Plugin] = []


def register_plugin(plugin: Plugin) -> None:
    """Add a plugin for everything that this process renders afterwards; `interface` has the phases.

    Registering the same plugin again (equal class and attributes) changes nothing.

    Raises:
        Invalid: It is not a valid plugin, or its name or one of its policies is taken.
    """
    if any(_identity(p) == _identity(plugin) for p in _packaged()):
        return
    same = [p for p in _registered if _identity(p) == _identity(plugin)]
    others = [p for p in (*BUILT_IN, *_shipped(), *_packaged(), *_registered) if p not in same]
    found = [*_faults(plugin, others)]
    if found:
        raise Invalid(*found)
    _registered[:] = [*(p for p in _registered if p not in same), plugin]


def own_plugins() -> tuple[Plugin, ...]:
    """Return the users' plugins: of packages by the names of their entry points, then as registered."""
    return (*_packaged(), *_registered)


def _plugins_for(ml_policy: Any) -> tuple[Plugin, ...]:
    """Return the plugins that are not part of Kubeflow Trainer: this package's only for a runtime with their policies."""
    if isinstance(ml_policy, dict) and any(ml_policy.get(name) is not None for name in SHIPPED):
        return (*_shipped(), *own_plugins())
    return own_plugins()


@cache
def _shipped() -> tuple[Plugin, ...]:
    """Return the plugins of this package; they need pydantic, which takes a moment to load."""
    from pulumi_trainer.provider.trainer.pipeline.plugins.paddle import Paddle
    from pulumi_trainer.provider.trainer.pipeline.plugins.tensorflow import TensorFlow

    return (Paddle(), TensorFlow())


def own_policies(spec: Mapping[str, Any]) -> dict[str, type[Policy]]:
    """Return the policies of a runtime's spec that plugins add to those of Kubeflow Trainer, by their places: `mlPolicy.ray`.

    Policies of users' plugins are there also if the spec does not have them.
    """
    found: dict[str, type[Policy]] = {}
    for plugin in _plugins_for(spec.get("mlPolicy")):
        for policy in plugin.policies:
            if not isinstance(policy, str):
                found[policy.serves] = policy
    return found


def split_own_policies(
    spec: dict[str, Any], plugins: Sequence[Plugin], findings: Findings
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a runtime's spec without the policies of `own_policies`, and these policies by part of the spec."""
    rest = dict(spec)
    own: dict[str, dict[str, Any]] = {}
    for place, policy in own_policies(spec).items():
        part, name = policy.parts()
        given = rest.get(part)
        if not isinstance(given, dict) or given.get(name) is None:
            continue
        rest[part] = without(given, name)
        own.setdefault(part, {})[name] = copy.deepcopy(given[name])
        findings.problems += policy.problems(given[name])
        others = [key for key in rest[part] if f"{part}.{key}" in served_policies(plugins)]
        if others:
            why = f"conflicts with {' and '.join(others)}: a runtime has one policy"
            findings.problems.append(Problem(f"spec.{place}", why))
    return rest, own


def reject_own_policies(info: Info, mode: str) -> None:
    """Raise Invalid for policies of users' plugins in mode trainer.

    The CRD in the cluster would drop them, and the controller run the job without them.
    """
    if mode != "trainer":
        return
    found = own_policy_problems({"mlPolicy": info.ml_policy or {}, "podGroupPolicy": info.pod_group_policy or {}})
    if found:
        raise Invalid(*found)


def own_policy_problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each policy of a user's plugin in a runtime's spec that goes to Kubeflow Trainer."""
    why = "is a plugin's own policy, which Kubeflow Trainer does not know"
    found: list[Problem] = []
    for place, policy in own_policies(spec).items():
        part, name = policy.parts()
        if name in section(spec, part):
            found.append(Problem(f"spec.{place}", why, "use mode jobset"))
    return found


def served_policies(plugins: Sequence[Plugin]) -> list[str]:
    """Return the places of all policies that a plugin implements: the built-in ones of a release, this package's, and users'."""
    found = map(_place, chain.from_iterable(plugin.policies for plugin in (*plugins, *own_plugins())))
    return sorted([*found, *(f"mlPolicy.{name}" for name in SHIPPED)])


def launcher(framework: str) -> tuple[str, ...] | None:
    """Return the command that starts user code, if a user's plugin defines one for the framework of its `mlPolicy`; else None."""
    for plugin in own_plugins():
        if f"mlPolicy.{framework}" in map(_place, plugin.policies):
            return tuple(getattr(plugin, "launcher", ())) or None
    return None


def run(phase: str, info: Info, job: TrainJob, plugins: Sequence[Plugin]) -> Iterator[Any]:
    """Yield the results of a phase's plugins, one after the other; iterate also over phases without results.

    The built-in `plugins` of a release come first, so that users' plugins find counts and host names. The JobSet is built last:
    objects that its Pods mount come before it, and a builder may still change Pod sets.
    """
    builtin, added, own = list(plugins), _plugins_for(info.ml_policy), list(own_plugins())
    order = [*builtin, *added]
    if phase == "build":
        order = [*builtin[:-1], *added, builtin[-1]]
    built: dict[str, str] = {}
    for plugin in order:
        if not hasattr(plugin, phase):
            continue
        results = _results(plugin, phase, info, job, own)
        if phase == "build":
            _record(built, plugin, results)
        yield from results


def _record(built: dict[str, str], plugin: Plugin, documents: list[dict[str, Any]]) -> None:
    """Add the objects of a plugin to those built before; raise Invalid for an object of another plugin."""
    for document in documents:
        name = f"{document['kind']}/{document['metadata']['name']}"
        key = f"{document['apiVersion']}/{name}"
        if key in built:
            raise Invalid(Problem(name, f"is created twice, by plugin {built[key]} and by plugin {plugin.name}"))
        built[key] = plugin.name


def _results(plugin: Plugin, phase: str, info: Info, job: TrainJob, own: list[Plugin]) -> list[Any]:
    if not own:
        return list(getattr(plugin, phase)(info, job) or ())
    try:
        results = list(getattr(plugin, phase)(info, job) or ())
    except TrainerError:
        raise
    except Exception as error:
        raise Invalid(_fault(plugin, phase, error, own)) from error
    if plugin in own:
        wrong = [r for r in results if not _fits(phase, r)]
        if wrong:
            wanted = {"validate": "problems", "build": "objects with apiVersion, kind and metadata.name"}
            why = f"{phase} returns {type(wrong[0]).__name__}, but must return {wanted.get(phase, 'nothing')}"
            raise Invalid(_problem(plugin, why))
    return results


def _fits(phase: str, result: Any) -> bool:
    if phase == "validate":
        return isinstance(result, Problem)
    if phase != "build" or not isinstance(result, dict):
        return False
    metadata = result.get("metadata")
    if not isinstance(metadata, dict):
        return False
    texts = (result.get("apiVersion"), result.get("kind"), metadata.get("name"))
    return all(isinstance(text, str) and text for text in texts)


def _fault(plugin: Plugin, phase: str, error: Exception, own: list[Plugin]) -> Problem:
    file, line = _innermost_line(plugin, error)
    why = f"{phase} failed: {type(error).__name__}: {error} ({Path(file).name}:{line})"
    if plugin in own:
        return _problem(plugin, why, "report this to the author of the plugin")
    names = ", ".join(p.name for p in own)
    return _problem(
        plugin, why, f"the plugin is built in, but ran together with {names}, which may have left wrong values"
    )


def _innermost_line(plugin: Plugin, error: Exception) -> tuple[str, int]:
    """Return file and line of the innermost frame in the plugin's own module; of the innermost frame if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    home = getattr(inspect.getmodule(type(plugin)), "__file__", None)
    for file, line in reversed(frames):
        if file == home:
            return file, line
    return frames[-1]


def _packaged() -> tuple[Plugin, ...]:
    plugins, found = _load()
    if found:
        raise Invalid(*found)
    return plugins


@cache
def _load() -> tuple[tuple[Plugin, ...], tuple[Problem, ...]]:
    """Return the plugins of installed packages, and their problems. Cached, as it takes some milliseconds."""
    from importlib.metadata import entry_points

    plugins: list[Plugin] = []
    found: list[Problem] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            plugin: Any = entry.load()
            if inspect.isclass(plugin):
                plugin = plugin()
        except Exception as error:
            found.append(_packaged_fault(entry, Problem("", f"cannot be imported: {type(error).__name__}: {error}")))
            continue
        faults = [*_faults(plugin, [*BUILT_IN, *_shipped(), *plugins])]
        found += [_packaged_fault(entry, fault) for fault in faults]
        if not faults:
            plugins.append(plugin)
    return tuple(plugins), tuple(found)


def _packaged_fault(entry: EntryPoint, fault: Problem) -> Problem:
    package = "a package"
    if entry.dist:
        package = f"package {entry.dist.name} {entry.dist.version}"
    why = f"{package}: entry point {entry.name} = {entry.value}: {fault.why}"
    return replace(fault, why=why, hint=fault.hint or "uninstall it")


def _faults(plugin: Any, others: Iterable[Plugin]) -> Iterator[Problem]:
    """Yield why an object is not a valid plugin, or conflicts with other plugins."""
    if inspect.isclass(plugin):
        yield _problem(plugin, "is a class", f"give an instance: {plugin.__name__}()")
        return
    if not isinstance(getattr(plugin, "name", None), str) or not plugin.name:
        yield _problem(plugin, "has no name", "set its attribute name to a string")
    yield from _phase_faults(plugin)
    launcher = getattr(plugin, "launcher", ())
    if not isinstance(launcher, tuple) or not all(isinstance(word, str) for word in launcher):
        yield _problem(plugin, "launcher must be a tuple of strings, such as ('python3',)")
    policies = getattr(plugin, "policies", None)
    if not isinstance(policies, tuple):
        yield _problem(plugin, "has no attribute policies", "set policies to a tuple; () if the plugin has no policies")
        return
    for policy in policies:
        yield from _policy_faults(plugin, policy)
    for other in others:
        if other.name == getattr(plugin, "name", None):
            yield _problem(plugin, f"another plugin has this name: {_home(other)}", "give it another name")
        for place in {*map(_place, policies)} & {*map(_place, other.policies)}:
            yield _problem(plugin, f"the policy {place} is already served by plugin {other.name}, {_home(other)}")


def _phase_faults(plugin: Any) -> Iterator[Problem]:
    methods = [phase for phase in PHASES if hasattr(plugin, phase)]
    if not methods:
        near = [n for n in dir(plugin) if difflib.get_close_matches(n, PHASES, n=1, cutoff=0.8)]
        why = f"implements no phase: it has none of the methods {', '.join(PHASES)}"
        hint = ""
        if near:
            hint = f"it has {near[0]}"
        yield _problem(plugin, why, hint)
    for phase in methods:
        method = getattr(plugin, phase)
        if getattr(type(plugin), phase, None) is getattr(PHASES[phase], phase):
            yield _problem(plugin, f"is a {PHASES[phase].__name__}, but lacks its method {phase}")
        elif not callable(method) or not _takes_two(method):
            yield _problem(plugin, f"{phase} must be a method that takes info and train_job")


def _takes_two(method: Any) -> bool:
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a signature that cannot be read
        return True
    return not inspect.iscoroutinefunction(method)


def _policy_faults(plugin: Any, policy: Any) -> Iterator[Problem]:
    from pulumi_trainer.provider.trainer.pipeline.policy import Policy
    from pydantic import PydanticUserError  # loaded for those who have policies of their own only

    if not inspect.isclass(policy) or not issubclass(policy, Policy):
        hint = "derive a class from Policy, and name the class in policies"
        yield _problem(plugin, f"{policy!r} in policies is not a subclass of Policy", hint)
        return
    part, name = policy.parts()
    if part not in ("mlPolicy", "podGroupPolicy") or not _NAME.fullmatch(name):
        why = f"{policy.__name__}.serves must be mlPolicy.NAME or podGroupPolicy.NAME, not {policy.serves!r}"
        yield _problem(plugin, why, "NAME is one word in camelCase")
    elif policy.serves == "mlPolicy.numNodes":
        yield _problem(plugin, f"{policy.serves} is a field of Kubeflow Trainer", "choose another name")
    try:
        policy.model_rebuild()
    except (NameError, TypeError, PydanticUserError) as error:
        yield _problem(plugin, f"{policy.__name__} is not fully defined: {str(error).partition(';')[0]}")


_NAME = re.compile(r"[a-z][A-Za-z0-9]{0,62}")


def _identity(plugin: Any) -> Any:
    kind = type(plugin)
    return kind.__module__, kind.__qualname__, getattr(plugin, "__dict__", None)


def _place(policy: str | type[Policy]) -> str:
    if isinstance(policy, str):
        return policy
    return policy.serves


def _problem(plugin: Any, why: str, hint: str = "") -> Problem:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        kind = plugin if inspect.isclass(plugin) else type(plugin)
        name = kind.__name__
    return Problem("", f"plugin {name}: {why}", hint)


def _home(plugin: Any) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"
