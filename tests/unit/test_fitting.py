"""Whether a queue could ever admit a job: tests/cluster/test_teams.py holds the words against the real Kueue's."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue import fit, podsets
from pulumi_trainer.provider.kueue.fit import reason_not_fitting
from pulumi_trainer.provider.kueue.labels import PREFERRED, REQUIRED, TOGETHER
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from pulumi_trainer.provider.kueue.quota import amount

Document = dict[str, Any]
GPU = "nvidia.com/gpu"


def kueue(kind: str, name: str, **spec: Any) -> Document:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def group(*flavors: tuple[str, dict[str, Any]]) -> Document:
    """A resource group: flavors with a quota of each resource."""
    shown = [
        {"name": name, "resources": [{"name": r, "nominalQuota": n} for r, n in quotas.items()]}
        for name, quotas in flavors
    ]
    return {"coveredResources": [*flavors[0][1]], "flavors": shown}


def step(
    name: str, pods: int = 1, notes: dict[str, str] | None = None, spec: Document | None = None, **asks: Any
) -> Document:
    resources = {"limits": {GPU if name == "gpu" else name: n for name, n in asks.items()}} if asks else {}
    pod = {"containers": [{"name": "node", "resources": resources}], **(spec or {})}
    template = {"metadata": {"annotations": notes or {}}, "spec": pod}
    job = {"parallelism": pods, "completions": pods, "template": template}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def said(groups: list[Document], *steps: Document, beside: tuple[Document, ...] = (), cohort: str = "") -> str:
    """Cause and words of what never fits."""
    queue = kueue("ClusterQueue", "q", resourceGroups=groups, **({"cohortName": cohort} if cohort else {}))
    named = {d["metadata"]["name"] for d in beside}
    flavors = {f["name"] for g in groups for f in g["flavors"]} - named
    known = complete_queues([queue, *(kueue("ResourceFlavor", name) for name in sorted(flavors)), *beside])
    found = reason_not_fitting({"spec": {"replicatedJobs": list(steps)}}, queue, known)
    return f"{found.cause}: {found.words.partition(': ')[2]}" if found else ""


SMALL = group(("h100", {GPU: 8}))


def short(asked: int, most: int, flavor: str = "h100", before: int = 0, resource: str = GPU) -> str:
    return (
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({before})"
        f" + current podset request ({asked}) > maximum capacity ({most})"
    )


def test_all_steps_count_together() -> None:
    assert said([SMALL], step("node", gpu=8)) == ""
    assert said([SMALL], step("node", 2, gpu=8)) == f"capacity: {short(16, 8)}"
    assert said([SMALL], step("fetch", gpu=4), step("node", gpu=8)) == f"capacity: {short(8, 8, before=4)}"


def test_each_step_may_have_another_flavor() -> None:
    both = group(("h100", {GPU: 8}), ("a100", {GPU: 16}))
    assert said([both], step("one", gpu=8), step("two", 2, gpu=8)) == ""
    assert said([both], step("one", 2, gpu=8), step("two", gpu=8)) == "", "whichever comes first"
    words = said([both], step("one", 2, gpu=8), step("two", 2, gpu=8))
    assert words == f"capacity: {short(16, 16, 'a100', 16)}, {short(16, 8)}"


def test_resources_of_a_group_have_the_same_flavor() -> None:
    both = group(("h100", {GPU: 8, "cpu": 4}), ("a100", {GPU: 4, "cpu": 64}))
    assert said([both], step("node", gpu=8, cpu=4)) == ""
    assert said([both], step("node", gpu=8, cpu=8)).startswith("capacity: ")
    assert said([group(("h100", {GPU: 8})), group(("any", {"cpu": 64}))], step("node", gpu=8, cpu=8)) == ""


def test_what_is_not_covered() -> None:
    assert said([SMALL], step("node", gpu=1, cpu=1)) == "uncovered: resource cpu unavailable in ClusterQueue"
    assert said([SMALL], step("node", cpu=0)) == "", "nothing of it"
    assert (
        said([group(("h100", {GPU: 8, "pods": 2}))], step("node", 3, gpu=1))
        == f"capacity: {short(3, 2, resource='pods')}"
    )


def test_borrowing() -> None:
    lender = kueue("ClusterQueue", "lender", cohortName="all", resourceGroups=[SMALL])
    assert said([SMALL], step("node", 2, gpu=8), beside=(lender,), cohort="all") == ""
    assert said([SMALL], step("node", 3, gpu=8), beside=(lender,), cohort="all") == f"capacity: {short(24, 16)}"
    circle = (kueue("Cohort", "all", parentName="all"),)
    assert said([SMALL], step("node", 3, gpu=8), beside=circle, cohort="all") == "", "that is told by itself"


def test_of_a_cohort_that_is_not_all_known_nothing_is_said() -> None:
    queue = kueue("ClusterQueue", "q", cohortName="all", resourceGroups=[SMALL])
    jobset = {"spec": {"replicatedJobs": [step("node", 2, gpu=8)]}}
    assert reason_not_fitting(jobset, queue, Queues((queue,))) is None
    assert reason_not_fitting(jobset, queue, Queues((queue,), frozenset({"ClusterQueue", "Cohort"}))) is not None


def test_taints_and_labels() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    tainted = kueue("ResourceFlavor", "h100", nodeTaints=[taint])
    assert (
        said([SMALL], step("node", gpu=1), beside=(tainted,))
        == "flavor: untolerated taint {gpu  NoSchedule <nil>} in flavor h100"
    )
    assert said([SMALL], step("node", gpu=1, spec={"tolerations": [{"operator": "Exists"}]}), beside=(tainted,)) == ""
    tolerant = kueue("ResourceFlavor", "h100", nodeTaints=[taint], tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert said([SMALL], step("node", gpu=1), beside=(tolerant,)) == ""
    labelled = kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100", "memory": "80"})
    other = step("node", gpu=1, spec={"nodeSelector": {"gpu": "a100", "zone": "x"}})
    assert said([SMALL], other, beside=(labelled,)) == "flavor: flavor h100 doesn't match node affinity"
    assert said([SMALL], step("node", gpu=1, spec={"nodeSelector": {"zone": "x"}}), beside=(labelled,)) == "", (
        "another label"
    )


def test_the_tolerations_of_pods_are_read_once_for_all_flavors(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counted(Tolerations):
        def __init__(self, tolerations: list[Document]) -> None:
            read.append(len(tolerations))
            super().__init__(tolerations)

    for module in (fit, podsets):
        monkeypatch.setattr(module, "Tolerations", Counted)
    taints = [{"key": f"k{at}", "effect": "NoSchedule"} for at in range(8)]
    names = [f"f{at}" for at in range(50)]
    flavors = tuple(kueue("ResourceFlavor", name, nodeTaints=taints) for name in names)
    tolerations = [{"key": f"t{at}", "operator": "Exists"} for at in range(1000)]
    groups = [group(*((name, {GPU: 8}) for name in names))]
    assert "untolerated taint" in said(groups, step("node", gpu=1, spec={"tolerations": tolerations}), beside=flavors)
    assert sum(read) == 1000


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "gpu", "operator": "In", "values": ["h100"]}, True),
        ({"key": "gpu", "operator": "In", "values": ["a100"]}, False),
        ({"key": "gpu", "operator": "NotIn", "values": ["h100"]}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "DoesNotExist"}, False),
        ({"key": "memory", "operator": "Gt", "values": ["40"]}, True),
        ({"key": "memory", "operator": "Lt", "values": ["40"]}, False),
        ({"key": "zone", "operator": "In", "values": ["x"]}, True),
    ],
)
def test_affinity(expression: Document, fits: bool) -> None:
    labelled = kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100", "memory": "80"})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    pod = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    assert (said([SMALL], step("node", gpu=1, spec=pod), beside=(labelled,)) == "") is fits


RACKS = kueue("Topology", "dc", levels=[{"nodeLabel": "block"}, {"nodeLabel": "rack"}])
PLACED = kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, topologyName="dc")


def test_topologies() -> None:
    placed = (PLACED, RACKS)
    assert said([SMALL], step("node", gpu=1, notes={REQUIRED: "rack"}), beside=placed) == ""
    assert said([SMALL], step("node", gpu=1, notes={PREFERRED: "row"}), beside=placed) == (
        'flavor: Flavor "h100" does not contain the requested level'
    )
    assert said([SMALL], step("node", gpu=1, notes={REQUIRED: "rack"})) == (
        'flavor: Flavor "h100" does not support TopologyAwareScheduling'
    )
    both = group(("h100", {GPU: 8}), ("plain", {GPU: 8}))
    assert said([both], step("node", gpu=8), step("other", gpu=8), beside=placed).endswith(
        'Flavor "h100" supports only TopologyAwareScheduling, ' + short(8, 8, "plain", 8)
    )
    assert said([SMALL], step("node", gpu=1), beside=placed) == "", "where all flavors have one, it goes without saying"


def test_a_step_that_asks_for_nothing_in_a_topology() -> None:
    placed = (PLACED, RACKS)
    assert said([SMALL], step("fetch"), step("node", gpu=1), beside=placed) == "flavor: no TAS flavor assigned"
    assert said([SMALL], step("fetch"), step("node", gpu=1)) == "", "without a topology it needs no flavor"
    notes = {REQUIRED: "rack", TOGETHER: "trainer"}
    launched = step("launcher", notes=notes), step("node", 2, gpu=1, notes=notes)
    assert said([SMALL], *launched, beside=placed) == "", "it has that of its group"


@pytest.mark.parametrize("place", ["replicas", "template.spec.parallelism", "template", "template.spec.template"])
def test_what_is_not_known_may_fit(place: str) -> None:
    one = step("node", 99, gpu=8)
    *above, last = place.split(".")
    at = one
    for name in above:
        at = at[name]
    at[last] = Unknown("u")
    assert said([SMALL], one) == ""


def test_many_flavors_are_given_up_on() -> None:
    many = group(*((f"f{i}", {GPU: 8}) for i in range(60)))
    steps = [step(f"s{i}", gpu=1) for i in range(4)] + [step("last", 2, gpu=8)]
    assert said([many], *steps) == "", "after so many tries it may fit"
    assert amount("8") == 8


@pytest.mark.parametrize("metadata", [{"name": "x", "namespace": {"name": "a"}}, {"name": ["x"]}, {"name": {}}])
def test_names_that_are_no_texts_are_passed_over(metadata: Any) -> None:
    odd = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata}
    queues = Queues((odd,), below=complete_queues([odd]))
    assert queues.of("LocalQueue") and queues.find("LocalQueue", "x", {"name": "a"}) is None
