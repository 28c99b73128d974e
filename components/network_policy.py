"""NetworkPolicies of jobs: their Pods reach each other, DNS and named addresses, and nothing else reaches them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, as_sequence, shown_value
from pulumi_trainer.args.signatures import not_one_of
from pulumi_trainer.job_component import JobComponent
from pulumi_trainer.kubernetes_object import KubernetesObject, ObjectArgs
from pulumi_trainer.program import session
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.provider.kubernetes.client.api_resources import NETWORK_POLICY
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, mappings, section
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, name_problems
from pulumi_trainer.provider.trainer.admission.network_policies import metadata_problems
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

PORTS = range(1, 65_536)
PROTOCOLS = ("TCP", "UDP", "SCTP")
_DNS = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        },
        {"ipBlock": {"cidr": "169.254.20.10/32"}},  # NodeLocal DNSCache
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}


class Egress(Args):
    """Addresses that Pods reach.

    Args:
        cidr: Range of addresses, such as 10.20.0.0/16 (`ipBlock.cidr`).
        excluded: Ranges within `cidr` that they do not reach; default: none (`ipBlock.except`).
        ports: Ports; default: all of all protocols (`ports`).
        protocol: Protocol of `ports`; default: TCP.
    """

    cidr: pulumi.Input[str]
    excluded: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    ports: pulumi.Input[Sequence[pulumi.Input[int]]] | None = None
    protocol: Literal["TCP", "UDP", "SCTP"] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if self.protocol is None:
            return found
        found += not_one_of("protocol", self.protocol, PROTOCOLS)
        if self.ports is None:
            found.append(Problem("protocol", "has no effect without ports", "give ports=, or leave protocol out"))
        return found


class NetworkPolicyArgs(ObjectArgs):
    """The arguments of `NetworkPolicy`."""

    job: JobComponent | pulumi.Input[str] | None = None
    egress: Sequence[Egress] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if isinstance(self.job, str):
            found += name_problems("job", self.job, dns_1123_label, "job name")
        elif not isinstance(self.job, (JobComponent, pulumi.Output, type(None))):
            found.append(Problem("job", f"must be a job or the name of one, not {shown_value(self.job)}"))
        return [*found, *egress_problems(self.egress)]


def egress_problems(egress: Any) -> Iterator[Problem]:
    """Yield which of the addresses are not `Egress`."""
    if isinstance(egress, Egress):
        yield Problem("egress", "must be a list, not Egress", "write egress=[Egress(...)]")
    for place, each in enumerate(as_sequence(egress)):
        if not isinstance(each, Egress):
            yield Problem(f"egress[{place}]", f"must be Egress(...), not {shown_value(each)}")


class NetworkPolicy(KubernetesObject):
    """A NetworkPolicy of one job, or of all jobs of a namespace (networking.k8s.io/v1).

    Its Pods reach each other, the Pods of the cluster's DNS (label k8s-app=kube-dns in kube-system), NodeLocal DNSCache
    and `egress`; only they reach each other. It needs a network plugin that enforces NetworkPolicies.

    Args:
        resource_name: Name of the Pulumi resource.
        job: The job: a TrainJob, DatasetInitializer or ModelInitializer, or the name of one; default: all jobs of the
            namespace, which then also reach one another.
        egress: Addresses outside the job; default: none.
        namespace: Namespace; default: that of the target.
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        opts: Resource options.
    """

    resource = NETWORK_POLICY
    kind = "NetworkPolicy"

    @constructor(NetworkPolicyArgs)
    def __init__(self) -> None: ...

    def construct(self, args: ObjectArgs) -> None:
        session.current().has_network_policies = True
        super().construct(args)

    def content(self, args: NetworkPolicyArgs) -> Mapping[str, Any]:
        """Return the object's spec. Values may be Outputs."""
        name = args.job
        if isinstance(name, JobComponent):
            name = name.name_in_target
        if name is None:
            pods: dict[str, Any] = {"matchExpressions": [{"key": JOBSET_NAME, "operator": "Exists"}]}
        else:
            pods = {"matchLabels": {JOBSET_NAME: name}}
        own = {"podSelector": pods}
        spec = {
            "podSelector": pods,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [own]}],
            "egress": [{"to": [own]}, _DNS, *map(_rule, _valid(args.egress))],
        }
        return {"spec": spec}

    def affects(self, job: Mapping[str, Any]) -> bool:
        """Return whether the policy selects the pods of a JobSet."""
        if isinstance(self._args.job, JobComponent):
            name: Any = self._args.job.name_in_target
        else:
            name = self._args.job
        return not isinstance(name, str) or name == job["metadata"]["name"]

    def object_problems(self, document: Mapping[str, Any]) -> list[Problem]:
        found = metadata_problems(document)
        for place, rule in enumerate(items(section(document, "spec"), "egress")[2:]):
            found += problems_below(f"egress[{place}]", _rule_problems(rule))
        return found


