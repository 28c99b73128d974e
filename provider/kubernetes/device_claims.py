"""The devices that Pods claim by Dynamic Resource Allocation, in resourceClaims instead of limits.

Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/api/resource/v1/types.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import Pod, entries

TEMPLATE, CLAIM, CLASS = "ResourceClaimTemplate", "ResourceClaim", "DeviceClass"
Find: TypeAlias = Callable[[str, str], "Document | None"]
"""Returns the object of a kind and name, of the namespace of a job; None if it is not known."""


@dataclass(frozen=True)
class DeviceRequest:
    """A request of a claim.

    Args:
        classes: Names of its DeviceClasses: one, or those of all alternatives (`firstAvailable`).
        count: Number of devices; None if it depends on what the scheduler finds.
        is_gpu: Whether the devices are GPUs or parts of one; None if it depends on what the scheduler finds.
        admin: Whether it gives access to devices that others use, as for monitoring.
    """

    name: str
    classes: tuple[str, ...]
    count: int | None
    is_gpu: bool | None
    has_alternatives: bool = False
    admin: bool = False

    def __str__(self) -> str:
        number = "an unknown number" if self.count is None else self.count
        return f"{number} of {' or '.join(self.classes)}"


@dataclass(frozen=True)
class DeviceClaim:
    """An entry of a Pod's resourceClaims.

    Args:
        kind: `ResourceClaimTemplate` for a claim of each Pod, `ResourceClaim` for one that all Pods share.
        requests: Its requests; None if the object is not known.
    """

    name: str
    at: str
    kind: str
    source: str
    requests: tuple[DeviceRequest, ...] | None

    def __str__(self) -> str:
        devices = " and ".join(map(str, self.requests or ()))
        return f"{self.name} ({self.kind} {self.source}{devices and f': {devices}'})"


def device_claims(pod: Pod, find: Find = lambda _kind, _name: None) -> tuple[DeviceClaim, ...]:
    """Return the claims of a Pod."""
    found: list[DeviceClaim] = []
    for at, entry in entries(pod.spec, "resourceClaims", pod.at):
        kind, source = TEMPLATE, text(entry.get("resourceClaimTemplateName"))
        if entry.get("resourceClaimName") is not None:
            kind, source = CLAIM, text(entry["resourceClaimName"])
        requests = _requests(kind, source, find) if source else None
        found.append(DeviceClaim(text(entry.get("name")), at, kind, source, requests))
    return tuple(found)


def _requests(kind: str, source: str, find: Find) -> tuple[DeviceRequest, ...] | None:
    document = find(kind, source)
    spec = section(document, "spec")
    if kind == TEMPLATE:
        spec = section(spec, "spec")
    if document is None or first_unknown(document) is not None:
        return None
    return tuple(_request(each, find) for each in mappings(section(spec, "devices").get("requests")))


def _request(request: Document, find: Find) -> DeviceRequest:
    """Return a request, also one of v1beta1, which has the fields of `exactly` itself."""
    alternatives = mappings(request.get("firstAvailable"))
    exact = section(request, "exactly") or request
    asked = alternatives or [exact]
    classes = tuple(text(each.get("deviceClassName")) for each in asked)
    counts, kinds = {*map(_count, asked)}, {_is_gpu(each, find) for each in classes}
    return DeviceRequest(
        name=text(request.get("name")),
        classes=classes,
        count=counts.pop() if len(counts) == 1 else None,
        is_gpu=kinds.pop() if len(kinds) == 1 else None,
        has_alternatives=bool(alternatives),
        admin=exact.get("adminAccess") is True,
    )


def _count(asked: Document) -> int | None:
    if asked.get("allocationMode") == "All":
        return None
    count = asked.get("count", 1)
    return count if isinstance(count, int) else None


def _is_gpu(name: str, find: Find) -> bool | None:
    """Return whether a DeviceClass has GPUs or parts of one, by its name or what the class says; None if neither is known."""
    document = find(CLASS, name)
    spec = section(document, "spec")
    selectors = [text(section(each, "cel").get("expression")) for each in listed(spec.get("selectors"))]
    words = " ".join([name, text(spec.get("extendedResourceName")), *selectors]).lower()
    if "gpu" in words or name.startswith("mig."):
        return True
    return None if document is None else False


def claims_of_container(container: Document, claims: Iterable[DeviceClaim]) -> list[DeviceClaim]:
    """Return the claims whose devices a container gets, each with the requests that it names."""
    by_name = {claim.name: claim for claim in claims}
    found: list[DeviceClaim] = []
    for entry in mappings(section(container, "resources").get("claims")):
        claim = by_name.get(text(entry.get("name")))
        if claim is not None:
            found.append(_narrowed(claim, entry.get("request")))
    return found


def _narrowed(claim: DeviceClaim, request: Any) -> DeviceClaim:
    if not request or claim.requests is None:
        return claim
    kept = tuple(each for each in claim.requests if each.name == request)
    return DeviceClaim(claim.name, claim.at, claim.kind, claim.source, kept)


def count_gpus(claims: Iterable[DeviceClaim]) -> int | None:
    """Return the GPUs of claims; None if their number is not known."""
    total = 0
    for claim in claims:
        if claim.requests is None:
            return None
        for number in map(_gpus, claim.requests):
            if number is None:
                return None
            total += number
    return total


def _gpus(request: DeviceRequest) -> int | None:
    if request.admin or request.is_gpu is False:
        return 0
    return request.count if request.is_gpu else None


def devices_by_class(claims: Iterable[DeviceClaim]) -> Iterator[tuple[str, int]]:
    """Yield class and number of the devices of claims, as far as both are known."""
    for claim in claims:
        for request in claim.requests or ():
            if request.count is not None and len(request.classes) == 1:
                yield request.classes[0], request.count
