"""Everything that can be told without running the product: lint, types, layers, and what is in the wheel.

Called by `make check`; stops at the first step that fails and prints its output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import setup

BIN = setup.VENV / "bin"
PYTHON = BIN / "python"
INDEXES = setup.indexes()

INSTALLED = """
import importlib.resources, pulumi_trainer, pulumi_trainer.runtimes as runtimes
assert "site-packages" in pulumi_trainer.__file__, pulumi_trainer.__file__
assert (importlib.resources.files(pulumi_trainer) / "py.typed").is_file(), "py.typed is missing"
assert (importlib.resources.files(pulumi_trainer) / "plan/bootstrap.py").is_file(), "bootstrap.py is missing"
for name in runtimes.names():
    for release in runtimes.releases(name):
        runtimes.load(name, release)
assert "torch-distributed" in runtimes.names()
from pulumi_trainer import *
"""


def step(name: str, *argv: str | Path, cwd: Path = setup.ROOT) -> None:
    """One line a step; the tool's own output only where it fails."""
    begun = time.monotonic()
    env = {**os.environ, **setup.caches(), **INDEXES, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        env=env,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\ncheck: {name} failed")
    print(f"check: {name} ({time.monotonic() - begun:.1f} s)", flush=True)


def packages() -> None:
    """sdist and wheel of what git would commit, and the wheel in an environment that has never seen the clone."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, dist, clean = folder / "source", folder / "dist", folder / "clean"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=setup.ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in files:
            if name and (setup.ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(setup.ROOT / name, source / name)
        uv, python = setup.uv(), ("--python", PYTHON)
        step("sdist, and the wheel from it", uv, "build", "--no-build-isolation", *python, "--out-dir", dist, source)
        (wheel,) = dist.glob("*.whl")
        step("clean environment", uv, "venv", *python, clean)
        step("wheel installs", uv, "pip", "install", "--python", clean, "--constraints", setup.LOCK, wheel)
        step("wheel imports", clean / "bin" / "python", "-I", "-c", INSTALLED, cwd=folder)
        step("its command starts", clean / "bin" / "pulumi-trainer", "--help", cwd=folder)


def main() -> None:
    """All steps, in the order of what fails most often."""
    step("ruff", BIN / "ruff", "check", ".")
    step("format", BIN / "ruff", "format", "--check", ".")
    step("layers", BIN / "lint-imports", "--no-cache")
    step("mypy", BIN / "mypy")
    step("mypy of the tools", BIN / "mypy", *sorted((setup.ROOT / "tools").glob("*.py")))
    step("mypy of the test cluster", BIN / "mypy", "-p", "tools.cluster")
    step("pyright", BIN / "pyright")
    packages()


if __name__ == "__main__":
    main()
