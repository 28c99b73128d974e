"""Rules about objects that Kubernetes rejects when controllers create them: admission of Trainer and JobSet does not check them.

Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import entries
from pulumi_trainer.provider.trainer.admission import podgroups
from pulumi_trainer.provider.trainer.admission.pod_names import is_root
from pulumi_trainer.provider.trainer.admission.pod_validation import job_problems
from pulumi_trainer.provider.trainer.admission.warnings.view import View, amount, listed_or_unknown, value_or_unknown
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER

_OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
"""Requests may be lower than limits; of all else, such as GPUs and huge pages, they have to be equal."""


def refused_objects(view: View) -> Iterator[Problem]:
    """Yield why the API server refuses the Jobs and PodGroups of a job, beside their resources, mounts and names."""
    refused: list[Iterable[Problem]] = [_by_nodes(view, job_problems(step)) for step in view.steps]
    for document in view.objects:
        is_group = document.get("kind") == "PodGroup" and document.get("apiVersion") in podgroups.API_VERSIONS
        if is_group and view.steps_known:
            refused.append(problems_below("PodGroup", podgroups.refusals(document)))
    for problem in chain.from_iterable(refused):
        yield replace(problem, hint=problem.hint or "correct it where it is set: in the runtime, or in a patch")


def _by_nodes(view: View, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield problems of a step, those of its number of Pods once, and at the TrainJob's number of nodes if that is where it
    is from.
    """
    nodes = section(view.trainer).get("numNodes")
    for problem in problems:
        if nodes is None or f"Invalid value: {nodes}:" not in problem.why:
            yield problem
        elif problem.where.endswith("parallelism"):
            yield Problem("spec.trainer.numNodes", f"must be 1 or more, not {nodes}")


def refused_resources(view: View) -> Iterator[Problem]:
    """Yield resources of containers that Kubernetes rejects."""
    for step in view.steps:
        for container in step.pod.all_containers:
            where = f"{container.at}.resources"
            trains = container.name == NODE and (step.ancestor == TRAINER or step.name == NODE)
            if trains and section(view.trainer, "resourcesPerNode"):
                where = RESOURCES
            for why, hint in _wrong(section(container.document, "resources")):
                yield Problem(where, f"the container {container.name} {why}", hint)


RESOURCES = "spec.trainer.resourcesPerNode"


def _wrong(resources: Document) -> Iterator[tuple[str, str]]:
    requests, limits = _amounts(section(resources, "requests")), _amounts(section(resources, "limits"))
    for part, amounts in (("requests", requests), ("limits", limits)):
        for name, quantity in amounts.items():
            if quantity.amount < 0:
                yield f"has {part} of {quantity} {name}", "0 or more"
            elif "/" in name and quantity.amount.denominator != 1:
                yield f"has {part} of {quantity} {name}, which must be a whole number", "a whole number"
    asked = {*requests, *limits}
    if any(name.startswith("hugepages-") for name in asked) and not asked & {"cpu", "memory"}:
        yield "requests only huge pages: HugePages require cpu or memory", "request cpu or memory as well"
    unlimited = sorted(requests.keys() - limits.keys() - {*_OVERCOMMITTED})
    if isinstance(resources.get("limits"), Unknown):
        unlimited = []
    for name in unlimited:
        if name not in section(resources, "limits"):
            why = (
                f"requests {requests[name]} {name} without a limit: Limit must be set for non overcommitable resources"
            )
            yield why, f"set it in limits, {name}: {requests[name]}; the request is the same then"
    for name in requests.keys() & limits.keys():
        if requests[name].amount > limits[name].amount:
            yield (
                f"requests {requests[name]} {name}, more than its limit of {limits[name]}",
                "raise the limit, or lower the request",
            )
        elif name not in _OVERCOMMITTED and requests[name].amount != limits[name].amount:
            yield (
                f"requests {requests[name]} {name}, but its limit is {limits[name]}: both must be equal",
                "leave the request out",
            )


def _amounts(given: Mapping[str, Any]) -> dict[str, Quantity]:
    amounts: dict[str, Quantity] = {}
    for name, value in given.items():
        quantity = amount(value)
        if quantity:
            amounts[name] = quantity
    return amounts


def mounts_without_volume(view: View) -> Iterator[Problem]:
    """Yield volume mounts without a volume of that name."""
    claimed = [*_claims(section(view.jobset, "spec").get("volumeClaimPolicies"))]
    for step in view.steps:
        known = [*_names(step.pod.spec.get("volumes")), *claimed]
        if any_unknown(known):
            continue
        for container in step.pod.all_containers:
            for at, mount in entries(container.document, "volumeMounts", container.at):
                name = mount.get("name")
                if isinstance(name, str) and name not in known:
                    why = f"the container {container.name} mounts {name}, but its Pod has no such volume"
                    there = ", ".join(sorted(map(str, known))) or "none"
                    yield Problem(f"{at}.name", why, f"available: {there}")


def mounts_at_root(view: View) -> Iterator[Problem]:
    """Yield volume mounts at the root folder, in any spelling: the API server admits them, and no container starts."""
    for step in view.steps:
        for container in step.pod.all_containers:
            for at, mount in entries(container.document, "volumeMounts", container.at):
                path = mount.get("mountPath")
                if is_root(path):
                    why = (
                        f"{path!r} is the root folder, where no container runtime mounts a volume: the container"
                        " never starts"
                    )
                    yield Problem(f"{at}.mountPath", why, "use a folder below it")


def _claims(policies: Any) -> Iterator[Any]:
    """Yield the names of the claims that JobSet mounts as volumes; an unknown value if there may be more."""
    for policy in listed_or_unknown(policies):
        for template in listed_or_unknown(value_or_unknown(policy, "templates")):
            yield value_or_unknown(template, "metadata", "name")


def _names(volumes: Any) -> Iterator[Any]:
    for volume in listed_or_unknown(volumes):
        yield value_or_unknown(volume, "name")
