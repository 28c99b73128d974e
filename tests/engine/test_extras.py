"""A program on an installation without the extras, through the real engine: the plan says what to install."""

from __future__ import annotations

import pytest
from pulumi_trainer.provider.machine.extras import EXTRAS, install_command

from .conftest import Project

PROGRAM = """
def work():
    print("works", flush=True)

job = trainer.TrainJob(
    "job", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work),
)
"""
CLUSTER = """
trainer.TrainJob("job", runtime=plain, trainer=trainer.Trainer(command=["train"]))
trainer.DatasetInitializer("data", storage_uri="hf://a/b")
trainer.ClusterQueue("queue", resource_groups=[])
trainer.CoschedulingPodGroup("gang", min_member=2)
"""
SOURCES = """
trainer.DatasetInitializer("data", storage_uri="s3://bucket/b")
trainer.ModelInitializer("model", storage_uri="hf://a/b")
"""
REGISTRIES = """
job = trainer.TrainJob("job", runtime=plain, trainer=trainer.Trainer(command=["true"]), output=True)
trainer.ModelVersion("first", job=job, registry=trainer.MLflowRegistry(uri="http://127.0.0.1:9"))
trainer.ModelVersion("second", job=job, registry=trainer.KubeflowModelRegistry(server="http://127.0.0.1:9"))
"""


@pytest.fixture
def bare(project: Project) -> Project:
    """A project whose Python finds none of the modules that come with an extra."""
    text = f"import sys\nsys.modules.update(dict.fromkeys({[*EXTRAS]!r}))\n"
    (project.folder / "without").mkdir()
    (project.folder / "without" / "sitecustomize.py").write_text(text)
    project.env["PYTHONPATH"] = str(project.folder / "without")
    return project


def refused(project: Project, program: str, *said: tuple[str, str]) -> None:
    """The plan names each component with what is to be installed for it."""
    project.program(program)
    told = project.preview(ok=False).out
    for where, extra in said:
        command = install_command(extra)
        assert any(where in line and command in line for line in told.splitlines()), (
            f"{where}: {command} is not in\n{told}"
        )
    assert "Traceback" not in told and "ModuleNotFoundError" not in told


@pytest.mark.core
def test_a_cluster_needs_an_extra(bare: Project) -> None:
    bare.config("trainer:target", "kubernetes")
    components = ("TrainJob", "DatasetInitializer", "ClusterQueue", "CoschedulingPodGroup")
    refused(bare, CLUSTER, *((f"{component}(", "kubernetes") for component in components))


def test_a_source_needs_its_own(bare: Project) -> None:
    refused(bare, SOURCES, ("DatasetInitializer(", "s3"), ("ModelInitializer(", "hub"))


def test_a_model_registry_needs_its_own(bare: Project) -> None:
    refused(bare, REGISTRIES, ('ModelVersion("first"', "mlflow"), ('ModelVersion("second"', "model-registry"))


def test_this_machine_needs_none(bare: Project) -> None:
    bare.program(PROGRAM)
    bare.up()
    assert "works" in bare.logs("job")
    bare.destroy()
