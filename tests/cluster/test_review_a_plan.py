"""docs/guides/review-a-plan.md: one plan of the example that moves a channel, takes quota away and starts a job, and what the
real Kueue makes of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.values.accessors import conditions, epoch_seconds, true_condition
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import RELEASE

from tests.documented import Block, blocks
from tests.engine.conftest import Project, pulumi_home  # noqa: F401 (a fixture)

from .conftest import least_user
from .jobs import until
from .test_platform_and_teams import stacks  # noqa: F401 (a fixture)

Document = dict[str, Any]
DIFF, PLAN, URGENT, REPORT, TEAM = blocks("docs/guides/review-a-plan.md", __file__)
NAMES = {
    "sorters": "sorter-17893",
    "large": "sorter-5110f",
    "others": "sorter-6ed4f",
    "next": "sorter-20c4e",
    "trial": "trial-62216",
}
"""What the jobs of the guide are called, by the stack of the team; next: what the team sorters would start."""
SIMULATED = """runtime_patches=[trainer.RuntimePatch(manager="example.com/sim", jobs=[
        trainer.JobPatch(name="node", pod=trainer.PodPatch(annotations={"sim/outcome": "forever"}))])],
    hardening="""
VARIABLE = {
    r"\d\d:\d\d UTC": "TIME", r"\d{4}-\d\d\b": "MONTH", r"has used [\d.,]+": "has used NUMBER", r"__main__\.py:\d+": "LINE"
}  # fmt: skip


@dataclass
class Cluster:
    """The example with jobs of two teams, one of which waits.

    Args:
        namespaces: Namespace by team.
        jobs: Stack and name of each job.
        team: Stack of the team `sorters` without a job so far, with the least role.
    """

    platform: Project
    team: Project
    root: Client
    namespaces: dict[str, str]
    jobs: dict[str, tuple[Project, str]]

    def workloads(self) -> dict[str, Document]:
        """By the name of the job."""
        found = [each for namespace in self.namespaces.values() for each in self.root.list(WORKLOAD, namespace)[0]]
        return {each["metadata"]["ownerReferences"][0]["name"]: each for each in found}

    def having(self, condition: str, *statuses: str) -> set[str]:
        """Jobs whose Workload has a condition. statuses: Default: True."""
        wanted = {(condition, status) for status in statuses or ("True",)}
        found = self.workloads().items()
        return {name for name, each in found if wanted & {(c["type"], c["status"]) for c in conditions(each)}}

    def as_in_the_guide(self, text: str) -> list[str]:
        """The lines of an output with the names of the guide, sorted, without what differs from run to run."""
        for team, namespace in sorted(self.namespaces.items(), key=lambda item: -len(item[1])):
            text = text.replace(namespace, team)
        for stack, (_, name) in self.jobs.items():
            text = text.replace(name, NAMES[stack])
        return lines(re.sub(r"\bplatform([/-])test\b", r"platform\1prod", text))


def lines(text: str) -> list[str]:
    for pattern, name in VARIABLE.items():
        text = re.sub(pattern, name, text)
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def shown(block: Block) -> list[str]:
    """The lines of a block of the guide, whose long ones go on with more indentation, without the command."""
    return lines(re.sub(r"^\$ .*", "", re.sub(r"\n {6,}", " ", block.text)))


def without_plugin(text: str) -> str:
    """Without how this test installs Pulumi's plugin."""
    return "\n".join(line for line in text.splitlines() if "using pulumi-resource-kubernetes from $PATH" not in line)


def messages(preview: str) -> str:
    """What a preview tells, without the resources and outputs."""
    return without_plugin("Diagnostics:\n" + preview.partition("Diagnostics:\n")[2].partition("\nOutputs:")[0])


def apply_diff(file: Path, diff: str) -> None:
    """Change lines as a diff says; lines that replace none come last."""
    text, removed = file.read_text(), ""
    for line in diff.splitlines(keepends=True):
        if line.startswith("-"):
            removed = line[1:]
            assert text.count(removed) == 1, removed
        elif removed:
            text, removed = text.replace(removed, line[1:]), ""
        else:
            text += line[1:] or "\n"
    file.write_text(text)


