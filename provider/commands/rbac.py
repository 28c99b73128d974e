"""`rbac`: the least permissions that jobs need in a cluster, as YAML for `kubectl apply`. Loads no client of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_trainer.provider.commands import documents
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.names import dns_1123_label
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import (
    Mode,
    Permission,
    Subject,
    needed,
    objects,
    queue_admin,
)
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import quotas as quota_permissions


def print_all(
    namespaces: Sequence[str], mode: Mode, subjects: Sequence[Subject], *, queues: bool, quotas: bool
) -> None:
    """Print a comment with what each rule is for, then the objects.

    Raises:
        Invalid: A namespace has no valid name.
    """
    wrong = [Problem("--namespace", f"{name!r}: {why}") for name in namespaces for why in dns_1123_label(name)]
    if wrong:
        raise Invalid(*wrong)
    permissions, of_quotas = needed(mode, queues=queues), quota_permissions() if quotas else []
    print("\n".join(_reasons([*permissions, *of_quotas])))
    of = ("-mode-trainer" if mode == "trainer" else "") + ("" if queues else "-no-queues")
    found = list(objects(permissions, namespaces, subjects, of=of))
    if of_quotas:  # a role of its own: users who may not see all queues have the others too
        found += objects(of_quotas, [], subjects, of="-quotas")
    documents.print_objects(found, "yaml")


def print_queue_admin(subjects: Sequence[Subject]) -> None:
    """The same of what a platform team needs for its queues: a ClusterRole of its own."""
    permissions = queue_admin()
    print("\n".join(_reasons(permissions)))
    documents.print_objects(list(objects(permissions, [], subjects, of="-queues")), "yaml")


def subject(kind: str, given: str, namespaces: Sequence[str]) -> Subject:
    """Of a command line; a service account is NAMESPACE:NAME, or NAME in the first of the namespaces. Raises Invalid."""
    if kind != "ServiceAccount":
        return Subject(kind, given)
    namespace, colon, name = given.removeprefix("system:serviceaccount:").partition(":")
    found = Subject(kind, name, namespace) if colon else Subject(kind, given, namespaces[0])
    if not found.name or not found.namespace:
        raise Invalid(Problem("--service-account", f"{given!r} is not NAMESPACE:NAME"))
    return found


def _reasons(permissions: Sequence[Permission]) -> Iterator[str]:
    yield "# What pulumi-trainer needs, and for what; * only lets previews and explanations say more."
    for permission in permissions:
        rule = permission.rule
        names = f" ({', '.join(permission.names)})" if permission.names else ""
        mark = " *" if permission.helps else ""
        what = ".".join(filter(None, (rule["resources"][0], permission.kind.group)))
        yield f"#   {', '.join(permission.verbs)} {what}{names}: {permission.why}{mark}"
