"""One component for each of Kueue's kinds but those of `checks`. What they have in common is in `component`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.labels import ON_DELETE
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.queues.arguments import (
    AdmissionCheckRule,
    ConcurrentAdmissionPolicy,
    FairSharing,
    FlavorFungibility,
    Labels,
    Preemption,
    ResourceGroup,
    Spec,
    items,
    named,
)
from pulumi_trainer.queues.checks import AdmissionCheck
from pulumi_trainer.queues.component import QueueObject, stack_name


class _Topology(Spec):
    levels: Sequence[pulumi.Input[str]] | None = None

    needs = ("levels",)
    lists = frozenset({"levels"})
    converters = {"levels": lambda labels: [{"nodeLabel": label} for label in labels]}


class Topology(QueueObject):
    """How far nodes are from each other (Topology): labels of nodes, the widest first, such as a block, a rack and
    `kubernetes.io/hostname`, which can only be the last. They never change: with other levels it needs another name."""

    kind = "Topology"
    arguments = _Topology

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        levels: Sequence[pulumi.Input[str]],
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


class _ResourceFlavor(Spec):
    node_labels: Mapping[str, pulumi.Input[str]] | None = None
    node_taints: Sequence[Any] | None = None
    tolerations: Sequence[Any] | None = None
    topology: Topology | pulumi.Input[str] | None = None

    refers = {"topology": "Topology"}
    wraps = {"topology": "topologyName"}
    lists = frozenset({"node_taints", "tolerations"})
    mappings = frozenset({"labels", "annotations", "node_labels"})


class ResourceFlavor(QueueObject):
    """One kind of nodes (ResourceFlavor).

    node_labels: of these nodes; pods of jobs that get the flavor go there. At most 8. node_taints: of these nodes: only jobs
    that tolerate them get the flavor. tolerations: that such jobs get. Each at most 8, mappings with the API's fields or
    `TaintArgs` and `TolerationArgs` of pulumi-kubernetes. topology: a `Topology` or its name, by which jobs can be placed;
    it needs a node label, and fixes labels and tolerations once it is there.
    """

    kind = "ResourceFlavor"
    arguments = _ResourceFlavor

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        node_labels: Mapping[str, pulumi.Input[str]] | None = None,
        node_taints: Sequence[Any] | None = None,
        tolerations: Sequence[Any] | None = None,
        topology: Topology | pulumi.Input[str] | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


class _Cohort(Spec):
    parent: Cohort | pulumi.Input[str] | None = None
    resource_groups: Sequence[ResourceGroup] | None = None
    fair_sharing: FairSharing | None = None

    refers = {"parent": "Cohort"}
    wraps = {"parent": "parentName"}
    lists = frozenset({"resource_groups"})


class Cohort(QueueObject):
    """Queues that lend each other what they do not use (Cohort).

    parent: the cohort above it, or its name. resource_groups: quotas that all of it shares, beside those of its queues; limits of
    borrowing and lending need a parent. fair_sharing: see `FairSharing`.
    """

    kind = "Cohort"
    arguments = _Cohort

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        parent: Cohort | pulumi.Input[str] | None = None,
        resource_groups: Sequence[ResourceGroup] | None = None,
        fair_sharing: FairSharing | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


def _checks(given: Any) -> Any:
    rules = [each.document() if isinstance(each, AdmissionCheckRule) else {"name": named(each)} for each in given]
    return {"admissionChecks": rules}


class _ClusterQueue(Spec):
    resource_groups: Sequence[ResourceGroup] | None = None
    cohort: Cohort | pulumi.Input[str] | None = None
    queueing_strategy: pulumi.Input[str] | None = None
    namespace_selector: Mapping[str, Any] | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: Preemption | None = None
    admission_checks: Sequence[AdmissionCheck | AdmissionCheckRule | pulumi.Input[str]] | None = None
    stop_policy: pulumi.Input[str] | None = None
    fair_sharing: FairSharing | None = None
    admission_mode: pulumi.Input[str] | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None

    refers = {"cohort": "Cohort"}
    wraps = {
        "cohort": "cohortName",
        "admission_mode": "admissionScope.admissionMode",
        "admission_checks": "admissionChecksStrategy",
    }
    converters = {"admission_checks": _checks}
    lists = frozenset({"resource_groups", "admission_checks"})

    def check(self) -> list[Problem]:
        found = super().check()
        for i, group in enumerate(items(self.resource_groups)):
            if not isinstance(group, ResourceGroup):
                found.append(Problem(f"resource_groups[{i}]", f"must be a ResourceGroup, not {type(group).__name__}"))
        return found


class ClusterQueue(QueueObject):
    """Quotas of a team, and who may use them (ClusterQueue). Jobs name one of its `LocalQueue`s.

    resource_groups: quotas, at most 16 groups; a resource and a flavor each in one of them. cohort: a `Cohort` or a name, whose
    queues lend each other what is idle. queueing_strategy: BestEffortFIFO (default: a job that does not fit lets others pass) or
    StrictFIFO. namespace_selector: whose LocalQueues may use it; default: those of all namespaces (as an API object, without
    one nobody could). flavor_fungibility, preemption, fair_sharing: see these classes. admission_checks: `AdmissionCheck`s,
    their names, or `AdmissionCheckRule`s for some flavors only. stop_policy: None (default), Hold (nothing new starts) or
    HoldAndDrain (what runs is ended too). admission_mode: UsageBasedAdmissionFairSharing or NoAdmissionFairSharing.
    concurrent_admission_policy: alpha. on_delete: what becomes of its jobs when it is deleted: "refuse" (default): it is not
    deleted while there are any; "drain": those that run are suspended and wait for another queue, and what still holds
    quota after drain_seconds (default 300) stops the deletion, and is named. For another on_delete: `pulumi up` first.
    """

    kind = "ClusterQueue"
    arguments = _ClusterQueue

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        resource_groups: Sequence[ResourceGroup] | None = None,
        cohort: Cohort | pulumi.Input[str] | None = None,
        queueing_strategy: pulumi.Input[Literal["BestEffortFIFO", "StrictFIFO"]] | None = None,
        namespace_selector: Mapping[str, Any] | None = None,
        flavor_fungibility: FlavorFungibility | None = None,
        preemption: Preemption | None = None,
        admission_checks: Sequence[AdmissionCheck | AdmissionCheckRule | pulumi.Input[str]] | None = None,
        stop_policy: pulumi.Input[Literal["None", "Hold", "HoldAndDrain"]] | None = None,
        fair_sharing: FairSharing | None = None,
        admission_mode: pulumi.Input[Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]] | None = None,
        concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None,
        on_delete: Literal["refuse", "drain"] = "refuse",
        drain_seconds: float = 300,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        if given["namespace_selector"] is None:
            given["namespace_selector"] = {}
        self._release = {"drain": given["on_delete"] == "drain", "seconds": given["drain_seconds"]}
        self.misnamed += release_problems(given["on_delete"], given["drain_seconds"])
        super().construct(resource_name, given, opts)
        self.guard = self.after_users("LocalQueue", self._guard)

    def _marks(self) -> dict[str, str]:
        return {**({ON_DELETE: "drain"} if self._release["drain"] else {}), **super()._marks()}

    def _guard(self, made: pulumi.Resource, users: list[pulumi.Resource]) -> dynamic.QueueGuard:
        """What lets the queue go only without work; deleted before its LocalQueues, and made after them."""
        release = {"name": self.name, "version": self.version, **self._release}
        props = {
            **release,
            "target": self.connection,
            "stack": stack_name(),
            "beside": self.deleted_after("LocalQueue"),
        }
        return dynamic.QueueGuard(self._name, props, self.below(depends_on=[made, *users]))


def release_problems(on_delete: Any, seconds: Any) -> list[Problem]:
    """Of what becomes of a queue's jobs."""
    found = []
    if on_delete not in ("refuse", "drain"):
        found.append(Problem("on_delete", f"must be refuse or drain, not {on_delete!r}"))
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 86400:
        found.append(Problem("drain_seconds", f"must be a number of seconds, 0 to 86400, not {seconds!r}"))
    return found


