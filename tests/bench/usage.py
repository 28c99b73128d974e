"""How long `pulumi-trainer usage` takes over many records.

Called by tests/bench/cluster.py; alone: `python -m tests.bench.usage KUBECONFIG [RECORDS]`.
"""

from __future__ import annotations

import copy
import json
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.usage import Demand
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, NAMESPACE
from pulumi_trainer.provider.targets.kubernetes.jobs import record

from tests.cluster.jobs import jobset, pod_template, submission

SPACE = "bench-usage"
AT_ONCE = 8
TIMES = 5


def measure(kubeconfig: Path, records: int) -> dict[str, float]:
    """seconds and processor time (medians of the whole command) and bytes of one record."""
    client = open_client({"kubeconfig": str(kubeconfig)})
    if client.get(NAMESPACE, "", SPACE) is None:
        client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    job = jobset("job")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    pod_template(job)["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    now = time.time()
    inputs = {"code": "8c1f0b6a2d3e", "arguments": '{"lr": 0.1}', "image": "pytorch/pytorch:2.6.0"}
    demand = Demand("jane", "team", 8, 0)
    earlier = [Run(str(i), "Succeeded", now - 9000, now - 8000, inputs, now - 8900, demand) for i in range(2)]
    sample = record.document(submission(SPACE, job, code=False, inputs=inputs, earlier=earlier))
    end = {"phase": "Succeeded", "reason": "", "message": "", "started": str(now - 7000), "finished": str(now - 3000)}

    def create(i: int) -> None:
        made = copy.deepcopy(sample)
        made["metadata"]["name"] = f"job-{i}"
        made["data"] |= {"sent": "0", **end}
        client.apply(CONFIG_MAP, made, force=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(create, range(records)))
    argv = ["pulumi-trainer", "usage", "--kubeconfig", str(kubeconfig), "-n", SPACE, "-o", "json"]
    seconds, busy = [], []
    for _ in range(TIMES):
        begun, before = time.monotonic(), _children()
        found = json.loads(subprocess.run(argv, cwd="/", capture_output=True, text=True, check=True).stdout)
        seconds.append(time.monotonic() - begun)
        busy.append(_children() - before)
        assert found["total"]["jobs"] == records, found["total"]
    return {
        "seconds": statistics.median(seconds),
        "processor": statistics.median(busy),
        "bytes": len(json.dumps(sample)),
    }


def _children() -> float:
    """Return the processor time of all commands that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(kubeconfig: Path) -> None:
    """Print the table of docs/benchmarks.md."""
    print(
        "\n| records | `usage`, s | goal, s | its processor time, s | bytes a record |\n| --- | --- | --- | --- | --- |"
    )
    for records in (1000, 10000):
        found = measure(kubeconfig, records)
        goal = "2" if records == 10000 else ""
        print(
            f"| {records:,} | {found['seconds']:.1f} | {goal} | {found['processor']:.1f} | {found['bytes']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    print(measure(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 10000))
