"""What the rules of the platform team, in the file of the stack's configuration `trainer:policy`, say of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
from pulumi_trainer.plan.job_plan import StepResult
from pulumi_trainer.program import session
from pulumi_trainer.program.targets import project_folder
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.trainer.policy.reading import read_rules
from pulumi_trainer.provider.trainer.policy.rules import JobRules, find_beyond_team, find_broken

_ARGUMENTS = {
    "gpus": "trainer.resources_per_node",
    "queue": "queue",
    "checkpoints": "checkpoint",
    "runtime": "runtime",
    "channel": "runtime",
}


def judge_by_policy(summary: Mapping[str, Any], namespace: Any) -> StepResult:
    """Return the rules that a job breaks, as problems or as warnings; nothing without `trainer:policy`."""
    given = pulumi.Config("trainer").get("policy")
    if not given:
        return StepResult()
    try:
        rules = _read(project_folder() / given)
    except Invalid as error:
        hint = "pulumi config set trainer:policy FILE, below the project's folder"
        return StepResult(
            problems=[Problem("", f"trainer:policy of the stack: {p}", p.hint or hint) for p in error.problems]
        )
    found = [*_find_problems(rules, summary, namespace, given)]
    return StepResult(warnings=found) if rules.action == "warn" else StepResult(problems=found)


@cache
def _read(path: Path) -> JobRules:
    return read_rules(path)


def _find_problems(rules: JobRules, summary: Mapping[str, Any], namespace: Any, file: str) -> Iterator[Problem]:
    for broken in find_broken(rules, summary):
        yield Problem(_ARGUMENTS.get(broken.where, ""), f"{broken.why} ({broken.rule} of {file})", broken.hint)
    gpus = summary.get("gpus")
    if isinstance(namespace, str) and isinstance(gpus, int):
        together = session.current().gpus_of_namespace
        together[namespace] = together.get(namespace, 0) + gpus
        beyond = find_beyond_team(rules, {namespace: together[namespace]})
        for why in beyond.values():
            yield Problem(_ARGUMENTS["gpus"], f"{why} (team_gpus of {file})", "fewer GPUs")
