"""What trains for real on two Local nodes: each tool and method, with its program.

`python -m tests.fine_tuning.methods` writes the table of docs/guides/fine-tuning.md, which a unit test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import pulumi
import pulumi_trainer as trainer

FILES = {files!r}
COMMON = {{
    "max_steps": 12, "learning_rate": 5e-3, "per_device_train_batch_size": 4, "logging_steps": 1, "seed": 1, "warmup_steps": 0,
}}
NODES = {{"num_nodes": 2, "resources_per_node": {{"cpu": 1}}}}
LORA = trainer.LoraConfig(lora_rank=4, lora_alpha=8)
MODEL = trainer.ModelInitializer("tiny", storage_uri=f"file://{{FILES}}/model")
TEACHER = f"{{FILES}}/teacher"
DATA = {{}}


def letters(completions, **kwargs):
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [sum("a" <= letter <= "z" for letter in text) / max(len(text), 1) for text in texts]


def job(name, data, made, checkpoint=None, wait_for="complete"):
    if data not in DATA:
        DATA[data] = trainer.DatasetInitializer(data, storage_uri=f"file://{{FILES}}/data/{{data}}")
    return trainer.TrainJob(
        name, runtime=RUNTIMES[type(made)], trainer=made, output=checkpoint is None, checkpoint=checkpoint,
        initializer=trainer.Initializer(model=MODEL, dataset=DATA[data]), wait_for=wait_for,
    )


RUNTIMES = {{
    trainer.TRLTrainer: "trl-distributed",
    trainer.TransformersTrainer: "transformers-distributed",
    trainer.LlamaFactoryTrainer: "llamafactory",
    trainer.TorchTuneTrainer: "torchtune-distributed",
}}
TINY = {{
    "vocab_size": 320, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "embed_dim": 64, "intermediate_dim": 128,
    "max_seq_len": 512, "norm_eps": 1e-6,
}}
TOKENIZER = {{
    "_component_": "torchtune.models.qwen2.qwen2_tokenizer", "path": "vocab.json", "merges_file": "merges.txt",
    "special_tokens_path": "tokenizer.json", "max_seq_len": 64,
}}
CHAT = {{
    "_component_": "torchtune.datasets.chat_dataset", "conversation_column": "messages", "conversation_style": "openai",
}}
PAIRS = {{"_component_": "torchtune.datasets.preference_dataset"}}
TUNE = {{
    "tokenizer": TOKENIZER, "checkpointer.model_type": "LLAMA2", "seed": 1, "batch_size": 4, "epochs": 2,
    "gradient_accumulation_steps": 1, "optimizer.lr": 5e-3,
    "metric_logger": {{"_component_": "torchtune.training.metric_logging.StdoutLogger"}},
}}
"""

FIRST_STEP = 4
"""The step of the first checkpoint of a job that saves in steps."""


@dataclass(frozen=True)
class Method:
    """One tool and method.

    Attributes:
        tool: Title of the tool.
        method: Name of the method, with LoRA if it is trained so.
        program: The job, as a statement.
        first: Whether it is one of those that `make test-frameworks` trains.
        adapter: Whether the output is an adapter of LoRA.
        rises: Metric that the training raises; empty if it lowers the loss.
        resumes: Whether the tool can resume it: the plan refuses a checkpoint policy otherwise.
        pods: Whether tests/nodes/test_fine_tuning.py trains it in Pods as well.
    """

    tool: str
    method: str
    program: str
    first: bool = False
    adapter: bool = False
    rises: str = ""
    resumes: bool = True
    pods: bool = False

    @property
    def served(self) -> bool:
        """Whether a generation server makes the completions: tests/fine_tuning/test_generation.py trains it."""
        return self.method.endswith("+server")

    @property
    def killed(self) -> bool:
        """Whether test_methods.py kills it; that of a server is killed with its server, in a training of its own."""
        return self.resumes and not self.served

    @property
    def saving(self) -> str:
        """The job with a checkpoint policy; torchtune saves after each of its two epochs but the last."""
        policy = "" if self.tool == "torchtune" else f"steps={FIRST_STEP}"
        return f"{self.program.removesuffix(')')}, checkpoint=trainer.CheckpointPolicy({policy}))"

    @property
    def name(self) -> str:
        return f"{self.tool}-{self.method}".lower().replace(" ", "").replace("+", "-")


def _trl(method: str, data: str, config: str = "", arguments: str = "", **about: object) -> Method:
    kind = method.partition("+")[0]
    own = f"**COMMON, {config}"
    made = f'trainer.TRLTrainer(method="{kind}", config={{{own}}}, {arguments} **NODES)'
    return Method("TRL", method, f'job("{f"trl-{method}".replace("+", "-")}", "{data}", {made})', **about)  # type: ignore[arg-type]


def _llamafactory(stage: str, data: str, config: str, arguments: str = "", **about: object) -> Method:
    kind = stage.partition("+")[0]
    own = f'**COMMON, "dataset": "tiny", "template": "qwen", "cutoff_len": 64, "trust_remote_code": False, {config}'
    made = f'trainer.LlamaFactoryTrainer(stage="{kind}", config={{{own}}}, {arguments} **NODES)'
    name = f"llama-factory-{stage}".replace("+", "-")
    return Method("LLaMA-Factory", stage, f'job("{name}", "{data}", {made})', **about)  # type: ignore[arg-type]


