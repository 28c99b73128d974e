"""Looking into documents that may have anything anywhere, unknown leaves too. Called by the webhooks of this folder."""

from __future__ import annotations

from typing import Any


def mapping(document: Any, *path: str) -> dict[str, Any]:
    """The mapping at a path; an empty one where there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """The strings of a list."""
    return [each for each in listed(value) if isinstance(each, str)]
