"""Kueue's objects offline: CEL rules beside an interpreter of CEL, rules between objects, versions, unknown values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.schema.field_errors import NoSuchKey
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.cel_rules import PREDICATES as KUEUE
from pulumi_trainer.provider.kueue.job_webhook import queued_problems
from pulumi_trainer.provider.kueue.object_checks import conflicts, immutable_changes, refusals
from pulumi_trainer.provider.kueue.objects import (
    KINDS,
    at_version,
    quota_rows,
    quota_table,
    references,
    served_version,
    with_canonical_quantities,
)

from tests.cluster.queue_cases import CASES, GOOD, document
from tests.trainer import review

UNKNOWN = Unknown("1")


def rule(*words: str) -> str:
    (found,) = (text for text in KUEUE if all(word in text for word in words))
    return found


TOPOLOGY, TAINTS = rule("nodeLabels.size"), rule("x, x.effect in")
ANY_KEY, SECONDS = rule("x.key"), rule("tolerationSeconds")
STUMBLING = [(TOPOLOGY, {"topologyName": "t"}), (ANY_KEY, [{}]), (SECONDS, [{"tolerationSeconds": 1}]), (TAINTS, [{}])]


@pytest.mark.parametrize(("text", "value"), STUMBLING)
def test_fields_that_are_not_there(text: str, value: Any) -> None:
    with pytest.raises(NoSuchKey):
        KUEUE[text](value, None, Schema({}))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_yet_counts_as_right_wherever_it_stands(kind: str) -> None:
    """Each leaf of a good object in turn."""
    good = document((kind, "", ...), "good", "team")
    assert refusals(good) == []
    for path in leaves(good):
        if path[0] not in ("apiVersion", "kind"):
            held = copy.deepcopy(good)
            put(held, path, UNKNOWN)
            assert refusals(held) == [], path
            references(held), [*conflicts([held])], at_version(held, "v1beta1"), with_canonical_quantities(held)


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    return [at] if below is None else [path for key, item in below for path in leaves(item, (*at, key))]


def put(value: Any, path: tuple[Any, ...], what: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = what


def test_nothing_that_somebody_writes_raises() -> None:
    """The cases that a server is asked about in tests/cluster, and each of their values somewhere else."""
    for kind, path, value in CASES:
        made = document((kind, path, value), "case", "team")
        review(made), references(made), [*conflicts([made])], at_version(made, "v1beta1")
    for kind, good in GOOD.items():
        for name in good:
            for value in (None, 1, "x", [], {}, [1], [None], {"a": 1}, [{}], [[]]):
                made = document((kind, name, value), "case", "team")
                review(made), references(made), [*conflicts([made])], at_version(made, "v1beta1")


def test_wrong_quantities_are_no_printable_ones() -> None:
    with pytest.raises(Invalid, match=r"resources\[0\].nominalQuota"):
        with_canonical_quantities({"resources": [{"nominalQuota": "8 GPUs"}]})
    assert with_canonical_quantities({"nominalQuota": "0.5Gi", "weight": 0.5, "other": 1}) == {
        "nominalQuota": "512Mi",
        "weight": "500m",
        "other": 1,
    }


def cohort(name: str, parent: str) -> dict[str, Any]:
    return document(("Cohort", "", {"parentName": parent}), name, "")


def test_circles_of_cohorts_and_equal_names() -> None:
    found = list(
        conflicts([cohort("a", "b"), cohort("b", "c"), cohort("c", "b"), cohort("d", "d"), cohort("e", "none")])
    )
    assert [(at, problem.why) for at, problem in found] == [
        (1, "is a cycle: b -> c -> b"), (3, "is a cycle: d -> d"),
    ]  # fmt: skip
    queues = [document(("LocalQueue", "", ...), "q", space) for space in ("one", "two", "one")]
    assert [at for at, _ in conflicts(queues)] == [2]
    assert not list(conflicts([cohort("a", "x"), document(("ClusterQueue", "", ...), "a", "")]))


def test_what_a_stored_object_never_changes() -> None:
    def told(kind: str, was: dict[str, Any], now: dict[str, Any], version: str = "v1beta2") -> list[str]:
        live = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": was}
        return [p.where for p in immutable_changes({**live, "apiVersion": "kueue.x-k8s.io/v1beta2", "spec": now}, live)]

    levels = {"levels": [{"nodeLabel": "rack"}]}
    assert told("Topology", levels, levels) == []
    assert told("Topology", levels, {"levels": [{"nodeLabel": "block"}]}) == ["spec.levels"]
    assert told("Topology", levels, {"levels": [{"nodeLabel": Unknown("later")}]}) == []
    flavor = {"nodeLabels": {"a": "b"}, "topologyName": "t"}
    assert told("ResourceFlavor", {"nodeLabels": {"a": "b"}}, flavor) == []
    assert told("ResourceFlavor", flavor, {"nodeLabels": {"a": "c"}}) == ["spec.topologyName", "spec.nodeLabels"]
    checks = [{"controllerName": f"example.com/{each}"} for each in "ab"]
    assert told("AdmissionCheck", *checks) == ["spec.controllerName"]
    policy = {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}}
    assert told("ClusterQueue", {}, policy) == ["spec.concurrentAdmissionPolicy"]
    assert told("ClusterQueue", {}, policy, "v1beta1") == []


def test_what_may_change_since_kueue_0_20() -> None:
    def changes(kind: str, was: dict[str, Any], now: dict[str, Any]) -> list[list[str]]:
        live = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "x"}, "spec": was}
        each = [
            immutable_changes({**live, "spec": now}, live, served) for served in (["v1beta2", "v1beta1"], ["v1beta2"])
        ]
        return [[f"{p.where} {p.why}" for p in found] for found in each]

    hosts = [{"nodeLabel": "kubernetes.io/hostname"}]
    [before], since = changes("Topology", {"levels": hosts}, {"levels": [{"nodeLabel": "rack"}, *hosts]})
    assert before.startswith("spec.levels is immutable before Kueue 0.20, and is kubernetes.io/hostname") and not since
    flavor = {"nodeLabels": {"a": "b"}, "topologyName": "t"}
    [before], since = changes("ResourceFlavor", flavor, {**flavor, "nodeLabels": {"a": "c"}})
    assert (
        before.startswith("spec.nodeLabels is immutable while the flavor has a topology before Kueue 0.20")
        and not since
    )
    before, since = changes("ResourceFlavor", flavor, {**flavor, "topologyName": "u"})
    assert (
        before == since == ["spec.topologyName is immutable while the flavor has a topology, and is t in the cluster"]
    )


def test_references_in_the_order_of_deletion() -> None:
    named = {kind for good in GOOD for kind, _, _ in references(document((good, "", ...), "x", "team"))}
    assert named == {
        "Topology",
        "Cohort",
        "ResourceFlavor",
        "AdmissionCheck",
        "ClusterQueue",
        "MultiKueueConfig",
        "MultiKueueCluster",
    }
    for kind in GOOD:
        for other, _, where in references(document((kind, "", ...), "x", "team")):
            assert [*KINDS].index(other) <= [*KINDS].index(kind), where


def test_versions() -> None:
    served = {"v1beta1": ["clusterqueues", "localqueues"], "v1alpha1": ["cohorts", "clusterqueues"]}
    assert [served_version(kind, served) for kind in ("ClusterQueue", "Cohort", "Topology")] == [
        "v1beta1",
        "v1alpha1",
        None,
    ]
    words = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    queue, problems = at_version(
        document(("ClusterQueue", "", {"cohortName": "c", "flavorFungibility": words}), "q", ""), "v1beta1"
    )
    assert queue["spec"] == {
        "cohort": "c",
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    }
    assert problems == [] and queue["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert at_version(cohort("a", "b"), "v1alpha1")[0]["spec"] == {"parent": "b"}
    assert at_version(cohort("a", "b"), "v1beta1")[0]["spec"] == {"parentName": "b"}
    automated = document(("MultiKueueConfig", "quotaManagement", "Automated"), "x", "")
    assert "has no equivalent in kueue.x-k8s.io/v1beta1" in str(at_version(automated, "v1beta1")[1][0])


@pytest.mark.parametrize("other", ["podset-required-topology", "podset-preferred-topology"])
def test_steps_of_one_group_ask_for_one_level(other: str) -> None:
    def step(name: str, kind: str, pods: int) -> dict[str, Any]:
        notes = {"kueue.x-k8s.io/podset-group-name": "g", f"kueue.x-k8s.io/{kind}": "rack"}
        pod = {"containers": [{"name": "node", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
        job = {"parallelism": pods, "completions": pods, "template": {"metadata": {"annotations": notes}, "spec": pod}}
        return {"name": name, "replicas": 1, "template": {"spec": job}}

    steps = [step("launcher", "podset-required-topology", 1), step("node", other, 4)]
    about = {"name": "j", "namespace": "d", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": about,
        "spec": {"replicatedJobs": steps},
    }
    found = [str(problem) for problem in queued_problems(jobset, jobset)]
    assert len(found) == (0 if other == "podset-required-topology" else 2), found
    assert all("topology consistent with" in each for each in found)


def test_the_table_of_quotas() -> None:
    def queue(name: str, *amounts: Any) -> dict[str, Any]:
        flavors = [{"name": f"f{i}", "resources": [{"name": "gpu", **amount}]} for i, amount in enumerate(amounts)]
        return {"metadata": {"name": name}, "spec": {"cohortName": "all", "resourceGroups": [{"flavors": flavors}]}}

    rows = quota_rows(
        [queue("q1", {"nominalQuota": 8, "lendingLimit": 0}), queue("q2", {"nominalQuota": "16"})], ["a", "b"], "gpu"
    )
    assert [(row["own"], row["borrows"], row["lends"], row["of"]) for row in rows] == [
        (8, None, 0, 24),
        ("16", None, None, 16),
    ]
    assert quota_table(rows)[1] == "a     f0      8    all      0      24"
