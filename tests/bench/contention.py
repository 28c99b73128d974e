"""Whether we say of a Workload what the real Kueue does: is it admitted, in which flavors, and who is preempted for it?

`python -m tools.stack exec python -m tests.bench.contention --count 500 --seed 1` makes set-ups from a seed on a cluster of its
own: cohorts, queues with several flavors, running and waiting Workloads, and one more at the end, of which the answer is computed
from the documents before it is created. Workloads have no jobs; what a job does when its Workload is evicted is done here.
`--fair` shares fairly. Set-ups in which Kueue decides by second or UID, or in which Workloads evict each other without an end,
are left out and counted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client import CustomObjectsApi
from kubernetes.config import new_client_from_config
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import conditions, epoch_seconds, true_condition
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.cycles import Outcome, Scheduler
from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender, take_snapshot

from .verdicts import cluster_of

Document = dict[str, Any]
BATCH = 40
APART = 1.1
"""Seconds between two Workloads of a set-up: Kueue orders them by second."""
SETTLES = 3.0
MOST_SETTLING = 20.0
"""Seconds after which set-ups are left out in which Workloads evict each other without an end."""
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
KINDS = frozenset({"ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue"})


@dataclass
class SetUp:
    """Queues, and the Workloads that come one after the other. name: Its namespace; other names begin with it."""

    name: str
    objects: list[tuple[Kind, Document]] = field(default_factory=list)
    workloads: list[Document] = field(default_factory=list)

    @property
    def resource(self) -> str:
        return f"{self.name}.example.com/gpu"

    def add(self, kind: Kind, name: str, spec: Document, **metadata: Any) -> None:
        place = {"namespace": self.name} if kind.namespaced else {}
        self.objects.append((
            kind,
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **place, **metadata}, "spec": spec},
        ))  # fmt: skip


def set_up(seed: int, number: int) -> SetUp:
    """A set-up; the same for the same numbers."""
    draw = random.Random(f"contention-{seed}-{number}")
    made = SetUp(f"c{seed}-{number}")
    flavors = [f"{made.name}-f{i}" for i in range(draw.choice((1, 1, 2, 3)))]
    for flavor in flavors:
        made.add(RESOURCE_FLAVOR, flavor, {"nodeLabels": {"kind": flavor}})
    cohorts = _cohorts(made, draw, flavors)
    queues = [f"{made.name}-q{i}" for i in range(draw.choice((1, 2, 3, 4)))]
    for queue in queues:
        _queue(made, draw, queue, flavors, cohorts)
    for i in range(draw.randint(4, 10)):
        made.workloads.append(_workload(made, draw, f"w{i}", draw.choice(queues), flavors))
    if draw.random() < 0.6:
        made.workloads[-1]["spec"]["priority"] = 100  # more of them preempt
    return made


def _cohorts(made: SetUp, draw: random.Random, flavors: list[str]) -> list[str]:
    names = [made.name, *(f"{made.name}-{side}" for side in draw.choice(("", "", "a", "ab")))]
    for name in names:
        spec: Document = {} if name == made.name else {"parentName": made.name}
        if draw.random() < 0.3:
            spec["resourceGroups"] = [_group(made, draw, flavors, limits=name != made.name)]
        if draw.random() < 0.2:
            spec["fairSharing"] = {"weight": draw.choice(("0", "500m", "2"))}
        made.add(COHORT, name, spec)
    return names


def _group(made: SetUp, draw: random.Random, flavors: list[str], *, limits: bool) -> Document:
    quotas = []
    for flavor in flavors:
        quota: Document = {"name": made.resource, "nominalQuota": draw.choice((0, 2, 4, 8))}
        if limits and draw.random() < 0.25:
            quota["borrowingLimit"] = draw.choice((0, 2, 4))
        if limits and draw.random() < 0.25:
            quota["lendingLimit"] = draw.randint(0, quota["nominalQuota"])
        quotas.append({"name": flavor, "resources": [quota]})
    return {"coveredResources": [made.resource], "flavors": quotas}


def _queue(made: SetUp, draw: random.Random, name: str, flavors: list[str], cohorts: list[str]) -> None:
    in_cohort = draw.random() < 0.85
    mine = draw.sample(flavors, draw.randint(1, len(flavors)))
    spec: Document = {
        "namespaceSelector": {},
        "resourceGroups": [_group(made, draw, mine, limits=in_cohort)],
        "queueingStrategy": draw.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "preemption": {"withinClusterQueue": draw.choice((*POLICIES[:3], *POLICIES[1:3]))},
    }
    if in_cohort:
        spec["cohortName"] = draw.choice(cohorts)
        reclaim = draw.choice((POLICIES[0], POLICIES[1], POLICIES[1], POLICIES[3], POLICIES[3]))
        spec["preemption"]["reclaimWithinCohort"] = reclaim
        if reclaim != "Never" and draw.random() < 0.4:
            threshold = draw.choice(({}, {"maxPriorityThreshold": 10}))
            spec["preemption"]["borrowWithinCohort"] = {"policy": "LowerPriority", **threshold}
    if draw.random() < 0.5:
        spec["flavorFungibility"] = {
            "whenCanBorrow": draw.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": draw.choice(("MayStopSearch", "TryNextFlavor")),
        }
        if draw.random() < 0.6 and set(spec["flavorFungibility"].values()) == {"TryNextFlavor"}:
            spec["flavorFungibility"]["preference"] = draw.choice(
                ("BorrowingOverPreemption", "PreemptionOverBorrowing")
            )
    if draw.random() < 0.3:
        spec["fairSharing"] = {"weight": draw.choice(("0", "500m", "2", "3"))}
    made.add(CLUSTER_QUEUE, name, spec)
    made.add(LOCAL_QUEUE, name, {"clusterQueue": name})


def _workload(made: SetUp, draw: random.Random, name: str, queue: str, flavors: list[str]) -> Document:
    sets = []
    for i in range(draw.choice((1, 1, 1, 2))):
        container = {
            "name": "c",
            "image": "example.com/train:1",
            "resources": {"requests": {made.resource: str(draw.randint(1, 3))}},
        }
        container["resources"]["limits"] = dict(container["resources"]["requests"])
        pod: Document = {"containers": [container], "restartPolicy": "Never"}
        if draw.random() < 0.15:
            pod["nodeSelector"] = {"kind": draw.choice(flavors)}
        sets.append({"name": f"s{i}", "count": draw.choice((1, 1, 2, 3)), "template": {"spec": pod}})
    return {
        "apiVersion": WORKLOAD.api_version, "kind": "Workload", "metadata": {"name": name, "namespace": made.name},
        "spec": {"queueName": queue, "priority": draw.choice((0, 10, 10, 100)), "podSets": sets},
    }  # fmt: skip


# --- the real Kueue ---


class Kueue:
    """The objects of a batch in a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.client = open_client({"kubeconfig": str(kubeconfig)})
        self._api = CustomObjectsApi(new_client_from_config(str(kubeconfig)))

    def workloads(self, names: Collection[str]) -> dict[str, list[Document]]:
        """The Workloads by set-up."""
        found: dict[str, list[Document]] = {name: [] for name in names}
        documents, _ = self.client.list(WORKLOAD)
        for document in documents:
            if document["metadata"]["namespace"] in found:
                found[document["metadata"]["namespace"]].append({"kind": "Workload", **document})
        return found

    def settle(self, names: Collection[str], seconds: float) -> set[str]:
        """Do what jobs do until nothing has been evicted for a while: give the quota back.

        Returns:
            The set-ups in which Workloads still evict each other: some settings let them do so for ever.
        """
        now = time.monotonic()
        until, last, evicting = now + seconds, now + MOST_SETTLING, dict[str, float]()
        while time.monotonic() < min(until, last):
            for name, documents in self.workloads(names).items():
                for document in documents:
                    if is_true(document, "Evicted") and is_true(document, "QuotaReserved"):
                        self.release(document)
                        evicting[name] = time.monotonic()
                        until = time.monotonic() + seconds
            time.sleep(0.2)
        return {name for name, at in evicting.items() if at > last - seconds}

    def release(self, document: Document) -> None:
        """Give the quota of an evicted Workload back, as its job does."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        changed = []
        for each in document["status"]["conditions"]:
            if each["type"] in ("QuotaReserved", "Admitted"):
                each = {**each, "status": "False", "reason": "Pending", "message": "evicted", "lastTransitionTime": now}
            changed.append(each)
        self.patch_status(document, {"admission": None, "conditions": changed})

    def patch_status(self, document: Document, change: Document) -> None:
        """Change the status of a Workload."""
        group, _, version = WORKLOAD.api_version.partition("/")
        place = document["metadata"]
        self._api.patch_namespaced_custom_object_status(
            group, version, place["namespace"], WORKLOAD.plural, place["name"], {"status": change}
        )


def is_true(document: Document, condition: str) -> bool:
    """Whether a condition of a Workload is true."""
    return bool(true_condition(conditions(document), condition))


@dataclass(frozen=True)
class Result:
    """What became of the last Workload. flavors: By pod set; None if it was not admitted. preempted: Names of the others."""

    flavors: tuple[str, ...] | None
    preempted: tuple[str, ...]


def _observed(before: list[Document], after: list[Document], name: str) -> Result:
    flavors, preempted = None, []
    evicted = {d["metadata"]["name"]: _preemptions(d) for d in before}
    for document in after:
        other = document["metadata"]["name"]
        if _preemptions(document) > evicted.get(other, 0):
            preempted.append(other)
        if other == name and is_true(document, "QuotaReserved"):
            assignments = document["status"]["admission"]["podSetAssignments"]
            flavors = tuple(",".join(sorted(set(each["flavors"].values()))) for each in assignments)
    return Result(flavors, tuple(sorted(preempted)))


def _preemptions(document: Document) -> int:
    stats = document.get("status", {}).get("schedulingStats", {}).get("evictions", [])
    return sum(each["count"] for each in stats if each["reason"] == "Preempted")


# --- ours ---


def expected(made: SetUp, before: list[Document], last: Document, *, fair: bool) -> tuple[Result, bool]:
    """What we say of the last Workload, and whether Kueue decides it by second or UID."""
    documents = [document for _, document in made.objects if document["kind"] in KINDS]
    outcomes, victims, tied = _simulate(documents, before, last, fair=fair, backwards=False)
    others, other_victims, _ = _simulate(documents, before, last, fair=fair, backwards=True)
    name = last["metadata"]["name"]
    result, other = _as_result(outcomes, victims, name), _as_result(others, other_victims, name)
    return result, tied or result != other


def _simulate(
    documents: list[Document], before: list[Document], last: Document, *, fair: bool, backwards: bool
) -> tuple[dict[str, Outcome], set[str], bool]:
    """Run the cycles. backwards: The order of UIDs the other way round, which must not matter."""
    created = max([_seconds(d) for d in before], default=0) + 2
    mine = json.loads(json.dumps(last))
    mine["metadata"] |= {"uid": "zz", "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))}
    renamed = []
    for document in [*before, mine]:
        copy = json.loads(json.dumps(document))
        copy["metadata"]["uid"] = _key(copy["metadata"]["name"], backwards=backwards)
        renamed.append(copy)
    snapshot, waiting = take_snapshot(Queues(tuple(documents), KINDS), renamed, fair=fair)
    scheduler = Scheduler(snapshot, waiting)
    scheduler.run()
    outcomes = {each.contender.job.rpartition("/")[2]: each for each in scheduler.outcomes.values()}
    victims = {v.job.rpartition("/")[2] for each in outcomes.values() for v in each.victims}
    return outcomes, victims, _has_ties(renamed)


def _key(name: str, *, backwards: bool) -> str:
    index = int(name[1:])
    return f"{99 - index if backwards else index:02}"


def _has_ties(documents: list[Document]) -> bool:
    times = [_seconds(d) for d in documents]
    return len(set(times)) < len(times)


def _seconds(document: Document) -> float:
    return epoch_seconds(document["metadata"]["creationTimestamp"])


def _as_result(outcomes: dict[str, Outcome], victims: set[str], name: str) -> Result:
    outcome = outcomes[name]
    flavors = None
    if outcome.admitted is not None:
        contender: Contender = outcome.contender
        flavors = tuple(
            ",".join(sorted({f for (at, _), f in outcome.admitted.flavors.items() if at == i}))
            for i in range(len(contender.sets))
        )
    return Result(flavors, tuple(sorted(victims)))


# --- comparison ---


def judged(
    kueue: Kueue, batch: list[SetUp], *, fair: bool
) -> Iterator[tuple[SetUp, Result, Result, bool, list[Document]]]:
    """Yield of each set-up what we said, what Kueue did, whether it is left out, and the Workloads before the last one."""
    names = {each.name for each in batch}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: make_set_up(kueue.client, each), batch))
        time.sleep(SETTLES)
        restless = set[str]()
        for wave in range(max(len(each.workloads) for each in batch)):
            for each in batch:
                if wave < len(each.workloads) - 1:
                    kueue.client.create(WORKLOAD, each.workloads[wave])
            restless |= kueue.settle(names - restless, APART)
        restless |= kueue.settle(names - restless, SETTLES)
        before = kueue.workloads(names)
        answers = {each.name: expected(each, before[each.name], each.workloads[-1], fair=fair) for each in batch}
        for each in batch:
            kueue.client.create(WORKLOAD, each.workloads[-1])
        restless |= kueue.settle(names - restless, SETTLES)
        after = kueue.workloads(names)
        for each in batch:
            said, tied = answers[each.name]
            did = _observed(before[each.name], after[each.name], each.workloads[-1]["metadata"]["name"])
            yield each, said, did, tied or each.name in restless, before[each.name]
        list(threads.map(lambda each: remove_set_up(kueue.client, each), batch))


def make_set_up(client: Client, made: SetUp) -> None:
    """Create what a set-up has beside its Workloads."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.name}}
    for kind, document in [(kinds.NAMESPACE, namespace), *made.objects]:
        for _ in range(50):
            try:
                client.create(kind, document)
                break
            except ApiError as error:
                if error.code == 409:
                    break
                if "not found" not in str(error):
                    raise
                time.sleep(0.2)


