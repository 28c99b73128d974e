"""Kinds and the schemas of their CustomResourceDefinitions (CRDs), from generated files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.schema import Predicates, Schema


@dataclass(frozen=True)
class Kind:
    """A kind at its storage version. status: Whether status is a subresource, which other requests cannot set."""

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
    """Return the kinds in a file by name. Schemas are built when a document first needs them."""
    data = json.loads(file.read_text())
    nodes: list[dict[str, Any]] = data["nodes"]
    for node in nodes:  # child schemas come before their parents
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
