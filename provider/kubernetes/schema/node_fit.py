"""Whether nodes can take Pods, by labels, taints, and what they can allocate while nothing else runs on them.

Affinity between Pods, volumes and host ports are not considered, so that a node never counts as unfit by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, name_of, section, text
from pulumi_trainer.provider.kubernetes.values.label_selectors import matches
from pulumi_trainer.provider.kubernetes.values.pod_requests import pod_requests
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity

ON_DEMAND = (
    "karpenter.sh/", "cluster-autoscaler.kubernetes.io/", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool", "cluster.x-k8s.io/",
)  # fmt: skip
"""Beginnings of labels and annotations of nodes that an autoscaler may have made: it can make other nodes as well."""
_STATES = "node.kubernetes.io/"
"""Beginning of the taints that Kubernetes adds and removes with the state of a node."""
_MANY = 1_000_000
_TAINTED = "have taints that it does not tolerate"


@dataclass(frozen=True)
class NoNode:
    """Why no node takes a Pod.

    Args:
        on_demand: Whether an autoscaler may add other nodes.
        tainted: Whether taints keep the Pod away from all nodes that it selects.
    """

    why: str
    on_demand: bool
    tainted: bool = False


def reason_without_node(pod_spec: Document, nodes: Sequence[Document], count: int = 1) -> NoNode | None:
    """Return why the nodes do not take equal Pods; None if they may, or if there are no nodes."""
    if not nodes or pod_spec.get("nodeName"):
        return None
    if any(not section(node, "status", "allocatable") for node in nodes):
        return None
    why = _reason_not_fitting(pod_spec, nodes, count)
    if not why:
        return None
    return NoNode(why, any(map(is_made_on_demand, nodes)), _TAINTED in why)


def _reason_not_fitting(pod_spec: Document, nodes: Sequence[Document], count: int) -> str:
    matching = [node for node in nodes if selects(pod_spec, node)]
    if not matching:
        return f"none of {len(nodes)} nodes matches its node selector or affinity{_shown_selector(pod_spec)}"
    tolerations = Tolerations(listed(pod_spec.get("tolerations")))
    open_ = [node for node in matching if not untolerated(tolerations, node)]
    if not open_:
        which = f"all {len(matching)} nodes"
        if len(matching) != len(nodes):
            which += " that match"
        return f"{which} {_TAINTED}, such as {shown_taint(untolerated(tolerations, matching[0])[0])}"
    return _lack_of_room(_requests(pod_spec), open_, count)


def shown_taint(taint: Document) -> str:
    """Return a taint as `kubectl` prints it."""
    value = ""
    if taint.get("value"):
        value = f"={taint['value']}"
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _requests(pod_spec: Document) -> dict[str, Quantity]:
    """Return what a Pod requests, without amounts that are unknown or zero."""
    requests: dict[str, Quantity] = {}
    for name, quantity in pod_requests(pod_spec).items():
        if isinstance(quantity, Quantity) and quantity.amount:
            requests[name] = quantity
    return requests


def _lack_of_room(requests: Mapping[str, Quantity], nodes: Sequence[Document], count: int) -> str:
    """Return what nodes lack for equal Pods; empty if they have room."""
    lacks: dict[str, str] = {}
    for name, request in requests.items():
        largest = max((_allocatable(node, name) for node in nodes), key=_by_amount)
        if request.amount > largest.amount:
            lacks[name] = f"{request} {name}: {_largest(largest)}"
    if lacks:
        return f"no node has {', or '.join(lacks[name] for name in sorted(lacks))}"
    wanted = ", ".join(f"{quantity} {name}" for name, quantity in sorted(requests.items()))
    room = sum(_room(node, requests) for node in nodes)
    if not room:
        return f"no node has {wanted} together"
    if room < count:
        return f"the nodes have room for {room} of {count} Pods ({wanted} each)"
    return ""


def _room(node: Document, requests: Mapping[str, Quantity]) -> int:
    """Return how many Pods with these requests an empty node takes."""
    most = []
    if "pods" in section(node, "status", "allocatable"):
        most.append(int(_allocatable(node, "pods").amount))
    most += [int(_allocatable(node, name).amount // quantity.amount) for name, quantity in requests.items()]
    return min(most, default=_MANY)


def _largest(amount: Quantity) -> str:
    if not amount.amount:
        return "none has any"
    return f"the largest has {amount}"


def _by_amount(quantity: Quantity) -> Any:
    return quantity.amount


def _allocatable(node: Document, resource: str) -> Quantity:
    return Quantity.parse(str(section(node, "status", "allocatable").get(resource, "0")))


def lasting_taints(node: Document) -> list[Document]:
    """Return the taints of a node without those of its state, such as not ready or cordoned."""
    return [
        taint
        for taint in mappings(section(node, "spec").get("taints"))
        if not text(taint.get("key")).startswith(_STATES)
    ]


def untolerated(tolerations: Tolerations, node: Document) -> list[Document]:
    """Return the taints that keep a Pod away from a node for good."""
    keep_away = [taint for taint in lasting_taints(node) if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return [taint for taint in keep_away if not tolerations.tolerate(taint)]


def selects(pod_spec: Document, node: Document) -> bool:
    """Return whether the node selector and the required node affinity of a Pod match a node."""
    labels = section(node, "metadata", "labels")
    if any(labels.get(key) != value for key, value in section(pod_spec, "nodeSelector").items()):
        return False
    required = section(pod_spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = mappings(required.get("nodeSelectorTerms"))
    return not terms or any(_matches_term(term, labels, node) for term in terms)


def _matches_term(term: Document, labels: Mapping[str, Any], node: Document) -> bool:
    fields = {"metadata.name": name_of(node)}
    expressions, of_fields = mappings(term.get("matchExpressions")), mappings(term.get("matchFields"))
    if not expressions and not of_fields:
        return False
    return all(matches(e, labels) for e in expressions) and all(matches(e, fields) for e in of_fields)


def _shown_selector(pod_spec: Document) -> str:
    selector = section(pod_spec, "nodeSelector")
    if not selector:
        return ""
    labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return f" ({labels})"


def is_made_on_demand(node: Document) -> bool:
    """Return whether an autoscaler may have made a node, and may make others."""
    metadata = section(node, "metadata")
    names = [*section(metadata, "labels"), *section(metadata, "annotations")]
    return any(text(name).startswith(ON_DEMAND) for name in names)
