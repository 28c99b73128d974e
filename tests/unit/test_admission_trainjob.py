"""What the offline server answers to a new TrainJob: stage, field, type and words are the real server's."""

from __future__ import annotations

from typing import Any

import pytest
from admission_support import (
    Store,
    admitted,
    answer,
    changed,
    job,
    job_template,
    jobs_of,
    pod_patch,
    runtime,
    train_job,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.admission.trainjob import AUTOMATIC
from pulumi_trainer.provider.trainer.releases import RELEASES

from tests.trainer import review

UNKNOWN = Unknown("1")


STORE = Store(runtime(), runtime("TrainingRuntime"))


POLICY = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"


@pytest.mark.parametrize("trainer", [{"numNodes": -1}, {"numProcPerNode": 0}])
def test_the_crds_of_a_release_decide(trainer: dict[str, Any]) -> None:
    verdicts = {version: review(train_job(trainer=trainer), release=each) for version, each in RELEASES.items()}
    assert {version: verdict.stage for version, verdict in verdicts.items()} == {"2.3.0": None, "8c0f5059b": "schema"}


@pytest.mark.parametrize(
    "spec",
    [
        {"trainer": {"numNodes": 0, "numProcPerNode": 1, "image": "x" * 500, "args": ["x"] * 128}},
        {"trainer": {"image": "", "command": [], "resourcesPerNode": {"limits": {"cpu": "-1", "memory": 5}}}},
        {"initializer": {}, "activeDeadlineSeconds": 1, "managedBy": "kueue.x-k8s.io/multikueue"},
        {"runtimePatches": [pod_patch("a.b/c", tolerations=[{"key": "a"}] * 128, terminationGracePeriodSeconds=0)]},
        {"runtimePatches": [pod_patch(containers=[{"name": "unknown"}])]},
        {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}},
        {"trainer": UNKNOWN, "runtimePatches": UNKNOWN, "suspend": UNKNOWN},
        {"runtimePatches": [UNKNOWN, {"manager": "a.b/c", "time": UNKNOWN}]},
        {"trainer": {"numNodes": UNKNOWN, "env": [UNKNOWN], "args": [UNKNOWN, "x"]}},
        {"runtimeRef": {"name": UNKNOWN}},
        {"runtimeRef": UNKNOWN},
    ],
)
def test_admitted_train_jobs(spec: dict[str, Any]) -> None:
    admitted(train_job(**spec), lookup=STORE)


def test_an_unknown_spec() -> None:
    assert admitted({**train_job(), "spec": UNKNOWN}, lookup=STORE)["spec"] == UNKNOWN
    assert admitted({**runtime(), "spec": UNKNOWN})["spec"] == UNKNOWN


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("trainer.numNodes", "2", "must be a whole number, not a string"),
        ("trainer.numNodes", 1.5, "must be a whole number, not a decimal number"),
        ("trainer.numNodes", 2**31, "must fit into 32 bits"),
        ("trainer.numProcPerNode", "auto", "must be a whole number, not a string"),
        ("activeDeadlineSeconds", 2**63, "must be a whole number, not a decimal number"),
        ("suspend", "true", "must be true or false, not a string"),
        ("trainer.env", [{"name": "A", "value": 1}], "must be a string, not a number"),
        ("trainer.resourcesPerNode", {"limits": {"cpu": "1x"}}, "must be a quantity such as 3, 500m or 4Gi, not '1x'"),
        ("trainer.resourcesPerNode", {"limits": {"cpu": ""}}, "must be a quantity such as 3, 500m or 4Gi, not ''"),
        ("runtimePatches", [{"manager": "a.b/c", "time": "yesterday"}], "must be a time such as 2026-01-31T09:30:00Z"),
        ("runtimePatches", "all", "must be a list, not a string"),
        ("runtimePatches", [pod_patch(tolerations="all")], "must be a list, not a string"),
        ("trainer", [], "must be a mapping, not a list"),
    ],
)
def test_what_go_cannot_read(path: str, value: Any, why: str) -> None:
    verdict = review(changed(train_job(), f"spec.{path}", value), lookup=STORE)
    assert verdict.stage == "mutating-webhook"
    (problem,) = verdict.errors
    assert problem.why == why
    assert problem.where.startswith(f"spec.{path}")


