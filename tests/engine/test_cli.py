"""`pulumi-trainer` for the jobs of the current stack."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from pulumi_trainer import runtimes

from .conftest import Project, eventually
from .test_faults import FAILING
from .test_jobs import LONG, QUICK


def cli(project: Project, *args: str, timeout: float = 60, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["pulumi-trainer", *args], cwd=cwd or project.folder, env={**project.environment, "COLUMNS": "200"}, text=True,
        capture_output=True, timeout=timeout, check=False,
    )  # fmt: skip


@pytest.mark.core
def test_status_logs_and_render(project: Project) -> None:
    project.program(QUICK)
    project.up()
    status = cli(project, "status", "--stack", "test")
    assert status.returncode == 0 and "quick" in status.stdout and "Succeeded" in status.stdout
    (job,) = json.loads(cli(project, "status", "-o", "json", "--stack", "test").stdout)
    assert job["phase"] == "Succeeded" and job["progress"]["progressPercentage"] == 100
    for args in (["logs"], ["logs", "quick", "--step", "node"], ["logs", "-f"]):
        logs = cli(project, *args, "--stack", "test")
        assert logs.returncode == 0 and logs.stdout.count("hello $HOME `id`") == 2, logs
    wrong = cli(project, "logs", "--step", "launcher", "--stack", "test")
    assert (
        wrong.returncode == 1 and wrong.stdout == "" and "has no step launcher. Hint: available: node" in wrong.stderr
    ), wrong
    wrong = cli(project, "logs", "--rank", "9", "--stack", "test")
    assert wrong.returncode == 1 and wrong.stdout == "", wrong
    assert (
        " has no node 9. Hint: available: 0 and 1; --rank takes a node, or NODE.PROCESS such as 1.1" in wrong.stderr
    ), wrong
    wrong = cli(project, "logs", "--rank", "0.1", "--stack", "test")
    assert wrong.returncode == 1 and wrong.stdout == "", wrong
    assert "its lines name no process; `--rank 0` shows them" in wrong.stderr, wrong
    rendered = list(yaml.safe_load_all(cli(project, "render", "--stack", "test").stdout))
    assert {o["kind"] for o in rendered} == {"JobSet", "ConfigMap"}
    wrong = cli(project, "status", "nothing", "--stack", "test")
    assert wrong.returncode == 1 and "nothing: no such job in the stack. Hint: available: quick" in wrong.stderr


def test_commands_say_what_they_need_of_pulumi(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    project.program("")
    wrong = cli(project, "doctor", "--stack", "nosuch")
    assert "no stack named 'nosuch' found. Hint: `pulumi stack ls` lists the stacks" in wrong.stderr, wrong
    for args in (["doctor"], ["render", "digits"]):
        nowhere = cli(project, *args, cwd=tmp_path_factory.mktemp("nowhere"))
        assert nowhere.stderr.startswith(
            "error: no Pulumi.yaml in this folder or above. Hint: run the command in the folder of a Pulumi project"
        ), nowhere
        assert nowhere.returncode == 1 and nowhere.stderr.count("\n") == 1


def test_status_of_a_failed_job_tells_why(project: Project) -> None:
    project.program(FAILING)
    project.up(ok=False)
    status = cli(project, "status", "--stack", "test")
    assert "Failed" in status.stdout and "ValueError: the data is bad" in status.stdout
    lines = status.stdout.splitlines()
    start = lines.index("  Traceback (most recent call last):")
    raised = 'raise ValueError("the data is bad")'
    written = (project.folder / "__main__.py").read_text().splitlines()
    place = f'    File "__main__.py", line {written.index(" " * 8 + raised) + 1}, in work'
    assert lines[start + 1 : start + 4] == [place, f"      {raised}", "  ValueError: the data is bad"]
    assert ", in <module>" not in status.stdout


def test_following_ends_with_the_job(project: Project) -> None:
    project.program(
        LONG.replace("time.sleep(600)", "time.sleep(3); print('over')").replace(
            'wait_for="running"', 'wait_for="created"'
        )
    )
    project.up()
    followed = cli(project, "logs", "-f", "--stack", "test")
    assert "started" in followed.stdout and "over" in followed.stdout


def test_render_of_documents_needs_no_stack(project: Project) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mine", "namespace": "team"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}},
    }
    file = project.folder / "job.yaml"
    file.write_text(yaml.safe_dump_all([runtimes.load("torch-distributed"), job]))
    (jobset,) = list(yaml.safe_load_all(cli(project, "render", "job.yaml").stdout))
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 3
    job["spec"]["trainer"]["numNode"] = 3  # type: ignore[index]
    file.write_text(yaml.safe_dump(job))
    wrong = cli(project, "render", "job.yaml")
    assert wrong.returncode == 1 and "did you mean numNodes?" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.parametrize("content", ["a: [", "- 1", "\ta: 1"])
def test_files_that_are_no_documents(project: Project, content: str) -> None:
    (project.folder / "job.yaml").write_text(content)
    wrong = cli(project, "render", "job.yaml")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
    assert "job.yaml" in wrong.stderr and "Traceback" not in wrong.stderr


def test_a_plan_that_ends_a_suspended_job_says_since_when_it_is_suspended(project: Project) -> None:
    project.program(LONG)
    project.up()
    assert cli(project, "suspend", "long", "-s", "test").returncode == 0
    status = eventually(lambda: (found := project.job("long")).phase == "Suspended" and found)
    ended = datetime.fromtimestamp(status.attempts[-1].finished, timezone.utc)
    since = f"is Suspended since {ended:%Y-%m-%d %H:%M:%S} UTC"
    project.program(LONG.replace('"long", runtime', '"long", run="2", runtime'))
    assert since in (refused := project.preview(ok=False).out), refused
    project.program(LONG.replace('"long", runtime', '"long", run="2", interrupt="allow", runtime'))
    assert f"{since}, and this change ends it" in (told := project.preview().out), told
