"""Bad input and faults, through the real engine."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from .conftest import HEAD, Project, eventually
from .test_jobs import LONG, QUICK

WRONG = """
import os
LEARNING_RATE = 3
def lost():
    print(LEARNING_RATE)
def fine():
    print("x")

def job(resource, runtime=plain, **given):
    return trainer.TrainJob(resource, runtime=runtime, **given)

Custom = trainer.CustomTrainer
job("good", trainer=Custom(func=fine))
job("type", trainer=Custom(func=fine, num_nodes="two"))
job("field", trainer=Custom(func=fine, num_node=2))
job("other-field", trainer=Custom(func=fine), initialiser=None)
job("quantity", trainer=Custom(func=fine, resources_per_node={"cpu": "3 cores"}))
job("long-name", name="n" * 60, trainer=Custom(func=fine))
job("runtime", runtime="torch-distribute", trainer=Custom(func=fine))
job("release", runtime="torch-distributed@0.0.1", trainer=Custom(func=fine))
job("file", trainer=Custom(script="nowhere.py"))
job("lost", trainer=Custom(func=lost))
job("token", trainer=Custom(func=fine, env={"HF_TOKEN": "canary-token"}))
job("argument", trainer=Custom(func=fine, func_args={"epoch": 1}))
job("wait", wait_for="finished", trainer=Custom(func=fine))
trainer.DatasetInitializer("data", storage_uri="file://nowhere")
trainer.DatasetInitializer("credentials", storage_uri="hf://a/b", access_token="canary-token")
"""

SAYS = [
    'TrainJob("type") (__main__.py:',
    "trainer.num_nodes: must be a whole number, not 'two'",
    "trainer.num_node: unknown field. Hint: did you mean num_nodes?",
    "initialiser: unknown field. Hint: did you mean initializer?",
    "trainer.resources_per_node",
    "'3 cores'",
    "63",
    "torch-distributed",
    "0.0.1",
    "trainer.script: no such file: nowhere.py",
    "lost uses LEARNING_RATE",
    'trainer.env["HF_TOKEN"]: is a plain-text secret',
    'trainer.func_args["epoch"]: fine() has no such argument',
    "wait_for: must be one of created, admitted, running, complete, not 'finished'",
    'DatasetInitializer("data")',
    "access_token: is a plain-text secret",
]


@pytest.mark.core
def test_all_problems_of_all_jobs_are_told_at_once_and_nothing_is_created(project: Project) -> None:
    project.program(WRONG)
    result = project.preview(ok=False)
    for text in SAYS:
        assert text in result.out, f"{text!r} is not in\n{result.out}"
    assert "Traceback" not in result.out and "canary-token" not in result.out
    assert 'TrainJob("good")' not in result.out
    up = project.run("up", "--yes")
    assert up.code != 0 and not project.target.jobs.list_all()


def test_with_skip_preview_only_the_refused_jobs_are_not_created(project: Project) -> None:
    project.program(WRONG)
    project.up(ok=False)
    assert [s.name.startswith("good") for s in project.target.jobs.list_all()] == [True]


UNKNOWN = """
import pulumi.dynamic
class Maker(pulumi.dynamic.ResourceProvider):
    def create(self, props):
        return pulumi.dynamic.CreateResult("x", {"made": "made-by-another"})
class Other(pulumi.dynamic.Resource):
    made: pulumi.Output[str]
    def __init__(self, name):
        super().__init__(Maker(), name, {"made": None})

def work():
    import hashlib, os
    print(os.environ["OTHER"], hashlib.sha256(os.environ["SECRET"].encode()).hexdigest(), flush=True)

