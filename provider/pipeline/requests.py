"""What a Pod requests, and what a gang of Pods requests together: for PodGroups.

As Kubernetes counts before a Pod exists, limits are no requests:
https://github.com/kubernetes/component-helpers/blob/v0.36.3/resource/helpers.go
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.api.quantity import Quantity
from pulumi_trainer.provider.api.unknown import Unknown, first_unknown

from .info import Info, items, section

Amounts = dict[str, Quantity]
_NONE = Quantity.parse("0")


def min_member(info: Info) -> int | Unknown:
    """Pods of all replicated jobs, initializers too; replicas do not count, as upstream."""
    counts = [pod_set.count for pod_set in info.pod_sets]
    return first_unknown(counts) or sum(count for count in counts if isinstance(count, int))


def min_resources(info: Info) -> dict[str, str] | Unknown:
    """Requests of all those Pods: resource -> quantity."""
    total: Amounts = {}
    for pod_set in info.pod_sets:
        if unknown := first_unknown([pod_set.count, _what_counts(pod_set.pod_spec)]):
            return unknown
        assert isinstance(pod_set.count, int)
        for name, quantity in pod_requests(pod_set.pod_spec).items():
            total[name] = total.get(name, _NONE) + quantity * pod_set.count
    return {name: str(total[name]) for name in sorted(total)}


def pod_requests(pod_spec: dict[str, Any]) -> Amounts:
    """Of one Pod: its containers together, or its init containers at their highest, if that is more; what the Pod
    itself says of cpu, memory and huge pages replaces that; overhead comes on top."""
    total: Amounts = {}
    for container in items(pod_spec, "containers"):
        _add(total, _requests(container))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in items(pod_spec, "initContainers"):
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        _raise(highest, own)
    _raise(total, highest)
    whole = _requests(pod_spec)
    total.update({name: amount for name, amount in whole.items() if _of_a_pod(name)})
    _add(total, _amounts(section(pod_spec, "overhead")))
    return total


def _what_counts(pod_spec: dict[str, Any]) -> list[Any]:
    parts = [container.get("resources") for part in ("containers", "initContainers") for container in items(pod_spec, part)]
    lists = [pod_spec.get(part) for part in ("containers", "initContainers")]
    unknown = [value for value in lists if isinstance(value, Unknown)]
    return [*unknown, *parts, pod_spec.get("resources"), pod_spec.get("overhead")]


def _requests(holder: dict[str, Any]) -> Amounts:
    return _amounts(section(holder, "resources", "requests"))


def _amounts(given: dict[str, Any]) -> Amounts:
    return {name: Quantity.parse(str(amount)) for name, amount in given.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or amount.amount > total[name].amount:
            total[name] = amount


def _of_a_pod(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")
