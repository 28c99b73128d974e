"""merge_adapter=True: after a training with LoRA on two nodes, the output also has the whole model."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import Project, eventually
from tests.engine.test_checkpoints import bootstrap_of

from .conftest import SECONDS, run_with
from .test_resume import end_of

pytestmark = pytest.mark.timeout(2 * SECONDS)

JOBS = {
    "merged-trl": """job("merged-trl", "chat", trainer.TRLTrainer(
        method="sft", config={**COMMON, "max_length": 64}, lora=LORA, merge_adapter=True, **NODES))""",
    "merged-reward": """job("merged-reward", "preference", trainer.TRLTrainer(
        method="reward", config={**COMMON, "max_length": 256}, lora=LORA, merge_adapter=True, **NODES))""",
    "merged-transformers": """job("merged-transformers", "text", trainer.TransformersTrainer(
        config={**COMMON, "max_length": 64}, lora=LORA, merge_adapter=True, **NODES))""",
    "merged-factory": """job("merged-factory", "alpaca", trainer.LlamaFactoryTrainer(
        stage="sft", config={**COMMON, "dataset": "tiny", "template": "qwen", "cutoff_len": 64, "trust_remote_code": False},
        lora=LORA, merge_adapter=True, **NODES))""",
}

INTERRUPTED = """job("{name}", "chat", trainer.TRLTrainer(
    method="sft", config={{**COMMON, "max_length": 64}}, lora=LORA, merge_adapter=True, **NODES),
    checkpoint=trainer.CheckpointPolicy(steps=4, grace=60), wait_for="running")"""

COMPARE = """
import json, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
base, folders = sys.argv[1], json.loads(sys.argv[2])
for folder in folders:
    about = json.load(open(f"{folder}/merged/config.json"))
    scored = "SequenceClassification" in about["architectures"][0]
    kind, more = (AutoModelForSequenceClassification, {"num_labels": 1}) if scored else (AutoModelForCausalLM, {})
    tokens = AutoTokenizer.from_pretrained(f"{folder}/merged")("red green blue", return_tensors="pt").input_ids
    with torch.no_grad():
        alone = kind.from_pretrained(base, **more)(tokens).logits
        adapted = PeftModel.from_pretrained(kind.from_pretrained(base, **more), folder).eval()(tokens).logits
        merged = kind.from_pretrained(f"{folder}/merged").eval()(tokens).logits
    print("compared", folder, float((merged - adapted).abs().max()), float((merged - alone).abs().max()))
"""


def is_base_and_adapter(folders: list[str], tiny: Path) -> None:
    """The merged model loads with Transformers alone, and computes what the base model computes with the adapter."""
    said = run_with("trl", COMPARE, str(tiny / "model"), json.dumps(folders))
    for folder in folders:
        ((same, changed),) = re.findall(rf"compared {re.escape(folder)} (\S+) (\S+)", said)
        assert float(same) < 1e-4 and float(changed) > 1e-2, said
        for library, card in (("peft", "README.md"), ("transformers", "merged/README.md")):
            text = Path(folder, card).read_text()
            assert f"library_name: {library}\n" in text and text.count("| LoRA | rank 4, alpha 8, ") == 1, text
        names = {path.name for path in Path(folder).iterdir()}
        assert "adapter_config.json" in names and not names & {".merging", ".merged-before"}, names


@pytest.mark.whole
def test_the_merged_model_is_the_base_model_with_the_adapter(train: Callable[..., Project], tiny: Path) -> None:
    project = train(*JOBS.values())
    for name in JOBS:
        logs, status = project.logs(f"{name}-"), project.job(f"{name}-")
        assert (status.phase, status.restarts) == ("Succeeded", 0), logs[-3000:]
        assert logs.count("merges the adapter and") == 1, logs[-3000:]
    is_base_and_adapter([project.job(f"{name}-").output for name in JOBS], tiny)


def test_an_interrupted_merge_is_done_again(train: Callable[..., Project], tiny: Path) -> None:
    """SIGTERM ends the node whose rank waits; the kill of the program that merges is that of a container that has no time."""
    names = ("waiting", "killed")
    project = train(*(INTERRUPTED.format(name=name) for name in names))
    left = set(names)
    while left:
        name = eventually(lambda: next((each for each in left if merging(project, each)), ""), SECONDS)
        if name == "waiting":
            os.kill(bootstrap_of(project, 1, name).pid, signal.SIGTERM)
        else:
            os.kill(merging(project, name)[0], signal.SIGKILL)
        left.remove(name)
    for name in names:
        status = eventually(lambda n=name: end_of(project, n), SECONDS)
        logs = project.logs(f"{name}-")
        assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs[-3000:])
        is_base_and_adapter([status.output], tiny)


def merging(project: Project, name: str) -> list[int]:
    found = project.processes("merge_adapter.py")
    return [each.pid for each in found if f"{name}-" in each.environ()["PULUMI_TRAINER_JOB"]]