secret = pulumi.Config().require_secret("password")
job = trainer.TrainJob(
    "mixed", runtime=plain, wait_for="complete",
    trainer=trainer.CustomTrainer(func=work, num_nodes=2, env={"OTHER": Other("other").made, "SECRET": secret}),
)
pulumi.export("phase", job.phase)
"""


@pytest.mark.core
def test_an_unknown_and_a_secret_value_hide_only_their_leaf(project: Project) -> None:
    canary = "canary-4711-do-not-tell"
    project.program(UNKNOWN)
    project.config("password", canary, "--secret")
    preview = project.preview("--diff").out
    assert re.search(r"completions *: 2", preview) and "SECRET" in preview and "import hashlib, os" in preview
    assert "[unknown]" in preview or "output<string>" in preview
    up = project.up()
    import hashlib

    logs = project.logs("mixed")
    assert "made-by-another" in logs and hashlib.sha256(canary.encode()).hexdigest() in logs
    render = project.resources()[0]["inputs"]["objects"]
    for text in (preview, up.out, logs, str(render), project.stack_text()):
        assert canary not in text
    project.preview("--expect-no-changes")


FAILING = """
def work():
    import os, sys, time
    print("line before", flush=True)
    if os.environ["JOB_COMPLETION_INDEX"] == "1":
        raise ValueError("the data is bad")
    time.sleep(600)

