"""Whether nodes can take Pods, by labels, taints, and what they can allocate while nothing else runs on them.

Affinity between Pods, volumes and host ports are not considered, so that a node never counts as unfit by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kube.schema.tolerations import Tolerations
from pulumi_trainer.provider.kube.values.accessors import Document, listed, mappings, name_of, section, text
from pulumi_trainer.provider.kube.values.label_selectors import matches
from pulumi_trainer.provider.kube.values.pod_requests import pod_requests
from pulumi_trainer.provider.kube.values.quantity import Quantity

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
        why: What the nodes that come closest lack.
        on_demand: Whether an autoscaler may add other nodes.
        tainted: Whether taints keep the Pod away from all nodes that it selects.
    """

    why: str
    on_demand: bool
    tainted: bool = False


def reason_without_node(pod_spec: Document, nodes: Sequence[Document], count: int = 1) -> NoNode | None:
    """Return why the nodes do not take equal Pods; None if they may, or if there are no nodes.

    Args:
        pod_spec: The spec of the Pods, with their overhead and without unknown values.
        nodes: All nodes of the cluster.
        count: Number of the Pods, which run at the same time.

    Raises:
        ValueError: A quantity is not valid.
    """
    if not nodes or pod_spec.get("nodeName") or any(not section(n, "status", "allocatable") for n in nodes):
        return None
    why = _reason(pod_spec, nodes, count)
    return NoNode(why, any(map(is_made_on_demand, nodes)), _TAINTED in why) if why else None


def _reason(pod_spec: Document, nodes: Sequence[Document], count: int) -> str:
    matching = [node for node in nodes if _selects(pod_spec, node)]
    if not matching:
        return f"none of {len(nodes)} nodes matches its node selector or affinity{_shown_selector(pod_spec)}"
    known = Tolerations(listed(pod_spec.get("tolerations")))
    open_ = [node for node in matching if not _untolerated(known, node)]
    if not open_:
        taint = _untolerated(known, matching[0])[0]
        value = f"={taint['value']}" if taint.get("value") else ""
        which = f"all {len(matching)} nodes" if len(matching) == len(nodes) else f"all {len(matching)} nodes that match"
        return f"{which} {_TAINTED}, such as {taint.get('key')}{value}:{taint.get('effect')}"
    requests = {name: q for name, q in pod_requests(pod_spec).items() if isinstance(q, Quantity) and q.amount}
    largest = {name: max((_allocatable(node, name) for node in open_), key=_by_amount) for name in requests}
    short = [name for name, request in requests.items() if request.amount > largest[name].amount]
    if short:
        lacks = [f"{requests[name]} {name}: {_largest(largest[name])}" for name in sorted(short)]
        return f"no node has {', or '.join(lacks)}"
    wanted = ", ".join(f"{quantity} {name}" for name, quantity in sorted(requests.items()))
    room = sum(_room(node, requests) for node in open_)
    if not room:
        return f"no node has {wanted} together"
    return "" if room >= count else f"the nodes have room for {room} of {count} Pods ({wanted} each)"


def _room(node: Document, requests: Mapping[str, Quantity]) -> int:
    """Return how many Pods with these requests an empty node takes."""
    most = [int(_allocatable(node, "pods").amount)] if "pods" in section(node, "status", "allocatable") else []
    most += [int(_allocatable(node, name).amount // quantity.amount) for name, quantity in requests.items()]
    return min(most, default=_MANY)


def _largest(amount: Quantity) -> str:
    return f"the largest has {amount}" if amount.amount else "none has any"


def _by_amount(quantity: Quantity) -> Any:
    return quantity.amount


def _allocatable(node: Document, resource: str) -> Quantity:
    return Quantity.parse(str(section(node, "status", "allocatable").get(resource, "0")))


def _untolerated(known: Tolerations, node: Document) -> list[Document]:
    """Return the taints that keep a Pod away from a node for good, not those of nodes that are not ready or cordoned."""
    taints = [t for t in mappings(section(node, "spec").get("taints")) if not text(t.get("key")).startswith(_STATES)]
    return [t for t in taints if t.get("effect") in ("NoSchedule", "NoExecute") and not known.tolerate(t)]


def _selects(pod_spec: Document, node: Document) -> bool:
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
    return f" ({', '.join(f'{key}={value}' for key, value in sorted(selector.items()))})" if selector else ""


def is_made_on_demand(node: Document) -> bool:
    """Return whether an autoscaler may have made a node, and may make others."""
    metadata = section(node, "metadata")
    names = [*section(metadata, "labels"), *section(metadata, "annotations")]
    return any(text(name).startswith(ON_DEMAND) for name in names)
