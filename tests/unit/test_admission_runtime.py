"""What the offline server answers to runtimes: stage, field, type and words are the real server's."""

from __future__ import annotations

from typing import Any

import pytest
from admission_support import (
    BLOCKED,
    admitted,
    answer,
    body,
    changed,
    job,
    job_template,
    jobs_of,
    long,
    many,
    required,
    runtime,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.releases import NEWEST

from tests.trainer import review

UNKNOWN = Unknown("1")


JOBS = "spec.template.spec.replicatedJobs"


def inject(*targets: dict[str, Any]) -> dict[str, Any]:
    return {"mlPolicy": {"torch": {"envInjection": {"targets": list(targets)}}}}


TARGETS = "spec.mlPolicy.torch.envInjection.targets"


DEPENDS = [{"name": "node", "status": "Ready"}]


CLAIM = {"metadata": {"name": "a"}, "spec": {}}


RUNTIME_BOUNDS: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
    (
        {"mlPolicy": {"torch": {}, "mpi": {}}},
        {("spec.mlPolicy", "Invalid", "Only one of the policy can be configured")},
    ),
    (
        {"mlPolicy": {"jax": {}, "xgboost": {}, "flux": {}}},
        {("spec.mlPolicy", "Invalid", "Only one of the policy can be configured")},
    ),
    (
        {"mlPolicy": {"mpi": {"numProcPerNode": 0}}},
        {("spec.mlPolicy.mpi.numProcPerNode", "Invalid", "NumProcPerNode in mpiPolicy must be >= 1")},
    ),
    (
        {"mlPolicy": {"flux": {"numProcPerNode": 0}}},
        {("spec.mlPolicy.flux.numProcPerNode", "Invalid", "NumProcPerNode in fluxPolicy must be >= 1")},
    ),
    (
        {"mlPolicy": {"mpi": {"mpiImplementation": "Intel"}}},
        {("spec.mlPolicy.mpi.mpiImplementation", "NotSupported", 'supported values: "OpenMPI", ""'), BLOCKED},
    ),
    ({"mlPolicy": {"mpi": {"sshAuthMountPath": "x" * 4097}}}, long("spec.mlPolicy.mpi.sshAuthMountPath", 4096)),
    (
        {"mlPolicy": {"numNodes": "1"}},
        {
            (
                "spec.mlPolicy.numNodes",
                "TypeInvalid",
                'spec.mlPolicy.numNodes in body must be of type integer: "string"',
            ),
            BLOCKED,
        },
    ),
    (
        {"mlPolicy": {"numNodes": 2**31}},
        {("<nil>", "Invalid", "Checked value must be of type integer with format int32 in spec.mlPolicy.numNodes")},
    ),
    (inject(*({"jobName": f"j{i}", "containerNames": ["c"]} for i in range(17))), many(TARGETS, 16)),
    (inject({"jobName": "a", "containerNames": []}), {body(f"{TARGETS}[0].containerNames", "have at least 1 items")}),
    (inject({"jobName": "a", "containerNames": list("abcdefghi")}), many(f"{TARGETS}[0].containerNames", 8)),
    (inject({"jobName": "a", "containerNames": ["x" * 64]}), long(f"{TARGETS}[0].containerNames[0]", 63)),
    (inject({"jobName": "a", "containerNames": ["b", "b"]}), {(f"{TARGETS}[0].containerNames[1]", "Duplicate", "")}),
    (inject({"containerNames": ["b"]}), required(f"{TARGETS}[0].jobName")),
    (
        inject({"jobName": "a", "containerNames": ["node"]}),
        {
            (
                f"{TARGETS}[0].containerNames",
                "Invalid",
                "containerNames must not include the main node container because PET_* envs are always injected into it",
            )
        },
    ),
    (
        {"podGroupPolicy": {"volcano": {"networkTopology": {"mode": "x"}}}},
        {
            ("spec.podGroupPolicy.volcano.networkTopology.mode", "NotSupported", 'supported values: "hard", "soft"'),
            BLOCKED,
        },
    ),
    ({"template": {}}, {body("spec.template", "have at least 1 properties")}),
    (jobs_of({"name": "a"}), required(f"{JOBS}[0].template")),
    (jobs_of({"template": job_template()}), required(f"{JOBS}[0].name")),
    (jobs_of(job(), job()), {(f"{JOBS}[1]", "Duplicate", "")}),
    (
        jobs_of(job(template={"spec": {"template": {"spec": {}}}})),
        required(f"{JOBS}[0].template.spec.template.spec.containers"),
    ),
    (
        jobs_of(job(template={"spec": {"template": {"spec": {"containers": [{}]}}}})),
        required(f"{JOBS}[0].template.spec.template.spec.containers[0].name"),
    ),
    (
        jobs_of(job(), job("b", dependsOn=[{"name": "node", "status": "Done"}])),
        {(f"{JOBS}[1].dependsOn[0].status", "NotSupported", 'supported values: "Ready", "Complete"'), BLOCKED},
    ),
    (
        jobs_of(job(), job("b", dependsOn=[{"name": f"n{i}", "status": "Ready"} for i in range(6)])),
        many(f"{JOBS}[1].dependsOn", 5),
    ),
    (
        jobs_of(job(), successPolicy={"operator": "Some"}),
        {("spec.template.spec.successPolicy.operator", "NotSupported", 'supported values: "All", "Any"'), BLOCKED},
    ),
    (jobs_of(job(), successPolicy={}), required("spec.template.spec.successPolicy.operator")),
    (
        jobs_of(job(), ttlSecondsAfterFinished=-1),
        {body("spec.template.spec.ttlSecondsAfterFinished", "be greater than or equal to 0")},
    ),
    (
        jobs_of(
            job(),
            startupPolicy={"startupPolicyOrder": "InOrder"},
            failurePolicy={"rules": [{"name": "a", "action": "X"}]},
        ),
        {
            (
                "spec.template.spec.failurePolicy.rules[0].action",
                "NotSupported",
                'supported values: "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob", '
                '"RestartJobAndIgnoreMaxRestarts"',
            ),
            BLOCKED,
        },
    ),
    (
        jobs_of(job(), job("b", dependsOn=DEPENDS), startupPolicy={"startupPolicyOrder": "InOrder"}),
        {("spec.template.spec", "Invalid", "StartupPolicy and DependsOn APIs are mutually exclusive")},
    ),
    (
        jobs_of(job(), volumeClaimPolicies=[{"templates": [{**CLAIM, "metadata": {"name": "a", "namespace": "b"}}]}]),
        {
            (
                "spec.template.spec.volumeClaimPolicies[0]",
                "Invalid",
                "namespace cannot be set for VolumeClaimPolicies templates",
            )
        },
    ),
    (
        jobs_of(
            job(
                template=job_template(
                    containers=[{"name": "node", "ports": [{"containerPort": 1}, {"containerPort": 1}]}]
                )
            )
        ),
        {(f"{JOBS}[0].template.spec.template.spec.containers[0].ports[1]", "Duplicate", "")},
    ),
]


