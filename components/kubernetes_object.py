"""Base of components with one namespaced object of Kubernetes, which is checked here and created by pulumi-kubernetes.

The plugin of pulumi-kubernetes is imported when the first one is created. On this machine nothing is created.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import check_names, metadata, nested_problems, without_refused
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.outputs import resolve, restore_outputs
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import ComponentArgs
from pulumi_trainer.program.removals import Resources
from pulumi_trainer.program.targets import Destination, Kubernetes
from pulumi_trainer.provider.api.labels import MADE_BY
from pulumi_trainer.provider.kube.client.api_resources import Kind
from pulumi_trainer.provider.kube.errors import Problem, problems_below
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.queues.component import stack_name

Strings = Mapping[str, pulumi.Input[str]]


class ObjectArgs(ComponentArgs):
    """The arguments that all of these components have."""

    namespace: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    name: str | None = None
    target: Destination | None = None

    places = {"spec.": "", "metadata.": ""}


class KubernetesObject(pulumi.ComponentResource):
    """A component with one object.

    Attributes:
        name: Name of the object.
        resource: Kind of the object.
        kind: Name of the component.
    """

    resource: ClassVar[Kind]
    kind: ClassVar[str]
    misnamed: list[Problem]

    def construct(self, args: ObjectArgs) -> None:
        """Check the arguments, and create the object once its values are known."""
        where = f'{self.kind}("{args.resource_name}") ({session.call_site()})'
        self.misnamed += check_names(vars(args))
        self.name: str = args.name or args.resource_name
        wrong = targets.problems(args.target)
        self._args, self._target = without_refused(args), None if wrong else args.target
        self._opts = args.opts or pulumi.ResourceOptions()
        super().__init__(f"trainer:index:{self.kind}", args.resource_name, None, args.opts)
        found = merge_problems(self.misnamed, [*nested_problems(args), *wrong])
        session.current().spawn(self._make(found, where))
        self.register_outputs({"name": self.name})

    @abstractmethod
    def spec(self, args: Any) -> Mapping[str, Any]:
        """Return the object's spec. Values may be Outputs."""

    @abstractmethod
    def object_problems(self, document: Mapping[str, Any]) -> list[Problem]:
        """Return what is wrong with the object, by the paths of the object or of the arguments; unknown values are valid."""

    async def _make(self, found: list[Problem], where: str) -> pulumi.Resource | None:
        """Return the object as a resource; None if there are problems, or the target is Local."""
        destination = targets.choose(self._target)
        place = await targets.place(destination)
        namespace = self._args.namespace
        about = {**metadata(self._args.labels, self._args.annotations).get("metadata", {}), "name": self.name}
        about["namespace"] = place.unknown.get("namespace", place.namespace) if namespace is None else namespace
        given = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": about}
        resolved = await resolve({**given, "spec": self.spec(self._args)}, "")
        found += place.problems + resolved.problems
        namespace = resolved.document["metadata"]["namespace"]
        found += session.current().claim(place.target, self.kind, namespace, self.name, where)
        found += self.object_problems(resolved.document)
        if not found and isinstance(destination, Kubernetes):
            found += targets.plugin_problems()
        recorded: Mapping[str, Any] | None = None
        if not found and isinstance(destination, Kubernetes):
            about = resolved.document["metadata"]
            recorded = _recorded(await session.current().stack_resources(), self.resource, about)
            found += await asyncio.to_thread(self._name_conflicts, place.target, about, recorded)
        if found:
            found = [Problem(self._args.place(p.where), p.why, p.hint, p.type) for p in found]
            session.current().problems.extend(problems_below(where, found))
            return None
        if not isinstance(destination, Kubernetes):
            return None
        from pulumi_kubernetes.apiextensions import CustomResource

        document = restore_outputs(resolved.document, resolved.unknown)
        marked = recorded is None or MADE_BY in (recorded.get("annotations") or {})
        if marked:  # those of earlier versions are not
            annotations = {**document["metadata"].get("annotations", {}), MADE_BY: stack_name()}
            document["metadata"] = {**document["metadata"], "annotations": annotations}
        options = pulumi.ResourceOptions(
            parent=self,
            provider=destination.provider or targets.provider(place, targets.cluster_key(destination)),
            depends_on=[*place.needs, *resolved.depends_on],
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )
        return CustomResource(
            self.pulumi_resource_name,
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            metadata=document["metadata"],
            spec=document["spec"],
            opts=options,
        )

    def _name_conflicts(
        self, target: Mapping[str, Any], about: Mapping[str, Any], recorded: Mapping[str, Any] | None
    ) -> list[Problem]:
        """Return a problem if another owner's object has the name, which pulumi-kubernetes would overwrite silently.

        Args:
            target: The cluster.
            about: Metadata of the object.
            recorded: Its metadata in the stack's state; None if this stack has not created it.
        """
        namespace = about.get("namespace")
        live = queries.find_object(target, self.resource, namespace, self.name) if isinstance(namespace, str) else None
        found = live["metadata"] if live is not None else {}
        maker = (found.get("annotations") or {}).get(MADE_BY)
        if not found or "deletionTimestamp" in found or maker == stack_name() or (recorded and maker is None):
            return []
        since = f"{self.resource.kind} {self.name} exists since {found.get('creationTimestamp')}"
        if owner := next(iter(found.get("ownerReferences") or []), None):
            why = f"{since} and belongs to {owner.get('kind')} {owner.get('name')}"
            return [Problem("name", why, "choose another name")]
        belongs = f"belongs to the stack {maker}" if maker else "was not made by this stack"
        plural = f"{self.resource.plural}.{self.resource.group}"
        take = f"kubectl annotate --overwrite {plural} -n {namespace} {self.name} {MADE_BY}={stack_name()}"
        return [Problem("name", f"{since} and {belongs}", f"choose another name, or give it to this stack: {take}")]


def _recorded(stack: Resources, kind: Kind, about: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the metadata of an object in the stack's state."""
    for type_, outputs in stack:
        found = outputs.get("metadata")
        if type_ != f"kubernetes:{kind.api_version}:{kind.kind}" or not isinstance(found, Mapping):
            continue
        if all(found.get(part) == about[part] for part in ("name", "namespace")):
            return found
    return None
