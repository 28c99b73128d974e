"""Folders of the Local target that are not where the stack has made them: another root, another clone, a moved project."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pulumi_trainer.provider.targets.local.paths import remove_tree

from .conftest import Project
from .test_cli import cli

READS = """
import os
data = trainer.DatasetInitializer("data", storage_uri="file://{data}")
trainer.TrainJob(
    "one", runtime=plain, output=True, run=os.environ.get("RUN", "1"), wait_for="complete", {more}
    initializer=trainer.Initializer(dataset=data),
    trainer=trainer.Trainer(command=["sh", "-c", "cd /workspace/dataset && cat a.txt && cp a.txt $TRAINER_OUTPUT_DIR"]),
)
pulumi.export("path", data.path)
"""


def reads(project: Project, more: str = "") -> str:
    data = project.folder.parent / "given"
    data.mkdir(exist_ok=True)
    (data / "a.txt").write_text("forty-two\n")
    return READS.format(data=data, more=more)


def outputs(root: Path) -> list[Path]:
    return sorted(root.glob("volumes/*/one-*/data/*/a.txt"))


def test_a_new_run_in_another_root_is_refused_where_it_would_lack_its_volumes(project: Project) -> None:
    def at(root: str) -> str:
        return reads(project, f'target=trainer.Local(root="{root}"),').replace(
            '("data", ', f'("data", target=trainer.Local(root="{root}"), '
        )

    project.program(at("x"))
    project.up()
    project.program(at("y"))
    assert "refused" not in project.preview().out
    project.up()
    project.env["RUN"] = "2"
    for ask in (project.preview, project.up):
        refused = ask(ok=False).out
        assert "without these volumes: keep target=Local(root=" in refused and "Traceback" not in refused, refused
    assert len(outputs(project.folder / "x")) == 1 and not (project.folder / "y" / "volumes").exists()
    project.program(at("x"))
    project.up()
    project.destroy()
    assert outputs(project.folder / "x") == []


def test_changed_data_in_another_root_make_nothing_there_before_the_refusal(project: Project) -> None:
    def at(root: str, text: str) -> str:
        there = f'target=trainer.Local(root="{root}"), ' if root else ""
        program = reads(project, there).replace('("data", ', f'("data", {there}')
        (project.folder.parent / "given" / "a.txt").write_text(f"{text}\n")
        return program

    project.program(at("", "forty-two"))
    project.up()
    project.program(at("r1", "forty-three"))
    for ask in (project.preview, project.up):
        refused = ask(ok=False).out
        assert f"move the folder to {str(project.folder / 'r1')!r}" in refused and "Traceback" not in refused, refused
        assert not (project.folder / "r1").exists()
    (project.folder / "r1").mkdir()
    refused = project.preview(ok=False).out
    assert "cannot be moved because" in refused and "move that folder" not in refused, refused
    (project.folder / "r1").rmdir()
    project.root.rename(project.folder / "r1")
    project.program(at("r1", "forty-two"))
    project.up()
    project.program(at("r1", "forty-three"))
    project.env["RUN"] = "2"
    project.up()
    assert [path.read_text() for path in outputs(project.folder / "r1")] == ["forty-two\n", "forty-three\n"]
    assert not project.root.exists()
    project.destroy()


@pytest.mark.core
def test_a_second_clone_of_a_program_does_not_train_on_an_empty_dataset(project: Project) -> None:
    project.program(reads(project))
    project.up()
    clone = replace(
        project, folder=project.folder / "clone", env={"PULUMI_BACKEND_URL": f"file://{project.folder}/state"}
    )
    clone.folder.mkdir()
    for file in filter(Path.is_file, project.folder.iterdir()):
        shutil.copy(file, clone.folder)
    clone.preview("--expect-no-changes")
    clone.env["RUN"] = "2"
    for ask in (clone.preview, clone.up):
        refused = ask(ok=False).out
        assert "has its volumes in" in refused and str(project.root) in refused, refused
    assert not clone.root.exists() or outputs(clone.root) == []


def test_a_project_that_was_moved_finds_its_jobs_and_volumes(project: Project, tmp_path: Path) -> None:
    project.program(reads(project))
    project.up()
    uid = project.job("one").uid
    moved = replace(project, folder=tmp_path.with_name(f"{tmp_path.name}-moved"), env={})
    project.folder.rename(moved.folder)
    moved.env["RUN"] = "2"
    for ask in (moved.preview, moved.up):
        refused = ask(ok=False).out
        assert "has moved with its folder" in refused and "run `pulumi up` without the new run first" in refused, (
            refused
        )
    del moved.env["RUN"]
    moved.up()
    moved.preview("--expect-no-changes")
    assert moved.job("one").uid == uid and moved.outputs()["path"].startswith(str(moved.root))
    assert not project.folder.exists()
    moved.env["RUN"] = "2"
    moved.up()
    assert moved.job("one").uid != uid and moved.logs("one").count("forty-two") == 1
    moved.destroy()
    assert outputs(moved.root) == [] and [*moved.target.jobs.list_all()] == []


TRAINS = """
job = trainer.TrainJob("one", runtime=plain, output=True, wait_for="complete", trainer=trainer.Trainer(
    command=["sh", "-c", "echo trained > $TRAINER_OUTPUT_DIR/a.txt"]))
