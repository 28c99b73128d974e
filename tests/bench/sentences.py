"""Whether what `why` says of a waiting job comes true: no "never" of one that starts, no "by itself" of one that does not.

`python -m tools.stack exec python -m tests.bench.sentences --count 300 --seed 1`. The set-ups are those of
`tests.bench.contention`, with fragmented nodes and topologies in half of them. Jobs run, end and are preempted until nothing
runs any more.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import NODE
from pulumi_trainer.provider.kueue.api_resources import TOPOLOGY
from pulumi_trainer.provider.kueue.labels import PREFERRED, REQUIRED
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.topology_fit import find_unfitting_podset
from pulumi_trainer.provider.kueue.workload_reasons import (
    Judgements,
    Reason,
    Waiting,
    closed_flavors,
    flavors_of,
    why_queued,
)

from .contention import BATCH, KINDS, Kueue, SetUp, is_true, remove_set_up, set_up
from .replay import Job, Trace, begin, find_ends, run_jobs
from .verdicts import cluster_of

Document = dict[str, Any]
RACK, HOST = "sentences.example.com/rack", "kubernetes.io/hostname"
NEVER, BY_ITSELF = "never", "by itself"
SLOW = 120.0


def trace(seed: int, number: int) -> Trace:
    """A trace; the same for the same numbers."""
    made, draw = set_up(seed, number), random.Random(f"sentences-{seed}-{number}")
    if draw.random() < 0.5:
        _spread(made, draw)
    return Trace(made, {each["metadata"]["name"]: draw.uniform(3, 12) for each in made.workloads})


def _spread(made: SetUp, draw: random.Random) -> None:
    """Give flavors a topology with nodes of different sizes, and Workloads a request for it."""
    flavors = [document for kind, document in made.objects if kind.kind == "ResourceFlavor"]
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    nodes = []
    for flavor in draw.sample(flavors, draw.randint(1, len(flavors))):
        flavor["spec"]["topologyName"] = made.name
        for i in range(draw.randint(1, 4)):
            name = f"{flavor['metadata']['name']}-n{i}"
            labels = {**flavor["spec"]["nodeLabels"], RACK: f"{made.name}-r{i % 2}", HOST: name}
            size = {made.resource: str(draw.choice((2, 3, 4, 6))), "cpu": "64", "memory": "64Gi", "pods": "100"}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            status = {"allocatable": size, "capacity": size, "conditions": [ready]}
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            nodes.append((NODE, {**about, "status": status}))
    topology = {"apiVersion": TOPOLOGY.api_version, "kind": "Topology", "metadata": {"name": made.name}}
    made.objects[:0] = [(TOPOLOGY, {**topology, "spec": {"levels": levels}}), *nodes]
    for workload in made.workloads:
        for pods in workload["spec"]["podSets"]:
            pods["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]  # no kubelet makes the nodes ready
            kind = draw.choice(("required", "required", "preferred", "none"))
            if kind != "none":
                level = draw.choice((RACK, HOST))
                pods["topologyRequest"] = {kind: level}
                annotations = {REQUIRED if kind == "required" else PREFERRED: level}
                pods["template"]["metadata"] = {"annotations": annotations}


def explain(made: SetUp, workloads: list[Document]) -> dict[str, Reason]:
    """What `why` says of the Workloads that wait, by name."""
    there = Queues(tuple(document for _, document in made.objects), KINDS | {"Topology", "Node"})
    said, found = Judgements.of(workloads), {}
    for each in workloads:
        if is_true(each, "QuotaReserved"):
            continue
        queue = each["spec"]["queueName"]
        behind = there.find("ClusterQueue", queue)
        assert behind is not None
        sets = [PodSet(s["name"], "", s["count"], dict(s["template"])) for s in each["spec"]["podSets"]]
        no_room = find_unfitting_podset(sets, behind, there, closed_flavors(each, flavors_of(behind)))
        waiting = Waiting(
            queue, each, age=SLOW, flavors=flavors_of(behind), peer=said.peer_of(each), turn=said.is_later(each),
            no_room=no_room,
        )  # fmt: skip
        found[each["metadata"]["name"]] = why_queued(waiting)
    return found


def verdict_of(reason: Reason) -> str:
    """Whether a reason promises something: `NEVER`, `BY_ITSELF`, or nothing."""
    if "will never admit it" in reason.why or "does not fit the existing nodes" in reason.why:
        return NEVER
    return BY_ITSELF if "by itself" in reason.hint else ""


def play(kueue: Kueue, traces: list[Trace]) -> list[tuple[Job, Reason, bool, bool]]:
    """Return of each Workload that waits what is said, whether it starts, and whether nothing runs at the end."""
    by_name = {each.made.name: each for each in traces}
    before = begin(kueue, by_name)
    said = {
        (name, job): why for name, found in before.items() for job, why in explain(by_name[name].made, found).items()
    }
    ends = find_ends(by_name, before, time.time())
    started = run_jobs(kueue, by_name, ends, said.keys())
    idle = {
        name: not any(is_true(each, "QuotaReserved") and not is_true(each, "Finished") for each in found)
        for name, found in kueue.workloads(by_name.keys()).items()
    }
    for each in traces:
        remove_set_up(kueue.client, each.made)
    return [(job, why, job in started, idle[job[0]]) for job, why in said.items()]


def measure(kubeconfig: Path, count: int, seed: int) -> bool:
    """Print what did not come true, and the row; return whether all did."""
    kueue, counts = Kueue(kubeconfig), Counter[str]()
    for first in range(0, count, BATCH):
        traces = [trace(seed, n) for n in range(first, min(first + BATCH, count))]
        for job, why, starts, idle in play(kueue, traces):
            verdict = verdict_of(why)
            counts["waiting"] += 1
            counts[verdict or "open"] += 1
            wrong = (verdict == NEVER and starts) or (verdict == BY_ITSELF and idle and not starts)
            if wrong:
                counts[f"wrong {verdict}"] += 1
                outcome = "starts" if starts else "does not start"
                print(f"{'/'.join(job)} {outcome}: {why.why}. {why.hint} [{why.message}]", flush=True)
        print(f"# {dict(counts)}", file=sys.stderr, flush=True)
    print(
        f"| seed {seed} | {count} | {counts['waiting']} | {counts[NEVER]} | {counts[f'wrong {NEVER}']} |"
        f" {counts[BY_ITSELF]} | {counts[f'wrong {BY_ITSELF}']} | {counts['open']} |"
    )
    return not counts[f"wrong {NEVER}"] + counts[f"wrong {BY_ITSELF}"]


def main() -> None:
    """Play as many set-ups as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that is there")
    args = parser.parse_args()
    with cluster_of(args.kubeconfig, kueue_alone=True) as kubeconfig:
        good = measure(kubeconfig, args.count, args.seed)
    sys.exit(not good)


if __name__ == "__main__":
    main()
