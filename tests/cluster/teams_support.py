"""A namespace with queues of two teams, and nodes and GPUs of a test alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from kubernetes.client import ApiClient
from pulumi_trainer import runtimes
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, TOPOLOGY
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tools.cluster import simulation

from .jobs import until
from .programs import plan, sent

Document = dict[str, Any]
MODES = {"jobset": JOBSET, "trainer": TRAIN_JOB}
FOREVER = {"sim/outcome": "forever", "sim/start": "50ms"}


@dataclass
class Teams:
    """A namespace, its queues, and nodes of its own. gpu: the resource of these nodes. made: cluster-wide, taken away again."""

    root: Client
    client: Client
    namespace: str
    patch: pytest.MonkeyPatch
    kubeconfig: Path
    admin: ApiClient
    own: Path
    mode: str = "jobset"
    made: list[tuple[Kind, str]] = field(default_factory=list)

    seen: Path | None = None

    def seeing(self, kubeconfig: Path | None = None) -> Teams:
        """Whose plans see the cluster as it is now; with all rights, if nothing else is said."""
        file = kubeconfig or self.kubeconfig
        self.seen = Path(shutil.copy(file, file.with_name(f"seeing-{time.monotonic_ns()}")))
        return self

    @property
    def gpu(self) -> str:
        return f"{self.namespace}.example.com/gpu"

    @property
    def rack(self) -> str:
        return f"{self.namespace}.example.com/rack"

    @property
    def target(self) -> KubernetesTarget:
        return KubernetesTarget(self.client, cluster=lambda: "", namespace=self.namespace, mode=self.mode)

    def make(self, kind: Kind, name: str, **content: Any) -> None:
        metadata = {"name": name, **({"namespace": self.namespace} if kind.namespaced else {})}
        self.root.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content})
        if not kind.namespaced:
            self.made.append((kind, name))

    def name(self, name: str) -> str:
        """Of something that is cluster-wide."""
        return f"{self.namespace}-{name}"

    def flavor(self, **spec: Any) -> None:
        self.make(RESOURCE_FLAVOR, self.name("h100"), spec=spec)

    def queue(self, team: str, gpus: int, cpus: int = 0, **spec: Any) -> None:
        """A team's queue, in the cohort of the namespace's name unless spec says otherwise."""
        quota = {self.gpu: gpus, **({"cpu": cpus} if cpus else {})}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
        groups = [{"coveredResources": [*quota], "flavors": [{"name": self.name("h100"), "resources": resources}]}]
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        behind = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": preemption,
            "cohortName": self.namespace,
        }
        self.make(CLUSTER_QUEUE, self.name(team), spec={**behind, **spec})
        self.make(LOCAL_QUEUE, team, spec={"clusterQueue": self.name(team)})

    def ready(self, *teams: str) -> None:
        until(lambda: all(self.active(team) == "True" for team in teams))

    def nodes(self, count: int) -> None:
        """Of 8 GPUs each, two a rack."""
        for index in range(count):
            document = simulation.node(index, 0, {})
            name = self.name(f"gpu-{index}")
            document["metadata"] |= {"name": name, "labels": {
                "kubernetes.io/hostname": name, f"{self.namespace}.example.com/pool": "gpu", self.rack: f"r{index // 2}",
            }}  # fmt: skip
            for part in ("capacity", "allocatable"):
                document["status"][part] = {**document["status"][part], self.gpu: "8"}
            self.root.create(kinds.NODE, document)
            self.made.append((kinds.NODE, name))

    def in_racks(self, count: int) -> None:
        """So many nodes, and their flavor, with a topology of racks."""
        self.nodes(count)
        levels = [{"nodeLabel": self.rack}, {"nodeLabel": "kubernetes.io/hostname"}]
        self.make(TOPOLOGY, self.name("dc"), spec={"levels": levels})
        self.flavor(nodeLabels=self.pool, topologyName=self.name("dc"))

    @property
    def pool(self) -> Document:
        return {f"{self.namespace}.example.com/pool": "gpu"}

    def active(self, team: str) -> str | None:
        """Whether a team's queue takes jobs, once Kueue has said so."""
        found = self.root.get(LOCAL_QUEUE, self.namespace, team) or {}
        given = found.get("status", {}).get("conditions", [])
        return next((c["status"] for c in given if c["type"] == "Active"), None)

    def plan(self, name: str, nodes: int = 1, gpus: int = 8, *, document: Document | None = None, **given: Any) -> Plan:
        """Of a TrainJob whose nodes have 8 GPUs each."""
        resources = given.pop("resources", {self.gpu: gpus})
        work = trainer.Trainer(num_nodes=nodes, resources_per_node=resources, command=["torchrun", "train"])
        given = {"trainer": work, "name": name, "annotations": {"pulumi-trainer.dev/ignore": "PT112, PT113"}, **given}
        if self.seen is not None:
            where = trainer.Kubernetes(mode=self.mode, namespace=self.namespace, kubeconfig=str(self.seen))  # type: ignore[arg-type]
            given["target"] = where
        return plan(self.patch, document or runtime(self), self.namespace, self.mode, **given)

    def submit(self, name: str, nodes: int = 1, **given: Any) -> None:
        made = self.plan(name, nodes, **given)
        if self.mode == "trainer":
            self.target.runtimes.apply(given.get("document") or runtime(self), "owner", "stack")
        self.target.jobs.create(sent(made))

    def looks(self, name: str) -> tuple[str, str]:
        status = diagnose(snapshot(self.client, self.namespace, name), 0)
        return status.phase, status.reason

    def becomes(self, name: str, phase: str, reason: str = "") -> None:
        until(lambda: (self.looks(name)[0] == phase and reason in self.looks(name)[1]) or None)

    def why(self, name: str) -> str:
        seen = snapshot(self.client, self.namespace, name)
        return explain(seen, diagnose(seen, 0), 0)

    def says(self, name: str, pattern: str) -> None:
        """The paragraph of `why`, once it is there."""
        last = ""

        def look() -> bool:
            nonlocal last
            last = self.why(name)
            return re.search(pattern, last) is not None

        try:
            until(look)
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not in: {last}") from None

    def words(self, name: str) -> str:
        """What Kueue has written into the Workload of a job."""
        workload = snapshot(self.root, self.namespace, name).workload or {}
        given = (workload.get("status") or {}).get("conditions") or []
        return next((c["message"] for c in given if c["type"] == "QuotaReserved"), "")

    def placed(self, name: str, step: str = "node") -> list[str]:
        """Racks of the running pods of a step, each once."""
        labels = f"jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/replicatedjob-name={step}"
        pods = self.root.list(kinds.POD, self.namespace, labels=labels)[0]
        found = set()
        for pod in pods:
            node = self.root.get(kinds.NODE, "", pod["spec"].get("nodeName", "nowhere"))
            found.add(node["metadata"]["labels"][self.rack] if node else "nowhere")
        return sorted(found)

    def settled(self, name: str, step: str) -> list[str]:
        """The same, once all have a node."""
        found = self.placed(name, step)
        return [] if "nowhere" in found else found

    def counted(self, team: str) -> tuple[int, int]:
        """Workloads that hold and that wait, as the queues say it, once they agree."""
        found = [
            self.root.get(CLUSTER_QUEUE, "", self.name(team)) or {},
            self.root.get(LOCAL_QUEUE, self.namespace, team) or {},
        ]
        both = {(d["status"].get("reservingWorkloads", 0), d["status"].get("pendingWorkloads", 0)) for d in found}
        return both.pop() if len(both) == 1 else (-1, -1)

    def cli(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", *arguments]
        file = kubeconfig or self.kubeconfig
        return subprocess.run([*argv, "--kubeconfig", str(file)], capture_output=True, text=True, check=False)

    def queues(self, *arguments: str, kubeconfig: Path | None = None) -> Document:
        done = self.cli("queues", "-n", self.namespace, "-o", "json", *arguments, kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stderr
        found: Document = json.loads(done.stdout)
        return found


def runtime(teams: Teams, **simulate: str) -> Document:
    document = runtimes.load("torch-distributed")
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {**FOREVER, **simulate}}
    return {**document, "kind": "TrainingRuntime", "metadata": {**document["metadata"], "namespace": teams.namespace}}


@pytest.fixture(name="teams")
def made_teams(
    cluster: Any, admin: ApiClient, user_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Teams]:
    root = open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})
    client = open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})
    everything = Path(shutil.copy(cluster.kubeconfig, user_kubeconfig.with_name("all-rights")))
    made = Teams(root, client, namespace, monkeypatch, everything, admin, user_kubeconfig)
    yield made
    for kind in MODES.values():
        for document in root.list(kind, namespace)[0]:
            root.delete(kind, namespace, document["metadata"]["name"], propagation="Background")
    for kind, name in reversed(made.made):
        root.delete(kind, "", name, propagation="Background")
