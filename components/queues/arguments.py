"""The typed arguments of Kueue's objects; `quotas` has those that refer to other objects.

Fields and defaults are those of https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta2; a reference to an
object is the component or its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import Args
from pulumi_trainer.program.constructors import ComponentArgs
from pulumi_trainer.program.drift import Drift
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.kubernetes.errors import Problem

Amount = pulumi.Input[int] | pulumi.Input[float] | pulumi.Input[str]
"""A quantity of Kubernetes: 16, "128Gi"."""
Labels = Mapping[str, pulumi.Input[str]]


def amount(value: Any) -> Any:
    """Return a fraction as text, because the API has no fractions."""
    if isinstance(value, float):
        return str(value)
    return value


def object_name(value: Any) -> Any:
    """Return the name of a component, or the value itself if it is not a component."""
    if not isinstance(value, pulumi.ComponentResource):
        return value
    return getattr(value, "name", value)


def wrong_reference(field: str, kind: str, value: Any) -> list[Problem]:
    """Return a problem if a value is neither an object of that kind nor a name."""
    if isinstance(value, pulumi.Resource):
        if getattr(value, "kind", "") != kind:
            return [Problem(field, f"must be a {kind} or its name, not a {type(value).__name__}")]
    elif value is not None and not isinstance(value, (str, pulumi.Output)):
        return [Problem(field, f"must be a {kind} or its name, not {value!r}")]
    return []


def items(value: Any) -> Sequence[Any]:
    """Return the items of a list; none if the value is not a list."""
    if isinstance(value, (list, tuple)):
        return value
    return ()


class QueueArgs(Args):
    """Base of the arguments of Kueue's objects.

    Attributes:
        refers: Field that refers to another object, by component or name -> kind of that object.
    """

    refers: ClassVar[Mapping[str, str]] = {}

    def check(self) -> list[Problem]:
        found = super().check()
        for field, kind in self.refers.items():
            found += wrong_reference(field, kind, self.__dict__.get(field))
        return found

    def converted(self, field: str, value: Any) -> Any:
        return super().converted(field, object_name(value) if field in self.refers else value)


class ResourceQuota(QueueArgs):
    """Quota of one resource of one flavor (`resourceGroups[].flavors[].resources[]`).

    Args:
        nominal_quota: Quota of the queue itself (`nominalQuota`).
        borrowing_limit: How much idle quota of its cohort the queue may use in addition; default: all
            (`borrowingLimit`).
        lending_limit: How much of its idle quota others may use; default: all (`lendingLimit`).
    """

    nominal_quota: Amount | None = None
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None

    converters = dict.fromkeys(("nominal_quota", "borrowing_limit", "lending_limit"), amount)


class BorrowWithinCohort(QueueArgs):
    """Whether a job that borrows may preempt others (`preemption.borrowWithinCohort`).

    Args:
        policy: `Never` (default) or `LowerPriority` (`policy`).
        max_priority_threshold: Highest priority of jobs that may be preempted; default: no limit
            (`maxPriorityThreshold`).
    """

    policy: pulumi.Input[Literal["Never", "LowerPriority"]] | None = None
    max_priority_threshold: pulumi.Input[int] | None = None


class Preemption(QueueArgs):
    """Which jobs a waiting job may preempt (`preemption`).

    Args:
        reclaim_within_cohort: Jobs of other queues that use this queue's quota: `Never` (default), `LowerPriority` or
            `Any` (`reclaimWithinCohort`).
        borrow_within_cohort: Jobs that a borrowing job may preempt (`borrowWithinCohort`).
        within_cluster_queue: Jobs of its own queue: `Never` (default), `LowerPriority` or `LowerOrNewerEqualPriority`
            (`withinClusterQueue`).
    """

    reclaim_within_cohort: pulumi.Input[Literal["Never", "LowerPriority", "Any"]] | None = None
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: pulumi.Input[Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]] | None = None


class FlavorFungibility(QueueArgs):
    """Whether the next flavor is tried before a job borrows or preempts (`flavorFungibility`).

    Args:
        when_can_borrow: `MayStopSearch` (default) or `TryNextFlavor` (`whenCanBorrow`).
        when_can_preempt: `TryNextFlavor` (default) or `MayStopSearch` (`whenCanPreempt`).
        preference: If both are TryNextFlavor: `BorrowingOverPreemption` or `PreemptionOverBorrowing` (`preference`).
    """

    when_can_borrow: pulumi.Input[Literal["MayStopSearch", "TryNextFlavor"]] | None = None
    when_can_preempt: pulumi.Input[Literal["MayStopSearch", "TryNextFlavor"]] | None = None
    preference: pulumi.Input[Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]] | None = None


class FairSharing(QueueArgs):
    """Share of a queue or cohort in a cluster with fair sharing (`fairSharing`).

    Args:
        weight: Weight for borrowing; 0 comes last; default: 1 (`weight`).
    """

    weight: Amount | None = None

    converters = {"weight": amount}


class CheckParameters(QueueArgs):
    """The object with a check's settings (`parameters`), for checks of other controllers than Kueue's.

    Args:
        api_group: API group of the object (`apiGroup`).
        kind: Kind of the object.
        name: Name of the object.
    """

    api_group: pulumi.Input[str] | None = None
    kind: pulumi.Input[str] | None = None
    name: pulumi.Input[str] | None = None


class RetryStrategy(QueueArgs):
    """When a failed ProvisioningRequest is tried again (`retryStrategy`).

    Args:
        backoff_limit_count: Number of retries; default: 3 (`backoffLimitCount`).
        backoff_base_seconds: Seconds before the first retry, doubled for each further one; default: 60
            (`backoffBaseSeconds`).
        backoff_max_seconds: Longest pause in seconds; default: 1800 (`backoffMaxSeconds`).
    """

    backoff_limit_count: pulumi.Input[int] | None = None
    backoff_base_seconds: pulumi.Input[int] | None = None
    backoff_max_seconds: pulumi.Input[int] | None = None


class Spec(QueueArgs, ComponentArgs):
    """Base of the arguments for an object's spec and metadata; its document is the spec."""

    labels: Mapping[str, pulumi.Input[str]] | None = None
    annotations: Mapping[str, pulumi.Input[str]] | None = None
    name: str | None = None
    target: Kubernetes | None = None
    drift: Drift | None = None
    adopt: bool | Literal["existing"] = False

    def check(self) -> list[Problem]:
        found = super().check()
        found += [Problem(field, "is required") for field in self.required() if getattr(self, field) is None]
        return found