def _torchtune(recipe: str, base: str, config: str, arguments: str = "", data: str = "chat", **about: object) -> Method:
    dataset = "PAIRS" if data == "paired" else "CHAT"
    builder = "lora_llama2" if arguments else "llama2"
    model = f'{{"_component_": "torchtune.models.llama2.{builder}", **TINY}}'
    own = f'**TUNE, "model": {model}, "dataset": {dataset}, {config}'
    made = f'trainer.TorchTuneTrainer(recipe="{recipe}", base="{base}", config={{{own}}}, {arguments} **NODES)'
    name = recipe.removesuffix("_distributed").replace("_", "-")
    return Method("torchtune", recipe, f'job("torchtune-{name}", "{data}", {made})', **about)  # type: ignore[arg-type]


GENERATES = (
    '"max_completion_length": 16, "num_generations": 4, "temperature": 1.0, "max_steps": 20, "learning_rate": 2e-2, '
)

WARM = '"lr_scheduler.num_warmup_steps": 1, "optimizer.lr": 2e-2'
PREFERS = '"ref_checkpointer.model_type": "LLAMA2", "lr_scheduler.num_warmup_steps": 1, "optimizer.lr": 1e-3'

STEADY = '"learning_rate": 1e-2, "beta": 0.0, "per_device_train_batch_size": 8, "max_steps": 30, '

SCORES = '"learning_rate": 2e-2, "max_steps": 32, '
"""Each pair differs in its first word alone: after 12 steps, the loss is still that of chance."""

METHODS = (
    _trl("sft+lora", "chat", '"max_length": 64', "lora=LORA,", first=True, adapter=True, pods=True),
    _trl("sft", "chat", '"max_length": 64'),
    _trl("dpo", "preference", '"max_length": 64', first=True),
    _trl("dpo+lora", "preference", '"max_length": 64', "lora=LORA,", adapter=True),
    _trl("kto", "unpaired", '"max_length": 64'),
    _trl("reward", "preference", '"max_length": 256'),
    _trl("grpo", "prompts", GENERATES, "reward=letters,", first=True, rises="reward", pods=True),
    _trl("grpo+server", "prompts", GENERATES, "reward=letters, generation=trainer.GenerationServer(),", rises="reward"),
    _trl("rloo", "prompts", GENERATES + STEADY, "reward=letters,", rises="reward"),
    _trl("distillation", "prompts", '"teacher_model_name_or_path": TEACHER, "max_completion_length": 16'),
    Method(
        "Transformers",
        "language modeling",
        'job("transformers", "text", trainer.TransformersTrainer(config={**COMMON, "max_length": 64}, **NODES))',
        first=True,
    ),
    Method(
        "Transformers",
        "language modeling+lora",
        'job("transformers-lora", "text", trainer.TransformersTrainer(config={**COMMON, "max_length": 64}, lora=LORA, **NODES))',
        adapter=True,
    ),
    _llamafactory("sft", "alpaca", '"finetuning_type": "full"'),
    _llamafactory("sft+lora", "alpaca", "", "lora=LORA,", adapter=True),
    _llamafactory("pt", "text", '"finetuning_type": "full"'),
    _llamafactory("dpo+lora", "alpaca-preference", "", "lora=LORA,", adapter=True),
    _llamafactory("kto+lora", "alpaca-kto", "", "lora=LORA,", adapter=True),
    _llamafactory("rm+lora", "alpaca-preference", SCORES, "lora=LORA,", adapter=True, resumes=False),
    _torchtune("full_finetune_distributed", "llama2/7B_full", "", first=True),
    _torchtune("lora_finetune_distributed", "llama2/7B_lora", WARM, "lora=LORA,", first=True, adapter=True),
    _torchtune("qat_distributed", "llama2/7B_qat_full", '"quantizer.groupsize": 32'),
    _torchtune(
        "knowledge_distillation_distributed",
        "llama3_2/8B_to_1B_KD_lora_distributed",
        '"teacher_checkpointer": {"checkpoint_dir": TEACHER, "model_type": "LLAMA2"}, '
        '"teacher_model": {"_component_": "torchtune.models.llama2.llama2", **TINY}, ' + WARM,
        "lora=LORA,",
        adapter=True,
    ),
    _torchtune("full_dpo_distributed", "llama3_1/8B_full_dpo", PREFERS, data="paired"),
    _torchtune("lora_dpo_distributed", "llama2/7B_lora_dpo", WARM, "lora=LORA,", "paired", adapter=True),
)

RENDERED = {
    "TorchTune (`BuiltinTrainer`)": {
        "full": "builtin-full", "LoRA": "builtin-lora", "QLoRA": "builtin-qlora", "DoRA": "builtin-dora",
    },
    "Unsloth": {"sft": "unsloth", "sft with LoRA": "unsloth-lora", "sft with QLoRA": "unsloth-qlora"},
}  # fmt: skip
"""Tool -> method that no test trains, since it needs GPUs -> name of its JobSets in tests/unit/recorded/fine-tuning."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "fine-tuning.md"
_TABLE = re.compile(r"(?<=writes it -->\n\n).*?(?=<!-- end of the table -->)", re.S)


def table() -> str:
    """Return the table of tools and methods, and how each is tested."""
    lines = ["| tool | method | tested |", "| --- | --- | --- |"]
    for method in METHODS:
        name = method.method.replace("+lora", " with LoRA").replace("+server", " with a generation server")
        target = "`make test-frameworks`" if method.first else "`make test-fine-tuning`"
        does = "trains and resumes" if method.resumes else "trains"
        pods = "; trains in Pods on two nodes of a test cluster: `make test-fine-tuning`" if method.pods else ""
        lines.append(f"| {method.tool} | {name} | {does} on this machine: {target}{pods} |")
    lines += [f"| {tool} | {name} | rendered only |" for tool, names in RENDERED.items() for name in names]
    return "\n".join([*lines, "", ""])


def written_table() -> str:
    """Return the table in the page."""
    found = _TABLE.search(PAGE.read_text())
    assert found, "the page has no table"
    return found[0]


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text()))
