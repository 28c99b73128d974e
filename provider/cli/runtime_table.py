"""Prints the table of the runtimes of a catalogue (`runtime list`)."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.jobs.usage import is_gpu
from pulumi_trainer.provider.kubernetes.terminal import print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, text
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.wording import aligned
from pulumi_trainer.provider.kubernetes.views import replicated_jobs
from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN, RuntimeCatalog
from pulumi_trainer.provider.trainer.labels import FRAMEWORK

_ONE, _ANY = "1", "1 or more"


def list_runtimes(catalog: RuntimeCatalog = BUILT_IN) -> list[dict[str, Any]]:
    """Return an entry for each runtime, by name, as its newest release describes it."""
    return [_entry(catalog, name) for name in catalog.names()]


def print_all(output: str, folder: str = "") -> None:
    """Print all runtimes."""
    catalog = BUILT_IN
    if folder:
        catalog = RuntimeCatalog.from_dir(folder)
    found = list_runtimes(catalog)
    if output in ("json", "yaml"):
        print_data(found, output)
        return
    if not found:
        print_lines(
            [f"No runtimes in {folder}. `pulumi-trainer runtime new NAME@RELEASE --catalog {folder}` creates one."]
        )
        return
    rows = [("RUNTIME", "RELEASES", "FRAMEWORK", "DEVICES", "NODES", "FOR")]
    for e in found:
        rows.append((e["name"], ", ".join(_releases(e)), e["framework"], _devices(e), e["nodes"], e["purpose"]))
    print_lines(aligned(rows))
    print_lines(["", '* the newest: what runtime="NAME" takes; runtime="NAME@RELEASE" takes another'])


def _entry(catalog: RuntimeCatalog, name: str) -> dict[str, Any]:
    releases, about = catalog.releases(name), catalog.about(name)
    offered = catalog.offered(name)
    known = [release for release in releases if release == releases[-1] or release in offered]
    document = catalog.load_unlocked(name, releases[-1])
    nodes = _ONE if about.get("nodes") == "one" else _ANY
    return {
        "name": name,
        "releases": known,
        "newest": known[-1],
        "deprecated": [release for release in known if catalog.deprecation(name, release)],
        "framework": text(document["metadata"]["labels"].get(FRAMEWORK)),
        "devices": [*map(text, listed(about.get("devices")))],
        "gpusPerNode": _gpus(document),
        "nodes": nodes,
        "purpose": text(about.get("purpose")),
    }


def _releases(entry: dict[str, Any]) -> list[str]:
    """Return the releases of an entry with their marks."""
    marked = []
    for release in entry["releases"]:
        mark = " (deprecated)" if release in entry["deprecated"] else ""
        marked.append(f"{release}{mark}")
    return [*marked[:-1], f"{marked[-1]}*"]


def _gpus(document: dict[str, Any]) -> int:
    """Return the GPUs that each node requests if the TrainJob does not set them."""
    counts = []
    for job in replicated_jobs(section(document, "spec", "template", "spec")):
        for container in job.pod.containers:
            for name, amount in section(container.document, "resources", "limits").items():
                if is_gpu(name):
                    counts.append(_count(amount))
    return max(counts, default=0)


def _count(amount: Any) -> int:
    try:
        return Quantity.parse(str(amount)).value
    except ValueError:  # `runtime check` reports it
        return 0


def _devices(entry: dict[str, Any]) -> str:
    devices = ", ".join(entry["devices"])
    if not entry["gpusPerNode"]:
        return devices
    return f"{devices or 'gpu'} ({entry['gpusPerNode']} a node)"
