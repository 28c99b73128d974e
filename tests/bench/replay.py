"""Whether jobs that wait start in the range that was said before: generated traces of short jobs on a real Kueue.

`python -m tools.stack exec python -m tests.bench.replay --count 200 --seed 1`. The set-ups are those of `tests.bench.contention`.
Of eight jobs three report a progress that errs by up to a third, three have earlier runs of other lengths, one has a time
limit, and of one nothing is known. Jobs that are preempted begin again.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import conditions, epoch_seconds, true_condition
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.cycles import Scheduler
from pulumi_trainer.provider.kueue.scheduling.durations import LIMITS, Ends, Expectation
from pulumi_trainer.provider.kueue.scheduling.forecast import find_starts
from pulumi_trainer.provider.kueue.scheduling.snapshot import take_snapshot

from .contention import APART, BATCH, KINDS, SETTLES, Kueue, SetUp, is_true, make_set_up, remove_set_up, set_up
from .verdicts import cluster_of

Document = dict[str, Any]
Job = tuple[str, str]
"""Set-up and Workload."""
LATE = 2.0
"""Seconds that this bench and Kueue may take to see an end."""


@dataclass
class Trace:
    """What a set-up's jobs do. lengths: How long they really run, in seconds. known: What is known of that."""

    made: SetUp
    lengths: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)


def trace(seed: int, number: int) -> Trace:
    """A trace; the same for the same numbers."""
    made, draw = set_up(seed, number), random.Random(f"replay-{seed}-{number}")
    found = Trace(made)
    for workload in made.workloads:
        name = workload["metadata"]["name"]
        found.lengths[name] = draw.uniform(20, 60)
        found.errors[name] = draw.uniform(0.75, 1.33)
        found.ways[name] = draw.choice(("progress", "progress", "progress", "runs", "runs", "runs", "limit", "nothing"))
        if found.ways[name] == "limit":
            workload["spec"]["maximumExecutionTimeSeconds"] = 90
    return found


@dataclass(frozen=True)
class Said:
    """The range of a start. first, last: As expected. latest: By time limits alone; infinite if open."""

    first: float
    last: float
    latest: float


def forecast(traced: Trace, workloads: list[Document], now: float, ends: dict[Job, float]) -> dict[str, Said]:
    """What we say of the Workloads that wait."""
    expected = {}
    for document in workloads:
        name = document["metadata"]["name"]
        length, error, way = traced.lengths[name], traced.errors[name], traced.ways[name]
        end = ends.get((traced.made.name, name))
        if way == "progress" and end is not None:
            expected[f"{traced.made.name}/{name}"] = Expectation(now, (end - now) * error)
        elif way in ("progress", "runs"):  # those that run begin now
            passed = 0.0 if end is None else now - _reserved(document)
            runs = (passed + length * share for share in (0.85, 1.15, error))
            expected[f"{traced.made.name}/{name}"] = Expectation(runs=tuple(runs))
    documents = tuple(document for _, document in traced.made.objects if document["kind"] in KINDS)

    def starts(which: Ends) -> dict[str, float]:
        snapshot, waiting = take_snapshot(Queues(documents, KINDS), workloads)
        scheduler = Scheduler(snapshot, waiting)
        scheduler.run()
        found = find_starts(scheduler, now, which)
        return {scheduler.outcomes[key].contender.job.rpartition("/")[2]: start.at for key, start in found.items()}

    first, last, latest = starts(Ends(expected, 0)), starts(Ends(expected)), starts(LIMITS)
    return {name: Said(*sorted((first[name], last[name])), latest[name]) for name in first}


def _reserved(document: Document) -> float:
    return epoch_seconds(true_condition(conditions(document), "QuotaReserved").get("lastTransitionTime"))


