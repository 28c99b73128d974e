"""Whether our verdict on a job (it runs, or it never does) is what the real Kueue, API server and scheduler do.

`python -m tools.stack exec python -m tests.bench.verdicts --count 300` makes as many set-ups from a seed on a cluster of its own,
or on that of KUBECONFIG and PULUMI_TRAINER_TEST_CONTEXT: a namespace, limits, queues and a job each, on simulated nodes. Batches
run at the same time; each set-up has a resource of its own on the nodes, so that no job takes anything from another one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR, TOPOLOGY
from pulumi_trainer.provider.kueue.labels import PREFERRED, PRIORITY, QUEUE, REQUIRED
from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.trainer import default_runtime, default_train_job, render, warnings
from tools.cluster import Cluster, simulation

Document = dict[str, Any]
BATCH = 50
STARTS = 60.0
"""Seconds within which a job that can run does."""
SETTLES = 6.0
"""Seconds after which a job that has not started beside others that have does not start."""
NEVER = ("PT2", "PT3")
NO_VERDICT = ("PT207", "PT214")
"""Warnings about a field or a quota: the job may run."""
POOL, RACK, HOST = "verdicts.example.com/pool", "verdicts.example.com/rack", "kubernetes.io/hostname"
TAINT = "verdicts.example.com/special"
NODES = (("a", "r0", 8, False), ("a", "r0", 8, False), ("a", "r1", 8, False), ("b", "r1", 4, True))
"""Pool, rack, GPUs for each set-up, whether it is tainted."""


@dataclass
class SetUp:
    """A job and what is around it. name: Of its namespace, and the beginning of what is cluster-wide."""

    name: str
    objects: list[tuple[Kind, Document]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    pod: Document = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    resources: Document = field(default_factory=dict)
    nodes: int = 1
    about: list[str] = field(default_factory=list)

    @property
    def gpu(self) -> str:
        return f"{self.name}.example.com/gpu"

    def add(self, kind: Kind, name: str = "", **content: Any) -> None:
        metadata = {"name": name or self.name, **({"namespace": self.name} if kind.namespaced else {})}
        self.objects.append(
            (kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content})
        )

    @property
    def job(self) -> tuple[Document, Document]:
        """The runtime and the TrainJob."""
        container = {"name": "node", "image": "example.com/train:1"}
        template = {
            "metadata": {"annotations": {"sim/outcome": "forever", "sim/start": "50ms", **self.notes}},
            "spec": {"containers": [container], **self.pod},
        }
        ancestor = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
        step = {"name": "node", "template": {"metadata": ancestor, "spec": {"template": template}}}
        spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [step]}}}
        runtime = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "plain"}, "spec": spec,
        }  # fmt: skip
        trainer = {"numNodes": self.nodes, "resourcesPerNode": self.resources}
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": "job", "namespace": self.name, "labels": self.labels},
            "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer},
        }  # fmt: skip
        return default_runtime(runtime), default_train_job(job)


def set_up(seed: int, number: int) -> SetUp:
    """One of the set-ups of a seed."""
    draw = random.Random(f"{seed}/{number}")
    made = SetUp(f"v{seed}-{number}")
    gpus = draw.choice((1, 2, 4, 4, 8, 8, 8, 16))
    made.nodes = draw.choice((1, 1, 1, 2, 2, 3))
    requests = {"cpu": draw.choice(("500m", "1", "4")), made.gpu: gpus}
    made.resources = {"requests": requests, "limits": {made.gpu: gpus}}
    if draw.random() < 0.5:
        made.resources["limits"] |= {"cpu": draw.choice(("4", "8")), "memory": "1Gi"}
    made.about.append(f"{made.nodes}x{gpus} GPUs")
    labels = {"team": draw.choice(("red", "blue"))}
    made.add(kinds.NAMESPACE)
    made.objects[0][1]["metadata"]["labels"] = labels
    _pods(made, draw)
    _limits(made, draw)
    if draw.random() < 0.7:
        _queue(made, draw)
    return made


def _pods(made: SetUp, draw: random.Random) -> None:
    if draw.random() < 0.15:
        pool = draw.choice(("a", "b", "nowhere"))
        made.pod["nodeSelector"] = {POOL: pool}
        made.about.append(f"selects {pool}")
    elif draw.random() < 0.1:
        expression = {"key": POOL, "operator": draw.choice(("In", "NotIn")), "values": [draw.choice(("a", "b"))]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        made.pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        made.about.append(f"affinity {expression['operator']} {expression['values'][0]}")
    if draw.random() < 0.3:
        made.pod["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
        made.about.append("tolerates")
    if draw.random() < 0.12:
        made.pod["runtimeClassName"] = made.name
        cpu = draw.choice(("250m", "2", "100"))
        missing = draw.random() < 0.25
        made.about.append("no RuntimeClass" if missing else f"overhead {cpu}")
        if not missing:
            made.add(kinds.RUNTIME_CLASS, handler="runc", overhead={"podFixed": {"cpu": cpu}})


def _limits(made: SetUp, draw: random.Random) -> None:
    if draw.random() < 0.25:
        hard = draw.choice((
            {f"requests.{made.gpu}": draw.choice(("4", "8", "16", "32"))}, {"pods": draw.choice(("1", "2", "5"))},
            {"requests.cpu": draw.choice(("1", "4", "16"))}, {"limits.cpu": draw.choice(("4", "16"))},
            {"count/jobs.batch": draw.choice(("0", "3"))},
        ))  # fmt: skip
        scope = draw.choice(({}, {}, {}, {"scopes": ["Terminating"]}, {"scopes": ["NotTerminating"]}))
        scope = {} if "count/jobs.batch" in hard else scope
        made.add(kinds.RESOURCE_QUOTA, "quota", spec={"hard": hard, **scope})
        made.about.append(f"ResourceQuota {hard} {scope.get('scopes', '')}")
    if draw.random() < 0.2:
        rules = draw.choice((
            {"max": {"cpu": draw.choice(("2", "8"))}}, {"min": {"cpu": draw.choice(("100m", "2"))}},
            {"default": {"cpu": "2", "memory": "1Gi"}}, {"defaultRequest": {"cpu": "6"}},
            {"maxLimitRequestRatio": {"cpu": draw.choice(("2", "20"))}}, {"type": "Pod", "max": {"cpu": "2"}},
            {"default": {"memory": "2Gi"}, "defaultRequest": {"memory": "1Gi"}},
        ))  # fmt: skip
        made.add(kinds.LIMIT_RANGE, "limits", spec={"limits": [{"type": "Container", **rules}]})
        made.about.append(f"LimitRange {rules}")


def _queue(made: SetUp, draw: random.Random) -> None:
    made.labels[QUEUE] = "queue"
    flavor: Document = {}
    pool = draw.choice(("a",) * 6 + ("b", "b", "", "", "nowhere"))
    flavor["nodeLabels"] = {POOL: pool} if pool else {}
    made.about.append(f"flavor of pool {pool or 'any'}")
    if pool == "b" and draw.random() < 0.5:
        flavor["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
    elif pool == "b" and draw.random() < 0.5:
        flavor["nodeTaints"] = [{"key": TAINT, "effect": "NoSchedule"}]
    if pool in ("a", "b") and draw.random() < 0.4:
        made.add(TOPOLOGY, spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
        flavor["topologyName"] = made.name
        made.about.append("topology")
    if draw.random() < (0.6 if "topology" in made.about else 0.08):
        key, level = (
            draw.choice((REQUIRED, PREFERRED)),
            draw.choice((RACK, RACK, RACK, HOST, "verdicts.example.com/zone")),
        )
        made.notes[key] = level
        made.about.append(f"{key.rpartition('/')[2]} {level.rpartition('/')[2]}")
    if draw.random() < 0.96:
        made.add(RESOURCE_FLAVOR, spec=flavor)
    else:
        made.about.append("no flavor")
    nominal = draw.choice((4, 8, 16, 32, 64, 64))
    quotas = [
        {"name": made.gpu, "nominalQuota": nominal},
        {"name": "cpu", "nominalQuota": draw.choice((3, 64, 64, 64, 1000))},
    ]
    if "memory" in made.resources["limits"] or draw.random() < 0.7:
        quotas.append({"name": "memory", "nominalQuota": draw.choice(("1Gi", "1Ti", "1Ti", "1Ti"))})
    groups = [{"coveredResources": [q["name"] for q in quotas], "flavors": [{"name": made.name, "resources": quotas}]}]
    made.about.append("quota " + ", ".join(f"{q['name'].rpartition('/')[2]} {q['nominalQuota']}" for q in quotas))
    spec: Document = {"resourceGroups": groups, "namespaceSelector": _selector(made, draw)}
    if draw.random() < 0.3:
        _cohort(made, draw, spec)
    if draw.random() < 0.06:
        spec["stopPolicy"] = draw.choice(("Hold", "HoldAndDrain"))
        made.about.append(f"ClusterQueue {spec['stopPolicy']}")
    if draw.random() < 0.05:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": made.name}]}
        made.about.append("no AdmissionCheck")
    if draw.random() < 0.96:
        made.add(CLUSTER_QUEUE, spec=spec)
    else:
        made.about.append("no ClusterQueue")
    local = {"clusterQueue": made.name}
    if draw.random() < 0.05:
        local["stopPolicy"] = "Hold"
        made.about.append("LocalQueue Hold")
    if draw.random() < 0.96:
        made.add(LOCAL_QUEUE, "queue", spec=local)
    else:
        made.about.append("no LocalQueue")
    if draw.random() < 0.04:
        made.labels[PRIORITY] = made.name
        made.about.append("no priority class")


def _selector(made: SetUp, draw: random.Random) -> Document | None:
    if draw.random() < 0.85:
        return {}
    team = draw.choice(("red", "blue"))
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = {"values": [team]} if operator in ("In", "NotIn") else {}
    selector = draw.choice((
        None, {"matchLabels": {"team": team}}, {"matchExpressions": [{"key": "team", "operator": operator, **values}]}
    ))  # fmt: skip
    made.about.append(f"namespaceSelector {selector} of {made.objects[0][1]['metadata']['labels']['team']}")
    return selector


def _cohort(made: SetUp, draw: random.Random, spec: Document) -> None:
    lent = draw.choice((8, 32))
    resource: Document = {"name": made.gpu, "nominalQuota": lent}
    if draw.random() < 0.4:
        resource["lendingLimit"] = draw.choice((0, 4))
    quota = spec["resourceGroups"][0]["flavors"][0]["resources"][0]
    if draw.random() < 0.4:
        quota["borrowingLimit"] = draw.choice((0, 4, 8))
    spec["cohortName"] = made.name
    made.add(COHORT, spec={})
    groups = [{"coveredResources": [made.gpu], "flavors": [{"name": made.name, "resources": [resource]}]}]
    made.add(CLUSTER_QUEUE, f"{made.name}-lends", spec={"resourceGroups": groups, "cohortName": made.name})
    limits = f"borrowing {quota.get('borrowingLimit')}, lending {resource.get('lendingLimit')}"
    made.about.append(f"cohort lends {lent} ({limits})")


# --- verdicts ---------------------------------------------------------------------------------------------------------------


def ours(kubeconfig: Path, each: SetUp, client: Client) -> tuple[list[str], Document]:
    """Why the job never runs, as a plan says it, and its JobSet."""
    runtime, job = each.job
    objects = render(runtime, job, mode="jobset").objects
    jobset = next(document for key, document in objects.items() if key.startswith("JobSet/"))
    target = KubernetesTarget(client, cluster=lambda: "", namespace=each.name)
    queues = queue_snapshot.read_queues(client, each.name, each.labels.get(QUEUE, ""))
    found = [str(w) for w in warnings(runtime, job, objects, queues=queues) if _is_verdict(w.code)]
    refused, noted = target.jobs.review(Draft(each.name, "job", "digest", objects))
    found += map(str, refused)
    found += (str(p) for p in noted if "admits no jobs now" in str(p))
    return found, jobset


def _is_verdict(code: str) -> bool:
    return code.startswith(NEVER) and code not in NO_VERDICT


def running(client: Client) -> dict[str, int]:
    """Namespace -> how many pods run in it."""
    pods, _ = client.list(kinds.POD, fields="status.phase=Running")
    return dict(Counter(pod["metadata"]["namespace"] for pod in pods))


def judged(kubeconfig: Path, batch: list[SetUp]) -> Iterator[tuple[SetUp, list[str], bool]]:
    """Yield for each set-up why we say that it never runs, and whether it did."""
    admin = open_client({"kubeconfig": str(kubeconfig)})
    _nodes(admin, batch)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: _make(admin, each), batch))
        time.sleep(SETTLES)  # Kueue says whether its queues are active
        fresh = open_client({"kubeconfig": str(_copy(kubeconfig, batch[0].name))})
        verdicts = [ours(kubeconfig, each, fresh) for each in batch]
        list(threads.map(lambda pair: _submit(admin, pair[0], pair[1][1]), zip(batch, verdicts, strict=True)))
        expected = [each for each, (why, _) in zip(batch, verdicts, strict=True) if not why]
        until = time.monotonic() + STARTS
        while time.monotonic() < until and not all(_runs(admin, each) for each in expected):
            time.sleep(1)
        time.sleep(SETTLES)
        there = running(admin)
        for each, (why, _) in zip(batch, verdicts, strict=True):
            yield each, why, there.get(each.name, 0) >= each.nodes
        list(threads.map(lambda each: _remove(admin, each), batch))


def _runs(admin: Client, each: SetUp) -> bool:
    return running(admin).get(each.name, 0) >= each.nodes


def _copy(kubeconfig: Path, name: str) -> Path:
    """A file of its own, for a client that remembers nothing."""
    return Path(shutil.copy(kubeconfig, kubeconfig.with_name(f"verdicts-{name}")))


def _nodes(admin: Client, batch: list[SetUp]) -> None:
    for index, (pool, rack, gpus, tainted) in enumerate(NODES):
        document = simulation.node(index, 0, {})
        name = f"verdicts-{index}"
        document["metadata"] |= {"name": name, "labels": {POOL: pool, RACK: rack, HOST: name}}
        taints = [{"key": TAINT, "effect": "NoSchedule"}] if tainted else []
        document["spec"] = {**document.get("spec", {}), "taints": taints}
        for part in ("capacity", "allocatable"):
            amounts = {each.gpu: str(gpus) for each in batch}
            own = {**document["status"][part], "cpu": "64", "memory": "8Ti", "pods": "1000"}
            document["status"][part] = {**own, **amounts, "cpu": str(64 * len(batch))}
        admin.delete(kinds.NODE, "", name)
        while admin.get(kinds.NODE, "", name) is not None:
            time.sleep(0.1)
        admin.create(kinds.NODE, document)


def _make(admin: Client, each: SetUp) -> None:
    for kind, document in each.objects:
        while True:
            try:
                admin.create(kind, document)
                break
            except ApiError as error:
                if error.code == 409:
                    break
                if "not found" not in str(error):
                    raise
                time.sleep(0.2)


def _submit(admin: Client, each: SetUp, jobset: Document) -> None:
    try:
        admin.create(JOBSET, {**jobset, "metadata": {**jobset["metadata"], "namespace": each.name}})
    except ApiError:
        return  # refused: it never runs


def _remove(admin: Client, each: SetUp) -> None:
    for kind, document in reversed(each.objects):
        if kind in (kinds.RESOURCE_QUOTA, kinds.LIMIT_RANGE, LOCAL_QUEUE):
            continue  # they go with their namespace
        admin.delete(kind, "", document["metadata"]["name"], propagation="Background")


def measure(kubeconfig: Path, count: int, seed: int, limit: float) -> bool:
    """Prints the disagreements, and the row; returns whether there are none."""
    begun, done, wrong, alarms, never = time.monotonic(), 0, 0, 0, 0
    causes: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        batch = [set_up(seed, number) for number in range(first, min(first + BATCH, count))]
        for each, why, ran in judged(kubeconfig, batch):
            done += 1
            never += not ran
            causes.update(text.partition(":")[0] if text.startswith("PT") else "refused" for text in dict.fromkeys(why))
            if bool(why) is ran:
                wrong, alarms = wrong + 1, alarms + ran
                said = "; ".join(why) or "nothing against it"
                print(
                    f"{each.name}: {'runs' if ran else 'does not run'}; we say: {said}\n  {', '.join(each.about)}",
                    flush=True,
                )
        spent = time.monotonic() - begun
        print(f"# {done} set-ups, {wrong} disagree, {spent:.0f} s", file=sys.stderr, flush=True)
        if spent + spent / done * BATCH > limit:
            break
    print("# " + ", ".join(f"{cause} {n}" for cause, n in sorted(causes.items())), file=sys.stderr)
    agreed = f"{done - wrong} of {done}, {alarms} false alarms; {never} never run"
    print(f"| verdicts of {done} set-ups (seed {seed}) as Kueue and Kubernetes do | {agreed} | all |", flush=True)
    return not wrong


@contextmanager
def cluster_of(given: Path | None, *, kueue_alone: bool = False, fair: bool = False) -> Iterator[Path]:
    """The kubeconfig that is given, or that of a cluster of its own. fair: Its Kueue shares quota fairly."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as temporary:
        more: dict[str, Any] = {"components": ("kueue",), "simulated": 0} if kueue_alone else {}
        cluster = Cluster.start(Path(temporary) / "cluster", **more)
        try:
            if fair:
                file = cluster.place.conf / "kueue.json"
                strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
                configuration = {**json.loads(file.read_text()), "fairSharing": {"preemptionStrategies": strategies}}
                file.write_text(json.dumps(configuration))
                cluster.restart("kueue")
            yield cluster.kubeconfig
        finally:
            cluster.stop()


def main() -> None:
    """Runs as many set-ups as are asked for, or as fit into the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that is there, such as `make cluster-up` makes")
    args = parser.parse_args()
    with cluster_of(args.kubeconfig) as kubeconfig:
        agreed = measure(kubeconfig, args.count, args.seed, args.limit)
    sys.exit(not agreed)


if __name__ == "__main__":
    main()
