"""Set-up: where the Pulumi CLI comes from, the environment in which it runs, what a killed CLI leaves, other Pythons."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import clone
import go_modules
import locks
import psutil
import pulumi_cli
import pulumi_matrix
import pytest
import setup
import stack
from downloads_support import member, pack, served
from pulumi_trainer.provider.engine import pulumi_compat

ARCHIVE = f"pulumi-v{pulumi_cli.VERSION}-{pulumi_cli._system()}.tar.gz"


def program(file: Path, text: str) -> Path:
    """An executable shell script."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(file.name for file in folder.iterdir())


def cli(folder: Path, version: str = pulumi_cli.VERSION, hosts: bool = True) -> Path:
    """A folder with a CLI that knows its version, and perhaps with its hosts."""
    program(folder / "pulumi", f"echo v{version}")
    for host in pulumi_cli.HOSTS if hosts else ():
        program(folder / host, "exit 0")
    return folder


def ended() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder on PATH, with neither a CLI nor Go."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("mkdir", "env", "chmod"):
        (folder / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What downloading and building would give: a folder, or an error to raise."""
    given: dict[str, Any] = {"tried": []}

    def way(name: str, cache: Path, say: Callable[[str], None]) -> Any:
        given["tried"].append(name)
        if isinstance(given[name], Exception):
            raise given[name]
        return given[name]

    for name in ("from_archive", "from_modules"):
        monkeypatch.setattr(pulumi_cli, name, partial(way, name))
    return given


@pytest.mark.parametrize(
    ("version", "hosts", "reason"),
    [
        ("3.245.9", True, "of version 3.245.9, not >= 3.246.0 and < 4"),
        ("4.0.0", True, "of version 4.0.0"),
        ("", True, "of version unknown"),
        ("3.300.0", False, "comes without pulumi-language-python"),
    ],
)
def test_a_cli_on_path_that_will_not_do_is_passed_over(
    path: Path, tmp_path: Path, ways: dict[str, Any], version: str, hosts: bool, reason: str
) -> None:
    cli(path, version, hosts)
    ways |= {"from_archive": OSError("offline"), "from_modules": pulumi_cli.Unavailable("no go on PATH")}
    with pytest.raises(pulumi_cli.Unavailable) as error:
        pulumi_cli.ensure(tmp_path, lambda text: None)
    assert ways["tried"] == ["from_archive", "from_modules"]
    assert reason in str(error.value)
    for word in ("official archive: offline", "Go modules: no go on PATH", "pulumi.com/docs", "GOPROXY"):
        assert word in str(error.value)


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A server of archives on loopback."""
    folder = tmp_path / "releases"
    folder.mkdir()
    with served(folder) as url:

        def serve(*members: tuple[tarfile.TarInfo, bytes]) -> str:
            pack(folder / ARCHIVE, *members)
            return url

        yield serve


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of what is served counts as the pinned one."""
    file = tmp_path / "releases" / ARCHIVE
    monkeypatch.setattr(pulumi_cli, "checksums", lambda: {ARCHIVE: hashlib.sha256(file.read_bytes()).hexdigest()})


GOOD = [
    (member("pulumi", tarfile.DIRTYPE), b""),
    (member("pulumi/pulumi"), f"#!/bin/sh\necho v{pulumi_cli.VERSION}\n".encode()),
    (member("pulumi/pulumi-language-python"), b"#!/bin/sh\n"),
    (member("pulumi/deeper/file"), b"left out"),
    (member("file"), b"left out"),
]


@pytest.mark.usefixtures("pinned")
def test_an_archive_is_unpacked_with_its_own_hosts(tmp_path: Path, releases: Callable[..., str]) -> None:
    said: list[str] = []
    servers = ["http://127.0.0.1:9/closed", releases(*GOOD)]
    folder = pulumi_cli.from_archive(tmp_path / "cache", said.append, servers)
    assert names(folder) == ["pulumi", "pulumi-language-python"]
    assert all(os.access(file, os.X_OK) for file in folder.iterdir())
    assert pulumi_cli.cached(tmp_path / "cache") == folder
    assert said == [f"downloading {servers[1]}/{ARCHIVE}"]
    assert names(folder.parent) == [folder.name], "nothing temporary is left"


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path, releases: Callable[..., str]) -> None:
    with pytest.raises(pulumi_cli.Unavailable, match=r"its SHA256 is [0-9a-f]{64}, not [0-9a-f]{64}: refused"):
        pulumi_cli.from_archive(tmp_path / "cache", lambda text: None, [releases(*GOOD)])
    assert pulumi_cli.cached(tmp_path / "cache") is None


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("pulumi/../outside"),
        member("pulumi/.."),
        member("/tmp/outside"),
        member("pulumi/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("pulumi/link", tarfile.LNKTYPE, "pulumi/pulumi"),
        member("pulumi/device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.linkname}",
)
def test_an_archive_with_anything_unexpected_is_refused(
    tmp_path: Path, releases: Callable[..., str], bad: tarfile.TarInfo
) -> None:
    server = releases(*GOOD, (bad, b""))
    with pytest.raises(pulumi_cli.Unavailable, match=f"{server}: the archive holds something unexpected"):
        pulumi_cli.from_archive(tmp_path / "cache", lambda text: None, [server])
    assert names(tmp_path / "cache" / "pulumi") == []
    assert names(tmp_path) == ["cache", "releases"]


def test_one_version_of_pulumi_everywhere() -> None:
    version = pulumi_cli.VERSION
    modules = (pulumi_cli.MODULE / "go.mod").read_text()
    assert f"github.com/pulumi/pulumi/pkg/v3 v{version}\n" in modules
    assert f"github.com/pulumi/pulumi/sdk/v3 v{version}" in modules
    assert f"\npulumi=={version} \\\n" in setup.LOCK.read_text()
    names = {f"pulumi-v{version}-{s}-{m}.tar.gz" for s in ("linux", "darwin") for m in ("x64", "arm64")}
    assert set(pulumi_cli.checksums()) == names
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in pulumi_cli.checksums().values())


def test_the_oldest_and_the_newest_pulumi_are_pinned_with_the_versions_that_we_promise() -> None:
    pinned = {
        r: dict(re.findall(r"^([\w-]+)==(\S+)", pulumi_matrix.pins(r).read_text(), re.M))
        for r in pulumi_matrix.RELEASES
    }
    assert [pinned[release]["pulumi"] for release in pinned] == [pulumi_compat.OLDEST, pulumi_compat.NEWEST]
    promised = (setup.ROOT / "pyproject.toml").read_text()
    page = " ".join((setup.ROOT / "docs" / "start" / "install.md").read_text().split())
    for release, cli_version in (
        ("oldest", pulumi_cli.VERSION),
        ("newest", pulumi_cli.built_version(pulumi_cli.NEWEST)),
    ):
        versions = pinned[release]
        packages = f"`pulumi` {versions['pulumi']} with `pulumi-kubernetes` {versions['pulumi-kubernetes']}"
        assert f"{packages} and the CLI {cli_version}" in page
    for package, version in pinned["oldest"].items():
        assert f'"{package}>={version.removesuffix(".0")},' in promised
    for release in pinned:
        text = pulumi_matrix.pins(release).read_text()
        assert all("--hash=sha256:" in entry for entry in re.split(r"^(?=pulumi)", text, flags=re.M)[1:])
    assert pulumi_cli.new_enough(pulumi_cli.built_version(pulumi_cli.NEWEST))


@pytest.fixture
def lab(tmp_path: Path) -> clone.Clone:
    """A folder with a project."""
    root = tmp_path / "a clone #1"
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    return clone.Clone(root)


def test_the_passphrase_is_made_once_for_its_owner_only(lab: clone.Clone) -> None:
    file = clone.passphrase(lab)
    first = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600 and lab.state.stat().st_mode & 0o777 == 0o700
    assert len(first) >= 32 and clone.passphrase(lab).read_text() == first


def test_the_environment_keeps_everything_in_the_clone(lab: clone.Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_STACK", "PYTHONHOME"):
        monkeypatch.setenv(name, "somebody else's")
    monkeypatch.setenv("PULUMI_TRAINER_ENVIRONMENTS", "/kept")
    monkeypatch.setenv("PATH", "/usr/bin")
    env = clone.environment(lab, Path("/cli"), terminal=True)
    assert "somebody else's" not in env.values()
    assert env["PULUMI_TRAINER_ENVIRONMENTS"] == "/kept"
    assert env["PATH"].split(os.pathsep) == [str(setup.VENV / "bin"), "/cli", "/usr/bin"]
    assert env["PULUMI_HOME"] == str(lab.root / ".pulumi")
    assert env["PULUMI_BACKEND_URL"].endswith("/a%20clone%20%231/.pulumi-state"), "as the CLI's URL parser wants it"
    assert env["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(clone.passphrase(lab))
    assert env["PULUMI_DIY_BACKEND_GZIP"] == env["PULUMI_SKIP_UPDATE_CHECK"] == "1"
    assert env["PULUMI_TRAINER_PROGRESS"] == "tty"
    assert all(str(setup.CACHE) in env[name] for name in ("PIP_CACHE_DIR", "UV_CACHE_DIR"))
    other = clone.environment(lab, None, terminal=False)
    assert other["PULUMI_TRAINER_PROGRESS"] == "lines"
    assert other["PATH"].split(os.pathsep) == [str(setup.VENV / "bin"), "/usr/bin"]


def locked(lab: clone.Clone, pid: int, host: str = "", since: datetime | None = None, form: str = "{}") -> Path:
    """A lock as the backend writes it."""
    time_ = (since or datetime.now(timezone.utc)).isoformat()
    held = {"pid": pid, "username": "me", "hostname": host or socket.gethostname(), "timestamp": form.format(time_)}
    file = lab.state / ".pulumi" / "locks" / "organization" / "lab" / "local" / f"{pid}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(held))
    file.with_name(f"{file.name}.attrs").write_text("{}")
    return file


@pytest.fixture
def pulumi(tmp_path: Path) -> Iterator[psutil.Process]:
    """A running process whose name is that of the CLI."""
    binary = tmp_path / "bin" / "pulumi"
    binary.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "", binary)
    process = subprocess.Popen([binary, "600"])
    deadline = time.monotonic() + 120
    while psutil.Process(process.pid).name() != "pulumi" and time.monotonic() < deadline:
        time.sleep(0.01)
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_the_lock_of_a_dead_process_is_removed(lab: clone.Clone) -> None:
    file, said = locked(lab, ended()), []
    assert locks.clear_dead(lab, "local", said.append) == []
    assert names(file.parent) == []
    assert len(said) == 1 and f"process {file.stem} on host {socket.gethostname()} since 20" in said[0]


@pytest.mark.parametrize("form", ["{}", "{:.26}9+02:00", "{:.26}789Z"])
def test_the_lock_of_a_running_cli_stays(lab: clone.Clone, pulumi: psutil.Process, form: str) -> None:
    since = datetime.now(timezone.utc) + (timedelta(hours=2) if "+02:00" in form else timedelta())
    file = locked(lab, pulumi.pid, since=since, form=form)
    (held,) = locks.clear_dead(lab, "local", pytest.fail)
    assert file.exists() and held.pid == pulumi.pid
    assert abs(held.since.timestamp() - time.time()) < 60
    with pytest.raises(SystemExit, match=rf"in use by process {pulumi.pid} .* since (.|\n)*pulumi cancel"):
        stack.hint(lab, {}, "local")


def test_pending_operations_go_and_secrets_stay_as_they_are() -> None:
    deployment = {
        "secrets_providers": {"type": "passphrase"},
        "resources": [{"urn": "u", "inputs": {"ciphertext": "v1:x"}}],
    }
    exported = {"version": 3, "deployment": {**deployment, "pending_operations": [{"type": "creating"}]}}
    assert json.loads(locks.without_pending(json.dumps(exported))) == {"version": 3, "deployment": deployment}


def test_cleaning_names_what_still_works_in_the_jobs_folder(lab: clone.Clone) -> None:
    lab.jobs.mkdir()
    assert stack.working(lab) == []
    process = subprocess.Popen(["sleep", "600"], cwd=lab.jobs)
    try:
        with pytest.raises(SystemExit, match=rf"nothing is removed:\n  {process.pid} sleep"):
            stack.clean(lab, {})
    finally:
        process.kill()
        process.wait()
    stack.clean(lab, {})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that set-up would run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(setup, "run", lambda *argv, env=None: ran.append([str(a) for a in argv]) or "")
    return ran


def test_set_up_does_what_is_missing_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "tools/requirements.txt"):
        shutil.copy(setup.ROOT / name, tmp_path / name)
    source = tmp_path / "components" / "one.py"
    source.parent.mkdir()
    source.touch()
    venv = tmp_path / ".venv"
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "VENV", venv)
    monkeypatch.setattr(setup, "LOCK", tmp_path / "tools" / "requirements.txt")

    def steps(purpose: str) -> list[str]:
        commands.clear()
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        setup.environment(venv, sys.executable, purpose)
        (venv / "bin" / "python").touch()
        (venv / "bin" / "activate").write_text(f"VIRTUAL_ENV='{venv}'")
        words = [" ".join(argv) for argv in commands]
        kinds = {"-m venv": "create", "--constraints": "install", "--editable": "link"}
        return [kind for text in words for word, kind in kinds.items() if word in text]

    assert steps("user") == ["create", "install", "link"]
    assert steps("user") == []
    assert steps("dev") == ["install"]
    assert steps("user") == [], "what developers need holds what users need"
    source.write_text("changed = 1")
    assert steps("user") == []
    source.with_name("two.py").touch()
    assert steps("user") == ["link"]
    (tmp_path / "tools" / "requirements.txt").write_text(setup.LOCK.read_text() + "new==1\n")
    assert steps("user") == ["install"]
    (venv / "bin" / "activate").write_text("VIRTUAL_ENV='/where/the/clone/was'")
    assert steps("user")[0] == "create"


def test_uv_is_told_what_pip_knows_of_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (
        "global.cert='/etc/certificates.pem'\nglobal.index-url='https://mirror.invalid/simple'\n"
        ":env:.extra-index-url='https://a.invalid\\nhttps://b.invalid'\nglobal.timeout='60'\n"
    )
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/mine.pem")
    monkeypatch.setattr(setup, "run", lambda *argv: listed)
    told = {"UV_DEFAULT_INDEX": "https://mirror.invalid/simple", "UV_INDEX": "https://a.invalid https://b.invalid"}
    assert setup.indexes() == told


def test_every_dependency_is_pinned() -> None:
    pinned = {line.split("==")[0] for line in setup.LOCK.read_text().splitlines() if "==" in line}
    needed = [re.split(r"[^\w-]", line)[0] for line in importlib.metadata.requires("pulumi-trainer") or ()]
    entries = re.split(r"^(?=[\w.-]+==)", setup.LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) > 100 and all("--hash=sha256:" in entry for entry in entries)
    assert {"pulumi", "pytest", "mypy"} <= set(needed)
    assert {name.lower().replace("_", "-") for name in needed} - {"pulumi-trainer"} <= pinned
    assert "://" not in setup.LOCK.read_text()


def test_make_says_which_python_it_needs() -> None:
    done = subprocess.run(["make", "setup", "PYTHON="], cwd=setup.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Python 3.10 or newer" in done.stderr and "make PYTHON=" in done.stderr


def test_a_long_build_says_how_many_of_its_packages_are_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = list[str]()
    waits = iter([subprocess.TimeoutExpired("go", 30), subprocess.TimeoutExpired("go", 30)])

    class Process(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            super().wait(None if timeout is None else 10)
            for waited in waits:
                raise waited
            return int(self.returncode)

    monkeypatch.setattr(go_modules.subprocess, "Popen", Process)
    argv = [sys.executable, "-c", "import sys; print('a\\nb\\nc', file=sys.stderr)"]
    go_modules._run(argv, tmp_path, tmp_path, said.append, of=2423)
    assert len(said) == 2 and all(
        re.fullmatch(r"still building \(\d+ s, 3 of at most 2423 packages\)", each) for each in said
    )
