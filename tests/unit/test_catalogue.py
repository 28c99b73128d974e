"""The catalogue of runtimes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.admission import default_runtime, default_train_job, review_jobset
from pulumi_trainer.provider.api.errors import Invalid
from pulumi_trainer.provider.pipeline import render, validate

FOLDER = Path(runtimes.__file__).parent
RELEASES = [(name, release) for name in runtimes.names() for release in runtimes.releases(name)]


def test_what_there_is() -> None:
    assert runtimes.names() == ["torch-distributed"]
    assert runtimes.releases("torch-distributed") == ["2.3.0"]


def test_a_release_never_changes() -> None:
    """After adding one: (cd runtimes && sha256sum */*.yaml > catalogue.lock); lines that are there stay as they are."""
    locked = dict(reversed(line.split()) for line in (FOLDER / "catalogue.lock").read_text().splitlines())
    files = {str(p.relative_to(FOLDER)): hashlib.sha256(p.read_bytes()).hexdigest() for p in FOLDER.glob("*/*.yaml")}
    assert locked == files
    assert len(files) == len(RELEASES)


@pytest.mark.parametrize(("name", "release"), RELEASES)
def test_every_release_says_what_it_is_and_renders(name: str, release: str) -> None:
    document = runtimes.load(name, release)
    metadata = document["metadata"]
    assert document["kind"] == "ClusterTrainingRuntime"
    assert metadata["name"] == name
    assert metadata["labels"][runtimes.RELEASE] == metadata["annotations"][runtimes.RELEASE] == release
    assert metadata["labels"]["trainer.kubeflow.org/framework"]
    job = {"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": name}, "trainer": {"numNodes": 2}}}
    documents = default_runtime(document), default_train_job(job)
    assert validate(*documents) == ()
    rendered = render(*documents)
    assert rendered.notes == ()
    assert review_jobset(rendered.objects["JobSet/job"]) == []


def test_the_newest_by_number() -> None:
    versions = ["2.10.0", "2.9.1", "2.9.1-2", "2.9.1-10"]
    assert sorted(versions, key=runtimes._by_version) == ["2.9.1", "2.9.1-2", "2.9.1-10", "2.10.0"]
    assert runtimes.load("torch-distributed") == runtimes.load("torch-distributed", "2.3.0")


def test_a_loaded_runtime_is_ones_own() -> None:
    runtimes.load("torch-distributed")["metadata"]["name"] = "mine"
    assert runtimes.load("torch-distributed")["metadata"]["name"] == "torch-distributed"


@pytest.mark.parametrize(
    ("name", "release", "text"),
    [
        ("torch-distributd", None, "did you mean torch-distributed? there is: torch-distributed"),
        ("torch-distributed", "2.3", "did you mean 2.3.0? there is: 2.3.0"),
        ("mpi", None, "'mpi' is no runtime of the catalogue; there is: torch-distributed"),
        ("../unit", None, "no runtime of the catalogue"),
        ("torch-distributed", "../../pyproject", "no release of torch-distributed"),
        ("", None, "'' is no runtime"),
    ],
)
def test_unknown(name: str, release: str | None, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        runtimes.load(name, release)
    assert text in str(caught.value)