def _valid(given: Any) -> Sequence[Egress]:
    """Return the addresses; none if `check` has reported that some are not `Egress`."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, Egress) for each in given):
        return ()
    return given


def _rule(egress: Egress) -> dict[str, Any]:
    block: dict[str, Any] = {"cidr": egress.cidr}
    if egress.excluded is not None:
        block["except"] = egress.excluded
    if egress.ports is None:
        return {"to": [{"ipBlock": block}]}
    protocol = egress.protocol or "TCP"
    ports: Any = egress.ports
    if isinstance(ports, pulumi.Output):
        return {"to": [{"ipBlock": block}], "ports": ports.apply(lambda known: _ports(known, protocol))}
    return {"to": [{"ipBlock": block}], "ports": _ports(ports, protocol)}


def _ports(ports: Sequence[Any], protocol: str) -> list[dict[str, Any]]:
    return [{"protocol": protocol, "port": port} for port in ports]


def _rule_problems(rule: Mapping[str, Any]) -> Iterator[Problem]:
    block = section(mappings(rule.get("to"))[0], "ipBlock")
    whole, problem = _network("cidr", block.get("cidr"))
    if problem is not None:
        yield problem
    for i, each in enumerate(listed(block.get("except"))):
        part, problem = _network(f"excluded[{i}]", each)
        if problem is not None:
            yield problem
        elif whole is not None and part is not None and not _is_within(part, whole):
            relation = "is not within"
            if part == whole:
                relation = "is the same as"
            yield Problem(f"excluded[{i}]", f"{part} {relation} the cidr {whole}")
    if rule.get("ports") == []:
        yield Problem("ports", "is empty, which Kubernetes treats as all ports", "leave it out to allow all ports")
    for i, each in enumerate(items(rule, "ports")):
        port = each.get("port")
        if isinstance(port, (int, float, str)) and (isinstance(port, bool) or port not in PORTS):
            yield Problem(f"ports[{i}]", f"must be a whole number from 1 to 65535, not {port!r}")


def _network(where: str, given: Any) -> tuple[IPv4Network | IPv6Network | None, Problem | None]:
    """Return a range of addresses, or why it is not one. Both are None for a value that is not known yet."""
    if not isinstance(given, str):
        return None, None
    try:
        found = ip_network(given)
        if _CIDR.fullmatch(given):
            return found, None
    except ValueError:
        pass
    try:
        hint = f"write {ip_network(given, strict=False)}"
    except ValueError:
        hint = "expected for example 10.20.0.0/16; NetworkPolicies do not support host names"
    return None, Problem(where, f"not a valid range of addresses: {given!r}", hint)


_CIDR = re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}")
"""A prefix length is required. `ip_network` also takes an address, a mask and a zone, which Kubernetes refuses."""


def _is_within(part: IPv4Network | IPv6Network, whole: IPv4Network | IPv6Network) -> bool:
    return part.version == whole.version and part != whole and part.subnet_of(whole)  # type: ignore[arg-type]
