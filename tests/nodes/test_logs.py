"""Logs of real containers: nothing twice and nothing lost when connections break and containers start again."""

from __future__ import annotations

import threading
from pathlib import Path

from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection
from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail

from tests.cluster.proxy import Proxy
from tests.cluster.test_logs import Cuts
from tests.engine.conftest import eventually
from tools.cluster import Cluster

from .conftest import PATIENCE, Lab

TALKS = """
import sys, time
for i in range(3000):
    print(i, "x" * (i % 97), file=sys.stderr if i % 3 else sys.stdout, flush=True)
    if i % 50 == 0:
        time.sleep(0.1)
sys.stdout.write("no newline at the end")
"""
FAILS = """
import os, sys
mine = os.urandom(4).hex()
for i in range(500):
    print(mine, i, flush=True)
sys.exit(1)
"""


def test_streams_that_break(cluster: Cluster, lab: Lab, tmp_path: Path) -> None:
    lab.run("talks", TALKS, pods=2)
    eventually(lambda: any(p.status.phase == "Running" for p in lab.pods()), PATIENCE)
    found: dict[str, list[str]] = {}
    with Proxy(cluster.kubeconfig) as proxy:
        cuts = Cuts(40)
        proxy.rule = cuts
        client = open_client({"kubeconfig": str(proxy.kubeconfig(tmp_path / "proxied", like=lab.kubeconfig))})
        for line in tail(client, lab.namespace, "talks", LogSelection(), follow=True):
            found.setdefault(line.pod, []).append(line.text)
    lab.ended("talks")
    assert cuts.left < 30, "streams did break"
    assert len(found) == 2
    for lines in found.values():
        assert sorted(int(line.split()[0]) for line in lines[:-1]) == list(range(3000))
        assert lines[-1] == "no newline at the end"


def test_a_container_that_starts_again(lab: Lab) -> None:
    """All of each of its runs but the last, whose pod its Job may delete at once."""
    lab.run("fails", FAILS, pod={"restartPolicy": "OnFailure"}, backoff=2)
    found: list[str] = []
    follower = threading.Thread(
        target=lambda: found.extend(
            line.text for line in tail(lab.target.client, lab.namespace, "fails", LogSelection(), follow=True)
        ),
        daemon=True,
    )
    follower.start()
    lab.ended("fails", "Failed")
    follower.join(PATIENCE)
    assert not follower.is_alive()
    runs: dict[str, list[int]] = {}
    for line in found:
        run, number = line.split()
        runs.setdefault(run, []).append(int(number))
    assert len(runs) >= 2
    *complete, last = runs.values()
    assert all(numbers == list(range(500)) for numbers in complete)
    assert last == list(range(len(last)))
