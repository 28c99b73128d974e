"""`runtimes`: what the catalogue has, and what each runtime is for."""

from __future__ import annotations

import json
from typing import Any

from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.catalog.catalog import BUILT_IN

_ONE, _ANY = "1", "1 or more"


def listed() -> list[dict[str, Any]]:
    """One entry a runtime, by name; of a runtime with several releases, as its newest is."""
    return [_entry(name) for name in BUILT_IN.names()]


def print_all(output: str) -> None:
    """output: text (a table) or json."""
    found = listed()
    if output == "json":
        print(json.dumps(found, indent=2))
        return
    head = ("RUNTIME", "RELEASES", "FRAMEWORK", "DEVICES", "NODES", "FOR")
    rows = [
        (e["name"], ", ".join([*e["releases"][:-1], f"{e['newest']}*"]), e["framework"], _devices(e),
         e["nodes"], e["purpose"])
        for e in found
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print('\n* the newest: what runtime="NAME" takes; runtime="NAME@RELEASE" takes another')


def _entry(name: str) -> dict[str, Any]:
    known, about = BUILT_IN.releases(name), BUILT_IN.about(name)
    document = BUILT_IN.load(name)
    return {
        "name": name,
        "releases": known,
        "newest": known[-1],
        "framework": document["metadata"]["labels"][FRAMEWORK],
        "devices": about["devices"],
        "gpusPerNode": _gpus(document),
        "nodes": _ONE if about["nodes"] == "one" else _ANY,
        "purpose": about["purpose"],
    }


def _gpus(document: dict[str, Any]) -> int:
    """GPUs that each node asks for where a TrainJob says nothing."""
    steps = document["spec"]["template"]["spec"]["replicatedJobs"]
    containers = [c for step in steps for c in step["template"]["spec"]["template"]["spec"]["containers"]]
    limits = [c["resources"]["limits"] for c in containers if c.get("resources", {}).get("limits")]
    return max((int(n) for given in limits for name, n in given.items() if "gpu" in name), default=0)


def _devices(entry: dict[str, Any]) -> str:
    devices = ", ".join(entry["devices"])
    return f"{devices} ({entry['gpusPerNode']} a node)" if entry["gpusPerNode"] else devices
