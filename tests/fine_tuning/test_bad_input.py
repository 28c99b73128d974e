"""What a user reads of a job whose model, data, template or reward function does not fit: the plan, else `pulumi-trainer why`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import Project, eventually

from .conftest import SECONDS
from .methods import HEAD

pytestmark = pytest.mark.timeout(2 * SECONDS)

JOBS = r"""
def raises(completions, **kwargs):
    scores = [len(each) for each in completions]
    return [1 / (score - score) for score in scores]


def few(completions, **kwargs):
    return [1.0]


def words(completions, **kwargs):
    return ["good" for _ in completions]


ONE = {"num_nodes": 1, "resources_per_node": {"cpu": 1}, "env": {"HF_HUB_OFFLINE": "1"}}


def bad(name, made, dataset=None, model=None):
    sources = {"dataset": dataset, "model": model}
    initializer = trainer.Initializer(**{kind: source for kind, source in sources.items() if source is not None})
    trainer.TrainJob(name, runtime=RUNTIMES[type(made)], trainer=made, output=True, initializer=initializer)


def trl(method, reward=None, **config):
    generates = {"max_completion_length": 8, "num_generations": 4} if method == "grpo" else {"max_length": 64}
    return trainer.TRLTrainer(method=method, reward=reward, config={**COMMON, **generates, **config}, **ONE)


def data(kind):
    return f"{FILES}/data/{kind}"


def files(kind):
    return trainer.DatasetInitializer(kind, storage_uri=f"file://{data(kind)}")
"""

TRAINED = """
base = {"model_name_or_path": f"{FILES}/model"}
bad("column", trl("dpo", **base, dataset_name=data("chat")))
bad("split", trl("sft", **base, dataset_name=data("chat"), dataset_train_split="trian"))
bad("template", trl("sft", **base, assistant_only_loss=True, dataset_name=data("chat")))
token = pulumi.Output.secret("hf_0123456789")
bad("hub", trl("sft", model_name_or_path="org/absent", dataset_name=data("chat"), hub_token=token))
bad("raises", trl("grpo", raises, **base, dataset_name=data("prompts")))
bad("few", trl("grpo", few, **base, dataset_name=data("prompts")))
bad("words", trl("grpo", words, **base, dataset_name=data("prompts")))
bad("text", trainer.TransformersTrainer(config={**COMMON, **base, "dataset_name": data("chat")}, **ONE))
whole = {"per_device_train_batch_size": 4096, "dataloader_drop_last": True}
bad("rows", trl("sft", **base, dataset_name=data("chat"), **whole))
bad("nan", trl("sft", **{**base, "dataset_name": data("chat"), "learning_rate": 1e38, "max_grad_norm": 0.0}))
"""
"""Paths in `config` are those of the job, so only the job can read them."""

WHY = {
    "column": "the dataset has the columns messages, and dpo needs chosen and rejected. Hint: rename the columns",
    "split": "the dataset has no split 'trian', but train. Hint: config={\"dataset_train_split\": ...} names the split",
    "template": "ValueError: The chat template is not training-compatible (missing prefix-preservation or `{% generation %}`",
    "hub": "model_name_or_path: the base model 'org/absent' cannot be read: ",
    "raises": "the reward function raises raised ZeroDivisionError in line {line}, "
    "`return [1 / (score - score) for score in scores]`:",
    "few": "the reward function few returned 1 value for 4 completions. Hint: return one number for each completion",
    "words": "the reward function words returned str 'good' as score 0 for 4 completions. Hint: return one number for each",
    "text": "the dataset has the columns messages, and language-modeling needs text. Hint: rename the columns",
    "rows": "0 of 12 steps were done: the dataset has 64 rows, fewer than a batch of 4096 (4096 per device * 1 rank), and "
    "dataloader_drop_last leaves them out, so the model is not trained. Hint: a smaller",
    "nan": "grad_norm is nan at the end of the training, so the model is not usable. Hint: a lower",
}

PLANNED = """
MODEL = trainer.ModelInitializer("tiny", storage_uri=f"file://{FILES}/model")
bad("column", trl("dpo"), files("chat"), MODEL)
bad("template", trl("sft", assistant_only_loss=True), files("preference"), MODEL)
bad("model", trl("grpo", few), files("prompts"), trainer.ModelInitializer("data", storage_uri=f"file://{FILES}/data"))
bad("text", trainer.TransformersTrainer(config={"text_column": "body"}, **ONE), files("text"), MODEL)
bad("folder", trl("sft", model_name_or_path=f"{FILES}/absent", dataset_name=data("chat")))
bad("absent", trl("sft", model_name_or_path=f"{FILES}/model", dataset_name=data("absent")))
bad("factory", trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "small"}, **ONE), files("alpaca"), MODEL)
trainer.TrainJob(
    "precision", runtime="trl-distributed", output=True, target=trainer.Kubernetes(namespace="ml"),
    trainer=trainer.TRLTrainer(method="sft", config={"bf16": True, "model_name_or_path": "m", "dataset_name": "d"},
                               resources_per_node={"gpu": 1}),
    runtime_patches=[trainer.RuntimePatch(manager="program.dev/here", jobs=[trainer.JobPatch(
        name="node", pod=trainer.PodPatch(node_selector={"nvidia.com/gpu.product": "Tesla-T4"}))])],
)
"""

PLAN = (
    'TrainJob("column").initializer.dataset: the dataset has the columns messages, and dpo needs chosen and rejected',
    'TrainJob("template").trainer.config["assistant_only_loss"]: the chat template of the model has no {% generation %} marker',
    'TrainJob("model").initializer.model: the folder {files}/data is not a base model: it has no config.json',
    'TrainJob("text").initializer.dataset: the dataset has the columns text, and language-modeling needs body',
    'TrainJob("folder").trainer.config["model_name_or_path"]: {files}/absent does not exist on this machine',
    'TrainJob("absent").trainer.config["dataset_name"]: {files}/data/absent does not exist on this machine',
    'TrainJob("factory").trainer.config["dataset"]: dataset_info.json describes no dataset \'small\', but tiny',
    'TrainJob("precision").trainer.config["bf16"]: is True, but the GPUs of the nodes (nvidia.com/gpu.product=Tesla-T4)',
)


def test_the_plan_says_what_it_can_know(project: Project, tiny: Path) -> None:
    project.program("\n" + JOBS + PLANNED, head=HEAD.format(files=str(tiny)).replace("MODEL = ", "_ = lambda: "))
    out = " ".join(project.preview(ok=False).out.split())
    for said in PLAN:
        where, _, why = said.replace("{files}", str(tiny)).partition('").')
        assert where in out and why in out, f"{said}\n{out}"


@pytest.mark.whole
def test_why_begins_with_what_the_job_finds(project: Project, tiny: Path) -> None:
    project.program("\n" + JOBS + TRAINED, head=HEAD.format(files=str(tiny)).replace("MODEL = ", "_ = lambda: "))
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, up
    eventually(lambda: all(status.terminal for status in project.target.jobs.list_all()), SECONDS)
    program = (project.folder / "__main__.py").read_text()
    line = program[: program.index("return [1 / (score")].count("\n") + 1
    for name, expected in WHY.items():
        argv = ["pulumi-trainer", "why", name, "--stack", project.stack]
        done = subprocess.run(
            argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=True
        )
        first = " ".join(done.stdout.split("\n")[:3])
        print(first)
        assert f"pulumi-trainer: {expected.replace('{files}', str(tiny)).replace('{line}', str(line))}" in first, (
            done.stdout
        )
        assert " Hint: " in first, first
