"""Finds the Pulumi CLI: on PATH, else the official archive, else built from Go modules. Standard library only.

Called by setup.py, and by stack.py for the folder that has to be on PATH. What was downloaded or built is kept in
~/.cache/pulumi-trainer/pulumi and serves every clone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import downloads
import go_modules
from alone import alone

VERSION = "3.246.0"
"""The oldest CLI that will do, and the one that is downloaded or built. go.mod and requirements.in name the same."""
RELEASES = (f"https://github.com/pulumi/pulumi/releases/download/v{VERSION}", "https://get.pulumi.com/releases/sdk")
MODULE = Path(__file__).resolve().parent / "pulumi"
NEWEST = MODULE / "newest"
"""The module of the newest CLI that is tested (pulumi_matrix.py)."""
HOSTS = ("pulumi-language-python", "pulumi-resource-pulumi-python")
"""What the engine starts beside the CLI for Python programs and for dynamic providers."""


class Unavailable(Exception):
    """No way to a CLI worked; the text says what was tried."""


def ensure(cache: Path, say: Callable[[str], None]) -> Path | None:
    """The folder with the CLI and its hosts, None where PATH has them; gets or builds the CLI first if need be."""
    tried = []
    try:
        on_path()
        return None
    except Unavailable as error:
        tried.append(f"PATH: {error}")
    if found := cached(cache):
        return found
    (cache / "pulumi").mkdir(parents=True, exist_ok=True)
    with alone(cache / "pulumi", say):
        if found := cached(cache):  # somebody else was at it
            return found
        for name, way in (("official archive", from_archive), ("Go modules", from_modules)):
            try:
                return way(cache, say)
            except (OSError, Unavailable) as error:
                tried.append(f"{name}: {error}")
                say(f"no Pulumi CLI from {name}: {error}")
    steps = "\n".join(f"  - {t}" for t in tried)
    raise Unavailable(
        f"there is no way to a Pulumi CLI >= {VERSION}, < 4:\n{steps}\n"
        "Hint: install it (https://www.pulumi.com/docs/iac/download-install/) so that `pulumi` is on PATH, or install Go >= 1.25"
        " with access to a mirror of Go modules (GOPROXY)"
    )


def on_path() -> None:
    """Whether the CLI on PATH will do: new enough, and with its hosts. Otherwise the error says why not."""
    found = shutil.which("pulumi")
    if not found:
        raise Unavailable("no pulumi there")
    verify(Path(found))
    beside = os.pathsep.join([str(Path(found).resolve().parent), os.environ.get("PATH", "")])
    for host in HOSTS:
        if not shutil.which(host, path=beside):
            raise Unavailable(f"{found} comes without {host}")


def verify(pulumi: Path) -> None:
    """Refuses a CLI that does not run here or is of another version than we know to work."""
    try:
        env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "1"}
        done = subprocess.run([pulumi, "version"], capture_output=True, text=True, timeout=60, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{pulumi} does not run: {error}") from None
    version = done.stdout.strip().removeprefix("v")
    if not new_enough(version):
        raise Unavailable(f"{pulumi} is of version {version or 'unknown'}, not >= {VERSION} and < 4")


def new_enough(version: str) -> bool:
    """At least ours, and of the same major version."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    have, want = (tuple(map(int, text)) for text in (numbers.groups() if numbers else (), VERSION.split(".")))
    return have[:1] == want[:1] and have >= want


def cached(cache: Path) -> Path | None:
    """What an earlier call got or built."""
    return next((f for f in (_archive_folder(cache), _built_folder(cache, *HOSTS)) if (f / "pulumi").exists()), None)


def _archive_folder(cache: Path) -> Path:
    return cache / "pulumi" / f"v{VERSION}-{_system()}"


def _built_folder(cache: Path, *hosts: str, module: Path | None = None) -> Path:
    pins = [(module or MODULE) / name for name in ("go.mod", "go.sum")]
    content = b"\0".join(file.read_bytes() for file in (*pins, *(MODULE / host for host in hosts)))
    return cache / "pulumi" / f"built-{hashlib.sha256(content).hexdigest()[:16]}-{_system()}"


def _system() -> str:
    return downloads.system(amd64="x64")


def checksums() -> dict[str, str]:
    """Archive -> SHA-256, as Pulumi publishes them with the release and in its Homebrew formula of this version.
    Source: https://github.com/pulumi/homebrew-tap/blob/master/Formula/pulumi.rb
    """
    return downloads.checksums(MODULE / "releases.sha256")


def from_archive(cache: Path, say: Callable[[str], None], releases: Sequence[str] = RELEASES) -> Path:
    """The official release, with its own hosts; refused where its checksum is not the one that is pinned here."""
    name = f"pulumi-v{VERSION}-{_system()}.tar.gz"
    checksum = checksums().get(name)
    if checksum is None:
        raise Unavailable(f"there is none for {_system()}")
    failed = []
    for release in releases:
        try:
            fill = partial(downloads.fetch, f"{release}/{name}", checksum, "pulumi", say=say)
            return _folder(_archive_folder(cache), fill)
        except (OSError, downloads.Failed, Unavailable) as error:
            failed.append(f"{release}: {error}")
    raise Unavailable("; ".join(failed))


def newest(cache: Path, say: Callable[[str], None]) -> Path:
    """The folder with the newest CLI that is tested, and its hosts; builds it first if need be."""
    (cache / "pulumi").mkdir(parents=True, exist_ok=True)
    with alone(cache / "pulumi", say):
        folder = _built_folder(cache, *HOSTS, module=NEWEST)
        return folder if (folder / "pulumi").exists() else from_modules(cache, say, NEWEST)


def from_modules(cache: Path, say: Callable[[str], None], module: Path | None = None) -> Path:
    """Built from pinned Go modules, with stand-ins beside it for the two hosts that are none.

    module: the folder with their go.mod, `MODULE` by default.
    """
    module = module or MODULE
    version = built_version(module)
    compiled = _built_folder(cache, module=module)  # for itself: a stand-in that changes needs no other CLI
    if not (compiled / "pulumi").exists():
        try:
            go_modules.find()
        except go_modules.Failed as error:
            raise Unavailable(str(error)) from None
        say(f"building Pulumi {version} from Go modules: 3 to 4 minutes on 2 cores, once")
        _folder(compiled, lambda folder: _compile(module, version, folder / "pulumi", cache / "go", say))
        shutil.rmtree(cache / "go", ignore_errors=True)  # 3 GB that only an interrupted build needs again

    def assemble(folder: Path) -> None:
        os.link(compiled / "pulumi", folder / "pulumi")
        for host in HOSTS:
            shutil.copy(MODULE / host, folder / host)

    return _folder(_built_folder(cache, *HOSTS, module=module), assemble)


def built_version(module: Path) -> str:
    """The version of the CLI that a module's go.mod names."""
    required = re.search(r"github\.com/pulumi/pulumi/pkg/v3 v(\S+)", (module / "go.mod").read_text())
    if not required:
        raise Unavailable(f"{module / 'go.mod'} does not require github.com/pulumi/pulumi/pkg/v3")
    return required[1]


def _compile(module: Path, version: str, binary: Path, caches: Path, say: Callable[[str], None]) -> None:
    flags = f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}"
    try:
        go_modules.build(module, ["github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"], flags, binary, caches, say)
    except go_modules.Failed as error:
        raise Unavailable(str(error)) from None


def _folder(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder with a CLI that works; it is there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        new.mkdir()
        fill(new)
        verify(new / "pulumi")
        new.rename(folder)
    return folder
