"""The files of this machine that a job reads (data at `file://` URIs, packages), and their fingerprints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pulumi_trainer.args import sources
from pulumi_trainer.program import session
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import listed
from pulumi_trainer.provider.pod.initializers import fingerprint
from pulumi_trainer.provider.pod.layer import Content

VERSION = 8
"""Characters of a digest that identify a version of the data; the name of a volume ends with them."""


def is_folder(uri: Any) -> bool:
    """Return whether a URI is known, and refers to files of this machine."""
    return isinstance(uri, str) and uri.startswith("file://")


async def version_of(uri: str, source: Mapping[str, Any]) -> str:
    """Return the fingerprint of the files at a `file://` URI, computed once in a program; empty if they cannot be read."""
    found, ignore = session.current().fingerprints, read_ignore_patterns(source)
    key = (uri, *ignore)
    if key not in found:
        found[key] = asyncio.ensure_future(asyncio.to_thread(fingerprint, sources.absolute(uri), ignore))
    try:
        return (await found[key])[:VERSION]
    except TrainerError:
        return ""


async def packages_version(requirements: list[str]) -> str:
    """Return the fingerprint of the packages and files of this machine in requirements; empty if they contain none."""
    return (await asyncio.to_thread(Content, requirements)).fingerprint[:VERSION]


def read_ignore_patterns(source: Mapping[str, Any]) -> list[str]:
    """Return the patterns of IGNORE_PATTERNS."""
    env = listed(source.get("env"))
    given = next((e.get("value") for e in env if e.get("name") == "IGNORE_PATTERNS"), None)
    if not isinstance(given, str):
        return []
    return [pattern.strip() for pattern in given.split(",") if pattern.strip()]
