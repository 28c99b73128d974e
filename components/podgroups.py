"""PodGroups of a program's own: for pods that no TrainJob makes, or for a TrainJob that is to join others in one gang.

A runtime with `pod_group_policy` needs none: its jobs bring theirs. Objects are made by the plugin of pulumi-kubernetes, which
is imported when the first is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import (
    Args,
    check_names,
    metadata,
    nested_problems,
    sound,
)
from pulumi_trainer.args.policies import VolcanoNetworkTopology
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.outputs import put_back, resolve
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.removals import Resources
from pulumi_trainer.program.targets import Destination, Kubernetes
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.admission.podgroups import mistakes, refusals
from pulumi_trainer.provider.api.labels import MADE_BY
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.pipeline.plugins import coscheduling, volcano
from pulumi_trainer.queues.component import stack_name

Amounts = Mapping[str, pulumi.Input[int] | pulumi.Input[str]]
"""Resource -> quantity of Kubernetes: 16, "128Gi"."""
Strings = Mapping[str, pulumi.Input[str]]


class _PodGroupArgs(Args):
    min_member: pulumi.Input[int] | None = None
    min_resources: Amounts | None = None
    namespace: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None

    shipped = frozenset({"namespace", "labels", "annotations"})
    mappings = frozenset({"min_resources", "labels", "annotations"})
    places = {"spec.": "", "metadata.": ""}


class _CoschedulingArgs(_PodGroupArgs):
    schedule_timeout_seconds: pulumi.Input[int] | None = None


class _VolcanoArgs(_PodGroupArgs):
    min_task_member: Mapping[str, pulumi.Input[int]] | None = None
    queue: pulumi.Input[str] | None = None
    priority_class_name: pulumi.Input[str] | None = None
    network_topology: VolcanoNetworkTopology | None = None

    mappings = _PodGroupArgs.mappings | {"min_task_member"}


class _PodGroup(pulumi.ComponentResource):
    """name: of the object. pod_labels, pod_annotations: what pods bear that belong to it."""

    api_version: ClassVar[str]
    kind: ClassVar[str]
    arguments: ClassVar[type[_PodGroupArgs]]
    misnamed: list[Problem]

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        where = f'{self.kind}("{resource_name}") ({session.call_site()})'
        target: Destination | None = given["target"]
        self.misnamed += check_names(given)
        args = self.arguments(**{field: given[field] for field in self.arguments.fields})
        self.name: str = given["name"] or resource_name
        self._args, self._target = sound(args), None if targets.problems(target) else target
        self._opts = opts or pulumi.ResourceOptions()
        super().__init__(f"trainer:index:{self.kind}", resource_name, None, opts)
        found = merge_problems(self.misnamed, [*nested_problems(args), *targets.problems(target)])
        session.current().spawn(self._make(found, where))
        self.register_outputs({"name": self.name})

    @property
    def pod_labels(self) -> dict[str, str]:
        """For the template of its pods."""
        return {}

    @property
    def pod_annotations(self) -> dict[str, str]:
        """For the template of its pods."""
        return {}

    async def _make(self, found: list[Problem], where: str) -> pulumi.Resource | None:
        """The object as a resource; None where something is wrong, or the stack is for this machine."""
        destination = targets.choose(self._target)
        place = await targets.place(destination)
        namespace = self._args.namespace
        about = {**metadata(self._args.labels, self._args.annotations).get("metadata", {}), "name": self.name}
        about["namespace"] = place.unknown.get("namespace", place.namespace) if namespace is None else namespace
        given = {"apiVersion": self.api_version, "kind": "PodGroup", "metadata": about}
        resolved = await resolve({**given, "spec": self._args.document()}, "")
        found += place.problems + resolved.problems
        namespace = resolved.document["metadata"]["namespace"]
        found += session.current().claim(place.target, self.kind, namespace, self.name, where)
        found += refusals(resolved.document) or mistakes(resolved.document)
        if not found and isinstance(destination, Kubernetes):
            found += targets.without_plugin()
        recorded: Mapping[str, Any] | None = None
        if not found and isinstance(destination, Kubernetes):
            about = resolved.document["metadata"]
            recorded = _recorded(await session.current().look_back(), self.api_version, about)
            found += await asyncio.to_thread(self._taken, place.target, about, recorded)
        if found:
            found = [Problem(self._args.place(p.where), p.why, p.mend, p.type) for p in found]
            session.current().problems.extend(p.below(where) for p in found)
            return None
        if not isinstance(destination, Kubernetes):
            return None
        from pulumi_kubernetes.apiextensions import CustomResource

        document = put_back(resolved.document, resolved.unknown)
        marked = recorded is None or MADE_BY in (recorded.get("annotations") or {})
        if marked:  # those of earlier versions are not
            annotations = {**document["metadata"].get("annotations", {}), MADE_BY: stack_name()}
            document["metadata"] = {**document["metadata"], "annotations": annotations}
        options = pulumi.ResourceOptions(
            parent=self,
            provider=destination.provider or targets.provider(place),
            depends_on=[*place.needs, *resolved.depends_on],
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )
        return CustomResource(
            self._name,
            api_version=self.api_version,
            kind="PodGroup",
            metadata=document["metadata"],
            spec=document["spec"],
            opts=options,
        )

    def _taken(
        self, target: Mapping[str, Any], about: Mapping[str, Any], recorded: Mapping[str, Any] | None
    ) -> list[Problem]:
        """Return that a PodGroup of that name is there and another's, which pulumi-kubernetes would take over in silence.

        Args:
            about: The metadata.
            recorded: Those that this stack has written for it; None: it has not made one.
        """
        namespace = about.get("namespace")
        live = dynamic.pod_group(target, self.api_version, namespace, self.name) if isinstance(namespace, str) else None
        found = live["metadata"] if live is not None else {}
        maker = (found.get("annotations") or {}).get(MADE_BY)
        if not found or "deletionTimestamp" in found or maker == stack_name() or (recorded and maker is None):
            return []
        since = f"PodGroup {self.name} exists since {found.get('creationTimestamp')}"
        if owner := next(iter(found.get("ownerReferences") or []), None):
            why = f"{since} and belongs to {owner.get('kind')} {owner.get('name')}"
            return [Problem("name", why, "choose another name")]
        belongs = f"belongs to the stack {maker}" if maker else "was not made by this stack"
        plural = f"podgroups.{self.api_version.partition('/')[0]}"
        take = f"kubectl annotate --overwrite {plural} -n {namespace} {self.name} {MADE_BY}={stack_name()}"
        return [Problem("name", f"{since} and {belongs}", f"choose another name, or give it to this stack: {take}")]


def _recorded(stack: Resources, api_version: str, about: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the metadata that a stack has written for a PodGroup of that name."""
    for type_, outputs in stack:
        found = outputs.get("metadata")
        if type_ != f"kubernetes:{api_version}:PodGroup" or not isinstance(found, Mapping):
            continue
        if all(found.get(part) == about[part] for part in ("name", "namespace")):
            return found
    return None


