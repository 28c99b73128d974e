"""The components of queues, cohorts and priorities; `component` has the common parts of all of Kueue's kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pulumi
from pulumi_trainer.program.constructors import constructor
from pulumi_trainer.program.object_owner import stack_name
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.trainer.labels import ON_DELETE
from pulumi_trainer.queues.arguments import FairSharing, FlavorFungibility, Preemption, Spec, items, object_name
from pulumi_trainer.queues.checks import AdmissionCheck
from pulumi_trainer.queues.component import QueueObject
from pulumi_trainer.queues.quotas import AdmissionCheckRule, ConcurrentAdmissionPolicy, ResourceGroup

if TYPE_CHECKING:
    from pulumi_kubernetes.meta.v1 import LabelSelectorArgs


class CohortArgs(Spec):
    """The arguments of `Cohort`."""

    parent: Cohort | pulumi.Input[str] | None = None
    resource_groups: Sequence[ResourceGroup] | None = None
    fair_sharing: FairSharing | None = None

    refers = {"parent": "Cohort"}
    paths = {"parent": "parentName"}


class Cohort(QueueObject):
    """ClusterQueues that lend each other idle quota (Cohort).

    Args:
        resource_name: Name of the Pulumi resource.
        parent: The cohort above it, or its name (`parentName`).
        resource_groups: Quotas that all its queues share, beside their own; borrowing and lending limits need a parent
            (`resourceGroups`).
        fair_sharing: Weight among the cohorts of its parent (`fairSharing`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "Cohort"

    @constructor(CohortArgs)
    def __init__(self) -> None: ...


def _checks(given: Any) -> Any:
    rules = []
    for each in given:
        if isinstance(each, AdmissionCheckRule):
            rules.append(each.document())
        else:
            rules.append({"name": object_name(each)})
    return {"admissionChecks": rules}


class ClusterQueueArgs(Spec):
    """The arguments of `ClusterQueue`."""

    resource_groups: Sequence[ResourceGroup] | None = None
    cohort: Cohort | pulumi.Input[str] | None = None
    queueing_strategy: pulumi.Input[Literal["BestEffortFIFO", "StrictFIFO"]] | None = None
    namespace_selector: pulumi.Input[LabelSelectorArgs | Mapping[str, Any]] | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: Preemption | None = None
    admission_checks: Sequence[AdmissionCheck | AdmissionCheckRule | pulumi.Input[str]] | None = None
    stop_policy: pulumi.Input[Literal["None", "Hold", "HoldAndDrain"]] | None = None
    fair_sharing: FairSharing | None = None
    admission_mode: pulumi.Input[Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]] | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    on_delete: Literal["refuse", "drain"] = "refuse"
    drain_seconds: float = 300

    refers = {"cohort": "Cohort"}
    paths = {
        "cohort": "cohortName",
        "admission_mode": "admissionScope.admissionMode",
        "admission_checks": "admissionChecksStrategy",
    }
    converters = {"admission_checks": _checks}
    shipped = Spec.shipped | {"on_delete", "drain_seconds"}

    def check(self) -> list[Problem]:
        found = super().check()
        for i, group in enumerate(items(self.resource_groups)):
            if not isinstance(group, ResourceGroup):
                found.append(Problem(f"resource_groups[{i}]", f"must be a ResourceGroup, not {type(group).__name__}"))
        return found


