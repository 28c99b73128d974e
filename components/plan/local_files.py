"""Data at `file://` URIs: which files of this machine a job reads, and the fingerprint that tells when they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pulumi_trainer.args import sources
from pulumi_trainer.plan import mounts
from pulumi_trainer.program import session
from pulumi_trainer.provider.initializers import fingerprint
from pulumi_trainer.provider.kube.errors import TrainerError

VERSION = 8
"""Characters of a digest that tell one version of the data from another; the name of a volume ends with them."""


def is_folder(uri: Any) -> bool:
    """Return whether a URI is known, and names files of this machine."""
    return isinstance(uri, str) and uri.startswith("file://")


async def version_of(uri: str, source: Mapping[str, Any]) -> str:
    """Return the fingerprint of what a job on this machine reads from a `file://` URI, empty if it cannot be read; computed once
    in a program."""
    found, ignore = session.current().fingerprints, ignored(source)
    if (key := (uri, *ignore)) not in found:
        found[key] = asyncio.ensure_future(asyncio.to_thread(fingerprint, sources.absolute(uri), ignore))
    try:
        return (await found[key])[:VERSION]
    except TrainerError:
        return ""


def ignored(source: Mapping[str, Any]) -> list[str]:
    """The patterns of IGNORE_PATTERNS."""
    env = mounts.known_items(source.get("env"))
    given = next((e.get("value") for e in env if e.get("name") == "IGNORE_PATTERNS"), None)
    return [p.strip() for p in given.split(",") if p.strip()] if isinstance(given, str) else []
