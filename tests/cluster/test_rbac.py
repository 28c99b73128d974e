"""The permissions that `pulumi-trainer rbac` prints are enough (all tests here run under them), and none is too many."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import ACCESS_REVIEW, RULES_REVIEW
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TargetFault, TrainerError
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import IDENTITY, Permission
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from . import least
from .conftest import USER
from .jobs import jobset, send, submission, until

BASIC = {
    ("selfsubjectreviews", "create"),
    ("selfsubjectaccessreviews", "create"),
    ("selfsubjectrulesreviews", "create"),
}
"""What everybody may do (system:basic-user)."""


@pytest.fixture
def user(user_kubeconfig: Path) -> Client:
    return open_client({"kubeconfig": str(user_kubeconfig)}).within(5)


def granted(client: Client, namespace: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) for objects of any name, as the server sees it."""
    asked = {"apiVersion": RULES_REVIEW.api_version, "kind": RULES_REVIEW.kind, "spec": {"namespace": namespace}}
    rules = client.post(RULES_REVIEW, asked)["status"]["resourceRules"]
    return {
        (group, resource, verb)
        for rule in rules
        if not rule.get("resourceNames")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if (resource, verb) not in BASIC
    }


def allowed(client: Client, namespace: str, permission: Permission, verb: str, name: str = "") -> bool:
    rule = permission.rule
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "verb": verb,
        "namespace": namespace, "name": name,
    }  # fmt: skip
    asked = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.post(ACCESS_REVIEW, asked)["status"]["allowed"])


def triples(permissions: list[Permission]) -> set[tuple[str, str, str]]:
    return {(p.kind.group, p.rule["resources"][0], verb) for p in permissions for verb in p.verbs if not p.names}


@pytest.mark.smoke
def test_the_server_grants_the_table_and_no_more(user: Client, namespace: str) -> None:
    assert granted(user, namespace) == triples(least.EVERYTHING)
    assert granted(user, "default") == triples([p for p in least.EVERYTHING if p.everywhere])
    (identity,) = (p for p in least.EVERYTHING if p.names)
    assert allowed(user, "", identity, "get", IDENTITY) and not allowed(user, "", identity, "get", "default")


@pytest.mark.parametrize("arguments", [[], ["--mode", "trainer"], ["--no-queues"]])
def test_the_command_prints_what_the_server_takes(
    cluster: Any, namespace: str, arguments: list[str], tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "rbac", "-n", namespace, "--group", "research"]
    printed = subprocess.run([*argv, *arguments], capture_output=True, text=True, check=True).stdout
    root = open_client({"kubeconfig": str(cluster.kubeconfig)})
    for document in yaml.safe_load_all(printed):
        plural = f"{document['kind'].lower()}s"
        place = document["metadata"].get("namespace")
        base = "/apis/rbac.authorization.k8s.io/v1" + (f"/namespaces/{place}" if place else "")
        query = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}
        made = send(root, "POST", f"{base}/{plural}", query, document)
        assert made.get("rules", document.get("rules")) == document.get("rules")


@pytest.fixture
def without(admin: ApiClient, namespace: str, user: Client) -> Iterator[Callable[[str, str], KubernetesTarget]]:
    """The target under the table, less one verb of one resource."""

    def take(resource: str, verb: str) -> KubernetesTarget:
        kept = []
        for p in rbac.job_permissions("jobset"):
            if p.rule["resources"][0] == resource and not p.names:
                p = replace(p, verbs=tuple(v for v in p.verbs if v != verb))
            kept += [p] if p.verbs else []
        least.grant(admin, namespace, USER, kept)
        until(lambda: not any(r == resource and v == verb for _, r, v in granted(user, namespace)))
        return KubernetesTarget(user, cluster=lambda: "", namespace=namespace)

    return take  # type: ignore[return-value]