class _LocalQueue(Spec):
    cluster_queue: ClusterQueue | pulumi.Input[str] | None = None
    stop_policy: pulumi.Input[str] | None = None
    fair_sharing: FairSharing | None = None

    needs = ("cluster_queue",)
    refers = {"cluster_queue": "ClusterQueue"}


class LocalQueue(QueueObject):
    """What jobs of a namespace name as their queue (LocalQueue).

    cluster_queue: a `ClusterQueue` or its name; another one makes the LocalQueue anew. namespace: default that of the target.
    stop_policy: as of a ClusterQueue. fair_sharing: its weight among the LocalQueues of the ClusterQueue.
    """

    kind = "LocalQueue"
    arguments = _LocalQueue

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        cluster_queue: ClusterQueue | pulumi.Input[str],
        namespace: pulumi.Input[str] | None = None,
        stop_policy: pulumi.Input[Literal["None", "Hold", "HoldAndDrain"]] | None = None,
        fair_sharing: FairSharing | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...


class _WorkloadPriorityClass(Spec):
    value: pulumi.Input[int] | None = None
    description: pulumi.Input[str] | None = None

    needs = ("value",)


class WorkloadPriorityClass(QueueObject):
    """A priority that jobs name (WorkloadPriorityClass). value: higher comes first; jobs without a class have that of their pods,
    mostly 0. A change of it is for jobs that are made later. description: for readers, at most 2048 characters."""

    kind = "WorkloadPriorityClass"
    arguments = _WorkloadPriorityClass

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        value: pulumi.Input[int],
        description: pulumi.Input[str] | None = None,
        name: str | None = None,
        labels: Labels | None = None,
        annotations: Labels | None = None,
        target: Kubernetes | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...