def remove_set_up(client: Client, made: SetUp) -> None:
    """Remove a set-up."""
    client.delete(kinds.NAMESPACE, "", made.name, propagation="Background")
    for kind, document in reversed(made.objects):
        if not kind.namespaced:
            client.delete(kind, "", document["metadata"]["name"], propagation="Background")


def _brief(workload: Document) -> Document:
    """What decides of a Workload."""
    metadata = {name: workload["metadata"][name] for name in ("name", "namespace", "creationTimestamp")}
    kept = ("type", "status", "reason", "message", "lastTransitionTime")
    status = {
        "conditions": [
            {name: each.get(name) for name in kept} for each in workload.get("status", {}).get("conditions", [])
        ],
        "admission": workload.get("status", {}).get("admission"),
    }
    return {"kind": "Workload", "metadata": metadata, "spec": workload["spec"], "status": status}


def measure(kubeconfig: Path, count: int, seed: int, *, fair: bool, record: Path | None) -> bool:
    """Print the disagreements, and the row; return whether there are none."""
    kueue, agreed, ties, wrong, preempting, admitted = Kueue(kubeconfig), 0, 0, 0, 0, 0
    for first in range(0, count, BATCH):
        batch = [set_up(seed, number) for number in range(first, min(first + BATCH, count))]
        for number, (made, said, did, tied, before) in enumerate(judged(kueue, batch, fair=fair)):
            ties += tied
            if tied:
                continue
            agreed, wrong = agreed + (said == did), wrong + (said != did)
            preempting, admitted = preempting + bool(did.preempted), admitted + (did.flavors is not None)
            if said != did:
                print(f"{made.name}: we say {said}, Kueue does {did}", flush=True)
            if record is not None and (said != did or did.preempted or number % 10 == 0):
                case = {"objects": [d for _, d in made.objects], "workloads": list(map(_brief, before))}
                result = {"flavors": did.flavors, "preempted": did.preempted, "fair": fair}
                whole = {**case, "last": made.workloads[-1], "result": result}
                (record / f"{made.name}.json").write_text(json.dumps(whole, sort_keys=True) + "\n")
        print(f"# {agreed} agree, {wrong} do not, {ties} ties", file=sys.stderr, flush=True)
    about = f"{admitted} admitted, {preempting} with preemption, {ties} left out"
    print(f"| seed {seed}, {'fair' if fair else 'by priority'} | {agreed} of {agreed + wrong} | {about} |")
    return not wrong


def main() -> None:
    """Compare as many set-ups as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fair", action="store_true", help="with fair sharing")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that is there, whose Kueue shares as asked")
    parser.add_argument(
        "--record", type=Path, help="folder for set-ups that disagree, those with preemption, and each tenth"
    )
    args = parser.parse_args()
    with cluster_of(args.kubeconfig, kueue_alone=True, fair=args.fair) as kubeconfig:
        agreed = measure(kubeconfig, args.count, args.seed, fair=args.fair, record=args.record)
    sys.exit(not agreed)


if __name__ == "__main__":
    main()
