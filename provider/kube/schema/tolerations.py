"""Which taints which tolerations bear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import Document, section


class Tolerations:
    """What the tolerations of a Pod bear: https://github.com/kubernetes/api/blob/v0.36.3/core/v1/toleration.go"""

    def __init__(self, tolerations: Iterable[Any]) -> None:
        self._known = {known for each in tolerations if (known := _known(section(each))) is not None}

    def bear(self, taint: Mapping[str, Any]) -> bool:
        """Whether one of the tolerations bears a taint: the same time for one as for thousands."""
        effects, keys = ({_text(taint.get(field)), _ANY} for field in ("effect", "key"))
        values = {_text(taint.get("value")), None}
        return not self._known.isdisjoint(product(effects, keys, values))


_ANY = ""


def _known(toleration: Document) -> tuple[str, str, str | None] | None:
    """Effect, key and value of the taints that it bears; value None: any; None: it bears none."""
    effect, key = _text(toleration.get("effect")), _text(toleration.get("key"))
    if toleration.get("operator") == "Exists":
        return effect, key, None
    return (effect, key, _text(toleration.get("value"))) if key else None


def _text(value: Any) -> str:
    return str(value or "")
