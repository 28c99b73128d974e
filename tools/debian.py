"""Programs that no Python package brings, from Debian's and Ubuntu's packages: `mpirun`, `ssh`, and `bwrap` on Linux. Idempotent.

Run by `make test-frameworks`. Installs as root or with `sudo -n`, so it never asks for a password; what else can be done is
said. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from alone import alone

WANTED = {
    "mpirun": "openmpi-bin",
    "ssh": "openssh-client",
    **({"bwrap": "bubblewrap"} if sys.platform == "linux" else {}),
}
"""Program -> the package that has it."""


def missing() -> list[str]:
    """Packages whose programs are not on PATH."""
    return [package for program, package in WANTED.items() if shutil.which(program) is None]


def commands(packages: list[str], root: bool) -> list[list[str]]:
    """What installs them. The lists of packages may be old, or missing as in a fresh container, so they are fetched first."""
    prefix = [] if root else ["sudo", "-n"]
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    return [[*prefix, *quiet, "update"], [*prefix, *quiet, "install", "--yes", "--no-install-recommends", *packages]]


def main() -> None:
    """Ends with what to install by hand where it may not, or cannot."""
    packages = missing()
    if not packages:
        return
    names = " ".join(packages)
    by_hand = (
        f"setup: {', '.join(p for p in WANTED if WANTED[p] in packages)} is not on PATH. On Debian and Ubuntu: "
        f"sudo apt-get install {names}. Elsewhere install Open MPI 4 or 5, and on Linux bubblewrap"
    )
    root = os.geteuid() == 0
    if not shutil.which("apt-get") or not (root or _may_become_root()):
        sys.exit(by_hand)
    with alone(Path(__file__).parent, _say):
        if not missing():
            return
        _say(f"installing {names}")
        for argv in commands(packages, root):
            done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode and argv[-1] != "update":  # one list that cannot be fetched need not matter
                sys.exit(f"{done.stdout}\n{by_hand}")
    if missing():
        sys.exit(by_hand)


def _may_become_root() -> bool:
    return bool(shutil.which("sudo")) and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0


def _say(text: str) -> None:
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    main()
