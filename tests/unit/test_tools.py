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
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import clone
import locks
import psutil
import pulumi_cli
import pulumi_matrix
import pytest
import pythons
import setup
import stack
from alone import alone
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


def test_a_cli_on_path_is_taken_as_it_is(path: Path, tmp_path: Path, ways: dict[str, Any]) -> None:
    cli(path)
    assert pulumi_cli.ensure(tmp_path / "cache", pytest.fail) is None
    assert ways["tried"] == [] and not (tmp_path / "cache").exists()


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


def test_the_archive_comes_before_the_build_and_both_are_kept(
    path: Path, tmp_path: Path, ways: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    ways |= {"from_archive": tmp_path / "a", "from_modules": tmp_path / "b"}
    assert pulumi_cli.ensure(tmp_path, said.append) == tmp_path / "a"
    ways["from_archive"] = pulumi_cli.Unavailable("offline")
    assert pulumi_cli.ensure(tmp_path, said.append) == tmp_path / "b"
    assert ways["tried"] == ["from_archive", "from_archive", "from_modules"]
    assert said == ["no Pulumi CLI from official archive: offline"]
    built = cli(pulumi_cli._built_folder(tmp_path, *pulumi_cli.HOSTS))
    assert pulumi_cli.ensure(tmp_path, pytest.fail) == built
    archive = cli(pulumi_cli._archive_folder(tmp_path))
    assert pulumi_cli.ensure(tmp_path, pytest.fail) == archive
    shutil.rmtree(archive)
    shutil.copytree(pulumi_cli.MODULE, tmp_path / "module")
    monkeypatch.setattr(pulumi_cli, "MODULE", tmp_path / "module")
    (tmp_path / "module" / "go.sum").write_text("other versions")
    assert pulumi_cli.cached(tmp_path) is None, "what was built from something else is not ours"


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


@pytest.mark.usefixtures("pinned")
def test_an_archive_whose_cli_does_not_run_here_is_refused(tmp_path: Path, releases: Callable[..., str]) -> None:
    server = releases((member("pulumi/pulumi"), b"#!/nowhere\n"))
    with pytest.raises(pulumi_cli.Unavailable, match="does not run"):
        pulumi_cli.from_archive(tmp_path / "cache", lambda text: None, [server, f"{server}/missing"])
    assert pulumi_cli.cached(tmp_path / "cache") is None


GO = """
out=; while [ $# -gt 0 ]; do echo "$1" >> "$RECORD"; [ "$1" = -o ] && out=$2; shift; done
env >> "$RECORD"; mkdir -p "$GOMODCACHE"
{then}
"""


def test_a_build_keeps_to_its_pins_and_to_our_folders(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, cache = tmp_path / "record", tmp_path / "cache"
    monkeypatch.setenv("RECORD", str(record))
    monkeypatch.setenv("GOPROXY", "https://mirror.invalid")
    works = f'printf "#!/bin/sh\\necho v{pulumi_cli.VERSION}" > "$out"; chmod +x "$out"'
    program(path / "go", GO.replace("{then}", works))
    said: list[str] = []
    folder = pulumi_cli.from_modules(cache, said.append)
    assert names(folder) == sorted(["pulumi", *pulumi_cli.HOSTS])
    assert all(os.access(file, os.X_OK) for file in folder.iterdir())
    lines = record.read_text().splitlines()
    assert "-mod=readonly" in lines and "GOPROXY=https://mirror.invalid" in lines
    assert f"version.Version=v{pulumi_cli.VERSION}" in record.read_text()
    for name in ("GOPATH", "GOMODCACHE", "GOCACHE"):
        assert any(line.startswith(f"{name}={cache}/go") for line in lines)
    assert not (cache / "go").exists(), "gigabytes that nobody needs again"
    assert len(said) == 1 and "3 to 4 minutes" in said[0]
    record.unlink()
    shutil.copytree(pulumi_cli.MODULE, tmp_path / "module")
    monkeypatch.setattr(pulumi_cli, "MODULE", tmp_path / "module")
    program(tmp_path / "module" / pulumi_cli.HOSTS[0], "exit 0")
    assert pulumi_cli.from_modules(cache, pytest.fail) != folder
    assert not record.exists(), "a stand-in that changes needs no other CLI"


def test_a_build_that_fails_says_why(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pulumi_cli.Unavailable, match="no go on PATH"):
        pulumi_cli.from_modules(tmp_path, lambda text: None)
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    program(path / "go", GO.replace("{then}", "echo missing go.sum entry >&2; exit 1"))
    with pytest.raises(pulumi_cli.Unavailable, match=r"go build failed:\n.*missing go.sum entry"):
        pulumi_cli.from_modules(tmp_path, lambda text: None)
    assert pulumi_cli.cached(tmp_path) is None


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


def test_the_newest_cli_is_built_from_modules_of_its_own(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, record = pulumi_cli.built_version(pulumi_cli.NEWEST), tmp_path / "record"
    monkeypatch.setenv("RECORD", str(record))
    program(path / "go", GO.replace("{then}", f'printf "#!/bin/sh\necho v{version}" > "$out"; chmod +x "$out"'))
    said: list[str] = []
    folder = pulumi_cli.newest(tmp_path / "cache", said.append)
    assert names(folder) == sorted(["pulumi", *pulumi_cli.HOSTS]) and f"Pulumi {version} from Go modules" in said[0]
    assert f"version.Version=v{version}" in record.read_text()
    assert pulumi_cli.cached(tmp_path / "cache") is None, "set-up takes the one of its own version"
    assert pulumi_cli.newest(tmp_path / "cache", pytest.fail) == folder


def test_the_suites_run_with_each_release_whatever_fails(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(path / "pulumi", "echo v3.300.0")
    program(path / "python", 'case "$*" in *tests/unit*) echo 1 failed; exit 1;; esac; echo 2 passed')
    program(path / "uv", 'echo " + pulumi==3.400.0" >&2')
    monkeypatch.setattr(pulumi_matrix, "environment", lambda release: {**os.environ, "VIRTUAL_ENV": str(tmp_path)})
    monkeypatch.setattr(setup, "uv", lambda: path / "uv")
    monkeypatch.setattr(setup, "indexes", dict)
    with pytest.raises(SystemExit) as end:
        pulumi_matrix.main()
    failures, shown = str(end.value).splitlines(), capfd.readouterr().out
    assert [line.partition(" with ")[0] for line in failures] == ["test: the unit tests failed"] * 2
    assert f"pulumi {pulumi_compat.OLDEST}" in failures[0] and f"pulumi {pulumi_compat.NEWEST}" in failures[1]
    assert all(line.endswith("CLI 3.300.0") for line in failures)
    assert shown.count("2 passed") == 4
    assert shown.endswith("test: pulumi==3.400.0 is served but not tested: pin it in tools/pulumi/newest.txt\n")
    program(path / "uv", "exit 2")
    assert "unknown" in pulumi_matrix.newer_releases({"PATH": str(path)})
    program(path / "uv", "echo Audited 2 packages >&2")
    assert pulumi_matrix.newer_releases({"PATH": str(path)}) == "test: the package index serves no newer release"


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


def test_the_lock_of_a_process_that_nobody_reaped_is_removed(lab: clone.Clone) -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + 120
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    file = locked(lab, process.pid)
    assert locks.clear_dead(lab, "local", lambda text: None) == [] and not file.exists()
    process.wait()


def test_a_number_that_another_process_has_by_now_is_a_dead_lock(lab: clone.Clone, pulumi: psutil.Process) -> None:
    mine = locked(lab, os.getpid())
    younger = locked(lab, pulumi.pid, since=datetime.now(timezone.utc) - timedelta(hours=1))
    assert locks.clear_dead(lab, "local", lambda text: None) == []
    assert not mine.exists() and not younger.exists()


@pytest.mark.parametrize("form", ["{}", "{:.26}9+02:00", "{:.26}789Z"])
def test_the_lock_of_a_running_cli_stays(lab: clone.Clone, pulumi: psutil.Process, form: str) -> None:
    since = datetime.now(timezone.utc) + (timedelta(hours=2) if "+02:00" in form else timedelta())
    file = locked(lab, pulumi.pid, since=since, form=form)
    (held,) = locks.clear_dead(lab, "local", pytest.fail)
    assert file.exists() and held.pid == pulumi.pid
    assert abs(held.since.timestamp() - time.time()) < 60
    with pytest.raises(SystemExit, match=rf"in use by process {pulumi.pid} .* since (.|\n)*pulumi cancel"):
        stack.hint(lab, {}, "local")


def test_a_lock_of_another_host_stays(lab: clone.Clone) -> None:
    file = locked(lab, ended(), host="elsewhere")
    (held,) = locks.clear_dead(lab, "local", pytest.fail)
    assert file.exists() and held.host == "elsewhere"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": "x", "hostname": 1, "timestamp": 0}', "\0"])
def test_what_is_no_lock_is_left_to_the_cli(lab: clone.Clone, text: str) -> None:
    file = locked(lab, 1)
    file.write_text(text)
    assert locks.clear_dead(lab, "local", pytest.fail) == [] and file.read_text() == text


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


def test_who_comes_second_waits_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with alone(tmp_path, said.append):
            order.append("second")

    with alone(tmp_path, pytest.fail):
        thread = threading.Thread(target=second)
        thread.start()
        deadline = time.monotonic() + 120
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"] and str(tmp_path) in said[0]


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


def test_pythons_are_found_by_what_they_say(tmp_path: Path) -> None:
    for name, says in {
        "a/python3.9": "cpython 3 9 final",
        "a/python3.11": "cpython 3 11 final",
        "a/python3.11-config": "cpython 3 11 final",
        "a/python3.12": "cpython 3 12 candidate",
        "b/python3.10": "pypy 3 10 final",
        "b/python3.11": "cpython 3 11 final",
        "b/python3.13": "cpython 3 13 final",
        "b/python3.14": "cpython 3 14 final",
    }.items():
        program(tmp_path / name, f"echo {says}")
    program(tmp_path / "a" / "python3.13", "echo not in use here >&2; exit 127")
    found = pythons.found([tmp_path / "a", tmp_path / "missing", tmp_path / "b"])
    assert found == {(3, 11): tmp_path / "a/python3.11", (3, 13): tmp_path / "b/python3.13"}
    assert sys.version_info[:2] in pythons.found([Path(sys.base_prefix) / "bin"])


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=setup.ROOT, capture_output=True, text=True, check=True)
    targets = {line.split()[0] for line in done.stdout.splitlines()}
    assert targets >= {
        "setup",
        "up",
        "preview",
        "preview-kubernetes",
        "logs",
        "down",
        "clean",
        "check",
        "test",
        "bench",
    }


def test_make_says_which_python_it_needs() -> None:
    done = subprocess.run(["make", "setup", "PYTHON="], cwd=setup.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Python 3.10 or newer" in done.stderr and "make PYTHON=" in done.stderr


def test_the_stand_in_for_the_language_host_ends_with_its_cli() -> None:
    host = pulumi_cli.MODULE / "pulumi-language-python"
    starter = f"""if True:
        import subprocess, sys, time
        host = subprocess.Popen([sys.executable, {str(host)!r}, "127.0.0.1:9"], stdout=subprocess.PIPE)
        print(host.pid, int(host.stdout.readline()), flush=True)
        time.sleep(600)
    """
    cli = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    assert cli.stdout
    host_process = psutil.Process(int(cli.stdout.readline().split()[0]))
    cli.kill()
    cli.wait()
    cli.stdout.close()
    deadline = time.monotonic() + 120
    while host_process.is_running() and host_process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not host_process.is_running() or host_process.status() == psutil.STATUS_ZOMBIE
