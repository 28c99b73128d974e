"""What a user does without the clone: install the wheel, make a project, run it with Pulumi. Nothing is read from the clone."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import release
import setup
from pulumi_trainer.provider.cli.new_project import TEMPLATES

from .conftest import PINNED, Project
from .test_examples import epochs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.build_packages(tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Path:
    """A virtual environment with the wheel and without extras."""
    folder = tmp_path / "environment"
    release.install(wheel, folder)
    return folder


def init(environment: Path, folder: Path, template: str, home: Path, state: Path) -> Project:
    """Return a new project with what its requirements.txt names, and a stack."""
    (environment / "empty").mkdir(exist_ok=True)
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    env = {"HOME": str(environment / "empty"), "PATH": path}
    argv = [environment / "bin" / "pulumi-trainer", "init", "--template", template, str(folder)]
    subprocess.run(argv, cwd=environment / "empty", env=env, check=True, capture_output=True)
    assert not any((environment / "empty").iterdir())
    requirements = ("--requirements", folder / "requirements.txt", "--constraints", setup.LOCK)
    release.step("requirements install", setup.uv(), "pip", "install", "--python", environment, *requirements)
    state.mkdir(exist_ok=True)
    project = Project(folder, home, name=folder.name, stack="prod", env={
        "PULUMI_BACKEND_URL": f"file://{state}", "PATH": path, "KUBECONFIG": str(environment / "none"), **PINNED,
    })  # fmt: skip
    result = project.run("stack", "init")
    assert result.code == 0, result
    return project


def test_the_quickstart_trains(environment: Path, tmp_path: Path, pulumi_home: Path) -> None:
    project = init(environment, tmp_path / "digits", "quickstart", pulumi_home, tmp_path / "state")
    program = project.folder / "__main__.py"
    program.write_text(program.read_text().replace('"epochs": 40', '"epochs": 2'))
    preview = project.preview("--diff").out
    assert "JobSet/classifier" in preview and "PET_NNODES" in preview, preview
    up = project.up().out
    assert "Succeeded" in up and epochs(project.logs("classifier")) == [1, 2], up
    assert Path(project.outputs()["model"]).is_relative_to(project.folder), "the output is kept below the project"
    project.destroy()


def test_the_gpu_cluster_is_previewed_without_a_cluster(environment: Path, tmp_path: Path, pulumi_home: Path) -> None:
    project = init(environment, tmp_path / "gpus", "gpu-cluster", pulumi_home, tmp_path / "state")
    preview = project.preview("--diff").out
    assert re.search(r"parallelism *: 4", preview) and re.search(r'nvidia.com/gpu *: "?8', preview), preview


def test_a_team_trains_with_what_the_platform_offers(environment: Path, tmp_path: Path, pulumi_home: Path) -> None:
    platform, team = (
        init(environment, tmp_path / name, name, pulumi_home, tmp_path / "state") for name in ("platform", "team")
    )
    platform.config("trainer:target", "local")  # queues are checked, and not made
    platform.up()
    team.config("platform", "organization/platform/prod")
    preview = team.preview("--diff").out
    assert re.search(r'kueue.x-k8s.io/queue-name *: "sorters"', preview) and "torch-team" in preview, preview
    assert not re.search(r"PT\d{3}", preview), "what a template makes has no warnings"


@pytest.mark.parametrize("template", TEMPLATES)
def test_pulumi_new_takes_the_same_folders(project: Project, template: str) -> None:
    example, made = ROOT / "examples" / TEMPLATES[template], project.folder / "made"
    argv = ["pulumi", "new", str(example), "--generate-only", "--yes", "--name", "made", "--dir", str(made)]
    done = subprocess.run(argv, env=project.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "name: made\n" in (made / "Pulumi.yaml").read_text()
    names = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()} - {"Pulumi.yaml"}
    assert names >= {"requirements.txt", "__main__.py", ".gitignore", "README.md"}
    for name in names:
        assert (made / name).read_bytes() == (example / name).read_bytes(), name
