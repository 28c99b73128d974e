"""Kueue's objects: 1,000 checked offline, and ten teams made in a cluster and deleted."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kueue.object_checks import conflicts, refusals

TEAMS = """
import pulumi_trainer as trainer

trainer.GpuQueues(
    "bench", teams={f"team-{i}": trainer.Team(gpus=8, namespace="bench") for i in range(10)},
    priorities=["bench-low", "bench-normal", "bench-high"],
)
"""


def objects(count: int) -> Iterator[dict[str, Any]]:
    """A tenth flavors, the rest ClusterQueues with two resource groups and their LocalQueues."""
    each = count * 9 // 20
    for i in range(count - 2 * each):
        yield _object("ResourceFlavor", f"flavor-{i}", {"nodeLabels": {"gpu": f"kind-{i}"}})
    for i in range(each):
        quotas = [
            {"name": name, "nominalQuota": i, "borrowingLimit": 8} for name in ("nvidia.com/gpu", "cpu", "memory")
        ]
        flavors = [{"name": f"flavor-{j}", "resources": quotas} for j in range(4)]
        groups = [
            {"coveredResources": [quota["name"] for quota in quotas], "flavors": flavors},
            {
                "coveredResources": ["nic"],
                "flavors": [{"name": "nic", "resources": [{"name": "nic", "nominalQuota": 1}]}],
            },
        ]
        spec = {
            "resourceGroups": groups,
            "cohortName": "all",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any"},
        }
        yield _object("ClusterQueue", f"queue-{i}", spec)
        yield _object("LocalQueue", f"queue-{i}", {"clusterQueue": f"queue-{i}"}, namespace=f"team-{i}")


def _object(kind: str, name: str, spec: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **more}, "spec": spec}


def offline() -> None:
    """Prints the row."""
    documents, seconds = [*objects(1000)], []
    for _ in range(5):
        begun = time.perf_counter()
        assert not any(refusals(document) for document in documents) and not [*conflicts(documents)]
        seconds.append(time.perf_counter() - begun)
    print(
        f"| 1,000 of Kueue's objects in Python: all rules of schemas and webhooks | {statistics.median(seconds):.2f} s | | 1 s |",
        flush=True,
    )


def live(folder: Path, kubeconfig: Path, plugin: Path) -> None:
    """Prints the table."""
    from . import __main__ as bench

    folder.mkdir(parents=True)
    env = {**bench.environment(folder), "KUBECONFIG": str(kubeconfig)}
    env["PATH"] = os.pathsep.join([str(plugin), env["PATH"]])
    (folder / "Pulumi.bench.yaml").write_text(
        f"config: {{trainer:kubeconfig: {kubeconfig}, trainer:namespace: bench}}\n"
    )
    (folder / "__main__.py").write_text(TEAMS)
    bench.timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
    print("\n| `GpuQueues` of 10 teams | s | goal |\n| --- | --- | --- |")
    preview = ["pulumi", "preview", "--expect-no-changes", "--non-interactive"]
    for what, argv, goal in (
        ("up", ["pulumi", "up", *bench.FLAGS], "10"),
        ("no-op preview", preview, ""),
        ("destroy", ["pulumi", "destroy", *bench.FLAGS], "20"),
    ):
        print(f"| {what} | {bench.timed(argv, folder, env):.1f} | {goal} |", flush=True)
