"""Rules about settings that a job or its runtime gives twice, of which one wins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import short_repr
from pulumi_trainer.provider.trainer.admission.warnings.view import View, number
from pulumi_trainer.provider.trainer.pipeline.plugins import torchtune
from pulumi_trainer.provider.trainer.pipeline.plugins.jobset import STORAGE_URI

_ONE_OF_THEM = "leave one of the two out"
_TORCHRUN = re.compile(r"(.*/)?torchrun|torch\.distributed\.(run|launch)")
_WITHOUT_VALUE = ("--standalone", "--no-python", "--run-path")
"""Options of torchrun that no value follows."""
PROCESSES = "--nproc-per-node"
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|PAT(_|$)", re.IGNORECASE)
"""Names of variables whose values no message shows."""


def two_values(view: View) -> Iterator[Problem]:
    """Yield settings with two values, of which the one that is seldom looked at wins."""
    yield from _storage_uris(view)
    yield from _options_of_torchrun(view)
    yield from _overrides_of_torchtune(view)


def _storage_uris(view: View) -> Iterator[Problem]:
    """Yield initializers whose env has a STORAGE_URI: Trainer writes env over storageUri.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/builder.go
    """
    for kind in ("dataset", "model"):
        source = section(view.train_job, "spec", "initializer", kind)
        uri = source.get("storageUri")
        for variable in items(source, "env"):
            if variable.get("name") == STORAGE_URI and isinstance(uri, str) and _differs(variable, uri):
                why = f"is {hide_credentials(uri)}, and {STORAGE_URI} in env is {_shown(variable)}: env wins"
                yield Problem(f"spec.initializer.{kind}.storageUri", why, f"leave {STORAGE_URI} out of env")


def _options_of_torchrun(view: View) -> Iterator[Problem]:
    """Yield options of torchrun with another value than that of the job, which torchrun reads from PET_* variables."""
    if not view.has_policy("torch"):
        return
    options = torchrun_options(view)
    nodes, given = options.get("--nnodes", ""), view.nodes
    least, _, most = nodes.partition(":")
    if given is not None and re.fullmatch(r"\d+(:\d+)?", nodes) and not int(least) <= given <= int(most or least):
        why = f"torchrun gets --nnodes={nodes}, but the job has {given} nodes (numNodes): the option wins"
        yield Problem("spec.trainer.command", why, "leave the option out: torchrun reads the number from PET_NNODES")
    option, processes = options.get(PROCESSES, ""), number((view.trainer or {}).get("numProcPerNode"))
    if processes is not None and option.isdecimal() and int(option) != processes:
        why = f"is {processes}, but torchrun gets --nproc-per-node={option}: the option wins"
        yield Problem("spec.trainer.numProcPerNode", why, _ONE_OF_THEM)


def torchrun_options(view: View) -> dict[str, str]:
    """Return the options of torchrun in the command of a job, without those of the program that it starts."""
    found: dict[str, str] = {}
    words = " ".join(view.words or ()).split()
    start = next((place for place, word in enumerate(words) if _TORCHRUN.fullmatch(word)), len(words))
    rest = iter(words[start + 1 :])
    for word in rest:
        option, equals, value = word.partition("=")
        name = option.replace("_", "-")
        if not name.startswith("--") or name == "--module":
            break
        if name not in _WITHOUT_VALUE:
            if not equals:
                value = next(rest, "")
            found[name] = value
    return found


def _overrides_of_torchtune(view: View) -> Iterator[Problem]:
    """Yield keys of torchtune's configuration that the arguments of the trainer set twice."""
    words = view.words or []
    if words[:2] != torchtune.COMMAND:
        return
    last: dict[str, str] = {}
    for word in listed((view.trainer or {}).get("args")):
        if not isinstance(word, str):
            continue
        key, equals, value = word.partition("=")
        if equals and last.setdefault(key, value) != value:
            why = f"sets {key} to {short_repr(last[key])} and to {short_repr(value)}: the last one wins"
            yield Problem("spec.trainer.args", why, _ONE_OF_THEM)
            last[key] = value


def overridden_variables(view: View) -> Iterator[Problem]:
    """Yield variables that runtime and job set to other values."""
    trainer = view.first_trainer
    if trainer is None:
        return
    step = next((step for step in view.template if step.name == trainer.name), None)
    if step is None:
        return
    mine = {each.get("name"): each for each in items(view.trainer, "env")}
    for theirs in items(step.node, "env"):
        name = str(theirs.get("name"))
        own = mine.get(name)
        if own is None or first_unknown([own, theirs]) is not None or _shown(own) == _shown(theirs):
            continue
        why = f"{name} is {_shown(own)}, and {_shown(theirs)} in the runtime: the job's value wins"
        if _SECRET.search(name):
            why = f"{name} has another value in the runtime: the job's value wins"
        yield Problem("spec.trainer.env", why, "leave it out for the runtime's value")


def replaced_completions(view: View) -> Iterator[Problem]:
    """Yield completions of a step that Trainer replaces by its number of Pods.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go
    """
    for step in view.template:
        completions, parallelism = number(step.job.get("completions")), step.parallelism
        if completions is not None and parallelism is not None and completions != parallelism:
            why = (
                f"is {completions}, and parallelism is {parallelism}: Trainer gives {step.name} as many completions as"
                " Pods at a time (numNodes for the trainer), so this number has no effect"
            )
            yield Problem(f"{step.at}.template.spec.completions", why, "leave it out, or give both the same number")


def _differs(variable: dict[str, Any], value: str) -> bool:
    return first_unknown(variable) is None and variable.get("value") != value


def _shown(variable: dict[str, Any]) -> str:
    """Return the value of a variable for a message."""
    if variable.get("valueFrom") is not None:
        return "a value of another object (valueFrom)"
    value = variable.get("value", "")
    if isinstance(value, str) and "://" in value:
        return hide_credentials(value)
    return short_repr(value)
