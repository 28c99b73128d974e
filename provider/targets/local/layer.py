"""A cached Python environment per set of packages, on top of the interpreter that runs it.

Started by the bootstrap of a container (`python layer.py PACKAGE... [--index-url URL ...]`): installs on the first use,
prints the environment variables that put the layer in front as JSON, and logs to stderr. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from importlib import metadata
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own builds without CUDA: a tenth of the size. Used where reachable and the machine has no NVIDIA GPU."""
BELOW_ENV = "PULUMI_TRAINER_BELOW"
"""Variable of a container: the packages of the interpreter below its layer. A layer is shared by all interpreters that
have the same packages, so it cannot know the place itself."""


def layer(requirements: list[str], folder: Path) -> dict[str, str]:
    """Variables that make the packages importable and their programs runnable. Installs at most once for a set on top of
    the same packages, whoever comes first; an installation that was cut off is thrown away.
    """
    below = sysconfig.get_path("purelib")
    present = sorted(f"{found.name}=={found.version}" for found in metadata.distributions(path=[below]))
    key = json.dumps([sys.base_prefix, sys.version, present, sorted(requirements)])
    os.environ[BELOW_ENV] = below
    home = folder / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, home):
        if place.exists() and place.stat().st_uid != os.getuid():
            sys.exit(f"pulumi-trainer: {place} belongs to another user, whose programs are not run; remove it")
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            _build(home, requirements)
            (home / "complete").touch()
    path = os.environ.get("PYTHONPATH")
    return {
        "PATH": os.pathsep.join([str(home / "bin"), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([_packages(home), *([path] if path else [])]),
        BELOW_ENV: below,
    }


def _build(home: Path, requirements: list[str]) -> None:
    print("installing", *requirements, "into", home, file=sys.stderr, flush=True)
    inside = str(home / "bin" / "python3")
    _run([sys.executable, "-m", "venv", "--system-site-packages", str(home)])
    Path(_packages(home), "interpreter-in-use.pth").write_text(_LINK)
    index = ["--extra-index-url", CPU_INDEX] if _wants_cpu_build(requirements) else []
    _run([inside, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *index, *requirements])


_LINK = f'import os, site; os.environ.get("{BELOW_ENV}") and site.addsitedir(os.environ["{BELOW_ENV}"])\n'


def _packages(home: Path) -> str:
    return sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})


def _wants_cpu_build(requirements: list[str]) -> bool:
    if "--index-url" in requirements or not any(r.startswith("torch") for r in requirements):
        return False
    if shutil.which("nvidia-smi") or sys.platform != "linux":
        return False
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=3) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, stdout=sys.stderr, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    environments = os.environ.get("PULUMI_TRAINER_ENVIRONMENTS") or "~/.cache/pulumi-trainer/environments"
    variables = layer(sys.argv[1:], Path(environments).expanduser())
    if installed := os.environ.get("PULUMI_TRAINER_INSTALLED"):
        Path(installed).touch()
    print(json.dumps(variables))
