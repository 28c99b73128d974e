"""The permissions that `pulumi-trainer rbac` prints, granted to a service account of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubernetes import client
from kubernetes.client import ApiClient, ApiException
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import Permission, Subject

EVERYTHING = rbac.job_permissions("jobset") + [
    p for p in rbac.job_permissions("trainer") if p not in rbac.job_permissions("jobset")
]
"""Of both modes."""


def grant(admin: ApiClient, namespace: str, user: str, permissions: Sequence[Permission] = ()) -> str:
    """Grants what the table says, or these permissions alone, to a service account of the namespace; the name of what was
    made outside the namespace, for `revoke`."""
    api = client.RbacAuthorizationV1Api(admin)
    subject = Subject("ServiceAccount", user, namespace)
    name = f"pulumi-trainer-{namespace}"
    for document in rbac.objects(permissions or EVERYTHING, [namespace], [subject], name=name):
        made(api, document, namespace)
    return subject.binding


def revoke(admin: ApiClient, namespace: str, binding: str) -> None:
    """What is not in the namespace, and would stay when that goes."""
    api = client.RbacAuthorizationV1Api(admin)
    api.delete_cluster_role_binding(binding)
    api.delete_cluster_role(f"pulumi-trainer-{namespace}")


def made(api: client.RbacAuthorizationV1Api, document: dict[str, Any], namespace: str) -> None:
    """Replaces what an earlier call has made."""
    name = document["metadata"]["name"]
    kind = {
        "ClusterRole": "cluster_role", "ClusterRoleBinding": "cluster_role_binding",
        "Role": "namespaced_role", "RoleBinding": "namespaced_role_binding",
    }[document["kind"]]  # fmt: skip
    inside = [namespace] if "namespaced" in kind else []
    try:
        getattr(api, f"create_{kind}")(*inside, document)
    except ApiException as error:
        if error.status != 409:
            raise
        getattr(api, f"replace_{kind}")(name, *inside, document)
