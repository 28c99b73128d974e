"""The two modes of rendering differ in what docs/differences.md lists, in every golden case, and in nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from golden_cases import CASES, having
from pulumi_trainer.provider.kube.errors import Invalid
from pulumi_trainer.provider.kube.values.documents import documents
from pulumi_trainer.provider.offline import Cluster
from pulumi_trainer.provider.pipeline import render

KUEUE = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high"}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def rendered(name: str, mode: Any, **spec: Any) -> list[dict[str, Any]] | str:
    """What the last TrainJob of a case is rendered to, with labels, annotations and `spec` on top of its own."""
    cluster, last = Cluster("trainer"), None
    for document in documents(CASES / name / "input.yaml"):
        last = cluster.apply(document.content) or last
    assert last is not None
    train_job = cluster.get(("trainer.kubeflow.org", "TrainJob", last.namespace, last.name))
    snapshot = cluster.get(("", "ConfigMap", last.namespace, f"{last.name}-runtime-snapshot"))
    assert train_job is not None and snapshot is not None
    train_job["metadata"] |= {"labels": KUEUE, "annotations": {"a0": "job"}}
    train_job["spec"] |= spec
    try:
        return list(render(snapshot, train_job, mode=mode).objects.values())
    except Invalid as error:
        return str(error)


def as_controller(objects: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Objects of mode jobset with the listed differences taken back; each has to be there."""
    objects = copy.deepcopy(objects)
    jobs = [(j.get("replicas", 1), j["template"]["spec"]["parallelism"]) for j in replicated(objects)]
    for mine, other in zip(objects, theirs, strict=True):
        assert "ownerReferences" not in mine["metadata"]  # 5
        mine["metadata"]["ownerReferences"] = other["metadata"]["ownerReferences"]
        if mine["kind"] == "PodGroup":  # 12; no case has a gang of several stages
            assert mine["spec"]["minMember"] == sum(replicas * pods for replicas, pods in jobs)
            assert other["spec"]["minMember"] == sum(pods for _, pods in jobs)
            mine["spec"]["minMember"] = other["spec"]["minMember"]
        if mine["kind"] != "JobSet":
            continue
        assert KUEUE.items() <= mine["metadata"]["labels"].items()  # 1
        assert mine["metadata"]["annotations"]["a0"] == "job"
        for part in ("labels", "annotations"):
            mine["metadata"][part] = other["metadata"].get(part)
            if mine["metadata"][part] is None:
                del mine["metadata"][part]
        assert "suspend" not in mine["spec"]  # 4
        if "suspend" in other["spec"]:
            mine["spec"]["suspend"] = other["spec"]["suspend"]
        assert mine["spec"].pop("managedBy") == MULTIKUEUE  # 3
        if "managedBy" in other["spec"]:
            mine["spec"]["managedBy"] = other["spec"]["managedBy"]
        for job, its in zip(
            mine["spec"].get("replicatedJobs", []), other["spec"].get("replicatedJobs", []), strict=True
        ):
            labels = job["template"].get("metadata", {}).get("labels", {})
            if labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer":  # 2
                limit = its["template"]["spec"].pop("activeDeadlineSeconds", 60)
                assert job["template"]["spec"].pop("activeDeadlineSeconds") == min(60, limit)
    return objects


def replicated(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    jobset = next(document for document in objects if document["kind"] == "JobSet")
    found: list[dict[str, Any]] = jobset["spec"].get("replicatedJobs", [])
    return found


@pytest.mark.parametrize(
    "name", [n for n in having("snapshot") if not n.startswith("u-snapshot") or n == "u-snapshot-resume"]
)
def test_modes_differ_as_listed(name: str) -> None:
    changes = {"activeDeadlineSeconds": 60, "managedBy": MULTIKUEUE}
    mine, theirs = rendered(name, "jobset", **changes), rendered(name, "trainer", **changes)
    if isinstance(mine, str) or isinstance(theirs, str):
        assert mine == theirs
    else:
        assert as_controller(mine, theirs) == theirs