def test_a_wrong_status_is_read_too() -> None:
    verdict = review({**train_job(), "status": {"conditions": "none"}})
    assert answer(verdict)[0] == "mutating-webhook"
    assert review({**train_job(), "status": {}}).admitted


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (..., ("", "", "unsupported runtime: ")),
        ({"kind": "Foo"}, ("", "", "unsupported runtime: Foo.trainer.kubeflow.org")),
        ({"apiGroup": ""}, ("", "", "unsupported runtime: ClusterTrainingRuntime")),
        (
            {"name": "nope"},
            (
                "spec.RuntimeRef",
                "Invalid",
                'clustertrainingruntimes.trainer.kubeflow.org "nope" not found: specified clusterTrainingRuntime must be '
                "created before the TrainJob is created",
            ),
        ),
        (
            {"name": "nope", "kind": "TrainingRuntime"},
            (
                "spec.runtimeRef",
                "Invalid",
                'trainingruntimes.trainer.kubeflow.org "nope" not found: specified trainingRuntime must be created '
                "before the TrainJob is created",
            ),
        ),
    ],
)
def test_runtimes_that_are_not_there(spec: Any, problem: tuple[str, str, str]) -> None:
    document = train_job()
    if spec is ...:
        del document["spec"]
    else:
        document["spec"]["runtimeRef"] |= spec
    assert answer(review(document, lookup=STORE)) == ("validating-webhook", {problem})
    if "nope" in problem[2]:
        assert review(document).admitted, "without a cluster to look at"


def test_namespaced_runtimes_are_those_of_the_namespace() -> None:
    document = train_job(runtimeRef={"name": "torch", "kind": "TrainingRuntime"})
    assert not review(changed(document, "metadata.namespace", "other"), lookup=STORE).admitted


def test_the_merged_result_is_validated() -> None:
    reserved = train_job(trainer={"env": [{"name": "PET_NNODES", "value": "1"}]})
    words = "must not have reserved envs, invalid envs configured: [PET_NNODES]"
    assert answer(review(reserved, lookup=STORE)) == ("validating-webhook", {("spec.trainer.env", "Invalid", words)})
    bad = train_job(runtimePatches=[pod_patch(nodeSelector={"$patch": "explode"})])
    verdict = review(bad, lookup=Store(runtime(**jobs_of(job(template=job_template(nodeSelector={"a": "b"}))))))
    panic = ("", "panic", "runtime error: invalid memory address or nil pointer dereference")
    assert answer(verdict) == ("validating-webhook", {panic})
    assert "spec.runtimePatches[0]" in verdict.errors[0].hint


def test_what_the_pipeline_cannot_merge_otherwise() -> None:
    """A stored runtime that no pipeline can read is told, not raised."""
    broken = {**runtime(), "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": 5}}}}
    verdict = review(train_job(), lookup=lambda *_: broken)
    assert verdict.stage == "validating-webhook"
    assert verdict.errors


def test_deprecated_runtimes() -> None:
    for kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        document = changed(runtime(kind), "metadata.labels", {"trainer.kubeflow.org/support": "deprecated"})
        future = "is deprecated and will be removed in a future release of Kubeflow Trainer"
        words = f'"torch" {future}. See runtime deprecation policy: {POLICY}'
        told = kind == "ClusterTrainingRuntime"
        verdict = review(document)
        assert verdict.warnings == ((f"ClusterTrainingRuntime {words}",) if told else ())
        assert review(document, old=verdict.stored).warnings == ()
        job = train_job(runtimeRef={"name": "torch", "kind": kind})
        store = Store(document)
        verdict = review(job, lookup=store)
        assert verdict.warnings == ((f"Referenced ClusterTrainingRuntime {words}",) if told else ())
        assert review(job, old=verdict.stored, lookup=store).warnings == verdict.warnings
        reserved = changed(job, "spec.trainer", {"env": [{"name": "PET_NNODES"}]})
        assert review(reserved, lookup=store).warnings == verdict.warnings
        other = changed(document, "metadata.labels", {"trainer.kubeflow.org/support": "Deprecated"})
        assert review(other).warnings == ()


@pytest.mark.parametrize(("given", "wanted"), [("auto", AUTOMATIC), ("gpu", AUTOMATIC), ("cpu", AUTOMATIC), ("4", "")])
def test_words_for_the_number_of_processes_are_gone(given: str, wanted: str) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job"},
        "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numProcPerNode": given}},
    }
    (problem,) = review(job).errors
    assert (problem.where, problem.hint) == ("spec.trainer.numProcPerNode", wanted)
