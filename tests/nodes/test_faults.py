"""Nodes that fail under running jobs, and what is left of a cluster that has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import ApiException

from tests.engine.conftest import eventually
from tools.cluster import Cluster, nodes, processes

from .conftest import CONTROL_PLANE, PATIENCE, Lab

TICKS = "import time\nfor i in range(10_000): print('tick', i, flush=True); time.sleep(0.2)"


def ticks(lab: Lab) -> int:
    """The last number that the pod has printed."""
    (pod,) = lab.pods()
    try:
        return int(lab.core.read_namespaced_pod_log(pod.metadata.name, lab.namespace, tail_lines=1).split()[-1])
    except (ApiException, IndexError):  # its kubelet starts, or it has printed nothing yet
        return -1


@pytest.mark.breaks_nodes
def test_pods_outlive_their_kubelet(lab: Lab, cluster: Cluster) -> None:
    lab.run("goes-on", TICKS, pod={"nodeName": "node1"})
    lab.until("goes-on", lambda s: s.phase == "Running")
    before = eventually(lambda: lab.pods()[0].status.container_statuses[0].container_id, PATIENCE)
    eventually(lambda: ticks(lab) > 2, PATIENCE)
    cluster.kill("node1.kubelet")
    assert not cluster.alive("node1.kubelet") and cluster.alive("node1.containerd")
    seen = ticks_of(lab, cluster)
    eventually(lambda: ticks_of(lab, cluster) > seen + 5, PATIENCE)
    nodes.restart(cluster, 1, "kubelet")
    eventually(lambda: ticks(lab) > seen + 5, PATIENCE)
    (pod,) = lab.pods()
    assert pod.status.container_statuses[0].container_id == before
    assert pod.status.container_statuses[0].restart_count == 0 and lab.status("goes-on").restarts == 0


def ticks_of(lab: Lab, cluster: Cluster) -> int:
    """As `ticks`, past the kubelet: from the file that the node keeps."""
    (pod,) = lab.pods()
    logs = nodes.pod_logs(cluster, 1) / f"{lab.namespace}_{pod.metadata.name}_{pod.metadata.uid}" / "node" / "0.log"
    return int(logs.read_text().split()[-1])


@pytest.mark.breaks_nodes
def test_a_job_whose_node_is_lost_starts_again_on_another(lab: Lab, cluster: Cluster) -> None:
    lab.run("moves", TICKS, failurePolicy={"maxRestarts": 2})
    lab.until("moves", lambda s: s.phase == "Running")
    lost = lab.pods()[0].spec.node_name
    cluster.kill(lost)
    eventually(lambda: not any(p.name.startswith(lost) for p in processes.found(cluster.folder)))
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "shutdown", "effect": "NoExecute"}
    lab.core.patch_node(lost, {"spec": {"taints": [taint]}})  # what a cloud's controller says of a machine that is gone
    status = lab.until("moves", lambda s: s.phase == "Running" and s.restarts == 1)
    assert {p.spec.node_name for p in lab.pods() if p.status.phase == "Running"} == {"node1", "node2"} - {lost}, status
    lab.core.patch_node(lost, {"spec": {"taints": []}})
    nodes.start(cluster, int(lost.removeprefix("node")))
    lab.run("back", "pass", pod={"nodeName": lost})
    lab.ended("back")


def leftovers(folder: Path) -> list[str]:
    """Processes, mounts, cgroups and links of a cluster."""
    stem = nodes.stem(folder)
    found = [f"{p.name} {p.pid}" for p in processes.found(folder)]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{stem}-*")]
    found += [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(stem)]
    return found + [str(path) for path in (folder,) if path.exists()]


@pytest.fixture
def below_var() -> Iterator[Path]:
    """A folder that a box hides, unless it is one that the cluster needs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_a_cluster_whose_owner_is_killed_is_ended_by_the_next_and_leaves_nothing(
    tmp_path: Path, below_var: Path
) -> None:
    program = f"""
    import sys, time
    from pathlib import Path
    from tools.cluster import Cluster
    made = Cluster.start(sys.argv[1], nodes=1, components={CONTROL_PLANE!r})
    pod = {{"spec": {{"containers": [{{"name": "main", "image": "localhost/machine:1", "command": ["sleep", "1000"]}}]}}}}
    pod["metadata"] = {{"name": "sleeps"}}
    while True:
        try:
            made.api.call("POST", "/api/v1/namespaces/default/pods", pod)
            break
        except Exception as error:
            if "service account" not in str(error):
                raise
            time.sleep(0.1)
    while made.api.call("GET", "/api/v1/namespaces/default/pods/sleeps")["status"]["phase"] != "Running":
        time.sleep(0.1)
    print("up", flush=True)
    time.sleep(1000)
    """
    folder, root = below_var / "lost", Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    owner = subprocess.Popen(argv, cwd=root, text=True, stdout=subprocess.PIPE)
    assert owner.stdout and owner.stdout.readline() == "up\n"
    assert len(leftovers(folder)) > 10
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert processes.found(folder), "nobody has ended it yet"
    Cluster.start(tmp_path / "next", components=()).stop()
    assert leftovers(folder) == []
