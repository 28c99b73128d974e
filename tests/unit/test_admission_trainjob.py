"""What the offline server answers to a new TrainJob: stage, field, type and words are the real server's."""

from __future__ import annotations

from typing import Any

import pytest
from admission_support import (
    BLOCKED,
    Store,
    admitted,
    answer,
    body,
    changed,
    job,
    job_template,
    jobs_of,
    long,
    many,
    names,
    pod_patch,
    required,
    runtime,
    train_job,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.admission.trainjob import AUTOMATIC
from pulumi_trainer.provider.trainer.releases import NEWEST, RELEASES

from tests.trainer import review

UNKNOWN = Unknown("1")

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


STORE = Store(runtime(), runtime("TrainingRuntime"))


POLICY = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"


POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"


def patched(**pod: Any) -> dict[str, Any]:
    return {"runtimePatches": [pod_patch(**pod)]}


AT_MANY = "manager-" + "x" * 246


TRAIN_JOB_BOUNDS: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
    ({"runtimeRef": ...}, required("spec.runtimeRef")),
    ({"runtimeRef": {}}, required("spec.runtimeRef.name")),
    ({"runtimeRef": {"name": ""}}, {body("spec.runtimeRef.name", "be at least 1 chars long")}),
    ({"runtimeRef": {"name": "x" * 254}}, long("spec.runtimeRef.name", 253)),
    ({"runtimeRef": {"name": "a", "kind": "x" * 254}}, long("spec.runtimeRef.kind", 253)),
    ({"runtimeRef": {"name": "a", "apiGroup": "x" * 254}}, long("spec.runtimeRef.apiGroup", 253)),
    ({"trainer": {"image": "x" * 501}}, long("spec.trainer.image", 500)),
    ({"trainer": {"command": ["x"] * 129}}, many("spec.trainer.command", 128)),
    ({"trainer": {"args": ["x"] * 129}}, many("spec.trainer.args", 128)),
    ({"trainer": {"args": ["x" * 1048577]}}, long("spec.trainer.args[0]", 1048576)),
    (
        {"trainer": {"args": [None]}},
        {
            ("spec.trainer.args[0]", "TypeInvalid", 'spec.trainer.args[0] in body must be of type string: "null"'),
            BLOCKED,
        },
    ),
    ({"trainer": {"env": names(129)}}, many("spec.trainer.env", 128)),
    ({"trainer": {"env": [{"value": "x"}]}}, required("spec.trainer.env[0].name")),
    ({"trainer": {"env": [*names(2), *names(1)]}}, {("spec.trainer.env[2]", "Duplicate", "")}),
    ({"trainer": {"numNodes": -1}}, {body("spec.trainer.numNodes", "be greater than or equal to 0")}),
    (
        {"trainer": {"numProcPerNode": 0}},
        {("spec.trainer.numProcPerNode", "Invalid", "numProcPerNode must be greater than or equal to 1")},
    ),
    (
        {"trainer": {"resourcesPerNode": {"claims": [*names(1), *names(1)]}}},
        {("spec.trainer.resourcesPerNode.claims[1]", "Duplicate", "")},
    ),
    (
        {"trainer": {"resourcesPerNode": {"limits": {"cpu": "1 "}}}},
        {body("spec.trainer.resourcesPerNode.limits.cpu", f"match '{QUANTITY}'")},
    ),
    ({"initializer": {"dataset": {"env": names(129)}}}, many("spec.initializer.dataset.env", 128)),
    (
        {"initializer": {"model": {"storageUri": "x"}}},
        {
            (
                "spec.initializer.model.storageUri",
                "Invalid",
                "storageUri may be empty, or it must be a valid URI (scheme://...)",
            )
        },
    ),
    ({"initializer": {"model": {"storageUri": "s3://" + "x" * 2044}}}, long("spec.initializer.model.storageUri", 2048)),
    ({"activeDeadlineSeconds": 0}, {body("spec.activeDeadlineSeconds", "be greater than or equal to 1")}),
    (
        {"managedBy": ""},
        {
            (
                "spec.managedBy",
                "Invalid",
                "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
            )
        },
    ),
    ({"managedBy": "x" * 254}, long("spec.managedBy", 253)),
    ({"runtimePatches": [{"manager": f"a.b/m{i}"} for i in range(17)]}, many("spec.runtimePatches", 16)),
    ({"runtimePatches": [{"manager": "a.b/c"}] * 2}, {("spec.runtimePatches[1]", "Duplicate", "")}),
    ({"runtimePatches": [{}]}, required("spec.runtimePatches[0].manager")),
    ({"runtimePatches": [{"manager": ""}]}, {body("spec.runtimePatches[0].manager", "be at least 1 chars long")}),
    ({"runtimePatches": [{"manager": AT_MANY}]}, long("spec.runtimePatches[0].manager", 253)),
    (patched(volumes=names(129)), many(f"{POD}.volumes", 128)),
    (patched(volumes=[*names(1), *names(1)]), {(f"{POD}.volumes[1]", "Duplicate", "")}),
    (patched(containers=names(65)), many(f"{POD}.containers", 64)),
    (patched(initContainers=names(65)), many(f"{POD}.initContainers", 64)),
    (patched(containers=[{"name": ""}]), {body(f"{POD}.containers[0].name", "be at least 1 chars long")}),
    (patched(containers=[{"name": "x" * 254}]), long(f"{POD}.containers[0].name", 253)),
    (patched(containers=[{}]), required(f"{POD}.containers[0].name")),
    (patched(containers=[*names(1), *names(1)]), {(f"{POD}.containers[1]", "Duplicate", "")}),
    (patched(containers=[{"name": "a", "env": names(129)}]), many(f"{POD}.containers[0].env", 128)),
    (
        patched(containers=[{"name": "a", "volumeMounts": [{"name": f"v{i}", "mountPath": "/x"} for i in range(129)]}]),
        many(f"{POD}.containers[0].volumeMounts", 128),
    ),
    (
        patched(containers=[{"name": "a", "volumeMounts": [{"name": "v", "mountPath": p} for p in ("/a", "/b")]}]),
        {(f"{POD}.containers[0].volumeMounts[1]", "Duplicate", "")},
    ),
    (patched(imagePullSecrets=names(65)), many(f"{POD}.imagePullSecrets", 64)),
    (patched(schedulingGates=names(17)), many(f"{POD}.schedulingGates", 16)),
    (patched(tolerations=[{"key": "a"}] * 129), many(f"{POD}.tolerations", 128)),
    (
        patched(terminationGracePeriodSeconds=-1),
        {body(f"{POD}.terminationGracePeriodSeconds", "be greater than or equal to 0")},
    ),
    (patched(serviceAccountName="x" * 254), long(f"{POD}.serviceAccountName", 253)),
]


