"""What it costs to watch many running jobs: memory, processor time, requests, and how soon a change of phase is seen.

Called by tests/bench/cluster.py; alone: `python -m tests.bench.observe KUBECONFIG [JOBS]`. A process of its own watches, as a
program that waits does; the one that asks creates the jobs, suspends some of them, and compares the clocks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, NAMESPACE
from pulumi_trainer.provider.targets.kubernetes.jobs import apply, record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.cluster.jobs import jobset, submission, until

AT_ONCE = 8
STEADY = 30.0
"""Seconds in which nothing happens."""
CHANGES, PER_SECOND = 200, 10
SPACE = "bench-observe"
WATCHER = """
import json, sys, time
import pulumi
import pulumi_trainer
from pulumi_trainer.program.watch import INTERVAL
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer

kubeconfig, namespace, names = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
client = open_client({"kubeconfig": kubeconfig})
observer = Observer(client, namespace, stack="stack").start()
for name in names:
    observer.first(name)
print(json.dumps({"ready": client.requests}), flush=True)
while True:
    for name in observer.changed():
        status = observer.status(name)
        print(json.dumps([name, status and status.phase, time.time(), client.requests]), flush=True)
    time.sleep(INTERVAL)
"""


def measure(kubeconfig: Path, jobs: int, folder: Path) -> dict[str, Any]:
    """megabytes (resident, of the whole process), cores (steady and while jobs change), requests, p50 and p99 in seconds."""
    client = open_client({"kubeconfig": str(kubeconfig)})
    if client.get(NAMESPACE, "", SPACE) is None:
        client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    names = [f"job-{i}" for i in range(jobs)]

    def create(name: str) -> None:
        made = submission(SPACE, jobset(name, simulate={"outcome": "forever"}), code=False)
        apply.send(client, made, Record.of(client.create(CONFIG_MAP, record.document(made))))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(create, names))

    def running() -> bool:
        found, _ = client.list(JOBSET, SPACE, keep=_ready)
        return len(found) == jobs

    until(running, 600)
    (folder / "names.json").write_text(json.dumps(names))
    argv = [sys.executable, "-c", WATCHER, str(kubeconfig), SPACE, str(folder / "names.json")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout
        begun = time.monotonic()
        ready = json.loads(watcher.stdout.readline())["ready"]
        started = time.monotonic() - begun
        told: dict[str, float] = {}
        requests = 0

        def read() -> None:
            nonlocal requests
            assert watcher.stdout
            for line in watcher.stdout:
                name, phase, at, requests = json.loads(line)
                if phase == "Suspended":
                    told.setdefault(name, at)

        with ThreadPoolExecutor(1) as reader:
            reader.submit(read)
            process = psutil.Process(watcher.pid)
            steady = _cores(process, lambda: time.sleep(STEADY))
            asked: dict[str, float] = {}

            def change() -> None:
                for name in names[:CHANGES]:
                    client.patch(JOBSET, SPACE, name, {"spec": {"suspend": True}})
                    asked[name] = time.time()
                    time.sleep(1 / PER_SECOND)
                until(lambda: len(told) >= len(asked), 60)

            busy = _cores(process, change)
            memory = process.memory_info().rss / 1e6
            watcher.kill()
    late = sorted(max(0.0, told[name] - at) for name, at in asked.items())
    return {
        "jobs": jobs, "megabytes": round(memory, 1), "seconds until all are known": round(started, 1),
        "cores, steady": round(steady, 3), "cores, while jobs change": round(busy, 3), "requests at first": ready,
        "requests then": requests - ready, "p50": round(late[len(late) // 2], 3), "p99": round(late[int(len(late) * 0.99)], 3),
    }  # fmt: skip


def _cores(process: psutil.Process, work: Any) -> float:
    """Processor time that a process takes a second while something is done."""
    before, begun = sum(process.cpu_times()[:2]), time.monotonic()
    work()
    return float((sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun))


def _ready(document: dict[str, Any]) -> dict[str, Any] | None:
    steps = (document.get("status") or {}).get("replicatedJobsStatus") or []
    return {} if any(step.get("ready") for step in steps) else None


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int((sys.argv[2:] or ["1000"])[0]), Path("/tmp")), indent=1))
