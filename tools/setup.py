"""Makes the clone ready: `.venv` with pinned packages, the package itself, the Pulumi CLI. Idempotent, quick when done.

Run by the Makefile with the machine's own Python (3.10 or newer), standard library only. What the other tools need to know
of the clone and of the caches is here too. Writes in the clone and in ~/.cache/pulumi-trainer, nowhere else.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pulumi_cli
from alone import alone

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "tools" / "requirements.txt"
CACHE = Path.home() / ".cache" / "pulumi-trainer"
PACKAGES = ("components", "provider", "runtimes")
EXTRAS = {"user": ("kubernetes", "s3", "hub"), "test": ("test",), "dev": ("dev",)}
"""What an environment is for -> the extras of pyproject.toml in it. Each holds all that the ones before it do."""
STRICT = ("--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=strict")


def say(text: str) -> None:
    """One short line of progress."""
    print(f"setup: {text}", flush=True)


def caches() -> dict[str, str]:
    """Caches of the tools that we start, in our own folder."""
    return {
        "PIP_CACHE_DIR": str(CACHE / "pip"),
        "UV_CACHE_DIR": str(CACHE / "uv"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }


def run(*argv: str | Path, env: dict[str, str] | None = None) -> str:
    """Output of a command that is shown only where it fails; then it is the end."""
    done = subprocess.run(
        [str(a) for a in argv], cwd=ROOT, env={**os.environ, **caches(), **(env or {})}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\nsetup: failed: {' '.join(str(a) for a in argv)}")
    return done.stdout


def environment(venv: Path, interpreter: str | Path, purpose: str) -> None:
    """A virtual environment with the pinned packages and, linked, this package."""
    python = venv / "bin" / "python"
    if not python.exists() or str(venv) not in _read(venv / "bin" / "activate"):  # in a moved clone it is of no use
        say(f"creating {venv.relative_to(ROOT)} with {interpreter}")
        run(interpreter, "-m", "venv", "--clear", *([] if venv == VENV else ["--without-pip"]), venv)
    enough = list(EXTRAS)[list(EXTRAS).index(purpose) :]
    if _read(venv / ".packages") not in map(_packages, enough):
        say(f"installing pinned packages into {venv.relative_to(ROOT)}")
        extras = [f"--extra={extra}" for extra in EXTRAS[purpose]]
        wanted: list[str | Path] = ["--requirements", ROOT / "pyproject.toml", *extras, _pin("setuptools")]
        run(uv(), "pip", "install", "--quiet", "--python", python, "--constraints", LOCK, *wanted, env=indexes())
        (venv / ".packages").write_text(_packages(purpose))
    if _read(venv / ".linked") != _files():
        say(f"linking the package into {venv.relative_to(ROOT)}")
        run(uv(), "pip", "install", "--quiet", "--python", python, *STRICT, "--editable", ROOT)
        (venv / ".linked").write_text(_files())


def uv() -> Path:
    """The pinned uv, brought by pip; uv takes the pins as they are, in seconds."""
    name, _, version = _pin("uv").partition("==")
    if not any(VENV.glob(f"lib/*/site-packages/{name}-{version}.dist-info")):
        wanted = VENV / "uv.txt"  # pip takes hashes from a file alone
        wanted.write_text(_pin_with_hashes("uv"))
        python = VENV / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--no-input", "--require-hashes", "--requirement", wanted)
    return VENV / "bin" / "uv"


def indexes() -> dict[str, str]:
    """pip's own settings (mirror, certificates) in uv's words: uv reads none of them."""
    words = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "trusted-host": "UV_INSECURE_HOST",
             "cert": "SSL_CERT_FILE"}  # fmt: skip
    found = {}
    for line in run(VENV / "bin" / "python", "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        word = words.get(key.rpartition(".")[2])
        if word and word not in os.environ:
            found[word] = " ".join(str(ast.literal_eval(value)).split())
    return found


def _packages(purpose: str) -> str:
    return _digest(LOCK.read_text(), (ROOT / "pyproject.toml").read_text(), purpose)


def _files() -> str:
    """Strict links are one a file: a new file needs them anew, a changed one does not."""
    found = sorted(str(p) for d in PACKAGES for p in (ROOT / d).rglob("*") if p.suffix in (".py", ".typed", ".yaml"))
    return _digest(*found, (ROOT / "pyproject.toml").read_text())


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _read(stamp: Path) -> str:
    return stamp.read_text() if stamp.exists() else ""


def _pin(name: str) -> str:
    """`name==version` as the lock has it."""
    return _pin_with_hashes(name).split()[0]


def _pin_with_hashes(name: str) -> str:
    """The whole entry of a package in the lock."""
    found = re.search(rf"^{name}==.*(\n +--hash=.*)+", LOCK.read_text(), re.MULTILINE)
    if not found:
        sys.exit(f"setup: {LOCK} does not pin {name}")
    return found[0]


def main() -> None:
    """`setup.py [--dev] [--no-cli | --queues]`: with what developers need; without the Pulumi CLI; with the plugin for queues."""
    if sys.version_info < (3, 10):  # noqa: UP036 (run by whatever python3 the machine has)
        sys.exit(
            f"setup: Python 3.10 or newer is needed; {sys.executable} is {sys.version.split()[0]}: make PYTHON=..."
        )
    with alone(ROOT, say):
        environment(VENV, sys.executable, "dev" if "--dev" in sys.argv[1:] else "user")
    if "--no-cli" not in sys.argv[1:]:
        try:
            pulumi_cli.ensure(CACHE, say)
        except pulumi_cli.Unavailable as error:
            sys.exit(f"setup: {error}")
    if "--queues" in sys.argv[1:]:
        python, stack = str(VENV / "bin" / "python"), str(ROOT / "tools" / "stack.py")
        installing = [python, stack, "exec", "python", "-m", "tools.cluster.kubernetes_plugin"]
        sys.exit(subprocess.run(installing, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; the next one goes on from here")
