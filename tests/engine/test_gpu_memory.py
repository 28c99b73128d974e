"""The estimate of the memory of a GPU in a plan: what trainers and flavors state, and the warning if it cannot fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documented import blocks

from . import kubernetes_plugin
from .conftest import Project
from .test_cluster_refusals import Api, api  # noqa: F401

HEAD = "import pulumi\nimport pulumi_trainer as trainer\n"
JOBS = """
teams = {"nlp": trainer.Team(gpus={"h100": 64, "l4": 8})}
gpus = trainer.GpuQueues("gpus", teams=teams, gpus={"h100": {"gpu": "h100"}, "l4": {"gpu": "l4"}},
    memory={"h100": "80Gi", "l4": "24Gi"})
common = dict(runtime="trl-distributed", queue=gpus.queues["nlp"], output=True, wait_for="created")
fields = {"model_name_or_path": "Qwen/Qwen3-8B", "dataset_name": "trl-lib/Capybara"}
node = {"gpu": 8}

def sft(name, config=(), **given):
    options = {"flavors": given.pop("flavors", None)}
    trainer.TrainJob(name, **common, **options, trainer=trainer.TRLTrainer(
        method="sft", config={**fields, **dict(config)}, resources_per_node=node, **given))

sft("whole", flavors=["h100"])
sft("sharded", {"fsdp": "full_shard auto_wrap"}, flavors=["h100"])
sft("adapter", {"dtype": "bfloat16"}, lora=trainer.LoraConfig(lora_rank=16))
sft("stated", parameters="70B", flavors=["h100"])
trainer.TrainJob("own", **{**common, "runtime": "torch-distributed"}, flavors=["h100"], trainer=trainer.CustomTrainer(
    command=["train"], resources_per_node=node, parameters="8B", method="lora", precision="bf16", lora_rank=16))
trainer.TrainJob("silent", **{**common, "runtime": "torch-distributed"}, trainer=trainer.CustomTrainer(
    command=["train"], resources_per_node=node))
"""


@pytest.mark.core
def test_the_page(project: Project, tmp_path: Path, api: Api) -> None:  # noqa: F811
    program, warning = blocks("docs/guides/gpu-memory.md", __file__)[:2]
    project.env["PATH"] = kubernetes_plugin.install(tmp_path, project.environment["PATH"])
    project.config("trainer:namespace", "nlp")
    project.program(program.text, head="")
    assert warning.text.strip() in project.preview().out


def test_the_plan_warns_of_a_training_that_cannot_fit(project: Project, tmp_path: Path, api: Api) -> None:  # noqa: F811
    project.program(JOBS, HEAD)
    project.env["PATH"] = kubernetes_plugin.install(tmp_path, project.environment["PATH"])
    project.config("trainer:namespace", "nlp")
    shown = project.preview().out
    assert re.search(
        r"PT312: trainer: 70B parameters \(parameters='70B'\).* fits: 32 GPUs with FSDP or ZeRO-3 \(32\.6 to", shown
    )
    adapter = r"PT313: trainer: .*LoRA of rank 16 in bf16.*13\.4 to 28\.7 GiB.*a GPU of flavor l4 has 24 GiB.*flavors=\['h100'\]"
    assert re.search(adapter, shown)
    for job in ("sharded", "own", "silent"):
        about = shown.partition(f"TrainJob ({job}):")[2].partition("\n\n")[0]
        assert "PT112" in about and "PT31" not in about, "it fits, or nothing states its size"
    project.config("trainer:warnings.PT312", "error", "--path")
    refused = project.preview(ok=False).out
    assert 'TrainJob("whole") (__main__.py:' in refused and "8 GPUs with ddp: each GPU needs" in refused
