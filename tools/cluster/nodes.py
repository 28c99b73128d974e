"""Real nodes of a cluster: kubelet, containerd, kube-proxy and real pods, each node in a box; names and images from a hub.

`prepare`, `address`, `add` and `remove` are called by cluster.py; `start` and `restart` by tests that break nodes, which are
killed as `cluster.kill("node1")`, `cluster.kill("node1.kubelet")`. Linux, root, Debian or Ubuntu.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import box, build, debian, images, network, processes, provisioner, runtime
from .api import Refused
from .network import Network

if TYPE_CHECKING:
    from .cluster import Cluster

Command = list[str | Path]
PACKAGES = (
    "containerd", "runc", "libseccomp2", "containernetworking-plugins", "nftables", "libnftables1", "libnftnl11", "libmnl0",
    "libxtables12", "libjansson4", "libedit2", "libbsd0", "libmd0", "libgmp10",
)  # fmt: skip
NEEDED = ("unshare", "nsenter", "ip", "mount", "hostname")
HUB = "hub"
READY = 60.0
"""Seconds within which a node is ready; it takes four to eight."""


def prepare(say: Callable[[str], None]) -> None:
    """Makes sure, before anything is started, that there can be nodes here, and has what they need.

    Raises: Unavailable.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise build.Unavailable("real nodes need Linux and root: each has namespaces and cgroups of its own")
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if missing := [name for name in NEEDED if not shutil.which(name, path=path)]:
        raise build.Unavailable(
            f"real nodes need {', '.join(missing)}: apt-get install util-linux iproute2 mount hostname"
        )
    build.built(build.NODES, say)
    for packages in (PACKAGES, images.SSH):
        debian.unpacked(packages, say)
    if not images.installed():
        say(f"installing {', '.join(images.LAYER)} for the pods' image: a few minutes, once")
    images.layer()


def address(ports: Mapping[str, int]) -> str:
    """Where nodes reach the API server."""
    return Network(min(ports.values())).machine


def add(cluster: Cluster, count: int) -> None:
    """The hub, and nodes node1 to nodeN, ready for pods; a StorageClass whose volumes all of them see.

    Raises: Broken, OSError.
    """
    if count > network.MOST:
        raise build.Unavailable(f"a cluster has at most {network.MOST} real nodes")
    place, variables = cluster.place, images.layer()
    folders = build.built(build.NODES, print)
    ssh = debian.unpacked(images.SSH, print)
    images.write(place.run("registry"), variables, folders["pause"] / "bin" / "pause", ssh)
    runtime.write_shared(place, _network(cluster), debian.unpacked(PACKAGES, print), images.mounts(variables, ssh))
    _hub(cluster, folders["coredns"] / "bin" / "coredns")
    with suppress(Refused):
        cluster.api.call("POST", "/apis/storage.k8s.io/v1/storageclasses", provisioner.CLASS)
    argv: Command = [sys.executable, "-m", "tools.cluster.provisioner", place.kubeconfig, place.folder / "volumes"]
    cluster.run("provisioner", argv, {"PYTHONPATH": str(images.CLONE)})
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda index: start(cluster, index), range(1, count + 1)))


def start(cluster: Cluster, index: int) -> None:
    """A node, new or again; ready for pods when this returns.

    Raises: Broken, OSError.
    """
    name, net, place = f"node{index}", _network(cluster), cluster.place
    box.remove_cgroups(_cgroup(place.folder, name))
    shutil.rmtree(place.run(name), ignore_errors=True)  # what an earlier life of it knew of its pods
    pid = _box(cluster, name)
    network.attach(net, index, _pid(cluster, HUB), pid)
    runtime.write(place, net, index)
    _service(cluster, index, "containerd")
    socket = Path(f"/proc/{pid}/root/run/containerd/containerd.sock")
    deadline = time.monotonic() + READY
    while not socket.is_socket():  # a kubelet that finds none ends
        if _ended(cluster, f"{name}.containerd") or time.monotonic() > deadline:
            raise _broken(cluster, f"containerd of {name} does not start", f"{name}.containerd")
        time.sleep(0.05)
    for program in ("kubelet", "proxy"):
        _service(cluster, index, program)
    deadline = time.monotonic() + READY
    while not _ready(cluster, name):
        for program in ("containerd", "kubelet"):
            if _ended(cluster, f"{name}.{program}"):
                raise _broken(cluster, f"{name} has no {program} any more", f"{name}.{program}")
        if time.monotonic() > deadline:
            raise _broken(cluster, f"{name} is not ready after {READY:.0f} s", f"{name}.kubelet")
        time.sleep(0.1)


