"""Positions of waiting jobs, from the real Kueue's visibility API behind the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import ApiClient, RbacAuthorizationV1Api
from pulumi_trainer import client as library
from pulumi_trainer.provider.kubernetes.client.api_resources import SERVICE, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tools.cluster import Cluster

from .jobs import jobset, pod_template, until
from .test_cli import Cli, cli  # noqa: F401 (a fixture)
from .test_queue import queue  # noqa: F401 (a fixture)

API_SERVICE = Kind("apiregistration.k8s.io/v1", "APIService", "apiservices", False)
NAME = "v1beta2.visibility.kueue.x-k8s.io"


@pytest.fixture
def visibility(cluster: Cluster, root: Client) -> Iterator[None]:
    """The API server passes requests to Kueue, which it finds by a Service without Pods: no kube-proxy runs here."""
    port = cluster.place.ports["kueue_visibility"]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "visibility", "namespace": "kueue-system"}}
    root.create(SERVICE, {**service, "spec": {"type": "ExternalName", "externalName": "localhost"}})
    spec = {
        "group": "visibility.kueue.x-k8s.io", "version": "v1beta2", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": True, "service": {"name": "visibility", "namespace": "kueue-system", "port": port},
    }  # fmt: skip
    about = {"apiVersion": API_SERVICE.api_version, "kind": API_SERVICE.kind, "metadata": {"name": NAME}}
    root.create(API_SERVICE, {**about, "spec": spec})

    def available() -> bool:
        found = root.get(API_SERVICE, "", NAME) or {}
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    until(available)
    yield
    root.delete(API_SERVICE, "", NAME)
    root.delete(SERVICE, "kueue-system", "visibility")


def submit(root: Client, namespace: str, name: str) -> None:
    """A job of all the quota."""
    document = jobset(name)
    document["metadata"] |= {"namespace": namespace, "labels": {QUEUE: "team"}}
    pod_template(document)["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    root.create(JOBSET, document)


@pytest.mark.usefixtures("queue", "visibility")
def test_the_position_of_a_waiting_job(
    cli: Cli,  # noqa: F811
    cluster: Cluster,
    root: Client,
    admin: ApiClient,
    namespace: str,
    user_kubeconfig: Path,
) -> None:
    submit(root, namespace, "first")
    until(lambda: (root.get(JOBSET, namespace, "first") or {})["spec"].get("suspend") is False)
    for name in ("second", "third"):
        submit(root, namespace, name)
        until(lambda name=name: "waits at position" in cli.json("status", name)[0]["start"])  # type: ignore[misc]
    starts = {job["name"]: job["start"] for job in cli.json("status")}
    at = "waits at position {} of its ClusterQueue"
    assert starts == {"first": "", "second": at.format(1), "third": at.format(2)}, "with the least rights"
    assert f"It {at.format(2)}." in cli.out("why", "third")
    mine = library.connect(kubeconfig=str(user_kubeconfig), namespace=namespace)
    assert mine.status("third").start == at.format(2)
    assert {job["name"]: job["start"] for job in cli.json("queues")["jobs"]} == starts

    every = Cli(cluster.kubeconfig, cli.folder).json("queues", "-A")["jobs"]
    (third,) = [job for job in every if (job["namespace"], job["name"]) == (namespace, "third")]
    behind = f"behind {namespace}/first (2 cpu in {namespace}), and {namespace}/second in its queue"
    assert third["start"].startswith(f"{at.format(2)} {behind}: 2 cpu in {namespace} more must become free; "), third

    api = RbacAuthorizationV1Api(admin)
    role = api.read_namespaced_role("pulumi-trainer-" + namespace, namespace)
    role.rules = [rule for rule in role.rules if "visibility.kueue.x-k8s.io" not in rule.api_groups]
    api.replace_namespaced_role(role.metadata.name, namespace, role)
    until(lambda: cli.json("status", "third")[0]["start"] == "")
