"""Two teams and their queues on the real Kueue: admitted, waiting, borrowing, reclaimed, preempted, placed in a rack.

What a job, `why` and `pulumi-trainer queues` say of it is held against what Kueue does; what a preview says against what Kueue
says later. Nodes and GPUs are of this test alone.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from kubernetes.client import ApiClient
from pulumi_trainer import runtimes
from pulumi_trainer.job import Plan
from pulumi_trainer.provider.admission.queued import queued_problems
from pulumi_trainer.provider.api.labels import (
    ANCESTOR,
    MAX_EXECUTION,
    PREFERRED,
    PRIORITY,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, why
from pulumi_trainer.provider.targets.kubernetes import kinds, rbac
from pulumi_trainer.provider.targets.kubernetes.access import open_client
from pulumi_trainer.provider.targets.kubernetes.client import ApiError, Client
from pulumi_trainer.provider.targets.kubernetes.kinds import Kind
from pulumi_trainer.provider.targets.kubernetes.seen import snapshot
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tools.cluster import simulation

from . import least
from .jobs import jobset, pod_template, slip, until
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

    def racks(self) -> None:
        levels = [{"nodeLabel": self.rack}, {"nodeLabel": "kubernetes.io/hostname"}]
        self.make(kinds.TOPOLOGY, self.name("dc"), spec={"levels": levels})

    @property
    def pool(self) -> Document:
        return {f"{self.namespace}.example.com/pool": "gpu"}

    def active(self, team: str) -> str | None:
        """Whether a team's queue takes jobs, once Kueue has said so."""
        found = self.root.get(kinds.LOCAL_QUEUE, self.namespace, team) or {}
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

    def counted(self, team: str) -> tuple[int, int]:
        """Workloads that hold and that wait, as the queues say it, once they agree."""
        found = [
            self.root.get(kinds.CLUSTER_QUEUE, "", self.name(team)) or {},
            self.root.get(kinds.LOCAL_QUEUE, self.namespace, team) or {},
        ]
        both = {(d["status"].get("reservingWorkloads", 0), d["status"].get("pendingWorkloads", 0)) for d in found}
        return both.pop() if len(both) == 1 else (-1, -1)

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
def teams(
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


# --- what a preview says, and Kueue later ---------------------------------------------------------------------------------


def plain(teams: Teams, **queue: Any) -> None:
    teams.flavor()
    teams.queue("red", 8, **queue)


def of_two(teams: Teams) -> None:
    """The other queue keeps half of what it has."""
    teams.flavor()
    teams.queue("red", 8)
    groups = teams.root.get(kinds.CLUSTER_QUEUE, "", teams.name("red"))["spec"]["resourceGroups"]  # type: ignore[index]
    groups[0]["flavors"][0]["resources"][0] |= {"nominalQuota": 8, "lendingLimit": 4}
    teams.make(kinds.CLUSTER_QUEUE, teams.name("blue"), spec={"cohortName": teams.namespace, "resourceGroups": groups})


def in_topology(teams: Teams, **queue: Any) -> None:
    teams.nodes(2)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 16, **queue)


def tainted(teams: Teams) -> None:
    teams.flavor(nodeTaints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    teams.queue("red", 8)


def elsewhere(teams: Teams) -> None:
    teams.flavor(nodeLabels={"sim/arch": "h100"})
    teams.queue("red", 8)


def initialized(teams: Teams) -> Document:
    document = runtime(teams)
    jobs = document["spec"]["template"]["spec"]["replicatedJobs"]
    fetch = copy.deepcopy(jobs[0]) | {"name": "fetch"}
    fetch["template"]["metadata"] = {"labels": {ANCESTOR: "dataset-initializer"}}
    jobs.insert(0, fetch)
    return document


def selecting(teams: Teams) -> Document:
    document = runtime(teams)
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"sim/arch": "a100"}
    return document


NEVER: dict[str, tuple[Callable[[Teams], None], Callable[[Teams], Document], str]] = {
    "more than its queue has": (plain, lambda t: {"nodes": 3}, "PT203"),
    "more than it may borrow": (of_two, lambda t: {"nodes": 2}, "PT203"),
    "a resource without quota": (plain, lambda t: {"resources": {"example.com/npu": 1}}, "PT202"),
    "a taint": (tainted, lambda t: {}, "PT208"),
    "other nodes": (elsewhere, lambda t: {"document": selecting(t)}, "PT208"),
    "a topology that is not there": (plain, lambda t: {"topology": trainer.Required(t.rack)}, "PT208"),
    "a level that is not there": (in_topology, lambda t: {"topology": trainer.Preferred("no/level")}, "PT208"),
    "a step that asks for nothing": (in_topology, lambda t: {"document": initialized(t)}, "PT208"),
    "a namespace that it is closed to": (lambda t: plain(t, namespaceSelector=None), lambda t: {}, "PT209"),
    "a namespace that is not selected": (
        lambda t: plain(t, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}}), lambda t: {}, "PT209",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER)