pulumi.export("output", job.output_path)
"""


def test_commands_and_outputs_see_where_a_project_was_moved(project: Project, tmp_path: Path) -> None:
    project.program(TRAINS)
    project.up()
    moved = replace(project, folder=tmp_path.with_name(f"{tmp_path.name}-moved"), env={})
    project.folder.rename(moved.folder)
    assert "Succeeded" in cli(moved, "status", "-s", "test").stdout
    assert (
        "All 2 objects in the state" in (seen := cli(moved, "doctor", "-s", "test").stdout) and "refresh" not in seen
    ), seen
    assert str(moved.root) in (listed := cli(moved, "outputs", "-s", "test").stdout) and "gone" not in listed, listed
    moved.up()
    output = Path(moved.outputs()["output"])
    assert output.is_relative_to(moved.root) and (output / "a.txt").read_text() == "trained\n"
    assert cli(moved, "outputs", "one", "-s", "test", "--copy", str(moved.folder / "copy")).returncode == 0
    assert sorted(path.name for path in (moved.folder / "copy").iterdir()) == ["a.txt", "run.json"]
    shutil.rmtree(moved.root / "jobs/default")
    assert "it is not known whether it had ended" in cli(moved, "doctor", "-s", "test").stdout


MOVED = """
data = trainer.DatasetInitializer("data", storage_uri="file://data")
trainer.TrainJob(
    "one", runtime=plain, output=True, wait_for="complete", initializer=trainer.Initializer(dataset=data),
    trainer=trainer.Trainer(command=["sh", "-c", "cat /workspace/dataset/a.txt > $TRAINER_OUTPUT_DIR/a.txt"]),
)
pulumi.export("path", data.path)
"""


@pytest.mark.parametrize("first", ["preview", "refresh"])
def test_a_project_whose_source_moves_along_goes_on(project: Project, tmp_path: Path, first: str) -> None:
    (project.folder / "data").mkdir()
    (project.folder / "data" / "a.txt").write_text("forty-two\n")
    project.program(MOVED)
    project.up()
    uid = project.job("one").uid
    moved = replace(project, folder=tmp_path.with_name(f"{tmp_path.name}-moved"), env={})
    project.folder.rename(moved.folder)
    if first == "refresh":
        told = f"default/one-b3ff0 is unchanged in the state of this stack: {project.folder} does not exist"
        assert told in (shown := moved.refresh().out), shown
    shown = moved.preview().out
    assert "create" not in shown and "replace" not in shown, shown
    moved.up()
    assert moved.job("one").uid == uid and moved.outputs()["path"].startswith(str(moved.root))
    moved.preview("--expect-no-changes")
    assert not project.folder.exists()
    (moved.folder / "data" / "a.txt").write_text("forty-three\n")
    moved.up()
    moved.destroy()
    assert outputs(moved.root) == [] and [*moved.target.jobs.list_all()] == []


def test_a_root_that_was_removed_is_made_again_where_the_program_is(project: Project, tmp_path: Path) -> None:
    project.program(reads(project))
    project.up()
    moved = replace(project, folder=tmp_path.with_name(f"{tmp_path.name}-moved"), env={})
    project.folder.rename(moved.folder)
    shutil.rmtree(moved.root)
    assert "it is not known whether it had ended" in moved.up(ok=False).out
    assert outputs(moved.root) == [], "a job that may have ended runs again only if asked"
    assert cli(moved, "rerun", "one", "-s", "test").returncode == 0
    moved.up()
    assert not project.folder.exists() and len(outputs(moved.root)) == 1
    moved.preview("--expect-no-changes")


def test_output_moves_with_its_job_to_another_namespace(project: Project) -> None:
    project.program(reads(project))
    project.up()
    project.config("trainer:namespace", "nlp")
    assert "volume default/one-" in (told := project.preview().out) and "with the output in it" in told, told
    project.up()
    assert [path.parts[-5] for path in outputs(project.root)] == ["nlp"]
    assert all((path.parents[2] / "volume.json").exists() for path in outputs(project.root))
    project.preview("--expect-no-changes")
    project.destroy()
    assert outputs(project.root) == []


def test_another_run_is_not_adopted(project: Project) -> None:
    clone = replace(project, folder=project.folder / "clone")
    (clone.folder / "state").mkdir(parents=True)
    shutil.copy(project.folder / "Pulumi.yaml", clone.folder)
    assert clone.run("stack", "init").code == 0
    shared = project.folder / "shared"

    def adopts(run: str) -> str:
        at = f'adopt=True, run="{run}", name="two", target=trainer.Local(root="{shared}"), wait_for="complete"'
        return f'trainer.TrainJob("one", runtime=plain, trainer=trainer.Trainer(command=["true"]), {at})'

    project.program(adopts("1"))
    project.up()
    clone.program(adopts("2"))
    for ask in (clone.preview, clone.up):
        assert "cannot be adopted: it differs in run, which is '1' and not '2'" in (out := ask(ok=False).out), out
    clone.program(adopts("1"))
    clone.up()


def test_a_source_that_holds_the_volumes_is_refused_in_the_plan(project: Project) -> None:
    project.program(f'trainer.DatasetInitializer("data", storage_uri="file://{project.folder}")')
    refused = project.preview(ok=False).out
    assert (
        f"storage_uri: {project.folder} contains {project.root}/volumes, the folder into which its files would be copied"
        in refused
    )
    assert "Traceback" not in refused


def test_a_source_nested_too_deeply_is_refused_in_the_plan(project: Project) -> None:
    deep = project.folder / "deep"
    deep.mkdir()
    project.program(f'trainer.DatasetInitializer("data", storage_uri="file://{deep}")')
    try:
        subprocess.run(["mkdir", "-p", "/".join("d" * 1500)], cwd=deep, check=True)
        refused = project.preview(ok=False).out
    finally:
        remove_tree(deep)  # pytest could not
    assert "has more than 64 folders" in refused and "Traceback" not in refused, refused