class ClusterQueue(QueueObject):
    """Quotas of a team, and who may use them (ClusterQueue). Jobs name one of its `LocalQueue`s.

    Args:
        resource_name: Name of the Pulumi resource.
        resource_groups: Quotas, at most 16 groups; each resource and each flavor is in one of them (`resourceGroups`).
        cohort: A `Cohort` or its name, whose queues lend each other idle quota (`cohortName`).
        queueing_strategy: `BestEffortFIFO` (default; a job that does not fit lets others pass) or `StrictFIFO`
            (`queueingStrategy`).
        namespace_selector: Namespaces whose LocalQueues may use it; default: all (an API object without one admits
            no job) (`namespaceSelector`).
        flavor_fungibility: When the next flavor is tried (`flavorFungibility`).
        preemption: Which jobs a waiting job may preempt (`preemption`).
        admission_checks: `AdmissionCheck`s, their names, or `AdmissionCheckRule`s for some flavors
            (`admissionChecksStrategy`).
        stop_policy: `None` (default), `Hold` (nothing new starts) or `HoldAndDrain` (running jobs are stopped too)
            (`stopPolicy`).
        fair_sharing: Weight among the queues of its cohort (`fairSharing`).
        admission_mode: `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing` (`admissionScope.admissionMode`).
        concurrent_admission_policy: Whether a job may move to a better flavor; alpha (`concurrentAdmissionPolicy`).
        on_delete: What happens to its jobs on deletion: `refuse` (default): it is not deleted while it has jobs;
            `drain`: running jobs are suspended and wait for another queue. A new value takes effect after `pulumi up`.
        drain_seconds: Seconds until jobs that still use quota stop the deletion with `drain`; default: 300.
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand: `restore` puts it back, `refuse` stops the update, `keep`
            leaves it; default: `refuse` if running or waiting jobs are affected, else `restore`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "ClusterQueue"

    @constructor(ClusterQueueArgs)
    def __init__(self) -> None: ...

    def construct(self, args: ClusterQueueArgs) -> None:
        """Register the ClusterQueue, and a guard against its deletion while it has work."""
        if args.namespace_selector is None:
            args.namespace_selector = {}
        self._release: dict[str, Any] = {"drain": args.on_delete == "drain", "seconds": args.drain_seconds}
        self.misnamed += release_problems(args.on_delete, args.drain_seconds)
        super().construct(args)
        self.guard = self.create_after_users("LocalQueue", self._guard)

    def _deletion_annotations(self) -> dict[str, str]:
        annotations = {}
        if self._release["drain"]:
            annotations[ON_DELETE] = "drain"
        return {**annotations, **super()._deletion_annotations()}

    def _guard(self, made: pulumi.Resource, users: list[pulumi.Resource]) -> dynamic.QueueGuard:
        """Return the guard, which allows the deletion of the queue only without work; it is created after the LocalQueues."""
        marks = [member.mark for member in (self, *self.members_deleted_after("LocalQueue"))]
        inputs = dynamic.QueueInputs(
            name=self.name,
            version=self.version,
            target=self.connection,
            stack=stack_name(),
            beside=self.deleted_after("LocalQueue"),
            mark=next((mark for mark in marks if isinstance(mark, pulumi.Output)), ""),
            **self._release,
        )
        return dynamic.QueueGuard(self.pulumi_resource_name, inputs, self.child_options(depends_on=[made, *users]))


def release_problems(on_delete: Any, seconds: Any) -> list[Problem]:
    """Return the problems of the arguments that define what happens to a queue's jobs on deletion."""
    found = []
    if on_delete not in ("refuse", "drain"):
        found.append(Problem("on_delete", f"must be refuse or drain, not {on_delete!r}"))
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 86400:
        found.append(Problem("drain_seconds", f"must be a number of seconds, 0 to 86400, not {seconds!r}"))
    return found


class LocalQueueArgs(Spec):
    """The arguments of `LocalQueue`."""

    cluster_queue: ClusterQueue | pulumi.Input[str]
    namespace: pulumi.Input[str] | None = None
    stop_policy: pulumi.Input[Literal["None", "Hold", "HoldAndDrain"]] | None = None
    fair_sharing: FairSharing | None = None

    refers = {"cluster_queue": "ClusterQueue"}


class LocalQueue(QueueObject):
    """The queue of jobs in a namespace (LocalQueue).

    Args:
        resource_name: Name of the Pulumi resource.
        cluster_queue: A `ClusterQueue` or its name; another one replaces the LocalQueue (`clusterQueue`).
        namespace: Namespace; default: that of the target.
        stop_policy: `None` (default), `Hold` (nothing new starts) or `HoldAndDrain` (running jobs are stopped too)
            (`stopPolicy`).
        fair_sharing: Weight among the LocalQueues of the ClusterQueue (`fairSharing`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "LocalQueue"

    @constructor(LocalQueueArgs)
    def __init__(self) -> None: ...


class WorkloadPriorityClassArgs(Spec):
    """The arguments of `WorkloadPriorityClass`."""

    value: pulumi.Input[int]
    description: pulumi.Input[str] | None = None


class WorkloadPriorityClass(QueueObject):
    """A priority that jobs name (WorkloadPriorityClass).

    Args:
        resource_name: Name of the Pulumi resource.
        value: Priority: higher comes first. Jobs without a class have that of their pods, mostly 0. A change applies to
            jobs that are created later (`value`).
        description: Text for readers, at most 2048 characters (`description`).
        name: Name of the object; default: the resource's name.
        labels: Labels of the object.
        annotations: Annotations of the object.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        drift: What an update does if the object was changed by hand, as for `ClusterQueue`.
        adopt: Whether to take over an equal object of the cluster that belongs to no stack; `existing`: a missing one is
            refused, and not created. Default: False.
        opts: Resource options.
    """

    kind = "WorkloadPriorityClass"

    @constructor(WorkloadPriorityClassArgs)
    def __init__(self) -> None: ...
