"""The Stack of the Pulumi Kubernetes Operator in the docs has fields that the CRD of its version 2.9 declares."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.accessors import without

from tests.documented import blocks

TEXT, FLAG, NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "format": "int64"}


def fields(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


REFERENCE = fields("type", type=TEXT, secret=fields("key name", key=TEXT, name=TEXT, namespace=TEXT))
STACK = fields(
    apiVersion=TEXT,
    kind=TEXT,
    spec=fields(
        "stack", stack=TEXT, projectRepo=TEXT, repoDir=TEXT, branch=TEXT, commit=TEXT, backend=TEXT, preview=FLAG, refresh=FLAG,
        destroyOnFinalize=FLAG, continueResyncOnCommitMatch=FLAG, resyncFrequencySeconds=NUMBER, serviceAccountName=TEXT,
        envRefs={"type": "object", "additionalProperties": REFERENCE},
        workspaceTemplate=fields(spec=fields(image=TEXT, serviceAccountName=TEXT)),
    ),
)  # fmt: skip
"""What of the interface of a Stack (pulumi.com/v1) concerns previews of a git repository."""
(DOCUMENTED,) = (yaml.safe_load(block.text) for block in blocks("docs/guides/ci.md", __file__))


def problems(document: dict[str, Any]) -> list[str]:
    """What the API server would drop or refuse."""
    unknown: list[str] = []
    schema = Schema(STACK, {})
    schema.pruned(without(document, "metadata"), None, unknown)
    return [*unknown, *map(str, schema.faults(document))]


def test_the_stack_of_the_docs_previews() -> None:
    assert (DOCUMENTED["apiVersion"], DOCUMENTED["kind"]) == ("pulumi.com/v1", "Stack")
    assert problems(DOCUMENTED) == []
    spec = DOCUMENTED["spec"]
    assert spec["preview"] is True and not spec.get("destroyOnFinalize"), "it changes nothing"


@pytest.mark.parametrize(
    "change", [{"previews": True}, {"preview": "yes"}, {"envRefs": {"A": {"secret": {"name": "s"}}}}]
)
def test_another_field_or_type_is_found(change: dict[str, Any]) -> None:
    assert problems({**DOCUMENTED, "spec": {**DOCUMENTED["spec"], **change}})
