"""Makes the clone ready: `.venv` with pinned packages, the package itself, the Pulumi CLI. Idempotent, quick when done.

Run by the machine's own Python (3.10 or newer), standard library only. Writes in the clone and in ~/.cache/pulumi-trainer.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pulumi_cli

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "tools" / "requirements.txt"
CACHE = Path.home() / ".cache" / "pulumi-trainer"
PACKAGES = ("components", "provider", "runtimes")


def say(text: str) -> None:
    """One short line of progress."""
    print(f"setup: {text}", flush=True)


def caches() -> dict[str, str]:
    """Caches of the tools that we start, in our own folder."""
    return {
        "PIP_CACHE_DIR": str(CACHE / "pip"),
        "UV_CACHE_DIR": str(CACHE / "uv"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYRIGHT_PYTHON_CACHE_DIR": str(CACHE / "pyright"),
        "npm_config_cache": str(CACHE / "npm"),
    }


def run(*argv: str | Path) -> None:
    """A command, quiet unless it fails."""
    done = subprocess.run(
        [str(a) for a in argv], cwd=ROOT, env={**os.environ, **caches()}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\nsetup: failed: {' '.join(str(a) for a in argv)}")


def stamped(name: str, content: str, work: object) -> None:
    """Runs `work` unless it was done for this content."""
    stamp = VENV / f".{name}"
    key = hashlib.sha256(content.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return
    assert callable(work)
    work()
    stamp.write_text(key)


def environment() -> None:
    """`.venv` with the pinned packages."""
    if not PYTHON.exists():
        say(f"creating .venv with Python {sys.version.split()[0]}")
        run(sys.executable, "-m", "venv", "--clear", VENV)
    stamped("packages", LOCK.read_text() + sys.version, install)


def install() -> None:
    """pip only brings uv; uv takes the pins as they are, in seconds."""
    say("installing pinned packages into .venv")
    uv = re.search(r"^uv==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert uv
    run(PYTHON, "-m", "pip", "install", "--quiet", f"uv=={uv[1]}")
    run(PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON, "--requirements", LOCK)


def link() -> None:
    """The package as an editable install. Strict: type checkers see through it, and new files need it anew."""
    files = sorted(str(p) for d in PACKAGES for p in (ROOT / d).rglob("*") if p.suffix in (".py", ".yaml", ".lock"))
    stamped("linked", "\n".join(files) + (ROOT / "pyproject.toml").read_text(), _link)


def _link() -> None:
    say("linking the package into .venv")
    options = ["--no-build-isolation", "--no-deps", "--config-settings", "editable_mode=strict"]
    run(PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON, *options, "--editable", ROOT)


def main() -> None:
    """All of it."""
    if sys.version_info < (3, 10):
        sys.exit(
            f"setup: Python 3.10 or newer is needed; {sys.executable} is {sys.version.split()[0]}. Use make PYTHON=..."
        )
    environment()
    link()
    if "--no-cli" not in sys.argv[1:]:
        try:
            pulumi_cli.ensure(CACHE, say)
        except pulumi_cli.Unavailable as error:
            sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
