"""Merges lists of a container as plugins change them: a new item replaces one of the same key in place, or is appended.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apply/apply.go
"""

from __future__ import annotations

import heapq
from typing import Any

from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


def upsert(current: Any, new: Any, key: str) -> Any:
    """Return `current` with each item of `new` in place of the first item with an equal `key`, or at the end.

    Args:
        current: Items of the container, for example its `env`; if unknown, they are returned as they are.
        new: Items to add, likewise; if unknown, the result is unknown.
        key: Name of the field that identifies an item, for example `name`.
    """
    if isinstance(current, Unknown):
        return current
    if isinstance(new, Unknown):
        return new
    merged = list(current)
    place: dict[Any, int] = {}
    for at, item in enumerate(merged):
        place.setdefault(_key(item, key), at)
    for item in new:
        at = place.setdefault(_key(item, key), len(merged))
        merged[at : at + 1] = [item]
    return merged


def upsert_ports(current: Any, new: Any) -> Any:
    """Return `current` with the ports of `new`; ports are equal if their numbers or names are, two missing names included.

    Args:
        current: `ports` of the container; if unknown, they are returned as they are.
        new: Ports to add; if unknown, the result is unknown.
    """
    if isinstance(current, Unknown):
        return current
    if isinstance(new, Unknown):
        return new
    merged: list[Any] = []
    places: dict[tuple[str, Any], list[int]] = {}
    """Field and value -> a heap of where ports had them; some have been replaced since."""

    def put(at: int, port: Any) -> None:
        merged[at : at + 1] = [port]
        for field in _PORT_KEYS:
            heapq.heappush(places.setdefault((field, _key(port, field)), []), at)

    def first(field: str, value: Any) -> int:
        heap = places.get((field, value), [])
        while heap and _key(merged[heap[0]], field) != value:
            heapq.heappop(heap)
        if not heap:
            return len(merged)
        return heap[0]

    for port in current:
        put(len(merged), port)
    for port in new:
        put(min(first(field, _key(port, field)) for field in _PORT_KEYS), port)
    return merged


_PORT_KEYS = ("containerPort", "name")


def _key(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else item


def env_vars(given: Any) -> Any:
    """Return a document's env as Trainer writes it: a value only if it is not empty, of a source only the known fields."""
    if isinstance(given, Unknown):
        return given
    return [*map(_env_var, given or ())]


def _env_var(env: Any) -> Any:
    if isinstance(env, Unknown):
        return env
    source = env.get("valueFrom")
    if source is None:
        return {"name": env["name"], "value": env.get("value", "")}
    if isinstance(source, Unknown):
        return {"name": env["name"], "valueFrom": source}
    kept: dict[str, Any] = {}
    if source.get("fieldRef"):
        kept["fieldRef"] = _reference_fields(source["fieldRef"], fieldPath="")
    if source.get("resourceFieldRef"):
        kept["resourceFieldRef"] = _reference_fields(
            source["resourceFieldRef"], containerName="", resource="", divisor="0"
        )
    for name in ("configMapKeyRef", "secretKeyRef"):
        ref = source.get(name)
        if ref:
            kept[name] = _reference_fields(ref, key="", name="")
            if isinstance(ref, dict) and "optional" in ref:
                kept[name]["optional"] = ref["optional"]
    return {"name": env["name"], "valueFrom": kept}


def _reference_fields(ref: Any, **zero: Any) -> Any:
    if not isinstance(ref, dict):
        return ref
    return {name: ref.get(name, value) for name, value in zero.items()}
