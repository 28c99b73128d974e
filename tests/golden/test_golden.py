"""Documents through the offline cluster against what the real Kubeflow Trainer made of the same: see README.md."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
from golden_cases import CASES, NAMES, RecordedCluster, expected, having
from pulumi_trainer.provider.kubernetes.values.documents import documents
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job, review, review_jobset
from pulumi_trainer.provider.trainer.go_structs import as_go_struct
from pulumi_trainer.provider.trainer.offline import Cluster, Verdicts, judge, report
from pulumi_trainer.provider.trainer.offline.cluster import UID
from pulumi_trainer.provider.trainer.pipeline import render


@functools.cache
def ran(name: str) -> tuple[Cluster, Verdicts]:
    """The cluster after all documents of a case."""
    cluster, verdicts = RecordedCluster("trainer"), Verdicts()
    for _ in judge(documents(CASES / name / "input.yaml"), cluster, verdicts):
        pass
    return cluster, verdicts


def actual(name: str) -> dict[str, Any]:
    return copy.deepcopy(report(ran(name)[1]))


def stored(name: str, kind: str) -> dict[str, Any] | None:
    cluster, verdicts = ran(name)
    assert verdicts.last is not None
    return cluster.get((GROUPS[kind], kind, verdicts.last.namespace, verdicts.last.name))


GROUPS = {"TrainJob": "trainer.kubeflow.org", "JobSet": "jobset.x-k8s.io"}


def test_every_case_is_here() -> None:
    assert len(NAMES) == 309
    assert sum(expected(name)["admitted"] for name in NAMES) == 195


@pytest.mark.parametrize("name", NAMES)
def test_verdict(name: str) -> None:
    wanted, found = expected(name), actual(name)
    assert (found["admitted"], found["stage"]) == (wanted["admitted"], wanted.get("stage"))
    errors = {(e["field"], e["type"], e["detail"]) for e in found["errors"]}
    if found["stage"] in ("decode", "mutating-webhook"):  # Go's decoder has its words, we have others
        assert errors and all(detail for _, _, detail in errors)
    else:
        assert errors == {(e["field"], e["type"], e["detail"]) for e in wanted.get("errors", [])}


def compared(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without owners; of what is generated, and of Flux's scripts, only which keys there are."""
    found = copy.deepcopy(objects)
    for document in found:
        document["metadata"].pop("ownerReferences", None)
        if document["kind"] == "Secret" or document["metadata"]["name"].endswith("-flux-entrypoint"):
            document["data"] = sorted(document["data"])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_objects(name: str) -> None:
    wanted = expected(name)
    right = [wanted["objects"], *(alternative["objects"] for alternative in wanted.get("alternatives", []))]
    assert compared(actual(name)["objects"]) in [compared(objects) for objects in right]


@pytest.mark.parametrize("name", having("objectsError"))
def test_why_nothing_is_built(name: str) -> None:
    assert any("nothing is built" in warning for warning in actual(name)["warnings"])


def without_times(status: dict[str, Any]) -> dict[str, Any]:
    for condition in status.get("conditions", []):
        condition.pop("lastTransitionTime")
    return status


@pytest.mark.parametrize("name", having("reconcile"))
def test_status(name: str) -> None:
    wanted = copy.deepcopy(expected(name)["reconcile"]["status"])
    assert without_times(actual(name)["status"]) == without_times(wanted)


@pytest.mark.parametrize("name", having("trainJob"))
def test_train_job_as_stored(name: str) -> None:
    wanted, mine = copy.deepcopy(expected(name)["trainJob"]), stored(name, "TrainJob")
    assert mine is not None
    for document in (mine, wanted):
        for patch in document["spec"].get("runtimePatches", []):
            patch.pop("time")
        for key in ("creationTimestamp", "generation"):
            document["metadata"].pop(key, None)
        document.pop("status", None)
    assert mine == wanted


@pytest.mark.parametrize("name", having("snapshot"))
def test_runtime_as_stored(name: str) -> None:
    wanted = expected(name)["snapshot"]["runtime"]
    cluster, verdicts = ran(name)
    assert verdicts.last is not None
    snapshot = cluster.get(("", "ConfigMap", verdicts.last.namespace, f"{verdicts.last.name}-runtime-snapshot"))
    assert snapshot is not None
    if snapshot["kind"] == "ConfigMap":  # one of the documents
        return
    mine = as_go_struct("TrainingRuntimeSpec", snapshot["spec"], None, Findings(), applied=True)
    no_template: dict[str, Any] = {"template": {"metadata": {}, "spec": {}}}  # left out if it is empty
    assert {**no_template, **mine} == {**no_template, **wanted["spec"]}
    assert snapshot["metadata"]["name"] == wanted["metadata"]["name"]


def jobset_of(name: str) -> dict[str, Any]:
    return next(o for o in expected(name)["objects"] if o["kind"] == "JobSet")


@pytest.mark.parametrize("name", having("jobSetDefaulted"))
def test_jobset_as_stored(name: str) -> None:
    assert review(jobset_of(name)).stored == expected(name)["jobSetDefaulted"]


@pytest.mark.parametrize("name", having("jobSetAdmission"))
def test_jobset_is_admitted_or_not(name: str) -> None:
    assert review(jobset_of(name)).admitted == expected(name)["jobSetAdmission"]["admitted"]


@pytest.mark.parametrize("name", having("jobSetUpdateAdmission"))
def test_update_of_the_jobset(name: str) -> None:
    told = any(warning.startswith("JobSet/") for warning in actual(name)["warnings"])
    assert told == (not expected(name)["jobSetUpdateAdmission"]["admitted"])


PLAIN = [
    name
    for name in having("objects")
    if "alternatives" not in expected(name)
    and [d.content["kind"] for d in documents(CASES / name / "input.yaml")] == ["ClusterTrainingRuntime", "TrainJob"]
]


@pytest.mark.parametrize("name", PLAIN)
def test_rendering_by_itself(name: str) -> None:
    """As components do it: with the defaults, without a cluster."""
    runtime, train_job = (d.content for d in documents(CASES / name / "input.yaml"))
    train_job["metadata"]["uid"] = UID
    rendered = render(default_runtime(runtime), default_train_job(train_job), mode="trainer")
    found = sorted(compared([*rendered.objects.values()]), key=identity)
    assert found == sorted(compared(expected(name)["objects"]), key=identity)


def identity(document: dict[str, Any]) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


WITHOUT_IMAGE = {
    "g-init-container-in-containers",
    "g-node-env-in-init-containers",
    "g-unknown-initcontainer",
    "i-empty-image-command",
}
"""JobSet admits containers without an image, of which no Pod can be made: we say so at once."""
WITHOUT_MOUNT_PATH = "g-volumemount-no-path"
"""The same for a mount without a path."""


@pytest.mark.parametrize("name", having("jobSetAdmission"))
def test_what_users_are_told_about_a_jobset(name: str) -> None:
    found = review_jobset(jobset_of(name))
    if name in WITHOUT_IMAGE:
        assert [problem.why for problem in found] == ["is required"] and found[0].where.endswith(".image")
    elif name == WITHOUT_MOUNT_PATH:
        assert [problem.why for problem in found] == ["Required value"] and found[0].where.endswith(".mountPath")
    else:
        assert (not found) == expected(name)["jobSetAdmission"]["admitted"]
