"""What the rules of the platform team, in the file of the stack's configuration `trainer:policy`, say of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pulumi
from pulumi_trainer.plan.job_plan import StepResult
from pulumi_trainer.program import session
from pulumi_trainer.program.targets import project_folder
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.trainer.policy.reading import read_rules
from pulumi_trainer.provider.trainer.policy.rules import JobRules, find_beyond_team, find_broken

_ARGUMENTS = {
    "gpus": "trainer.resources_per_node",
    "queue": "queue",
    "checkpoints": "checkpoint",
    "runtime": "runtime",
    "channel": "runtime",
}


def judge_by_policy(summary: Mapping[str, Any], cluster: str, namespace: Any, name: str) -> StepResult:
    """Return the rules that a job breaks, as problems or as warnings; nothing without `trainer:policy`.

    Args:
        cluster: As `targets.cluster_key` returns it; empty for that of the stack, or this machine.
    """
    given = pulumi.Config("trainer").get("policy")
    if not given:
        return StepResult()
    path = project_folder() / given
    try:
        rules = _read(path, path.stat().st_mtime_ns if path.exists() else 0)
    except Invalid as error:
        hint = "pulumi config set trainer:policy FILE, below the project's folder"
        return StepResult(
            problems=[Problem("", f"trainer:policy of the stack: {p}", p.hint or hint) for p in error.problems]
        )
    found = [*_broken_problems(rules, summary, given)]
    found += _team_problems(rules, summary, (cluster, text(namespace)), name, given)
    return StepResult(warnings=found) if rules.action == "warn" else StepResult(problems=found)


@lru_cache(maxsize=8)
def _read(path: Path, _: int) -> JobRules:
    """Return the rules of a file, which are read again after a change. _: When it was changed."""
    return read_rules(path)


def _broken_problems(rules: JobRules, summary: Mapping[str, Any], file: str) -> Iterator[Problem]:
    for broken in find_broken(rules, summary):
        yield Problem(_ARGUMENTS.get(broken.where, ""), f"{broken.why} ({broken.rule} of {file})", broken.hint)


def _team_problems(
    rules: JobRules, summary: Mapping[str, Any], place: tuple[str, str], name: str, file: str
) -> Iterator[Problem]:
    """Yield that the jobs of a namespace which are planned so far have too many GPUs together."""
    gpus = summary.get("gpus")
    if isinstance(gpus, int):
        together = session.current().gpus_of_jobs.setdefault(place, {})
        together[name] = gpus
        for why in find_beyond_team(rules, {place[1]: sum(together.values())}).values():
            yield Problem(_ARGUMENTS["gpus"], f"{why} (teamGpus of {file})", "fewer GPUs")
