"""Installs the plugin of pulumi-kubernetes, which queues and PodGroups need: downloaded, else built from Go modules.

Called by `setup.py --queues` with the Pulumi CLI on PATH. It lies where the CLI looks for plugins (PULUMI_HOME). The CLI also
downloads it by itself once a program needs it; only where it cannot, it has to be built.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

from . import build


def say(text: str) -> None:
    """One short line of progress."""
    print(f"setup: {text}", flush=True)


def install(*more: str) -> str:
    """Installs the version that the Python package wants, if it is not there; what the CLI says where it fails."""
    argv = ["pulumi", "plugin", "install", "resource", "kubernetes", version("pulumi_kubernetes"), *more]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout if done.returncode else ""


def main() -> None:
    """Quick where it is there."""
    if not (refused := install()):
        return
    say(f"the plugin of pulumi-kubernetes cannot be downloaded: {refused.strip().splitlines()[-1]}")
    try:
        folder = build.built([build.PLUGIN], say)[build.PLUGIN]
    except build.Unavailable as error:
        sys.exit(f"setup: {error}")
    if refused := install("--file", str(folder / "bin" / build.PLUGIN)):
        sys.exit(f"setup: {refused}")


if __name__ == "__main__":
    main()