@pytest.mark.parametrize(("spec", "found"), RUNTIME_BOUNDS)
def test_bounds_of_runtimes(spec: dict[str, Any], found: set[Any]) -> None:
    for kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        assert answer(review(runtime(kind, **spec), release=NEWEST)) == ("schema", found)


def test_empty_runtimes() -> None:
    document = runtime()
    assert answer(review({**document, "spec": {}})) == ("schema", {body("spec", "have at least 1 properties")})
    del document["spec"]
    admitted(document)
    admitted(changed(document, "metadata.labels", {"trainer.kubeflow.org/support": "deprecated"}))


def test_volume_mounts_of_a_runtime_may_share_a_volume() -> None:
    mounts = [{"name": "v", "mountPath": path} for path in ("/a", "/b")]
    admitted(runtime(**jobs_of(job(template=job_template(containers=[{"name": "node", "volumeMounts": mounts}])))))


@pytest.mark.parametrize("label", ["trainer", "model-initializer", "dataset-initializer"])
def test_ancestors(label: str) -> None:
    name = {"trainer": "node"}.get(label, label)
    containers = f"{JOBS}[0].template.spec.template.spec.containers"
    replicas = (f"{JOBS}[0].replicas", "Invalid", "always must be 1")
    missing = (containers, "Invalid", f"must contain the required container for the ancestor: {label}")
    wrong = runtime(**jobs_of(job(template=job_template("other", label, initContainers=[{"name": name}]), replicas=2)))
    assert answer(review(wrong)) == ("validating-webhook", {replicas, missing})
    right = runtime(**jobs_of(job(template=job_template(name, label))))
    old = admitted(right)
    assert answer(review(wrong, old=old)) == ("validating-webhook", {replicas, missing})
    disabled = changed(wrong, "metadata.labels", {"trainer.kubeflow.org/webhook-validation": "disabled"})
    admitted(disabled)
    assert not review(changed(wrong, "metadata.labels", {"trainer.kubeflow.org/webhook-validation": "true"})).admitted
    for odd in ("other", UNKNOWN):
        ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": odd}
        admitted(changed(wrong, "spec.template.spec.replicatedJobs.0.template.metadata.labels", ancestor))
    for path, value in (("replicas", UNKNOWN), ("replicas", 1)):
        at = f"spec.template.spec.replicatedJobs.0.{path}"
        assert answer(review(changed(wrong, at, value)))[1] == {missing}
    for value in (UNKNOWN, [UNKNOWN]):
        at = "spec.template.spec.replicatedJobs.0.template.spec.template.spec.containers"
        assert answer(review(changed(wrong, at, value)))[1] == {replicas}


