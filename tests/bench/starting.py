"""`up` of many jobs that waits until they run, beside what of it is the engine's, ours without waiting, and the cluster's own.

The cluster's own: from `kubectl apply` of the same JobSets until their Pods run.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.submission import from_state
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.bench import __main__ as bench
from tests.cluster.proxy import Proxy

SPACE = "bench-starting"
SOME = 20
PROGRAM = """
import pulumi_trainer as trainer

runtime = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")
for i in range({count}):
    trainer.TrainJob(
        f"job-{{i}}", runtime=runtime, {how},
        trainer=trainer.Trainer(image="trainer:1", command=["train", str(i)], num_nodes=1, resources_per_node={{"cpu": 1}}),
    )
"""


def measure(count: int, folder: Path, kubeconfig: Path, kubectl: str) -> None:
    """Prints the table."""
    admin = open_client({"kubeconfig": str(kubeconfig)})
    admin.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    own, resources = _up(folder / "ours", kubeconfig, PROGRAM.format(count=count, how='wait_for="running"'))
    suspended, _ = _up(folder / "suspended", kubeconfig, PROGRAM.format(count=count, how="suspend=True"))
    with Proxy(kubeconfig) as proxy:
        through = proxy.kubeconfig(folder / "through")
        few = [_counted(proxy, folder, through, each) for each in (1, SOME)]
    jobsets = [o for r in resources for o in from_state(r["objects"]).values() if o["kind"] == "JobSet"]
    (folder / "empty").mkdir()
    (folder / "empty" / "nothing.py").write_text(bench.NOTHING)
    (folder / "empty" / "inputs.json").write_text(
        json.dumps({k: v for k, v in resources[0].items() if k != "__provider"})
    )
    empty, _ = _up(folder / "empty", kubeconfig, bench.ALONE.format(count=count))
    rows = {
        'ours, `wait_for="running"`': own,
        "ours, suspended": suspended,
        "an empty resource a job: the engine": empty,
        "`kubectl apply`, until all Pods run: the cluster": _by_kubectl(folder, admin, kubeconfig, kubectl, jobsets),
    }
    print(f"\n| `up` of {count} jobs | s | ours / this |\n| --- | --- | --- |")
    for what, seconds in rows.items():
        print(f"| {what} | {seconds:.1f} | {own / seconds:.2f} |", flush=True)
    print(f"| API requests of a job more | {(few[1] - few[0]) / (SOME - 1):.1f} | |")
    admin.delete(NAMESPACE, "", SPACE, propagation="Background")


def _counted(proxy: Proxy, folder: Path, kubeconfig: Path, count: int) -> int:
    """API requests of `up` and destroy."""
    proxy.reset()
    _up(folder / f"counted-{count}", kubeconfig, PROGRAM.format(count=count, how='wait_for="running"'))
    return proxy.count()


def _by_kubectl(folder: Path, admin: Client, kubeconfig: Path, kubectl: str, jobsets: list[dict[str, Any]]) -> float:
    placed = [{**o, "metadata": {**o["metadata"], "namespace": SPACE}} for o in jobsets]
    (folder / "jobsets.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": placed}))
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    begun = time.monotonic()
    subprocess.run(
        [kubectl, "apply", "--server-side", "-f", folder / "jobsets.json"], env=env, check=True, capture_output=True
    )
    while sum(p["status"].get("phase") in ("Running", "Succeeded") for p in admin.list(POD, SPACE)[0]) < len(jobsets):
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    for each in placed:
        admin.delete(JOBSET, SPACE, each["metadata"]["name"], propagation="Background")
    return seconds


def _up(folder: Path, kubeconfig: Path, program: str) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of `up`, and the inputs of the jobs' resources; they are destroyed again."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"trainer:target": "kubernetes", "trainer:namespace": SPACE, "trainer:kubeconfig": str(kubeconfig)}
    (folder / "Pulumi.bench.yaml").write_text(json.dumps({"config": config}))
    (folder / "__main__.py").write_text(program)
    env = bench.environment(folder)
    bench.timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
    seconds = bench.timed(["pulumi", "up", *bench.FLAGS], folder, env)
    resources = bench.exported(folder, env)["deployment"]["resources"]
    bench.timed(["pulumi", "destroy", *bench.FLAGS], folder, env)
    return seconds, [r["inputs"] for r in resources if "objects" in r.get("inputs", {})]
