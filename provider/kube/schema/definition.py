"""Kinds as their CustomResourceDefinitions (CRDs) describe them, in files of `provider/admission/generate/schemas.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kube.schema.rules import Predicates
from pulumi_trainer.provider.kube.schema.schema import Schema


@dataclass(frozen=True)
class Kind:
    """A kind at the version that is stored.

    Args:
        name: Of the kind, such as JobSet.
        group: Its API group.
        version: Its version in the group.
        plural: Its name in a URL.
        namespaced: Whether its objects belong to a namespace.
        status: Whether status is a resource of its own, so that nobody sets it with the rest.
        schema: Of its objects, metadata excepted.
    """

    name: str
    group: str
    version: str
    plural: str
    namespaced: bool
    status: bool
    schema: Schema

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


def read_kinds(file: Path, predicates: Predicates) -> dict[str, Kind]:
    """Return the kinds of a file by name; it takes milliseconds, and a schema's parts are made when a document has them."""
    data = json.loads(file.read_text())
    nodes: list[dict[str, Any]] = data["nodes"]
    for node in nodes:  # what a node holds comes before it
        if "properties" in node:
            node["properties"] = {name: nodes[number] for name, number in node["properties"].items()}
        for name in ("items", "additionalProperties"):
            if name in node:
                node[name] = nodes[node[name]]
    made: dict[int, Schema] = {}
    return {
        name: Kind(name=name, **{**kind, "schema": Schema(nodes[kind["schema"]], predicates, made)})
        for name, kind in data["kinds"].items()
    }
