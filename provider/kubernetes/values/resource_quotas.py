"""What the Pods of a job use of the ResourceQuotas of a namespace, and which of them they exceed.

Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/quota/v1/evaluator/core/pods.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, name_of, section, text
from pulumi_trainer.provider.kubernetes.values.label_selectors import matches
from pulumi_trainer.provider.kubernetes.values.limit_ranges import amounts_of_pod
from pulumi_trainer.provider.kubernetes.values.pod_requests import pod_requests
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity

_PLAIN = ("cpu", "memory", "ephemeral-storage")
_REQUIRED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Of these, every container of a Pod has to have what a quota limits."""
_BEST_EFFORT = ("BestEffort", "NotBestEffort")
_PRIORITY = "PriorityClass"


@dataclass(frozen=True)
class Pods:
    """Equal Pods that run at the same time.

    Args:
        spec: Their spec, with the defaults of LimitRanges and the overhead of their RuntimeClass.
    """

    spec: Document
    count: int
    jobs: int = 1


@dataclass(frozen=True)
class Exceeded:
    """A resource of which Pods need more than a ResourceQuota has. used: What others use; 0 unless it was asked for."""

    quota: str
    resource: str
    requested: Quantity
    used: Quantity
    hard: Quantity


def exceeded(pods: Sequence[Pods], quotas: Iterable[Document], *, used: bool = False) -> Iterator[Exceeded]:
    """Yield the resources of which Pods need more than a quota has."""
    for quota in quotas:
        needed = _usage([each for each in pods if _is_in_scope(each.spec, quota)])
        in_use: Document = {}
        if used:
            in_use = section(quota, "status", "used")
        for resource, limit in section(quota, "spec", "hard").items():
            requested, hard = needed.get(resource), Quantity.parse(str(limit))
            taken = Quantity.parse(str(in_use.get(resource, "0")))
            if requested is not None and requested.amount and requested.amount + taken.amount > hard.amount:
                yield Exceeded(name_of(quota), resource, requested, taken, hard)


def unspecified(spec: Document, quotas: Iterable[Document]) -> Iterator[str]:
    """Yield why the API server refuses a Pod whose containers lack a request or limit of a quota, in its words."""
    if section(spec, "resources"):
        return
    for quota in quotas:
        if not _is_in_scope(spec, quota):
            continue
        missing: dict[str, list[str]] = {}
        for resource in sorted(set(_REQUIRED) & section(quota, "spec", "hard").keys()):
            for container in [*items(spec, "containers"), *items(spec, "initContainers")]:
                field, _, name = resource.rpartition(".")
                if name not in section(container, "resources", field or "requests"):
                    missing.setdefault(resource, []).append(str(container.get("name")))
        if missing:
            shown = "; ".join(f"{resource} for: {','.join(sorted(names))}" for resource, names in missing.items())
            yield f"failed quota: {name_of(quota)}: must specify {shown}"


def _usage(pods: Iterable[Pods]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for each in pods:
        requests = {name: q for name, q in pod_requests(each.spec).items() if isinstance(q, Quantity)}
        used = dict(_named(requests, amounts_of_pod(each.spec, "limits")))
        counts = {"pods": each.count, "count/pods": each.count, "count/jobs.batch": each.jobs}
        for name, amount in used.items():
            _add(total, name, amount * each.count)
        for name, count in counts.items():
            _add(total, name, Quantity.parse(str(count)))
    return total


def _add(total: dict[str, Quantity], name: str, amount: Quantity) -> None:
    if name in total:
        amount = total[name] + amount
    total[name] = amount


def _named(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Iterator[tuple[str, Quantity]]:
    """Yield what one Pod uses, by the names that quotas have for it."""
    for name, amount in requests.items():
        yield f"requests.{name}", amount
        if name in _PLAIN or name.startswith("hugepages-"):
            yield name, amount
    for name, amount in limits.items():
        if name in _PLAIN:
            yield f"limits.{name}", amount


def _is_in_scope(spec: Document, quota: Document) -> bool:
    """Return whether a quota counts a Pod; a scope that is not known counts none."""
    wanted = [{"scopeName": name, "operator": "Exists"} for name in listed(section(quota, "spec").get("scopes"))]
    wanted += map(section, listed(section(quota, "spec", "scopeSelector").get("matchExpressions")))
    return all(_matches_scope(spec, scope) for scope in wanted)


def _matches_scope(spec: Document, scope: Document) -> bool:
    name = scope.get("scopeName")
    if name in ("Terminating", "NotTerminating"):
        return (name == "Terminating") is (spec.get("activeDeadlineSeconds") is not None)
    if name in _BEST_EFFORT:
        return (name == "BestEffort") is _is_best_effort(spec)
    if name == _PRIORITY:
        labels: dict[str, str] = {}
        given = text(spec.get("priorityClassName"))
        if given:
            labels[_PRIORITY] = given
        return matches({**scope, "key": _PRIORITY}, labels)
    return False


def _is_best_effort(spec: Document) -> bool:
    """Return whether no container has a request or limit of cpu or memory."""
    holders = [spec, *items(spec, "containers"), *items(spec, "initContainers")]
    for holder in holders:
        resources = section(holder, "resources")
        given = {**section(resources, "limits"), **section(resources, "requests")}
        if any(Quantity.parse(str(given[name])).amount for name in ("cpu", "memory") if name in given):
            return False
    return True
