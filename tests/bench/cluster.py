"""Measures what docs/benchmarks.md reports of the Kubernetes target, beside the other ways, in one run. `make bench-cluster`.

The cluster is one of its own, or that of KUBECONFIG and PULUMI_TRAINER_TEST_CONTEXT. Arguments: many (300 suspended jobs), flat
(100, 300, 1,000), running (1,000 running jobs), queues (10 teams); all without any.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.targets.kubernetes import kinds
from pulumi_trainer.provider.targets.kubernetes.access import open_client

from tests.cluster.proxy import Proxy
from tools.cluster import Cluster, build
from tools.cluster.cluster import say
from tools.cluster.existing import Existing

from . import __main__ as bench
from . import queues, running

NAMESPACE = "bench"

THEIRS = """
import json
import pulumi
import pulumi_kubernetes as kubernetes

for jobset in json.loads(open("jobsets.json").read()):
    kubernetes.apiextensions.CustomResource(
        jobset["metadata"]["name"], api_version=jobset["apiVersion"], kind=jobset["kind"], metadata=jobset["metadata"],
        spec=jobset["spec"],
    )
"""

Seconds = dict[str, float]


def ours(folder: Path, kubeconfig: Path, count: int) -> tuple[Seconds, list[dict[str, Any]]]:
    """Seconds of up, no-op preview and destroy; the rendered JobSets."""
    folder.mkdir(parents=True)
    config = {"trainer:target": "kubernetes", "trainer:namespace": NAMESPACE, "trainer:kubeconfig": str(kubeconfig)}
    (folder / "Pulumi.bench.yaml").write_text(json.dumps({"config": config}))
    seconds, _, resources = bench.lifecycle(folder, bench.OURS.format(count=count))
    inputs = {k: v for k, v in resources[0]["inputs"].items() if k != "__provider"}
    (folder / "inputs.json").write_text(json.dumps(inputs))
    objects = [o for r in resources for key, o in r["inputs"]["objects"].items() if key.startswith("JobSet/")]
    return seconds, [{**o, "metadata": {**o["metadata"], "namespace": NAMESPACE}} for o in objects]


def theirs(folder: Path, kubeconfig: Path, plugin: Path, jobsets: list[dict[str, Any]]) -> Seconds:
    """The same JobSets as CustomResources of pulumi-kubernetes."""
    folder.mkdir(parents=True)
    (folder / "jobsets.json").write_text(json.dumps(jobsets))
    (folder / "__main__.py").write_text(THEIRS)
    env = {**bench.environment(folder), "KUBECONFIG": str(kubeconfig)}
    env["PATH"] = os.pathsep.join([str(plugin), env["PATH"]])
    bench.timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
    seconds = {"up": bench.timed(["pulumi", "up", *bench.FLAGS], folder, env)}
    preview = ["pulumi", "preview", "--expect-no-changes", "--non-interactive"]
    seconds["no-op preview"] = bench.timed(preview, folder, env)
    seconds["destroy"] = bench.timed(["pulumi", "destroy", *bench.FLAGS], folder, env)
    return seconds


def by_kubectl(folder: Path, kubeconfig: Path, kubectl: str, jobsets: list[dict[str, Any]]) -> Seconds:
    """The same JobSets by a server-side apply, and a foreground deletion of them."""
    folder.mkdir(parents=True)
    (folder / "jobsets.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobsets}))
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    apply = [kubectl, "apply", "--server-side", "-f", "jobsets.json"]
    delete = [kubectl, "delete", "--cascade=foreground", "-f", "jobsets.json"]
    return {"up": bench.timed(apply, folder, env), "destroy": bench.timed(delete, folder, env)}


def many(count: int, folder: Path, kubeconfig: Path, plugin: Path, kubectl: str) -> None:
    """Suspended jobs: ours, pulumi-kubernetes, kubectl."""
    own, jobsets = ours(folder / "ours", kubeconfig, count)
    pulumi = theirs(folder / "theirs", kubeconfig, plugin, jobsets)
    plain = by_kubectl(folder / "kubectl", kubeconfig, kubectl, jobsets)
    print(
        "\n| 300 suspended jobs | ours, s | pulumi-kubernetes, s | kubectl, s | ours / theirs | goal | ours / kubectl | goal |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    goals = {"up": ("0.5", "2.5"), "no-op preview": ("0.5", ""), "destroy": ("0.2", "")}
    for what, (first, second) in goals.items():
        beside = f"{plain[what]:.1f}" if what in plain else ""
        ratio = f"{own[what] / plain[what]:.2f}" if second else ""
        cells = [
            f"{own[what]:.1f}",
            f"{pulumi[what]:.1f}",
            beside,
            f"{own[what] / pulumi[what]:.2f}",
            first,
            ratio,
            second,
        ]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def requests(count: int, folder: Path, kubeconfig: Path, plugin: Path) -> None:
    """API requests a job, as a proxy counts them: what a job more costs, without what a run costs once."""
    with Proxy(kubeconfig) as proxy:
        folder.mkdir()
        through = proxy.kubeconfig(folder / "kubeconfig")
        counts: dict[str, list[float]] = {}
        for number in (1, count):
            target = folder / f"ours-{number}"
            with _counted(proxy) as own:
                _, jobsets = ours(target, through, number)
            counts.setdefault("ours", []).append(own())
            with _counted(proxy) as other:
                theirs(folder / f"theirs-{number}", through, plugin, jobsets)
            counts.setdefault("pulumi-kubernetes", []).append(other())
    print("\n| API requests of up, no-op preview and destroy | one job | a job more |\n| --- | --- | --- |")
    for who, (one, all_) in counts.items():
        print(f"| {who} | {one:.0f} | {(all_ - one) / (count - 1):.2f} |", flush=True)


@contextmanager
def _counted(proxy: Proxy) -> Iterator[Callable[[], float]]:
    proxy.reset()
    yield lambda: float(proxy.count())


def flat(counts: list[int], folder: Path, kubeconfig: Path) -> None:
    """What a job costs, the more there are; beside as many dynamic resources that do nothing."""
    print("\n| jobs | up, s | with empty resources, s | difference a job, ms |\n| --- | --- | --- | --- |")
    for count in counts:
        own, _ = ours(folder / f"flat-{count}", kubeconfig, count)
        empty = _empty(folder / f"flat-{count}", folder / f"empty-{count}", count)
        difference = (own["up"] - empty["up"]) / count * 1000
        print(f"| {count} | {own['up']:.1f} | {empty['up']:.1f} | {difference:.0f} |", flush=True)


def _empty(sample: Path, folder: Path, count: int) -> Seconds:
    folder.mkdir(parents=True)
    (folder / "nothing.py").write_text(bench.NOTHING)
    (folder / "inputs.json").write_text((sample / "inputs.json").read_text())
    seconds, _, _ = bench.lifecycle(folder, bench.BASELINE.format(count=count))
    return seconds


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """The kubeconfig of an administrator, with a namespace for the jobs."""
    context = os.environ.get("PULUMI_TRAINER_TEST_CONTEXT")
    if context:
        kubeconfig = Existing.of(Path(os.environ["KUBECONFIG"]), context, folder).kubeconfig
        started = None
    else:
        started = Cluster.start(folder / "cluster", simulated=16)
        kubeconfig = started.kubeconfig
    try:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        open_client({"kubeconfig": str(kubeconfig)}).apply(kinds.NAMESPACE, space)
        yield kubeconfig
    finally:
        if started:
            started.stop()


def main() -> None:
    """All tables, or those named."""
    chosen = sys.argv[1:] or ["many", "running", "flat", "queues"]
    programs = build.built(["pulumi-resource-kubernetes", *([] if shutil.which("kubectl") else ["kubectl"])], say)
    plugin = programs["pulumi-resource-kubernetes"] / "bin"
    kubectl = shutil.which("kubectl") or str(programs["kubectl"] / "bin" / "kubectl")
    with tempfile.TemporaryDirectory() as temporary, cluster(Path(temporary)) as kubeconfig:
        folder = Path(temporary)
        if "many" in chosen:
            many(300, folder, kubeconfig, plugin, kubectl)
            requests(30, folder / "requests", kubeconfig, plugin)
        if "running" in chosen:
            running.measure(1000, folder, kubeconfig)
        if "queues" in chosen:
            queues.live(folder / "queues", kubeconfig, plugin)
        if "flat" in chosen:
            flat([100, 300, 1000], folder, kubeconfig)


if __name__ == "__main__":
    main()
