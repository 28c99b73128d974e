"""Writes the schemas of CRDs into a file, without descriptions.

    python tests/golden/recorder/crd_schemas.py FILE CRD.yaml...

`make record` calls it with the CRDs of a release of kubeflow/trainer and of its JobSet. Those of Kueue are
`provider/kueue/schemas.json`, from kubernetes-sigs/kueue v0.19.2 (config/components/crd/bases).

The file contains `kinds`: for each kind its group, version, scope, whether status is a subresource, and the number of
its schema; and `nodes`: every distinct schema once, in the CRD's own words, with numbers instead of nested schemas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.values.accessors import without

TEXTS = ("description", "title", "example", "externalDocs", "x-kubernetes-map-type")
"""Left out: for readers, or for server-side apply only."""
UNDERSTOOD = frozenset(
    [
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "format",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "enum",
        "default",
        "nullable",
        "anyOf",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
    ]
)
SKIPPED = ("OptimizationJob", "Workload")
"""Kinds that no program of this package creates."""
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
"""Part of every int-or-string schema, and of no other."""


class Nodes:
    """The distinct schemas; child schemas come before their parents."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, schema: dict[str, Any]) -> int:
        """Add a schema with its child schemas, and return its number."""
        node = without(schema, *TEXTS)
        unknown = node.keys() - UNDERSTOOD
        if unknown:
            sys.exit(f"not understood by schema.py: {unknown}")
        if node.pop("anyOf", None) not in (None, INT_OR_STRING):
            sys.exit(f"only int-or-string may have anyOf: {schema}")
        if "properties" in node:
            node["properties"] = {name: self.add(each) for name, each in sorted(node["properties"].items())}
        for name in ("items", "additionalProperties"):
            if name in node:
                node[name] = self.add(node[name])
        text = json.dumps(node, sort_keys=True, separators=(",", ":"))
        return self.numbers.setdefault(text, len(self.numbers))


def main(file: str, *sources: str) -> None:
    """Write `file` from the CRDs in `sources`."""
    found = [yaml.safe_load(Path(source).read_text()) for source in sorted(sources, key=lambda path: Path(path).name)]
    write(Path(file), [crd for crd in found if crd["spec"]["names"]["kind"] not in SKIPPED])


def write(file: Path, crds: list[dict[str, Any]]) -> None:
    """Write the schemas of CRDs into a file."""
    nodes = Nodes()
    kinds = {}
    for crd in crds:
        (version,) = (v for v in crd["spec"]["versions"] if v["storage"])
        kinds[crd["spec"]["names"]["kind"]] = {
            "group": crd["spec"]["group"],
            "version": version["name"],
            "plural": crd["spec"]["names"]["plural"],
            "namespaced": crd["spec"]["scope"] == "Namespaced",
            "status": "status" in version.get("subresources", {}),
            "schema": nodes.add(version["schema"]["openAPIV3Schema"]),
        }
    lines = ",\n".join(nodes.numbers)
    text = f'{{"kinds":{json.dumps(kinds, separators=(",", ":"))},\n"nodes":[\n{lines}\n]}}\n'
    file.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
