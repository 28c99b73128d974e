"""Measures what docs/benchmarks.md reports of the Kubernetes target, beside the other ways, in one run. `make bench-cluster`.

The cluster is one of its own, or that of KUBECONFIG and PULUMI_TRAINER_TEST_CONTEXT. Arguments: many (300 suspended jobs), flat
(100, 300, 1,000), large (no-op previews of 1,000 jobs, `status` of 500), running (1,000 running jobs), queues (10 teams), usage
(10,000 records), exporter (1,000 jobs in 50 queues);
all without any.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.submission import from_state
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client

from tests.cluster.proxy import Proxy
from tools.cluster import Cluster, build
from tools.cluster.cluster import say
from tools.cluster.existing import Existing

from . import __main__ as bench
from . import exporter, queues, running, starting, usage
from .__main__ import ONCE

NAMESPACE = "bench"

THEIRS = """
import json
import pulumi
import pulumi_kubernetes as kubernetes

for document in json.loads(open("objects.json").read()):
    name, metadata = document["metadata"]["name"], document["metadata"]
    if document["kind"] == "ConfigMap":
        kubernetes.core.v1.ConfigMap(name, metadata=metadata, data=document["data"])
    else:
        kubernetes.apiextensions.CustomResource(
            name, api_version=document["apiVersion"], kind=document["kind"], metadata=metadata, spec=document["spec"]
        )
