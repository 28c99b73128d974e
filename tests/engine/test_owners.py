"""Jobs on this machine that another stack has adopted, or somebody has removed by hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import Project, eventually
from .test_cli import cli

SLEEP = 'trainer=trainer.Trainer(command=["sleep", "300"])'
WHOSE = "belongs to the stack lab/second now, which has adopted it"


def job(more: str = "", *, sleep: bool = True) -> str:
    """A job with a fixed name, so that two stacks can mean the same one."""
    runs = SLEEP if sleep else 'trainer=trainer.Trainer(command=["true"])'
    return f"""
job = trainer.TrainJob("a0", name="a0", runtime=plain, {runs}, {more})
pulumi.export("phase", job.phase)
"""


def second(project: Project) -> None:
    """Goes on with another stack of the project; its configuration is the first one's."""
    project.stack = "second"
    assert project.run("stack", "init").code == 0


@pytest.fixture
def adopted(project: Project) -> Project:
    """A running job that the second stack has adopted; the first stack is selected."""
    first = project.stack
    project.program(job())
    project.up()
    before = project.job("a0").uid
    second(project)
    project.program(job("adopt=True,"))
    project.up()
    assert project.job("a0").uid == before
    project.stack = first
    project.program(job())
    return project


@pytest.mark.core
def test_an_adopted_job_is_left_alone_by_the_stack_that_has_lost_it(adopted: Project) -> None:
    uid = adopted.job("a0").uid
    for _ in range(2):
        shown = adopted.preview("--expect-no-changes")
        assert WHOSE in shown.out
        assert WHOSE in adopted.up().out
    adopted.program(job('run="2", interrupt="allow",'))
    for refused in (adopted.preview(ok=False), adopted.up(ok=False)):
        assert WHOSE in refused.out and "adopt=True" in refused.out
    adopted.program(job())
    gone = adopted.destroy()
    assert WHOSE in gone.out and "left alone" in gone.out
    assert (status := adopted.job("a0")).uid == uid and status.phase == "Running"
    assert status.program == "lab/second"


def test_the_command_line_says_who_has_adopted_a_job(adopted: Project) -> None:
    for args in (("status",), ("status", "-o", "json"), ("why", "a0")):
        shown = cli(adopted, *args, "--stack", "test").stdout
        assert f"default/a0 {WHOSE}" in shown and "Running" in shown, shown
        assert WHOSE not in cli(adopted, *args, "--stack", "second").stdout


def test_a_plan_says_that_a_job_is_taken_over(project: Project) -> None:
    """Its next run replaces the adopted one, although adopt=True is still set."""
    taken = "default/a0: belongs to the stack lab/test and is taken over"
    project.program(job())
    project.up()
    uid = project.job("a0").uid
    second(project)
    project.program(job("adopt=True,"))
    assert taken in project.preview().out
    project.up()
    assert project.job("a0").uid == uid
    assert "taken over" not in project.preview("--expect-no-changes").out
    project.program(job('adopt=True, run="2", interrupt="allow",'))
    assert "taken over" not in project.preview().out
    project.up()
    assert project.job("a0").uid != uid


def test_a_wait_for_a_lost_job_fails(adopted: Project) -> None:
    adopted.program(job('wait_for="complete",'))
    assert WHOSE in adopted.preview().out
    failed = adopted.up(ok=False)
    assert WHOSE in failed.out and "waiting for" not in failed.out


def test_a_refresh_forgets_a_lost_job_and_adopt_takes_it_back(adopted: Project) -> None:
    uid = adopted.job("a0").uid
    told = adopted.refresh()
    assert WHOSE in told.out and not adopted.resources()
    refused = adopted.up(ok=False)
    assert "belongs to the stack lab/second" in refused.out
    adopted.program(job("adopt=True,"))
    adopted.up()
    assert (status := adopted.job("a0")).uid == uid and status.program == f"lab/{adopted.stack}"
    adopted.stack = "second"
    assert f"belongs to the stack lab/{'test'} now" in adopted.destroy().out
    assert adopted.job("a0").uid == uid


