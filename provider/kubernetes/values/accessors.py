"""Read values from Kubernetes documents in which any field may be missing or have any type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

Document = dict[str, Any]


def section(document: Any, *path: str) -> Document:
    """Return the mapping at a path; empty if not found or unknown."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def section_if_given(document: Document | None, name: str) -> Document | None:
    """Return the mapping at a field; None if not found or unknown, which differs from an empty one."""
    found = (document or {}).get(name)
    if not isinstance(found, dict):
        return None
    return found


def only(document: Mapping[str, Any], names: Collection[str]) -> Document:
    """Return the fields of a document with these names."""
    return {name: value for name, value in document.items() if name in names}


def without(document: Mapping[str, Any], *names: str) -> Document:
    """Return a document without the fields of these names."""
    return {name: value for name, value in document.items() if name not in names}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings of a list; empty for any other value."""
    return [each for each in listed(value) if isinstance(each, dict)]


def text(value: Any) -> str:
    """Return a string; empty for any other value."""
    return value if isinstance(value, str) else ""


def number(value: Any, default: int = 0) -> int:
    """Return a whole number; `default` for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def conditions(document: Document | None) -> list[dict[str, Any]]:
    """Return the conditions in the status of an object."""
    return mappings(section(document, "status").get("conditions"))


def condition(among: Iterable[dict[str, Any]], type_: str) -> dict[str, Any]:
    """Return the condition of a type; empty if not found."""
    return next((c for c in among if c.get("type") == type_), {})


def true_condition(among: Iterable[dict[str, Any]], type_: str) -> dict[str, Any]:
    """Return the condition of a type if its status is True; else empty."""
    found = condition(among, type_)
    return found if found.get("status") == "True" else {}


def epoch_seconds(time: Any, default: float = 0.0) -> float:
    """Return seconds since the epoch of an RFC 3339 time; `default` for any other value."""
    if not isinstance(time, str):
        return default
    whole = re.sub(
        r"\.(\d{1,9})", lambda m: f".{m[1]:0<6.6}", time.replace("Z", "+00:00")
    )  # Python 3.10 wants six digits
    try:
        return datetime.fromisoformat(whole).timestamp()
    except ValueError:
        return default


def plausible_seconds(value: Any) -> float:
    """Return seconds, since the epoch or of a duration, from data that anybody may have written; 0 if no calendar has them."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _YEAR_9999
    return float(value) if known else 0.0


_YEAR_9999 = 253_370_764_800


def name_of(document: Document | None) -> str:
    """Return the name of an object; empty if not found."""
    return text(section(document, "metadata").get("name"))


def place_of(document: Document | None) -> tuple[str, str]:
    """Return namespace and name of an object; empty if not found."""
    return text(section(document, "metadata").get("namespace")), name_of(document)


def labels_of(document: Document | None) -> Document:
    """Return the labels of an object."""
    return section(document, "metadata", "labels")


def controller_of(document: Document | None) -> Document:
    """Return the reference to the object whose controller has made another one; empty if it has none."""
    owners = mappings(section(document, "metadata").get("ownerReferences"))
    return next((owner for owner in owners if owner.get("controller")), {})


def listed(value: Any) -> list[Any]:
    """Return a list; empty for any other value."""
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """Return the strings of a list; empty for any other value."""
    return [each for each in listed(value) if isinstance(each, str)]


def equal_as_go(one: Any, other: Any) -> bool:
    """Return whether two documents that Go has printed are equal, types included (1 differs from 1.0); Unknown equals all."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal_as_go(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal_as_go, one, other))
    return type(one) is type(other) and bool(one == other)


def items(document: Any, name: str) -> list[dict[str, Any]]:
    """Return the mappings in the list at a field; empty if the list is not found or unknown.

    Args:
        document: The object that has the field; any other value has no items.
        name: Name of the field.
    """
    return mappings(section(document).get(name))
