"""Finds the Pulumi CLI: on PATH, else the official archive, else built from Go modules. Standard library only."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath

VERSION = "3.246.0"
RELEASES = "https://get.pulumi.com/releases/sdk"
MODULE = Path(__file__).resolve().parent / "pulumi"
HOSTS = ("pulumi-language-python", "pulumi-resource-pulumi-python")

Say = Callable[[str], None]


class Unavailable(Exception):
    """No way to a CLI worked; the text says what was tried."""


def ensure(cache: Path, say: Say) -> Path | None:
    """The folder that holds the CLI, None where the one on PATH does; gets or builds it first if need be."""
    if on_path():
        return None
    if found := cached(cache):
        return found
    tried = [f"PATH: {_seen_on_path()}"]
    try:
        return from_archive(cache, say)
    except (OSError, Unavailable, tarfile.TarError) as error:
        tried.append(f"official archive: {error}")
    try:
        return from_modules(cache, say)
    except (OSError, Unavailable) as error:
        tried.append(f"Go modules: {error}")
    steps = "\n".join(f"  - {t}" for t in tried)
    raise Unavailable(
        f"there is no way to a Pulumi CLI >= {VERSION}:\n{steps}\n"
        "Install it (https://www.pulumi.com/docs/iac/download-install/), or Go >= 1.25 and a mirror of Go modules"
    )


def on_path() -> Path | None:
    """A CLI on PATH that is new enough, with its language host."""
    found = shutil.which("pulumi")
    if not found or not shutil.which("pulumi-language-python", path=str(Path(found).resolve().parent)):
        return None
    return Path(found) if new_enough(version_of(found)) else None


def version_of(pulumi: str) -> str:
    """What `pulumi version` says, without the v; empty where it says nothing."""
    try:
        env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "1"}
        done = subprocess.run([pulumi, "version"], capture_output=True, text=True, timeout=30, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().removeprefix("v")


def new_enough(version: str) -> bool:
    """At least ours, and of the same major version."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not numbers:
        return False
    have = tuple(int(n) for n in numbers.groups())
    want = tuple(int(n) for n in VERSION.split("."))
    return have[0] == want[0] and have >= want


def _seen_on_path() -> str:
    found = shutil.which("pulumi")
    if not found:
        return "no pulumi"
    if not new_enough(version := version_of(found)):
        return f"{found} is {version or 'of unknown version'}, too old"
    return f"{found} has no pulumi-language-python beside it"


def cached(cache: Path) -> Path | None:
    """What an earlier call got or built."""
    return next((f for f in (_archive_folder(cache), _built_folder(cache)) if (f / "pulumi").exists()), None)


def _archive_folder(cache: Path) -> Path:
    return cache / "pulumi" / f"v{VERSION}-{_system()}"


def _system() -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if machine is None:
        raise Unavailable(f"no archive for {platform.machine()}")
    return f"{platform.system().lower()}-{machine}"


def from_archive(cache: Path, say: Say, releases: str = RELEASES) -> Path:
    """The official release, its checksum verified against the one that the release publishes."""
    name = f"pulumi-v{VERSION}-{_system()}.tar.gz"
    sums = _get(f"{releases}/pulumi-{VERSION}-checksums.txt").decode()
    wanted = next((line.split()[0] for line in sums.splitlines() if line.split()[1:] == [name]), None)
    if wanted is None:
        raise Unavailable(f"the published checksums do not list {name}")
    say(f"downloading Pulumi {VERSION}")
    data = _get(f"{releases}/{name}")
    if hashlib.sha256(data).hexdigest() != wanted:
        raise Unavailable(f"the checksum of {name} is not the published one")
    return _atomically(_archive_folder(cache), lambda folder: _unpack(data, folder))


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read())
    except urllib.error.URLError as error:
        raise Unavailable(f"{url}: {error.reason}") from None


def _unpack(data: bytes, folder: Path) -> None:
    """Plain files named pulumi/NAME only; anything else in the archive is refused."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if member.isdir() and parts == ("pulumi",):
                continue
            if not member.isfile() or len(parts) != 2 or parts[0] != "pulumi" or parts[1] in ("..", "."):
                raise Unavailable(f"the archive holds something unexpected: {member.name!r}")
            file = archive.extractfile(member)
            assert file
            (folder / parts[1]).write_bytes(file.read())
            (folder / parts[1]).chmod(0o755)


def _built_folder(cache: Path) -> Path:
    content = b"".join((MODULE / f).read_bytes() for f in ("go.mod", "go.sum", *HOSTS))
    return cache / "pulumi" / f"built-{hashlib.sha256(content).hexdigest()[:16]}"


def from_modules(cache: Path, say: Say) -> Path:
    """Built from the pinned Go modules, with stand-ins for the two hosts that are none."""
    go = shutil.which("go")
    if not go:
        raise Unavailable("no go on PATH")
    say(f"building Pulumi {VERSION} from Go modules: 3 to 5 minutes, once")
    env = {
        **os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOCACHE": str(cache / "go" / "build"),
        "GOMODCACHE": str(cache / "go" / "mod"), "GOPATH": str(cache / "go"), "GOTOOLCHAIN": "local",
    }  # fmt: skip
    flags = f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{VERSION}"

    def build(folder: Path) -> None:
        argv = [go, "build", "-trimpath", "-modcacherw", "-ldflags", flags, "-o", str(folder / "pulumi")]
        argv.append("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi")
        done = subprocess.run(argv, cwd=MODULE, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable("\n".join(done.stderr.splitlines()[-10:]))
        for host in HOSTS:
            shutil.copy(MODULE / host, folder / host)

    return _atomically(_built_folder(cache), build)


def _atomically(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder that is there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary) / "new"
        made.mkdir()
        fill(made)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / "pulumi").exists():  # else somebody else was quicker
                raise
    return folder
