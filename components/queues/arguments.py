"""The typed arguments of Kueue's objects. Fields and defaults are those of
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta2; what an object refers to is given by the component or
by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, python_path, to_document
from pulumi_trainer.args.naming import camel
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown

if TYPE_CHECKING:
    from pulumi_trainer.queues.checks import AdmissionCheck
    from pulumi_trainer.queues.objects import ResourceFlavor

Amount = pulumi.Input[int] | pulumi.Input[float] | pulumi.Input[str]
"""A quantity of Kubernetes: 16, "128Gi"."""
Labels = Mapping[str, pulumi.Input[str]]


def amount(value: Any) -> Any:
    """A fraction as text: the API has no others."""
    return str(value) if isinstance(value, float) else value


def named(value: Any) -> Any:
    """The name of a component, or the name that was given."""
    return getattr(value, "name", value) if isinstance(value, pulumi.ComponentResource) else value


def wrong_reference(field: str, kind: str, value: Any) -> list[Problem]:
    """Where something else stands than an object of that kind, or its name."""
    if isinstance(value, pulumi.Resource):
        if getattr(value, "kind", "") != kind:
            return [Problem(field, f"must be a {kind} or its name, not a {type(value).__name__}")]
    elif value is not None and not isinstance(value, (str, pulumi.Output)):
        return [Problem(field, f"must be a {kind} or its name, not {value!r}")]
    return []


def items(value: Any) -> Sequence[Any]:
    """Of a list; none of what should be one and is not."""
    return value if isinstance(value, (list, tuple)) else ()


class QueueArgs(Args):
    """Base. refers: fields that take an object of Kueue's, or its name -> its kind."""

    refers: ClassVar[Mapping[str, str]] = {}

    def check(self) -> list[Problem]:
        found = super().check()
        for field, kind in self.refers.items():
            found += wrong_reference(field, kind, self.__dict__.get(field))
        return found


class ResourceQuota(QueueArgs):
    """How much of one resource a queue has of one flavor (`resourceGroups[].flavors[].resources[]`).

    nominal_quota: what is its own. borrowing_limit: how much more it may take of what others in the cohort leave; default: all.
    lending_limit: how much of its own others may take while it is idle; default: all.
    """

    nominal_quota: Amount | None = None
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None

    converters = dict.fromkeys(("nominal_quota", "borrowing_limit", "lending_limit"), amount)


class FlavorQuotas(QueueArgs):
    """Quotas of one flavor (`resourceGroups[].flavors[]`).

    flavor: a `ResourceFlavor`, or the name of one. resources: resource -> its nominal quota, or a `ResourceQuota`.
    """

    flavor: ResourceFlavor | pulumi.Input[str] | None = None
    resources: Mapping[str, Amount | ResourceQuota] | None = None

    refers = {"flavor": "ResourceFlavor"}
    mappings = frozenset({"resources"})

    def check(self) -> list[Problem]:
        found = super().check()
        found += [Problem(field, "is required") for field in self.fields if self.__dict__.get(field) is None]
        return found

    def document(self) -> dict[str, Any]:
        given = self.resources
        quotas = given if isinstance(given, Unknown) else [self.quota(name) for name in given or {}]
        return {"name": named(self.flavor), "resources": quotas}

    def quota(self, name: str) -> dict[str, Any]:
        """One resource's, as the API has it."""
        given = (self.resources or {})[name]
        return {
            "name": name,
            **(given.document() if isinstance(given, ResourceQuota) else {"nominalQuota": amount(given)}),
        }


class ResourceGroup(QueueArgs):
    """Resources that are taken from the same flavor (`resourceGroups[]`).

    flavors: in the order in which they are tried; at most 64. covered_resources: what every flavor has a quota of; default:
    what the first has.
    """

    flavors: Sequence[FlavorQuotas] | None = None
    covered_resources: Sequence[str] | None = None

    lists = frozenset({"flavors", "covered_resources"})

    def check(self) -> list[Problem]:
        found = super().check()
        for i, flavor in enumerate(items(self.flavors)):
            if not isinstance(flavor, (FlavorQuotas, Unknown)):
                found.append(Problem(f"flavors[{i}]", f"must be a FlavorQuotas, not {type(flavor).__name__}"))
        return found

    def document(self) -> dict[str, Any]:
        flavors = to_document(self.flavors if self.flavors is not None else [])
        quotas = [f["resources"] for f in items(flavors) if isinstance(f, dict) and items(f["resources"])]
        first: Any = [quota["name"] for quota in quotas[0]] if quotas else []
        if isinstance(flavors, Unknown) or (any(isinstance(f, Unknown) for f in flavors) and not quotas):
            first = Unknown("covered_resources")
        covered = to_document(self.covered_resources) if self.covered_resources is not None else first
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


class BorrowWithinCohort(QueueArgs):
    """Whether a job that borrows may end others for it (`preemption.borrowWithinCohort`).

    policy: Never (default) or LowerPriority. max_priority_threshold: only jobs of at most that priority are ended.
    """

    policy: pulumi.Input[Literal["Never", "LowerPriority"]] | None = None
    max_priority_threshold: pulumi.Input[int] | None = None


class Preemption(QueueArgs):
    """Whom a job that waits may end (`preemption`).

    reclaim_within_cohort: jobs of other queues that hold what is this queue's own: Never (default), LowerPriority or Any.
    within_cluster_queue: jobs of its own queue: Never (default), LowerPriority or LowerOrNewerEqualPriority.
    borrow_within_cohort: see `BorrowWithinCohort`.
    """

    reclaim_within_cohort: pulumi.Input[Literal["Never", "LowerPriority", "Any"]] | None = None
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: pulumi.Input[Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]] | None = None


