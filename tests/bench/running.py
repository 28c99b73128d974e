"""1,000 running jobs, watched by one program: its watches, memory and share of a core, and how soon it sees a change.

The program is a process of its own, in which somebody waits for all jobs; `python -m tests.bench.running` is that process. A
proxy counts its watches. A change is a merge patch of `suspend`: the job's phase follows from it alone, without a controller.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.cluster.jobs import jobset
from tests.cluster.proxy import Proxy

SPACE = "bench-running"
STACK = "bench"
CHANGES = 300
QUIET = 20.0
"""Seconds over which the share of a core is measured, with everything running."""


def measure(count: int, folder: Path, kubeconfig: Path) -> None:
    """Prints the table."""
    admin = open_client({"kubeconfig": str(kubeconfig)})
    admin.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    names = _made(admin, count)
    with Proxy(kubeconfig) as proxy:
        through = proxy.kubeconfig(folder / "kubeconfig")
        argv = [sys.executable, "-m", __name__, str(through), str(count)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            try:
                rows = _watched(admin, proxy, program, names)
            finally:
                program.kill()
    print(f"\n| {count:,} running jobs under one program | | goal |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    admin.delete(NAMESPACE, "", SPACE, propagation="Background")


def _made(admin: Client, count: int) -> list[str]:
    """That many jobs of one pod, running."""
    target = KubernetesTarget(admin, cluster=lambda: "", namespace=SPACE)
    names = [f"job-{number}" for number in range(count)]

    def make(name: str) -> None:
        document = jobset(name)
        document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["tolerations"] = [
            {"operator": "Exists"}
        ]
        target.jobs.create(
            Submission(SPACE, name, f"owner-{name}", "digest", {f"JobSet/{name}": document}, sweep=STACK)
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, names))
    while _running(admin) < count:
        time.sleep(1)
    return names


def _running(admin: Client) -> int:
    return sum(1 for p in admin.list(POD, SPACE, keep=_phase)[0] if p["phase"] == "Running")


def _phase(pod: dict[str, Any]) -> dict[str, Any]:
    return {"phase": (pod.get("status") or {}).get("phase")}


def _watched(
    admin: Client, proxy: Proxy, program: subprocess.Popen[str], names: list[str]
) -> list[tuple[str, str, str]]:
    seen: dict[tuple[str, str], float] = {}
    news = threading.Condition()

    def listen() -> None:
        assert program.stdout
        for line in program.stdout:
            name, phase, at = json.loads(line)
            with news:
                seen.setdefault((name, phase), at)
                news.notify_all()

    threading.Thread(target=listen, daemon=True).start()

    def until(number: int, phase: str) -> None:
        with news:
            done = news.wait_for(lambda: sum(p == phase for _, p in seen) >= number, 300)
        assert done, f"{sum(p == phase for _, p in seen)} of {number} are {phase}"

    begun = time.monotonic()
    until(len(names), "Running")
    listed = time.monotonic() - begun
    process = psutil.Process(program.pid)
    time.sleep(5)
    before, requests = process.cpu_times(), proxy.count()
    time.sleep(QUIET)
    after = process.cpu_times()
    share = (after.user + after.system - before.user - before.system) / QUIET * 100
    quiet = proxy.count() - requests
    sent = {}
    for name in names[:CHANGES]:
        admin.patch(JOBSET, SPACE, name, {"spec": {"suspend": True}})
        sent[name] = time.time()
    until(len(sent), "Suspended")
    late = sorted(max(0.0, seen[name, "Suspended"] - at) for name, at in sent.items())
    watches = [r.path.rsplit("/", 1)[1] for r in proxy.requests if r.watch]
    follows = sum(1 for r in proxy.requests if r.path.endswith("/log"))
    memory = process.memory_info().rss / 2**20
    return [
        ("watches a kind", f"{len(watches) / len(set(watches)):.0f} ({', '.join(sorted(set(watches)))})", "1"),
        ("requests for logs", str(follows), ""),
        ("until all are seen running, s", f"{listed:.1f}", ""),
        ("memory, MB", f"{memory:.0f}", "150"),
        (f"share of a core over {QUIET:.0f} s, %", f"{share:.1f}", "10"),
        (f"requests in these {QUIET:.0f} s", str(quiet), ""),
        ("a change is seen after, ms, median", f"{statistics.median(late) * 1000:.0f}", ""),
        ("a change is seen after, ms, p99", f"{late[int(len(late) * 0.99)] * 1000:.0f}", "1000"),
    ]


def main() -> None:
    """The program: somebody waits for all jobs; a line for each phase that it sees."""
    from pulumi_trainer.provider.targets.status_source import source

    kubeconfig, count = sys.argv[1], int(sys.argv[2])
    target = {"kind": "kubernetes", "kubeconfig": kubeconfig, "namespace": SPACE}
    jobs = source(target, SPACE, STACK, lambda _: None)
    names = {f"job-{number}" for number in range(count)}
    phases = {name: status.phase for name in names if (status := jobs.first(name))}
    for name, phase in phases.items():
        _tell(name, phase)
    while True:
        for name in (jobs.changed() or set()) & names:
            status = jobs.status(name)
            if status is not None and phases.get(name) != status.phase:
                phases[name] = status.phase
                _tell(name, status.phase)
        time.sleep(0.25)  # as the watch of the components does


def _tell(name: str, phase: str) -> None:
    print(json.dumps([name, phase, time.time()]), flush=True)


if __name__ == "__main__":
    main()
