"""The arguments of queues that refer to flavors and admission checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import python_path, to_document
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.queues.arguments import (
    Amount,
    QueueArgs,
    ResourceQuota,
    amount,
    items,
    object_name,
    wrong_reference,
)
from pulumi_trainer.queues.checks import AdmissionCheck
from pulumi_trainer.queues.flavors import ResourceFlavor


class FlavorQuotas(QueueArgs):
    """Quotas of one flavor (`resourceGroups[].flavors[]`).

    Args:
        flavor: A `ResourceFlavor` or its name; required (`name`).
        resources: Resource -> nominal quota, or a `ResourceQuota`; required (`resources`).
    """

    flavor: ResourceFlavor | pulumi.Input[str] | None = None
    resources: Mapping[str, Amount | ResourceQuota] | None = None

    refers = {"flavor": "ResourceFlavor"}

    def check(self) -> list[Problem]:
        found = super().check()
        found += [Problem(field, "is required") for field in self.fields if self.__dict__.get(field) is None]
        return found

    def document(self) -> dict[str, Any]:
        quotas: Any = self.resources
        if not isinstance(quotas, Unknown):
            quotas = [*map(self.quota, quotas or {})]
        return {"name": object_name(self.flavor), "resources": quotas}

    def quota(self, name: str) -> dict[str, Any]:
        """Return the quota of one resource as the API has it."""
        given = (self.resources or {})[name]
        if isinstance(given, ResourceQuota):
            return {"name": name, **given.document()}
        return {"name": name, "nominalQuota": amount(given)}


class ResourceGroup(QueueArgs):
    """Resources that a job takes from the same flavor (`resourceGroups[]`).

    Args:
        flavors: Flavors in the order in which they are tried, at most 64 (`flavors`).
        covered_resources: Resources for which each flavor has a quota; default: those of the first flavor
            (`coveredResources`).
    """

    flavors: Sequence[FlavorQuotas] | None = None
    covered_resources: Sequence[str] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for i, flavor in enumerate(items(self.flavors)):
            if not isinstance(flavor, (FlavorQuotas, Unknown)):
                found.append(Problem(f"flavors[{i}]", f"must be a FlavorQuotas, not {type(flavor).__name__}"))
        return found

    def document(self) -> dict[str, Any]:
        flavors: Any = []
        if self.flavors is not None:
            flavors = to_document(self.flavors)
        quotas = [f["resources"] for f in items(flavors) if isinstance(f, dict) and items(f["resources"])]
        covered: Any = []
        if quotas:
            covered = [quota["name"] for quota in quotas[0]]
        if isinstance(flavors, Unknown) or (any_unknown(flavors) and not quotas):
            covered = Unknown("covered_resources")
        if self.covered_resources is not None:
            covered = to_document(self.covered_resources)
        for each in quotas:  # the API wants the same order everywhere
            place = {name: i for i, name in enumerate(items(covered)) if isinstance(name, str)}
            each.sort(key=lambda quota: place.get(quota["name"], len(place)))
        return {"coveredResources": covered, "flavors": flavors}

    def place(self, where: str) -> str:
        match = _QUOTA.match(where)
        if match is None:
            return python_path(where)
        quotas = self.document()["flavors"][int(match["flavor"])]["resources"]
        return f"flavors[{match['flavor']}].resources[{quotas[int(match['at'])]['name']}]{python_path(match['rest'])}"


_QUOTA = re.compile(r"flavors\[(?P<flavor>\d+)\]\.resources\[(?P<at>\d+)\](?P<rest>.*)")


class AdmissionCheckRule(QueueArgs):
    """A check that jobs must pass (`admissionChecksStrategy.admissionChecks[]`).

    Args:
        check_name: An `AdmissionCheck` or its name; required (`name`).
        on_flavors: Only jobs with one of these flavors, `ResourceFlavor`s or names; default: all (`onFlavors`).
    """

    check_name: AdmissionCheck | pulumi.Input[str] | None = None
    on_flavors: Sequence[ResourceFlavor | pulumi.Input[str]] | None = None

    refers = {"check_name": "AdmissionCheck"}
    paths = {"check_name": "name"}
    converters = {"on_flavors": lambda given: [*map(object_name, items(given))]}

    def check(self) -> list[Problem]:
        found = super().check()
        if self.check_name is None:
            found.append(Problem("check_name", "is required"))
        for i, flavor in enumerate(items(self.on_flavors)):
            found += wrong_reference(f"on_flavors[{i}]", "ResourceFlavor", flavor)
        return found


class ConcurrentAdmissionPolicy(QueueArgs):
    """Whether a job may move to a better flavor (`concurrentAdmissionPolicy`; alpha in Kueue). It is immutable.

    Args:
        mode: `TryPreferredFlavors` or `RetainFirstAdmission` (`migration.mode`).
        last_acceptable_flavor: Worst flavor that a job may start on (`migration.constraints.lastAcceptableFlavorName`).
    """

    mode: pulumi.Input[Literal["TryPreferredFlavors", "RetainFirstAdmission"]] | None = None
    last_acceptable_flavor: ResourceFlavor | pulumi.Input[str] | None = None

    refers = {"last_acceptable_flavor": "ResourceFlavor"}
    paths = {"mode": "migration.mode", "last_acceptable_flavor": "migration.constraints.lastAcceptableFlavorName"}

    def document(self) -> dict[str, Any]:
        return {"migration": {}, **super().document()}
