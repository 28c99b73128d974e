"""Secrets that change, through the real engine: nothing runs again because of them."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from .conftest import Project, eventually

PROGRAM = """
def work(given):
    import hashlib, os, time
    for token in (os.environ["TOKEN"], given["token"]):
        print("read", hashlib.sha256(token.encode()).hexdigest()[:8], flush=True)
    while SECONDS and not os.path.exists(STOP):
        time.sleep(0.1)

config = pulumi.Config()
env = {"TOKEN": config.require_secret("token"), "OTHER": config.require_secret("other")}
trainer.TrainJob(
    "job", runtime=plain, OPTIONS,
    trainer=trainer.CustomTrainer(func=work, env=env, func_args={"given": {"token": config.require_secret("token")}}),
)
"""
READ = {token: f"read {sha256(token.encode()).hexdigest()[:8]}" for token in ("first-canary", "second-canary")}


def program(project: Project, options: str = "wait_for='complete'", *, forever: bool = False) -> None:
    text = PROGRAM.replace("OPTIONS", options).replace("SECONDS", str(forever))
    project.program(text.replace("STOP", repr(str(project.folder / "stop"))))


def rotate(project: Project) -> None:
    project.config("token", "second-canary", "--secret")


@pytest.fixture
def lab(project: Project) -> Project:
    project.config("token", "first-canary", "--secret")
    project.config("other", "other-canary", "--secret")
    return project


def rotated(project: Project, says: str, *, renamed: bool = False) -> None:
    """The plan marks the field; `up` changes it, and nothing else; after that there is nothing to do. renamed: in the same step,
    so that the plan has all values by another name."""
    rotate(project)
    plan = project.preview("--diff").out
    assert re.search(rf"new secret value in Secret job-\w+-env/.*trainer\.TOKEN.*; {says}", plan), plan
    assert re.search(r"\+ job-\w+-env/trainer\.TOKEN *: 1", plan), plan
    assert re.search(r"\+ job-\w+-env/\S*func_args\S* *: 1", plan), plan
    assert renamed or not re.search(r"[~+-] \S*trainer\.OTHER", plan), plan
    assert "1 to update" in plan and "replace" not in plan
    uid = project.job("job").uid
    up = project.up("--diff").out
    assert "1 updated" in up and project.job("job").uid == uid
    for text in (plan, up, project.stack_text()):
        assert "-canary" not in text
    project.preview("--expect-no-changes")
    project.refresh("--expect-no-changes")


def test_a_finished_job_stays_finished(lab: Project) -> None:
    program(lab)
    lab.up()
    rotated(lab, "the job is Succeeded: applies at the next run")
    assert lab.logs("job").count("read ") == 2 and READ["first-canary"] in lab.logs("job")
    program(lab, "wait_for='complete', run='2'")
    lab.up()
    assert lab.logs("job").count(READ["second-canary"]) == 2
    lab.preview("--expect-no-changes")


@pytest.mark.core
def test_a_running_job_runs_on(lab: Project) -> None:
    program(lab, "wait_for='running'", forever=True)
    lab.up()
    eventually(lambda: "read" in lab.logs("job"))
    rotated(lab, "the job is Running: applies at the next run")
    assert lab.job("job").phase == "Running" and lab.logs("job").count("read ") == 2
    program(lab, "suspend=True", forever=True)
    lab.up()
    eventually(lambda: lab.job("job").phase == "Suspended")
    (lab.folder / "stop").touch()
    program(lab, "wait_for='complete'", forever=True)
    lab.up()
    assert lab.logs("job").count(READ["second-canary"]) == 2


def test_a_suspended_job_reads_it_when_it_starts(lab: Project) -> None:
    program(lab, "suspend=True")
    lab.up()
    rotated(lab, "the job is Suspended: applies when it starts")
    program(lab)
    lab.up()
    assert lab.logs("job").count(READ["second-canary"]) == 2 and READ["first-canary"] not in lab.logs("job")


RENAMED = (
    '\n    "job", runtime',
    '\n    "work", opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name="job")]), runtime',
)


def rename(lab: Project, options: str, *, forever: bool = False) -> None:
    """Another resource name, and another stack name."""
    program(lab, options, forever=forever)
    file = lab.folder / "__main__.py"
    assert RENAMED[0] in file.read_text()
    file.write_text(file.read_text().replace(*RENAMED))
    assert lab.run("stack", "rename", "other").code == 0
    lab.stack = "other"


def test_a_renamed_job_stays_finished_and_gets_new_values(lab: Project) -> None:
    program(lab)
    lab.up()
    uid = lab.job("job").uid
    rename(lab, "wait_for='complete'")
    lab.up()
    assert lab.job("job").uid == uid and lab.logs("job").count("read ") == 2
    rotated(lab, "the job is Succeeded: applies at the next run")


def test_a_job_that_is_renamed_together_with_a_new_value_reads_it_when_it_is_created_again(lab: Project) -> None:
    program(lab, "wait_for='running'", forever=True)
    lab.up()
    eventually(lambda: "read" in lab.logs("job"))
    rename(lab, "wait_for='running'", forever=True)
    rotated(lab, "the job is Running: applies at the next run", renamed=True)
    job = lab.job("job")
    lab.target.delete(job.namespace, job.name)
    assert "it is taken for unfinished and created again" in lab.up().out
    eventually(lambda: lab.logs("job").count(READ["second-canary"]) == 2)


CHAINED = """
import os

def prepare(rows):
    print(rows)

def fit(folder, given):
    import os, time
    while not os.path.exists(STOP):
        time.sleep(0.1)

before = trainer.TrainJob(
    "before", runtime=plain, output=True,
    trainer=trainer.CustomTrainer(func=prepare, func_args={"rows": os.environ.get("ROWS", "1")}),
)
folder = pulumi.Output.all(before.completion, before.output_path).apply(lambda both: f"{both[1]}#{os.environ.get('ROWS')}")
given = {"folder": folder, "given": SECRET}
trainer.TrainJob(
    "job", runtime=plain, interrupt="allow", wait_for="running",
    trainer=trainer.CustomTrainer(func=fit, func_args=given),
)
"""


@pytest.mark.parametrize("secret", ['pulumi.Config().require_secret("token")', '"plain"'])
def test_values_that_are_not_known_yet_are_no_new_secrets_and_may_start_a_new_run(lab: Project, secret: str) -> None:
    stop = lab.folder / "stop"
    lab.program(CHAINED.replace("SECRET", secret).replace("STOP", repr(str(stop))))
    lab.up()
    uid = lab.job("job").uid
    lab.env["ROWS"] = "2"
    shown = lab.preview("--diff").out
    assert "new secret value" not in shown, shown
    note = "is Running: it depends on values that are not known yet, and may start a new run, which would end the running one"
    assert note in shown, shown
    lab.up()
    assert lab.job("job").uid != uid
    assert "may start" not in lab.preview("--expect-no-changes").out
    stop.touch()
    eventually(lambda: lab.job("job").phase == "Succeeded")
    lab.env["ROWS"] = "3"
    shown = lab.preview("--diff").out
    assert "is Succeeded: it depends on values that are not known yet, and may start a new run\n" in shown, shown
