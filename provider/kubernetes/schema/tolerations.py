"""Which taints the tolerations of a Pod tolerate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import Document, section


class Tolerations:
    """The tolerations of a Pod: https://github.com/kubernetes/api/blob/v0.36.3/core/v1/toleration.go"""

    def __init__(self, tolerations: Iterable[Any]) -> None:
        self._known = {_known(section(each)) for each in tolerations} - {None}

    def tolerate(self, taint: Mapping[str, Any]) -> bool:
        """Return whether a toleration matches a taint; takes the same time for any number of tolerations."""
        effects, keys = ({_text(taint.get(field)), _ANY} for field in ("effect", "key"))
        values = {_text(taint.get("value")), None}
        return not self._known.isdisjoint(product(effects, keys, values))


_ANY = ""


def _known(toleration: Document) -> tuple[str, str, str | None] | None:
    """Return effect, key and value of the taints that a toleration matches (value None: any); None if it matches no taint."""
    effect, key = _text(toleration.get("effect")), _text(toleration.get("key"))
    if toleration.get("operator") == "Exists":
        return effect, key, None
    return (effect, key, _text(toleration.get("value"))) if key else None


def _text(value: Any) -> str:
    return str(value or "")