job = trainer.TrainJob(
    "failing", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work, num_nodes=2)
)
pulumi.export("phase", job.phase)
"""


@pytest.mark.core
def test_a_failed_job_fails_the_up_and_mended_code_runs_again(project: Project) -> None:
    project.program(FAILING)
    first = project.up(ok=False)
    for text in ("Failed", "node", "ValueError: the data is bad", "line before", ".log", "run= key"):
        assert text in first.out, first
    assert "python inline source runtime error" not in first.out
    assert len(project.resources()) == 1
    uid = project.job("failing").uid
    again = project.up(ok=False)
    assert "the data is bad" in again.out and project.job("failing").uid == uid, (
        "a failed job is reported, not run again"
    )
    project.program(FAILING.replace('raise ValueError("the data is bad")', "return").replace("time.sleep(600)", "pass"))
    project.up()
    assert project.outputs()["phase"] == "Succeeded"


def cli_children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def ranks(supervisor: psutil.Process) -> list[psutil.Process]:
    found = []
    for process in supervisor.children(recursive=True):
        try:
            if "main.py" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:  # it ended while we looked
            continue
    return found


@pytest.mark.parametrize(
    "victim",
    [pytest.param("cli", marks=pytest.mark.core), "host", "supervisor", pytest.param("rank", marks=pytest.mark.core)],
)
def test_kill_and_the_next_up_converges(project: Project, victim: str) -> None:
    project.program(LONG.replace('wait_for="running"', 'wait_for="complete"'))
    process = project.start("up", "--yes", "--skip-preview")
    eventually(lambda: project.job("long") and project.job("long").phase == "Running")
    uid = project.job("long").uid
    if victim == "cli":
        children = cli_children(process.pid)
        hosts = [c for c in children if any(h in " ".join(c.cmdline()) for h in ("pulumi.dynamic", "pulumi-language"))]
        assert len(hosts) >= 2
        process.kill()
        process.wait()
        eventually(lambda: not any(c.is_running() and c.status() != "zombie" for c in hosts), what="the hosts end")
        assert project.job("long").phase == "Running", "the job runs on"
    elif victim == "host":
        for child in cli_children(process.pid):
            if "pulumi.dynamic" in " ".join(child.cmdline()):
                child.kill()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
    else:
        ours = project.processes("supervisor")
        if victim == "supervisor":
            ours[0].kill()
        else:
            eventually(lambda: ranks(ours[0]), what="the bootstrap has become the user's program")[0].kill()
        out, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        assert ("SupervisorLost" if victim == "supervisor" else "SIGKILL") in out, out
    if victim in ("cli", "host"):
        project.run("cancel", "--yes")
        project.program(LONG)
        project.up()
        assert project.job("long").uid == uid and len(project.target.jobs.list_all()) == 1
    else:
        eventually(lambda: not project.processes("main.py"))
        project.program(LONG.replace('"long", runtime', '"long", run="2", runtime'))
        project.up()
        assert project.job("long").uid != uid and project.job("long").phase == "Running"
    project.destroy()
    assert not project.target.jobs.list_all()
    eventually(lambda: not project.processes(), what="no process is left")


def test_a_crash_between_target_and_state_converges(project: Project) -> None:
    """The target has the job and the state does not: what a kill in the middle of a create leaves."""
    project.program(LONG)
    project.up()
    uid = project.job("long").uid
    urn = project.resources()[0]["urn"]
    assert project.run("state", "delete", urn, "--yes", "--force").code == 0
    project.up()
    assert project.job("long").uid == uid, "the job is found again, not run twice"
    assert project.run("state", "delete", urn, "--yes", "--force").code == 0
    assert not project.resources()
    project.destroy()
    eventually(lambda: not project.target.jobs.list_all() and not project.processes(), what="the sweep")


@pytest.mark.core
def test_ctrl_c_ends_the_waiting_at_once_and_up_attaches_again(project: Project) -> None:
    project.program(LONG.replace('wait_for="running"', 'wait_for="complete"'))
    process = project.start("up", "--yes", "--skip-preview")
    eventually(lambda: project.job("long") and project.job("long").phase == "Running")
    uid = project.job("long").uid
    eventually(lambda: len(project.resources()) == 1)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert "Ctrl-C ends only the waiting" in out
    assert project.job("long").phase == "Running" and len(project.resources()) == 1
    project.program(LONG)
    project.up()
    assert project.job("long").uid == uid


@pytest.mark.core
def test_two_ups_at_once_make_one_job(project: Project) -> None:
    project.program(QUICK)
    first, second = project.start("up", "--yes", "--skip-preview"), project.start("up", "--yes", "--skip-preview")
    outs = [p.communicate(timeout=120)[0] for p in (first, second)]
    assert sorted((first.returncode, second.returncode))[0] == 0, outs
    if first.returncode or second.returncode:
        assert any("locked" in o for o in outs), outs
    assert len(project.target.jobs.list_all()) == 1


def test_a_job_of_another_host(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project.program(QUICK)
    project.up()
    for record in project.root.rglob("*.json"):
        text = record.read_text()
        if project.target.jobs.host in text:
            record.write_text(text.replace(project.target.jobs.host, "f" * len(project.target.jobs.host)))
    project.preview("--expect-no-changes", ok=False)
    refreshed = project.refresh(ok=False)
    assert "another host" in refreshed.out and "Traceback" not in refreshed.out
    destroyed = project.destroy(ok=False)
    assert "another host" in destroyed.out


def test_adopt_takes_over_an_equal_job_and_refuses_another(project: Project) -> None:
    named = QUICK.replace('"quick", runtime', '"quick", name="same", runtime')
    project.program(named)
    project.up()
    uid = project.job("same").uid
    urn = project.resources()[0]["urn"]
    assert project.run("state", "delete", urn, "--yes", "--force").code == 0
    other = named.replace('"quick", name', '"newcomer", name')
    project.program(other)
    conflict = project.up(ok=False)
    assert "adopt=True" in conflict.out and project.job("same").uid == uid
    project.program(other.replace('name="same"', 'name="same", adopt=True'))
    project.up()
    assert project.job("same").uid == uid
    project.preview("--expect-no-changes")


def test_every_class_of_program_head_is_valid(project: Project) -> None:
    project.program("pulumi.export('x', 1)", head=HEAD)
    project.up()
    assert project.outputs() == {"x": 1}


EVERYWHERE = (
    UNKNOWN.split("def work", maxsplit=1)[0]
    + """
def work(text: str, numbers: list):
    import os
    print(text, numbers, os.environ["A"], flush=True)

other = Other("other").made
job = trainer.TrainJob(
    "unknown", runtime=plain, wait_for="complete", output=True, labels=other.apply(lambda v: {"made": v}),
    runtime_patches=other.apply(lambda _: []),
    trainer=trainer.CustomTrainer(
        func=work, func_args={"text": other, "numbers": [1, other]}, num_nodes=other.apply(lambda _: 2),
        env=other.apply(lambda v: {"A": v}), image=other, packages_to_install=other.apply(lambda _: []),
        resources_per_node=other.apply(lambda _: {"cpu": 1}),
    ),
)
pulumi.export("phase", job.phase)
"""
)


def test_every_field_may_be_an_output_that_is_not_known_yet(project: Project) -> None:
    project.program(EVERYWHERE)
    preview = project.preview("--diff").out
    assert "def work(text: str" in preview and "Traceback" not in preview
    project.up()
    assert project.outputs()["phase"] == "Succeeded"
    assert project.logs("unknown").count("made-by-another [1, 'made-by-another'] made-by-another") == 2
    project.preview("--expect-no-changes")


FAILURES = """
def work(name: str):
    raise SystemExit(f"{name} is broken")
