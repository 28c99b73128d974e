"""`rbac`: prints the least permissions that jobs need, as YAML for `kubectl apply`. Loads no client of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.cli.job_status import print_table
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, name_problems
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import (
    NAME,
    Mode,
    Permission,
    Subject,
    job_permissions,
    objects,
    output_permissions,
    queue_admin_permissions,
    quota_permissions,
    usage_permissions,
)
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB


@dataclass(frozen=True)
class Role:
    """The permissions of one role, and the end of its name."""

    permissions: list[Permission]
    of: str


def chosen_roles(modes: Sequence[Mode], *, queues: bool, quotas: bool, outputs: bool, usage: bool) -> list[Role]:
    """Return the roles that options ask for. Rights that not everybody is to have are roles of their own."""
    without_queues = "" if queues else "-no-queues"
    roles = []
    for mode in dict.fromkeys(modes):
        name = "-mode-trainer" if mode == "trainer" else ""
        roles.append(Role(job_permissions(mode, queues=queues), f"{name}{without_queues}"))
    if outputs:  # a Pod can mount every volume and Secret of its namespace
        roles.append(Role(output_permissions(), "-outputs"))
    if quotas:  # some users may not see all queues
        roles.append(Role(quota_permissions(), "-quotas"))
    if usage:  # all ConfigMaps of the cluster
        roles.append(Role(usage_permissions(), "-usage"))
    return roles


def platform_roles() -> list[Role]:
    """Return what a platform team needs for queues, channels of its catalogue and accounts: a ClusterRole of its own."""
    return [Role([*queue_admin_permissions(), *usage_permissions()], "-platform")]


def print_roles(roles: Sequence[Role], namespaces: Sequence[str], subjects: Sequence[Subject]) -> None:
    """Print a comment with what each rule is for, then the objects."""
    wrong = list[Problem]()
    for name in namespaces:
        wrong += name_problems("--namespace", name, dns_1123_label)
    if wrong:
        raise Invalid(*wrong)
    print_line(
        "# Permissions that pulumi-trainer needs, and their purpose; * is optional: previews and"
        " explanations show more."
    )
    found: list[dict[str, Any]] = []
    for role in roles:
        for permission in role.permissions:
            verbs, what, why = _described(permission)
            print_line(f"#   {verbs} {what}: {why}")
        made = objects(role.permissions, namespaces, subjects, of=role.of)
        found += [each for each in made if _grants_something(each, role)]
    documents.print_objects(found, "yaml")


def _grants_something(document: Mapping[str, Any], role: Role) -> bool:
    """Return whether a role has permissions of the scope of a document, which is a role or a binding."""
    everywhere = document["kind"].startswith("Cluster")
    return any(permission.everywhere is everywhere for permission in role.permissions)


def explain_roles(roles: Sequence[Role]) -> None:
    """Print what each role grants and for what, and what the right to create jobs implies, for the readers of a review."""
    for role in roles:
        print_line(f"{NAME}{role.of}")
        rows = []
        for permission in role.permissions:
            verbs, what, why = _described(permission)
            scope = "cluster" if permission.everywhere else "namespace"
            rows.append((verbs, what, scope, why))
        print_table(["may", "on", "scope", "for"], rows)
        print_line()
    if any(map(_creates_jobs, roles)):
        print_lines(_IMPLIED.split("\n"))


def _creates_jobs(role: Role) -> bool:
    return any(p.kind in (JOBSET, TRAIN_JOB) and "create" in p.verbs for p in role.permissions)


_IMPLIED = """* Optional: without it, previews and explanations show less.

Who may create JobSets or TrainJobs in a namespace may run any image there, and its Pods may mount every Secret, ConfigMap and
volume of the namespace and run as each of its service accounts, whatever else this role grants. Keep teams apart by namespaces,
and limit what their Pods may be by Pod Security (pod-security.kubernetes.io/enforce) and ResourceQuotas."""


def subject(kind: str, given: str, namespaces: Sequence[str]) -> Subject:
    """Return the subject of an option.

    Args:
        given: The value; a service account is NAMESPACE:NAME, or NAME in the first of the namespaces.
    """
    if kind != "ServiceAccount":
        return Subject(kind, given)
    namespace, colon, name = given.removeprefix("system:serviceaccount:").partition(":")
    if colon:
        found = Subject(kind, name, namespace)
    else:
        found = Subject(kind, given, namespaces[0])
    if not found.name or not found.namespace:
        raise Invalid(Problem("--service-account", f"{given!r} is not NAMESPACE:NAME"))
    return found


def _described(permission: Permission) -> tuple[str, str, str]:
    """Return verbs, resource and purpose of a permission."""
    what = ".".join(filter(None, (permission.rule["resources"][0], permission.kind.group)))
    if permission.names:
        what += f" ({', '.join(permission.names)})"
    why = permission.why
    if permission.helps:
        why += " *"
    return ", ".join(permission.verbs), what, why