def test_a_preview_says_never_as_kueue_does_later(teams: Teams, name: str) -> None:
    arrange, given, code = NEVER[name]
    arrange(teams)
    until(lambda: teams.active("red") is not None)
    made = teams.seeing().plan("job", queue="red", **given(teams))
    told = [str(w) for w in made.warnings if f"{code}: queue: " in str(w)]
    assert len(told) == 1, [str(w) for w in made.warnings]
    slip(teams.target.client, sent(made))
    words = until(lambda: teams.words("job"))
    if code == "PT209":
        assert words == "workload namespace doesn't match ClusterQueue selector"
    else:
        assert told[0].partition("; ")[0].endswith(words), (told[0], words)
    teams.says("job", "Kueue will never admit it as it is")


def test_what_fits_is_not_warned_of(teams: Teams) -> None:
    """The same queues, with jobs that Kueue admits."""
    in_topology(teams)
    teams.ready("red")
    made = teams.seeing().plan("job", 2, queue="red", topology=trainer.Required(teams.rack))
    assert [str(w) for w in made.warnings] == []
    teams.target.create(sent(made))
    teams.becomes("job", "Running")


def test_queues_that_lead_nowhere(teams: Teams) -> None:
    """PT201, PT204, PT205, PT210: what a preview says of queues, and what Kueue says of them."""
    teams.nodes(1)
    teams.flavor(nodeLabels={"sim/arch": "h100"})
    teams.queue("red", 8)
    groups = [{"coveredResources": [teams.gpu], "flavors": [
        {"name": teams.name("none"), "resources": [{"name": teams.gpu, "nominalQuota": 1}]}]}]  # fmt: skip
    behind = {"namespaceSelector": {}, "cohortName": teams.name("a"), "resourceGroups": groups}
    teams.make(kinds.CLUSTER_QUEUE, teams.name("blue"), spec=behind)
    for name, parent in (("a", "b"), ("b", "a")):
        teams.make(kinds.COHORT, teams.name(name), spec={"parentName": teams.name(parent)})
    teams.make(kinds.LOCAL_QUEUE, "blue", spec={"clusterQueue": teams.name("blue")})
    teams.make(kinds.LOCAL_QUEUE, "grey", spec={"clusterQueue": teams.name("rd")})
    until(lambda: teams.active("blue") == "False")

    told = {team: [str(w) for w in teams.seeing().plan(team, queue=team).warnings] for team in ("red", "blue", "grey")}
    h100, cohort = teams.name("h100"), teams.name("a")
    assert [w.partition(":")[0] for found in told.values() for w in found] == ["PT204", "PT205", "PT210", "PT201"]
    assert re.match(rf"PT204: ResourceFlavor {h100}: spec.nodeLabels: none of \d+ nodes has the labels", told["red"][0])
    assert f"Cohort {cohort}: spec.parentName: {cohort} -> {teams.name('b')} -> {cohort} is a circle" in told["blue"][0]
    assert f"there is no ResourceFlavor {teams.name('none')}: the queue is inactive" in told["blue"][1]
    assert (
        f"there is no ClusterQueue {teams.name('rd')}" in told["grey"][0] and f"{teams.name('red')}?" in told["grey"][0]
    )
    assert "FlavorNotFound" in json.dumps(teams.root.get(kinds.CLUSTER_QUEUE, "", teams.name("blue")))


def test_who_sees_less_is_told_less(teams: Teams) -> None:
    """With the least rights ClusterQueues are not seen, and nothing is made up; with those of `rbac --quotas` they are."""
    plain(teams)
    teams.ready("red")
    assert [str(w) for w in teams.seeing(teams.own).plan("job", 3, queue="red").warnings] == []
    binding = least.grant(teams.admin, teams.namespace, "trainer-user", rbac.needed(quotas=True))
    assert binding
    assert [str(w).partition(":")[0] for w in teams.seeing(teams.own).plan("job", 3, queue="red").warnings] == ["PT203"]


# --- changes, limits and what the server refuses ----------------------------------------------------------------------------


def label(key: str, value: str | None) -> Callable[[Document], Any]:
    def change(document: Document) -> None:
        labels = document["metadata"]["labels"]
        labels.pop(key, None)
        labels |= {key: value} if value else {}

    return change


