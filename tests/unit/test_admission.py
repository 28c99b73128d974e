"""Review and defaults of JobSets, where the golden cases do not reach."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import review_jobset, stored_jobset


def jobset(name: str = "digits", **spec: Any) -> dict[str, Any]:
    def job(kind: str, nodes: int) -> dict[str, Any]:
        mounts = [{"name": "data", "mountPath": "/data"}]
        pod = {"containers": [{"name": kind, "image": "img:1", "volumeMounts": mounts}]}
        template = {"spec": {"parallelism": nodes, "completions": nodes, "template": {"spec": pod}}}
        return {"name": kind, "template": template}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"replicatedJobs": [job("model-initializer", 1), job("node", 2)], **spec},
    }


def found(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(p.where, p.why) for p in review_jobset(document)]


def test_nothing_wrong() -> None:
    assert found(jobset()) == []
    assert found(stored_jobset(jobset())) == []


@pytest.mark.parametrize(("job", "longest"), [("node", 48), ("launcher", 44), ("model-initializer", 35)])
def test_longest_names(job: str, longest: int) -> None:
    document = jobset("a" * longest)
    document["spec"]["replicatedJobs"] = [document["spec"]["replicatedJobs"][1] | {"name": job}]
    assert found(document) == []
    document["metadata"]["name"] += "a"
    (problem,) = review_jobset(document)
    assert problem.where == "metadata.name"
    assert "pod names generated for this JobSet will exceed 63 characters" in problem.why
    assert problem.hint == f"shorten it, or the name of {job}, by 1"


def test_more_nodes_leave_less_room() -> None:
    document = jobset("a" * 48)
    node = document["spec"]["replicatedJobs"].pop()
    document["spec"]["replicatedJobs"] = [node]
    node["template"]["spec"]["completions"] = 11
    assert [where for where, _ in found(document)] == ["metadata.name"]


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets, or with `...` removes, what is at a path such as `replicatedJobs.0.name` of the spec."""

    def apply(document: dict[str, Any]) -> None:
        holder: Any = document["spec"]
        *steps, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in steps:
            holder = holder[key]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value

    return apply


POD = "replicatedJobs.1.template.spec.template.spec"
DEPENDS = "replicatedJobs.1.dependsOn"
CLAIM = {"metadata": {"name": "data"}, "spec": {}}

