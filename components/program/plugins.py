"""Own frameworks in a program: plugins that it registers, and their policies in its runtimes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pulumi_trainer.program import session
from pulumi_trainer.provider.api import trainer as api
from pulumi_trainer.provider.api.model import problems
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.values.typed import Findings
from pulumi_trainer.provider.pipeline import registry
from pulumi_trainer.provider.pipeline.interface import Plugin


def register_plugin(plugin: Plugin) -> None:
    """Adds a framework of your own: an object with the phases of `pulumi_trainer.plugins`, for all jobs of this program.

    What is wrong with it (no phase, a name or a policy that is taken) is told at the end of the program.
    """
    site = session.call_site()
    try:
        registry.register_plugin(plugin)
    except TrainerError as error:
        session.current().tell(p.below(f"register_plugin ({site})") for p in error.problems)


def runtime_problems(document: dict[str, Any]) -> list[Problem]:
    """What is wrong with a runtime, policies of plugins included."""
    findings = Findings()
    spec = document.get("spec")
    try:
        rest, _ = registry.own_in(spec, findings) if isinstance(spec, dict) else (spec, {})
    except TrainerError as error:
        return list(error.problems)
    found = problems(api.Runtime, {**document, "spec": rest})
    return findings.problems + [_with_plugin(p) for p in found]


def policy_names(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a runtime in which the policies of plugins have the API's names, which their classes know."""
    try:
        policies = registry.own_policies()
    except TrainerError:  # `review` reports a package that is broken
        return spec
    for policy in policies.values():
        part, name = policy.parts()
        given = spec.get(part)
        if isinstance(given, dict) and name in given:
            spec = {**spec, part: {**given, name: policy.api_names(given[name])}}
    return spec


def _with_plugin(problem: Problem) -> Problem:
    """A policy that nobody knows may be one of a plugin that the program has forgotten to register."""
    if re.fullmatch(r"spec\.(ml|podGroup)Policy\.\w+", problem.where) and problem.why == "unknown field":
        return replace(problem, mend=f"{problem.mend}; a plugin's own policy needs register_plugin(...)")
    return problem
