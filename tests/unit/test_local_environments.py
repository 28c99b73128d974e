"""Which environment a set of packages gets on which interpreter, and how it is installed; real installers, wheels made here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from local_support import NAMESPACE, OVERWRITTEN, eventually, jobset, log, python, step, submission
from pulumi_trainer.provider.machine.uv_program import find_uv
from pulumi_trainer.provider.pod import layer
from pulumi_trainer.provider.targets.local import LocalTarget, environments

from tests.slow_index import slow_index

pytestmark = pytest.mark.slow

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


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(file, text)


class Interpreter:
    """A virtual environment with packages, as a clone has one."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python, self._wheels = folder / "bin" / "python", wheels
        self.packages = next((folder / "lib").glob("python*/site-packages"))
        spec = find_spec("packaging")
        assert spec and spec.origin
        (self.packages / "packaging").symlink_to(Path(spec.origin).parent)

    def install(self, name: str, version: str) -> None:
        for left in self.packages.glob(f"{name}-*.dist-info"):
            for file in left.iterdir():
                file.unlink()
            left.rmdir()
        for compiled in self.packages.glob(
            f"__pycache__/{name}.*.pyc"
        ):  # pip removes it, too: of the same second and size
            compiled.unlink()
        with zipfile.ZipFile(self._wheels / f"{name}-{version}-py3-none-any.whl") as found:
            found.extractall(self.packages)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    wheel(folder, "app", "1", "dep")
    wheel(folder, "dep", "1")
    wheel(folder, "dep", "2")
    wheel(folder, "user", "1", "dep<2")
    wheel(folder, "stranger", "1", "newcomer")
    wheel(folder, "newcomer", "1")
    return folder


Layered = Callable[..., Path]
"""The environment of requirements on an interpreter."""