"""

Seconds = dict[str, float]


def ours(
    folder: Path,
    kubeconfig: Path,
    count: int,
    more: Mapping[str, str] | None = None,
    commands: Mapping[str, list[str]] | None = None,
    rest: float = 0.0,
) -> tuple[Seconds, list[dict[str, Any]], list[dict[str, Any]]]:
    """Seconds of up, no-op preview, commands and destroy; the rendered JobSets, and the ConfigMaps with their code. more:
    environment. rest: seconds after `up`."""
    folder.mkdir(parents=True)
    config = {"trainer:target": "kubernetes", "trainer:namespace": NAMESPACE, "trainer:kubeconfig": str(kubeconfig)}
    (folder / "Pulumi.bench.yaml").write_text(json.dumps({"config": config}))
    seconds, _, resources = bench.lifecycle(folder, bench.OURS.format(count=count), more, commands, rest)
    inputs = {k: v for k, v in resources[0]["inputs"].items() if k != "__provider"}
    (folder / "inputs.json").write_text(json.dumps(inputs))
    objects = [o for r in resources for o in from_state(r["inputs"]["objects"]).values()]
    placed = [{**o, "metadata": {**o["metadata"], "namespace": NAMESPACE}} for o in objects]
    return seconds, [o for o in placed if o["kind"] == "JobSet"], [o for o in placed if o["kind"] == "ConfigMap"]


def theirs(
    folder: Path, kubeconfig: Path, plugin: Path, objects: list[dict[str, Any]], more: Mapping[str, str] | None = None
) -> Seconds:
    """The same JobSets as CustomResources of pulumi-kubernetes, and ConfigMaps where there are some."""
    folder.mkdir(parents=True)
    (folder / "objects.json").write_text(json.dumps(objects))
    (folder / "__main__.py").write_text(THEIRS)
    env = {**bench.environment(folder), "KUBECONFIG": str(kubeconfig), **(more or {})}
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
    """Suspended jobs: ours, pulumi-kubernetes with the JobSets alone and with their code, kubectl; and what no dynamic provider
    can do without: a resource a job that does nothing, without a component and without a cluster."""
    own, jobsets, code = ours(folder / "ours", kubeconfig, count)
    pulumi = theirs(folder / "theirs", kubeconfig, plugin, jobsets)
    whole = theirs(folder / "whole", kubeconfig, plugin, [*code, *jobsets])
    plain = by_kubectl(folder / "kubectl", kubeconfig, kubectl, jobsets)
    alone = _empty(folder / "ours", folder / "alone", count, {}, bench.ALONE)
    head = ["ours, s", "pulumi-kubernetes, s", "kubectl, s", "ours / theirs", "goal", "ours / kubectl", "goal"]
    head += ["theirs with code, s", "ours / theirs", "an empty resource a job, s"]
    print(f"\n| {count} suspended jobs | {' | '.join(head)} |")
    print(f"|{' --- |' * (len(head) + 1)}")
    goals = {"up": ("0.5", "2.5"), "no-op preview": ("0.5", ""), "destroy": ("0.2", "")}
    for what, (first, second) in goals.items():
        mine = own[what]
        cells = [
            f"{mine:.1f}",
            f"{pulumi[what]:.1f}",
            f"{plain[what]:.1f}" if what in plain else "",
            f"{mine / pulumi[what]:.2f}",
            first,
            f"{mine / plain[what]:.2f}" if second else "",
            second,
            f"{whole[what]:.1f}",
            f"{mine / whole[what]:.2f}",
            f"{alone[what]:.1f}",
        ]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def once(count: int, folder: Path, kubeconfig: Path, plugin: Path) -> None:
    """The same where the engine writes its state at the end alone."""
    own, jobsets, _ = ours(folder / "ours-once", kubeconfig, count, ONCE)
    pulumi = theirs(folder / "theirs-once", kubeconfig, plugin, jobsets, ONCE)
    print(
        f"\n| {count} suspended jobs, {' '.join(f'{k}={v}' for k, v in ONCE.items())} | ours, s | pulumi-kubernetes, s | ratio |"
    )
    print("| --- | --- | --- | --- |")
    for what, mine in own.items():
        print(f"| {what} | {mine:.1f} | {pulumi[what]:.1f} | {mine / pulumi[what]:.2f} |", flush=True)


def requests(count: int, folder: Path, kubeconfig: Path, plugin: Path) -> None:
    """API requests a job, as a proxy counts them: what a job more costs, without what a run costs once."""
    with Proxy(kubeconfig) as proxy:
        folder.mkdir()
        through = proxy.kubeconfig(folder / "kubeconfig")
        counts: dict[str, list[float]] = {}
        for number in (1, count):
            target = folder / f"ours-{number}"
            with _counted(proxy) as own:
                _, jobsets, _ = ours(target, through, number)
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


def flat(counts: list[int], folder: Path, kubeconfig: Path, more: Mapping[str, str]) -> None:
    """What a job costs, the more there are; beside as many dynamic resources that do nothing."""
    given = f", {_words(more)}" if more else ""
    print(f"\n| jobs{given} | up, s | with empty resources, s | difference a job, ms |\n| --- | --- | --- | --- |")
    for count in counts:
        there = folder / f"flat-{count}-{len(more)}"
        own, _, _ = ours(there / "ours", kubeconfig, count, more)
        empty = _empty(there / "ours", there / "empty", count, more, bench.BASELINE)
        difference = (own["up"] - empty["up"]) / count * 1000
        print(f"| {count} | {own['up']:.1f} | {empty['up']:.1f} | {difference:.0f} |", flush=True)


def large(folder: Path, kubeconfig: Path) -> None:
    """No-op previews of 1,000 suspended jobs beside as many empty resources; `status` of 500 in the project and by namespace."""
    local = folder / "large-local"
    local.mkdir()
    seconds, _, _ = bench.lifecycle(local, bench.OURS.format(count=1000), ONCE)
    rows = [("no-op preview of 1,000 jobs, Local", seconds["no-op preview"], 12)]
    seconds, _, _ = ours(folder / "large", kubeconfig, 1000, ONCE, rest=60)
    rows.append(("no-op preview of 1,000 jobs, cluster", seconds["no-op preview"], 12))
    seconds = _empty(folder / "large", folder / "large-empty", 1000, ONCE, bench.BASELINE)
    empty = seconds["no-op preview"]
    status = [str(Path(sys.executable).with_name("pulumi-trainer")), "status"]
    commands = {"project": status, "namespace": [*status, "-n", NAMESPACE, "--kubeconfig", str(kubeconfig)]}
    seconds, _, _ = ours(folder / "large-status", kubeconfig, 500, ONCE, commands, rest=30)
    rows += [(f"`status` of 500 jobs, by {name}", seconds[name], 2) for name in commands]
    print("\n| many jobs | s | goal, s | empty resources, s | ratio |\n| --- | --- | --- | --- | --- |")
    for what, mine, goal in rows:
        beside = f"{empty:.1f} | {mine / empty:.2f}" if "preview" in what else " | "
        print(f"| {what} | {mine:.1f} | {goal} | {beside} |", flush=True)


def _empty(sample: Path, folder: Path, count: int, more: Mapping[str, str], program: str) -> Seconds:
    folder.mkdir(parents=True)
    (folder / "nothing.py").write_text(bench.NOTHING)
    (folder / "inputs.json").write_text((sample / "inputs.json").read_text())
    seconds, _, _ = bench.lifecycle(folder, program.format(count=count), more)
    return seconds


def _words(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items())


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
    chosen = sys.argv[1:] or ["many", "starting", "running", "flat", "large", "queues", "usage", "exporter"]
    programs = build.built(["pulumi-resource-kubernetes", *([] if shutil.which("kubectl") else ["kubectl"])], say)
    plugin = programs["pulumi-resource-kubernetes"] / "bin"
    kubectl = shutil.which("kubectl") or str(programs["kubectl"] / "bin" / "kubectl")
    with tempfile.TemporaryDirectory() as temporary, cluster(Path(temporary)) as kubeconfig:
        folder = Path(temporary)
        if "many" in chosen:
            many(300, folder, kubeconfig, plugin, kubectl)
            once(300, folder, kubeconfig, plugin)
            requests(30, folder / "requests", kubeconfig, plugin)
        if "starting" in chosen:
            starting.measure(200, folder / "starting", kubeconfig, kubectl)
        if "running" in chosen:
            running.measure(1000, folder, kubeconfig)
        if "queues" in chosen:
            queues.live(folder / "queues", kubeconfig, plugin)
        if "usage" in chosen:
            usage.table(kubeconfig)
        if "exporter" in chosen:
            exporter.table(kubeconfig)
        if "large" in chosen:
            large(folder, kubeconfig)
        if "flat" in chosen:
            flat([100, 300], folder, kubeconfig, {})
            flat([100, 300, 1000], folder, kubeconfig, ONCE)


if __name__ == "__main__":
    main()
