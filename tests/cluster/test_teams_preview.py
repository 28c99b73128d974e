"""What a preview says of queues and of jobs in them, held against what Kueue says and does later."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.provider.kueue.api_resources import ADMISSION_CHECK, CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.trainer.labels import ANCESTOR

from . import least
from .jobs import slip, until
from .programs import sent
from .teams_support import MODES, Document, Teams, made_teams, runtime  # noqa: F401 (the fixture teams)


def plain(teams: Teams, **queue: Any) -> None:
    teams.flavor()
    teams.queue("red", 8, **queue)


def of_two(teams: Teams) -> None:
    """The other queue keeps half of what it has."""
    teams.flavor()
    teams.queue("red", 8)
    groups = teams.root.get(CLUSTER_QUEUE, "", teams.name("red"))["spec"]["resourceGroups"]  # type: ignore[index]
    groups[0]["flavors"][0]["resources"][0] |= {"nominalQuota": 8, "lendingLimit": 4}
    teams.make(CLUSTER_QUEUE, teams.name("blue"), spec={"cohortName": teams.namespace, "resourceGroups": groups})


def in_topology(teams: Teams, **queue: Any) -> None:
    teams.in_racks(2)
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
        assert told[0].partition(". Hint")[0].endswith(words), (told[0], words)
    # the ClusterQueue may not be read here, and might have another flavor
    teams.says("job", "Kueue will never admit it as it is|which cannot be read, it never starts")


@pytest.mark.parametrize("mode", MODES)
def test_a_rack_that_is_too_small_is_warned_of_and_why_says_so(teams: Teams, mode: str) -> None:
    """PT211: Kueue has quota for the job, and says how many pods have room; whether waiting helps, it does not say."""
    teams.mode = mode
    teams.in_racks(3)
    teams.queue("red", 32)
    teams.ready("red")
    made = teams.seeing().plan("job", 3, queue="red", topology=trainer.Required(teams.rack))
    (told,) = [str(w) for w in made.warnings]
    said = (
        f"no domain of {teams.rack} in flavor {teams.name('h100')} is large enough: the largest, r0, has room for"
        " 2 of 3 pods of node"
        f" (8 {teams.gpu} each), even when nothing else runs"
    )
    assert told.startswith("PT211: queue: ") and f"{said}. Hint: request a wider level" in told
    teams.submit("job", 3, queue="red", topology=trainer.Required(teams.rack))
    until(lambda: "allows to fit only 2 out of 3 pod(s)" in teams.words("job"))
    why = teams.cli("why", "job", "-n", teams.namespace).stdout
    assert "it waits in the LocalQueue red and does not fit the existing nodes: " in why
    assert f"{said}. Request a wider level, fewer nodes" in " ".join(why.split())
    why = teams.cli("why", "job", "-n", teams.namespace, kubeconfig=teams.own).stdout
    assert (
        "only 2 of its 3 pods have room. If no domain is that large, the job never starts: request a wider level" in why
    )


def test_nodes_that_are_too_few_for_a_job_that_asks_for_no_topology(teams: Teams) -> None:
    """PT211: Kueue places it in the topology that all flavors of its queue have."""
    teams.in_racks(2)
    teams.queue("red", 32)
    teams.ready("red")
    (told,) = [str(w) for w in teams.seeing().plan("job", 3, queue="red").warnings]
    said = f"the 2 nodes of flavor {teams.name('h100')} have room for 2 of 3 pods of node (8 {teams.gpu} each)"
    assert (
        told.startswith("PT211: queue: ")
        and said in told
        and told.endswith(". Hint: request fewer nodes, or less per node")
    )
    teams.submit("job", 3, queue="red")
    until(lambda: "allows to fit only 2 out of 3 pod(s)" in teams.words("job"))
    why = " ".join(teams.cli("why", "job", "-n", teams.namespace).stdout.split())
    assert f"it waits in the LocalQueue red and does not fit the existing nodes: {said}" in why
    teams.submit("fits", 2, queue="red")
    teams.becomes("fits", "Running")


def test_a_job_in_a_queue_that_is_inactive(teams: Teams) -> None:
    """`why` has the ClusterQueue's words, as far as it may be read."""
    teams.flavor()
    check = teams.name("check")
    teams.make(ADMISSION_CHECK, check, spec={"controllerName": "example.com/nobody"})
    teams.queue("red", 8, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    until(lambda: teams.active("red") == "False")
    teams.submit("job", queue="red")
    until(lambda: "is inactive" in teams.words("job"))
    why = " ".join(teams.cli("why", "job", "-n", teams.namespace).stdout.split())
    assert "its ClusterQueue is inactive: Can't admit new workloads: references inactive AdmissionCheck(s)" in why, why
    assert check in why
    shown = teams.cli("why", "job", "-n", teams.namespace, kubeconfig=teams.own).stdout
    assert "is inactive: it" in " ".join(shown.split()), shown


def test_what_fits_is_not_warned_of(teams: Teams) -> None:
    """The same queues, with jobs that Kueue admits."""
    in_topology(teams)
    teams.ready("red")
    made = teams.seeing().plan("job", 2, queue="red", topology=trainer.Required(teams.rack))
    assert [str(w) for w in made.warnings] == []
    teams.target.jobs.create(sent(made))
    teams.becomes("job", "Running")


def test_queues_that_lead_nowhere(teams: Teams) -> None:
    """PT201, PT204, PT205, PT210: what a preview says of queues, and what Kueue says of them."""
    teams.nodes(1)
    teams.flavor(nodeLabels={"sim/arch": "h100"})
    teams.queue("red", 8)
    groups = [{"coveredResources": [teams.gpu], "flavors": [
        {"name": teams.name("none"), "resources": [{"name": teams.gpu, "nominalQuota": 1}]}]}]  # fmt: skip
    behind = {"namespaceSelector": {}, "cohortName": teams.name("a"), "resourceGroups": groups}
    teams.make(CLUSTER_QUEUE, teams.name("blue"), spec=behind)
    for name, parent in (("a", "b"), ("b", "a")):
        teams.make(COHORT, teams.name(name), spec={"parentName": teams.name(parent)})
    teams.make(LOCAL_QUEUE, "blue", spec={"clusterQueue": teams.name("blue")})
    teams.make(LOCAL_QUEUE, "grey", spec={"clusterQueue": teams.name("rd")})
    until(lambda: teams.active("blue") == "False")

    told = {team: [str(w) for w in teams.seeing().plan(team, queue=team).warnings] for team in ("red", "blue", "grey")}
    h100, cohort = teams.name("h100"), teams.name("a")
    assert [w.partition(":")[0] for found in told.values() for w in found] == ["PT204", "PT205", "PT210", "PT201"]
    assert re.match(rf"PT204: ResourceFlavor {h100}: spec.nodeLabels: none of \d+ nodes has the labels", told["red"][0])
    assert f"Cohort {cohort}: spec.parentName: {cohort} -> {teams.name('b')} -> {cohort} is a cycle" in told["blue"][0]
    assert f"ResourceFlavor {teams.name('none')} does not exist: the queue is inactive" in told["blue"][1]
    assert (
        f"ClusterQueue {teams.name('rd')} does not exist" in told["grey"][0]
        and f"{teams.name('red')}?" in told["grey"][0]
    )
    assert "FlavorNotFound" in json.dumps(teams.root.get(CLUSTER_QUEUE, "", teams.name("blue")))


def test_who_sees_less_is_told_less(teams: Teams) -> None:
    """With the least rights ClusterQueues are not seen, and nothing is made up; with those of `rbac --quotas` they are."""
    plain(teams)
    teams.ready("red")
    assert [str(w) for w in teams.seeing(teams.own).plan("job", 3, queue="red").warnings] == []
    binding = least.grant(
        teams.admin, teams.namespace, "trainer-user", [*rbac.job_permissions(), *rbac.quota_permissions()]
    )
    assert binding
    assert [str(w).partition(":")[0] for w in teams.seeing(teams.own).plan("job", 3, queue="red").warnings] == ["PT203"]


def test_a_priority_class_that_is_missing(teams: Teams) -> None:
    """PT206: Kueue makes no Workload for the job, and one for the next."""
    teams.nodes(1)
    plain(teams)
    teams.ready("red")
    slip(teams.target.client, sent(teams.plan("job", queue="red", priority=teams.name("none"))))
    teams.submit("later", queue="red")
    teams.becomes("later", "Running")
    assert teams.words("job") == "" and teams.looks("job")[0] == "Queued"
    names = [w["metadata"]["ownerReferences"][0]["name"] for w in teams.root.list(WORKLOAD, teams.namespace)[0]]
    assert names == ["later"]
