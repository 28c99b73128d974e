"""Who holds, borrows and waits, out of documents as the real Kueue writes them (tests/cluster/test_teams.py asks that)."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from occupancy_support import ADMITTED, GPU, LOCAL, RESERVED, WAITS, Document, cluster_queue, condition, workload
from pulumi_trainer.provider.cli import queue_usage
from pulumi_trainer.provider.cli.queue_usage import (
    _MISSED,
    Shown,
    _busy,
    _cluster_table,
    _idle_counts,
    _local_table,
    _printed,
    _with_cluster_queues,
    _work_table,
)
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kueue.occupancy import Occupancy, occupancy
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot
from rich.console import Console


def test_who_holds_borrows_and_waits() -> None:
    assigned = {
        "admission": {"clusterQueue": "red", "podSetAssignments": [{"name": "node", "resourceUsage": {GPU: "16"}}]}
    }
    found = occupancy(
        [
            cluster_queue("red", 16, "all", reservingWorkloads=1, pendingWorkloads=1), cluster_queue("blue", 0, "all"), LOCAL,
            workload("holds", RESERVED, ADMITTED, spec={"priority": 7, "priorityClassRef": {"name": "high"}}, **assigned),
            workload("waits", WAITS), workload("over", RESERVED, ADMITTED, condition("Finished", "True")),
        ], (),
    )  # fmt: skip
    blue, red = found.cluster_queues
    assert (red.admitted, red.pending, red.behind) == (1, 1, "all")
    assert red.shares[0].to_dict() == {
        "flavor": "h100", "resource": GPU, "nominal": "8", "used": "16", "borrowed": "8", "most": "16", "lends": "8",
    }  # fmt: skip
    assert blue.shares[0].used == 0 and blue.shares[0].most == Fraction(16)
    holds, waits = found.work
    assert (holds.name, holds.kind, holds.holds, dict(holds.asks)) == ("holds", "JobSet", True, {GPU: "16"})
    assert (holds.priority, holds.priority_class, holds.why, holds.cluster_queue) == (7, "high", "", "red")
    assert (waits.name, waits.holds, dict(waits.asks), waits.cluster_queue) == ("waits", False, {GPU: "8"}, "red")
    assert waits.why == "it waits in the LocalQueue red: 8 more of nvidia.com/gpu must become free in flavor h100"


def test_who_has_preempted_a_job() -> None:
    """The preempting job is called by its name if its Workload is there."""
    words = "Preempted to accommodate a workload (UID: u-2, JobUID: j-2) due to prioritization in the ClusterQueue"
    evicted = condition("Evicted", "True", words, "Preempted"), condition("Preempted", "True", words)
    lost, other = workload("lost", WAITS, *evicted), workload("other", RESERVED, ADMITTED)
    other["metadata"]["uid"], other["spec"]["priorityClassRef"] = "u-2", {"name": "high"}
    for there, who in (([lost, other], "team/other (high)"), ([lost], "another job")):
        (why,) = [work.why for work in occupancy(there, ()).work if work.name == "lost"]
        assert why.startswith(f"Kueue has stopped it for {who}, which has a higher priority in its own queue"), why
    (work,) = occupancy([lost], (), {"u-2": "team/gone (high)"}).work
    assert "stopped it for team/gone (high), which" in work.why, "as the record of the preempted job has it"


def test_a_status_that_is_older_than_the_workloads() -> None:
    """Kueue writes the status of queues later; of a Workload whose pods have ended in part it has less."""

    def used(status: int, reserving: int) -> list[tuple[int, str]]:
        assigned = {"name": "node", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: "4"}}
        admission = {"admission": {"clusterQueue": "red", "podSetAssignments": [assigned]}}
        jobs = [workload(name, RESERVED, ADMITTED, **admission) for name in ("a", "b")]
        local = {**LOCAL, "status": {**cluster_queue("", status)["status"], "reservingWorkloads": reserving}}
        found = occupancy([cluster_queue("red", status, reservingWorkloads=reserving), local, *jobs], ())
        return [(q.admitted, q.shares[0].to_dict()["used"]) for q in (*found.cluster_queues, *found.local_queues)]

    assert used(0, 0) == used(4, 1) == [(2, "8")] * 2
    assert used(6, 2) == [(2, "6")] * 2
    assert used(9, 1) == [(2, "9")] * 2


def test_why_a_queue_takes_no_jobs_stretches_no_column() -> None:
    why = "Can't admit new workloads: " + "references inactive AdmissionCheck(s): mk. " * 5
    stopped = cluster_queue("red", conditions=[condition("Active", "False", why.strip())])
    found = occupancy([stopped, cluster_queue("blue")], ())
    head, blue, red, said = _printed(Console(width=200), _cluster_table(found), found.cluster_queues).splitlines()
    assert head.startswith("cluster queue  flavor") and (blue[:5], red[:4]) == ("blue ", "red ")
    assert said == f"red takes no jobs: {why.strip()}"


def test_what_is_stopped_says_so() -> None:
    held = condition("Active", "False", "Can't admit new workloads: is stopped.", "Stopped")
    found = occupancy(
        [cluster_queue("red", conditions=[held]), {**LOCAL, "status": {"conditions": [held]}}], ["cohorts"]
    )
    assert (
        found.cluster_queues[0].inactive == found.local_queues[0].inactive == "Can't admit new workloads: is stopped."
    )
    assert found.to_dict()["clusterQueues"][0]["active"] is False and found.unseen == ("cohorts",)


def test_what_holds_its_quota_and_is_not_admitted_yet() -> None:
    checks = {"admissionChecks": [{"name": "budget", "state": "Pending", "message": "asked"}]}
    found = occupancy([workload("job", RESERVED, **checks)], ["clusterqueues"])
    (job,) = found.work
    assert job.holds and "admission checks of its ClusterQueue: budget is Pending (asked)" in job.why


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "Workload"}, {"kind": "Workload", "metadata": 3, "spec": [], "status": {"conditions": [None, {}]}},
        {"kind": "Workload", "spec": {"podSets": [{"count": "x", "template": {"spec": {"containers": [{"resources": 7}]}}}]}},
        {"kind": "ClusterQueue"}, {"kind": "ClusterQueue", "metadata": {"name": "q"}, "status": {"flavorsReservation": [{}]}},
        {"kind": "LocalQueue"}, {"kind": "Cohort"}, {},
    ],
)  # fmt: skip
def test_documents_may_hold_anything(broken: Document) -> None:
    occupancy([broken], []).to_dict()


def test_each_kind_that_may_be_missed_is_explained() -> None:
    assert set(_MISSED) == {"workloads", "localqueues", "clusterqueues", "cohorts"}


def test_what_has_no_limit_is_not_shown() -> None:
    queue = cluster_queue("red")
    resources = [{"name": "cpu", "nominalQuota": "1M"}, {"name": "memory", "nominalQuota": "1Pi"}]
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] += [*resources, {"name": "nic", "nominalQuota": 0}]
    reserved = queue["status"]["flavorsReservation"][0]["resources"]
    reserved.append({"name": "memory", "total": "4Gi"})
    found = occupancy([queue], [])
    assert [share.resource for share in found.cluster_queues[0].shares] == [GPU, "cpu", "memory", "nic"]
    assert [*_cluster_table(found).columns[2].cells] == [GPU, "nic"]


def test_what_a_team_uses_is_said_for_each_flavor() -> None:
    flavors = {"h100": {GPU: 36, "memory": "672Gi"}, "l40s": {GPU: 16, "memory": "128Gi"}}
    reserved = [
        {"name": name, "resources": [{"name": resource, "total": total} for resource, total in uses.items()]}
        for name, uses in flavors.items()
    ]
    local = {**LOCAL, "status": {"flavorsReservation": reserved}}
    (used,) = _local_table(occupancy([local], []).local_queues).columns[3].cells
    assert str(used) == f"h100: 36 {GPU}, 672Gi memory; l40s: 16 {GPU}, 128Gi memory"


def test_which_queues_are_shown() -> None:
    """By the name of a team, of a ClusterQueue or of a cohort; idle ones only if asked for."""
    red, blue = cluster_queue("red", 8, cohort="research", reservingWorkloads=1), cluster_queue("blue")
    other = {**LOCAL, "metadata": {"name": "sky", "namespace": "team"}, "spec": {"clusterQueue": "blue"}}
    found = occupancy([red, blue, LOCAL, other, workload("job", RESERVED, ADMITTED)], ())

    def names(shown: Shown) -> list[list[str]]:
        kept = shown.of(found)
        return [[each.name for each in part] for part in (kept.cluster_queues, kept.local_queues, kept.work)]

    assert names(Shown()) == [["blue", "red"], ["red", "sky"], ["job"]]
    assert names(Shown(queue="sky")) == [["blue"], ["sky"], []]
    assert names(Shown(queue="blue")) == [["blue"], ["sky"], []]
    assert names(Shown(cohort="research")) == [["red"], ["red"], ["job"]]
    assert names(Shown(queue="nobody")) == [[], [], []]
    assert [q.name for q in _busy(found).cluster_queues] == ["red"]
    stopped = occupancy([cluster_queue("blue", conditions=[condition("Active", "False", "stopped")])], ())
    assert [q.name for q in _busy(stopped).cluster_queues] == ["blue"], "one that takes no jobs is never hidden"


def cohort(name: str, parent: str = "") -> Document:
    return {"kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent} if parent else {}}


def tree_of(found: Occupancy, width: int = 200) -> list[str]:
    return _printed(Console(width=width), _cluster_table(found), ()).splitlines()


def test_the_tree_of_cohorts_has_the_sums_of_the_queues_below() -> None:
    lender = cluster_queue("lender", 0, "research")
    lender["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = 5
    queues = [cluster_queue("borrower", 11, "research", reservingWorkloads=1), lender, cluster_queue("top", 2, "all")]
    found = occupancy([cohort("research", "all"), cohort("empty", "all"), cluster_queue("alone"), *queues], ())
    assert any(line.startswith("  empty/") for line in tree_of(found)), "--all shows each cohort"
    found = _with_cluster_queues(found, found.cluster_queues)
    words = [" ".join(re.sub("[\u2501\u2578]", "", line).split()) for line in tree_of(found)]
    assert words == [
        "cluster queue flavor resource used borrowed lends at most holds waits",
        "alone h100 nvidia.com/gpu 0 of 8 8",
        "all/ h100 nvidia.com/gpu 13 of 24 3",
        "top h100 nvidia.com/gpu 2 of 8 8 21",
        "research/ h100 nvidia.com/gpu 11 of 16 3",
        "borrower h100 nvidia.com/gpu 11 of 8 3 8 21 1",
        "lender h100 nvidia.com/gpu 0 of 8 5 24",
    ]
    indents = [len(line) - len(line.lstrip()) for line in tree_of(found)]
    assert indents == [0, 0, 0, 2, 2, 4, 4]
    kept = Shown(cohort="all").of(found)
    assert {q.name for q in kept.cluster_queues} == {"borrower", "lender", "top"}, "with those of cohorts below"
    assert {q.name for q in Shown(cohort="research").of(found).cluster_queues} == {"borrower", "lender"}
    (summed,) = [c.to_dict() for c in found.cohorts if c.name == "research"]
    assert summed["parent"] == "all" and summed["resources"][0]["used"] == "11"


def test_long_names_fit_a_terminal_of_100_columns() -> None:
    long = "natural-language-processing-and-retrieval"
    reserved = workload(f"{long}-train", RESERVED, ADMITTED, queue=long)
    queue = cluster_queue(f"gpus-{long}", 1024, f"research-{long}", reservingWorkloads=128, pendingWorkloads=64)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 1024
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "h100-sxm-80gb-eu-west-3fa2c1"
    queue["status"]["flavorsReservation"][0]["name"] = "h100-sxm-80gb-eu-west-3fa2c1"
    found = occupancy([queue, reserved], ())
    lines = tree_of(found, 100)
    assert max(map(len, lines)) <= 100 and any("1024 of 1024" in line for line in lines), "a number is never broken"
    assert any(" 128 " in line and line.endswith(" 64") for line in lines), lines
    jobs = _printed(Console(width=100), _work_table(found.work, namespaces=True), ()).splitlines()
    assert max(map(len, jobs)) <= 100


def test_fifty_idle_queues_are_one_line() -> None:
    teams = [f"team-{i}" for i in range(50)]
    local = [{**LOCAL, "metadata": {"name": t, "namespace": t}, "spec": {"clusterQueue": t}} for t in teams]
    found = occupancy([*map(cluster_queue, teams), *local, cluster_queue("busy", 8, reservingWorkloads=1)], ())
    assert _idle_counts(found, _busy(found)) == "50 cluster queues, 50 queues"
    assert [q.name for q in _busy(found).cluster_queues] == ["busy"] and _idle_counts(found, found) == ""


@pytest.mark.parametrize(
    ("status", "reserving"),
    [({}, 2), ({"h100-3fa2c1": "8"}, 1), ({"h100-77bc01": "4"}, 2), ({"h100-3fa2c1": "8", "h100-77bc01": "4"}, 2)],
)  # fmt: skip
def test_a_topology_change_counts_each_gpu_once(status: dict[str, str], reserving: int) -> None:
    """A job admitted before in the old flavor, and one in the new; Kueue's status leaves the old one out once it is written."""

    def assigned(flavor: str, gpus: str) -> Document:
        pods = {"name": "node", "flavors": {GPU: flavor}, "resourceUsage": {GPU: gpus}}
        return {"admission": {"clusterQueue": "red", "podSetAssignments": [pods]}}

    jobs = [
        workload("before", RESERVED, ADMITTED, **assigned("h100-3fa2c1", "8")),
        workload("after", RESERVED, ADMITTED, **assigned("h100-77bc01", "4")),
    ]
    queue = cluster_queue("red", 0, reservingWorkloads=reserving)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "h100-77bc01"
    reserved = [{"name": flavor, "resources": [{"name": GPU, "total": used}]} for flavor, used in status.items()]
    queue["status"]["flavorsReservation"] = reserved
    found = occupancy([queue, LOCAL, *jobs], ())
    (share,) = found.cluster_queues[0].shares
    used = 12 if "h100-77bc01" in status or reserving == 1 else 8
    assert (share.flavor, share.used, share.nominal) == ("h100-77bc01", used, 8)


def test_a_name_that_no_queue_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [cluster_queue("gpus-nlp", cohort="research"), LOCAL]
    monkeypatch.setattr(queue_usage, "in_cluster_of_stack", lambda where: where)
    monkeypatch.setattr(queue_usage, "open_cluster", lambda _: (None, "team"))
    monkeypatch.setattr(queue_snapshot, "overview", lambda *_: (found, ()))
    where = Where(everywhere=True)
    for shown, said in (
        (Shown(queue="gpus-npl"), "--queue: the cluster has no queue 'gpus-npl'. Hint: did you mean gpus-nlp?"),
        (Shown(cohort="reserch"), "--cohort: the cluster has no cohort 'reserch'. Hint: did you mean research?"),
    ):
        for output in ("table", "json"):
            with pytest.raises(Invalid) as refused:
                queue_usage.queues(where, output=output, shown=shown)
            assert str(refused.value) == said
    found.clear()
    queue_usage.queues(where, output="table", shown=Shown(queue="gpus-npl"))
