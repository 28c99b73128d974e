"""Claims of devices: warnings have the words of a real API server, and of a real Kueue whose configuration maps no class."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import conditions
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import complete_queues
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import read_queues
from pulumi_trainer.provider.trainer.admission.pod_validation import job_problems
from pulumi_trainer.provider.trainer.admission.warnings import View
from pulumi_trainer.provider.trainer.admission.warnings.devices import unmapped_devices, unsupported_claims
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.releases import DEFAULT

from .jobs import jobset, pod_template

Document = dict[str, Any]
GPUS = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 8}
REQUESTS: dict[str, Document] = {
    "exact": {"name": "gpus", "exactly": GPUS},
    "first": {"name": "gpus", "firstAvailable": [{"name": "a", **GPUS}]},
    "all": {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}},
}
CONFIGURATION = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


@pytest.fixture(scope="module")
def root(cluster: Any) -> Client:
    return open_client({"kubeconfig": str(cluster.kubeconfig)})


def make(root: Client, kind: Kind, document: Document) -> None:
    root.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **document})


@pytest.fixture
def queue(root: Client, namespace: str) -> str:
    own = {"metadata": {"name": namespace}}
    resources = [{"name": "cpu", "nominalQuota": "100"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": namespace, "resources": resources}]}]
    make(root, RESOURCE_FLAVOR, {**own, "spec": {}})
    make(root, CLUSTER_QUEUE, {**own, "spec": {"namespaceSelector": {}, "resourceGroups": groups}})
    local = {"metadata": {"name": namespace, "namespace": namespace}, "spec": {"clusterQueue": namespace}}
    make(root, LOCAL_QUEUE, local)
    for name, request in REQUESTS.items():
        template = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
        make(root, kinds.RESOURCE_CLAIM_TEMPLATE, template)
    return namespace


def claiming(source: Document, claim: str = "gpus") -> Document:
    """A JobSet whose Pods claim devices."""
    made = jobset("job")
    spec = pod_template(made)["spec"]
    spec["resourceClaims"] = [{"name": "gpus", **source}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": claim}]}
    return made


@pytest.mark.parametrize(
    "source", [*({"resourceClaimTemplateName": name} for name in REQUESTS), {"resourceClaimName": "shared"}]
)
def test_kueue_admits_none(root: Client, namespace: str, queue: str, source: Document) -> None:
    made = claiming(source)
    made["metadata"] |= {"namespace": namespace, "labels": {QUEUE: queue}}
    known = complete_queues([*read_queues(root, namespace, claims=True).of("ResourceClaimTemplate"), CONFIGURATION])
    view = View({}, {"metadata": made["metadata"], "spec": {}}, ({"kind": "JobSet", **made},), DEFAULT, queues=known)
    (ours,) = [*unsupported_claims(view), *unmapped_devices(view)]
    make(root, JOBSET, made)
    until, theirs = time.monotonic() + 60, ""
    while time.monotonic() < until and not theirs:
        for workload in root.list(WORKLOAD, namespace)[0]:
            theirs = next((c["message"] for c in conditions(workload) if c["type"] == "QuotaReserved"), "")
        time.sleep(0.2)
    assert theirs and ours.why.rpartition(": ")[2] in theirs, (theirs, ours.why)


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ({"resourceClaimTemplateName": "exact"}, "other"),
        ({"resourceClaimTemplateName": "exact", "resourceClaimName": "shared"}, "gpus"),
        ({}, "gpus"),
        ({"resourceClaimTemplateName": "exact"}, "gpus"),
    ],
)
def test_the_words_of_the_api_server(root: Client, namespace: str, source: Document, claim: str) -> None:
    made = claiming(source, claim)
    problems = job_problems(ReplicatedJob(made["spec"]["replicatedJobs"][0]))
    ours = [problem.why.rpartition("Invalid value: ")[2] for problem in problems]
    pod = {"metadata": {"name": "pod", "namespace": namespace}, "spec": pod_template(made)["spec"]}
    try:
        make(root, kinds.POD, pod)
        assert ours == []
    except ApiError as error:
        assert len(ours) == 1 and ours[0] in error.message, (error.message, ours)
