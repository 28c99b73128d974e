"""This machine: its id, its GPUs, CPUs and memory, and what Kubernetes' quantities mean on it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import uuid
from fractions import Fraction
from pathlib import Path

from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.targets.local.paths import faults

LINUX = sys.platform == "linux"
GPU = "nvidia.com/gpu"


def cache() -> Path:
    """What all projects of this user share."""
    return Path.home() / ".cache" / "pulumi-trainer"


def host_id() -> str:
    """This host's id: stable, and tells nothing about it. From the machine id, else made once for this user."""
    try:
        text = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        text = _own_id()
    return hashlib.sha256(f"pulumi-trainer host {text}".encode()).hexdigest()[:16]


def _own_id() -> str:
    path = cache() / "host-id"
    with faults(path):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".host-id-{uuid.uuid4().hex}")
            fresh.write_text(uuid.uuid4().hex, encoding="ascii")
            try:
                path.hardlink_to(fresh)  # the first one stays
            except FileExistsError:
                pass
            fresh.unlink()
        return path.read_text(encoding="ascii").strip()


def gpus() -> int:
    """NVIDIA GPUs of this machine, as `nvidia-smi -L` lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines()) if listing.returncode == 0 else 0


def cpus() -> int:
    return os.cpu_count() or 1


def memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def quantity(value: object) -> Fraction:
    """The amount of a Kubernetes quantity; 0 where it is none (admission has refused it, or it is not known yet)."""
    try:
        return Quantity.parse(str(value)).amount
    except ValueError:
        return Fraction(0)
