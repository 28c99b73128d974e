"""What LimitRanges of a namespace change in a Pod, and why they refuse it, in the API server's words.

Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/plugin/pkg/admission/limitranger/admission.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, section, without
from pulumi_trainer.provider.kubernetes.values.pod_requests import pod_requests, with_limits_as_requests
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity

Amounts = Mapping[str, Quantity]
_CONTAINERS = ("containers", "initContainers")


def with_defaults(pod_spec: Document, ranges: Iterable[Document]) -> Document:
    """Return the spec of a Pod with the limits and requests that LimitRanges add; of several defaults, the first one counts."""
    limits: Document = {}
    requests: Document = {}
    for each in _items(ranges, "Container"):
        limits = {**_default_limits(each), **limits}
        requests = {**_default_requests(each), **requests}
    if not limits and not requests:
        return pod_spec
    changed = {**pod_spec}
    for part in _CONTAINERS:
        if part in pod_spec:
            changed[part] = [_with_defaults(container, limits, requests) for container in items(pod_spec, part)]
    return changed


def _with_defaults(container: Document, limits: Document, requests: Document) -> Document:
    resources = section(container, "resources")
    own = {
        "limits": {**limits, **section(resources, "limits")},
        "requests": {**requests, **section(resources, "requests")},
    }
    return {**container, "resources": {**resources, **own}}


def _default_limits(item: Document) -> Document:
    return {**section(item, "max"), **section(item, "default")}


def _default_requests(item: Document) -> Document:
    return {**section(item, "min"), **_default_limits(item), **section(item, "defaultRequest")}


def refusals(pod_spec: Document, ranges: Sequence[Document]) -> list[str]:
    """Return why the API server refuses a Pod, in its words; empty if it does not. The spec has no unknown values."""
    spec = with_defaults(with_limits_as_requests(pod_spec), ranges)
    found = [*_limits_below_requests(pod_spec, spec)]
    if found:  # validated before admission compares with the LimitRanges
        return found
    for item in _items(ranges, "Container"):
        for part in _CONTAINERS:
            for container in items(spec, part):
                resources = section(container, "resources")
                found += _violations(item, _amounts(resources.get("requests")), _amounts(resources.get("limits")))
    for item in _items(ranges, "Pod"):
        found += _violations(item, amounts_of_pod(spec, "requests"), amounts_of_pod(spec, "limits"))
    return found


def _limits_below_requests(before: Document, after: Document) -> Iterator[str]:
    """Yield requests above a limit that a default has added."""
    for part in _CONTAINERS:
        for place, (given, container) in enumerate(zip(items(before, part), items(after, part), strict=True)):
            own, resources = section(given, "resources", "limits"), section(container, "resources")
            limits = _amounts(resources.get("limits"))
            for name, request in _amounts(resources.get("requests")).items():
                if name in limits and name not in own and request.amount > limits[name].amount:
                    at = f"spec.{part}[{place}].resources.requests"
                    yield f'{at}: Invalid value: "{request}": must be less than or equal to {name} limit of {limits[name]}'


def _violations(item: Document, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = item.get("type")
    for name, least in _amounts(item.get("min")).items():
        yield from _below_minimum(
            f"minimum {name} usage per {kind} is {least}", least, requests.get(name), limits.get(name)
        )
    for name, most in _amounts(item.get("max")).items():
        yield from _above_maximum(
            f"maximum {name} usage per {kind} is {most}", most, requests.get(name), limits.get(name)
        )
    for name, ratio in _amounts(item.get("maxLimitRequestRatio")).items():
        about = f"{name} max limit to request ratio per {kind} is {ratio}"
        yield from _out_of_ratio(about, ratio, requests.get(name), limits.get(name))


def _below_minimum(about: str, least: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None:
        yield f"{about}.  No request is specified"
    elif request.amount < least.amount:
        yield f"{about}, but request is {request}"
    elif limit is not None and limit.amount < least.amount:
        yield f"{about}, but limit is {limit}"


def _above_maximum(about: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if limit is None:
        yield f"{about}.  No limit is specified"
    elif limit.amount > most.amount:
        yield f"{about}, but limit is {limit}"
    elif request is not None and request.amount > most.amount:
        yield f"{about}, but request is {request}"


def _out_of_ratio(about: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None or not request.amount:
        yield f"{about}, but no request is specified or request is 0"
    elif limit is None or not limit.amount:
        yield f"{about}, but no limit is specified or limit is 0"
    else:
        ratio = Fraction(limit.amount) / request.amount
        if ratio > most.amount:
            yield f"{about}, but provided ratio is {float(ratio):f}"


def _items(ranges: Iterable[Document], kind: str) -> Iterator[Document]:
    for each in ranges:
        for item in listed(section(each, "spec").get("limits")):
            if section(item).get("type") == kind:
                yield item


def _amounts(given: object) -> dict[str, Quantity]:
    return {name: Quantity.parse(str(value)) for name, value in (given if isinstance(given, dict) else {}).items()}


def amounts_of_pod(spec: Document, field: str) -> dict[str, Quantity]:
    """Return requests or limits of all containers together (`field`), as LimitRanges count them: without overhead."""
    changed = without(spec, "overhead")
    for part in _CONTAINERS:
        changed[part] = [_only(container, field) for container in items(spec, part)]
    return {name: amount for name, amount in pod_requests(changed).items() if isinstance(amount, Quantity)}


def _only(container: Document, field: str) -> Document:
    """Return a container that requests what its requests or limits are."""
    given = section(container, "resources", field)
    return {**container, "resources": {"requests": {name: str(value) for name, value in given.items()}}}