def folder(project: Project) -> Path:
    return project.root / "jobs" / "default" / "a0"


UNKNOWN_END = "somebody has deleted it, and it is not known whether it had ended"


def lost(project: Project) -> None:
    shutil.rmtree(folder(project))
    eventually(lambda: not project.processes(), what="its processes have ended")


@pytest.mark.parametrize("ends", [True, False], ids=["it has ended", "it runs"])
def test_a_job_whose_folder_somebody_has_removed_runs_again_only_if_asked(project: Project, ends: bool) -> None:
    """Nobody has read its end."""
    project.program(job(sleep=not ends))
    project.up()
    uid = project.job("a0").uid
    if ends:
        eventually(lambda: not project.processes(), what="its processes have ended")
    lost(project)
    for _ in range(2):
        assert UNKNOWN_END in project.preview("--expect-no-changes").out
        shown = project.up().out
        assert f"Deleted (OutcomeUnknown)\n      {UNKNOWN_END}" in shown and "set another run= key" in shown, shown
        assert project.outputs() == {"phase": "Deleted"} and project.job("a0") is None
        project.refresh()
    assert re.search(rf"a0: OutcomeUnknown\n +{UNKNOWN_END}", cli(project, "status").stdout)
    why = cli(project, "why", "a0").stdout
    assert UNKNOWN_END in why and "use `pulumi-trainer rerun`, to run it again" in why, why
    listed = cli(project, "outputs", "a0")
    assert UNKNOWN_END in listed.stderr and "has no output volume" not in listed.stdout, listed
    doctor = cli(project, "doctor").stdout
    assert UNKNOWN_END in doctor and "pulumi-trainer rerun a0" in doctor and "pulumi up" not in doctor, doctor
    assert cli(project, "rerun", "a0").returncode == 0
    again = project.job("a0")
    assert again.uid == uid and not again.terminal
    assert UNKNOWN_END not in project.preview("--expect-no-changes").out
    lost(project)
    project.program(job('interrupt="allow",', sleep=not ends))
    assert f"{UNKNOWN_END}; it is created again, as interrupt= allows" in project.preview().out
    project.up()
    assert project.job("a0").uid != uid
    project.destroy()
    assert project.job("a0") is None and not project.resources()


OUTPUT = """
def train(lr):
    import os
    open(os.environ["TRAINER_OUTPUT_DIR"] + "/m.txt", "w").write("trained")

trainer.TrainJob("a0", name="a0", runtime=plain, output=True, {more}
    trainer=trainer.CustomTrainer(func=train, func_args={{"lr": {lr}}}))
"""


def test_the_run_of_a_job_whose_folder_somebody_has_removed_stays_known(project: Project) -> None:
    """The state of the stack has its identity, and the volume its output."""
    unknown = r"Deleted, created 20\S+ \S+ UTC, it is not known whether it had ended"
    project.program(OUTPUT.format(lr=1, more=""))
    project.up()
    eventually(lambda: not project.processes(), what="its processes have ended")
    ((run, known),) = _runs(project).items()
    lost(project)
    assert re.match(rf"a0 {run}: {unknown}\n", cli(project, "runs", "a0").stdout)
    for found in (cli(project, "outputs"), cli(project, "outputs", "a0", "--run", run)):
        assert re.search(rf"(?m)^a0 +Deleted .*/{run} ", found.stdout), found
    project.program(OUTPUT.format(lr=2, more=""))
    project.up()
    eventually(lambda: not project.processes(), what="its processes have ended")
    both = _runs(project)
    assert [*both] == [run, max(both)] and both[run]["phase"] == "Deleted" and both[max(both)]["phase"] == "Succeeded"
    assert {key: both[run][key] for key in ("lineage", "place", "cause")} == {
        key: known[key] for key in ("lineage", "place", "cause")
    }
    assert abs(both[run]["created"] - known["created"]) < 2
    assert f"a0   {run}  Deleted" in cli(project, "runs", "--metrics").stdout
    assert re.search(rf"(?m)^a0 +Deleted .*/{run} ", cli(project, "outputs", "a0", "--run", run).stdout)
    project.program(OUTPUT.format(lr=3, more=f'resume="{run}",'))
    assert f"the new run continues run {run} in its folder" in project.preview().out
    project.up()
    assert re.match(rf"a0 {run}: {unknown}\n", cli(project, "runs", "a0").stdout), "nor has the next run interrupted it"


