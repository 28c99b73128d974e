"""Initializers as resources of their own, and inside a TrainJob."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Project, eventually

PROGRAM = """
def read(seconds: float):
    import os, pathlib, time
    for folder in ("TRAINER_DATASET_DIR", "TRAINER_MODEL_DIR"):
        for file in sorted(pathlib.Path(os.environ.get(folder, "/nowhere")).glob("*.txt")):
            print(folder, file.name, file.read_text(), flush=True)
    time.sleep(seconds)

data = trainer.DatasetInitializer("data", storage_uri="file://first")
model = trainer.ModelInitializer("base", storage_uri="file://weights/model.txt")
for name in ("one", "two"):
    trainer.TrainJob(
        name, runtime=plain, wait_for="WAIT", initializer=trainer.Initializer(dataset=data, model=model),
        trainer=trainer.CustomTrainer(func=read, func_args={"seconds": SECONDS}),
    )
"""


def prepared(project: Project) -> None:
    for folder, file, text in (("first", "a.txt", "AAA"), ("second", "b.txt", "BBB"), ("weights", "model.txt", "MMM")):
        (project.folder / folder).mkdir()
        (project.folder / folder / file).write_text(text)


def program(wait: str, seconds: float) -> str:
    return PROGRAM.replace("WAIT", wait).replace("SECONDS", str(seconds))


def claims(project: Project) -> list[Path]:
    return sorted(p.parent for p in project.root.glob("volumes/default/*/data"))


@pytest.mark.core
def test_a_dataset_is_fetched_once_for_any_number_of_jobs(project: Project) -> None:
    prepared(project)
    project.program(program("complete", 0))
    project.up()
    for job in ("one", "two"):
        assert "TRAINER_DATASET_DIR a.txt AAA" in project.logs(job)
        assert "TRAINER_MODEL_DIR model.txt MMM" in project.logs(job)
    fetched = {s.name: s.uid for s in project.target.jobs.list_all()}
    assert len(fetched) == 4 and len(claims(project)) == 2
    components = [
        r for r in project.export()["deployment"]["resources"] if r["type"].endswith(("Initializer", ":TrainJob"))
    ]
    assert [len(r["stackTrace"]) for r in components] == [1] * 4, "the line of the program, and no frames of packages"
    project.preview("--expect-no-changes")
    project.program(program("complete", 0).replace("file://first", "file://second"))
    project.up()
    assert "TRAINER_DATASET_DIR b.txt BBB" not in project.logs("one"), "what the job was made with stays"
    project.program(
        program("complete", 0)
        .replace("file://first", "file://second")
        .replace("name, runtime", 'name, run="2", runtime')
    )
    project.up()
    assert "TRAINER_DATASET_DIR b.txt BBB" in project.logs("one")
    assert len(claims(project)) == 2, "the first volume has gone"
    project.destroy()
    assert not claims(project) and not project.target.jobs.list_all()


def test_a_volume_is_not_deleted_under_a_running_job(project: Project) -> None:
    prepared(project)
    project.program(program("running", 600))
    project.up()
    before = claims(project)
    project.program(program("running", 600).replace("file://first", "file://second"))
    out = project.up().out
    assert "is kept for default/one-b3ff0, unfinished since 20" in out or "is kept for default/two-b3ff0" in out, out
    assert set(before) < set(claims(project))
    assert project.job("one").phase == project.job("two").phase == "Running"
    project.program(
        program("complete", 0)
        .replace("file://first", "file://second")
        .replace("name, runtime", 'name, interrupt="allow", runtime')
    )
    project.up()
    assert "TRAINER_DATASET_DIR b.txt BBB" in project.logs("one")
    assert len(claims(project)) == 2, "it has gone with the last run that mounted it"
    project.destroy()
    eventually(lambda: not project.processes())


@pytest.mark.core
def test_retained_output_survives_destroy(project: Project) -> None:
    project.program("""
def write():
    import os, pathlib
    folder = pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"])
    print("found", sorted(p.name for p in folder.iterdir()), flush=True)
    (folder / "model").write_text("weights")

job = trainer.TrainJob(
    "kept", runtime=plain, wait_for="complete", output=trainer.OutputVolume(retain=True),
    trainer=trainer.CustomTrainer(func=write)
)
fresh = trainer.TrainJob(
    "fresh", runtime=plain, wait_for="complete", output=True, resume=False, run="RUN", trainer=trainer.CustomTrainer(func=write)
)
pulumi.export("path", job.output_path)
pulumi.export("fresh", fresh.output_path)
""")
    project.up()
    path = Path(project.outputs()["path"])
    first = Path(project.outputs()["fresh"])
    assert (path / "model").read_text() == (first / "model").read_text() == "weights"
    text = (project.folder / "__main__.py").read_text()
    (project.folder / "__main__.py").write_text(
        text.replace('run="RUN"', 'run="again"').replace('"kept", runtime', '"kept", run="2", resume=True, runtime')
    )
    project.up()
    assert "found ['model']" in project.logs("kept") and "found []" in project.logs("fresh")
    second = Path(project.outputs()["fresh"])
    assert first != second and (first / "model").exists(), "nothing earlier is lost"
    project.destroy()
    assert (path / "model").exists() and not second.exists()


INLINE = """
stepped = trainer.ClusterTrainingRuntime(
    "stepped",
    ml_policy=trainer.PlainPolicy(),
    template=trainer.JobSetTemplate(
        volume_claim_policies=[{"templates": [{"metadata": {"name": "initializer"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}],
        replicated_jobs=[
            trainer.ReplicatedJob(name="dataset-initializer", pod_spec={"containers": [{
                "name": "dataset-initializer", "image": "ghcr.io/kubeflow/trainer/dataset-initializer",
                "volume_mounts": [{"name": "initializer", "mount_path": "/workspace"}],
            }]}),
            trainer.ReplicatedJob(
                name="node", depends_on=[trainer.DependsOn(name="dataset-initializer", status="Complete")],
                pod_spec={"containers": [{
                    "name": "node", "image": "python:3.12",
                    "volume_mounts": [{"name": "initializer", "mount_path": "/workspace"}],
                }]},
            ),
        ],
    ),
)

def read():
    import os, pathlib
    print(pathlib.Path(os.environ["TRAINER_DATASET_DIR"], "a.txt").read_text(), flush=True)

job = trainer.TrainJob(
    "inline", runtime=RUNTIME, wait_for="complete", trainer=trainer.CustomTrainer(func=read),
    initializer=trainer.Initializer(dataset=trainer.DataSource(storage_uri="file://first")),
)
pulumi.export("steps", job.steps)
"""


def test_an_initializer_inside_a_job(project: Project) -> None:
    prepared(project)
    project.program(INLINE.replace("RUNTIME", "plain"))
    refused = project.preview(ok=False).out
    assert (
        "runtime: must have dataset-initializer job when trainJob is configured with input datasetConfig. Hint: "
        in refused
    )
    assert (
        "initializer=Initializer(dataset=DatasetInitializer(...)); or use a runtime with this replicated job" in refused
    )
    project.program(INLINE.replace("RUNTIME", "stepped"))
    project.up()
    assert "AAA" in project.logs("inline")
    assert [(s["name"], s["phase"]) for s in project.outputs()["steps"]] == [
        ("dataset-initializer", "Succeeded"),
        ("node", "Succeeded"),
    ]