FLOWS: dict[tuple[str, str], Callable[[KubernetesTarget, str], Any]] = {
    ("configmaps", "create"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("configmaps", "patch"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("configmaps", "get"): lambda t, ns: t.jobs.status(ns, "a"),
    ("configmaps", "list"): lambda t, ns: t.sweep("stack"),
    ("secrets", "create"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("secrets", "patch"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("jobsets", "create"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("jobsets", "patch"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("jobsets", "list"): lambda t, ns: t.jobs.create(submission(ns, jobset("a", suspend=True))),
    ("jobsets", "get"): lambda t, ns: (t.jobs.create(submission(ns, jobset("a", suspend=True))), t.jobs.drift(ns, "a")),
    ("persistentvolumeclaims", "create"): lambda t, ns: t.volumes.create(ns, "v", "owner", "stack", {"size": "1Gi"}),
    ("persistentvolumeclaims", "get"): lambda t, ns: t.volumes.find(ns, "v"),
    ("persistentvolumeclaims", "list"): lambda t, ns: t.sweep("stack"),
}
"""What is done, and fails, without a permission."""


@pytest.mark.parametrize(("resource", "verb"), list(FLOWS))
def test_without_it_that_fails_and_is_told(
    without: Callable[[str, str], KubernetesTarget], namespace: str, resource: str, verb: str
) -> None:
    target = without(resource, verb)
    with pytest.raises(TrainerError) as caught:
        FLOWS[resource, verb](target, namespace)
    text = str(caught.value)
    assert isinstance(caught.value, TargetFault), text
    assert f'cannot {verb} resource "{resource}"' in text and "`pulumi-trainer rbac` prints" in text, text


def test_with_all_of_them_all_of_that_works(user: Client, namespace: str) -> None:
    target = KubernetesTarget(user, cluster=lambda: "", namespace=namespace)
    for flow in dict.fromkeys(FLOWS.values()):
        flow(target, namespace)


def test_who_may_not_see_which_cluster_it_is_may_do_nothing(
    admin: ApiClient, namespace: str, user: Client, user_kubeconfig: Path
) -> None:
    least.grant(admin, namespace, USER, [p for p in least.EVERYTHING if not p.names])
    (identity,) = (p for p in least.EVERYTHING if p.names)
    until(lambda: not allowed(user, "", identity, "get", IDENTITY))
    client = open_client({"content": json.dumps(yaml.safe_load(user_kubeconfig.read_text())), "cluster": "recorded"})
    with pytest.raises(
        TargetFault, match=r'Namespace kube-system: .*cannot get resource "namespaces".*pulumi-trainer rbac'
    ):
        client.within(2).get(rbac.kinds.CONFIG_MAP, namespace, "a")


@pytest.mark.parametrize("modes", [("jobset", "trainer"), ("trainer", "jobset")], ids=" then ".join)
def test_who_works_in_both_modes_keeps_the_rights_of_the_first(
    cluster: Any, admin: ApiClient, namespace: str, modes: tuple[rbac.Mode, ...]
) -> None:
    """What the command prints for each mode, applied one after the other."""
    api, core = client.RbacAuthorizationV1Api(admin), client.CoreV1Api(admin)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "both"}})
    asked: Any = {"spec": {"expirationSeconds": 3600, "audiences": []}}
    token = core.create_namespaced_service_account_token("both", namespace, asked).status.token
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": content["contexts"][0]["context"]["user"], "user": {"token": token}}]
    both = open_client({"content": json.dumps(content)}).within(5)
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "rbac", "-n", namespace]
    outside: dict[str, str] = {}
    try:
        for mode in modes:
            command = [*argv, "--mode", mode, "--service-account", f"{namespace}:both"]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for document in yaml.safe_load_all(printed):
                least.made(api, document, namespace)
                if "namespace" not in document["metadata"]:
                    outside[document["metadata"]["name"]] = document["kind"]
        until(lambda: granted(both, namespace) == triples(least.EVERYTHING))
    finally:
        for name, kind in outside.items():
            delete = api.delete_cluster_role if kind == "ClusterRole" else api.delete_cluster_role_binding
            delete(name)
