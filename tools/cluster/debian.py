"""Programs of Debian packages without an installation: downloaded by apt, unpacked into our cache, once for all clones.

Called by nodes.py. Debian and Ubuntu, as root (apt's lists may have to be fetched).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.alone import alone

from .build import CACHE, Unavailable


def unpacked(packages: Sequence[str], say: Callable[[str], None]) -> Path:
    """The folder that stands for `/`, with just these packages in it.

    Raises: Unavailable.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Unavailable(
            "real nodes take containerd, runc and CNI plugins from Debian's or Ubuntu's packages: there is no apt-get here"
        )
    system = platform.freedesktop_os_release()
    key = repr((sorted(packages), system.get("ID"), system.get("VERSION_ID"), platform.machine()))
    folder = CACHE / f"debian-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with alone(CACHE, say):
            if not folder.exists():
                say(f"downloading {', '.join(packages)}")
                _unpack(packages, folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables with which the programs find each other and their libraries."""
    libraries = [
        str(path) for pattern in ("usr/lib/*-linux-*", "lib/*-linux-*") for path in sorted(folder.glob(pattern))
    ]
    programs = [str(folder / name) for name in ("usr/bin", "usr/sbin", "bin", "sbin")]
    path = os.pathsep.join([*programs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {"PATH": path, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def _unpack(packages: Sequence[str], folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as name:
        temporary = Path(name)
        temporary.chmod(0o755)
        download = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *packages]
        try:
            _run(download, temporary)
        except Unavailable:  # its lists are old, or missing as in a fresh container
            with_lock = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update"]
            subprocess.run(
                with_lock, capture_output=True, check=False
            )  # one list that cannot be fetched need not matter
            _run(download, temporary)
        for package in sorted(temporary.glob("*.deb")):
            _run(["dpkg-deb", "--extract", package.name, "root"], temporary)
        (temporary / "root").rename(folder)


def _run(argv: list[str], folder: Path) -> None:
    done = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Unavailable("\n    ".join([f"{' '.join(argv[:1])} failed:", *done.stdout.splitlines()[-5:]]))
