"""The kinds that can be reviewed, with the schemas of their CRDs out of schemas.json (made by generate/schemas.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kueue.objects import GROUP as KUEUE


@dataclass(frozen=True)
class Kind:
    """plural: the kind in a URL. status: whether it is a resource of its own, so that nobody sets it with the rest."""

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


def kinds() -> dict[str, Kind]:
    """Those of jobs and runtimes, by name."""
    return _kinds()[0]


def queue_kinds() -> dict[str, Kind]:
    """Kueue's, by name."""
    return _kinds()[1]


@cache
def _kinds() -> tuple[dict[str, Kind], dict[str, Kind]]:
    """Takes a few milliseconds the first time; a schema's parts are made when a document has them."""
    data = json.loads((Path(__file__).parent / "schemas.json").read_text())
    nodes: list[dict[str, Any]] = data["nodes"]
    for node in nodes:  # what a node holds comes before it
        if "properties" in node:
            node["properties"] = {name: nodes[number] for name, number in node["properties"].items()}
        for name in ("items", "additionalProperties"):
            if name in node:
                node[name] = nodes[node[name]]
    made: dict[int, Schema] = {}
    found = {}
    for name, kind in data["kinds"].items():
        found[name] = Kind(name=name, **{**kind, "schema": Schema(nodes[kind["schema"]], made)})
    queues = {name: kind for name, kind in found.items() if kind.group == KUEUE}
    return {name: kind for name, kind in found.items() if name not in queues}, queues