for name in ("first", "second"):
    trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
        func=work, func_args={"name": name}))
"""


def test_all_jobs_that_have_failed_are_reported(project: Project) -> None:
    project.program(FAILURES)
    project.up(ok=False)
    eventually(lambda: all(project.job(name).phase == "Failed" for name in ("first", "second")))
    out = project.up(ok=False).out
    assert "first is broken" in out and "second is broken" in out, out


MISSPELT = """
def work(given: str):
    print(given)
trainer.TrainJob("camel", runtime=plain, trainer=trainer.CustomTrainer(func=work, func_args={"GIVEN": 1}, numNodes=3))
trainer.TrainJob("function", runtime=plain, trainer=work)
"""


def test_names_in_messages_are_those_that_were_written(project: Project) -> None:
    project.program(MISSPELT)
    out = project.preview(ok=False).out
    assert "trainer.num_nodes: unknown field numNodes. Hint: did you mean num_nodes?" in out, out
    assert 'trainer.func_args["GIVEN"]: work(given: str) has no such argument' in out, out
    assert (
        "must be CustomTrainer, Trainer or BuiltinTrainer, not function. Hint: give CustomTrainer(func=...)" in out
    ), out


TRIALS = """
def trial(name: str, seconds: float):
    import time
    time.sleep(seconds)
    print('{"trainerStatus": {"metrics": [{"name": "loss", "value": "0.5"}]}}', flush=True)
    if name.startswith("bad"):
        raise SystemExit(f"{name} is broken")

def show(best):
    print("best", best, flush=True)

def job(name, seconds, func=trial, args=None, **more):
    return trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
        func=func, func_args=args or {"name": name, "seconds": seconds}), **more)

bad, slow, late = job("bad", 0), job("slow", 6), job("bad-too", 3)
after = job("after", 0, show, {"best": bad.progress.apply(lambda progress: progress["metrics"]["loss"])},
            opts=pulumi.ResourceOptions(depends_on=[late]))
next_one = job("next", 0, show, {"best": after.phase})
pulumi.export("phases", {"slow": slow.phase, "bad": bad.phase, "after": after.phase})
pulumi.export("loss", slow.progress.apply(lambda progress: progress["metrics"]["loss"]))
"""


@pytest.mark.core
def test_a_failed_job_ends_neither_the_wait_for_others_nor_their_outputs(project: Project) -> None:
    project.program(TRIALS)
    out = project.up(ok=False).out
    assert project.job("slow").phase == "Succeeded", "the up has waited for it"
    assert "bad is broken" in out and "bad-too is broken" in out and "Traceback" not in out, out
    assert project.job("after") is None and project.job("next") is None, (
        "nothing is made of the outputs of a failed job"
    )
    known = {"loss": "0.5", "phases": {"slow": "Succeeded", "bad": None, "after": None}}
    assert project.outputs() == known, project.outputs()
    again = project.up(ok=False).out
    assert "bad is broken" in again and project.outputs() == known, again
    project.preview()


def test_a_trial_may_fail(project: Project) -> None:
    project.program(TRIALS.replace("}), **more)", '}), may_fail=name.startswith("bad"), **more)'))
    out = project.up().out
    assert 'warning: TrainJob("bad") Failed' in out and "bad-too is broken" in out, out
    assert project.outputs() == {"phases": {"slow": "Succeeded", "bad": "Failed", "after": "Succeeded"}, "loss": "0.5"}
    assert "best 0.5" in project.logs("after")
    assert 'warning: TrainJob("bad") Failed' in project.preview("--expect-no-changes").out
