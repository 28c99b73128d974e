"""`pulumi-trainer report` of what the real `pulumi preview --json` prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.documented import blocks
from tests.unit.test_start_answers import kueue, team, workload

from .conftest import HEAD, Project
from .test_cli import cli
from .test_cluster_refusals import KUEUE, Api, api  # noqa: F401

JOBS = """
STAGE = pulumi.Config().require("stage")
def work(text: str = ""):
    print(text)

def job(name, **given):
    trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work, **given))

job("kept")
job("changed", func_args={"text": STAGE})
if STAGE == "one":
    job("gone")
else:
    job("fresh", num_nodes=2, env={"TOKEN": pulumi.Config().require_secret("token")})
if STAGE == "refused":
    job("plain-secret", env={"PASSWORD": "hunter22"})
"""


def report(project: Project, preview: str, *options: str) -> subprocess.CompletedProcess[str]:
    (project.folder / "preview.json").write_text(preview)
    return cli(project, "report", "preview.json", *options)


def line_of_jobs() -> int:
    """The line of the program on which a function makes all jobs."""
    return next(at for at, line in enumerate((HEAD + JOBS).splitlines(), 1) if "trainer.TrainJob(name" in line)


def test_a_report_of_new_replaced_deleted_unchanged_and_refused_jobs(project: Project) -> None:
    project.program(JOBS)
    project.config("token", "hf_abcdef", "--secret")
    project.config("stage", "one")
    project.up()
    project.config("stage", "two")
    place = f"`__main__.py:{line_of_jobs()}`"
    made = report(project, project.preview("--json", "--show-sames").out, "--fail-on", "refused,never,preempts")
    assert made.returncode == 0, made
    rows = made.stdout.splitlines()
    assert rows[0] == "### Jobs of `lab/test`: 1 new, 1 replaced, 1 deleted, 1 unchanged", made
    assert f"- new `fresh` ({place})" in rows and "- deleted `gone`" in rows and "- unchanged `kept`" in rows, made
    changed = f'- replaced `changed` ({place}): `arguments {{"text": "one"}} -> {{"text": "two"}}'
    assert [row for row in rows if row.startswith(changed)], made
    assert "hf_abcdef" not in made.stdout and not re.search(r"warning|refused", made.stdout)

    hidden = report(project, project.preview("--json").out).stdout
    assert "1 deleted, unchanged jobs not counted (`--show-sames` adds them)" in hidden and "kept" not in hidden

    project.config("stage", "refused")
    refused = report(project, project.preview("--json", ok=False).out, "--fail-on", "refused")
    assert refused.returncode == 1 and refused.stderr == "error: --fail-on: 1 refused\n", refused
    assert '- **refused** `TrainJob("plain-secret") (__main__.py:' in refused.stdout, refused
    assert "hunter22" not in refused.stdout


QUEUED = """
def work():
    pass
for name, gpus in {"urgent": 8, "huge": 64}.items():
    trainer.TrainJob(name, runtime="torch-distributed", queue="gpus", priority="high", wait_for="created",
        trainer=trainer.CustomTrainer(func=work, num_nodes=2, resources_per_node={"nvidia.com/gpu": gpus}))
"""


def test_a_report_of_jobs_in_queues(project: Project, api: Api) -> None:  # noqa: F811
    queue, local = team("rl", 16, preemption={"withinClusterQueue": "LowerPriority"}, namespaceSelector={})
    running = workload("rl", "grpo-7", 16, "2026-11-01T10:00:00Z")
    running["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "grpo-7", "uid": "u", "controller": True}]
    api.objects = {
        f"{KUEUE}/clusterqueues": [queue], f"{KUEUE}/localqueues": [local], f"{KUEUE}/namespaces/rl/localqueues": [local],
        f"{KUEUE}/resourceflavors": [kueue("ResourceFlavor", "h100", spec={})], f"{KUEUE}/workloads": [running],
        f"{KUEUE}/workloadpriorityclasses": [kueue("WorkloadPriorityClass", "high", value=100)],
    }  # fmt: skip
    project.program(QUEUED, "import pulumi\nimport pulumi_trainer as trainer\n")
    project.config("trainer:namespace", "rl")
    made = report(project, project.preview("--json").out, "--fail-on", "never,preempts,refused")
    assert made.returncode == 1 and made.stderr == "error: --fail-on: 1 never, 1 preempts\n", made
    assert ": 2 new" in made.stdout and "GPUs: 144 new" in made.stdout, made
    assert "- **never starts** `huge` (`__main__.py:7`): `PT203: queue: it requests more" in made.stdout, made
    preempts = "- new `urgent` (`__main__.py:7`): 16 GPUs; **`preempts rl/grpo-7 (priority 0) in gpus-rl"
    assert preempts in made.stdout and "- new `huge` (`__main__.py:7`): 128 GPUs\n" in made.stdout, made
    assert len(made.stdout.partition("<details>")[0].splitlines()) <= 20


GITHUB, GITLAB = (yaml.safe_load(block.text) for block in blocks("docs/guides/ci.md", __file__))
SCRIPTS = {"github": GITHUB["jobs"]["report"]["steps"][-1]["run"], "gitlab": "\n".join(GITLAB["plan"]["script"][1:])}
"""What the workflows of the docs run after they have installed packages."""
POST = """#!/bin/sh
printf '%s\\n' "$@" > "$POSTED"
"""


@pytest.mark.parametrize("where", SCRIPTS)
def test_the_workflows_of_the_docs(where: str, project: Project, tmp_path: Path) -> None:
    project.program(JOBS)
    project.config("token", "hf_abcdef", "--secret")
    project.config("stage", "two")
    for name in ("gh", "curl"):
        (tmp_path / name).write_text(POST)
        (tmp_path / name).chmod(0o755)
    env = {
        **project.environment, "PATH": f"{tmp_path}:{project.environment['PATH']}", "POSTED": str(tmp_path / "posted"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "PULL_REQUEST": "https://github.com/acme/nlp/pull/7",
    }  # fmt: skip

    def run() -> int:
        done = subprocess.run(
            ["bash", "-e", "-c", SCRIPTS[where]], cwd=project.folder, env=env, timeout=300, check=False
        )
        return done.returncode

    assert run() == 0
    assert "### Jobs of `lab/test`: 3 new" in (project.folder / "report.md").read_text()
    assert "report.md" in (tmp_path / "posted").read_text()
    project.config("stage", "refused")
    (tmp_path / "posted").unlink()
    assert run() == 1
    assert "**1 refused**" in (project.folder / "report.md").read_text() and (tmp_path / "posted").exists()
