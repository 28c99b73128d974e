"""Jobs and volumes that could be taken for each other: renamed jobs, renamed stacks, other folders, other clones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pulumi_trainer.provider.targets.local import LocalTarget

from .conftest import Project, eventually

SLEEP = 'runtime=plain, trainer=trainer.Trainer(command=["sleep", "300"]), wait_for="running"'


def sleeps(name: str, more: str = "") -> str:
    return f'trainer.TrainJob("{name}", {SLEEP}, {more})\n'


def writes(name: str, options: str = "", run: str = "1", more: str = "") -> str:
    """A job that leaves something in its volume of output."""
    given = f"opts=pulumi.ResourceOptions({options})," if options else ""
    command = '["sh", "-c", "echo x > $TRAINER_OUTPUT_DIR/model"]'
    return (
        f'trainer.TrainJob("{name}", runtime=plain, run="{run}", output=True, wait_for="complete", {given} {more}'
        f"trainer=trainer.Trainer(command={command}))\n"
    )


def models(root: Path) -> list[Path]:
    return sorted(root.glob("volumes/*/*/data/*/model"))


def test_a_job_in_one_folder_does_not_go_with_those_in_another(project: Project) -> None:
    here, there = sleeps("a", 'target=trainer.Local(root="x")'), sleeps("b", 'target=trainer.Local(root="y")')
    project.program(here + there)
    project.up()
    both = {r["urn"].rpartition("::")[2]: r["outputs"]["uid"] for r in project.resources()}
    project.program(there)
    assert "b-" not in "".join(line for line in project.up().out.splitlines() if "is deleted" in line)
    (kept,) = project.resources()
    assert kept["outputs"]["uid"] == both["b"]
    (status,) = LocalTarget(project.folder / "y").jobs.list_all()
    assert status.phase == "Running" and [*LocalTarget(project.folder / "x").jobs.list_all()] == []
    assert [r["urn"].rpartition("::")[2] for r in project.resources("Target")] == ["local-2"]
    project.preview("--expect-no-changes")
    project.destroy()
    assert [*LocalTarget(project.folder / "y").jobs.list_all()] == []


def test_a_stack_of_the_name_that_another_one_had_touches_nothing_of_it(project: Project) -> None:
    project.program(writes("a") + sleeps("long"))
    project.up()
    uid = project.job("long").uid
    assert project.run("stack", "rename", "prod").code == 0
    project.stack = "test"
    assert project.run("stack", "init").code == 0
    for program in (writes("a") + sleeps("long"), sleeps("long")):
        project.program(program)
        for ask in (project.preview, project.up):
            refused = ask(ok=False).out
            assert "another stack of this name" in refused and "Traceback" not in refused, refused
    project.program(sleeps("other"))
    project.up()
    project.destroy()
    assert project.job("long").uid == uid and project.job("long").phase == "Running"
    assert len(models(project.root)) == 1
    project.stack = "prod"
    project.program(writes("a") + sleeps("long"))
    project.preview("--expect-no-changes")
    project.destroy()
    assert models(project.root) == [] and not [*project.target.jobs.list_all()]


def test_a_name_that_a_renamed_job_still_has_is_refused(project: Project) -> None:
    project.program(writes("a"))
    project.up()
    renamed = writes("b", 'aliases=[pulumi.Alias(name="a")]')
    project.program(renamed)
    project.up()
    for run in ("1", "2"):
        project.program(renamed + writes("a", run=run))
        for ask in (project.preview, project.up):
            refused = ask(ok=False).out
            assert "belongs to 'b'" in refused and "name=" in refused and "Traceback" not in refused, refused
    project.program(renamed + writes("a", more='name="a-again",'))
    project.up()
    assert len(models(project.root)) == 2
    project.program(renamed)
    project.up()
    assert len(models(project.root)) == 1
    project.preview("--expect-no-changes")


@pytest.mark.core
def test_a_rename_to_the_same_name_in_the_target_names_the_alias(project: Project) -> None:
    project.program(writes("my_job"))
    project.up()
    project.program(writes("my-job"))
    refused = project.preview(ok=False).out
    assert "aliases=[pulumi.Alias(name='my_job')]" in refused and "Traceback" not in refused, refused
    assert len(models(project.root)) == 1
    project.program(writes("my-job", 'aliases=[pulumi.Alias(name="my_job")]'))
    project.up()
    assert len(models(project.root)) == 1


def test_a_rename_that_was_refused_says_how_its_alias_applies(project: Project) -> None:
    """The update has left the new component in the state, and Pulumi takes no alias for a resource that is there."""
    project.program(writes("first", more='name="x",'))
    project.up()
    project.program(writes("second", more='name="x",'))
    refused = project.up(ok=False).out
    assert "aliases=[pulumi.Alias(name='first')]" in refused, refused
    project.program(writes("second", 'aliases=[pulumi.Alias(name="first")]', more='name="x",'))
    for ask in (project.preview, project.up):
        refused = ask(ok=False).out
        assert "a rejected update has also left 'second' in the stack" in refused and "Traceback" not in refused, (
            refused
        )
    urn = refused.partition("pulumi state delete '")[2].partition("'")[0]
    assert project.run("state", "delete", urn, "--yes").code == 0
    project.preview()
    project.up()
    assert len(models(project.root)) == 1
    project.preview("--expect-no-changes")


def test_retain_on_delete_counts_from_the_update_that_says_so(project: Project) -> None:
    def both(options: str) -> str:
        return writes("done", options) + sleeps("long", f"opts=pulumi.ResourceOptions({options})")

    project.program(both(""))
    project.up()
    uid = project.job("long").uid
    project.program(both("retain_on_delete=True"))
    project.up()
    assert project.job("long").uid == uid
    project.preview("--expect-no-changes")
    project.program(
        writes("done", "retain_on_delete=True", run="2")
        + sleeps("long", "opts=pulumi.ResourceOptions(retain_on_delete=True)")
    )
    refused = project.preview(ok=False).out
    assert "is kept (retain_on_delete)" in refused and "name=" in refused
    project.program(both(""))
    project.up()
    project.program(writes("done", run="2") + sleeps("long"))
    project.up()
    project.program(both("retain_on_delete=True"))
    assert "is kept (retain_on_delete)" in project.preview(ok=False).out, "the run key has changed back"
    project.program(
        writes("done", "retain_on_delete=True", run="2")
        + sleeps("long", "opts=pulumi.ResourceOptions(retain_on_delete=True)")
    )
    project.up()
    project.destroy()
    assert {s.phase for s in project.target.jobs.list_all()} == {"Running", "Succeeded"}
    assert project.job("long").uid == uid


def test_the_volume_of_another_clone_is_not_taken(project: Project) -> None:
    root = project.folder / "shared"
    program = writes("a", more=f'target=trainer.Local(root="{root}"),')
    project.program(program)
    project.up()
    clone = replace(project, folder=project.folder / "clone")
    (clone.folder / "state").mkdir(parents=True)
    shutil.copy(project.folder / "Pulumi.yaml", clone.folder)
    assert clone.run("stack", "init").code == 0
    clone.program(program)
    for ask in (clone.preview, clone.up):
        refused = ask(ok=False).out
        assert "another stack of this name" in refused and "Traceback" not in refused, refused
    clone.destroy()
    assert len(models(root)) == 1
    project.preview("--expect-no-changes")
    project.destroy()


def test_a_renamed_job_that_is_suspended_says_how_it_keeps_its_name(project: Project) -> None:
    job = 'trainer.TrainJob("{}", runtime=plain, suspend={}, {} trainer=trainer.Trainer(command=["true"]))\n'
    alias = 'opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name="one")]),'
    project.program(job.format("one", True, ""))
    project.up()
    name = project.job("one").name
    project.program(job.format("two", True, alias))
    project.up()
    project.program(job.format("two", False, alias))
    assert f'(name="{name}" keeps it)' in project.preview(ok=False).out
    project.program(job.format("two", False, f'{alias} name="{name}",'))
    project.up()
    eventually(lambda: project.job("one").phase == "Succeeded")


def test_a_targeted_update_tells_the_data_that_it_mounted(project: Project) -> None:
    (project.folder / "data").mkdir()
    (project.folder / "data/a.txt").write_text("OLD")
    program = """
    data = trainer.DatasetInitializer("words", storage_uri="file://data")
    trainer.TrainJob("a", runtime=plain, run="RUN", wait_for="complete", initializer=trainer.Initializer(dataset=data),
        trainer=trainer.Trainer(command=["sh", "-c", "cat /workspace/dataset/*"]))
    """
    project.program(program.replace("RUN", "1"))
    project.up()
    assert "OLD" in project.logs("a-")
    (before,) = [r["inputs"]["data"] for r in project.resources() if r["urn"].endswith("::a")]
    (project.folder / "data/a.txt").write_text("NEW")
    project.program(program.replace("RUN", "2"))
    (job,) = [r["urn"] for r in project.resources() if r["urn"].endswith("::a")]
    project.up("--target", job)
    (after,) = [r["inputs"]["data"] for r in project.resources() if r["urn"].endswith("::a")]
    assert "OLD" in project.logs("a-") and after["dataset"]["version"] == before["dataset"]["version"]
    assert 'run="3" trains on it' in project.preview().out
    project.program(program.replace("RUN", "3"))
    project.up()
    assert "NEW" in project.logs("a-")
