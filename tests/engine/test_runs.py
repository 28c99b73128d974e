"""A run knows its inputs: in its record, its outputs, `status` and `runs`; `rerun_on` says which changes run a job again."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from typing import Any

import pytest

from .conftest import HEAD, Project, eventually

CODE = """
def train(lr, steps=1):
    print("lr", lr)

data = trainer.DatasetInitializer("data", storage_uri="file://data")
trainer.TrainJob("digits", runtime=plain, name="digits", {more}wait_for="complete", output=True,
    initializer=trainer.Initializer(dataset=data),
    trainer=trainer.CustomTrainer(func=train, func_args={{"lr": {lr}}}))
"""


def program(lr: str = "0.1", more: str = "") -> str:
    return CODE.format(lr=lr, more=more)


@pytest.fixture
def data(project: Project) -> Any:
    (project.folder / "data").mkdir()
    file = project.folder / "data" / "a.txt"
    file.write_text("one")
    return file


def cli(project: Project, *arguments: str) -> str:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", *arguments, "-s", project.stack]
    done = subprocess.run(
        argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def logs(project: Project) -> str:
    return "\n".join(file.read_text() for file in project.root.glob("jobs/*/digits/logs/**/*.log"))


@pytest.mark.core
def test_runs_tells_what_differed(project: Project, data: Any) -> None:
    export = 'pulumi.export("inputs", job.run_inputs)\n'
    project.program(program().replace("trainer.TrainJob(", "job = trainer.TrainJob(", 1) + export)
    project.up()
    (status,) = json.loads(cli(project, "status", "digits", "-o", "json"))
    inputs = status["inputs"]
    assert project.outputs()["inputs"] == inputs and status["run"] == "1"
    assert {"code", "arguments", "image", "python", "runtime", "nodes", "dataset"} == {*inputs}
    assert inputs["python"] == platform.python_version()
    assert inputs["arguments"] == '{"lr": 0.1}' and inputs["image"] == "python:3.12"
    (manifest,) = project.root.glob("volumes/*/*/*/.*.run.json")
    assert json.loads(manifest.read_text())["inputs"] == inputs
    (fetched,) = project.root.glob("volumes/*/*/.*.pulumi-trainer.json")
    about = json.loads(fetched.read_text())
    assert inputs["dataset"] == f"{about['uri']} {about['revision']}", "what was fetched, and not what the plan knew"
    project.program(program("0.2"))
    plan = project.preview().out
    assert '/digits: arguments {"lr": 0.1} -> {"lr": 0.2}' in plan, "a plain preview names what has changed"
    project.up()
    shown = cli(project, "runs", "digits")
    heads = [line for line in shown.splitlines() if line[0] != " "]
    assert [re.sub(r"digits \w{6}: ", "", head).partition(", created")[0] for head in heads] == ["Succeeded"] * 2
    assert heads[1].endswith(", started anew"), "what has succeeded is not continued"
    assert '{"lr": 0.1} -> {"lr": 0.2}' in shown, shown
    one, two = (each["id"] for each in json.loads(cli(project, "runs", "digits", "-o", "json")))
    assert "lr 0.1\n" in cli(project, "logs", "digits", "--run", one, "--rank", "0"), "its job was replaced"
    assert cli(project, "logs", "digits") == cli(project, "logs", "digits", "--run", two)
    cli(project, "rerun", "digits")
    eventually(lambda: json.loads(cli(project, "status", "digits", "-o", "json"))[0]["phase"] == "Succeeded")
    lines = [json.loads(line) for line in cli(project, "logs", "digits", "--all", "-o", "json").splitlines()]
    again = json.loads(cli(project, "runs", "digits", "-o", "json"))[-1]["id"]
    printed = [(line["run"], line["line"]) for line in lines if line["line"].startswith("lr ")]
    assert printed == [(one, "lr 0.1"), (two, "lr 0.2"), (again, "lr 0.2")]
    data.write_text("two")
    project.program(program("0.2", 'run="2", '))
    project.up()
    assert re.search(r'\ndigits \w{6} \(run="2"\): Succeeded, created', cli(project, "runs", "digits"))
    first, second, _, third = json.loads(cli(project, "runs", "digits", "-o", "json"))
    assert (first["run"], second["run"], third["run"]) == ("1", "1", "2")
    assert first["inputs"]["arguments"] != second["inputs"]["arguments"] == third["inputs"]["arguments"]
    assert [each["inputs"]["dataset"] for each in (first, second)] == [inputs["dataset"]] * 2, "its volume is gone"
    assert third["inputs"]["dataset"].partition(" ")[0] == inputs["dataset"].partition(" ")[0]
    assert third["inputs"]["dataset"] != inputs["dataset"], "the revision that was fetched"
    assert "python" not in project.preview("--expect-no-changes").out
    project.destroy()
    assert not [*project.root.glob("jobs/*/*"), *project.root.glob("earlier-logs/*/*")]


def test_runs_tells_changed_nodes_and_variables(project: Project, data: Any) -> None:
    given = program(more="rerun_on=RERUN, ").replace(
        "func=train,", 'func=train, env={"SEED": "1", "API_TOKEN": token},'
    )
    given = 'RERUN = ["code"]\ntoken = pulumi.Output.secret("hidden")\n' + given
    project.program(given)
    project.up()
    given = given.replace('"code"', '"code", "data", "runtime"')
    project.program(given)
    assert "runs again" not in project.up().out
    for seed, nodes in (("2", 2), ("3", 1)):
        changed = given.replace('"SEED": "1"', f'"SEED": "{seed}"')
        project.program(changed.replace("func=train,", f"func=train, num_nodes={nodes},"))
        project.up()
    first, second, third = re.split(r"(?m)^digits \w{6}: .*\n", cli(project, "runs", "digits"))[1:]
    assert re.search(r"(?m)^  nodes +1$", first) and '"SEED": "1"' in first
    changes = [re.split(" {2,}", line.strip()) for line in second.splitlines()]
    variables = '{"API_TOKEN": "secret", "SEED": "2"}'
    assert changes == [["environment", '{"SEED": "1"} -> {"SEED": "2"}'], ["nodes", "1 -> 2"]]
    assert third == '  environment  {"SEED": "2"} -> {"SEED": "3"}\n  nodes        2 -> 1\n'
    (status,) = json.loads(cli(project, "status", "digits", "-o", "json"))
    assert status["inputs"]["environment"] == variables.replace("2", "3") and status["inputs"]["nodes"] == "1"
    manifests = [json.loads(file.read_text())["inputs"] for file in project.root.glob("volumes/*/*/*/.*.run.json")]
    assert manifests.count(status["inputs"]) == 1 and len(manifests) == 3, "one in the folder of each run"
    record = next(project.root.glob("jobs/*/digits/record.json")).read_text()
    assert "hidden" not in record + json.dumps(project.export()), "nor in the state"


def test_changed_data_runs_a_job_again(project: Project, data: Any) -> None:
    project.program(program(more='rerun_on=["code", "data"], '))
    project.up()
    project.preview("--expect-no-changes")
    data.write_text("two")
    planned = project.preview().out
    assert "runs again (rerun_on)" in planned and "replace" in planned
    project.up()
    assert len(json.loads(cli(project, "runs", "digits", "-o", "json"))) == 2
    project.preview("--expect-no-changes")


def test_changed_code_waits_for_the_next_run(project: Project, data: Any) -> None:
    project.program(program())
    project.up()
    kept = 'rerun_on=["data"], '
    project.program(program(more=kept))
    project.up()  # nothing but rerun_on has changed
    project.program(program("0.2", kept))
    planned = project.preview("--expect-no-changes").out
    assert 'arguments {"lr": 0.1} -> {"lr": 0.2}; run="2" runs the new code (rerun_on)' in planned
    project.up()
    assert "lr 0.1" in logs(project)
    data.write_text("two")
    project.up()
    assert "lr 0.2" in logs(project)
    project.program(program("0.3", "rerun_on=[], active_deadline_seconds=60, "))
    assert "replace" in project.preview().out, "other fields are what the user wrote"


def test_a_changed_runtime_runs_a_job_again(project: Project, data: Any) -> None:
    project.program(program(more='rerun_on=["runtime"], '))
    project.up()
    project.program(program(more='rerun_on=["runtime"], '), head=HEAD.replace("python:3.12", "python:3.13"))
    planned = project.preview().out
    assert "runtime plain (" in planned and "runs again (rerun_on)" in planned
    project.up()
    first, second = json.loads(cli(project, "runs", "digits", "-o", "json"))
    assert (first["inputs"]["image"], second["inputs"]["image"]) == ("python:3.12", "python:3.13")


@pytest.mark.parametrize(("given", "why"), [
    ('["cod"]', "rerun_on[0]: must be one of"), ('"code"', "rerun_on: must be a list"), ("[1]", "rerun_on[0]: must be one of"),
])  # fmt: skip
def test_what_is_refused(project: Project, data: Any, given: str, why: str) -> None:
    project.program(program(more=f"rerun_on={given}, "))
    assert why in project.preview(ok=False).out


def test_a_run_knows_its_commit_and_a_commit_alone_starts_none(project: Project) -> None:
    git = ["git", "-C", str(project.folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]

    def commit() -> str:
        subprocess.run([*git, "add", "__main__.py"], check=True)
        subprocess.run([*git, "commit", "-qm", "work"], check=True)
        return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:12]

    text = "def train(lr):\n    print(lr)\n\n"
    text += 'trainer.TrainJob("digits", runtime=plain, name="digits",\n'
    text += '    trainer=trainer.CustomTrainer(func=train, func_args={"lr": LR}))\n'
    subprocess.run([*git, "init", "-q"], check=True)
    project.program(text.replace("LR", "1"))
    (project.folder / ".git" / "info" / "exclude").write_text("*\n!__main__.py\n")
    first = commit()
    project.up()
    eventually(lambda: json.loads(cli(project, "status", "digits", "-o", "json"))[0]["phase"] == "Succeeded")
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "another"], check=True)
    project.preview("--expect-no-changes")
    project.up()
    project.program(text.replace("LR", "2"))
    project.up()
    eventually(lambda: json.loads(cli(project, "status", "digits", "-o", "json"))[0]["phase"] == "Succeeded")
    one, two = json.loads(cli(project, "runs", "digits", "-o", "json"))
    assert one["inputs"]["commit"] == first, "that of its creation"
    assert (
        re.fullmatch(r"[0-9a-f]{12} \(with changes\)", two["inputs"]["commit"]) and first not in two["inputs"]["commit"]
    )
    assert f"commit     {first} -> " in cli(project, "runs", "digits")


def test_changed_lines_of_a_function_and_of_a_script(project: Project) -> None:
    (project.folder / "train.py").write_text("print(1)\n")
    project.program(program().partition("data =")[0] + TWO_JOBS)
    project.up()
    (project.folder / "train.py").write_text("print(2)\n")
    project.program(program().partition("data =")[0].replace('"lr", lr', '"rate", lr') + TWO_JOBS)
    project.up()
    for job, lines in (
        ("func", ["  train() changed", '-    print("lr", lr)', '+    print("rate", lr)']),
        ("script", ["  train.py changed", "-print(1)", "+print(2)"]),
    ):
        ids = [each["id"] for each in json.loads(cli(project, "runs", job, "-o", "json"))]
        shown = cli(project, "runs", job, *ids)
        assert all(line in shown for line in lines), shown


TWO_JOBS = """
trainer.TrainJob("func", runtime=plain, wait_for="complete",
    trainer=trainer.CustomTrainer(func=train, func_args={"lr": 1}))
trainer.TrainJob("script", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(script="train.py"))
"""


def test_a_plan_names_changed_arguments_without_those_that_are_secret(project: Project) -> None:
    text = (
        program().partition("data =")[0].replace("steps=1", "token") + TWO_JOBS.partition('trainer.TrainJob("script')[0]
    )
    text = text.replace('{"lr": 1}', '{"lr": LR, "token": pulumi.Output.secret("TOKEN")}')
    project.program(text.replace("LR", "0.1").replace("TOKEN", "hunter2"))
    project.up()
    project.program(text.replace("LR", "0.2").replace("TOKEN", "correct horse"))
    plan = project.preview().out
    assert re.search(r'/func-\w+: arguments \{"lr": 0.1\} -> \{"lr": 0.2\}\n', plan), plan
    assert "hunter2" not in plan and "correct horse" not in plan
