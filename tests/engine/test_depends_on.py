"""`depends_on=[job]` through the real engine: what depends on a job waits as far as that job's `wait_for` says."""

from __future__ import annotations

import pytest

from .conftest import Project

PROGRAM = """
import pulumi.dynamic

def first():
    import pathlib, time
    time.sleep(2)
    pathlib.Path(DONE).touch()
    EXIT

def second():
    import pathlib
    print("first is done:", pathlib.Path(DONE).exists(), flush=True)

class Look(pulumi.dynamic.ResourceProvider):
    def create(self, props):
        import pathlib
        return pulumi.dynamic.CreateResult("x", {"saw": pathlib.Path(DONE).exists()})

class Other(pulumi.dynamic.Resource):
    saw: pulumi.Output[bool]

    def __init__(self, name, opts):
        super().__init__(Look(), name, {"saw": None}, opts)

def job(name, func, **given):
    return trainer.TrainJob(name, runtime=plain, trainer=trainer.CustomTrainer(func=func), **given)

before = job("first", first, wait_for=WAIT)
after = pulumi.ResourceOptions(depends_on=[before])
job("second", second, wait_for="complete", opts=after)
pulumi.export("saw", Other("other", after).saw)
"""


def program(project: Project, wait_for: str, *, ends: str = "pass") -> None:
    text = PROGRAM.replace("DONE", repr(str(project.folder / "done"))).replace("WAIT", repr(wait_for))
    project.program(text.replace("EXIT", ends))


@pytest.mark.core
def test_what_depends_on_a_job_waits_for_its_end(project: Project) -> None:
    program(project, "complete")
    project.preview()
    project.up()
    assert "first is done: True" in project.logs("second") and project.outputs() == {"saw": True}
    states = project.resources("JobSet") + [
        r for r in project.export()["deployment"]["resources"] if r["urn"].endswith("::other")
    ]
    first = next(r["urn"] for r in states if r["urn"].endswith("::first"))
    assert all(first in r["dependencies"] for r in states if r["urn"].endswith("::other"))
    project.preview("--expect-no-changes")
    assert "unchanged" in project.up().out
    project.destroy()


def test_or_until_it_is_there(project: Project) -> None:
    program(project, "created")
    project.up()
    assert project.outputs() == {"saw": False}


def test_what_depends_on_a_job_that_fails_is_not_made(project: Project) -> None:
    program(project, "complete", ends="raise SystemExit(3)")
    told = project.up(ok=False).out
    assert 'TrainJob("first") Failed' in told and "Traceback" not in told
    assert project.job("second") is None
    assert not [r for r in project.export()["deployment"]["resources"] if r["urn"].endswith("::other")]


def test_what_depends_on_a_job_that_is_refused_is_not_made(project: Project) -> None:
    program(project, "complete")
    text = (project.folder / "__main__.py").read_text().replace('"first", first,', '"first", first, nodes=2,')
    (project.folder / "__main__.py").write_text(text)
    told = project.preview(ok=False).out
    assert "1 problem" in told and "nodes: unknown field" in told
    told = project.up(ok=False).out
    assert "nodes: unknown field" in told and "what depends on it is not created either" in told
    assert "Traceback" not in told
    assert not project.target.jobs.list_all()
    assert not [r for r in project.export()["deployment"]["resources"] if r["urn"].endswith("::other")]


SEARCH = """
def fit():
    import time
    time.sleep(2)
    print('{"trainerStatus": {"metrics": [{"name": "best_lr", "value": "0.3"}]}}', flush=True)

def use(lr):
    print("trained with", lr, flush=True)

search = trainer.TrainJob("search", runtime=plain, trainer=trainer.CustomTrainer(func=fit))
best = search.progress.apply(lambda progress: progress and progress["metrics"]["best_lr"])
trainer.TrainJob("final", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=use, func_args={"lr": BEST}))
"""


def test_all_outputs_of_a_job_tell_of_its_end_if_the_program_waits_for_that(project: Project) -> None:
    project.program(SEARCH.replace("BEST", "pulumi.Output.all(search.completion, best).apply(lambda both: both[1])"))
    project.up()
    assert "trained with 0.3" in project.logs("final")
    uid = project.job("final").uid
    project.up()
    assert project.job("final").uid == uid


def test_an_output_that_comes_too_early_is_told(project: Project) -> None:
    project.program(SEARCH.replace("BEST", "best"))
    told = project.up().out
    assert "trainer.func_args" in told and 'is None: TrainJob("search") is read when the job is created' in told, told
    assert "trained with None" in project.logs("final")
