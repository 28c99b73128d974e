"""Plugins for frameworks that a program registers, and their policies in its runtimes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pulumi_trainer.program import session
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission.document_checks import document_problems
from pulumi_trainer.provider.trainer.pipeline import Release, registry
from pulumi_trainer.provider.trainer.pipeline.interface import Plugin


def register_plugin(plugin: Plugin) -> None:
    """Add a framework for all jobs of this program: an object with the phases of `pulumi_trainer.plugins`.

    Problems (no phase, a name or a policy that is taken) are reported at the end of the program.
    """
    site = session.call_site()
    try:
        registry.register_plugin(plugin)
    except TrainerError as error:
        session.current().add_problems(problems_below(f"register_plugin ({site})", error.problems))


def runtime_problems(document: dict[str, Any], release: Release) -> list[Problem]:
    """Return the problems of a runtime, including policies of plugins."""
    findings = Findings()
    rest = document.get("spec")
    try:
        if isinstance(rest, dict):
            rest, _ = registry.split_own_policies(rest, release.plugins, findings)
    except TrainerError as error:
        return list(error.problems)
    found = document_problems({**document, "spec": rest}, release)
    return [*findings.problems, *map(_with_plugin, found)]


def policy_names(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a runtime with the API's names in the policies of plugins; their classes know these names."""
    try:
        policies = registry.own_policies(spec)
    except TrainerError:  # `review` reports a package that is broken
        return spec
    for policy in policies.values():
        part, name = policy.parts()
        given = spec.get(part)
        if isinstance(given, dict) and name in given:
            spec = {**spec, part: {**given, name: policy.api_names(given[name])}}
    return spec


def _with_plugin(problem: Problem) -> Problem:
    """Return a problem with a hint to register a plugin, if the problem is an unknown policy."""
    if re.fullmatch(r"spec\.(ml|podGroup)Policy\.\w+", problem.where) and problem.why == "unknown field":
        return replace(problem, hint=f"{problem.hint}; a plugin's own policy needs register_plugin(...)")
    return problem
