"""Two teams and their queues on the real Kueue: admitted, waiting, borrowing, reclaimed, preempted, placed in a rack.

What a job, `why` and `pulumi-trainer queues` say of it is held against what Kueue does.
"""

from __future__ import annotations

import copy
import re

import pulumi_trainer as trainer
import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.kueue.labels import REQUIRED, TOGETHER
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import ANCESTOR

from .jobs import until
from .programs import sent
from .teams_support import FOREVER, MODES, Teams, made_teams, runtime  # noqa: F401 (the fixture teams)


@pytest.mark.parametrize("mode", MODES)
def test_two_teams_share_what_the_other_leaves(teams: Teams, mode: str) -> None:
    """Admitted, borrowing, waiting, reclaimed, preempted, admitted again."""
    teams.mode = mode
    teams.nodes(4)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.queue("blue", 8)
    teams.make(QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
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
        f"stopped it for {teams.namespace}/reclaims, whose queue reclaims quota that it had lent; it is queued again",
    )
    teams.submit("urgent", queue="red", priority=teams.name("high"))
    teams.becomes("urgent", "Running")
    teams.becomes("own", "Queued", "Preempted")
    who = re.escape(f"{teams.namespace}/urgent ({teams.name('high')})")
    teams.says("own", f"stopped it for {who}, which has a higher priority in its own queue; it is queued again")

    teams.root.delete(MODES[mode], teams.namespace, "reclaims", propagation="Background")
    until(lambda: sum(teams.looks(name)[0] == "Running" for name in ("own", "borrows", "waits")) == 1)


@pytest.mark.parametrize("mode", MODES)
def test_the_name_of_a_preempting_job_outlives_it(teams: Teams, mode: str) -> None:
    """Whoever asks while it is there keeps it in the record of the preempted job: nobody else writes down who it was."""
    teams.mode = mode
    teams.nodes(1)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.make(QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
    teams.ready("red")
    teams.submit("own", queue="red")
    teams.becomes("own", "Running")
    teams.submit("urgent", queue="red", priority=teams.name("high"))
    teams.becomes("urgent", "Running")
    teams.becomes("own", "Queued", "Preempted")
    who = f"{teams.namespace}/urgent ({teams.name('high')})"
    assert f"stopped it for {who}" in " ".join(teams.cli("why", "own", "-n", teams.namespace).stdout.split())
    teams.root.patch(CLUSTER_QUEUE, "", teams.name("red"), {"spec": {"stopPolicy": "Hold"}})
    teams.root.delete(MODES[mode], teams.namespace, "urgent", propagation="Background")
    until(lambda: len(teams.root.list(WORKLOAD, teams.namespace)[0]) == 1)
    for command in (("why", "own"), ("queues",), ("status", "-o", "json")):
        said = " ".join(teams.cli(*command, "-n", teams.namespace).stdout.split())
        assert f"stopped it for {who}, which has a higher priority" in said, said
    status = teams.target.jobs.status(teams.namespace, "own")
    assert status is not None and who in status.message


@pytest.mark.parametrize("mode", MODES)
def test_a_job_that_kueue_has_admitted_is_adopted(teams: Teams, mode: str) -> None:
    """What Kueue has written into it, nodes of the flavor and tolerations, is no difference."""
    teams.mode = mode
    teams.nodes(2)
    teams.flavor(nodeLabels=teams.pool, tolerations=[{"key": "example.com/any", "operator": "Exists"}])
    teams.queue("red", 16)
    teams.ready("red")
    wanted = sent(teams.plan("job", 2, queue="red"))
    if mode == "trainer":
        teams.target.runtimes.apply(runtime(teams), "owner", "stack")
    main = copy.deepcopy(wanted.main)
    main["metadata"]["namespace"] = teams.namespace
    teams.root.create(MODES[mode], main)
    until(lambda: len(running(teams)) == 2)
    pods = running(teams)
    teams.target.jobs.create(wanted, adopt=True)
    assert teams.target.jobs.drift(teams.namespace, "job") == {}
    teams.becomes("job", "Running")
    assert running(teams) == pods


def running(teams: Teams) -> set[str]:
    found, _ = teams.root.list(kinds.POD, teams.namespace, fields="status.phase=Running")
    return {pod["metadata"]["uid"] for pod in found}


# --- topology ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_job_in_one_rack(teams: Teams, mode: str) -> None:
    teams.mode = mode
    teams.in_racks(4)
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
    teams.in_racks(6)
    teams.queue("red", 48)
    teams.ready("red")
    teams.submit("near", 3, queue="red", topology=trainer.Preferred(teams.rack))
    teams.becomes("near", "Running")
    assert len(teams.placed("near")) == 2
    teams.root.delete(JOBSET, teams.namespace, "near", propagation="Background")
    sliced = trainer.Unconstrained(slice_level=teams.rack, slice_size=2)
    teams.submit("slices", 4, queue="red", topology=sliced)
    teams.becomes("slices", "Running")
    assert len(teams.placed("slices")) == 2, "each two nodes have a rack of their own"


def test_what_is_held_in_a_rack(teams: Teams) -> None:
    """Initializers run where there is room; MPI's launcher runs in the rack of its nodes."""
    teams.in_racks(4)
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
    teams.target.jobs.create(sent(made))
    launcher, nodes = (until(lambda step=step: teams.settled("mpi", step)) for step in ("launcher", "node"))
    assert launcher == nodes and len(nodes) == 1


# --- the command ------------------------------------------------------------------------------------------------------------


def test_the_command_tells_who_holds_borrows_and_waits(teams: Teams) -> None:
    teams.nodes(3)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.queue("blue", 8)
    teams.queue("grey", 0, stopPolicy="Hold")
    teams.make(QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
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
    share = {
        "flavor": h100, "resource": teams.gpu, "nominal": "8", "used": "16", "borrowed": "8", "most": "16", "lends": "8",
    }  # fmt: skip
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
    assert re.search(rf"^{teams.namespace}/ +{h100} +{teams.gpu} +━+ +16 of 16 +8$", shown, re.MULTILINE), shown
    assert re.search(rf"^  {teams.name('red')} +{h100} +{teams.gpu} +━+ +16 of 8 +8 +8 +16 +2 +1", shown, re.MULTILINE)
    assert re.search(r"waits +red +waits +8 \S+ .*it waits in the LocalQueue red: 8 more of", shown), shown

    mine = teams.queues(kubeconfig=teams.own)
    assert [w["name"] for w in mine["jobs"]] == ["own", "borrows", "waits"] and mine["clusterQueues"] == []
    assert [q["name"] for q in mine["localQueues"]] == ["red"], "the only one with jobs"
    assert mine["unseen"] == ["clusterqueues", "cohorts", "localqueues"]
    told = teams.cli("queues", "-n", teams.namespace, kubeconfig=teams.own).stderr
    assert "not seen: clusterqueues (quotas, and what other jobs use)" in told and "rbac --quotas" in told
    refused = teams.cli("queues", "-n", "default", kubeconfig=teams.own)
    assert refused.returncode == 1 and "neither Workloads nor queues of namespace default can be read" in refused.stderr
