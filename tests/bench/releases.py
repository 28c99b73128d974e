"""Catalogues, differences of releases, and a channel that moves under many jobs: the numbers of docs/benchmarks.md."""

from __future__ import annotations

import copy
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer import runtimes
from pulumi_trainer.provider.cli import releases as commands
from pulumi_trainer.provider.trainer import runtime_releases
from pulumi_trainer.provider.trainer.labels import RELEASE
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.runtimes import RuntimeCatalog

PROGRAM = """
import pulumi_trainer as trainer

channel = trainer.RuntimeChannel(
    "stable", release="torch-distributed@{release}", catalog=trainer.RuntimeCatalog.from_dir("runtimes")
)

def train(lr: float):
    print(lr)

for i in range({count}):
    trainer.TrainJob(
        f"job-{{i}}", runtime=channel, follow="minor", suspend=True,
        trainer=trainer.CustomTrainer(func=train, func_args={{"lr": i / 1000}}, num_nodes=2, packages_to_install=["torch"]),
    )
"""


def write(folder: Path, count: int) -> None:
    """A catalogue of `count` releases, each with another image."""
    document = runtimes.load("torch-distributed")
    container = pod(document)["containers"][0]
    image = container["image"]
    for number in range(count):
        container["image"] = f"{image}@sha256:{number:064x}"
        release = f"1.{number}.0"
        for part in ("labels", "annotations"):
            document["metadata"][part][RELEASE] = release
        file = folder / "torch-distributed" / f"{release}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document))
    with redirect_stdout(io.StringIO()):
        assert commands.check(str(folder), "text", DEFAULT, lock=True) == 0


def pod(document: dict[str, Any]) -> dict[str, Any]:
    step = document["spec"]["template"]["spec"]["replicatedJobs"][0]
    found: dict[str, Any] = step["template"]["spec"]["template"]["spec"]
    return found


def median(measured: Callable[[], object], runs: int = 9) -> float:
    """Milliseconds."""
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        measured()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds) * 1000


def catalogue() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder, 100)

        def all_of_it() -> None:
            catalog = RuntimeCatalog.from_dir(folder)
            for release in catalog.releases("torch-distributed"):
                catalog.load("torch-distributed", release)

        print(f"| a catalogue of 100 releases, all loaded | {median(all_of_it):.0f} ms | 50 ms |")
        catalog = RuntimeCatalog.from_dir(folder)
        one, other = (catalog.load("torch-distributed", r) for r in ("1.1.0", "1.2.0"))

        def fresh() -> None:
            runtime_releases._compared.cache_clear()
            runtime_releases.compare(copy.deepcopy(one), other, DEFAULT)

        fresh()
        print(f"| the difference of two releases | {median(fresh):.1f} ms | 20 ms |")


def moved(run: Callable[..., float], folder: Path, count: int) -> None:
    """run: a command in the folder; tells the seconds."""
    preview = ["pulumi", "preview", "--non-interactive"]
    write(folder / "runtimes", 2)
    program = folder / "__main__.py"
    program.write_text(PROGRAM.format(release="1.0.0", count=count))
    run(["pulumi", "up", "--yes", "--skip-preview", "--non-interactive"])
    print(f"| preview without a change, {count} jobs | {run(preview):.1f} s | |", flush=True)
    program.write_text(PROGRAM.format(release="1.1.0", count=count))
    print(f"| preview of a channel's move, {count} jobs | {run(preview):.1f} s | 10 s |", flush=True)
    program.write_text(program.read_text().replace("suspend=True", 'suspend=True, run="2", interrupt="allow"'))
    run(["sh", "-c", f"{' '.join(preview)} --json --show-sames > preview.json"])
    size = (folder / "preview.json").stat().st_size / 1e6
    report = run([sys.executable, "-m", "pulumi_trainer.provider.cli", "report", "preview.json"])
    print(
        f"| `report` of {count} jobs with another release, {size:.0f} MB of JSON | {report:.1f} s | 5 s |", flush=True
    )
    run(["pulumi", "destroy", "--yes", "--skip-preview", "--non-interactive"])
