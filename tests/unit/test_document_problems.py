"""What is wrong with a document by itself, in plain words, by the schema of its CRD."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import document_problems, source_problems


def wrong(metadata: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", **(metadata or {})},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }
    return [str(problem) for problem in document_problems(document)]


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_label_without_a_value_is_reported_and_not_dropped(part: str) -> None:
    assert wrong({part: {"a": None, "b": "c"}}) == [f"metadata.{part}.a: must be a string, not None"]
    assert wrong({part: {"a.io/b": 1}}) == [f"metadata.{part}['a.io/b']: must be a string, not 1"]
    assert wrong({part: {"a": Unknown("x")}}) == []


def test_values_that_may_be_secret_are_not_shown() -> None:
    found = wrong(trainer={"env": [{"name": "A", "value": 4711}], "args": [4712], "command": [4713]})
    assert len(found) == 3 and not any("471" in line for line in found), found


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"trainer": {"numNodes": 2**31}},
            "spec.trainer.numNodes: must be less than or equal to 2147483647, not 2147483648",
        ),
        ({"runtimeRef": {}}, "spec.runtimeRef.name: is required"),
        ({"runtimePatches": 1}, "spec.runtimePatches: must be a list, not 1"),
        (
            {"trainer": {"resourcesPerNode": {"limits": {"cpu": "3 x"}}}},
            'spec.trainer.resourcesPerNode.limits.cpu: must be a quantity such as 3, "500m" or "4Gi", not \'3 x\'',
        ),
    ],
)
def test_each_kind_of_mistake_has_its_words(spec: dict[str, Any], says: str) -> None:
    assert wrong(**spec) == [says]


def test_a_source_by_itself() -> None:
    assert [str(p) for p in source_problems({"storageUri": 1, "env": [{"name": ""}]})] == [
        "storageUri: must be a string, not 1",
        "env[0].name: must have at least 1 character",
    ]
