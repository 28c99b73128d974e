"""Pod Security of a namespace: what it refuses is in the plan, in the server's words, and hardened jobs run there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from . import least
from .conftest import USER
from .jobs import Document, jobset, pod_template, until
from .test_preview import draft, told
from .test_rbac import granted
from .test_up import PLAIN, Lab, head, lab, program  # noqa: F401 (a fixture)

AT = "spec.replicatedJobs[0].template.spec.template.spec"
WORDS = (
    'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "node" must set'
    " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container"
    ' "node" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "node" must set'
    ' securityContext.runAsNonRoot=true), seccompProfile (pod or container "node" must set'
    ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
)


@pytest.fixture
def label(admin: ApiClient, namespace: str) -> Any:
    """Labels the namespace of the test."""

    def make(**levels: str) -> None:
        labels = {f"pod-security.kubernetes.io/{mode.replace('_', '-')}": level for mode, level in levels.items()}
        client.CoreV1Api(admin).patch_namespace(namespace, {"metadata": {"labels": labels}})

    return make


@pytest.fixture
def target(user_kubeconfig: Any, namespace: str) -> Iterator[KubernetesTarget]:
    yield KubernetesTarget(open_client({"kubeconfig": str(user_kubeconfig)}), cluster=lambda: "", namespace=namespace)


def test_a_job_runs_in_a_restricted_namespace_once_it_is_hardened(lab: Lab, label: Any) -> None:  # noqa: F811
    label(enforce="restricted")
    lab.program(PLAIN, head())
    refused = lab.preview(ok=False).out.replace("\n", " ")
    assert f".{AT}: {WORDS}. Hint: give the job" in " ".join(refused.split()), refused
    assert 'hardening="restricted"' in refused and "pulumi config set trainer:hardening restricted" in refused
    lab.up(ok=False)
    assert lab.jobs() == {}

    lab.program(program('), hardening="restricted",'), head())
    lab.preview()
    lab.up()
    lab.pods(2)
    found, _ = lab.root_client.list(POD, lab.namespace)
    for spec in (pod["spec"] for pod in found):
        assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["runAsUser"] == 1000
    lab.preview("--expect-no-changes")
    lab.destroy()


def test_the_stack_hardens_jobs_from_their_next_run_on(lab: Lab, label: Any) -> None:  # noqa: F811
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    lab.config("trainer:hardening", "restricted")
    lab.preview("--expect-no-changes")
    assert lab.pods(2) == pods
    label(enforce="restricted")
    lab.program(program('), run="2", interrupt="allow",'), head())
    lab.up()
    until(lambda: not pods & lab.pods(2))
    lab.destroy()


def test_a_namespace_hardens_jobs_from_their_next_run_on(lab: Lab, admin: ApiClient) -> None:  # noqa: F811
    """What somebody writes on it touches no job that is there."""
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    notes = {"metadata": {"annotations": {"pulumi-trainer.dev/hardening": "restricted"}}}
    client.CoreV1Api(admin).patch_namespace(lab.namespace, notes)
    lab.preview("--expect-no-changes")
    lab.up()
    assert lab.pods(2) == pods
    lab.config("trainer:hardening", "none")
    assert "are hardened" not in lab.preview("--expect-no-changes").out
    assert lab.run("config", "rm", "trainer:hardening").code == 0
    lab.program(program('), run="2", interrupt="allow",'), head())
    assert f"New runs in namespace {lab.namespace} are hardened" in " ".join(lab.preview().out.split())
    lab.up()
    until(lambda: not pods & lab.pods(2))
    found, _ = lab.root_client.list(POD, lab.namespace)
    assert {pod["spec"]["securityContext"].get("runAsUser") for pod in found if pod["metadata"]["uid"] not in pods} == {
        1000
    }
    lab.destroy()


def test_warnings_and_other_levels(target: KubernetesTarget, namespace: str, label: Any) -> None:
    label(warn="restricted", enforce="baseline", enforce_version="v1.30")
    refusals, warnings = told(target, draft(namespace, jobset("a")))
    assert refusals == []
    (warning,) = warnings
    assert warning.startswith(f"JobSet/a.{AT}: would {WORDS.replace('violates', 'violate')}"), warning

    document = jobset("b")
    pod_template(document)["spec"]["hostNetwork"] = True
    (refusal,), _ = told(target, draft(namespace, document))
    assert 'violates PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true)' in refusal


def test_a_hardened_pod_that_is_refused_gets_another_hint(target: KubernetesTarget, namespace: str, label: Any) -> None:
    label(enforce="restricted")
    document: Document = jobset("a")
    (container,) = pod_template(document)["spec"]["containers"]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"type": "spc_t"},
    }  # fmt: skip
    pod_template(document)["spec"]["automountServiceAccountToken"] = False
    (refusal,), _ = told(target, draft(namespace, document))
    assert "seLinuxOptions" in refusal and "another level of the namespace" in refusal and "hardening" not in refusal


def test_what_does_not_concern_pod_security_does_not_stop_its_judgement(
    target: KubernetesTarget, namespace: str, label: Any
) -> None:
    label(enforce="restricted")
    document = jobset("a")
    pod_template(document)["spec"]["serviceAccountName"] = "nobody"
    pod_template(document)["spec"]["priorityClassName"] = "none"
    refusals, _ = told(target, draft(namespace, document))
    assert any(WORDS in each for each in refusals), refusals


def test_without_the_permission_it_is_told_that_nothing_was_judged(
    target: KubernetesTarget, admin: ApiClient, namespace: str, label: Any
) -> None:
    label(enforce="restricted")
    kept = [p for p in rbac.job_permissions() if not (p.kind == POD and "create" in p.verbs)]
    least.grant(admin, namespace, USER, kept)
    until(lambda: ("", "pods", "create") not in granted(target.client, namespace))
    refusals, warnings = told(target, draft(namespace, jobset("a")))
    assert refusals == []
    (warning,) = warnings
    assert "enforces Pod Security 'restricted', and the Pods could not be tried" in warning, warning
    assert 'cannot create resource "pods"' in warning and f"pulumi-trainer rbac -n {namespace}" in warning


def test_a_namespace_without_labels_costs_nothing(target: KubernetesTarget, namespace: str) -> None:
    document = jobset("a")
    told(target, draft(namespace, document))
    before = target.client.requests
    document = jobset("a")
    pod_template(document)["spec"]["priorityClassName"] = "system-node-critical"
    told(target, draft(namespace, document))
    assert target.client.requests - before <= 3  # PriorityClass, JobSet and nothing of Pods