def restart(cluster: Cluster, index: int, program: str) -> None:
    """A program of a node that was killed: kubelet, containerd or proxy."""
    _service(cluster, index, program)


def pod_logs(cluster: Cluster, index: int) -> Path:
    """Where a node keeps what its pods print."""
    return Path(f"/proc/{_pid(cluster, f'node{index}')}/root/var/log/pods")


def remove(folder: Path) -> None:
    """Ends the boxes of a cluster, whoever has started them; leaves no process, mount, link and cgroup."""
    boxes = [p for p in processes.found(folder) if p.name == HUB or p.name.partition(".")[0].startswith("node")]
    processes.send(boxes, signal.SIGKILL, 10)
    network.disconnect(_link(folder))
    for cgroup in box.cgroups(f"{stem(folder)}-"):
        box.remove_cgroups(cgroup)


def _network(cluster: Cluster) -> Network:
    return Network(min(cluster.place.ports.values()))


def _hub(cluster: Cluster, coredns: Path) -> None:
    place, net = cluster.place, _network(cluster)
    pid = _box(cluster, HUB)
    network.connect(net, _link(place.folder), pid)
    names: Command = [coredns, "-conf", place.conf / "Corefile"]
    registry: Command = [
        sys.executable,
        "-I",
        images.__file__,
        net.hub,
        str(runtime.REGISTRY_PORT),
        place.run("registry"),
    ]
    for name, argv in (("coredns", names), ("registry", registry)):
        cluster.run(f"{HUB}.{name}", box.inside(pid, _cgroup(place.folder, HUB), argv))


def _box(cluster: Cluster, name: str) -> int:
    """Starts a box; its first process."""
    place = cluster.place
    place.run(name).mkdir(parents=True, exist_ok=True)
    needed = [place.folder, build.CACHE.parent, images.CLONE, Path(sys.base_prefix)]
    path = debian.environment(debian.unpacked(PACKAGES, print))["PATH"]
    cluster.run(name, box.command(_cgroup(place.folder, name), name, place.run(name), needed), {"PATH": path})
    deadline = time.monotonic() + READY
    while not (pid := _find(cluster, name)):
        if _ended(cluster, name) or time.monotonic() > deadline:
            raise _broken(cluster, f"the box {name} does not start", name)
        time.sleep(0.02)
    return pid


def _ended(cluster: Cluster, name: str) -> bool:
    """A process that becomes another program shows no environment, and with it no name, for a moment."""
    for _ in range(5):
        if cluster.alive(name):
            return False
        time.sleep(0.05)
    return True


def _find(cluster: Cluster, name: str) -> int | None:
    return box.first([p.pid for p in processes.found(cluster.folder) if p.name == name])


def _pid(cluster: Cluster, name: str) -> int:
    pid = _find(cluster, name)
    if pid is None:
        raise _broken(cluster, f"the box {name} does not run", name)
    return pid


def _service(cluster: Cluster, index: int, program: str) -> None:
    node, place = f"node{index}", cluster.place
    debs = debian.unpacked(PACKAGES, print)
    argv: dict[str, Command] = {
        "containerd": [debs / "usr/bin/containerd", "--config", place.conf / f"{node}.containerd.toml"],
        "kubelet": [
            build.folder("kubelet") / "bin/kubelet", f"--config={place.conf / f'{node}.kubelet.json'}",
            f"--kubeconfig={runtime.kubeconfig(place)}", f"--hostname-override={node}",
            f"--node-ip={_network(cluster).node(index)}",
        ],
        "proxy": [build.folder("kubelet") / "bin/kube-proxy", f"--config={place.conf / f'{node}.proxy.json'}"],
    }  # fmt: skip
    env = {**debian.environment(debs), "HOME": "/var/lib"}
    inside = box.inside(_pid(cluster, node), _cgroup(place.folder, node), argv[program])
    cluster.run(f"{node}.{program}", inside, env)


def _ready(cluster: Cluster, name: str) -> bool:
    try:
        node: dict[str, Any] = cluster.api.call("GET", f"/api/v1/nodes/{name}")
    except (OSError, Refused):
        return False
    conditions = node["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and (not node["spec"].get("taints") or not cluster.alive("kcm"))


def _broken(cluster: Cluster, why: str, log: str) -> Exception:
    from .cluster import Broken

    return Broken(f"{why}{cluster.tail(log)}")


def stem(folder: Path) -> str:
    """What the names of a cluster's cgroups and of its link begin with."""
    return f"trainer-{hashlib.sha256(str(folder).encode()).hexdigest()[:6]}"


def _link(folder: Path) -> str:
    """At most 15 characters."""
    return stem(folder)


def _cgroup(folder: Path, name: str) -> str:
    return f"{stem(folder)}-{name}"
