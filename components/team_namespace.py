"""The component `TeamNamespace`: the namespace of a team with what limits it, who may work in it, and its share of GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import as_mapping, check_names, nested_problems, shown_value
from pulumi_trainer.args.signatures import merge_problems, not_one_of
from pulumi_trainer.kubernetes_object import KubernetesObject, Strings
from pulumi_trainer.network_policy import Egress, NetworkPolicy, egress_problems
from pulumi_trainer.object_part import Part, PartArgs, all_made
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.drift import Drift
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.kubernetes.client.api_resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    RESOURCE_QUOTA,
    ROLE,
    ROLE_BINDING,
)
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, name_problems, qualified_name
from pulumi_trainer.provider.kubernetes.values.quantity import quantity_problems
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import HARDENING
from pulumi_trainer.queues.teams import Team, TeamPlace

PodSecurity = Literal["privileged", "baseline", "restricted"]
_LEVELS = ("privileged", "baseline", "restricted")
_ENFORCE = "pod-security.kubernetes.io/enforce"
_KINDS = {kind.kind: kind for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING)}


class TeamNamespaceArgs(ComponentArgs):
    """The arguments of `TeamNamespace`."""

    share: Team | None = None
    groups: Sequence[str] = ()
    users: Sequence[str] = ()
    quota: Mapping[str, int | str] | None = None
    hardening: Literal["restricted", "none"] | None = None
    pod_security: PodSecurity | None = None
    egress: Sequence[Egress] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    drift: Drift | None = None
    name: str | None = None
    target: Kubernetes | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for argument, allowed in (("pod_security", _LEVELS), ("hardening", targets.HARDENING)):
            if getattr(self, argument) is not None:
                found += not_one_of(argument, getattr(self, argument), allowed)
        if self.share is not None and not isinstance(self.share, Team):
            found.append(Problem("share", f"must be Team(...), not {shown_value(self.share)}"))
        elif self.share is not None and self.share.namespace is not None:
            why = "has a namespace, which is the one that this component creates"
            found.append(Problem("share.namespace", why, "leave it out, or set name= of the TeamNamespace"))
        for argument in ("groups", "users"):
            found += _name_problems(argument, getattr(self, argument))
        found += _quota_problems(self.quota)
        found += egress_problems(self.egress)
        if _ENFORCE in as_mapping(self.labels):
            found.append(Problem(f"labels[{_ENFORCE}]", "pod_security= sets this label", "leave it out"))
        return found


class TeamNamespace(TeamPlace):
    """The namespace of a team, from one declaration.

    It creates the Namespace with the label of Pod Security, a ResourceQuota, a Role and a ClusterRole with what jobs need (as
    `pulumi-trainer rbac` prints) and their bindings to the team's groups and users, and with `egress` a NetworkPolicy.
    Give the teams to `GpuQueues(teams=[...])`, and each gets its queue, quota and budget.

    No update and no `destroy` deletes the Namespace: jobs, records and volumes in it stay, until somebody deletes it with
    kubectl. Who applies this must have the rights that the roles grant, or be allowed to escalate.

    Args:
        resource_name: Name of the Pulumi resource.
        share: The team's GPUs, budget and limits, for `GpuQueues`; default: none, so that it has no queue there.
        groups: Groups that may run jobs in the namespace, as the cluster's authentication names them; nobody can check that they
            exist.
        users: Users that may, likewise.
        quota: Resource -> most of the namespace, of a ResourceQuota: {"pods": 200, "requests.storage": "10Ti"}. Default: none.
        hardening: `restricted`: new runs of jobs in the namespace are hardened, as with `TrainJob(hardening="restricted")`, also
            those of other programs, unless their job or their stack (`trainer:hardening`) says otherwise. Default: `none`.
        pod_security: Level of Pod Security that the namespace enforces, where `restricted` needs jobs that are hardened; default:
            restricted with hardening="restricted", else baseline.
        egress: Addresses outside the cluster that Pods of jobs reach; their NetworkPolicy allows nothing else but DNS and each
            other. Default: no NetworkPolicy.
        labels: Further labels of the Namespace.
        annotations: Annotations of the Namespace.
        drift: What an update does with objects that were changed by hand, as for `ClusterQueue`.
        name: Name of the Namespace and of the team; default: the resource's name.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        opts: Resource options.
    """

    misnamed: list[Problem]

    @constructor(TeamNamespaceArgs)
    def __init__(self) -> None: ...

    def construct(self, args: TeamNamespaceArgs) -> None:
        where = f'TeamNamespace("{args.resource_name}") ({session.call_site()})'
        super().__init__("trainer:index:TeamNamespace", args.resource_name, None, args.opts)
        found = [*check_names(vars(args)), *self.misnamed, *targets.problems(args.target)]
        self.name: str = args.name or args.resource_name
        """Name of the Namespace, and of the team."""
        found = merge_problems(found, [*nested_problems(args), *_label_problems(self.name)])
        self.share = args.share
        """The team's share of the GPUs; None if it has none."""
        self.makes = frozenset({f"{NAMESPACE.kind}/{self.name}"})
        self.register_outputs({"name": self.name})
        if found:
            session.current().problems.extend(problems_below(where, found))
            return
        objects: list[KubernetesObject] = []
        opts = args.opts or pulumi.ResourceOptions()
        common: dict[str, Any] = {"target": args.target, "drift": args.drift}
        about: dict[str, Any] = {"of": where, **common}
        kept = pulumi.ResourceOptions(
            parent=self, depends_on=opts.depends_on, protect=opts.protect, retain_on_delete=True
        )
        level, annotations, hardened_by = args.pod_security or "baseline", {**(args.annotations or {})}, ""
        if args.hardening == "restricted":
            level, hardened_by = args.pod_security or "restricted", f'{where} has hardening="restricted"'
            annotations[HARDENING] = "restricted"
        session.current().hardening[targets.cluster_key(args.target), self.name] = hardened_by
        labels = {**(args.labels or {}), _ENFORCE: level}
        named: dict[str, Any] = {"name": self.name, "labels": labels, "annotations": annotations}
        namespace = Part(PartArgs(args.resource_name, resource=NAMESPACE, body={}, opts=kept, **named, **about))
        objects.append(namespace)
        after = pulumi.ResourceOptions(parent=self, depends_on=[namespace], protect=opts.protect)
        place: dict[str, Any] = {"namespace": self.name, "opts": after}
        inside: dict[str, Any] = {**place, **about}
        if args.quota:
            body = {"spec": {"hard": {name: str(most) for name, most in args.quota.items()}}}
            quota: dict[str, Any] = {"resource": RESOURCE_QUOTA, "body": body, "limits_jobs": True}
            objects.append(Part(PartArgs(args.resource_name, name="team", **quota, **inside)))
        for each in _roles(args, self.name):
            body = {key: value for key, value in each.items() if key not in ("apiVersion", "kind", "metadata")}
            name = text(each["metadata"]["name"])
            role: dict[str, Any] = {"name": name, "resource": _KINDS[each["kind"]], "body": body}
            objects.append(Part(PartArgs(f"{args.resource_name}-{name}", **role, **inside)))
        if args.egress is not None:
            objects.append(NetworkPolicy(args.resource_name, name="team", egress=args.egress, **place, **common))
        self.made: asyncio.Task[list[Any]] = session.current().spawn(all_made(objects))


