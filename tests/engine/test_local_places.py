"""How many jobs of this machine run at once (`Local(max_parallel=)`); through the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Project, eventually

SWEEP = """
def work(name):
    import pathlib, time
    while not pathlib.Path(GO_ON, name).exists():
        time.sleep(0.05)

here = trainer.Local(LIMIT)
for name in ("one", "two", "three"):
    trainer.TrainJob(f"lr.{name}", runtime=plain, target=here, WAIT
                     trainer=trainer.CustomTrainer(func=work, func_args={"name": name}))
"""


def sweep(project: Project, limit: str, wait: str = "") -> Path:
    go_on = project.folder / "go-on"
    go_on.mkdir(exist_ok=True)
    text = SWEEP.replace("GO_ON", repr(str(go_on))).replace("LIMIT", limit).replace("WAIT", wait)
    project.program(text)
    return go_on


def cli(project: Project, *words: str) -> str:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", *words]
    env = {**os.environ, **project.environment}
    done = subprocess.run(argv, cwd=project.folder, env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def phases(project: Project) -> dict[str, Any]:
    return {each.name: each.phase for each in project.target.jobs.list_all()}


@pytest.mark.core
def test_jobs_wait_for_a_place_and_say_behind_whom(project: Project) -> None:
    go_on = sweep(project, "max_parallel=1", 'wait_for="complete",')
    update = project.start("up", "--yes", "--skip-preview")
    eventually(lambda: sorted(phases(project).values()) == ["Queued", "Queued", "Running"])
    found = json.loads(cli(project, "status", "-o", "json"))
    running = next(each["resource"] for each in found if each["phase"] == "Running")
    assert running in ("lr.one", "lr.two", "lr.three"), "as the program names it"
    first = next(each for each in found if each["phase"] == "Queued" and "," not in each["message"])
    assert first["message"] == f"waits for the only place (max_parallel=1): behind {running}"
    assert first["reason"] == "MaxParallel" and not first["started"]
    row = next(line for line in cli(project, "status").splitlines() if line.startswith(f"{first['resource']} "))
    assert row.endswith(first["message"]), row
    why = " ".join(cli(project, "why", first["name"]).split())
    assert "is Queued (MaxParallel)" in why and f"(max_parallel=1): behind {running}" in why
    for name in ("one", "two", "three"):
        (go_on / name).touch()
    out, _ = update.communicate(timeout=300)
    assert update.returncode == 0, out
    assert f"Queued (MaxParallel): waits for the only place (max_parallel=1): behind {running}" in out
    assert set(phases(project).values()) == {"Succeeded"}


def test_another_limit_changes_no_job_and_holds_for_those_that_wait(project: Project) -> None:
    go_on = sweep(project, "max_parallel=1")
    project.up()
    eventually(lambda: sorted(phases(project).values()) == ["Queued", "Queued", "Running"])
    assert "maxParallel" not in json.dumps([each["inputs"] for each in project.resources()])
    uids = {each.uid for each in project.target.jobs.list_all()}
    sweep(project, "max_parallel=2")
    planned = project.preview().out
    assert "~ 1 to update" in planned and "Target" in planned
    project.up()
    eventually(lambda: sorted(phases(project).values()) == ["Queued", "Running", "Running"])
    sweep(project, "")
    project.up()
    eventually(lambda: set(phases(project).values()) == {"Running"})
    assert uids == {each.uid for each in project.target.jobs.list_all()}
    project.preview("--expect-no-changes")
    for name in ("one", "two", "three"):
        (go_on / name).touch()


def test_a_job_in_the_queue_is_suspended_and_destroyed_at_once(project: Project) -> None:
    sweep(project, "max_parallel=1")
    project.up()
    eventually(lambda: sorted(phases(project).values()) == ["Queued", "Queued", "Running"])
    queued = next(each for each in json.loads(cli(project, "status", "-o", "json")) if each["phase"] == "Queued")[
        "resource"
    ]
    assert cli(project, "resume", queued) == f"{queued} is not suspended: it is Queued (MaxParallel)\n"
    sweep(project, "max_parallel=1", "suspend=True,")
    project.up()
    eventually(lambda: set(phases(project).values()) == {"Suspended"})
    sweep(project, "max_parallel=1")
    project.up()
    eventually(lambda: sorted(phases(project).values()) == ["Queued", "Queued", "Running"])
    project.destroy()
    assert project.target.jobs.list_all() == []


WRONG = """
def work():
    pass

for number, limit in enumerate([0, -1, True, 1.5, "4", pulumi.Output.from_input(2)]):
    trainer.TrainJob(f"job-{number}", runtime=plain, target=trainer.Local(max_parallel=limit),
                     trainer=trainer.CustomTrainer(func=work))
"""
DIFFERENT = """
def work():
    pass

for name, limit in (("first", 2), ("second", 3)):
    trainer.TrainJob(name, runtime=plain, target=trainer.Local(max_parallel=limit), trainer=trainer.CustomTrainer(func=work))
"""


def test_a_limit_that_is_not_valid_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(WRONG)
    out = project.preview(ok=False).out
    assert "Traceback" not in out
    for number, shown in enumerate(["0", "-1", "True", "1.5", "'4'"]):
        place = f'TrainJob("job-{number}")'
        line = next(line for line in out.splitlines() if place in line)
        assert f"target.max_parallel: must be a whole number above 0, not {shown}" in line, out
    assert 'TrainJob("job-5")' in out


def test_a_root_has_one_limit(project: Project) -> None:
    project.program(DIFFERENT)
    out = project.preview(ok=False).out
    assert "target.max_parallel: is 3 here, but 2 elsewhere in the program for the same root" in out
    assert "use one Local(...) for all jobs with this root" in out
