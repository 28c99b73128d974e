"""Secrets that change, through the real engine: nothing runs again because of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

import pytest

from .conftest import Project, eventually
from .test_cli import cli

PROGRAM = """
def work(given):
    import hashlib, os, time
    for token in (os.environ["TOKEN"], given["token"]):
        print("read", hashlib.sha256(token.encode()).hexdigest()[:8], flush=True)
    while given["stop"] and not os.path.exists(given["stop"]):
        time.sleep(0.1)

config = pulumi.Config()
env = {"TOKEN": config.require_secret("token"), "OTHER": config.require_secret("other")}

def job(name, stop="", **options):
    given = {"token": config.require_secret("token"), "stop": stop}
    trainer.TrainJob(
        PREFIX + name, runtime=plain, **options,
        opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name=old + name) for old in OLD]),
        trainer=trainer.CustomTrainer(func=work, env=env, func_args={"given": given}),
    )

"""
READ = {token: f"read {sha256(token.encode()).hexdigest()[:8]}" for token in ("first-canary", "second-canary")}


def program(project: Project, *jobs: str, prefix: str = "", old: Sequence[str] = ()) -> None:
    """Write a program of jobs, each the arguments of `job`. STOP is a file that ends the jobs that have it."""
    text = "\n".join([PROGRAM, *(f"job({each})" for each in jobs)])
    text = text.replace("STOP", repr(str(project.folder / "stop")))
    project.program(text.replace("PREFIX", repr(prefix)).replace("OLD", repr(old)))


@pytest.fixture
def lab(project: Project) -> Project:
    project.config("token", "first-canary", "--secret")
    project.config("other", "other-canary", "--secret")
    return project


def rotate(lab: Project, jobs: Mapping[str, str], *, renamed: bool = False) -> None:
    """Give the token another value: the plan names it for each job, and `up` changes nothing else.

    Args:
        lab: The project.
        jobs: What the plan says of each job.
        renamed: Whether the jobs are renamed in the same step, so that the plan shows all values by another name.
    """
    uids = {name: lab.job(name).uid for name in jobs}
    lab.config("token", "second-canary", "--secret")
    plan = lab.preview("--diff").out
    for name, says in jobs.items():
        assert re.search(rf"new secret value in Secret {name}-\w+-env/.*trainer\.TOKEN.*; {says}", plan), plan
        assert re.search(rf"\+ {name}-\w+-env/trainer\.TOKEN *: 1", plan), plan
        assert re.search(rf"\+ {name}-\w+-env/\S*func_args\S* *: 1", plan), plan
    assert renamed or not re.search(r"[~+-] \S*trainer\.OTHER", plan), plan
    assert f"{len(jobs)} to update" in plan and "replace" not in plan
    up = lab.up("--diff").out
    assert f"{len(jobs)} updated" in up and {name: lab.job(name).uid for name in jobs} == uids
    for text in (plan, up, lab.stack_text()):
        assert "-canary" not in text
    lab.preview("--expect-no-changes")
    lab.refresh("--expect-no-changes")


@pytest.mark.core
def test_jobs_that_have_started_keep_the_value_that_they_have_read(lab: Project) -> None:
    running = "'running', STOP, wait_for='running'"
    program(lab, "'finished', wait_for='complete'", running, "'suspended', suspend=True")
    lab.up()
    eventually(lambda: lab.logs("running").count("read ") == 2)
    states = {
        "finished": "the job is Succeeded: applies at the next run",
        "running": "the job is Running: applies at the next run",
        "suspended": "the job is Suspended: applies when it starts",
    }
    rotate(lab, states)
    for name in ("finished", "running"):
        assert lab.logs(name).count("read ") == 2 and lab.logs(name).count(READ["first-canary"]) == 2

    finished, suspended = "'finished', wait_for='complete', run='2'", "'suspended', wait_for='complete'"
    program(lab, finished, "'running', STOP, suspend=True", suspended)
    lab.up()
    for name in ("finished", "suspended"):
        assert lab.logs(name).count("read ") == 2 and lab.logs(name).count(READ["second-canary"]) == 2
    eventually(lambda: lab.job("running").phase == "Suspended")
    (lab.folder / "stop").touch()
    program(lab, finished, "'running', STOP, wait_for='complete'", suspended)
    lab.up()
    assert lab.logs("running").count(READ["second-canary"]) == 2
    lab.preview("--expect-no-changes")


def test_renamed_jobs_keep_their_run_and_get_new_values(lab: Project) -> None:
    def rename(prefix: str, *old: str) -> None:
        """Another name of each resource, and another name of the stack."""
        program(lab, *jobs, prefix=prefix, old=old)
        assert lab.run("stack", "rename", f"stack-{prefix}").code == 0
        lab.stack = f"stack-{prefix}"

    jobs = ("'finished', wait_for='complete'", "'running', STOP, wait_for='running'")
    program(lab, *jobs)
    lab.up()
    eventually(lambda: lab.logs("running").count("read ") == 2)
    uids = [lab.job(name).uid for name in ("finished", "running")]
    rename("new-", "")
    lab.up()
    assert [lab.job(name).uid for name in ("finished", "running")] == uids

    rename("newer-", "new-", "")
    states = {
        "finished": "the job is Succeeded: applies at the next run",
        "running": "the job is Running: applies at the next run",
    }
    rotate(lab, states, renamed=True)
    assert lab.logs("finished").count("read ") == lab.logs("running").count("read ") == 2
    job = lab.job("running")
    lab.target.jobs.delete(job.namespace, job.name)
    assert "it is not known whether it had ended" in lab.up(ok=False).out
    assert cli(lab, "rerun", job.name, "-s", lab.stack).returncode == 0
    eventually(lambda: lab.logs("running").count(READ["second-canary"]) == 2)


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
    note = "is Running: it depends on values that are not known yet, and may start a new run, which would end the current run"
    assert note in shown, shown
    lab.up()
    assert lab.job("job").uid != uid
    assert "may start" not in lab.preview("--expect-no-changes").out
    stop.touch()
    eventually(lambda: lab.job("job").phase == "Succeeded")
    lab.env["ROWS"] = "3"
    shown = lab.preview("--diff").out
    assert "is Succeeded: it depends on values that are not known yet, and may start a new run\n" in shown, shown