class CoschedulingPodGroup(_PodGroup):
    """A PodGroup of Kubernetes' scheduler-plugins (scheduling.x-k8s.io/v1alpha1,
    https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/apis/scheduling/v1alpha1/types.go).

    min_member: pods that start together, at least 1. min_resources: what the cluster must have before the scheduler looks at
    single pods, such as {"nvidia.com/gpu": 32}. schedule_timeout_seconds: how long pods hold their nodes for the others;
    default: the scheduler's. name: of the object, default the resource's name. namespace: default that of the target. target:
    `Kubernetes(...)`; default that of the stack. Its pods name the scheduler, and bear `pod_labels`.
    """

    api_version = coscheduling.API_VERSION
    kind = "CoschedulingPodGroup"
    arguments = _CoschedulingArgs

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        min_member: pulumi.Input[int],
        min_resources: Amounts | None = None,
        schedule_timeout_seconds: pulumi.Input[int] | None = None,
        namespace: pulumi.Input[str] | None = None,
        labels: Strings | None = None,
        annotations: Strings | None = None,
        name: str | None = None,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    @property
    def pod_labels(self) -> dict[str, str]:
        """`scheduling.x-k8s.io/pod-group`, for the template of its pods."""
        return {coscheduling.POD_GROUP_LABEL: self.name}


class VolcanoPodGroup(_PodGroup):
    """A PodGroup of Volcano (scheduling.volcano.sh/v1beta1,
    https://github.com/volcano-sh/apis/blob/v1.13.0/pkg/apis/scheduling/v1beta1/types.go).

    min_member: pods that start together. min_task_member: the same for each task (annotation `volcano.sh/task-spec` of its
    pods). min_resources: what the queue must have for them. queue: Volcano's, default `default`. priority_class_name: a
    PriorityClass. network_topology: how far apart its nodes may be. name, namespace, target: as of a `CoschedulingPodGroup`.
    Its pods name the scheduler, and bear `pod_annotations`.
    """

    api_version = volcano.API_VERSION
    kind = "VolcanoPodGroup"
    arguments = _VolcanoArgs

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        min_member: pulumi.Input[int] | None = None,
        min_task_member: Mapping[str, pulumi.Input[int]] | None = None,
        min_resources: Amounts | None = None,
        queue: pulumi.Input[str] | None = None,
        priority_class_name: pulumi.Input[str] | None = None,
        network_topology: VolcanoNetworkTopology | None = None,
        namespace: pulumi.Input[str] | None = None,
        labels: Strings | None = None,
        annotations: Strings | None = None,
        name: str | None = None,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    @property
    def pod_annotations(self) -> dict[str, str]:
        """`scheduling.k8s.io/group-name`, for the template of its pods."""
        return {volcano.GROUP_ANNOTATION: self.name}
