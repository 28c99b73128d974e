"""One step of a check or a release: a command, and a line for it. Used by check.py and release.py."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import setup

BIN = setup.VENV / "bin"
PYTHON = BIN / "python"
INDEXES = setup.indexes()


def step(name: str, *argv: str | Path, cwd: Path = setup.ROOT, show: bool = False) -> None:
    """Run a step and print one line for it; print the tool's output only if it fails, or after the line with `show`."""
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
    if show:
        print(done.stdout, end="", flush=True)
