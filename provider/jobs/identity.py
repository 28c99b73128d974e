"""Computes names, owner ids, and digests of what the user wrote."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

SUFFIX = 5


def job_name(logical: str, project: str, stack: str) -> str:
    """Return a valid Kubernetes name for a job: the logical name and a short digest of project and stack.

    The digest keeps two stacks apart. The name is deterministic and has at most 33 characters, because
    `<jobset>-dataset-initializer-0-0-abcde` may have 63.

    Args:
        stack: Name of the stack, without organization and project.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", logical.lower()).strip("-")
    if not stem[:1].isalpha():
        stem = f"j-{stem}".strip("-")
    return f"{stem}-{short_digest([project, stack], SUFFIX)}"


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def short_digest(value: Any, length: int) -> str:
    """Return the first characters of a digest; starts with any hexadecimal digit."""
    return digest(value)[:length]


def owner_id(urn: str, content: str, run: str) -> str:
    """Return the id of a job in its target.

    The id is computed once and then copied: a rename keeps it, and a create that crashed before its state was written finds its
    own object again.
    """
    return digest([urn, content, run])[:20]


def program_of(urn: str) -> str:
    """Return "project/stack" of a URN, or "" if it is not one."""
    parts = urn.split("::")
    stack = parts[0].removeprefix("urn:pulumi:")
    if len(parts) <= 2 or stack == parts[0]:
        return ""
    return f"{parts[1]}/{stack}"
