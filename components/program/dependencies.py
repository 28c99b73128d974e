"""The objects that a job's dependencies may create in its cluster, which need not exist in a preview."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.provider.jobs.submission import ANYTHING
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE
from pulumi_trainer.provider.kubernetes.values.accessors import text

_OBJECT = re.compile(r"kubernetes:(?!helm\.sh/|yaml[:/]|kustomize[:/])[^:]+:(\w+?)(List|Patch)?")
"""Types of pulumi-kubernetes that are one object of that kind; charts and files may contain any."""
_OURS = re.compile(r"(trainer:index:|pulumi-python:dynamic/trainer|pulumi:providers:)")
"""Types that create only objects that the program already knows, or names in an attribute `makes`."""


async def explicit(options: pulumi.ResourceOptions) -> list[pulumi.Resource | None]:
    """Return the resources in `depends_on`; None stands for resources that are not known yet."""
    if options.depends_on is None:
        return []
    named: Any = await pulumi.Output.from_input(options.depends_on).future()
    return list(named) if isinstance(named, Sequence) else [named]


async def created(options: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Return the resources in `depends_on`, and what those of our components create later than the engine would wait for."""
    found = [each for each in await explicit(options) if each is not None]
    for each in tuple(found):
        made = getattr(each, "made", None)
        if isinstance(made, asyncio.Future):
            later = await made
            found += filter(None, later if isinstance(later, list) else [later])
    return found


async def made_by(resources: Iterable[pulumi.Resource | None]) -> frozenset[str]:
    """Return "Kind/name" of the objects that resources and their dependencies create; "Kind/" if the name is unknown, `ANYTHING`
    if the kind is.

    Of the dependencies of a resource, only those of our own resources are known: Pulumi keeps none. In an `up` the function does
    not wait for names: a name is known once the object exists.
    """
    made, waiting = set[str](), [*resources]
    for resource in waiting:
        made |= await _made(resource)
        waiting += [each for each in await _before(resource) if each not in waiting]
    return frozenset(made)


async def _before(resource: pulumi.Resource | None) -> list[pulumi.Resource | None]:
    """Return what one of our resources was created after: its dependencies, and the component that creates it."""
    options = getattr(resource, "_opts", None)
    if not isinstance(options, pulumi.ResourceOptions):
        return []
    before = await explicit(options)
    if options.parent is not None and _OURS.match(options.parent.pulumi_resource_type):
        before.append(options.parent)
    return before


async def _made(resource: pulumi.Resource | None) -> set[str]:
    """Return what a resource creates, and the namespace of an object, which exists before the object."""
    if resource is None:
        return {ANYTHING}
    type_ = resource.pulumi_resource_type
    if _OURS.match(type_):
        return set(getattr(resource, "makes", ()))
    found = _OBJECT.fullmatch(type_)
    if found is None:
        return {ANYTHING}
    name, namespace = "", ""
    if pulumi.runtime.is_dry_run():
        metadata: Any = await pulumi.Output.from_input(getattr(resource, "metadata", None)).future()
        name, namespace = _field(metadata, "name"), _field(metadata, "namespace")
        if not namespace:
            return {f"{found[1]}/{name}"}
    return {f"{found[1]}/{name}", f"{NAMESPACE.kind}/{namespace}"}


def _field(metadata: Any, name: str) -> str:
    """Return a field of an object's metadata, which may be an instance of a class of pulumi-kubernetes."""
    if isinstance(metadata, Mapping):
        return text(metadata.get(name))
    return text(getattr(metadata, name, None))