def note(key: str, value: str) -> Callable[[Document], Any]:
    """Of the pods of all steps, in the JobSet or by a TrainJob's patch."""

    def change(document: Document) -> None:
        if document["kind"] == "TrainJob":
            jobs = document["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        else:
            jobs = document["spec"]["replicatedJobs"]
        for job in jobs:
            job["template"]["spec"]["template"]["metadata"]["annotations"] |= {key: value}

    return change


CHANGES: dict[str, Callable[[Document], Any]] = {
    "another queue": label(QUEUE, "blue"),
    "another priority": label(PRIORITY, "high"),
    "no priority": label(PRIORITY, None),
    "another limit": label(MAX_EXECUTION, "7200"),
    "no limit": label(MAX_EXECUTION, None),
    "another topology": note(REQUIRED, "kubernetes.io/hostname"),
    "another label": label("team", "red"),
}


@pytest.mark.parametrize("mode", MODES)
def test_what_may_change_in_a_queued_job(teams: Teams, mode: str) -> None:
    """`changes.compare` against the server, of a job that waits and of one that runs."""
    teams.mode = mode
    kind = MODES[mode]
    teams.nodes(2)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 8)
    teams.queue("blue", 0)
    for name in ("low", "high"):
        teams.make(kinds.QUEUE_PRIORITY, teams.name(name), value=10, description="of a test")
    teams.ready("red", "blue")
    given = {
        "queue": "red", "priority": teams.name("low"), "max_execution": 3600, "topology": trainer.Required(teams.rack),
    }  # fmt: skip
    for name in ("runs", "waits"):
        teams.submit(name, **given)
        teams.becomes(name, "Running" if name == "runs" else "Queued")
    for name in ("runs", "waits"):
        old = {key: d for key, d in sent(teams.plan(name, **given)).objects.items() if key.startswith(kind.kind)}
        for what, change in CHANGES.items():
            new = copy.deepcopy(old)
            (document,) = new.values()
            change(document)
            (effect,) = {c.effect for c in compare(old, new)}
            try:
                teams.client.apply(kind, document, dry_run=True, force=True)
                accepted = True
            except ApiError as error:
                assert "denied the request" in error.message or error.code == 422, str(error)
                accepted = False
            wanted = {"update": True, "replace": False, "waiting": name == "waits"}[effect]
            ignored = what == "another topology" and name == "waits"  # it is taken, and has no effect
            assert accepted == (wanted or ignored), (name, what, effect)


def test_kueue_reads_a_topology_once(teams: Teams) -> None:
    """Another queue reaches the Workload of a job that waits, another topology does not: such a change is a new run."""
    teams.nodes(2)
    teams.racks()
    teams.flavor(nodeLabels=teams.pool, topologyName=teams.name("dc"))
    teams.queue("red", 16)
    teams.queue("blue", 16)
    teams.ready("red", "blue")
    teams.submit("job", 2, queue="red", topology=trainer.Required("kubernetes.io/hostname"))
    teams.becomes("job", "Queued")
    made = sent(teams.plan("job", 2, queue="blue", topology=trainer.Required(teams.rack)), digest="second")
    teams.target.update(made)

    def workload() -> Document:
        (found,) = teams.root.list(kinds.WORKLOAD, teams.namespace)[0]
        return found

    until(lambda: workload()["spec"]["queueName"] == "blue")
    assert workload()["spec"]["podSets"][0]["topologyRequest"]["required"] == "kubernetes.io/hostname"


def test_a_job_that_runs_too_long(teams: Teams) -> None:
    teams.nodes(1)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.ready("red")
    teams.submit("job", queue="red", max_execution=1)
    teams.becomes("job", "Queued", "Deactivated")
    teams.says("job", r"its Workload has been deactivated: .*[Mm]aximum execution time")
    assert not [w for w in teams.queues()["jobs"] if w["holds"]]


