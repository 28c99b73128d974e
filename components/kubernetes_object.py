"""Base of components with one object of Kubernetes, which is checked here and created by pulumi-kubernetes.

The plugin of pulumi-kubernetes is imported when the first one is created. On this machine nothing is created.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import check_names, metadata, nested_problems, without_refused
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.outputs import Resolved, resolve, restore_outputs
from pulumi_trainer.program import dependencies, session, targets
from pulumi_trainer.program.constructors import ComponentArgs
from pulumi_trainer.program.drift import Drift, Reviewed, drift_annotations, review_edits
from pulumi_trainer.program.object_owner import ObjectOwner, Place, mark_of
from pulumi_trainer.program.targets import Destination, Kubernetes
from pulumi_trainer.provider.engine.pulumi_compat import known_output
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.hand_edits import restoration, with_edits
from pulumi_trainer.provider.kubernetes.values.accessors import section, text
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import MADE_BY

Strings = Mapping[str, pulumi.Input[str]]


class ObjectArgs(ComponentArgs):
    """The arguments that all of these components have."""

    namespace: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    name: str | None = None
    target: Destination | None = None
    drift: Drift | None = None

    places = {"spec.": "", "metadata.": ""}


class KubernetesObject(pulumi.ComponentResource):
    """A component with one object."""

    resource: Kind
    kind: str
    misnamed: list[Problem]

    def construct(self, args: ObjectArgs) -> None:
        """Check the arguments, and create the object once its values are known."""
        where = self.where(args)
        self.misnamed += check_names(vars(args))
        self.name: str = args.name or args.resource_name
        wrong = targets.problems(args.target)
        self._args = without_refused(args)
        self._target: Destination | None = None
        if not wrong:
            self._target = args.target
        self._opts = args.opts or pulumi.ResourceOptions()
        super().__init__(f"trainer:index:{self.kind}", args.resource_name, None, args.opts)
        found = merge_problems(self.misnamed, [*nested_problems(args), *wrong])
        self.made: asyncio.Task[pulumi.Resource | None] = session.current().spawn(self._make(found, where))
        self.register_outputs({"name": self.name})

    def where(self, args: Any) -> str:
        """Return kind, name and source line of the component in the program."""
        return f'{self.kind}("{args.resource_name}") ({session.call_site()})'

    @abstractmethod
    def content(self, args: Any) -> Mapping[str, Any]:
        """Return the object without apiVersion, kind and metadata. Values may be Outputs."""

    @abstractmethod
    def object_problems(self, document: Mapping[str, Any]) -> list[Problem]:
        """Return what is wrong with the object, by the paths of the object or of the arguments; unknown values are valid."""

    @abstractmethod
    def affects(self, job: Mapping[str, Any]) -> bool:
        """Return whether a change of the object affects a JobSet of its namespace."""

    async def _make(self, found: list[Problem], where: str) -> pulumi.Resource | None:
        """Return the object as a resource; None if there are problems, or the target is Local."""
        destination = targets.choose(self._target)
        place = await targets.place(destination)
        namespace = self._args.namespace
        about = {**metadata(self._args.labels, self._args.annotations).get("metadata", {}), "name": self.name}
        if namespace is None:
            namespace = place.unknown.get("namespace", place.namespace)
        if self.resource.namespaced:
            about["namespace"] = namespace
        given = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": about}
        resolved = await resolve({**given, **self.content(self._args)}, "")
        found += place.problems + resolved.problems
        namespace = resolved.document["metadata"].get("namespace", "")
        found += session.current().claim(place.target, self.kind, namespace, self.name, where)
        found += self.object_problems(resolved.document) + plaintext_secrets.problems(resolved.document, "")
        if not found and isinstance(destination, Kubernetes):
            found += targets.plugin_problems()
        reviewed = Reviewed()
        if not found and isinstance(destination, Kubernetes) and isinstance(namespace, str):
            live = await asyncio.to_thread(self._live, place.target, namespace)
            reviewed, found = await self._review_live(place.target, live, resolved.document)
        if found:
            found = [Problem(self._args.place(p.where), p.why, p.hint, p.type) for p in found]
            session.current().problems.extend(problems_below(where, found))
            return None
        if not isinstance(destination, Kubernetes):
            return None
        return await self._register(destination, place, resolved, reviewed)

    async def _review_live(
        self, target: Mapping[str, Any], live: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> tuple[Reviewed, list[Problem]]:
        """Return what was changed by hand in the object, and why it cannot be created or changed."""
        owner = await session.current().object_owner()
        found = await asyncio.to_thread(self._name_conflicts, target, section(live, "metadata"), owner)
        if not live or found:
            return Reviewed(section(live, "metadata")), found
        return await review_edits(
            self.resource, live, wanted, self._args.drift, lambda: self._affected_jobs(target, live)
        )

    async def _register(
        self, destination: Kubernetes, place: targets.Place, resolved: Resolved, reviewed: Reviewed
    ) -> pulumi.Resource:
        document = restore_outputs(with_edits(resolved.document, reviewed.kept), resolved.unknown)
        at = self._place(document["metadata"].get("namespace"))
        own = {
            MADE_BY: await session.current().owner_mark(at, reviewed.live),
            **await self._drift_annotations(at, reviewed),
        }
        annotations = {**document["metadata"].get("annotations", {}), **own}
        document["metadata"] = {**document["metadata"], "annotations": annotations}
        options = pulumi.ResourceOptions(
            parent=self,
            provider=destination.provider or targets.provider(place, targets.cluster_key(destination)),
            depends_on=[*await dependencies.created(self._opts), *place.needs, *resolved.depends_on],
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )
        made = PluginResource(self.pulumi_resource_name, document, options)
        restored = restoration(reviewed.restored, document)
        session.current().guard(made, self.resource, document["metadata"], place.target, restored)
        return made

    async def _drift_annotations(self, at: Place, reviewed: Reviewed) -> dict[str, str]:
        return await drift_annotations(at, reviewed)

    def _place(self, namespace: Any) -> Place:
        return self.resource.group, self.resource.kind, text(namespace), self.name

    def _live(self, target: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
        """Return the object of that name in the cluster; empty if not found, or if it is being deleted."""
        live = queries.find_object(target, self.resource, namespace, self.name) or {}
        if "deletionTimestamp" in section(live, "metadata"):
            return {}
        return live

    def _affected_jobs(self, target: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
        """Return the unfinished jobs that a change of the object affects."""
        jobs = queries.list_unfinished_jobs(target, live["metadata"]["namespace"])
        return [job["metadata"]["name"] for job in jobs if self.affects(job)]

    def _name_conflicts(self, target: Mapping[str, Any], found: Mapping[str, Any], owner: ObjectOwner) -> list[Problem]:
        """Return a problem if another owner's object has the name, which pulumi-kubernetes would overwrite silently."""
        unmarked = self._place(found.get("namespace")) in owner.recorded and not mark_of(found)
        if not found or unmarked or owner.owns(target, self.resource, found):
            return []
        other = next(iter(found.get("ownerReferences") or []), None)
        if other:
            since = f"{self.resource.kind} {self.name} exists since {found.get('creationTimestamp')}"
            why = f"{since} and belongs to {other.get('kind')} {other.get('name')}"
            return [Problem("name", why, "choose another name")]
        return [Problem("name", *owner.foreign_object(self.resource, found))]


class PluginResource(pulumi.CustomResource):
    """An object that pulumi-kubernetes creates, of any kind and with any fields."""

    def __init__(self, name: str, document: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        if not opts.provider:
            opts = pulumi.ResourceOptions.merge(pulumi.ResourceOptions(version=targets.plugin_version()), opts)
        self._opts = opts
        version, props = document["apiVersion"], dict(document)
        if "/" not in version:
            version = f"core/{version}"
        for key, value in document.items():
            if isinstance(value, dict):
                props[key] = known_output(value)
        super().__init__(f"kubernetes:{version}:{document['kind']}", name, props, opts)
