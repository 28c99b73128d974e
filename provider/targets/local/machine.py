"""Describes this machine: id, GPUs, CPUs, memory and open files."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.targets.local.paths import translate_os_errors

LINUX = sys.platform == "linux"
GPU = "nvidia.com/gpu"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def host_id() -> str:
    """Return a stable id of this host, a digest of the machine id or of a random id of this user."""
    try:
        text = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        text = _own_id()
    return hashlib.sha256(f"pulumi-trainer host {text}".encode()).hexdigest()[:16]


def _own_id() -> str:
    path = cache_folder() / "host-id"
    with translate_os_errors(path):
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


def python_version(interpreter: str) -> str:
    """Return the version of an interpreter, such as 3.12.4; empty if it does not tell one."""
    if interpreter == sys.executable:
        return platform.python_version()
    argv = [interpreter, "-I", "-c", "import platform; print(platform.python_version())"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return plain_field(done.stdout.strip(), 20)


def gpus() -> int:
    return len(listed_gpus())


def visible_gpus(visible: str | None) -> list[int]:
    """Return the indices of the NVIDIA GPUs that CUDA shows to a program; as in CUDA, a device that is unknown ends the list.
    visible: The value of CUDA_VISIBLE_DEVICES: indices, or UUIDs or their beginnings. None if it is not set."""
    listed = listed_gpus()
    if visible is None:
        return [*listed]
    found: list[int] = []
    for word in visible.replace(" ", "").split(","):
        named = [
            index
            for index, uuid_ in listed.items()
            if word == str(index) or (word.startswith("GPU-") and uuid_.startswith(word))
        ]
        if len(named) != 1:
            break
        found += named
    return [*dict.fromkeys(found)]


def listed_gpus() -> dict[int, str]:
    """Return index -> UUID of the NVIDIA GPUs, as `nvidia-smi -L` lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if listing.returncode != 0:
        return {}
    found = re.findall(r"^GPU (\d+):(?:.*\(UUID: (GPU-[^)]*)\))?", listing.stdout, re.MULTILINE)
    return {int(index): uuid_ for index, uuid_ in found}


def cpus() -> int:
    return os.cpu_count() or 1


def memory() -> int:
    """Return the memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kernel_oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since this machine started; 0 if it does not tell."""
    with suppress(OSError, UnicodeDecodeError):
        found = re.search(r"^oom_kill (\d+)$", KERNEL_STATISTICS.read_text(encoding="ascii"), re.MULTILINE)
        if found:
            return int(found[1])
    return 0


KERNEL_STATISTICS = Path("/proc/vmstat")


def open_files() -> float:
    """Return how many files one process may open."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return math.inf
    return hard


def quantity(value: object) -> Fraction:
    """Return the amount of a Kubernetes quantity; 0 if it is not valid or not known yet."""
    try:
        return Quantity.parse(str(value)).amount
    except ValueError:
        return Fraction(0)
