"""Jobs on the Local target through the real engine: run, wait, change, refresh, destroy."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import Project, eventually

QUICK = """
def work(text: str):
    import json, os
    print("hello", text, os.environ["JOB_COMPLETION_INDEX"], flush=True)
    print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": [{"name": "accuracy", "value": "0.97"}]}}))

job = trainer.TrainJob(
    "quick", runtime=plain, wait_for="complete",
    trainer=trainer.CustomTrainer(func=work, func_args={"text": "$HOME `id`"}, num_nodes=2),
)
pulumi.export("phase", job.phase)
pulumi.export("accuracy", job.progress.apply(lambda p: p and p["metrics"]["accuracy"]))
pulumi.export("seconds", job.seconds)
"""

LONG = """
def work():
    import time
    print("started", flush=True)
    time.sleep(600)

job = trainer.TrainJob("long", runtime=plain, trainer=trainer.CustomTrainer(func=work), wait_for="running")
pulumi.export("phase", job.phase)
"""


@pytest.mark.core
def test_a_job_runs_once_and_a_second_up_changes_nothing(project: Project) -> None:
    project.program(QUICK)
    preview = project.preview("--diff")
    assert re.search(r"completions *: 2", preview.out) and "hello" in preview.out
    assert not project.target.jobs.list_all(), "a preview creates nothing"
    project.up()
    outputs = project.outputs()
    assert outputs["phase"] == "Succeeded" and outputs["accuracy"] == "0.97" and outputs["seconds"] >= 0
    uid = project.job("quick").uid
    assert "hello $HOME `id` 0" in project.logs("quick") and "hello $HOME `id` 1" in project.logs("quick")
    again = project.up()
    assert "unchanged" in again.out and "created" not in again.out and "updated" not in again.out
    assert project.job("quick").uid == uid
    assert project.outputs() == outputs
    project.preview("--expect-no-changes")
    project.destroy()
    assert not project.target.jobs.list_all() and not project.resources()


def test_the_state_keeps_what_is_needed_and_no_more(project: Project) -> None:
    """The engine writes all of it at each step of each resource."""
    project.program(QUICK)
    project.up()
    resources = project.export()["deployment"]["resources"]
    (component,) = (r for r in resources if r["type"] == "trainer:index:TrainJob")
    (job,) = (r for r in resources if r["type"].endswith(":JobSet"))
    assert not component.get("outputs"), "they would be one more write a job"
    lines = (project.folder / "__main__.py").read_text().splitlines()
    made_at = 1 + next(i for i, line in enumerate(lines) if "trainer.TrainJob(" in line)
    (frame,) = component["stackTrace"]
    assert component["sourcePosition"] == frame["sourcePosition"] == f"project:///__main__.py#{made_at}"
    assert "stackTrace" not in job and "sourcePosition" not in job
    texts = job["inputs"]["objects"]
    assert all(json.loads(text) == project.resources()[0]["inputs"]["objects"][key] for key, text in texts.items())


MANY = """
import asyncio

wait = asyncio.wait
open("looks", "w").close()

async def counted(tasks, **how):
    if how.get("return_when") == asyncio.FIRST_COMPLETED:
        with open("looks", "a") as looks:
            looks.write("|")
    return await wait(tasks, **how)

asyncio.wait = counted
for i in range(30):
    trainer.TrainJob(f"job-{i}", runtime=plain, suspend=True, trainer=trainer.Trainer(command=["true"]))