def begin(kueue: Kueue, traces: dict[str, Trace]) -> dict[str, list[Document]]:
    """Create set-ups and their Workloads one after the other; return these by set-up, when nothing is evicted any more."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: make_set_up(kueue.client, each.made), traces.values()))
    time.sleep(SETTLES)
    for wave in range(max(len(each.made.workloads) for each in traces.values())):
        for each in traces.values():
            if wave < len(each.made.workloads):
                kueue.client.create(WORKLOAD, each.made.workloads[wave])
        kueue.settle(traces.keys(), APART)
    kueue.settle(traces.keys(), SETTLES)
    return kueue.workloads(traces.keys())


def find_ends(traces: dict[str, Trace], workloads: dict[str, list[Document]], now: float) -> dict[Job, float]:
    """Return when the jobs end that run now."""
    return {
        (name, each["metadata"]["name"]): now + traces[name].lengths[each["metadata"]["name"]]
        for name, found in workloads.items()
        for each in found
        if is_true(each, "QuotaReserved")
    }


def play(kueue: Kueue, traces: list[Trace]) -> list[tuple[Said, float]]:
    """Return of each Workload that waits what was said, and when it started, in seconds from then on; infinite if it did not."""
    by_name = {each.made.name: each for each in traces}
    before = begin(kueue, by_name)
    now = time.time()
    ends = find_ends(by_name, before, now)
    said = {
        (name, job): found
        for name, workloads in before.items()
        for job, found in forecast(by_name[name], workloads, now, ends).items()
    }
    started = run_jobs(kueue, by_name, ends, said.keys())
    for each in traces:
        remove_set_up(kueue.client, each.made)
    return [
        (Said(what.first - now, what.last - now, what.latest - now), started.get(job, math.inf) - now)
        for job, what in said.items()
    ]


def run_jobs(kueue: Kueue, traces: dict[str, Trace], ends: dict[Job, float], waiting: Any) -> dict[Job, float]:
    """End jobs when they end, until all have started or nothing runs any more; return when those that wait did."""
    started: dict[Job, float] = {}
    while ends and len(started) < len(waiting):
        time.sleep(0.2)
        found = kueue.workloads(traces.keys())
        for name, workloads in found.items():
            for document in workloads:
                job, clock = (name, document["metadata"]["name"]), time.time()
                if is_true(document, "Evicted") and is_true(document, "QuotaReserved"):
                    kueue.release(document)
                    ends.pop(job, None)
                elif is_true(document, "Finished") or not is_true(document, "QuotaReserved"):
                    ends.pop(job, None)
                elif job not in ends:
                    started.setdefault(job, clock)
                    ends[job] = clock + traces[name].lengths[job[1]]
                elif ends[job] <= clock:
                    _finish(kueue, document)
    return started


def _finish(kueue: Kueue, document: Document) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now}
    kueue.patch_status(document, {"conditions": [*conditions(document), ended]})


def measure(kubeconfig: Path, count: int, seed: int) -> None:
    """Print the row."""
    kueue, counts = Kueue(kubeconfig), Counter[str]()
    for begin in range(0, count, BATCH):
        for said, start in play(kueue, [trace(seed, n) for n in range(begin, min(begin + BATCH, count))]):
            counts["waiting"] += 1
            if start > said.latest + LATE:
                counts["after the latest"] += said.latest != math.inf
            if said.last == math.inf:
                counts["open"] += 1
                continue
            if start == math.inf:
                counts["did not start"] += 1
                continue
            counts["ranges"] += 1
            inside = said.first - LATE <= start <= said.last + LATE
            counts["inside"] += inside
            if not inside:
                print(f"# said {said.first:.0f} to {said.last:.0f} s, started after {start:.0f} s", file=sys.stderr)
            counts["narrow"] += said.last <= 2 * said.first
        print(f"# {dict(counts)}", file=sys.stderr, flush=True)
    ranges = max(1, counts["ranges"])
    print(
        f"| seed {seed} | {count} | {counts['waiting']} | {counts['ranges']} | {counts['inside'] / ranges:.0%} |"
        f" {counts['narrow'] / ranges:.0%} | {counts['open']} | {counts['did not start']} | {counts['after the latest']} |"
    )


def main() -> None:
    """Replay as many traces as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that is there")
    args = parser.parse_args()
    with cluster_of(args.kubeconfig) as kubeconfig:
        measure(kubeconfig, args.count, args.seed)


if __name__ == "__main__":
    main()
