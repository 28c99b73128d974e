"""Outputs are safe: the plan says what stays and what goes, and `pulumi-trainer outputs` lists and copies them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Project

CODE = """
def write():
    import os, pathlib
    pathlib.Path(os.environ.get("TRAINER_OUTPUT_DIR", "."), "model.pt").write_text("x" * 1200)

for name, output in @OUTPUTS.items():
    trainer.TrainJob(
        name, name=name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=write),
        output=trainer.OutputVolume(retain=True) if output == "retained" else output,
    )
"""


def program(**outputs: object) -> str:
    return CODE.replace("@OUTPUTS", repr(outputs))


def cli(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", *arguments, "-s", project.stack]
    return subprocess.run(
        argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=False
    )


def test_the_plan_says_what_is_kept(project: Project) -> None:
    project.program(program(one=True, two="retained"))
    planned = project.preview("--diff").out
    inputs = [line.split() for line in planned.splitlines() if line.strip().startswith("retain")]
    assert [line[-1] for line in inputs] == ["true"], planned
    project.up()
    assert "retain" not in project.preview("--expect-no-changes").out

    project.program(program(one="retained", two=True))
    planned = project.preview().out
    content = "1 file, 1.2 kB, last written 20"
    assert f"volume default/one-output will be kept when its job is deleted: {content}" in planned
    assert f"volume default/two-output will be deleted with its job and its content: {content}" in (planned)
    project.up()
    assert "will be kept when" not in project.preview("--expect-no-changes").out

    project.program(program(three=False))
    planned = project.preview().out
    assert (
        f"volume default/one-output was removed from the program, and is kept because it is retained: {content}"
        in planned
    )
    (folder,) = project.root.glob("volumes/default/one-output/data")
    assert f"in {folder}" in planned
    assert (
        "volume default/two-output was removed from the program, and will be deleted unless it was retained" in planned
    )
    project.up()
    assert [*folder.glob("*/model.pt")]
    assert not [*project.root.glob("volumes/default/two-output/data")]


KEPT = """
def write():
    import os, pathlib
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "model.pt").write_text("x" * 1200)

keep = @OPTIONS
words = trainer.DatasetInitializer("words", storage_uri="file://words", opts=keep)
trainer.TrainJob(
    "one", name="one", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=write), output=True,
    initializer=trainer.Initializer(dataset=words), opts=keep,
)
"""


def test_a_job_with_retain_on_delete_keeps_its_output_and_its_data(project: Project) -> None:
    (project.folder / "words").mkdir()
    (project.folder / "words/a.txt").write_text("to be")

    def run(options: str) -> str:
        project.program(KEPT.replace("@OPTIONS", options))
        return project.up().out

    run("None")
    told = run("pulumi.ResourceOptions(retain_on_delete=True)")
    assert "volume default/one-output will be kept when its job is deleted: 1 file, 1.2 kB" in told
    project.preview("--expect-no-changes")
    project.destroy()
    kept = {path.name: path.stat().st_size for path in project.root.glob("volumes/default/*/data/**/[!.]*.*")}
    assert kept == {"model.pt": 1200, "a.txt": 5}
    assert project.job("one").phase == "Succeeded"


@pytest.mark.core
def test_outputs_are_listed_and_copied(project: Project, tmp_path: Path) -> None:
    project.program(program(one=True, two="retained", three=False))
    project.up()
    head, *rows = (line.split() for line in cli(project, "outputs").stdout.splitlines())
    one, two = sorted(rows)  # a stack has its jobs in the order in which they were created
    assert head[:6] == ["job", "phase", "where", "size", "files", "age"]
    (folder,) = project.root.glob("volumes/default/one-output/data/[!.]*")
    assert one[:6] == ["one", "Succeeded", str(folder), "1.2", "kB", "1"] and one[-1] == "deleted"
    assert two[0] == "two" and two[-1] == "retained"
    (listed,) = json.loads(cli(project, "outputs", "two", "-o", "json").stdout)
    assert (listed["name"], listed["files"], listed["size"], listed["retained"]) == ("two", 1, 1200, True)
    assert (
        cli(project, "outputs", "three").stdout == "three has no output volume. Hint: set output=True on the TrainJob\n"
    )
    assert json.loads(cli(project, "outputs", "three", "-o", "json").stdout) == []

    to = tmp_path / "copies" / "one"
    done = cli(project, "outputs", "one", "--copy", str(to))
    assert done.returncode == 0 and "one: 1 file, 1.2 kB copied" in done.stdout and not done.stderr, done.stderr
    assert (to / "model.pt").read_text() == "x" * 1200
    record = json.loads((to / "run.json").read_text())
    assert record["phase"] == "Succeeded" and record["inputs"]["image"] and record["job"] == "one"
    assert record["copy"]["files"][0]["path"] == "model.pt" and record["copy"]["unfinished"] is False

    refused = cli(project, "outputs", "one", "--copy", str(to))
    assert refused.returncode == 1 and "is not empty. Hint: --overwrite replaces an earlier copy" in refused.stderr
    assert cli(project, "outputs", "one", "--copy", str(to), "--overwrite").returncode == 0
    for arguments, why in {
        ("outputs", "--copy", str(to)): "copies the output of one job",
        ("outputs", "three", "--copy", str(to)): "has no output volume",
        ("outputs", "--overwrite"): "has no effect without --copy",
    }.items():
        refused = cli(project, *arguments)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr


def test_the_copy_of_an_unfinished_job_says_so(project: Project, tmp_path: Path) -> None:
    project.program("""
def write():
    import os, pathlib, time
    pathlib.Path(os.environ.get("TRAINER_OUTPUT_DIR", "."), "model.pt").write_text("x" * 1200)
    time.sleep(600)

trainer.TrainJob(
    "one", runtime=plain, wait_for="running", output=True, trainer=trainer.CustomTrainer(func=write),
)
""")
    project.up()
    done = cli(project, "outputs", "one", "--copy", str(tmp_path / "copy"))
    assert done.returncode == 0 and "its files may change while they are copied" in done.stderr, done.stderr
    assert json.loads((tmp_path / "copy" / "run.json").read_text())["copy"]["unfinished"] is True


def test_what_stays_when_a_volume_is_replaced_is_what_the_plan_says(project: Project) -> None:
    """Another namespace has another volume; the `retain` of the last update decides, as for the engine."""
    project.program(program(one=True, two="retained"))
    project.up()
    project.run("config", "set", "trainer:namespace", "other")
    project.program(program(one="retained", two=True))
    planned = project.preview().out
    assert "volume default/one-output will be deleted with the output in it: 1 file" in planned
    assert "volume default/two-output is kept because it is retained, and another volume is created: 1 file" in planned
    project.up()
    assert not [*project.root.glob("volumes/default/one-output/data/*/model.pt")]
    assert [*project.root.glob("volumes/default/two-output/data/*/model.pt")]
