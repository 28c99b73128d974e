"""What the resources that a job depends on may make in its cluster: it need not be there in a preview."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi_trainer.provider.api.submission import ANYTHING

_OBJECT = re.compile(r"kubernetes:(?!helm\.sh/|yaml[:/]|kustomize[:/])[^:]+:(\w+?)(List|Patch)?")
"""Types of pulumi-kubernetes that are one object of that kind; charts and files may hold any."""
_OURS = re.compile(r"(trainer:index:|pulumi-python:dynamic/trainer|pulumi:providers:)")
"""Types that make nothing but what the program knows of already."""


async def explicit(options: pulumi.ResourceOptions) -> list[pulumi.Resource | None]:
    """Return what `depends_on` names; None stands for what is not known yet."""
    if options.depends_on is None:
        return []
    given: Any = await pulumi.Output.from_input(options._depends_on_list()).future()
    return list(given) if given is not None else [None]


async def made_by(resources: Iterable[pulumi.Resource | None]) -> frozenset[str]:
    """Return "Kind/name" of the objects that these resources make; "Kind/" if the name is not known, `ANYTHING` if no more is.

    In an `up` no name is waited for: it is known once the object is made.
    """
    return frozenset([made for each in resources if (made := await _made(each))])


async def _made(resource: pulumi.Resource | None) -> str:
    type_ = resource.pulumi_resource_type if resource is not None else ""
    if _OURS.match(type_):
        return ""
    found = _OBJECT.fullmatch(type_)
    if found is None:
        return ANYTHING
    return f"{found[1]}/{await _name(resource) if pulumi.runtime.is_dry_run() else ''}"


async def _name(resource: Any) -> str:
    metadata: Any = await pulumi.Output.from_input(getattr(resource, "metadata", None)).future()
    name = metadata.get("name") if isinstance(metadata, Mapping) else getattr(metadata, "name", None)
    return name if isinstance(name, str) else ""
