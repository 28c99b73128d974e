"""Documents through the offline cluster against what the real Kubeflow Trainer made of the same: see README.md."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
from golden_cases import CASES, NAMES, RecordedCluster, each_release, expected, having
from pulumi_trainer.provider.kubernetes.values.documents import documents
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job, review, review_jobset
from pulumi_trainer.provider.trainer.offline import Cluster, Verdicts, judge, report
from pulumi_trainer.provider.trainer.offline.cluster import UID
from pulumi_trainer.provider.trainer.pipeline import Release, render
from pulumi_trainer.provider.trainer.releases import RELEASES


@functools.cache
def ran(name: str, release: Release) -> tuple[Cluster, Verdicts]:
    """The cluster after all documents of a case."""
    cluster, verdicts = RecordedCluster("trainer", release), Verdicts()
    for _ in judge(documents(CASES / name / "input.yaml"), cluster, verdicts):
        pass
    return cluster, verdicts


def actual(name: str, release: Release) -> dict[str, Any]:
    return copy.deepcopy(report(ran(name, release)[1]))


def stored(name: str, kind: str, release: Release) -> dict[str, Any] | None:
    cluster, verdicts = ran(name, release)
    assert verdicts.last is not None
    return cluster.get((GROUPS[kind], kind, verdicts.last.namespace, verdicts.last.name))


GROUPS = {"TrainJob": "trainer.kubeflow.org", "JobSet": "jobset.x-k8s.io"}


def test_every_case_is_here() -> None:
    assert len(NAMES) == 312
    assert [sum(expected(name, release)["admitted"] for name in NAMES) for release in RELEASES.values()] == [200, 196]


@each_release()
def test_verdict(release: Release, name: str) -> None:
    wanted, found = expected(name, release), actual(name, release)
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


@each_release()
def test_objects(release: Release, name: str) -> None:
    wanted = expected(name, release)
    right = [wanted["objects"], *(alternative["objects"] for alternative in wanted.get("alternatives", []))]
    assert compared(actual(name, release)["objects"]) in [compared(objects) for objects in right]


@each_release("objectsError")
def test_why_nothing_is_built(release: Release, name: str) -> None:
    assert any("nothing is built" in warning for warning in actual(name, release)["warnings"])


def without_times(status: dict[str, Any]) -> dict[str, Any]:
    for condition in status.get("conditions", []):
        condition.pop("lastTransitionTime")
    return status


@each_release("reconcile")
def test_status(release: Release, name: str) -> None:
    wanted = copy.deepcopy(expected(name, release)["reconcile"]["status"])
    assert without_times(actual(name, release)["status"]) == without_times(wanted)


@each_release("trainJob")
def test_train_job_as_stored(release: Release, name: str) -> None:
    wanted, mine = copy.deepcopy(expected(name, release)["trainJob"]), stored(name, "TrainJob", release)
    assert mine is not None
    for document in (mine, wanted):
        for patch in document["spec"].get("runtimePatches", []):
            patch.pop("time")
        for key in ("creationTimestamp", "generation"):
            document["metadata"].pop(key, None)
        document.pop("status", None)
    assert mine == wanted


@each_release("snapshot")
def test_runtime_as_stored(release: Release, name: str) -> None:
    wanted = expected(name, release)["snapshot"]["runtime"]
    cluster, verdicts = ran(name, release)
    assert verdicts.last is not None
    snapshot = cluster.get(("", "ConfigMap", verdicts.last.namespace, f"{verdicts.last.name}-runtime-snapshot"))
    assert snapshot is not None
    if snapshot["kind"] == "ConfigMap":  # one of the documents
        return
    mine = release.go.as_struct("TrainingRuntimeSpec", snapshot["spec"], None, Findings(), applied=True)
    no_template: dict[str, Any] = {"template": {"metadata": {}, "spec": {}}}  # left out if it is empty
    assert {**no_template, **mine} == {**no_template, **wanted["spec"]}
    assert snapshot["metadata"]["name"] == wanted["metadata"]["name"]


def jobset_of(name: str, release: Release) -> dict[str, Any]:
    return next(o for o in expected(name, release)["objects"] if o["kind"] == "JobSet")


@each_release("jobSetDefaulted")
def test_jobset_as_stored(release: Release, name: str) -> None:
    assert review(jobset_of(name, release), release).stored == expected(name, release)["jobSetDefaulted"]


@each_release("jobSetAdmission")
def test_jobset_is_admitted_or_not(release: Release, name: str) -> None:
    assert review(jobset_of(name, release), release).admitted == expected(name, release)["jobSetAdmission"]["admitted"]


@each_release("jobSetUpdateAdmission")
def test_update_of_the_jobset(release: Release, name: str) -> None:
    told = any(warning.startswith("JobSet/") for warning in actual(name, release)["warnings"])
    assert told == (not expected(name, release)["jobSetUpdateAdmission"]["admitted"])


PLAIN = [
    (release, name)
    for release in RELEASES.values()
    for name in having("objects", release)
    if "alternatives" not in expected(name, release)
    and [d.content["kind"] for d in documents(CASES / name / "input.yaml")] == ["ClusterTrainingRuntime", "TrainJob"]
]


@pytest.mark.parametrize(("release", "name"), PLAIN)
def test_rendering_by_itself(release: Release, name: str) -> None:
    """As components do it: with the defaults, without a cluster."""
    runtime, train_job = (d.content for d in documents(CASES / name / "input.yaml"))
    train_job["metadata"]["uid"] = UID
    rendered = render(default_runtime(runtime, release), default_train_job(train_job, release), release, mode="trainer")
    found = sorted(compared([*rendered.objects.values()]), key=identity)
    assert found == sorted(compared(expected(name, release)["objects"]), key=identity)


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
NEGATIVE = "y-numnodes-negative"
"""The same for a Job with fewer than no Pods."""


@each_release("jobSetAdmission")
def test_what_users_are_told_about_a_jobset(release: Release, name: str) -> None:
    found = review_jobset(jobset_of(name, release), release)
    if name in WITHOUT_IMAGE:
        assert [problem.why for problem in found] == ["is required"] and found[0].where.endswith(".image")
    elif name == WITHOUT_MOUNT_PATH:
        assert [problem.why for problem in found] == ["Required value"] and found[0].where.endswith(".mountPath")
    elif name == NEGATIVE:
        assert [*dict.fromkeys(problem.why for problem in found)] == ["must be greater than or equal to 0, not -1"]
    else:
        assert (not found) == expected(name, release)["jobSetAdmission"]["admitted"]
