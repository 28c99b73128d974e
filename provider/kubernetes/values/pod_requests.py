"""What a Pod requests, and what sets of Pods request together.

Counted as before a Pod exists, when limits are not requests yet:
https://github.com/kubernetes/component-helpers/blob/v0.36.3/resource/helpers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, mappings, section
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

Amounts: TypeAlias = "dict[str, Quantity | Unknown]"
"""By the resource's name."""


def pod_requests(pod_spec: dict[str, Any]) -> Amounts:
    """Return the requests of one Pod: the sum of its containers, or the highest init container if that is more, plus overhead.

    Requests of the Pod itself for cpu, memory and huge pages replace those of its containers.
    """
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
            own = sidecars
        else:
            _add(own, sidecars)
        _add_amounts(highest, own, _larger)
    _add_amounts(total, highest, _larger)
    for name, amount in _requests(pod_spec).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    _add(total, _amounts(pod_spec.get("overhead")))
    return total


def with_limits_as_requests(pod_spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a Pod in which a limit counts for a resource without a request, as when a Pod is created."""
    changed = {**pod_spec}
    for part in ("containers", "initContainers"):
        if part in pod_spec:
            changed[part] = [*map(_requesting, items(pod_spec, part))]
    return changed


def _requesting(container: dict[str, Any]) -> dict[str, Any]:
    resources = section(container, "resources")
    requests: dict[str, Any] = {}
    for name, amount in {**section(resources, "limits"), **section(resources, "requests")}.items():
        if isinstance(amount, int):
            amount = str(amount)
        requests[name] = amount
    return {**container, "resources": {**resources, "requests": requests}}


def requests_together(sets: Iterable[tuple[dict[str, Any], int | Unknown]]) -> Amounts | Unknown:
    """Return what sets of equal Pods request together; Unknown if the names of the resources are not known."""
    total: Amounts = {}
    for pod_spec, count in sets:
        unseen = _unseen(pod_spec)
        if unseen:
            return unseen
        _add(total, _multiply(pod_requests(pod_spec), count))
    return total


def _unseen(pod_spec: dict[str, Any]) -> Unknown | None:
    """Return an unknown part of the spec that may request any resource; None if all is known."""
    lists = [pod_spec.get("containers"), pod_spec.get("initContainers")]
    holders = [pod_spec, *listed(pod_spec.get("containers")), *listed(pod_spec.get("initContainers"))]
    resources = [holder.get("resources") for holder in mappings(holders)]
    requests = [each.get("requests") for each in mappings(resources)]
    parts = [*lists, *holders, *resources, *requests, pod_spec.get("overhead")]
    return next((part for part in parts if isinstance(part, Unknown)), None)


def _requests(holder: dict[str, Any]) -> Amounts:
    return _amounts(section(holder, "resources").get("requests"))


def _amounts(given: Any) -> Amounts:
    amounts: Amounts = {}
    for name, amount in (given or {}).items():
        if not isinstance(amount, Unknown):
            amount = Quantity.parse(amount)
        amounts[name] = amount
    return amounts


def _multiply(amounts: Amounts, count: int | Unknown) -> Amounts:
    if isinstance(count, Unknown):
        return dict.fromkeys(amounts, count)
    together: Amounts = {}
    for name, amount in amounts.items():
        if not isinstance(amount, Unknown):
            amount = amount * count
        together[name] = amount
    return together


def _add(total: Amounts, more: Amounts) -> None:
    _add_amounts(total, more, Quantity.__add__)


def _larger(old: Quantity, new: Quantity) -> Quantity:
    if new.amount > old.amount:
        return new
    return old


def _add_amounts(total: Amounts, more: Amounts, join: Callable[[Quantity, Quantity], Quantity]) -> None:
    for name, new in more.items():
        old = total.get(name)
        if old is None or isinstance(new, Unknown):
            total[name] = new
        elif not isinstance(old, Unknown):
            total[name] = join(old, new)
