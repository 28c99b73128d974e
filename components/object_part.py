"""One object among several of a component, whose content the component knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.kubernetes_object import KubernetesObject, ObjectArgs
from pulumi_trainer.program import session
from pulumi_trainer.program.drift import PATCH_FORCE, Reviewed
from pulumi_trainer.program.object_owner import ObjectOwner, Place, mark_of
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, Kind
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import stack_of_mark


class PartArgs(ObjectArgs):
    """The arguments of one object of a component with several. of: Kind, name and source line of the component."""

    resource: Kind
    body: Mapping[str, Any]
    of: str = ""
    limits_jobs: bool = False

    shipped = ObjectArgs.shipped | {"resource", "body", "of", "limits_jobs"}
    free = ObjectArgs.free | {"resource", "body"}


class Part(KubernetesObject):
    """One object of a component with several."""

    def __init__(self, args: PartArgs) -> None:
        self.resource, self.kind, self.misnamed = args.resource, args.resource.kind, []
        self.construct(args)

    def where(self, args: PartArgs) -> str:
        return f"{args.of}: {self.kind} {args.name}"

    def content(self, args: PartArgs) -> Mapping[str, Any]:
        return args.body

    def object_problems(self, document: Mapping[str, Any]) -> list[Problem]:  # noqa: ARG002 - its component has checked it
        return []

    def affects(self, job: Mapping[str, Any]) -> bool:  # noqa: ARG002 - of its namespace, any
        return bool(self._args.limits_jobs)

    def _name_conflicts(self, target: Mapping[str, Any], found: Mapping[str, Any], owner: ObjectOwner) -> list[Problem]:
        if self._is_left_by(owner.name, found):
            return []
        return super()._name_conflicts(target, found, owner)

    async def _drift_annotations(self, at: Place, reviewed: Reviewed) -> dict[str, str]:
        found = await super()._drift_annotations(at, reviewed)
        owner = await session.current().object_owner()
        if self._is_left_by(owner.name, reviewed.live) and mark_of(reviewed.live) != owner.mark:
            found[PATCH_FORCE] = "true"
        return found

    def _is_left_by(self, stack: str, found: Mapping[str, Any]) -> bool:
        """Return whether an object is a namespace that a stack of this name has made, whose `destroy` leaves it."""
        return self.resource is NAMESPACE and bool(mark_of(found)) and stack_of_mark(mark_of(found)) == stack

    def _affected_jobs(self, target: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
        if not self._args.limits_jobs:
            return []
        return super()._affected_jobs(target, live)

    async def _review_live(
        self, target: Mapping[str, Any], live: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> tuple[Reviewed, list[Problem]]:
        if self.resource is NAMESPACE and not live:
            found = await asyncio.to_thread(queries.find_object, target, NAMESPACE, "", self.name)
            if "deletionTimestamp" in section(found, "metadata"):
                why = f"namespace {self.name} is being deleted"
                return Reviewed(), [
                    Problem("name", why, "run the update again once it is gone, or choose another name")
                ]
        return await super()._review_live(target, live, wanted)


async def all_made(objects: Sequence[KubernetesObject]) -> list[pulumi.Resource | None]:
    """Return the resources of some objects."""
    return [await each.made for each in objects]
