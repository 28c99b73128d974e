"""Which taints which tolerations bear. Called by `fitting` and by the warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .reading import mapping
from .verdict import Document


def borne(taint: Mapping[str, Any], tolerations: Sequence[Any]) -> bool:
    """Whether one of the tolerations bears a taint: https://github.com/kubernetes/api/blob/v0.36.3/core/v1/toleration.go"""
    return any(_bears(mapping(toleration), taint) for toleration in tolerations)


def _bears(toleration: Document, taint: Mapping[str, Any]) -> bool:
    for field in ("effect", "key"):
        if toleration.get(field) and toleration[field] != taint.get(field):
            return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