def test_updates_of_namespaced_runtimes_are_not_looked_at() -> None:
    old = admitted(runtime("TrainingRuntime"))
    wrong = runtime("TrainingRuntime", **jobs_of(job(replicas=2)))
    assert not review(wrong).admitted
    admitted(wrong, old=old)


def test_labels_that_are_not_known_yet() -> None:
    wrong = runtime(**jobs_of(job(replicas=2)))
    labels = {"trainer.kubeflow.org/webhook-validation": UNKNOWN}
    admitted(changed(wrong, "metadata.labels", labels))


def test_quantities_that_only_the_webhook_refuses() -> None:
    template = job_template(containers=[{"name": "node", "resources": {"limits": {"cpu": "1E1.5"}}}])
    verdict = review(runtime(**jobs_of(job(template=template))))
    assert verdict.stage == "validating-webhook"
    assert [p.where for p in verdict.errors] == [
        f"{JOBS}[0].template.spec.template.spec.containers[0].resources.limits.cpu"
    ]


@pytest.mark.parametrize(
    ("part", "one", "other"),
    [
        ("network", {"enableDNSHostnames": True}, {"enableDNSHostnames": False}),
        ("successPolicy", {"operator": "All"}, {"operator": "Any"}),
        ("failurePolicy", {"maxRestarts": 1}, {"maxRestarts": 2}),
        ("startupPolicy", {"startupPolicyOrder": "AnyOrder"}, {"startupPolicyOrder": "InOrder"}),
        ("volumeClaimPolicies", [{"templates": [CLAIM]}], []),
    ],
)
def test_transition_rules_of_jobset_hold_for_runtimes(part: str, one: Any, other: Any) -> None:
    old = admitted(runtime(**jobs_of(job(), **{part: one})))
    verdict = review(runtime(**jobs_of(job(), **{part: other})), old=old)
    assert answer(verdict) == ("schema", {(f"spec.template.spec.{part}", "Invalid", "Value is immutable")})
    admitted(runtime(**jobs_of(job())), old=old)
    admitted(runtime(**jobs_of(job(), **{part: other})), old=admitted(runtime(**jobs_of(job()))))


def test_depends_on_is_immutable_for_the_job_of_that_name() -> None:
    old = admitted(runtime(**jobs_of(job(), job("b", dependsOn=DEPENDS))))
    changed_ = runtime(**jobs_of(job("b", dependsOn=[{"name": "node", "status": "Complete"}]), job()))
    verdict = review(changed_, old=old)
    assert answer(verdict) == ("schema", {(f"{JOBS}[0].dependsOn", "Invalid", "Value is immutable")})
