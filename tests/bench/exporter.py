"""Memory and processor time of `pulumi-trainer exporter`, scraped every 15 s, with many jobs that wait in many queues.

Called by tests/bench/cluster.py; alone: `python -m tests.bench.exporter KUBECONFIG [JOBS [QUEUES]]`.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, NAMESPACE, Kind
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR
from pulumi_trainer.provider.kueue.labels import QUEUE

from tests.cluster.jobs import jobset, pod_template, slip, submission, until

SPACE = "bench-exporter"
AT_ONCE = 8
SCRAPES, EVERY = 8, 15.0


def measure(kubeconfig: Path, jobs: int, queues: int) -> dict[str, float]:
    """megabytes (resident), share of a core in percent, milliseconds and bytes of a scrape."""
    client = open_client({"kubeconfig": str(kubeconfig)})

    def create(kind: Kind, name: str, spec: dict[str, Any], namespace: str = "") -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        client.apply(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})

    client.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    create(RESOURCE_FLAVOR, SPACE, {})
    for i in range(queues):
        quota = {
            "name": SPACE,
            "resources": [{"name": "cpu", "nominalQuota": 0}, {"name": "nvidia.com/gpu", "nominalQuota": 0}],
        }
        groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [quota]}]
        create(CLUSTER_QUEUE, f"{SPACE}-{i}", {"namespaceSelector": {}, "resourceGroups": groups})
        create(LOCAL_QUEUE, f"queue-{i}", {"clusterQueue": f"{SPACE}-{i}"}, SPACE)

    def submit(i: int) -> None:
        if client.get(CONFIG_MAP, SPACE, f"job-{i}") is not None:
            return  # of an earlier call
        job = jobset(f"job-{i}", pods=2)
        job["metadata"]["labels"] = {QUEUE: f"queue-{i % queues}"}
        limits = {"nvidia.com/gpu": "8", "cpu": "1"}
        pod_template(job)["spec"]["containers"][0]["resources"] = {"limits": limits}
        slip(client, submission(SPACE, job, code=False))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(submit, range(jobs)))
    argv = ["pulumi-trainer", "exporter", "--port", "0", "-A", "--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen(argv, cwd="/", stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = "http://" + process.stdout.readline().rpartition("http://")[2].strip()

        def scrape() -> str:
            return str(urllib.request.urlopen(url, timeout=60).read().decode())

        until(lambda: scrape().count("pulumi_trainer_job_queued_seconds{") >= jobs, 300)
        time.sleep(EVERY)
        seen = psutil.Process(process.pid)
        before, begun, took = seen.cpu_times(), time.monotonic(), []
        for _ in range(SCRAPES):
            asked = time.monotonic()
            size = len(scrape())
            took.append(time.monotonic() - asked)
            time.sleep(max(0.0, EVERY - took[-1]))
        after, seconds = seen.cpu_times(), time.monotonic() - begun
        busy = after.user + after.system - before.user - before.system
        return {
            "megabytes": seen.memory_info().rss / 2**20, "percent": 100 * busy / seconds,
            "milliseconds": 1000 * sorted(took)[len(took) // 2], "bytes": size,
        }  # fmt: skip
    finally:
        process.terminate()
        process.wait(30)


def table(kubeconfig: Path) -> None:
    """Print the table of docs/benchmarks.md."""
    found = measure(kubeconfig, 1000, 50)
    print("\n| `exporter -A`, 1,000 jobs in 50 queues | | goal |\n| --- | --- | --- |")
    print(f"| memory, MB | {found['megabytes']:.0f} | 100 |")
    print(f"| share of a core, scraped every 15 s, % | {found['percent']:.1f} | 1 |")
    print(f"| a scrape, ms | {found['milliseconds']:.0f} | |")
    print(f"| size of a scrape, KB | {found['bytes'] / 1024:.0f} | |", flush=True)


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[2:]] or [1000, 50]
    print(measure(Path(sys.argv[1]), *given))
