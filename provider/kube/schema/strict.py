"""Unknown fields of a document, and what may have been meant.

An API server drops them. `kubectl` asks it to refuse them (`--validate=strict`), and `cluster` does the same where a
document goes to no API server of Trainer's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.schema import Schema

_STEPS = re.compile(r"[^.\[\]]+")


def unknown_fields(schema: Schema, paths: Iterable[str]) -> list[Problem]:
    """Return a problem for each path of an unknown field, such as `spec.trainer.numNode`, of an object of that schema."""
    return [Problem(path, "unknown field", _meant(schema, path)) for path in paths]


def _meant(schema: Schema, path: str) -> str:
    *above, name = _STEPS.findall(path)
    for step in above:
        below = schema.items if step.isdigit() else schema.properties.get(step)
        if below is None:
            return ""
        schema = below
    near = difflib.get_close_matches(name, schema.properties, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"known: {', '.join(schema.properties)}" if len(schema.properties) <= _FEW else ""


_FEW = 12
