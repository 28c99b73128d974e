"""Review and defaults of JobSets, where the golden cases do not reach."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.trainer import review_jobset


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
    ([("replicatedJobs.1.name", "model-initializer")], "spec.replicatedJobs", "model-initializer is a duplicate"),
    ([("replicatedJobs.1.replicas", -1)], "spec.replicatedJobs[1].replicas", "greater than or equal to 0"),
    ([("replicatedJobs.1.replicas", "2")], "spec.replicatedJobs[1].replicas", "whole number"),
    ([("replicatedJobs.1.template.spec.parallelism", 1.5)], ".template.spec.parallelism", "whole number"),
    ([("replicatedJobs.1.template.spec.completionMode", "indexed")], "completionMode", "'Indexed' or 'NonIndexed'"),
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
    ([("successPolicy", {"operator": "Some"})], "spec.successPolicy.operator", "'All' or 'Any'"),
    ([("failurePolicy", {"rules": [{"action": "Retry"}]})], "spec.failurePolicy.rules[0].action", "'FailJobSet'"),
    (
        [("failurePolicy", {"rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}]})],
        "rules[0].onJobFailureMessagePatterns[0]",
        "regular expression",
    ),
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