def _roles(args: TeamNamespaceArgs, namespace: str) -> Sequence[Mapping[str, Any]]:
    """Return roles and bindings of those who may run jobs; none for nobody."""
    subjects = [*(("Group", name) for name in args.groups), *(("User", name) for name in args.users)]
    if not subjects:
        return ()
    destination = targets.choose(args.target)
    mode = (isinstance(destination, Kubernetes) and destination.mode) or pulumi.Config("trainer").get("mode")
    return queries.team_roles(mode or "jobset", namespace, subjects)


def _label_problems(name: str) -> Iterator[Problem]:
    yield from name_problems("name", name, dns_1123_label, "name of a namespace")


def _name_problems(argument: str, given: Any) -> Iterator[Problem]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        yield Problem(argument, f"must be a list of names, not {shown_value(given)}")
        return
    for place, name in enumerate(given):
        if not isinstance(name, str) or not name:
            yield Problem(f"{argument}[{place}]", f"must be a name, not {shown_value(name)}")
        elif name in given[:place]:
            yield Problem(f"{argument}[{place}]", f"{name} is a duplicate")


def _quota_problems(given: Any) -> Iterator[Problem]:
    if given is not None and not isinstance(given, Mapping):
        yield Problem("quota", f"must be a mapping from resources to amounts, not {shown_value(given)}")
        return
    for name, most in as_mapping(given).items():
        where = f"quota[{name}]"
        yield from name_problems(where, str(name), qualified_name, "resource name", "for example nvidia.com/gpu")
        yield from problems_below(where, quantity_problems(most))
