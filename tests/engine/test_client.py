"""`pulumi_trainer.client` and the commands that control jobs, for the jobs of a stack."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pulumi_trainer import client
from pulumi_trainer.client import Jobs

from .conftest import Project, eventually
from .test_cli import cli
from .test_faults import FAILING
from .test_jobs import QUICK

RESUMED = """
def work():
    import os, pathlib, time
    done = pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"]) / "done"
    if not done.exists():
        done.touch()
        print("first", os.environ["WORD"] == "-".join(["a", "canary"]), flush=True)
        time.sleep(600)
    print("second", os.environ["WORD"] == "-".join(["a", "canary"]), flush=True)

word = pulumi.Output.secret("a-canary")
job = trainer.TrainJob(
    "long", runtime=plain, output=True, wait_for="running", interrupt="allow",
    trainer=trainer.CustomTrainer(func=work, env={"WORD": word}),
)
"""


@pytest.fixture
def jobs(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    yield client.connect(stack="test", project_dir=str(project.folder))


@pytest.mark.core
def test_reading(project: Project, jobs: Jobs) -> None:
    project.program(QUICK)
    project.up()
    (job,) = jobs.jobs()
    assert (job.resource, job.phase, job.kind) == ("quick", client.Phase.SUCCEEDED, "JobSet")
    assert job.progress is not None and job.progress["progressPercentage"] == 100
    assert (job.steps[0].name, job.steps[0].succeeded) == ("node", 2)
    entry = json.loads(cli(project, "status", "-o", "json").stdout)[0]
    listed = {"steps": None, "attempts": None}
    assert {**entry, **listed} == {**vars(job), "phase": "Succeeded", **listed}
    assert [(each.number, each.cause) for each in job.attempts] == [(1, "Succeeded")]
    assert jobs.status("quick") == jobs.status(job.name) == jobs.wait("quick") == job
    assert [line for line in jobs.logs("quick", rank=1) if "hello" in line] == ["hello $HOME `id` 1"]
    assert len([line for line in jobs.logs("quick", rank=None, step="node", follow=True) if "hello" in line]) == 2
    assert "is Succeeded" in jobs.why("quick")
    assert jobs.outputs("quick") is None
    with pytest.raises(
        client.Invalid, match=r"run: no run 'nothing' is recorded for this job. Hint: the job has the runs"
    ):
        list(jobs.logs("quick", run="nothing"))
    with pytest.raises(client.TrainerError, match=r"nothing: no such job in the stack. Hint: available: quick"):
        jobs.status("nothing")
    with pytest.raises(client.TrainerError, match="has no step launcher"):
        list(jobs.logs("quick", step="launcher"))
    with pytest.raises(client.Invalid, match="names a stack"):
        client.connect(stack="test", namespace="team")


def test_json_of_why_and_logs(project: Project, jobs: Jobs) -> None:
    project.program(FAILING)
    project.up(ok=False)
    (found,) = json.loads(cli(project, "why", "-o", "json").stdout)
    assert set(found) == {"job", "namespace", "phase", "reason", "message", "hint", "start", "lines"}
    assert found["phase"] == "Failed" and any("ValueError: the data is bad" in line for line in found["lines"])
    lines = [json.loads(line) for line in cli(project, "logs", "-o", "json").stdout.splitlines()]
    assert {(line["job"], line["step"], line["rank"], line["container"]) for line in lines} == {
        (found["job"], "node", rank, "node") for rank in (0, 1)
    }
    assert any("ValueError" in line["line"] for line in lines) and lines[0]["pod"].endswith("-node-0-0")
    with pytest.raises(client.JobFailed, match="the data is bad") as caught:
        jobs.wait(found["job"])
    assert caught.value.job.phase == client.Phase.FAILED


def test_suspend_and_resume(project: Project, jobs: Jobs) -> None:
    project.program(RESUMED)
    project.up()
    assert "first True" in project.logs("long")
    assert "is being suspended" in cli(project, "suspend", "long").stdout
    eventually(lambda: jobs.status("long").phase == "Suspended")
    note = "with `pulumi-trainer suspend` at"
    assert note in jobs.why("long") and "`pulumi-trainer resume` continues it" in cli(project, "why").stdout
    with pytest.raises(TimeoutError, match="is Suspended"):
        jobs.wait("long", timeout=0)
    preview = project.preview("--expect-no-changes")
    assert note in preview.out
    assert note in project.up().out, "it is left suspended"
    assert jobs.status("long").phase == "Suspended"
    project.refresh()
    project.preview("--expect-no-changes")
    jobs.resume("long")
    assert jobs.wait("long").phase == "Succeeded"
    assert "second True" in "".join(jobs.logs("long")), "with its Secret and its output"
    assert "a-canary" not in project.stack_text()
    with pytest.raises(client.TrainerError, match=r"is Succeeded. Hint: `pulumi-trainer rerun`"):
        jobs.suspend("long")
    assert note not in project.up().out


@pytest.mark.core
def test_stop_and_rerun(project: Project, jobs: Jobs) -> None:
    project.program(RESUMED)
    project.up()
    (before,) = project.resources()
    assert "is stopped" in cli(project, "stop", "long").stdout
    job = jobs.status("long")
    assert (job.phase, job.reason) == ("Failed", "Stopped")
    note = "with `pulumi-trainer stop` at"
    assert note in job.message and note in jobs.why("long") and note in cli(project, "status").stdout
    preview = project.preview("--expect-no-changes")
    assert note in preview.out and "`pulumi-trainer rerun` or another run= key starts it again" in preview.out
    project.refresh()
    up = project.run("up", "--yes", "--stack", "test")
    assert up.code and "Traceback" not in up.out and up.out.count(note) >= 1, up
    assert "use `pulumi-trainer rerun long` or set another run= key" in up.out and "fix the cause" not in up.out, up
    assert jobs.status("long").reason == "Stopped" and not project.processes(), "nothing starts it silently"
    with pytest.raises(client.JobFailed, match="stopped by"):
        jobs.wait("long")
    jobs.rerun("long")
    assert jobs.wait("long").phase == "Succeeded"
    with pytest.raises(client.TrainerError, match="has ended before"):
        jobs.stop("long")
    assert "second True" in "".join(jobs.logs("long")), "its output was kept"
    (after,) = project.resources()
    assert after["outputs"]["uid"] == before["outputs"]["uid"] == jobs.status("long").uid
    assert note not in project.up().out
    project.preview("--expect-no-changes")
    project.program(RESUMED.replace('"long", ', '"long", run="2", '))
    project.up()
    ran, runs_now = sorted({run.id for run in project.target.jobs.runs("default", jobs.status("long").name)})
    assert [line for line in jobs.logs("long", run=ran) if "True" in line] == ["first True", "second True"], "one run"
    assert (
        [line for line in jobs.logs("long", run=runs_now) if "True" in line] == [*jobs.logs("long")] == ["first True"]
    )
    result, newest = jobs.outputs("long"), jobs.outputs("long", run=runs_now)
    assert result == jobs.outputs("long", run=ran) and result is not None and result.where.endswith(ran)
    assert newest is not None and newest.where.endswith(runs_now) and newest.files == 1
    project.destroy()
    assert not project.target.jobs.list_all()


def test_neither_the_client_nor_status_loads_pulumi(project: Project) -> None:
    project.program(QUICK)
    project.up()
    code = """
import sys
from pulumi_trainer import client
jobs = client.connect(stack="test", project_dir=sys.argv[1])
assert jobs.status("quick").finished_successfully
loaded = [name for name in sys.modules if name.split(".")[0] in ("pulumi", "pulumi_kubernetes", "kubernetes")]
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(project.folder)], env=project.environment, cwd="/", text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
