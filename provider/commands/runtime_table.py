"""Prints the table of the built-in runtimes (`runtimes`)."""

from __future__ import annotations

from itertools import chain
from typing import Any

from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.catalog.catalog import BUILT_IN
from pulumi_trainer.provider.commands.formats import print_data
from pulumi_trainer.provider.kube.terminal import print_lines
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.views import replicated_jobs

_ONE, _ANY = "1", "1 or more"


def list_runtimes() -> list[dict[str, Any]]:
    """Return an entry for each runtime, by name, as its newest release describes it."""
    return [*map(_entry, BUILT_IN.names())]


def print_all(output: str) -> None:
    """Print all runtimes. output: table, json or yaml."""
    found = list_runtimes()
    if output in ("json", "yaml"):
        print_data(found, output)
        return
    head = ("RUNTIME", "RELEASES", "FRAMEWORK", "DEVICES", "NODES", "FOR")
    rows = [
        (e["name"], ", ".join(_releases(e)), e["framework"], _devices(e),
         e["nodes"], e["purpose"])
        for e in found
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print_lines(["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()])
    print_lines(["", '* the newest: what runtime="NAME" takes; runtime="NAME@RELEASE" takes another'])


def _entry(name: str) -> dict[str, Any]:
    newest, about = BUILT_IN.releases(name)[-1], BUILT_IN.about(name)
    known = [release for release in BUILT_IN.releases(name) if release == newest or release in BUILT_IN.offered(name)]
    document = BUILT_IN.load(name)
    return {
        "name": name,
        "releases": known,
        "newest": known[-1],
        "deprecated": [release for release in known if BUILT_IN.deprecation(name, release)],
        "framework": document["metadata"]["labels"][FRAMEWORK],
        "devices": about["devices"],
        "gpusPerNode": _gpus(document),
        "nodes": _ONE if about["nodes"] == "one" else _ANY,
        "purpose": about["purpose"],
    }


def _releases(entry: dict[str, Any]) -> list[str]:
    """Return the releases of an entry with their marks."""
    marked = [f"{each} (deprecated)" if each in entry["deprecated"] else each for each in entry["releases"]]
    return [*marked[:-1], f"{marked[-1]}*"]


def _gpus(document: dict[str, Any]) -> int:
    """Return the GPUs that each node requests if the TrainJob does not set them."""
    jobs = replicated_jobs(section(document, "spec", "template", "spec"))
    containers = chain.from_iterable(job.pod.containers for job in jobs)
    limits = chain.from_iterable(section(c.document, "resources", "limits").items() for c in containers)
    return max((int(n) for name, n in limits if "gpu" in name), default=0)


def _devices(entry: dict[str, Any]) -> str:
    devices = ", ".join(entry["devices"])
    if not entry["gpusPerNode"]:
        return devices
    return f"{devices} ({entry['gpusPerNode']} a node)"