class FlavorFungibility(QueueArgs):
    """Whether the next flavor is tried before a job borrows or ends others (`flavorFungibility`).

    when_can_borrow: MayStopSearch (default) or TryNextFlavor. when_can_preempt: TryNextFlavor (default) or MayStopSearch.
    preference: if both are TryNextFlavor: BorrowingOverPreemption or PreemptionOverBorrowing.
    """

    when_can_borrow: pulumi.Input[Literal["MayStopSearch", "TryNextFlavor"]] | None = None
    when_can_preempt: pulumi.Input[Literal["MayStopSearch", "TryNextFlavor"]] | None = None
    preference: pulumi.Input[Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]] | None = None


class FairSharing(QueueArgs):
    """Where the cluster shares fairly (`fairSharing`). weight: of what can be borrowed; 0: comes last; default 1."""

    weight: Amount | None = None

    converters = {"weight": amount}


class AdmissionCheckRule(QueueArgs):
    """A check that jobs have to pass (`admissionChecksStrategy.admissionChecks[]`).

    check_name: an `AdmissionCheck`, or the name of one. on_flavors: only jobs that got one of these; default: all.
    """

    check_name: AdmissionCheck | pulumi.Input[str] | None = None
    on_flavors: Sequence[ResourceFlavor | pulumi.Input[str]] | None = None

    refers = {"check_name": "AdmissionCheck"}
    lists = frozenset({"on_flavors"})

    def check(self) -> list[Problem]:
        found = super().check()
        if self.check_name is None:
            found.append(Problem("check_name", "is required"))
        for i, flavor in enumerate(items(self.on_flavors)):
            found += wrong_reference(f"on_flavors[{i}]", "ResourceFlavor", flavor)
        return found

    def document(self) -> dict[str, Any]:
        only = {} if self.on_flavors is None else {"onFlavors": [named(f) for f in items(self.on_flavors)]}
        return {"name": named(self.check_name), **only}


class ConcurrentAdmissionPolicy(QueueArgs):
    """Whether a job may move to a better flavor (`concurrentAdmissionPolicy`; an alpha feature of Kueue). It never changes.

    mode: TryPreferredFlavors or RetainFirstAdmission. last_acceptable_flavor: the worst that it may start on.
    """

    mode: pulumi.Input[Literal["TryPreferredFlavors", "RetainFirstAdmission"]] | None = None
    last_acceptable_flavor: ResourceFlavor | pulumi.Input[str] | None = None

    refers = {"last_acceptable_flavor": "ResourceFlavor"}

    def document(self) -> dict[str, Any]:
        mode = {} if self.mode is None else {"mode": self.mode}
        last = named(self.last_acceptable_flavor)
        return {"migration": {**mode, **({} if last is None else {"constraints": {"lastAcceptableFlavorName": last}})}}


class CheckParameters(QueueArgs):
    """The object with a check's settings (`parameters`), for checks of other controllers than Kueue's."""

    api_group: pulumi.Input[str] | None = None
    kind: pulumi.Input[str] | None = None
    name: pulumi.Input[str] | None = None


class RetryStrategy(QueueArgs):
    """When a failed ProvisioningRequest is tried again (`retryStrategy`).

    backoff_limit_count: how often, default 3. backoff_base_seconds: first pause, default 60; it doubles.
    backoff_max_seconds: longest pause, default 1800.
    """

    backoff_limit_count: pulumi.Input[int] | None = None
    backoff_base_seconds: pulumi.Input[int] | None = None
    backoff_max_seconds: pulumi.Input[int] | None = None


class Spec(QueueArgs):
    """Base of what an object is made of, with its metadata.

    wraps: fields of the spec that hold another one: `admission_mode` -> `admissionScope.admissionMode`. named_as: field ->
    its name in the API, where that is another one.
    """

    labels: Mapping[str, pulumi.Input[str]] | None = None
    annotations: Mapping[str, pulumi.Input[str]] | None = None

    wraps: ClassVar[Mapping[str, str]] = {}
    needs: ClassVar[tuple[str, ...]] = ()
    shipped = frozenset({"labels", "annotations"})
    mappings = frozenset({"labels", "annotations"})

    def check(self) -> list[Problem]:
        found = super().check()
        found += [Problem(field, "is required") for field in self.needs if self.__dict__.get(field) is None]
        return found

    def document(self) -> dict[str, Any]:
        """The spec."""
        found: dict[str, Any] = {}
        for field in self.fields:
            value = self.__dict__.get(field)
            if field in self.shipped or value is None:
                continue
            value = named(value) if field in self.refers else value
            convert = to_document if isinstance(value, Unknown) else self.converters.get(field, to_document)
            plain = convert(value)
            path = self.wraps.get(field, camel(field)).split(".")
            holder = found
            for step in path[:-1]:
                holder = holder.setdefault(step, {})
            holder[path[-1]] = plain
        return found

    def place(self, where: str) -> str:
        for field, path in self.wraps.items():
            if where == path or where.startswith((f"{path}.", f"{path}[")):
                return super().place(field + where[len(path) :])
        inside = [field for field, path in self.wraps.items() if path.startswith(f"{where}.")]
        if len(inside) == 1:
            return inside[0]
        return super().place(where)
