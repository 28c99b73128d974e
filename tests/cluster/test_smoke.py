"""The cluster itself works: JobSet and simulated nodes do what they do on a real one, in what `make test` builds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiClient

Document = dict[str, Any]
pytestmark = pytest.mark.smoke


def jobset(name: str, pods: int = 2, **simulated: str) -> Document:
    pod = {
        "metadata": {
            "annotations": {f"sim/{key.replace('_', '-')}": value for key, value in {"run": "1s", **simulated}.items()}
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "node", "image": "trainer:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    job = {"spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": job}]},
    }  # fmt: skip


class Objects:
    """Custom resources of a namespace."""

    def __init__(self, admin: ApiClient, namespace: str) -> None:
        self.api, self.namespace = client.CustomObjectsApi(admin), namespace

    def create(self, document: Document, plural: str) -> Document:
        group, version = document["apiVersion"].split("/")
        return self.api.create_namespaced_custom_object(group, version, self.namespace, plural, document)

    def condition(self, group: str, version: str, plural: str, name: str, kind: str, seconds: float = 120) -> Document:
        """Once it is there and true."""
        deadline = time.monotonic() + seconds
        while True:
            found: Any = self.api.get_namespaced_custom_object(group, version, self.namespace, plural, name)
            conditions = found.get("status", {}).get("conditions", [])
            if match := next((c for c in conditions if c["type"] == kind and c["status"] == "True"), None):
                return match
            assert time.monotonic() < deadline, f"{name} has no condition {kind}: {found.get('status')}"
            time.sleep(0.05)

    def jobset(self, name: str, kind: str) -> Document:
        return self.condition("jobset.x-k8s.io", "v1alpha2", "jobsets", name, kind)


@pytest.fixture
def objects(admin: ApiClient, namespace: str) -> Objects:
    return Objects(admin, namespace)


def test_a_jobset_completes(objects: Objects) -> None:
    objects.create(jobset("fine"), "jobsets")
    assert objects.jobset("fine", "Completed")["reason"] == "AllJobsCompleted"


def test_pods_do_what_their_annotations_say(objects: Objects, admin: ApiClient) -> None:
    objects.create(jobset("bad", outcome="fail", only_index="1", exit_code="137", reason="OOMKilled"), "jobsets")
    assert objects.jobset("bad", "Failed")["reason"] == "FailedJobs"
    pods = client.CoreV1Api(admin).list_namespaced_pod(objects.namespace).items
    ended = {p.metadata.annotations["batch.kubernetes.io/job-completion-index"]: p.status for p in pods}
    state = ended["1"].container_statuses[0].state.terminated
    assert (ended["1"].phase, state.exit_code, state.reason) == ("Failed", 137, "OOMKilled")


def test_the_user_of_the_tests_may_do_what_the_product_needs_and_no_more(user_kubeconfig: Path, namespace: str) -> None:
    user = config.new_client_from_config(str(user_kubeconfig))
    reviews = client.AuthorizationV1Api(user)

    def may(verb: str, group: str, resource: str, where: str) -> bool:
        asked = {"verb": verb, "group": group, "resource": resource, "namespace": where}
        return bool(reviews.create_self_subject_access_review({"spec": {"resourceAttributes": asked}}).status.allowed)

    assert may("create", "jobset.x-k8s.io", "jobsets", namespace)
    assert not may("create", "jobset.x-k8s.io", "jobsets", "default")
    assert not may("list", "", "secrets", namespace)