def _runs(project: Project) -> dict[str, Any]:
    return {each["id"]: each for each in json.loads(cli(project, "runs", "a0", "-o", "json").stdout)}


def test_a_job_that_has_not_started_is_made_again(project: Project) -> None:
    project.program(job("suspend=True,"))
    project.up()
    lost(project)
    assert "the job was Suspended: it counts as unfinished and is created again" in project.preview().out
    project.up()
    assert project.job("a0").phase == "Suspended"
    assert UNKNOWN_END not in project.preview("--expect-no-changes").out


def test_a_finished_job_whose_folder_somebody_has_removed_stays_finished(project: Project) -> None:
    project.program(job('wait_for="complete",', sleep=False))
    project.up()
    project.refresh()
    shutil.rmtree(folder(project))
    for _ in range(2):
        shown = project.preview("--expect-no-changes")
        assert (
            "It was Succeeded when the stack last saw it: it counts as finished" in shown.out
            and "run= key" in shown.out
        )
        project.up()
        assert project.job("a0") is None
    project.program(job('wait_for="complete", run="2",', sleep=False))
    project.up()
    assert project.job("a0").phase == "Succeeded"


def test_output_that_somebody_has_removed_is_told_and_the_job_stays_finished(project: Project) -> None:
    project.program(job('output=True, wait_for="complete",', sleep=False))
    project.up()
    uid = project.job("a0").uid
    (volume,) = (project.root / "volumes" / "default").iterdir()
    shutil.rmtree(volume)
    told = "volume default/a0-output: somebody has deleted it, with the output in it; it is created again, empty"
    shown = project.preview().out
    assert told in shown and "1 to update" in shown
    project.up()
    assert (volume / "volume.json").exists() and project.job("a0").uid == uid
    assert "somebody" not in project.preview("--expect-no-changes").out
    shutil.rmtree(volume)
    assert "somebody has deleted it, with the output in it; it is no longer in the state" in project.refresh().out
    project.up()
    assert (volume / "volume.json").exists() and project.job("a0").uid == uid


def test_a_name_that_another_stack_holds_is_an_error_of_the_plan(project: Project) -> None:
    project.program(job(sleep=False))
    project.up()
    second(project)
    for refused in (project.preview(ok=False).out, project.up(ok=False).out):
        why = "default/a0: exists and belongs to the stack lab/test. Hint: give the TrainJob another name, or take the job over"
        assert why in refused and "Traceback" not in refused
    project.program(job("adopt=True,", sleep=False))
    project.preview()


def test_a_job_with_a_volume_of_another_stack_is_not_taken_over(project: Project) -> None:
    """Neither in a plan: the volume is not handed over, so that the job could not be updated."""
    project.program(job("output=True,"))
    project.up()
    uid = project.job("a0").uid
    second(project)
    project.program(job("output=True, adopt=True,"))
    for refused in (project.preview(ok=False).out, project.up(ok=False).out):
        assert (
            "volume default/a0-output: exists and belongs to the stack lab/test. A volume cannot change its owner"
            in refused
        )
        assert "Traceback" not in refused
    assert project.job("a0").uid == uid and project.job("a0").program == "lab/test"
    project.program(job('output=True, adopt=True, name="a1",').replace('name="a0", ', ""))
    project.preview()


def test_a_job_that_may_adopt_keeps_its_own_volume(project: Project) -> None:
    project.program(job("output=True,"))
    project.up()
    project.program(job("output=True, adopt=True,"))
    project.preview("--expect-no-changes")
