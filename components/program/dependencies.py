"""The objects that a job's dependencies may create in its cluster, which need not exist in a preview."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi_trainer.provider import pulumi_compat
from pulumi_trainer.provider.api.submission import ANYTHING
from pulumi_trainer.provider.kube.values.accessors import text

_OBJECT = re.compile(r"kubernetes:(?!helm\.sh/|yaml[:/]|kustomize[:/])[^:]+:(\w+?)(List|Patch)?")
"""Types of pulumi-kubernetes that are one object of that kind; charts and files may contain any."""
_OURS = re.compile(r"(trainer:index:|pulumi-python:dynamic/trainer|pulumi:providers:)")
"""Types that create only objects that the program already knows."""


async def explicit(options: pulumi.ResourceOptions) -> list[pulumi.Resource | None]:
    """Return the resources in `depends_on`; None stands for resources that are not known yet."""
    named = await pulumi_compat.depends_on(options)
    if named is None:
        return [None]
    return [*named]


async def made_by(resources: Iterable[pulumi.Resource | None]) -> frozenset[str]:
    """Return "Kind/name" of the objects that resources create; "Kind/" if the name is unknown, `ANYTHING` if the kind is.

    In an `up` the function does not wait for names: a name is known once the object exists.
    """
    made = [await _made(resource) for resource in resources]
    return frozenset(filter(None, made))


async def _made(resource: pulumi.Resource | None) -> str:
    if resource is None:
        return ANYTHING
    type_ = resource.pulumi_resource_type
    if _OURS.match(type_):
        return ""
    found = _OBJECT.fullmatch(type_)
    if found is None:
        return ANYTHING
    name = ""
    if pulumi.runtime.is_dry_run():
        name = await _name(resource)
    return f"{found[1]}/{name}"


async def _name(resource: Any) -> str:
    metadata: Any = await pulumi.Output.from_input(getattr(resource, "metadata", None)).future()
    name = metadata.get("name") if isinstance(metadata, Mapping) else getattr(metadata, "name", None)
    return text(name)
