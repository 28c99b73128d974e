"""Looking into documents of a cluster, which may have anything anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pulumi_trainer.provider.kube.values.unknown import Unknown

Document = dict[str, Any]


def section(document: Any, *path: str) -> Document:
    """The mapping at a path; an empty one where there is none, or an unknown value."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """A string; empty for everything else."""
    return value if isinstance(value, str) else ""


def number(value: Any, default: int = 0) -> int:
    """A whole number; `default` for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def conditions(document: Document | None) -> list[dict[str, Any]]:
    return rows(section(document, "status").get("conditions"))


def condition(among: Iterable[dict[str, Any]], type_: str) -> dict[str, Any]:
    """The condition of that type; empty if there is none."""
    return next((c for c in among if c.get("type") == type_), {})


def true(among: Iterable[dict[str, Any]], type_: str) -> dict[str, Any]:
    """The condition of that type if it is True; empty otherwise."""
    found = condition(among, type_)
    return found if found.get("status") == "True" else {}


def seconds(time: Any, default: float = 0.0) -> float:
    """Seconds since the epoch of a time as the API writes it; `default` if it is none."""
    if not isinstance(time, str):
        return default
    whole = re.sub(
        r"\.(\d{1,9})", lambda m: f".{m[1]:0<6.6}", time.replace("Z", "+00:00")
    )  # Python 3.10 wants six digits
    try:
        return datetime.fromisoformat(whole).timestamp()
    except ValueError:
        return default


def name_of(document: Document | None) -> str:
    return text(section(document, "metadata").get("name"))


def labels_of(document: Document | None) -> Document:
    return section(document, "metadata", "labels")


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """The strings of a list."""
    return [each for each in listed(value) if isinstance(each, str)]


def same(one: Any, other: Any) -> bool:
    """Whether what Go has printed is equal, and of the same types. Unknown leaves are equal to everything."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def items(document: Any, name: str) -> list[dict[str, Any]]:
    """The mappings in a list of `document`; none where there is no list, or an unknown value."""
    found = document.get(name) if isinstance(document, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
