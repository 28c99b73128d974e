"""Kueue and coscheduling together: Kueue admits a job as a whole, and then its pods get nodes together or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kueue.api_resources import QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.targets.kubernetes.observe import gang_wakeup
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.trainer.kinds import POD_GROUP

from .jobs import until
from .teams_support import MODES, Document, Teams, made_teams, runtime  # noqa: F401 (the fixture teams)

SCHEDULER = "scheduler-plugins-scheduler"


def gang(teams: Teams) -> Document:
    """A runtime whose jobs are gangs of the second scheduler."""
    document = runtime(teams)
    document["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 10}}
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["spec"]["schedulerName"] = SCHEDULER
    return document


def scheduled(teams: Teams, name: str) -> set[str]:
    """Nodes of a job's pods, from the second scheduler."""
    pods, _ = teams.root.list(kinds.POD, teams.namespace, labels=f"jobset.sigs.k8s.io/jobset-name={name}")
    assert all(p["spec"]["schedulerName"] == SCHEDULER for p in pods)
    return {p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}


def members(teams: Teams, name: str) -> int:
    return int((teams.root.get(POD_GROUP, teams.namespace, name) or {})["spec"]["minMember"])


@pytest.fixture
def observer(teams: Teams, mode: str) -> Iterator[Observer]:
    for name, seconds in (("LOOK", 0.5), ("OLD", 2.0)):
        teams.patch.setattr(gang_wakeup, name, seconds)
    made = Observer(teams.client, teams.namespace, stack="stack", trainer=mode == "trainer").start()
    yield made
    made.stop()


def runs(observer: Observer, name: str) -> None:
    """Somebody waits until it does."""

    def look() -> bool:
        observer.changed()
        status = observer.status(name)
        return status is not None and status.phase == "Running"

    assert observer.first(name) is not None
    until(look)


@pytest.mark.parametrize("mode", MODES)
def test_a_gang_waits_for_its_queue_is_preempted_and_starts_again(teams: Teams, observer: Observer, mode: str) -> None:
    """As one: its PodGroup stays, and groups the pods of the next start. Kueue starts a job while the pods of the one before are
    still going; their end does not wake a gang, so whoever waits for the job does."""
    teams.mode = mode
    teams.nodes(2)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 16)
    teams.make(QUEUE_PRIORITY, teams.name("high"), value=1000, description="of a test")
    teams.ready("red")
    teams.submit("low", 2, queue="red", document=gang(teams))
    teams.becomes("low", "Running")
    assert len(scheduled(teams, "low")) == 2 == members(teams, "low")

    teams.submit("high", 2, queue="red", priority=teams.name("high"), document=gang(teams))
    runs(observer, "high")
    teams.becomes("low", "Queued", "Preempted")
    teams.says("low", "which has a higher priority in its own queue; it is queued again")
    assert len(scheduled(teams, "high")) == 2 and scheduled(teams, "low") == set()
    assert members(teams, "low") == 2

    teams.target.jobs.delete(teams.namespace, "high")
    runs(observer, "low")
    assert len(scheduled(teams, "low")) == 2


def test_quota_without_nodes_starts_nothing(teams: Teams) -> None:
    """Kueue counts quota and admits; the gang finds one node too few, says so, and holds no node meanwhile."""
    teams.nodes(3)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 32)
    teams.ready("red")
    teams.submit("job", 4, queue="red", document=gang(teams))
    teams.becomes("job", "Starting", "WaitingForGang")
    teams.says("job", r"0 have a node .*start together or not at all|start together or not at all.* 0 have a node")
    workload = teams.root.list(WORKLOAD, teams.namespace)[0][0]
    assert {c["type"] for c in workload["status"]["conditions"] if c["status"] == "True"} >= {"Admitted"}
    assert scheduled(teams, "job") == set()
    teams.target.jobs.delete(teams.namespace, "job")
    until(lambda: not teams.root.list(WORKLOAD, teams.namespace)[0])
    assert teams.root.list(POD_GROUP, teams.namespace)[0] == []
