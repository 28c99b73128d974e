"""A box: a part of this machine with mounts, cgroups, network, processes and a name of its own, in which a node runs.

All of it ends with the box's first process, and nothing that happens inside shows outside: /run and /var are its own, the
kernel's settings that a kubelet wants are files. The rest of the file system is the machine's. Nodes.py starts boxes and looks
into them; the box itself runs this file as a program, so standard library only. Linux, root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = ("/run", "/var")
"""Folders that begin empty in a box: daemons write there whatever they are told."""
SETTINGS = {
    "vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
}  # fmt: skip
"""What a kubelet sets where it differs; without namespaces of its own, it would be set for the whole machine."""


def command(cgroup: str, hostname: str, data: Path, needed: Sequence[Path]) -> list[str]:
    """What starts a box.

    cgroup: name of its cgroup, in each hierarchy.
    data: what is /var/lib inside, short enough for the paths of sockets.
    needed: folders that are seen inside even where they lie below OWN.
    """
    apart = [
        "unshare",
        *(f"--{what}" for what in ("mount", "cgroup", "net", "pid", "fork", "uts", "ipc", "kill-child")),
    ]
    inside = [sys.executable, __file__, "live", hostname, str(data), *map(str, needed)]
    return [*_join(cgroup), *apart, "--propagation", "private", "--", *inside]


def inside(pid: int, cgroup: str, argv: Sequence[str | Path]) -> list[str]:
    """What runs a program in the box whose first process is `pid`."""
    into = ["nsenter", "--target", str(pid), *(f"--{what}" for what in ("mount", "cgroup", "net", "pid", "uts", "ipc"))]
    return [*_join(cgroup), *into, "--wd=/", "--", *map(str, argv)]


def first(pids: Sequence[int]) -> int | None:
    """Which of these is the first process of a box, once that is ready."""
    for pid in pids:
        with suppress(OSError):
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            if status.get("NSpid", "").split()[1:] == ["1"] and Path(f"/proc/{pid}/root/run/ready").exists():
                return pid
    return None


def remove_cgroups(cgroup: str, patience: float = 10) -> None:
    """Of a box that has ended; its last processes may still be on their way out."""
    deadline = time.monotonic() + patience
    for folder in (root / cgroup for root in _hierarchies()):
        while folder.exists():
            for path, _, _ in os.walk(folder, topdown=False):
                with suppress(OSError):
                    Path(path).rmdir()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{folder} is still in use")
            time.sleep(0.01)


def cgroups(prefix: str) -> set[str]:
    """Names of those that begin so."""
    if not CGROUPS.exists():
        return set()
    return {path.name for root in _hierarchies() for path in root.glob(f"{prefix}*") if path.is_dir()}


def _join(cgroup: str) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, "join", cgroup]


def _hierarchies() -> list[Path]:
    """Where cgroups lie: version 2 has one hierarchy, version 1 one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in sorted(CGROUPS.iterdir()) if path.is_dir() and not path.is_symlink()]


def join(cgroup: str, argv: list[str]) -> None:
    """Becomes a program in the cgroup, which is made if it is missing."""
    for root in _hierarchies():
        folder = root / cgroup
        if (root / "cgroup.controllers").exists() and root == CGROUPS:
            _delegate(root)
        folder.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists() and (root / "cgroup.clone_children").exists():
                (folder / name).write_text((root / name).read_text())
        inner = folder / "init"  # version 2: a cgroup has either processes or cgroups with controllers
        ((inner if inner.exists() else folder) / "cgroup.procs").write_text(str(os.getpid()))
    os.execvp(argv[0], argv)


def _delegate(folder: Path) -> None:
    for controller in (folder / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def live(hostname: str, data: str, needed: Sequence[str]) -> None:
    """The first process of a box: arranges it, and collects what ends in it."""
    _mount("proc", "/proc", "proc")
    _mount("sysfs", "/sys", "sysfs")
    _mount_cgroups()
    _own(Path(data), [Path(path) for path in needed])
    for area in ("kernel", "vm"):
        _run("mount", "--bind", f"/proc/sys/{area}", f"/proc/sys/{area}")
        _run("mount", "-o", "remount,bind,ro", f"/proc/sys/{area}")
    for name, value in SETTINGS.items():
        file = Path("/run/settings", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        _run("mount", "--bind", str(file), f"/proc/sys/{name}")
    _run("hostname", hostname)
    _run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects them
    Path("/run/ready").touch()
    while True:
        signal.pause()


def _mount_cgroups() -> None:
    if not Path("/proc/self/cgroup").read_text().startswith("0::"):
        _mount("tmpfs", str(CGROUPS), "tmpfs", "mode=755")
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, _ = line.split(":", 2)
            if not controllers:
                continue
            folder = CGROUPS / controllers.removeprefix("name=")
            folder.mkdir()
            _mount("cgroup", str(folder), "cgroup", f"none,{controllers}" if "=" in controllers else controllers)
            for one in controllers.split(",") if "," in controllers else []:
                (CGROUPS / one).symlink_to(controllers)
        return
    _mount("cgroup2", str(CGROUPS), "cgroup2")
    (CGROUPS / "init").mkdir()
    (CGROUPS / "init" / "cgroup.procs").write_text(str(os.getpid()))
    _delegate(CGROUPS)


def _own(data: Path, needed: Sequence[Path]) -> None:
    """Empty folders over those in OWN, less what is needed below them."""
    seen = {path: path for path in needed if any(Path(folder) in path.parents for folder in OWN) and path.exists()}
    opened = {path: os.open(source, os.O_PATH) for path, source in ({Path("/var/lib"): data} | seen).items()}
    for folder in OWN:
        _mount("tmpfs", folder, "tmpfs", "mode=755")
    for name in ("log", "tmp"):
        Path("/var", name).mkdir()
    for path, descriptor in opened.items():
        path.mkdir(parents=True, exist_ok=True)
        _bind(descriptor, path)


def _bind(descriptor: int, path: Path) -> None:
    # Not canonicalized: the path of the folder leads to the empty one over it by now.
    argv = ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{descriptor}", str(path)]
    subprocess.run(argv, check=True, pass_fds=[descriptor])
    os.close(descriptor)


def _mount(what: str, where: str, kind: str, options: str = "") -> None:
    _run("mount", "-t", kind, *(["-o", options] if options else []), what, where)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    if sys.argv[1] == "join":
        join(sys.argv[2], sys.argv[3:])
    else:
        live(sys.argv[2], sys.argv[3], sys.argv[4:])
