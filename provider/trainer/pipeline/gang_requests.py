"""Number and requests of the Pods of a gang, for PodGroups."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.values.pod_requests import requests_together
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.trainer.pipeline.info import Info


def min_member(info: Info) -> int | Unknown:
    """Return the Pods of all replicated jobs, initializers too; replicas do not count, as upstream."""
    counts = [pod_set.count for pod_set in info.pod_sets]
    return first_unknown(counts) or sum(count for count in counts if isinstance(count, int))


def min_resources(info: Info) -> dict[str, Any] | Unknown:
    """Return the requests of all these Pods: resource -> quantity. Unknown if the names of the resources are not known."""
    total = requests_together((pod_set.pod_spec, pod_set.count) for pod_set in info.pod_sets)
    if isinstance(total, Unknown):
        return total
    requests: dict[str, Any] = {}
    for name, amount in sorted(total.items()):
        if isinstance(amount, Unknown):
            requests[name] = amount
        else:
            requests[name] = amount.text
    return requests
