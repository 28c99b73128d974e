"""A job on this machine trains with the packages as they are when its run begins; through the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .conftest import Project, eventually

BACKEND = """
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(folder, "mylib-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("mylib.py", pathlib.Path("mylib.py").read_text())
        wheel.writestr("mylib-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mylib\\nVersion: 1\\n")
        wheel.writestr("mylib-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("mylib-1.dist-info/RECORD", "")
    return "mylib-1-py3-none-any.whl"
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
PROGRAM = """
def work():
    import mylib
    print("version", mylib.VERSION)

for name, packages in PACKAGES.items():
    trainer.TrainJob(name, runtime=plain, wait_for="complete", run="RUN",
                     trainer=trainer.CustomTrainer(func=work, packages_to_install=packages))
"""


def package(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def write(folder: Path, version: str) -> None:
    (folder / "mylib.py").write_text(f"VERSION = {version!r}\n")


def git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def test_another_run_trains_with_the_packages_of_now(project: Project) -> None:
    project.env = {"PIP_NO_INDEX": "1", "HOME": str(project.folder / "home")}
    mylib, repository = package(project.folder / "lib" / "ours"), package(project.folder / "lib" / "repository")
    requirements = project.folder / "requirements.txt"
    requirements.write_text("-r nested.txt\n")
    (project.folder / "nested.txt").write_text(f"# ours\n{mylib}\n")
    git(repository, "init", "-b", "main")
    packages = {
        "path": [str(mylib)],
        "address": [f"mylib @ file://{mylib}"],
        "file": ["-r", str(requirements)],
        "branch": [f"git+file://{repository}@main"],
    }

    def up(version: str, run: str) -> str:
        for folder in (mylib, repository):
            write(folder, version)
        git(repository, "add", ".")
        git(repository, "commit", "--allow-empty", "-m", version)
        project.program(PROGRAM.replace("RUN", run).replace("PACKAGES", repr(packages)))
        return project.up().out

    up("first", "0")
    up("first", "1")
    assert all("version first" in project.logs(name) for name in packages)
    assert "trains on it" not in project.preview("--expect-no-changes").out
    made = len(list((project.folder / "home").glob("**/complete")))
    assert made == 4, "a file and a list share one; another run installs anew only what may have changed: the branch"

    write(mylib, "second")
    planned = project.preview("--expect-no-changes").out
    said = [line for line in planned.splitlines() if line.strip().startswith("note: ")]
    assert len(said) == 3 and all("packages" in line and 'run="2" trains on it' in line for line in said), planned

    up("second", "2")
    assert {name: project.logs(name)[-40:] for name in packages if "version second" not in project.logs(name)} == {}
    assert "trains on it" not in project.preview("--expect-no-changes").out


def test_the_record_has_the_versions_that_were_installed(project: Project) -> None:
    """The program pins none: another day, or on another machine, it is another one."""
    project.env = {"PIP_NO_INDEX": "1", "HOME": str(project.folder / "home")}
    wheels, source = project.folder / "wheels", package(project.folder / "lib")
    wheels.mkdir()
    write(source, "first")
    subprocess.run(
        [sys.executable, "-c", f"import backend; backend.build_wheel({str(wheels)!r})"], cwd=source, check=True
    )
    packages = {"job": ["mylib", "--find-links", str(wheels)]}
    export = '\n    pulumi.export("inputs", trainer.TrainJob('
    program = PROGRAM.replace("RUN", "1").replace("PACKAGES", repr(packages)).replace("\n    trainer.TrainJob(", export)
    project.program(program.replace("packages_to_install=packages))", "packages_to_install=packages)).run_inputs)"))
    project.up()
    assert "version first" in project.logs("job")
    assert project.outputs()["inputs"]["packages"].endswith("; installed mylib 1")
    assert "python" not in project.preview("--expect-no-changes").out


WAITS = """
def work():
    import pathlib, time
    while not pathlib.Path("GO_ON").exists():
        time.sleep(0.1)

trainer.TrainJob("waits", runtime=plain, wait_for="running",
                 trainer=trainer.CustomTrainer(func=work, packages_to_install=["MYLIB"]))
"""


def test_the_environment_of_a_running_job_is_listed_with_it_and_not_pruned(project: Project) -> None:
    project.env = {"PIP_NO_INDEX": "1", "HOME": str(project.folder / "home")}
    mylib, go_on = package(project.folder / "mylib"), project.folder / "go-on"
    write(mylib, "first")
    project.program(WAITS.replace("MYLIB", str(mylib)).replace("GO_ON", str(go_on)))
    project.up()
    name = project.job("waits").name

    def cache(*words: str) -> str:
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "cache", *words]
        return subprocess.run(
            argv, env={**os.environ, **project.env}, check=True, text=True, capture_output=True
        ).stdout

    (found,) = [each for each in json.loads(cache("list", "-o", "json")) if each["kind"] == "environment"]
    assert found["jobs"] == [f"default/{name}"] and found["requirements"] == [str(mylib)]
    os.utime(Path(found["path"], "complete"), (0, 0))
    assert f"used by default/{name}" in cache("prune", "--yes") and Path(found["path"]).is_dir()
    go_on.touch()
    eventually(lambda: project.job("waits").terminal)
    assert "Removed 1 entry" in cache("prune", "--yes") and not Path(found["path"]).exists()
