"""Builds what a release consists of, of what git would commit: sdist, wheel, its SBOM, the licences of what it depends on.

`make dist` builds into dist/; check.py builds into a temporary folder and throws it away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import setup
from step import BIN, PYTHON, step

INSTALLED = """
import importlib.resources, pulumi_trainer, pulumi_trainer.runtimes as runtimes
assert "site-packages" in pulumi_trainer.__file__, pulumi_trainer.__file__
assert (importlib.resources.files(pulumi_trainer) / "py.typed").is_file(), "py.typed is missing"
assert (importlib.resources.files(pulumi_trainer) / "provider/pod/scripts/bootstrap.py").is_file(), "bootstrap.py is missing"
for name in runtimes.names():
    for release in runtimes.releases(name):
        runtimes.load(name, release)
assert "torch-distributed" in runtimes.names()
from pulumi_trainer import *
"""


def build(dist: Path) -> None:
    """Build all files of a release into a folder, and try wheel and sdist in environments that have never seen the clone."""
    wheel, sdist = build_packages(dist)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for kind, package in (("sdist", sdist), ("wheel", wheel)):
            clean = folder / kind
            install(package, clean)
            step(f"{kind} imports", clean / "bin" / "python", "-I", "-c", INSTALLED, cwd=folder)
            step("its command starts", clean / "bin" / "pulumi-trainer", "--help", cwd=folder)
        name = "-".join(wheel.name.split("-")[:2])
        sbom = dist / f"{name}.cdx.json"
        options = ("--pyproject", setup.ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible")
        step("SBOM", BIN / "cyclonedx-py", "environment", *options, "-o", sbom, clean / "bin" / "python")
    (dist / f"{name}.licences.md").write_text(_licences(json.loads(sbom.read_text())), encoding="utf-8")
    sums = (f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}" for f in sorted(dist.glob(f"{name}*")))
    (dist / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")


def build_packages(dist: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel from it into a folder. Return the wheel and the sdist."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        for name in _files_of_git():
            if (setup.ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(setup.ROOT / name, source / name)
        options = ("--no-build-isolation", "--python", PYTHON, "--out-dir", dist)
        step("sdist, and the wheel from it", setup.uv(), "build", *options, source)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def install(package: Path, environment: Path) -> None:
    """Install a wheel or an sdist with the pinned dependencies into a new virtual environment."""
    uv = setup.uv()
    step("clean environment", uv, "venv", "--python", PYTHON, environment)
    constraints = ("--constraints", setup.LOCK)
    step(f"{package.name} installs", uv, "pip", "install", "--python", environment, *constraints, package)


def _files_of_git() -> list[str]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=setup.ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in found.split("\0") if name]


def _licences(sbom: Mapping[str, Any]) -> str:
    """Return the packages of an SBOM with their licences, as a table in Markdown."""
    rows = [f"| {each['name']} | {each['version']} | {_licence(each)} |" for each in sbom["components"]]
    head = [
        "# Licences of what pulumi-trainer depends on",
        "",
        "| package | version | licence |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *sorted(rows, key=str.lower)]) + "\n"


def _licence(component: Mapping[str, Any]) -> str:
    """Return the licence of a component: an SPDX expression or id if it has one, else the classifier of its metadata."""
    names = []
    for each in component.get("licenses") or []:
        licence = each.get("license", {})
        names.append(
            each.get("expression") or licence.get("id") or str(licence.get("name", "")).partition("\n")[0][:80]
        )
    spdx = [name for name in names if not name.startswith("License :: ")]
    chosen = spdx or [name.rpartition(" :: ")[2] for name in names]
    return ", ".join(sorted(set(chosen))).replace("|", "/") or "not declared"


if __name__ == "__main__":
    (setup.ROOT / "dist").mkdir(exist_ok=True)
    for old in (setup.ROOT / "dist").iterdir():
        old.unlink()
    build(setup.ROOT / "dist")
