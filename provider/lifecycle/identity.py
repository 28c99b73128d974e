"""Names and ids: how a job is called, whose it is, and what counts as "what the user wrote"."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

SUFFIX = 5


def job_name(logical: str, project: str, stack: str) -> str:
    """The logical name made fit for Kubernetes, and a short digest of project and stack, so that two stacks don't
    collide. Deterministic; at most 33 characters, the budget of a JobSet with a dataset initializer
    (`<jobset>-dataset-initializer-0-0-abcde` is at most 63).
    """
    stem = re.sub(r"[^a-z0-9]+", "-", logical.lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"j-{stem}".strip("-")
    return f"{stem}-{short_digest([project, stack], SUFFIX)}"


def digest(value: Any) -> str:
    """sha256 over the canonical JSON of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def short_digest(value: Any, length: int) -> str:
    """The first characters of a digest; starts with any hexadecimal digit."""
    return digest(value)[:length]


def owner_id(urn: str, content: str, run: str) -> str:
    """The id of a job in its target. Computed once, then copied: a rename keeps it, and a create that crashed before its
    state was written finds its own object again.
    """
    return digest([urn, content, run])[:20]


def program_of(urn: str) -> str:
    """Return "project/stack" of a URN, or "" if it is not one."""
    parts = urn.split("::")
    stack = parts[0].removeprefix("urn:pulumi:")
    return f"{parts[1]}/{stack}" if len(parts) > 2 and stack != parts[0] else ""
