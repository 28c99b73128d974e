"""PT215: whom a change of quota affects, out of Workloads as the real Kueue writes them (tests/cluster/test_queue_changes.py)."""

from __future__ import annotations

from occupancy_support import ADMITTED, GPU, LOCAL, RESERVED, WAITS, Document, cluster_queue, workload
from pulumi_trainer.provider.trainer.admission.warnings import Queues, complete_queues, queue_warnings

API = {"apiVersion": "kueue.x-k8s.io/v1beta2"}


def queue(name: str, gpus: int, cohort: str = "", flavor: str = "h100", **preemption: str) -> Document:
    made = {**API, **cluster_queue(name, cohort=cohort)}
    quotas = made["spec"]["resourceGroups"][0]["flavors"][0]
    quotas["name"], quotas["resources"][0]["nominalQuota"] = flavor, gpus
    made["spec"]["preemption"] = preemption
    return made


def holding(name: str, gpus: int, priority: int, at: str, flavor: str = "h100") -> Document:
    pods = {"name": "node", "flavors": {GPU: flavor}, "resourceUsage": {GPU: str(gpus)}}
    admission = {"clusterQueue": "red", "podSetAssignments": [pods]}
    reserved = {**RESERVED, "lastTransitionTime": at}
    spec = {"priority": priority, "priorityClassRef": {"name": f"p{priority}"}}
    return {**API, **workload(name, reserved, ADMITTED, gpus=gpus, admission=admission, spec=spec)}


def waiting(name: str, gpus: int) -> Document:
    return {**API, **workload(name, WAITS, gpus=gpus)}


def told(program: list[Document], there: list[Document]) -> list[str]:
    queues = Queues(tuple(program), below=complete_queues([*there, {**API, **LOCAL}]))
    return [f"{w.where} {w.why}" for w in queue_warnings(program, queues) if w.code == "PT215"]


EARLY, LATE = "2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z"
JOBS = [holding("old", 4, 0, EARLY), holding("new", 4, 0, LATE), holding("high", 8, 5, LATE), waiting("small", 2)]


def test_the_jobs_over_quota_are_those_that_kueue_preempts_first() -> None:
    before, after = queue("red", 16), queue("red", 10, withinClusterQueue="LowerPriority")
    assert told([after], [before, *JOBS]) == [
        "ClusterQueue red: spec.resourceGroups jobs use 16 nvidia.com/gpu in flavor h100, 6 more than the new quota of 10:"
        " team/new (p0), team/old (p0) are over quota; jobs run until they end, unless Kueue preempts them for jobs of a"
        " higher priority in the queue itself"
    ]
    (one,) = told([queue("red", 12)], [before, *JOBS])
    assert ": team/new (p0) is over quota; " in one and one.endswith("Kueue preempts none of them")
    assert told([before], [before, *JOBS]) == [] and told([queue("red", 32)], [before, *JOBS]) == []


def test_the_queues_of_the_cohort_take_their_quota_back() -> None:
    taker = queue("blue", 8, "all", reclaimWithinCohort="Any")
    (over,) = told([queue("red", 8, "all")], [queue("red", 16, "all"), taker, *JOBS])
    assert over.endswith("unless Kueue preempts them for jobs of blue, which take back their quota")


def test_jobs_that_never_fit_any_more() -> None:
    there = [queue("red", 16), waiting("large", 12), waiting("huge", 20), waiting("small", 2)]
    (never,) = told([queue("red", 8)], there)
    assert "waiting jobs would never fit: team/large (couldn" in never and "huge" not in never and "small" not in never
    over, again = told([queue("red", 4)], [queue("red", 16), holding("runs", 8, 0, EARLY)])
    assert "team/runs (p0) is over quota" in over
    assert "running jobs would never start again after a suspension: team/runs (p0) (couldn't assign flavors" in again


def test_a_queue_of_another_stack_in_the_cohort_is_affected_too() -> None:
    """The program lends less, so a job of a queue that it does not make never fits any more."""
    red, job = queue("red", 4, "all"), waiting("large", 12)
    (never,) = told([queue("blue", 2, "all")], [red, queue("blue", 8, "all"), job, cohort_of("all")])
    assert never.startswith("ClusterQueue red: spec.resourceGroups waiting jobs would never fit: team/large (couldn")


def cohort_of(name: str) -> Document:
    return {**API, "kind": "Cohort", "metadata": {"name": name}, "spec": {}}


def test_a_flavor_of_the_same_gpus_changes_nothing() -> None:
    """As a new topology of GpuQueues makes one: its jobs go on, and count in the new flavor."""
    before, job = queue("red", 8, flavor="h100-3fa2c1"), holding("runs", 8, 0, EARLY, "h100-3fa2c1")
    assert told([queue("red", 8, flavor="h100-77bc01")], [before, job]) == []
    (over,) = told([queue("red", 8, flavor="l40s")], [before, job])
    assert "8 more than the new quota of 0" in over


def test_a_cohort_with_less_quota_of_its_own() -> None:
    def cohort(gpus: int) -> Document:
        spec = {"resourceGroups": queue("any", gpus)["spec"]["resourceGroups"]}
        return {**cohort_of("all"), "spec": spec}

    there = [queue("red", 4, "all"), waiting("large", 12), cohort(8)]
    (never,) = told([cohort(4)], there)
    assert never.startswith("ClusterQueue red: spec.resourceGroups waiting jobs would never fit: team/large (couldn")
    assert told([cohort(8)], there) == [] and told([cohort(16)], there) == []
