"""The estimate of the memory of a GPU beside what torch allocates for small models on the CPU: a table of docs/benchmarks.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.gpu_memory import Range, Training, adapter_parameters, estimate

from tests.engine.conftest import Project

SECONDS = 1800
PROGRAM = Path(__file__).with_name("measure_memory.py")
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
JOBS = f"""
import pulumi
import pulumi_trainer as trainer

for name, nodes in (("measured", 1), ("sharded", 2)):
    trainer.TrainJob(
        name,
        runtime="torch-distributed",
        trainer=trainer.CustomTrainer(
            script={str(PROGRAM)!r}, num_nodes=nodes, resources_per_node={{"cpu": 1}},
            packages_to_install=["torch>=2.6,<3", "numpy", "transformers>=5", "peft>=0.18", "accelerate>=1"],
        ),
        wait_for="complete",
    )
"""
SIZES: dict[str, Any] = {"hidden_size": 128, "num_layers": 4, "vocabulary": 512, "sequence_length": 64}
RANK = 8
BYTES = {"fp32": (4, 4, 8), "mixed": (4, 4, 8), "bf16": (2, 2, 4)}

pytestmark = pytest.mark.timeout(2 * SECONDS)


def training(row: dict[str, Any]) -> Training:
    count = row["parameters"]
    return Training(
        Range(count, count), "counted", method=row["method"], lora_rank=RANK if row["adapter"] else None,
        precision=row["precision"], sharding="ddp", batch_size=row["batch_size"], checkpointing=row["checkpointing"], **SIZES,
    )  # fmt: skip


def rows(project: Project, job: str) -> list[dict[str, Any]]:
    found = [line.partition("row {")[2] for line in project.logs(job).splitlines() if "row {" in line]
    return [json.loads("{" + line) for line in found]


def table(measured: list[dict[str, Any]]) -> str:
    """The rows of the docs: measured beside estimated, in MB."""
    lines = []
    for row in measured:
        total = estimate(training(row)).total
        least, most = (100 * (bound / row["total"] - 1) for bound in (total.low, total.high))
        checkpointing = "yes" if row["checkpointing"] else "no"
        lines.append(
            f"| {row['model']} | {row['method']} | {row['precision']} | {row['batch_size']} | {checkpointing} |"
            f" {row['total'] / 1e6:.1f} | {total.low / 1e6:.1f} to {total.high / 1e6:.1f} | {least:+.0f} %, {most:+.0f} % |"
        )
    return "\n".join(lines)


def test_what_small_models_allocate(project: Project) -> None:
    project.program("", head=JOBS)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{project.logs('measured')}\n{project.logs('sharded')}"
    measured = rows(project, "measured")
    print(table(measured))
    assert len(measured) == 48
    for row in measured:
        parts, count = estimate(training(row)), row["adapter"] or row["parameters"]
        weight, gradient, states = BYTES[row["precision"]]
        frozen = row["parameters"] * weight if row["adapter"] else 0
        assert (row["weights"], row["gradients"], row["optimizer"]) == (
            frozen + weight * count, gradient * count, states * count
        ), row  # fmt: skip
        if row["adapter"]:
            size = adapter_parameters(training(row))
            assert size is not None and size.low <= count <= size.high
        else:
            exact = {"weights": weight * count, "gradients": gradient * count, "optimizer": states * count}
            assert {name: parts.parts[name].low for name in exact} == exact, row
        for name in ("weights", "gradients", "optimizer"):
            assert parts.parts[name].low <= row[name] <= parts.parts[name].high, (name, row)
        assert parts.total.low <= row["total"] <= parts.total.high, (row, str(parts))

    sharded = rows(project, "sharded")
    assert [row["sharding"] for row in sharded] in (["zero1", "zero3"] * 2, ["zero1", "zero1", "zero3", "zero3"])
    for row in sharded:
        size = Range(row["parameters"], row["parameters"])
        shares = estimate(Training(size, "counted", precision="fp32", sharding=row["sharding"], gpus=2)).parts
        for name in ("weights", "gradients", "optimizer"):
            assert shares[name].low == row[name], row


def test_the_docs_have_a_row_for_each_measurement() -> None:
    """The numbers differ a little with the releases of torch and Transformers."""
    text = PAGE.read_text()
    for model in ("llama", "gpt2"):
        for method in ("full", "lora"):
            assert text.count(f"| {model} | {method} | ") == 12
