"""The golden cases by name: see README.md."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.trainer.offline import Cluster, Result

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir())


@functools.cache
def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / name / "expected.json").read_text()))


def having(key: str) -> list[str]:
    return [name for name in NAMES if expected(name).get(key)]


class RecordedCluster(Cluster):
    """An offline cluster that also takes the recorder's steps between objects.

    `OracleConfig` sets feature gates, `OracleDelete` deletes the object that its `target` names.
    """

    def apply(self, document: dict[str, Any]) -> Result | None:
        if document["apiVersion"] != "oracle/v1":
            return super().apply(document)
        if document["kind"] == "OracleConfig":
            self.gates = {name: value for name, value in document.items() if isinstance(value, bool)}
            return None
        target = section(document, "target")
        if not isinstance(target.get("apiVersion"), str) or not isinstance(target.get("kind"), str):
            raise Invalid(Problem("target", "must have apiVersion, kind and metadata of the object to delete"))
        self.delete(target)
        return None
