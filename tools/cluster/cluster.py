"""A cluster on this machine: started, broken and stopped. Called by tests, by benchmarks and by `python -m tools.cluster`.

Everything of a cluster lies in one folder; its processes are marked with it (processes.py), so `down` finds them whoever
started them, and however that ended.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import build, control_plane, manifests, pki, ports, processes, simulation, tokens
from .api import Api, Refused
from .control_plane import ALL, LOCAL, PROGRAMS, Place

READY = 150.0
"""Seconds within which a component is ready; it takes one to six on an idle machine."""
LINES = 15
"""Lines of a log that an error shows."""


class Broken(Exception):
    """The cluster does not come up, or a part of it; the text says which, why, and what its log says last."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


class Cluster:
    """A control plane that runs, with simulated nodes; made by `start`."""

    def __init__(
        self, place: Place, components: Sequence[str], programs: Mapping[str, Path], owner: str, lock: int
    ) -> None:
        self.place = place
        self.components = tuple(components)
        self._programs = programs
        self._owner = owner
        self._lock = lock
        self._children: list[subprocess.Popen[bytes]] = []

    # --- what tests want to know -------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Everything of this cluster."""
        return self.place.folder

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator (group system:masters)."""
        return self.place.kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{LOCAL}:{self.place.ports['apiserver']}"

    @property
    def ca(self) -> Path:
        """Certificate of the authority that signed the server's."""
        return self.place.pki / "ca.crt"

    @property
    def logs(self) -> Path:
        """Folder with NAME.log of each component."""
        return self.place.logs

    @property
    def api(self) -> Api:
        """Requests as the administrator."""
        user = json.loads(self.kubeconfig.read_text())["users"][0]["user"]
        return Api(self.place.ports["apiserver"], self.ca, user["token"])

    @property
    def real_nodes(self) -> int:
        """How many it was started with."""
        return int(_known(self.folder)["nodes"])

    # --- start and end -----------------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls, folder: str | Path, nodes: int = 0, components: Iterable[str] = ALL, *,
        simulated: int = 8, detached: bool = False, say: Callable[[str], None] = say,
    ) -> Cluster:  # fmt: skip
        """A new cluster, ready for work.

        folder: empty, or not there yet.
        nodes: how many real nodes it has (nodes.py: Linux, root).
        components: which are started, ALL of them or more (control_plane.GANGS); etcd and apiserver always.
        simulated: how many nodes of 8 GPUs there are; none without kwok.
        detached: it outlives this process. Any other is ended by whoever starts a cluster after its owner is gone.

        Raises: Broken, build.Unavailable.
        """
        folder = Path(folder).resolve()
        wanted = [name for name in PROGRAMS if name in {*components, *control_plane.CORE}]
        end_orphans()
        if processes.found(folder) or (folder / "run").exists():
            raise Broken(f"{folder} holds a cluster already: stop it first, or take another folder")
        if nodes:
            from . import nodes as real  # needs more of the machine than simulated ones

            real.prepare(say)
        programs = _programs(wanted, say)
        numbers, lock = ports.allocate(control_plane.PORTS, build.CACHE / "ports")
        address = real.address(numbers) if nodes else LOCAL
        cluster = cls(Place(folder, numbers, address), wanted, programs, "" if detached else processes.me(), lock)
        try:
            cluster._up(simulated, nodes)
            if nodes:
                real.add(cluster, nodes)
        except BaseException:
            cluster._close()
            end(folder)
            raise
        return cluster

    @classmethod
    def open(cls, folder: str | Path, say: Callable[[str], None] = say) -> Cluster:
        """The one that runs in this folder, whoever has started it.

        Raises: Broken where there is none.
        """
        folder = Path(folder).resolve()
        running = processes.found(folder)
        if not running or not (folder / "cluster.json").exists():
            raise Broken(f"no cluster runs in {folder}")
        known = _known(folder)
        place = Place(folder, known["ports"], known["address"])
        programs = _programs(known["components"], say)
        lock = os.open(build.CACHE / "ports" / str(min(known["ports"].values())), os.O_RDWR)
        return cls(place, known["components"], programs, running[0].owner, lock)

    def stop(self, remove: bool = True) -> None:
        """Ends every process of this cluster, real nodes too, and removes its folder; to keep logs and data: remove=False."""
        end(self.folder)
        self._close()
        if remove:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- single components -------------------------------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        """Whether the component runs; one that is paused does."""
        return bool(self._found(name))

    def kill(self, name: str) -> None:
        """kill -9; it has ended when this returns, and what it had in memory is lost."""
        if left := processes.send(self._found(name), signal.SIGKILL, 10):
            raise Broken(f"{name} does not end: {left}")
        self._reap()

    def restart(self, name: str) -> None:
        """Kills it if it runs, starts it and waits until it is ready."""
        self.kill(name)
        if name == "kwok":  # it would wait 40 s for leases that nobody holds any more
            for lease in self._leases():
                with suppress(Refused):
                    self.api.call("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{lease}")
        self._start(name)
        self._wait(name)

    def pause(self, name: str) -> None:
        """It keeps its connections and answers nothing, until `resume`."""
        processes.send(self._found(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """The end of `pause`."""
        processes.send(self._found(name), signal.SIGCONT)

    def _found(self, name: str) -> list[processes.Found]:
        return [process for process in processes.found(self.folder) if process.name == name]

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    def _leases(self) -> list[str]:
        leases = self.api.call("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
        return [lease["metadata"]["name"] for lease in leases if lease["metadata"]["name"].startswith("gpu-")]

    # --- users -------------------------------------------------------------------------------------------------------------

    def token(self, user: str, groups: Sequence[str] = ()) -> str:
        """A new token of this user, who may do nothing before a role is bound."""
        return tokens.add(self.place.pki, user, groups)

    def revoke(self, token: str) -> None:
        """The token is refused (401) within some ten seconds, which is how long the API server remembers it."""
        tokens.remove(self.place.pki, token)

    def certificate(self, user: str, groups: Sequence[str] = (), life: timedelta = pki.YEARS) -> tuple[bytes, bytes]:
        """A client certificate of this user and its key, in PEM; `life` may lie in the past."""
        return pki.issue(self.place.pki, user, groups, life=life)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a token of this user."""
        file = self.folder / f"kubeconfig-{user.replace(':', '-').replace('/', '-')}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(control_plane.kubeconfig(self.place, {"token": self.token(user, groups)}, user)))
        return file

    # --- nodes and pods ----------------------------------------------------------------------------------------------------

    def nodes(self, count: int = 1, gpus: int = 8, labels: Mapping[str, str] | None = None) -> list[str]:
        """More simulated nodes, ready; their names, gpu-N. See simulation.py for their labels."""
        have = {node["metadata"]["name"] for node in self.api.call("GET", "/api/v1/nodes")["items"]}
        free = (index for index in range(len(have) + count) if f"gpu-{index}" not in have)
        added = [simulation.node(next(free), gpus, labels or {}) for _ in range(count)]
        self.api.apply(added)
        names = [node["metadata"]["name"] for node in added]
        self._until(lambda: not set(names) - self._ready_nodes(), "simulated nodes do not get ready", "kwok")
        return names

    def _ready_nodes(self) -> set[str]:
        """Ready, and without the taint that a new node has."""
        nodes = self.api.call("GET", "/api/v1/nodes")["items"]
        return {
            node["metadata"]["name"] for node in nodes
            if not node["spec"].get("taints") or not self.alive("kcm")
            if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        }  # fmt: skip

    def pod_logs(self, namespace: str, pod: str, lines: Sequence[str], *, previous: Sequence[str] = ()) -> None:
        """More lines for what `logs` of a simulated pod answers; whoever follows them stays until it ends its request."""
        self.api.apply([simulation.pod_logs(self.place.run("kwok"), namespace, pod, lines, previous)])

    # --- the way up --------------------------------------------------------------------------------------------------------

    def _up(self, simulated: int, nodes: int) -> None:
        place = self.place
        place.folder.mkdir(parents=True, exist_ok=True)
        known = {
            "ports": dict(place.ports),
            "address": place.address,
            "components": list(self.components),
            "nodes": nodes,
        }
        (place.folder / "cluster.json").write_text(json.dumps(known))
        pki.make(place.pki, dict.fromkeys((LOCAL, "10.0.0.1", place.address)))
        token = secrets.token_hex(16)
        tokens_file = place.pki / "tokens.csv"
        tokens_file.touch(mode=0o600)
        tokens_file.write_text(f"{token},admin,admin,system:masters\n")
        (place.pki / "tokens").mkdir(mode=0o700)
        control_plane.configure(place, token)
        if "kwok" in self.components:
            simulation.write_stages(self._built()["kwok"] / "module", place.conf / "stages.yaml")
        if "vc_scheduler" in self.components:
            shutil.copy(self._built()["volcano"] / "module" / control_plane.VOLCANO_CONF, place.conf)
        self._start("etcd")
        self._start("tokens")
        self._wait("etcd")
        self._start("apiserver")
        self._wait("apiserver")
        # Not kcm: what its garbage collector does not find at its start, it finds half a minute later.
        early = [name for name in self.components if name == "scheduler"]
        for name in early:
            self._start(name)
        self._install()
        for name in self.components:
            if name not in (*control_plane.CORE, *early):
                self._start(name)
        for name in self.components:
            self._wait(name)
        self._webhooks()
        if "kwok" in self.components and simulated:
            self.nodes(simulated)

    def _install(self) -> None:
        crds = [crd for name, folder in self._built().items() for crd in manifests.crds(name, folder)]
        self.api.create([*crds, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}])

        def established() -> bool:
            found = self.api.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", timeout=30)["items"]
            return sum(map(manifests.established, found)) == len(crds)

        self._until(established, "CRDs are not established", "apiserver")

    def _webhooks(self) -> None:
        ca, built = self.ca.read_bytes(), self._built()
        for name in manifests.WEBHOOKS:
            if name in built:
                self.api.apply(manifests.webhooks(name, built[name], self.place.ports[f"{name}_webhook"], ca))
        if "trainer" in built:
            runtimes = manifests.runtimes(built["trainer"])
            self._until(lambda: self.api.apply(runtimes), "Trainer refuses its own runtimes", "trainer")
        if "kai" in built:
            self.api.apply(manifests.priority_classes(built["kai"]))
        if "kwok" in built:
            self.api.apply([simulation.silence(self.place.run("kwok"))])

    def _built(self) -> dict[str, Path]:
        return {PROGRAMS[name][0]: self._programs[name].parent.parent for name in self.components}

    def _start(self, name: str) -> None:
        place = self.place
        if name == "tokens":
            argv: list[str | Path] = [sys.executable, "-I", tokens.__file__, str(place.ports["tokens"]), place.pki]
            env = {}
        else:
            argv = [self._programs[name], *control_plane.command(place, name)]
            env = control_plane.environment(place, name)
        self.run(name, argv, env)

    def run(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """One more process of this cluster: it ends with it, and `kill` knows its name."""
        log = self.place.logs / f"{name}.log"
        child = processes.start(self.folder, name, argv, log, env=env, owner=self._owner, keep=[self._lock])
        self._children.append(child)

    def _wait(self, name: str) -> None:
        url = control_plane.health(self.place, name)
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca)))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)

        def ready() -> bool:
            with opener.open(url, timeout=2) as answer:
                return bool(answer.status == 200)

        self._until(ready, f"{name} is not ready", name)

    def _until(self, condition: Callable[[], bool], what: str, name: str) -> None:
        """Waits for the condition, and tells at once where the component has ended."""
        deadline, why = time.monotonic() + READY, ""
        while True:
            try:
                if condition():
                    return
            except (OSError, Refused) as error:
                why = str(error)
            if not self.alive(name):
                raise Broken(f"{what}: {name} has ended{self.tail(name)}")
            if time.monotonic() > deadline:
                raise Broken(f"{what} after {READY:.0f} s: {why}{self.tail(name)}")
            time.sleep(0.05)

    def tail(self, name: str) -> str:
        """What the log of a component ends with, for errors."""
        log = self.place.logs / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []
        return "\n  ".join(["", f"its log, {log}, ends with:", *lines])


def end(folder: Path) -> None:
    """Ends what runs of the cluster in this folder: controllers first, then the API server, etcd last."""
    running = processes.found(folder)
    if _has_nodes(folder, running):
        from . import nodes as real

        real.remove(folder)
    core = [[p for p in running if p.name == name] for name in ("apiserver", "tokens", "etcd")]
    others = [p for p in running if not any(p in group for group in core)]
    processes.send(running, signal.SIGCONT)  # TERM means nothing to what is paused
    for group in (others, *core):
        processes.end(group, 5)
    processes.send(processes.found(folder), signal.SIGKILL, 10)


def _has_nodes(folder: Path, running: Sequence[processes.Found]) -> bool:
    try:
        return bool(_known(folder)["nodes"])
    except (OSError, ValueError):  # somebody has removed the folder, or `_up` has not come far
        return bool(running)


def end_orphans() -> None:
    """Ends clusters whose owner is gone: of test runs that were killed."""
    for folder in {p.folder for p in processes.found() if p.owner and not processes.alive(p.owner)}:
        say(f"ending the cluster in {folder}: who started it is gone")
        end(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _known(folder: Path) -> dict[str, Any]:
    """What `_up` has written down."""
    return dict(json.loads((folder / "cluster.json").read_text()))


def _programs(components: Sequence[str], say: Callable[[str], None]) -> dict[str, Path]:
    folders = build.built(control_plane.needed(components), say)
    return {name: folders[PROGRAMS[name][0]] / "bin" / PROGRAMS[name][1] for name in components}
