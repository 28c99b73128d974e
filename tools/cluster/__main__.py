"""`python -m tools.cluster up [--nodes N] | down | status | env | build [--nodes] [--plugin] [--gangs] | built`.

Called by the Makefile. One cluster a clone, in build/cluster; it outlives the command.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from . import build, nodes, processes
from .cluster import Broken, Cluster, end, say

FOLDER = Path(__file__).resolve().parents[2] / "build" / "cluster"
SIMULATED = 8
"""Simulated nodes of a cluster without real ones: Pods that only seem to run are of no use beside those that do."""


def up(count: int) -> None:
    """Starts what is not there. A cluster that is whole stays, one that is not is replaced by a new one."""
    try:
        cluster = Cluster.open(FOLDER)
    except Broken:
        cluster = None
    if cluster and count <= cluster.real_nodes and all(map(cluster.alive, cluster.components)):
        say("it runs already")
    else:
        if cluster:
            say("what runs there is not whole: starting anew")
        down()
        cluster = Cluster.start(FOLDER, nodes=count, simulated=0 if count else SIMULATED, detached=True)
    env()


def down() -> None:
    """Leaves no process, and no file but those of the build's cache."""
    ran = FOLDER.exists()
    end(FOLDER)
    shutil.rmtree(FOLDER, ignore_errors=True)
    if ran:
        say("stopped")


def status() -> None:
    """A line a process: what, pid, memory."""
    for process in sorted(processes.found(FOLDER), key=lambda p: p.name):
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        memory = next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)
        print(f"{process.name:16} pid {process.pid:<8} {memory:5} MiB")
    cluster = Cluster.open(FOLDER)
    if dead := [name for name in cluster.components if not cluster.alive(name)]:
        raise Broken(f"not running: {', '.join(dead)}; see {cluster.logs}")


def env() -> None:
    """For `eval`: the administrator's kubeconfig."""
    print(f"KUBECONFIG={shlex.quote(str(Cluster.open(FOLDER).kubeconfig))}")


def built() -> None:
    """Exit code 1 if a program of the control plane is not built yet."""
    missing = [name for name in build.CONTROL_PLANE if not build.folder(name).exists()]
    if missing:
        sys.exit(f"cluster: not built yet: {', '.join(missing)}; `make test-cluster` builds them")


def main() -> None:
    """One command; what it needs and cannot have is said without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("--nodes", type=int, default=0, help="real nodes: Linux, as root")
    building = commands.add_parser("build")
    building.add_argument("--nodes", action="store_true", help="what real nodes need, too")
    building.add_argument("--plugin", action="store_true", help="the provider of pulumi-kubernetes, too")
    building.add_argument("--gangs", action="store_true", help="the gang schedulers Volcano and KAI, too")
    for name in ("down", "status", "env", "built"):
        commands.add_parser(name)
    asked = parser.parse_args()
    try:
        if asked.command == "up":
            up(asked.nodes)
        elif asked.command == "build":
            more = [*([build.PLUGIN] if asked.plugin else []), *(build.GANGS if asked.gangs else [])]
            build.built([*build.CONTROL_PLANE, *more], say)
            if asked.nodes:
                nodes.prepare(say)
        else:
            {"down": down, "status": status, "env": env, "built": built}[asked.command]()
    except (Broken, build.Unavailable) as error:
        sys.exit(f"cluster: {error}")
    except OSError as error:
        sys.exit(f"cluster: {error}. Hint: if the API server did not answer in time, the machine is busy: run it again")
    except KeyboardInterrupt:
        sys.exit("cluster: interrupted")


if __name__ == "__main__":
    main()