"""


def test_pulumi_does_not_look_at_all_outputs_each_time_that_one_is_known(project: Project) -> None:
    """Its loop over them costs the square of their number."""
    project.program(MANY)
    project.up()
    assert len((project.folder / "looks").read_text()) <= 5


def test_debug_messages_of_the_sdk_come_many_at_a_time_and_every_job_has_its_own(project: Project) -> None:
    project.program(MANY)
    told = project.preview("--debug").out
    begins = r"registering resource: ty=trainer:index:TrainJob, name=(job-\d+),"
    ends = r"registration successful: ty=pulumi-python:dynamic/trainer:JobSet, urn=\S+::(job-\d+)"
    for pattern in (begins, ends):  # an engine that ends shows none of the last tenth of a second
        assert len(set(re.findall(pattern, told))) >= 20, told
    assert told.count("debug: ") < told.count("registration successful")


@pytest.mark.core
def test_a_change_of_the_code_is_a_line_diff_and_runs_again(project: Project) -> None:
    project.program(QUICK)
    project.up()
    uid = project.job("quick").uid
    project.program(QUICK.replace('"hello"', '"good day"'))
    preview = project.preview("--diff").out
    assert '-     print("hello"' in preview and '+     print("good day"' in preview
    project.up()
    assert project.job("quick").uid != uid and "good day" in project.logs("quick")


@pytest.mark.core
def test_running_work_is_refused_at_preview_and_allowed_when_asked(project: Project) -> None:
    project.program(LONG)
    project.up()
    uid = project.job("long").uid
    assert project.outputs()["phase"] == "Running"
    project.program(LONG.replace("started", "begun"))
    for result in (project.preview(ok=False), project.up(ok=False)):
        assert "is Running since" in result.out and 'interrupt="allow"' in result.out
        assert "Traceback" not in result.out
    assert project.job("long").uid == uid and project.job("long").phase == "Running"
    project.program(
        LONG.replace("started", "begun").replace('wait_for="running"', 'wait_for="running", interrupt="allow"')
    )
    project.up()
    assert project.job("long").uid != uid
    eventually(lambda: "begun" in project.logs("long"))
    project.destroy()
    eventually(lambda: not project.processes(), what="no process is left")


@pytest.mark.core
def test_suspend_is_an_update_in_place(project: Project) -> None:
    suspended = LONG.replace('wait_for="running"', "suspend=True")
    project.program(suspended)
    project.up()
    uid = project.job("long").uid
    assert project.job("long").phase == "Suspended" and not project.processes()
    resumed = suspended.replace("suspend=True", 'suspend=False, wait_for="running"')
    project.program(resumed)
    told = project.preview("--diff").out
    assert re.search(r"JobSet/\S+ *: \(json\)", told)
    changed = [line.split(": ", 1) for line in told.splitlines() if "=>" in line]
    assert [name.strip("~ ") for name, _ in changed] == ["digest", "suspend"], "field by field, and nothing else"
    project.up()
    assert (project.job("long").uid, project.job("long").phase) == (uid, "Running")
    project.program(suspended)
    project.up()
    eventually(lambda: project.job("long").phase == "Suspended")
    assert project.job("long").uid == uid


def test_the_run_key_and_replace_run_it_again(project: Project) -> None:
    project.program(QUICK)
    project.up()
    first = project.job("quick").uid
    project.program(QUICK.replace('"quick", runtime', '"quick", run="2", runtime'))
    project.up()
    second = project.job("quick").uid
    urn = project.resources()[0]["urn"]
    project.up("--replace", urn)
    third = project.job("quick").uid
    assert len({first, second, third}) == 3
    assert len(project.target.jobs.list_all()) == 1
    assert project.job("quick").phase == "Succeeded"


def test_replace_of_a_running_job_is_one_new_run(project: Project) -> None:
    project.program(LONG)
    project.up()
    first = project.job("long").uid
    before = {p.pid for p in project.processes()}
    project.up("--replace", project.resources()[0]["urn"])
    assert project.job("long").uid != first and project.job("long").phase == "Running"
    eventually(lambda: not before & {p.pid for p in project.processes()}, what="the old processes are gone")


def test_refresh_shows_the_phase_and_a_lost_job_is_created_again(project: Project) -> None:
    project.program(QUICK)
    project.up()
    project.refresh()
    assert project.resources()[0]["outputs"]["phase"] == "Succeeded"
    project.preview("--expect-no-changes")
    status = project.job("quick")
    project.target.jobs.delete(status.namespace, status.name)
    project.refresh()
    assert not project.resources()
    project.up()
    assert project.job("quick").uid != status.uid


def test_a_newer_runtime_does_not_touch_a_job(project: Project) -> None:
    from .conftest import HEAD

    project.program(QUICK)
    project.up()
    uid = project.job("quick").uid
    project.program(QUICK, head=HEAD.replace("python:3.12", "python:3.13"))
    assert "keeps the runtime that it was created with" in project.up().out
    assert project.job("quick").uid == uid


def test_renames_aliases_protect_and_stack_rename(project: Project) -> None:
    project.program(QUICK)
    project.up()
    uid, name = project.job("quick").uid, project.job("quick").name
    renamed = QUICK.replace(
        '"quick", runtime', '"fast", opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name="quick")]), runtime'
    )
    project.program(renamed)
    project.up()
    assert (project.job("quick").uid, project.job("quick").name) == (uid, name)
    assert project.run("stack", "rename", "other").code == 0
    project.stack = "other"
    project.preview("--expect-no-changes")
    project.program(renamed.replace("aliases=", "protect=True, aliases="))
    project.up()
    assert "protected" in project.destroy(ok=False).out
    assert project.job("quick").uid == uid
    assert project.run("state", "unprotect", "--all", "--yes").code == 0
    project.destroy()
    assert not project.target.jobs.list_all()


def test_ignore_changes_and_target(project: Project) -> None:
    two = QUICK + QUICK.replace('"quick"', '"other"').replace("job =", "job2 =").split("pulumi.export")[0]
    project.program(two)
    project.up()
    before = {name: project.job(name).uid for name in ("quick", "other")}
    two = two.replace('"hello"', '"good day"')
    project.program(two)
    urn = next(r["urn"] for r in project.resources() if r["urn"].endswith("::quick"))
    project.up("--target", urn)
    assert project.job("quick").uid != before["quick"] and project.job("other").uid == before["other"]
    project.up()
    uids = {project.job("quick").uid, project.job("other").uid}
    ignoring = two.replace(
        "runtime=plain,", 'runtime=plain, opts=pulumi.ResourceOptions(ignore_changes=["objects", "digest", "run"]),'
    )
    project.program(ignoring.replace('"good day"', '"changed"'))
    project.up()
    assert uids == {project.job("quick").uid, project.job("other").uid}


LASTS = """
def work():
    import time
    time.sleep(600)

trainer.TrainJob("NAME", runtime=plain, trainer=trainer.CustomTrainer(func=work), wait_for="running")
"""


def test_a_plan_names_unfinished_jobs_that_leave_the_program(project: Project) -> None:
    project.program(LASTS.replace("NAME", "old"))
    project.up()
    name = project.job("old").name
    ends = re.compile(
        rf"warning: default/{name} is Running since 20.* UTC, and was removed from the program: this update ends it"
    )
    assert not ends.search(project.preview().out)
    project.program(LASTS.replace("NAME", "new"))
    assert ends.search(project.preview().out)
    project.program(LASTS.replace('"NAME"', '"new", opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name="old")])'))
    assert not ends.search(project.preview("--expect-no-changes").out)
    project.program("")
    assert ends.search(project.preview().out)