@pytest.fixture
def example(
    stacks: tuple[Project, Project],  # noqa: F811
    root: Client,
    namespace: str,
    user_kubeconfig: Path,
    admin: ApiClient,
    cluster: Any,
    tmp_path: Path,
) -> Iterator[Cluster]:
    platform, team = stacks
    others = f"{namespace}-others"
    root.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": others}})
    platform.config("others", others)
    platform.up()
    file = team.folder / "__main__.py"
    file.write_text(
        file.read_text().replace("hardening=", SIMULATED).replace('wait_for="complete"', 'wait_for="created"')
    )
    found = Cluster(platform, team, root, {"sorters": namespace, "others": others}, {})
    with least_user(cluster.kubeconfig, admin, others, tmp_path / "kubeconfig-others") as of_others:
        for stack, nodes in (("sorters", "5"), ("others", "3"), ("large", "7")):
            mine = stack == "others"
            made = Project(team.folder, team.home, name=team.name, stack=stack, env=team.env)
            assert made.run("stack", "init").code == 0
            for key, value in {
                "trainer:kubeconfig": str(of_others if mine else user_kubeconfig), "nodes": nodes,
                "trainer:namespace": others if mine else namespace, "team": "others" if mine else "sorters",
                "platform": f"organization/platform/{platform.stack}",
            }.items():  # fmt: skip
                made.config(key, value)
            made.up()
            found.jobs[stack] = (made, made.resources()[0]["inputs"]["name"])
        running = {found.jobs[stack][1] for stack in ("sorters", "others")}
        until(lambda: found.having("Admitted") == running and len(found.workloads()) == 3)
        yield found
        for made, _ in found.jobs.values():
            if made is not platform:
                made.destroy()
        platform.destroy()
    root.delete(NAMESPACE, "", others)


def report(platform: Project) -> str:
    preview = platform.preview("--json", "--show-sames").out
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "report"]
    done = subprocess.run(
        argv, cwd=platform.folder, env=platform.environment, text=True, input=preview, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plan_and_its_report_answer_what_reviewers_ask(example: Cluster) -> None:
    platform, names = example.platform, {stack: name for stack, (_, name) in example.jobs.items()}
    program = platform.folder / "__main__.py"
    apply_diff(program, DIFF.text)
    asked = program.read_text()
    urgent = asked.replace("expected_hours=", 'priority="high", expected_hours=')

    plan = platform.preview().out
    (trial,) = {*re.findall(r"trial-\w{5}\b", plan)}
    example.jobs["trial"] = (platform, trial)
    assert example.as_in_the_guide(messages(plan)) == shown(PLAN)
    admitted = true_condition(conditions(example.workloads()[names["sorters"]]), "QuotaReserved")
    latest = time.gmtime(epoch_seconds(admitted["lastTransitionTime"]) + 2 * 3600)
    assert f"starts at {time.strftime('%H:%M', latest)} UTC at the latest" in plan
    assert example.as_in_the_guide(without_plugin(report(platform))) == shown(REPORT)
    program.write_text(urgent)
    assert {*shown(URGENT)} <= {*example.as_in_the_guide(messages(platform.preview().out))}

    of_team = example.team.preview().out
    (name,) = {*re.findall(r"(sorter-\w{5}): it is", of_team)}
    assert {*shown(TEAM)} <= {*example.as_in_the_guide(messages(of_team).replace(name, NAMES["next"]))}

    program.write_text(asked)
    platform.up()
    (words,) = {*re.findall(r"would never fit: \S+ \((couldn't .*?\))\)", plan)}
    until(lambda: words in json.dumps(example.workloads()[names["large"]]), tell=example.workloads)
    until(lambda: trial in example.workloads() and "more needed" in json.dumps(example.workloads()[trial]))
    assert example.having("Admitted") == {names["sorters"], names["others"]}
    jobs = [each for namespace in example.namespaces.values() for each in example.root.list(JOBSET, namespace)[0]]
    releases = {each["metadata"]["name"]: each["metadata"]["labels"][RELEASE] for each in jobs}
    assert releases == {**dict.fromkeys(names.values(), "1.0.0"), trial: "1.1.0"}

    program.write_text(urgent)
    platform.up()
    until(lambda: trial in example.having("Admitted"), tell=example.workloads)
    assert example.having("Preempted", "False", "True") == {names["sorters"], names["others"]}
