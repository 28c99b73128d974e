"""The golden cases by name: see README.md."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.trainer.offline import Cluster, Result
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import DEFAULT, RELEASES

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir())


@functools.cache
def expected(name: str, release: Release = DEFAULT) -> dict[str, Any]:
    """What a release answers, which is in a file of its own where it differs from the default release."""
    own = CASES / name / f"{release.version}.json"
    return dict(json.loads((own if own.exists() else CASES / name / "expected.json").read_text()))


def having(key: str, release: Release = DEFAULT) -> list[str]:
    return [name for name in NAMES if expected(name, release).get(key)]


def each_release(key: str = "") -> pytest.MarkDecorator:
    """Runs a test with each release and each case, or with those cases whose answer has `key`."""
    pairs = [(release, name) for release in RELEASES.values() for name in (having(key, release) if key else NAMES)]
    ids = [f"{release.version}-{name}" for release, name in pairs]
    return pytest.mark.parametrize(("release", "name"), pairs, ids=ids)


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