def started(tmp_path: Path, wheels: Path, on: Interpreter, *words: str, **more: str) -> subprocess.Popen[str]:
    env = {
        "PATH": os.defpath, "HOME": str(tmp_path), "PULUMI_TRAINER_ENVIRONMENTS": str(tmp_path / "environments"),
        layer.UV_ENV: find_uv(), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), **more,
    }  # fmt: skip
    return subprocess.Popen(
        [on.python, layer.__file__, *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def environment(tmp_path: Path, wheels: Path, on: Interpreter, *words: str, **more: str) -> tuple[Path, str]:
    """Return the environment and the log."""
    out, log = (run := started(tmp_path, wheels, on, *words, **more)).communicate()
    assert run.returncode == 0, log
    return Path(json.loads(out)["PATH"].split(os.pathsep)[0]).parent, log


def imported(home: Path, on: Interpreter, module: str) -> str:
    """The version of a module in an environment on an interpreter."""
    env = {layer.BELOW_ENV: str(on.packages)}
    command = f"import {module}; print({module}.VERSION)"
    done = subprocess.run(
        [home / "bin" / "python3", "-c", command], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_interpreters_with_the_same_packages_share_an_environment(tmp_path: Path, wheels: Path) -> None:
    mine, other = Interpreter(tmp_path / "mine", wheels), Interpreter(tmp_path / "other", wheels)
    home, log = environment(tmp_path, wheels, mine, "app")
    assert "installing app" in log and (imported(home, mine, "app"), imported(home, mine, "dep")) == ("1", "2")
    assert environment(tmp_path, wheels, other, "app") == (home, ""), "another clone"
    for each in (mine, other):
        each.install("dep", "1")
    new, _ = environment(tmp_path, wheels, mine, "app")
    assert new != home and imported(home, mine, "dep") == "2", "the environment is first"
    assert environment(tmp_path, wheels, other, "app") == (new, "")


def test_an_environment_on_a_package_of_the_interpreter_is_not_used_with_another_version_of_it(
    tmp_path: Path, wheels: Path
) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    mine.install("dep", "1")
    first, _ = environment(tmp_path, wheels, mine, "app")
    assert not list(first.glob("lib/python*/site-packages/dep*")), "the interpreter has it"
    assert imported(first, mine, "dep") == "1"
    mine.install("dep", "2")
    second, log = environment(tmp_path, wheels, mine, "app")
    assert second != first and "installing app" in log and imported(second, mine, "dep") == "2"
    mine.install("dep", "1")
    assert environment(tmp_path, wheels, mine, "app") == (first, "")


def test_an_environment_is_not_used_below_which_a_package_requires_other_versions(tmp_path: Path, wheels: Path) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    first, _ = environment(tmp_path, wheels, mine, "app")
    mine.install("dep", "1")
    mine.install("user", "1")
    second, _ = environment(tmp_path, wheels, mine, "app")
    assert second != first and (imported(second, mine, "dep"), imported(first, mine, "dep")) == ("1", "2")


def test_a_version_that_the_requirements_force_is_reported_and_leaves_the_interpreter_alone(
    tmp_path: Path, wheels: Path
) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    mine.install("dep", "1")
    mine.install("user", "1")
    home, log = environment(tmp_path, wheels, mine, "dep>=2")
    assert "`user` requires `dep<2`, but `2` is installed" in log and imported(home, mine, "dep") == "2"
    assert (mine.packages / "dep.py").read_text() == "VERSION = '1'\n"
    assert (mine.packages / "dep-1.dist-info" / "METADATA").exists()


def test_processes_that_need_one_environment_install_it_once(tmp_path: Path, wheels: Path) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    runs = [started(tmp_path, wheels, mine, "app") for _ in range(4)]
    ended = [run.communicate() for run in runs]
    assert len({out for out, _ in ended}) == 1
    assert sum("installing app" in log for _, log in ended) == 1


@pytest.mark.parametrize("rank", [False, True])
def test_an_installation_that_was_killed_is_not_used(tmp_path: Path, wheels: Path, rank: bool) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    fake = tmp_path / "fake" / "uv"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nexec sleep 600\n")
    fake.chmod(0o755)
    half = started(tmp_path, wheels, mine, "app", PULUMI_TRAINER_JOB="a/0", PULUMI_TRAINER_UV=str(fake))
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    more = {"PULUMI_TRAINER_INSTALLED": str(tmp_path / "x.installed"), "PULUMI_TRAINER_JOB": "a/1" if rank else "b/0"}
    waiting = started(tmp_path, wheels, mine, "app", **more)
    if rank:  # the other one reports the progress
        time.sleep(1)
        assert not (tmp_path / "x.installing").exists()
    else:
        eventually((tmp_path / "x.installing").exists)
        assert (tmp_path / "x.installing").read_text() == "another process is installing them"
    os.kill(half.pid, signal.SIGKILL)
    half.wait()
    out, log = waiting.communicate()
    home = Path(json.loads(out)["PATH"].split(os.pathsep)[0]).parent
    assert imported(home, mine, "dep") == "2" and [*(tmp_path / "environments").glob("*/bin")] == [home / "bin"], log
    assert (tmp_path / "x.installed").exists()


def test_modules_of_a_project_with_names_of_pythons_are_not_imported(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("json.py", "queue.py", "types.py"):
        (project / name).write_text("MINE = 1\n")
    mine = Interpreter(tmp_path / "mine", wheels)
    monkeypatch.chdir(project)
    home, log = environment(tmp_path, wheels, mine, "app")
    monkeypatch.chdir(tmp_path)
    assert imported(home, mine, "app") == "1", log


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Makes an index of a folder of wheels, and returns its address."""
    servers = []

    def served(name: str, *packages: tuple[str, str]) -> str:
        for package, version in packages:
            wheel(tmp_path / name, package, version)
            folder = tmp_path / name / "simple" / package
            folder.mkdir(parents=True, exist_ok=True)
            file = f"{package}-{version}-py3-none-any.whl"
            (folder / file).symlink_to(tmp_path / name / file)
        handler = partial(QuietHandler, directory=str(tmp_path / name))
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/simple/"

    yield served
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_higher_version_of_a_later_index_replaces_no_package(
    tmp_path: Path, wheels: Path, serve: Callable[..., str]
) -> None:
    """A package of the first index is taken from there, however high a version somebody publishes elsewhere."""
    mine = Interpreter(tmp_path / "mine", wheels)
    private, public = serve("private", ("ours", "1")), serve("public", ("ours", "99"), ("theirs", "2"))
    indexes = ["--index-url", private, "--extra-index-url", public]
    settings = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "UV_NO_INDEX": "", "UV_FIND_LINKS": ""}
    home, log = environment(tmp_path, wheels, mine, "ours", "theirs", *indexes, **settings)
    assert (imported(home, mine, "ours"), imported(home, mine, "theirs")) == ("1", "2"), log


def commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str, **more: Any
) -> list[tuple[str, dict[str, str]]]:
    """Return the commands that install words into an environment, and the variables of each; `fails`: what uv refuses."""
    found = []

    def run(argv: list[str], variables: dict[str, str]) -> int:
        if argv[1] == "venv":
            Path(layer._packages(tmp_path / "home")).mkdir(parents=True)
        else:
            found.append((" ".join(argv), variables))
        return int(more.get("fails", "nothing") in " ".join(argv))

    programs = more.get("programs", ())
    monkeypatch.setattr(layer.shutil, "which", lambda name: f"/bin/{name}" if name in programs else None)
    monkeypatch.setattr(layer, "_is_reachable", lambda _: more.get("reach", True))
    monkeypatch.setattr(layer.sys, "platform", "linux")
    monkeypatch.setattr(layer, "_run", run)
    layer._build(tmp_path / "home", [*words], layer.Content([*words]), {}, layer._settings())
    return found


def test_indexes_are_tried_in_order_and_are_in_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = "https://name:hidden@a.example/simple", "https://b.example/simple"
    ((argv, variables),) = commands(tmp_path, monkeypatch, "ours>1", f"--index-url={one}", "--extra-index-url", two)
    assert "--index-strategy first-index" in argv and argv.endswith(" ours>1") and "hidden" not in argv
    assert (variables["UV_INDEX"], variables["UV_DEFAULT_INDEX"]) == (one, two)
    ((argv, variables),) = commands(tmp_path, monkeypatch, "ours", "--extra-index-url", two)
    assert variables["UV_INDEX"] == two and "UV_DEFAULT_INDEX" not in variables


def test_without_a_gpu_pytorch_is_installed_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((argv, _),) = commands(tmp_path, monkeypatch, "transformers")
    assert argv.endswith("--torch-backend cpu")
    both = commands(tmp_path, monkeypatch, "torch==2.8.0", fails="--torch-backend")
    assert ["--torch-backend" in argv for argv, _ in both] == [True, False]
    for words, more in (
        (["torch"], {"reach": False}),
        (["torch"], {"programs": ("nvidia-smi",)}),
        (["torch", "--index-url", "https://a.example/simple"], {}),
        (["torch", "--extra-index-url=https://a.example/simple"], {}),
    ):
        ((argv, _),) = commands(tmp_path, monkeypatch, *words, **more)  # type: ignore[arg-type]
        assert "cpu" not in argv


def test_a_gpu_is_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer.sys, "platform", "linux")
    monkeypatch.setattr(layer.shutil, "which", lambda name: None)
    assert layer._takes_cpu_builds(["torch"])
    monkeypatch.setattr(layer.shutil, "which", lambda name: f"/bin/{name}")
    assert not layer._takes_cpu_builds(["torch"])


def test_the_settings_of_pip_hold_for_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://name:pw@a.example/simple\nfind-links =\n  /one\n  /two\n")
    monkeypatch.setenv("PIP_CONSTRAINT", "/versions.txt")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    ((argv, variables),) = commands(tmp_path, monkeypatch, "numpy", reach=False)
    assert variables["UV_INDEX_URL"] == "https://name:pw@a.example/simple" and "--no-index" in argv
    assert variables["UV_FIND_LINKS"] == "/one,/two" and variables["UV_CONSTRAINT"] == "/versions.txt"
    assert "pw" not in argv


def settings_of(kind: str, tmp_path: Path, wheels: Path) -> dict[str, str]:
    """Variables of pip, and what they name at the same path for all projects, with which `dep` is the version of `wheels`."""
    links = {"PIP_FIND_LINKS": str(wheels)}
    text, home = f"[global]\nno-index = true\nfind-links = {wheels}\n", tmp_path / "a-home"
    version = "2" if (wheels / "dep-2-py3-none-any.whl").exists() else "1"
    (tmp_path / "versions.txt").write_text(f"dep=={version}\n")
    (tmp_path / "pip.conf").write_text(text)
    (home / ".config/pip").mkdir(parents=True, exist_ok=True)
    (home / ".config/pip/pip.conf").write_text({"a file of the user": text}.get(kind, ""))
    return {
        "links": links,
        "a relative path": {"PIP_FIND_LINKS": wheels.name},
        "constraints": {"PIP_FIND_LINKS": str(tmp_path / "all"), "PIP_CONSTRAINT": str(tmp_path / "versions.txt")},
        "a file": {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")},
        "a file of the user": {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "HOME": str(home)},
    }[kind]


@pytest.mark.parametrize("kind", ["links", "a relative path", "constraints", "a file", "a file of the user"])
def test_projects_whose_settings_name_other_packages_share_no_environment(
    tmp_path: Path, wheels: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    for version in ("1", "2"):
        wheel(tmp_path / "all", "dep", version)
    found = []
    for version in ("1", "2"):
        project = tmp_path / f"project-{version}"
        project.mkdir()
        wheel(project / "wheels", "dep", version)
        monkeypatch.chdir(project)
        own = settings_of(kind, tmp_path, project / "wheels")
        own["PULUMI_TRAINER_JOB"] = f"run-{version}/pod/node"
        home, log = environment(tmp_path, wheels, mine, "dep", **own)
        found.append(home)
        assert imported(home, mine, "dep") == version, log
    monkeypatch.chdir(tmp_path)
    cached = {"UV_CACHE_DIR": str(tmp_path / "uv-cache"), "UV_INDEX_A_PASSWORD": "x", "PIP_TIMEOUT": "9"}
    assert found[0] != found[1]
    if kind != "a relative path":
        assert environment(tmp_path, wheels, mine, "dep", **own, **cached)[0] == found[1]


def test_uv_reads_its_configuration_of_the_user_and_none_of_the_project(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    project, user = tmp_path / "project", tmp_path / ".config" / "uv"
    for folder, version in ((project, "9"), (tmp_path / "first", "1"), (tmp_path / "second", "2")):
        wheel(folder, "dep", version)
    user.mkdir(parents=True)
    monkeypatch.chdir(project)
    links = 'no-index = true\nfind-links = ["{}"]\n'
    (project / "uv.toml").write_text(links.format(project))
    (project / "pyproject.toml").write_text(f"[tool.uv]\n{links.format(project)}")
    unset, found = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": ""}, set()
    for name, version in (("first", "1"), ("second", "2")):
        (user / "uv.toml").write_text(links.format(tmp_path / name))
        home, log = environment(tmp_path, wheels, mine, "dep", **unset)
        assert imported(home, mine, "dep") == version, log
        found.add(home)
    wheel(tmp_path / "second", "dep", "3")
    home, log = environment(tmp_path, wheels, mine, "dep", **unset, PULUMI_TRAINER_JOB="run-2/pod/node")
    assert imported(home, mine, "dep") == "3" and len(found | {home}) == 3, log
    (user / "uv.toml").unlink()
    home, log = environment(tmp_path, wheels, mine, "dep")
    assert imported(home, mine, "dep") == "2", "from the links of pip, not the project's"


def test_pods_of_a_run_have_one_environment_while_a_folder_of_links_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    names = []
    for run in ("run-1", "run-1", "run-2"):
        (links / f"{len(names)}.whl").touch()
        names.append(layer._name(layer.Content(["dep"]), {}, layer._settings(), tmp_path, run))
    assert names[0] == names[1] != names[2]


def test_a_folder_that_a_file_names_is_built_again_after_a_change(tmp_path: Path, wheels: Path) -> None:
    """uv takes a folder's last build if only other files than pyproject.toml have changed."""
    mine = Interpreter(tmp_path / "mine", wheels)
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(PYPROJECT)
    (package / "backend.py").write_text(BACKEND)
    (tmp_path / "nested.txt").write_text(f"{package}\n")
    (tmp_path / "requirements.txt").write_text("-r nested.txt\n")
    for version in ("first", "second"):
        (package / "mylib.py").write_text(f"VERSION = {version!r}\n")
        words = "-r", str(tmp_path / "requirements.txt")
        home, _ = environment(tmp_path, wheels, mine, *words, PULUMI_TRAINER_JOB=f"{version}/job")
        assert imported(home, mine, "mylib") == version


RUNS = f"""
import json, os, subprocess, sys
made = subprocess.check_output([sys.executable, os.environ["PULUMI_TRAINER_LAYER"], sys.argv[1]])
code = {OVERWRITTEN!r} + "import time; overwrite(); print('overwritten', flush=True); time.sleep(120)"
os.execve(sys.executable, [sys.executable, "-c", code], {{**os.environ, **json.loads(made)}})
"""
"""A container that installs its packages, and whose program overwrites its variables."""


@pytest.mark.skipif(sys.platform != "linux", reason="shows the variables of a process as they are")
def test_the_environment_of_a_program_that_calls_setproctitle_is_in_use(wheels: Path, local: LocalTarget) -> None:
    local.jobs.create(submission(jobset(step(command=python(RUNS, str(wheels / "dep-1-py3-none-any.whl"))))))
    eventually(lambda: local.logs.files(NAMESPACE, "job") and "overwritten" in log(local))
    (used,) = environments.list_environments(local.jobs.environments)
    os.utime(used.path / layer.RECORD, (0, 0))
    assert used.jobs == ["default/job"]
    assert environments.remove_environment(used.path) == "used by default/job" and used.path.is_dir()
    local.jobs.delete(NAMESPACE, "job", grace=0)
    assert environments.remove_environment(used.path) == "" and not used.path.exists()


def test_the_record_has_no_credentials(tmp_path: Path, wheels: Path) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    words = ["app", "--index-url", "https://name:hidden-word@127.0.0.1:9/simple"]
    home, log = environment(tmp_path, wheels, mine, *words)
    record = (home / layer.RECORD).read_text()
    assert "hidden-word" not in record + log and json.loads(record)["requirements"] == ["app"]


def test_the_bytes_of_a_download_are_reported_while_it_runs(tmp_path: Path, wheels: Path) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    more = {"PULUMI_TRAINER_INSTALLED": str(tmp_path / "x.installed"), "PIP_NO_INDEX": ""}
    text = "downloading large, 0 of 8 MB"
    progress = tmp_path / "x.installing"
    with slow_index(tmp_path) as index:
        run = started(tmp_path, wheels, mine, "large", PIP_INDEX_URL=index.url, **more)
        try:
            eventually(lambda: progress.exists() and progress.read_text() == text, seconds=60)
            index.go_on.set()
            _, log = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 0 and progress.read_text() == "", log


def test_another_set_of_packages_neither_downloads_nor_copies_the_large_one_again(tmp_path: Path, wheels: Path) -> None:
    mine = Interpreter(tmp_path / "mine", wheels)
    with slow_index(tmp_path) as index:
        index.go_on.set()
        more = {"PIP_INDEX_URL": index.url, "PIP_NO_INDEX": ""}
        sets = (["large"], ["large", "app"], ["large", "newcomer"])
        homes = [environment(tmp_path, wheels, mine, *words, **more)[0] for words in sets]
        assert index.downloads == 1
    more["UV_OFFLINE"] = "1"
    homes.append(environment(tmp_path, wheels, mine, "large", "dep", **more)[0])
    files = [next(home.glob("lib/python*/site-packages/large.bin")).stat() for home in homes]
    assert len(set(homes)) == 4 and len({file.st_ino for file in files}) == 1, "hard links"


LOGS = {
    "uv": (
        "Resolved 30 packages in 1.2s\nDownloading torch (846.9MiB)\nDownloading numpy (16.1MiB)\n Downloaded numpy\n",
        "downloading torch, 16 of 863 MB",
    ),
    "nothing to download": ("Using Python 3.11.7 environment\nChecked 1 package in 1ms\n", ""),
}


@pytest.mark.parametrize(("log", "text"), LOGS.values(), ids=LOGS)
def test_downloads_are_reported(log: str, text: str) -> None:
    downloads = layer.Downloads()
    for line in log.splitlines():
        downloads.read(line)
    assert downloads.text == text
