"""Reports unknown fields of a document, with the name that was probably meant.

An API server drops them unless asked to reject them, as `kubectl --validate=strict` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean

_STEPS = re.compile(r"[^.\[\]]+")


def unknown_fields(schema: Schema, paths: Iterable[str]) -> list[Problem]:
    """Return a problem for each path of an unknown field."""
    return [Problem(path, "unknown field", _did_you_mean(schema, path)) for path in paths]


def _did_you_mean(schema: Schema, path: str) -> str:
    *above, name = _STEPS.findall(path)
    for step in above:
        below = schema.items if step.isdigit() else schema.properties.get(step)
        if below is None:
            return ""
        schema = below
    known = f"known: {', '.join(schema.properties)}" if len(schema.properties) <= _FEW else ""
    return did_you_mean(name, schema.properties, known)


_FEW = 12
