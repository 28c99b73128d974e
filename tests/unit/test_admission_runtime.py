"""What the offline server answers to runtimes: stage, field, type and words are the real server's."""

from __future__ import annotations

import pytest
from admission_support import admitted, answer, changed, job, job_template, jobs_of, runtime
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import review

UNKNOWN = Unknown("1")


JOBS = "spec.template.spec.replicatedJobs"


DEPENDS = [{"name": "node", "status": "Ready"}]


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


def test_depends_on_is_immutable_for_the_job_of_that_name() -> None:
    old = admitted(runtime(**jobs_of(job(), job("b", dependsOn=DEPENDS))))
    changed_ = runtime(**jobs_of(job("b", dependsOn=[{"name": "node", "status": "Complete"}]), job()))
    verdict = review(changed_, old=old)
    assert answer(verdict) == ("schema", {(f"{JOBS}[0].dependsOn", "Invalid", "Value is immutable")})
