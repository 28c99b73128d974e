"""Rules about what Kubernetes refuses when the Pods are to be made: neither Trainer's nor JobSet's admission looks inside.

https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.admission.warnings.view import (
    Document,
    Step,
    View,
    amount,
    reached,
)
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kube.values.unknown import Unknown

_OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
"""Requests may be lower than limits; of all else, such as GPUs and huge pages, they have to be equal."""


def refused_resources(view: View) -> Iterator[Problem]:
    for step in view.steps:
        for at, container in _containers(step):
            for why, mend in _wrong(section(container, "resources")):
                yield Problem(f"{at}.resources", f"the container {container.get('name')} {why}", mend)


def _wrong(resources: Document) -> Iterator[tuple[str, str]]:
    requests, limits = (_amounts(section(resources, part)) for part in ("requests", "limits"))
    for part, amounts in (("requests", requests), ("limits", limits)):
        for name, quantity in amounts.items():
            if quantity.amount < 0:
                yield f"has {part} of {quantity} {name}", "0 or more"
            elif "/" in name and quantity.amount.denominator != 1:
                yield f"has {part} of {quantity} {name}, which comes in whole ones", "a whole number"
    for name in requests.keys() & limits.keys():
        if requests[name].amount > limits[name].amount:
            yield (
                f"requests {requests[name]} {name}, more than its limit of {limits[name]}",
                "a limit that is not lower",
            )
        elif name not in _OVERCOMMITTED and requests[name].amount != limits[name].amount:
            yield f"requests {requests[name]} {name}, and has another limit, {limits[name]}", "leave the request out"


def _amounts(given: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: quantity for name, value in given.items() if (quantity := amount(value))}


def mounts_of_nothing(view: View) -> Iterator[Problem]:
    claimed = [*_claims(section(view.jobset, "spec").get("volumeClaimPolicies"))]
    for step in view.steps:
        known = [*_names(step.pod.get("volumes")), *claimed]
        if any(isinstance(name, Unknown) for name in known):
            continue
        for at, container in _containers(step):
            for place, mount in enumerate(listed(container.get("volumeMounts"))):
                name = section(mount).get("name")
                if isinstance(name, str) and name not in known:
                    why = f"the container {container.get('name')} mounts {name}, and its Pod has no such volume"
                    there = ", ".join(sorted(map(str, known))) or "none"
                    yield Problem(f"{at}.volumeMounts[{place}].name", why, f"it has: {there}")


def _claims(policies: Any) -> Iterator[Any]:
    """Names of the claims that JobSet mounts as volumes; an unknown value where there may be more."""
    for policy in [policies] if isinstance(policies, Unknown) else listed(policies):
        templates = reached(policy, "templates")
        for template in [templates] if isinstance(templates, Unknown) else listed(templates):
            yield reached(template, "metadata", "name")


def _names(volumes: Any) -> Iterator[Any]:
    for volume in [volumes] if isinstance(volumes, Unknown) else listed(volumes):
        yield reached(volume, "name")


def _containers(step: Step) -> Iterator[tuple[str, Document]]:
    at = f"{step.at}.template.spec.template.spec"
    for part in ("initContainers", "containers"):
        for place, container in enumerate(listed(step.pod.get(part))):
            if isinstance(container, dict):
                yield f"{at}.{part}[{place}]", container
