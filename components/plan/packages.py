"""Which packages the nodes of a job have, as far as the plan knows them: those of images and machines of others it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pulumi_trainer.plan.tool_job import tool_nodes
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, text
from pulumi_trainer.provider.kubernetes.views import Container, jobs_of
from pulumi_trainer.runtimes import BUILT_IN


def is_here(name: str) -> bool:
    """Return whether the interpreter of this program has a package."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def have_folders(nodes: Iterable[Container]) -> bool:
    """Return whether nodes may import packages from a folder that nobody installs."""
    return any("PYTHONPATH" in [text(each.get("name")) for each in node.env] for node in nodes)


@cache
def images_of_runtime(name: str) -> frozenset[Any]:
    """Return the images of a runtime of the catalogue, which have the packages of its framework alone; empty for another one."""
    images = set()
    if name not in BUILT_IN.names():
        return frozenset()
    for release in BUILT_IN.releases(name):
        runtime = BUILT_IN.load(name, release)
        for job in jobs_of(runtime["spec"]["template"]):
            images |= {container.document.get("image") for container in job.pod.containers}
    return frozenset(images)


def lacks(
    wanted: Iterable[str], code: Mapping[str, Any], runtime: str, jobsets: Iterable[Document], *, here: bool
) -> bool:
    """Return whether the nodes certainly have none of some packages: neither what the job installs names one, nor does the image
    of a runtime of the catalogue have it, nor this interpreter.

    Args:
        code: The code that travels with the job.
        runtime: Name of the runtime.
        here: Whether the job runs with the interpreter of this program instead of images.
    """
    nodes = [*tool_nodes(jobsets)]
    if have_folders(nodes) or (here and any(map(is_here, wanted))):
        return False
    if not here and any(each.document.get("image") not in images_of_runtime(runtime) for each in nodes):
        return False
    lines = [*listed(code.get("packages")), *(code.get("requirements") or "").splitlines()]
    return bool(nodes) and not any(may_be(line, wanted) for line in lines)


def may_be(requirement: Any, wanted: Iterable[str]) -> bool:
    """Return whether a requirement is one of some packages, or may be: an Output, a path, an address, an option of pip."""
    line = (
        requirement.partition(" #")[0].partition(" --")[0].rstrip("\\ ")
        if isinstance(requirement, str)
        else requirement
    )
    if line == "" or (isinstance(line, str) and line.lstrip().startswith(("#", "--hash"))):
        return False
    try:
        return canonicalize_name(Requirement(line).name) in wanted
    except (InvalidRequirement, TypeError):
        return True
