"""Two teams and their queues on the real Kueue: admitted, waiting, borrowing, reclaimed, preempted, placed in a rack.

What a job, `why` and `pulumi-trainer queues` say of it is held against what Kueue does; what a preview says against what Kueue
says later. Nodes and GPUs are of this test alone.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.job import Plan
from pulumi_trainer.provider.api.labels import ANCESTOR, REQUIRED, TOGETHER
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, why
from pulumi_trainer.provider.targets.kubernetes import kinds
from pulumi_trainer.provider.targets.kubernetes.access import open_client
from pulumi_trainer.provider.targets.kubernetes.client import Client
from pulumi_trainer.provider.targets.kubernetes.kinds import Kind
from pulumi_trainer.provider.targets.kubernetes.seen import snapshot
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tools.cluster import simulation

from .jobs import until
from .programs import plan, sent

Document = dict[str, Any]
MODES = {"jobset": kinds.JOBSET, "trainer": kinds.TRAIN_JOB}
FOREVER = {"sim/outcome": "forever", "sim/start": "50ms"}


@dataclass
class Teams:
    """A namespace, its queues, and nodes of its own. gpu: the resource of these nodes. made: cluster-wide, taken away again."""

    root: Client
    client: Client
    namespace: str
    patch: pytest.MonkeyPatch
    kubeconfig: Path
    mode: str = "jobset"
    made: list[tuple[Kind, str]] = field(default_factory=list)

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
        self.make(kinds.RESOURCE_FLAVOR, self.name("h100"), spec=spec)

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
        self.make(kinds.CLUSTER_QUEUE, self.name(team), spec={**behind, **spec})
        self.make(kinds.LOCAL_QUEUE, team, spec={"clusterQueue": self.name(team)})

    def ready(self, *teams: str) -> None:
        def takes(team: str) -> bool:
            found = self.root.get(kinds.LOCAL_QUEUE, self.namespace, team) or {}
            given = found.get("status", {}).get("conditions", [])
            return any((c["type"], c["status"]) == ("Active", "True") for c in given)

        until(lambda: all(map(takes, teams)))

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

    def racks(self) -> None:
        levels = [{"nodeLabel": self.rack}, {"nodeLabel": "kubernetes.io/hostname"}]
        self.make(kinds.TOPOLOGY, self.name("dc"), spec={"levels": levels})

    @property
    def pool(self) -> Document:
        return {f"{self.namespace}.example.com/pool": "gpu"}

    def plan(self, name: str, nodes: int = 1, gpus: int = 8, *, document: Document | None = None, **given: Any) -> Plan:
        """Of a TrainJob whose nodes have 8 GPUs each."""
        resources = {self.gpu: gpus} if gpus else None
        work = trainer.Trainer(num_nodes=nodes, resources_per_node=resources, command=["torchrun", "train"])
        given = {"trainer": work, "name": name, "annotations": {"pulumi-trainer.dev/ignore": "PT112, PT113"}, **given}
        return plan(self.patch, document or runtime(self), self.namespace, self.mode, **given)

    def submit(self, name: str, nodes: int = 1, **given: Any) -> None:
        made = self.plan(name, nodes, **given)
        if self.mode == "trainer":
            self.target.apply_runtime(given.get("document") or runtime(self), "owner", "stack")
        self.target.create(sent(made))

    def looks(self, name: str) -> tuple[str, str]:
        status = diagnose(snapshot(self.client, self.namespace, name), 0)
        return status.phase, status.reason

    def becomes(self, name: str, phase: str, reason: str = "") -> None:
        until(lambda: (self.looks(name)[0] == phase and reason in self.looks(name)[1]) or None)

    def why(self, name: str) -> str:
        seen = snapshot(self.client, self.namespace, name)
        return why(seen, diagnose(seen, 0), 0)

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

    def cli(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", *arguments]
        file = kubeconfig or self.kubeconfig
        return subprocess.run([*argv, "--kubeconfig", str(file)], capture_output=True, text=True, check=False)

    def queues(self, *arguments: str, kubeconfig: Path | None = None) -> Document:
        done = self.cli("queues", "-n", self.namespace, "--json", *arguments, kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stderr
        found: Document = json.loads(done.stdout)
        return found


def runtime(teams: Teams, **simulate: str) -> Document:
    document = runtimes.load("torch-distributed")
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {**FOREVER, **simulate}}
    return {**document, "kind": "TrainingRuntime", "metadata": {**document["metadata"], "namespace": teams.namespace}}


@pytest.fixture
def teams(cluster: Any, user_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Teams]:
    root = open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})
    client = open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})
    made = Teams(root, client, namespace, monkeypatch, Path(cluster.kubeconfig))
    yield made
    for kind in MODES.values():
        for document in root.list(kind, namespace)[0]:
            root.delete(kind, namespace, document["metadata"]["name"], propagation="Background")
    for kind, name in reversed(made.made):
        root.delete(kind, "", name, propagation="Background")


@pytest.mark.parametrize("mode", MODES)
def test_two_teams_share_what_the_other_leaves(teams: Teams, mode: str) -> None:
    """Admitted, borrowing, waiting, reclaimed, preempted, admitted again."""
    teams.mode = mode
    teams.nodes(4)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.queue("blue", 8)
    teams.make(kinds.QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
    teams.ready("red", "blue")

    teams.submit("own", queue="red")
    teams.becomes("own", "Running")
    teams.submit("borrows", queue="red")
    teams.becomes("borrows", "Running")
    teams.submit("waits", queue="red")
    teams.says(
        "waits", rf"is Queued .*it waits in the LocalQueue red: 8 more of {re.escape(teams.gpu)} must become free"
    )

    teams.submit("reclaims", queue="blue")
    teams.becomes("reclaims", "Running")
    teams.becomes("borrows", "Queued", "Preempted")
    teams.says(
        "borrows",
        "has stopped it to make room for the job with UID .* due to reclamation within the cohort; it is queued again",
    )
    teams.submit("urgent", queue="red", priority=teams.name("high"))
    teams.becomes("urgent", "Running")
    teams.becomes("own", "Queued", "Preempted")
    teams.says("own", "due to prioritization in the ClusterQueue; it is queued again")

    teams.root.delete(MODES[mode], teams.namespace, "reclaims", propagation="Background")
    until(lambda: sum(teams.looks(name)[0] == "Running" for name in ("own", "borrows", "waits")) == 1)


# --- topology ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_job_in_one_rack(teams: Teams, mode: str) -> None:
    teams.mode = mode
    teams.nodes(4)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 64)
    teams.ready("red")
    teams.submit("half", queue="red", topology=trainer.Unconstrained())
    teams.becomes("half", "Running")

    teams.submit("one", 2, queue="red", topology=trainer.Required(teams.rack))
    teams.becomes("one", "Running")
    assert len(teams.placed("one")) == 1 and teams.placed("one") != teams.placed("half"), (
        "the other rack has room for one"
    )
    teams.submit("two", 2, queue="red", topology=trainer.Required(teams.rack))
    teams.says("two", "there is quota, but in one domain of topology .* only 1 of its 2 pods have room")

    teams.root.delete(MODES[mode], teams.namespace, "half", propagation="Background")
    teams.becomes("two", "Running")
    assert len(teams.placed("two")) == 1


def test_as_near_as_possible_and_in_slices(teams: Teams) -> None:
    teams.nodes(6)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 48)
    teams.ready("red")
    teams.submit("near", 3, queue="red", topology=trainer.Preferred(teams.rack))
    teams.becomes("near", "Running")
    assert len(teams.placed("near")) == 2
    teams.root.delete(kinds.JOBSET, teams.namespace, "near", propagation="Background")
    sliced = trainer.Unconstrained(slice_level=teams.rack, slice_size=2)
    teams.submit("slices", 4, queue="red", topology=sliced)
    teams.becomes("slices", "Running")
    assert len(teams.placed("slices")) == 2, "each two nodes have a rack of their own"


def test_what_is_held_in_a_rack(teams: Teams) -> None:
    """Initializers run where there is room; MPI's launcher runs in the rack of its nodes."""
    teams.nodes(4)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 32, cpus=96)
    teams.ready("red")
    document = runtimes.load("deepspeed-distributed")
    jobs = document["spec"]["template"]["spec"]["replicatedJobs"]
    jobs.insert(0, copy.deepcopy(jobs[0]) | {"name": "fetch"})
    jobs[0]["template"]["metadata"] = {"labels": {ANCESTOR: "dataset-initializer"}}
    for job in jobs:
        pod = job["template"]["spec"]["template"]
        pod["metadata"] = {"annotations": FOREVER}
        pod["spec"]["containers"][0].setdefault("resources", {"requests": {"cpu": "1"}})
    made = teams.plan("mpi", 2, document=document, queue="red", topology=trainer.Required(teams.rack))
    notes = {
        job["name"]: job["template"]["spec"]["template"]["metadata"]["annotations"].keys() - FOREVER
        for job in made.made["JobSet/mpi"]["spec"]["replicatedJobs"]
    }
    assert notes == {"fetch": set(), "launcher": {REQUIRED, TOGETHER}, "node": {REQUIRED, TOGETHER}}
    teams.target.create(sent(made))
    launcher, nodes = (until(lambda step=step: teams.settled("mpi", step)) for step in ("launcher", "node"))
    assert launcher == nodes and len(nodes) == 1