@pytest.mark.parametrize(("spec", "found"), TRAIN_JOB_BOUNDS)
def test_bounds_of_train_jobs(spec: dict[str, Any], found: set[Any]) -> None:
    document = train_job()
    for name, value in spec.items():
        document = changed(document, f"spec.{name}", value)
    assert answer(review(document, release=NEWEST, lookup=STORE)) == ("schema", found)


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


def test_priority_classes_are_looked_up() -> None:
    volcano = runtime(podGroupPolicy={"volcano": {}})
    volcano["spec"]["template"]["spec"]["replicatedJobs"][0]["template"] = job_template(priorityClassName="high")
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}}
    admitted(train_job(), lookup=Store(volcano, high))
    verdict = review(train_job(), lookup=Store(volcano))
    why = 'PriorityClass "high" doesn\'t exist: priorityclasses.scheduling.k8s.io "high" not found'
    assert answer(verdict) == ("validating-webhook", {("spec.templateSpec.priorityClassName", "Invalid", why)})


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


def test_everything_wrong_at_once() -> None:
    document = train_job(activeDeadlineSeconds=0, trainer={"image": "x" * 501, "numNodes": -1, "numProcPerNode": 0})
    document["metadata"]["name"] = "Job"
    assert answer(review(document, release=NEWEST, lookup=STORE)) == (
        "schema",
        {
            BLOCKED,
            ("metadata.name", "Invalid", SUBDOMAIN),
            body("spec.activeDeadlineSeconds", "be greater than or equal to 1"),
            ("spec.trainer.image", "TooLong", "may not be more than 500 bytes"),
            body("spec.trainer.numNodes", "be greater than or equal to 0"),
        },
    )


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