WRONG: list[tuple[list[tuple[str, Any]], str, str]] = [
    ([("replicatedJobs.1.name", "Node")], "spec.replicatedJobs[1].name", "DNS-1035"),
    ([("replicatedJobs.1.name", "model-initializer")], "spec.replicatedJobs", "model-initializer is a duplicate"),
    ([("replicatedJobs.1.groupName", "A_b")], "spec.replicatedJobs[1].groupName", "DNS-1035"),
    (
        [("replicatedJobs.1.replicas", 2**30)],
        "spec.replicatedJobs[1]",
        "must not exceed 2147483647 for replicatedJob 'node'",
    ),
    ([("replicatedJobs.1.replicas", -1)], "spec.replicatedJobs[1].replicas", "greater than or equal to 0"),
    ([("replicatedJobs.1.replicas", "2")], "spec.replicatedJobs[1].replicas", "whole number"),
    ([("replicatedJobs.1.template.spec.parallelism", 1.5)], ".template.spec.parallelism", "whole number"),
    ([("replicatedJobs.1.template.spec.completionMode", "indexed")], "completionMode", "'Indexed' or 'NonIndexed'"),
    ([("network", {"subdomain": "a.b"})], "spec.network.subdomain", "DNS-1035"),
    ([("managedBy", "me")], "spec.managedBy", "domain-prefixed path"),
    ([("managedBy", "a.io/" + "x" * 60)], "spec.managedBy", "not be more than 63 bytes"),
    ([("replicatedJobs.0.dependsOn", [{"name": "model-initializer", "status": "Ready"}])], "[0].dependsOn", "first"),
    ([(DEPENDS, [{"name": "other", "status": "Ready"}])], "dependsOn[0].name", "cannot depend on replicatedJob: other"),
    (
        [(DEPENDS, [{"name": "node", "status": "Ready"}])],
        "dependsOn[0].name",
        "node cannot depend on replicatedJob: node",
    ),
    ([(DEPENDS, [{"name": "model-initializer", "status": "Done"}])], "dependsOn[0].status", "'Ready' or 'Complete'"),
    ([(DEPENDS, [{"name": "model-initializer", "status": "Ready"}] * 6)], "dependsOn", "at most 5"),
    (
        [
            (DEPENDS, [{"name": "model-initializer", "status": "Complete"}]),
            ("startupPolicy", {"startupPolicyOrder": "InOrder"}),
        ],
        "spec",
        "StartupPolicy and DependsOn APIs are mutually exclusive",
    ),
    (
        [("successPolicy", {"operator": "Any", "targetReplicatedJobs": ["nod"]})],
        "spec.successPolicy.targetReplicatedJobs[0]",
        "'nod' does not appear in .spec.ReplicatedJobs",
    ),
    ([("successPolicy", {"operator": "Some"})], "spec.successPolicy.operator", "'All' or 'Any'"),
    ([("failurePolicy", {"restartStrategy": "InPlaceRestart"})], "restartStrategy", "InPlaceRestart feature gate"),
    ([("failurePolicy", {"rules": [{"action": "Retry"}]})], "spec.failurePolicy.rules[0].action", "'FailJobSet'"),
    ([("failurePolicy", {"rules": [{"action": "RestartJob"}]})], "rules[0].action", "RestartJob feature gate"),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "name": "1x"}]})],
        "rules[0].name",
        "'1x', a failure policy rule name must start with an alphabetic character",
    ),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "name": "a"}] * 2})],
        "spec.failurePolicy.rules[1].name",
        "rule names are not unique",
    ),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["x"]}]})],
        "rules[0].targetReplicatedJobs[0]",
        "'x' in failure policy does not appear in .spec.ReplicatedJobs",
    ),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["OOM"]}]})],
        "rules[0].onJobFailureReasons[0]",
        "'BackoffLimitExceeded'",
    ),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}]})],
        "rules[0].onJobFailureMessagePatterns[0]",
        "regular expression",
    ),
    ([("coordinator", {"replicatedJob": "x"})], "spec.coordinator.replicatedJob", "x does not exist"),
    (
        [("coordinator", {"replicatedJob": "node", "podIndex": 2})],
        "spec.coordinator.podIndex",
        "pod index 2 is invalid",
    ),
    (
        [("coordinator", {"replicatedJob": "node", "jobIndex": 1})],
        "spec.coordinator.jobIndex",
        "job index 1 is invalid",
    ),
    (
        [("coordinator", {"replicatedJob": "node"}), ("replicatedJobs.1.template.spec.completionMode", "NonIndexed")],
        "spec.coordinator",
        "must be indexed completion mode",
    ),
    (
        [("coordinator", {"replicatedJob": "node"}), ("network", {"subdomain": "s" * 50})],
        "metadata.name",
        "no more than 63 bytes",
    ),
    ([("volumeClaimPolicies", [{"templates": [CLAIM, CLAIM]}])], "templates[1].metadata.name", "must be unique"),
    (
        [("volumeClaimPolicies", [{"templates": [{"metadata": {"name": "other"}}]}])],
        "templates[0].metadata.name",
        "don't have a matching volumeMount: other",
    ),
    (
        [("volumeClaimPolicies", [{"templates": [{"metadata": {"name": "data", "namespace": "x"}}]}])],
        "spec.volumeClaimPolicies[0]",
        "namespace cannot be set",
    ),
    (
        [("volumeClaimPolicies", [{"templates": [CLAIM]}]), (f"{POD}.volumes", [{"name": "data"}])],
        ".volumes[0].name",
        "conflicts with VolumeClaimPolicy template name: data",
    ),
    ([(f"{POD}.containers", [])], f"spec.{POD}".replace(".1.", "[1].") + ".containers", "must have a container"),
    ([(f"{POD}.containers.0.image", ...)], "containers[0].image", "is required"),
    ([(f"{POD}.containers.0.name", "")], "containers[0].name", "Required value"),
    ([(f"{POD}.containers.0.command", "python")], "containers[0].command", "must be a list"),
    ([(f"{POD}.containers.0.args", [1])], "containers[0].args[0]", "must be a string"),
    ([(f"{POD}.containers.0.env", [{"name": "A"}, {"name": "A"}])], "containers[0].env", "name A is a duplicate"),
    (
        [(f"{POD}.containers.0.ports", [{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}])],
        "containers[0].ports",
        "containerPort 1 and protocol TCP is a duplicate",
    ),
    ([(f"{POD}.restartPolicy", "Always")], "spec.restartPolicy", "OnFailure or Never"),
    (
        [("replicatedJobs.1.template.spec.podFailurePolicy", {"rules": [{"action": "FailJob"}]})],
        "spec.restartPolicy",
        "podFailurePolicy",
    ),
    ([("replicatedJob", [])], "spec.replicatedJob", "unknown field"),
    ([("ttlSecondsAfterFinished", -1)], "spec.ttlSecondsAfterFinished", "greater than or equal to 0"),
]


@pytest.mark.parametrize(("changes", "where", "why"), WRONG, ids=[w[1] + " " + w[2] for w in WRONG])
def test_one_thing_wrong(changes: list[tuple[str, Any]], where: str, why: str) -> None:
    document = jobset()
    for path, value in changes:
        change(path, copy.deepcopy(value))(document)
    problems = found(document)
    assert problems
    assert {at for at, _ in problems if not at.endswith(where)} == set()
    assert why in problems[0][1]


def test_a_name_that_is_none() -> None:
    document = jobset()
    document["metadata"]["name"] = None
    assert found(document) == [("metadata.name", "must be a string")]


def test_unknown_leaves_count_as_right() -> None:
    document = jobset(
        successPolicy={"operator": "All", "targetReplicatedJobs": [Unknown("a")]},
        network={"subdomain": Unknown("b")},
        coordinator={"replicatedJob": Unknown("c")},
        volumeClaimPolicies=[{"templates": [{"metadata": {"name": Unknown("d")}}]}],
        failurePolicy={"maxRestarts": Unknown("e"), "rules": [{"name": Unknown("f"), "action": Unknown("g")}]},
    )
    change("replicatedJobs.1.template.spec.completions", Unknown("h"))(document)
    change(f"{POD}.containers.0.image", Unknown("i"))(document)
    change(f"{POD}.containers.0.args", [Unknown("j")])(document)
    change(DEPENDS, [{"name": Unknown("k"), "status": "Ready"}])(document)
    assert found(document) == []
    document["metadata"]["name"] = Unknown("l")
    assert found(document) == []


def test_defaults_are_what_a_job_runs_with() -> None:
    given = jobset(failurePolicy={"rules": [{"action": "FailJobSet"}, {"action": "FailJobSet", "name": "x"}]})
    before = copy.deepcopy(given)
    spec = stored_jobset(given)["spec"]
    assert given == before
    job = spec["replicatedJobs"][1]
    assert (job["replicas"], job["groupName"]) == (1, "default")
    assert job["template"]["spec"]["completionMode"] == "Indexed"
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert [rule["name"] for rule in spec["failurePolicy"]["rules"]] == ["failurePolicyRule0", "x"]
    assert spec["failurePolicy"]["restartStrategy"] == "Recreate"
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