WRONG: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "no seconds": ({MAX_EXECUTION: "1h"}, {}),
    "no time": ({MAX_EXECUTION: "0"}, {}),
    "two topologies": ({}, {REQUIRED: "a", PREFERRED: "b"}),
    "no label": ({}, {REQUIRED: "a b"}),
    "no boolean": ({}, {UNCONSTRAINED: "yes"}),
    "half a slice": ({}, {SLICE_LEVEL: "a"}),
    "the other half": ({}, {REQUIRED: "a", SLICE_SIZE: "1"}),
    "a slice of none": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "0"}),
    "a slice of words": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "two"}),
    "a slice larger than the job": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "3"}),
    "a group of one": ({}, {REQUIRED: "a", TOGETHER: "g"}),
    "a group without topology": ({}, {TOGETHER: "g"}),
    "a group in slices": ({}, {REQUIRED: "a", TOGETHER: "g", SLICE_LEVEL: "a", SLICE_SIZE: "1"}),
    "a group with a number": ({}, {REQUIRED: "a", TOGETHER: "7"}),
    "layers that are none": ({}, {SLICES: "x"}),
    "no layers": ({}, {SLICES: "[]"}),
    "layers that do not divide": ({}, {SLICES: '[{"topology": "a", "size": 2}, {"topology": "b", "size": 3}]'}),
    "a layer twice": ({}, {SLICES: '[{"topology": "a", "size": 2}, {"topology": "a", "size": 1}]'}),
    "a layer larger than the job": ({}, {SLICES: '[{"topology": "a", "size": 4}]'}),
    "all is right": ({MAX_EXECUTION: "60"}, {PREFERRED: "a", SLICE_LEVEL: "a", SLICE_SIZE: "2"}),
}


def test_kueue_refuses_what_we_refuse_and_says_the_same(teams: Teams) -> None:
    for name, (labels, notes) in WRONG.items():
        document = jobset("job", pods=2)
        document["metadata"] |= {"namespace": teams.namespace, "labels": {QUEUE: "red", **labels}}
        pod_template(document)["metadata"]["annotations"] = notes
        ours = queued_problems(document, document)
        said = ""
        try:
            teams.client.apply(kinds.JOBSET, document, dry_run=True)
        except ApiError as error:
            said = error.message
        assert bool(ours) == bool(said) == (name != "all is right"), (name, ours, said)
        for problem in ours:
            assert problem.why.partition("it is no JSON")[0] in said, (name, problem, said)
            assert problem.where.partition("[kueue")[0] in said or ".annotations" not in said, (name, problem, said)


# --- the command ------------------------------------------------------------------------------------------------------------


def test_the_command_tells_who_holds_borrows_and_waits(teams: Teams) -> None:
    teams.nodes(3)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.queue("blue", 8)
    teams.queue("grey", 0, stopPolicy="Hold")
    teams.make(kinds.QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
    teams.ready("red", "blue")
    for name in ("own", "borrows"):
        teams.submit(name, queue="red", priority=teams.name("high"))
        teams.becomes(name, "Running")
    teams.submit("waits", queue="red")
    teams.says("waits", "8 more of")
    until(lambda: teams.counted("red") == (2, 1))

    found = teams.queues()
    red = next(q for q in found["clusterQueues"] if q["name"] == teams.name("red"))
    h100 = teams.name("h100")
    share = {"flavor": h100, "resource": teams.gpu, "nominal": "8", "used": "16", "borrowed": "8", "most": "16"}
    assert red == {
        "name": teams.name("red"), "cohort": teams.namespace, "active": True, "message": "", "admitted": 2, "pending": 1,
        "resources": [share],
    }  # fmt: skip
    assert [(w["name"], w["holds"], w["asks"]) for w in found["jobs"]] == [
        (name, name != "waits", {teams.gpu: "8"}) for name in ("own", "borrows", "waits")
    ]
    assert found["jobs"][0]["priority"] == 1000 and "8 more of" in found["jobs"][2]["why"]
    grey = next(q for q in found["localQueues"] if q["name"] == "grey")
    assert not grey["active"] and grey["message"] and found["unseen"] == []

    shown = teams.cli("queues", "-n", teams.namespace).stdout
    assert re.search(
        rf"{teams.name('red')} +{teams.namespace} +{h100} +{teams.gpu} +━+ +16 of 8 +8 +16 +2 +1", shown
    ), shown
    assert re.search(r"waits +red +waits +8 \S+ .*it waits in the LocalQueue red: 8 more of", shown), shown

    mine = teams.queues(kubeconfig=teams.own)
    assert [w["name"] for w in mine["jobs"]] == ["own", "borrows", "waits"] and mine["clusterQueues"] == []
    assert [q["name"] for q in mine["localQueues"]] == ["red"], "the only one with jobs"
    assert mine["unseen"] == ["clusterqueues", "cohorts", "localqueues"]
    told = teams.cli("queues", "-n", teams.namespace, kubeconfig=teams.own).stderr
    assert "not seen: clusterqueues (quotas, and what others hold)" in told and "rbac --quotas" in told
    refused = teams.cli("queues", "-n", "default", kubeconfig=teams.own)
    assert refused.returncode == 1 and "neither Workloads nor queues of namespace default can be read" in refused.stderr
