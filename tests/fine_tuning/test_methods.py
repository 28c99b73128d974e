"""Every tool and method trains a tiny random model on two nodes, their ranks together, and resumes after a rank was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.conftest import Project

from .conftest import SECONDS, run_with
from .methods import FIRST_STEP, METHODS, Method

pytestmark = pytest.mark.timeout(2 * SECONDS)

LOAD = """
import json, sys
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from peft import PeftModel
for folder, base in json.loads(sys.argv[1]):
    about = json.load(open(f"{base or folder}/config.json"))
    scored = "SequenceClassification" in about["architectures"][0]
    model = (AutoModelForSequenceClassification if scored else AutoModelForCausalLM).from_pretrained(base or folder)
    if base:
        model = PeftModel.from_pretrained(model, folder)
        changed = sum(float(p.abs().sum()) > 0 for n, p in model.named_parameters() if "lora_B" in n)
    else:
        changed = sum(p.numel() for p in model.parameters())
    print("loaded", folder, changed)
"""

KILL = """
import os
if os.environ.get("RANK") == "1" and "TRAINER_CHECKPOINT_DIR" in os.environ and not os.environ.get("TRAINER_RESUME_FROM"):
    import pathlib, signal
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    folder = pathlib.Path(os.environ["TRAINER_CHECKPOINT_DIR"])

    def kill(*_):
        if [*folder.glob("checkpoint-*/trainer_state.json"), *folder.glob("step-*/.complete")]:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(kill)
"""
"""Kills rank 1 in the step after the first checkpoint. It is a `sitecustomize` of the ranks: a test that watches the folder
would have to be faster than the training."""


def logged(logs: str, name: str) -> list[float]:
    """The values of a metric, once for each step: all ranks of TRL print the same."""
    rows = re.findall(rf"'{name}': '?([-\d.e]+)", logs) or re.findall(rf"^Step \d+ \| {name}:([-\d.e]+)", logs, re.M)
    return [float(value) for value in rows]


def steps(logs: str) -> list[dict[str, float]]:
    """The metrics that rank 0 has reported."""
    lines = [json.loads(line)["trainerStatus"] for line in logs.splitlines() if line.startswith('{"trainerStatus"')]
    return [{m["name"]: float(m["value"]) for m in line["metrics"]} for line in lines]


def has_trained(method: Method, job: Any, logs: str) -> None:
    assert job.phase == "Succeeded", logs[-3000:]
    assert "world size 2, from step 0" in logs, logs[-3000:]
    assert job.progress["progressPercentage"] == 100, job.progress
    metric = method.rises or "loss"
    values = logged(logs, metric)
    values = values[: len(values) // 2] if values[: len(values) // 2] == values[len(values) // 2 :] else values
    assert len(values) >= 12, logs[-3000:]
    before, after = sum(values[:4]) / 4, sum(values[-4:]) / 4
    assert after > before + 0.1 if method.rises else after < 0.98 * before, values
    assert metric in {name for step in steps(logs) for name in step}


def has_resumed(method: Method, job: Any, logs: str) -> None:
    """It went on from its first checkpoint, after which a rank was killed, to its last step."""
    starts = [(int(step), int(last)) for step, last in re.findall(r"world size 2, from step (\d+) to (\d+)", logs)]
    last = job.progress["step"]
    saved = last // 2 if method.tool == "torchtune" else FIRST_STEP
    assert starts == [(0, last), (saved, last)] and job.restarts == 1, (starts, job, logs[-3000:])
    assert re.search(rf"resumes from \S+-0*{saved}\n", logs), logs[-3000:]


def outputs_load(tool: str, project: Project, tiny: Path, names: Sequence[tuple[str, bool]]) -> None:
    """The model of each job loads, or its adapter on top of the base model."""
    jobs = {name: Path(project.job(f"{name}-").output) for name, _ in names}
    asked = [(str(jobs[name]), str(tiny / "model") if adapter else "") for name, adapter in names]
    said = run_with(tool, LOAD, json.dumps(asked))
    for folder, base in asked:
        (changed,) = re.findall(rf"loaded {re.escape(folder)} (\d+)", said)
        assert int(changed) > 0, (folder, base, said)


def has_card(method: Method, project: Project, tiny: Path) -> None:
    """The README.md of the output has the facts of the job, below what the tool has written."""
    name, job = name_of(method), project.job(f"{name_of(method)}-")
    _, front, text = Path(job.output, "README.md").read_text().split("---\n", 2)
    data = yaml.safe_load(front)
    assert data["library_name"] == ("peft" if method.adapter else "transformers"), data
    assert method.tool.lower().replace("-", "") in data["tags"] and "base_model" not in data, (
        data
    )  # the model has no name in the Hub
    facts = text.partition("## Training job")[2]
    for row in (f"| Job | {name}-", "| Nodes | 2 |", f"| Base model | file://{tiny}/model |"):
        assert row in facts, text
    assert ("| LoRA | rank 4, alpha 8, " in facts) is method.adapter and '"seed": 1' in facts, text
    assert text.count("## Training job") == 1 and "README.md could not be written" not in project.logs(f"{name}-")


def unchanged(project: Project) -> None:
    uids = {status.name: status.uid for status in project.target.jobs.list_all()}
    again = project.up()
    assert "unchanged" in again.out and "created" not in again.out and "replaced" not in again.out
    assert {status.name: status.uid for status in project.target.jobs.list_all()} == uids


def name_of(method: Method) -> str:
    return method.program.partition('"')[2].partition('"')[0]


TOOLS = {"TRL": "trl", "Transformers": "transformers", "LLaMA-Factory": "llamafactory", "torchtune": "trl"}
"""Tool -> tool whose environment loads what it has trained: torchtune's has no Transformers."""


def check_all(methods: Sequence[Method], train: Callable[..., Project], tiny: Path) -> None:
    killer = tiny / "killer"
    killer.mkdir(exist_ok=True)
    (killer / "sitecustomize.py").write_text(KILL)
    jobs = [method.saving if method.killed else method.program for method in methods]
    project = train(f'NODES["env"] = {{"PYTHONPATH": "{killer}"}}', *jobs)
    for method in methods:
        name = name_of(method)
        has_trained(method, project.job(f"{name}-"), project.logs(f"{name}-"))
        if method.killed:
            has_resumed(method, project.job(f"{name}-"), project.logs(f"{name}-"))
        has_card(method, project, tiny)
    for tool in dict.fromkeys(method.tool for method in methods):
        names = [(name_of(method), method.adapter) for method in methods if method.tool == tool]
        outputs_load(TOOLS[tool], project, tiny, names)
    unchanged(project)


def test_the_first_methods_train(train: Callable[..., Project], tiny: Path) -> None:
    check_all([method for method in METHODS if method.first], train, tiny)


@pytest.mark.whole
@pytest.mark.parametrize("tool", TOOLS)
def test_all_methods_of_a_tool_train(tool: str, train: Callable[..., Project], tiny: Path) -> None:
    check_all(
        [method for method in METHODS if method.tool == tool and not method.first and not method.served], train, tiny
    )
