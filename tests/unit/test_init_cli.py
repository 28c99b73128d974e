"""`pulumi-trainer init`: the files it writes, and what it refuses. tests/engine/test_init.py runs the projects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pulumi_trainer.provider.cli.new_project import TEMPLATES
from pulumi_trainer.provider.machine.extras import requirement

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXTRA = {"quickstart": "", "gpu-cluster": "kubernetes", "platform": "kubernetes", "team": "kubernetes"}


def init(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "init", *args]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_is_the_example_with_its_own_name_and_requirement(tmp_path: Path, template: str) -> None:
    done = init(tmp_path, "--template", template, "my project")
    assert done.returncode == 0, done.stderr
    project, example = tmp_path / "my project", EXAMPLES / TEMPLATES[template]
    names = {str(file.relative_to(project)) for file in project.rglob("*") if file.is_file()}
    assert names >= {"Pulumi.yaml", "requirements.txt", "__main__.py", ".gitignore", "README.md"}
    assert all(name in done.stdout for name in names) and "Next: cd 'my project', and follow README.md" in done.stdout
    settings = yaml.safe_load((project / "Pulumi.yaml").read_text())
    assert settings == {**yaml.safe_load((example / "Pulumi.yaml").read_text()), "name": "my-project"}
    assert (project / "requirements.txt").read_text() == f"{requirement(EXTRA[template])}\n"
    for name in names - {"Pulumi.yaml", "requirements.txt"}:
        assert (project / name).read_bytes() == (example / name).read_bytes(), name


def test_the_folder_may_exist_and_its_name_may_look_like_a_number(tmp_path: Path) -> None:
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "notes.txt").write_text("mine")
    assert init(tmp_path / "2026", ".").returncode == 0
    assert yaml.safe_load((tmp_path / "2026" / "Pulumi.yaml").read_text())["name"] == "2026"
    assert (tmp_path / "2026" / "notes.txt").read_text() == "mine"


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    for name in ("__main__.py", "README.md"):
        (tmp_path / name).write_text("mine")
    done = init(tmp_path, str(tmp_path))
    assert done.returncode == 1 and "already has README.md, __main__.py" in done.stderr, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["README.md", "__main__.py"]
    assert (tmp_path / "__main__.py").read_text() == "mine"


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = init(tmp_path, "file")
    assert done.returncode == 1 and "cannot be written" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_left_of_a_project_that_cannot_be_written(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "new").mkdir()
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); sys.argv = sys.argv[1:]"
    argv = [sys.executable, "-c", f"{limited}; from pulumi_trainer.provider.cli.main import main; main()"]
    done = subprocess.run(
        [*argv, "pulumi-trainer", "init", "new/a"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.startswith("error: new/a/"), done
    assert "cannot be written: File too large" in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.rglob("*")) == ([tmp_path / "new"] if exists else [])


def test_an_unknown_template_names_the_known_ones(tmp_path: Path) -> None:
    done = init(tmp_path, "--template", "kubeflow", "new")
    assert done.returncode == 1 and not (tmp_path / "new").exists()
    assert "unknown template 'kubeflow'" in done.stderr and ", ".join(TEMPLATES) in done.stderr
