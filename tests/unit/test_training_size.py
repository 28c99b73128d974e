"""What a plan knows of the size of a training: the estimate that it shows where the memory of the GPUs is not known."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan import training_size
from pulumi_trainer.plan.model_files import ModelSize, read_model
from pulumi_trainer.provider.jobs.gpu_memory import GIB, changes_that_fit, describe, estimate
from test_fine_tuning import planned, problems  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
GPUS = {"resources_per_node": {"gpu": 4}, "num_nodes": 2}
NAME = "Qwen/Qwen3-8B"
NAMED = f"7.2B to 10.4B parameters (the name {NAME})"
DDP, ZERO3 = "8 GPUs with ddp", "8 GPUs with zero3"
BITS = ["bitsandbytes>=0.45"]


def trl(config: Any = (), method: Any = "sft", **given: Any) -> trainer.TRLTrainer:
    named = {"model_name_or_path": NAME, "dataset_name": "org/data", **dict(config)}
    return trainer.TRLTrainer(method=method, config=named, **{**GPUS, **given})


def language(config: Any = (), **given: Any) -> trainer.TransformersTrainer:
    named = {"model_name_or_path": NAME, "dataset_name": "org/data", **dict(config)}
    return trainer.TransformersTrainer(config=named, **{**GPUS, **given})


def factory(config: Any = (), **given: Any) -> trainer.LlamaFactoryTrainer:
    named = {"model_name_or_path": NAME, "dataset": "x", "dataset_dir": "/data", **dict(config)}
    return trainer.LlamaFactoryTrainer(stage="sft", config=named, **{**GPUS, **given})


def unsloth(config: Any = (), **given: Any) -> trainer.UnslothTrainer:
    return trainer.UnslothTrainer(
        config={"model_name": NAME, "dataset_name": "org/data", **dict(config)}, **{**GPUS, **given}
    )


def tune(
    config: Any = (), recipe: Any = "full_finetune_distributed", base: str = "llama3_2/1B_full", **given: Any
) -> Any:
    named = {"checkpointer.checkpoint_dir": "/models/llama", "dataset.source": "org/data", **dict(config)}
    return trainer.TorchTuneTrainer(recipe=recipe, base=base, config=named, **{**GPUS, **given})


def own(**given: Any) -> trainer.CustomTrainer:
    return trainer.CustomTrainer(command=["train"], **{**GPUS, **given})


def plan_of(given: Any, planned: Any) -> Any:  # noqa: F811
    if isinstance(given, trainer.CustomTrainer):
        return planned(lambda: given, "torch-distributed")
    return planned(given)


LORA = trainer.LoraConfig(lora_rank=32)
QLORA = trainer.LoraConfig(quantize_base=True)
TOKENS = "8 * 1024 tokens"
LONG = "8 * 2048 tokens"
ADAMW, HALF = "with adamw", "full training in bf16 with adamw"
MIXED = f"full training in mixed precision {ADAMW}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (trl(), [NAMED, MIXED, TOKENS, DDP]),
        (trl({"dtype": "bfloat16", "optim": "adamw_bnb_8bit"}, packages_to_install=BITS),
            ["full training in bf16 with adamw_8bit", DDP]),
        (trl({"dtype": "auto"}), [f"full training in unknown precision {ADAMW}", DDP]),
        (trl({"bf16": False}), [f"full training in fp32 {ADAMW}", DDP]),
        (trl({"bf16": False, "fp16": True}), [MIXED]),
        (trl(lora=LORA), [f"LoRA of rank 32 in mixed precision {ADAMW}", TOKENS]),
        (trl({"use_peft": True, "dtype": "bfloat16"}), [f"LoRA of rank 16 in bf16 {ADAMW}"]),
        (trl(lora=QLORA, packages_to_install=BITS), [f"QLoRA of rank 16 in mixed precision {ADAMW}"]),
        (trl({"fsdp": "true"}), [MIXED, ZERO3]),
        (trl({"fsdp": "true", "fsdp_config": {"reshard_after_forward": False}}), ["8 GPUs with zero2"]),
        (trl({"fsdp": "hybrid_shard"}), ["8 GPUs with unknown sharding"]),
        (trl({"deepspeed": {"zero_optimization": {"stage": 1}}}, packages_to_install=["deepspeed"]), ["8 GPUs with zero1"]),
        (trl({"optim": "adafactor", "per_device_train_batch_size": 2, "max_length": 512}),
            ["with an unknown optimizer", "2 * 512 tokens"]),
        (trl(method="dpo"), [NAMED, MIXED, DDP, "not counted: activations, the reference model"]),
        (trl(parameters=8_030_261_248), ["8.03B parameters (parameters=8030261248)"]),
        (language(), [NAMED, f"full training in unknown precision {ADAMW}", TOKENS, DDP]),
        (language(lora=trainer.LoraConfig()), [f"LoRA of rank 8 in unknown precision {ADAMW}"]),
        (factory(), [f"LoRA of rank 8 in unknown precision {ADAMW}", LONG]),
        (factory({"bf16": True}), [f"LoRA of rank 8 in bf16 {ADAMW}"]),
        (factory({"bf16": True, "finetuning_type": "full"}), [MIXED]),
        (factory({"pure_bf16": True, "finetuning_type": "full"}), [HALF]),
        (factory({"bf16": True}, lora=QLORA, packages_to_install=BITS), [f"QLoRA of rank 8 in bf16 {ADAMW}"]),
        (unsloth(), [f"full training in unknown precision {ADAMW}", LONG, DDP]),
        (unsloth(lora=QLORA, packages_to_install=BITS), [f"QLoRA of rank 16 in unknown precision {ADAMW}"]),
        (tune(), ["900M to 1.3B parameters (the name llama3_2/1B_full)", HALF, ZERO3]),
        (tune({"dtype": "fp32", "optimizer._component_": "torch.optim.SGD"}), ["full training in fp32 with sgd", ZERO3]),
        (tune({"optimizer_in_bwd": True}), ["full training in bf16 with an unknown optimizer"]),
        (tune(recipe="lora_finetune_distributed", base="llama3/8B_lora", lora=LORA), [f"LoRA of rank 32 in bf16 {ADAMW}"]),
        (own(parameters="350M", precision="mixed", sharding="fsdp"), ["350M parameters (parameters='350M')", MIXED, ZERO3]),
        (own(parameters="8B"), [f"full training in unknown precision {ADAMW}", "8 GPUs with unknown sharding"]),
        (
            own(parameters="8B", method="qlora", lora_rank=8, precision="bf16", sharding="ddp", batch_size=2,
                sequence_length=4096, hidden_size=4096, num_layers=32, gradient_checkpointing=True),
            [f"8B parameters (parameters='8B'), QLoRA of rank 8 in bf16 {ADAMW}, 2 * 4096 tokens, {DDP}", "not counted: logits"],
        ),
    ],
)  # fmt: skip
def test_what_a_plan_says(given: Any, words: list[str], planned: Any) -> None:  # noqa: F811
    plan = plan_of(given, planned)
    assert not problems(plan), problems(plan)
    (note,) = [each for each in plan.notes if "PT313" in each]
    assert all(word in note for word in words), note
    assert "the memory of the GPUs is not known. Hint: state the memory of a GPU" in note


@pytest.mark.parametrize(
    "given",
    [
        trl({"model_name_or_path": "org/model"}), trl({"model_name_or_path": "unsloth/Llama-3.1-8B-bnb-4bit"}),
        trl({"fsdp": "full_shard offload"}), trl({"fsdp": "true", "fsdp_config": {"cpu_offload": True}}),
        trl({"deepspeed": "zero3.json"}, packages_to_install=["deepspeed"]), trl(resources_per_node={"cpu": 4}),
        trl({"deepspeed": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}}, packages_to_install=["deepspeed"]),
        factory({"finetuning_type": "freeze"}), factory({"quantization_bit": 8}, packages_to_install=BITS),
        trl({"load_in_8bit": True}, lora=LORA, packages_to_install=BITS), tune({"fsdp_cpu_offload": True}),
        tune(base="llama3_1/70B_full"), own(),
    ],
)  # fmt: skip
def test_no_estimate_without_a_source_or_with_the_memory_of_the_host(given: Any, planned: Any) -> None:  # noqa: F811
    plan = plan_of(given, planned)
    assert not problems(plan), problems(plan)
    assert not re.search("PT31[23]", f"{plan.notes} {plan.warnings}")


def test_trainers_image_of_torchtune(planned: Any) -> None:  # noqa: F811
    config = trainer.TorchTuneConfig(
        dtype="bf16", resources_per_node={"gpu": 1}, peft_config=trainer.LoraConfig(lora_rank=8)
    )
    plan = planned(lambda: trainer.BuiltinTrainer(config=config), "torchtune-qwen2.5-1.5b", output=False)
    assert not problems(plan), problems(plan)
    (note,) = [each for each in plan.notes if "PT313" in each]
    assert (
        "1.35B to 1.95B parameters (the name torchtune-qwen2.5-1.5b), LoRA of rank 8 in bf16 with adamw, 1 GPU" in note
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (own(parameters="8 billion"), "trainer.parameters: must be the number of the model's parameters, not '8 billion'"),
        (own(parameters=0), "trainer.parameters: must be the number of the model's parameters, not 0"),
        (own(parameters=1.5), "trainer.parameters: must be int or a string, not 1.5"),
        (trl(parameters=-1), "trainer.parameters: must be the number of the model's parameters, not -1"),
        (own(precision="bf16"), "trainer.precision: requires parameters, the size of the model"),
        (own(parameters="8B", precision="fp8"), "trainer.precision: must be one of fp32, bf16, mixed, not 'fp8'"),
        (own(parameters="8B", sharding="zero4"), "trainer.sharding: "),
        (own(parameters="8B", batch_size=0), "trainer.batch_size: must be at least 1, not 0"),
        (own(parameters="8B", num_layers="32"), "trainer.num_layers: must be int, not '32'"),
    ],
)  # fmt: skip
def test_sizes_that_are_not_valid(given: Any, problem: str, planned: Any) -> None:  # noqa: F811
    (found,) = problems(plan_of(given, planned))
    assert found.startswith(problem), found


def test_the_size_is_no_part_of_the_job(planned: Any) -> None:  # noqa: F811
    plans = [plan_of(own(**given), planned) for given in ({}, {"parameters": "8B", "precision": "bf16"})]
    assert plans[0].content_digest == plans[1].content_digest
    assert plans[0].objects == plans[1].objects
    plans = [planned(trl(**given)) for given in ({}, {"parameters": "8B"})]
    assert plans[0].content_digest == plans[1].content_digest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model of the examples: 2 layers of width 64, of 123 thousand parameters."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    folder.mkdir()
    runpy.run_path(str(ROOT / "examples" / "fine-tuning" / "tiny_model.py"))["write_model"](folder)
    return folder


def test_the_files_of_a_model(tiny: Path, planned: Any) -> None:  # noqa: F811
    size = read_model(str(tiny))
    assert size == ModelSize(123_200, hidden_size=64, num_layers=2, vocabulary=320)
    source = trainer.ModelInitializer.__new__(trainer.ModelInitializer)
    source.storage_uri = f"file://{tiny}"
    given = trl({"packing": True, "model_name_or_path": None, "dataset_name": "org/data"})
    training = training_size._of_tool(
        given, {"packing": True}, SimpleNamespace(initializer=trainer.Initializer(model=source))
    )
    assert training is not None and describe(training).startswith(
        "0.123M parameters (its files), full training in mixed"
    )
    assert not estimate(training).missing and estimate(training).parts["activations"].low > 0
    short = training_size._of_tool(given, {}, SimpleNamespace(initializer=trainer.Initializer(model=source)))
    assert short is not None and estimate(short).parts["activations"].low == 0, "samples may be shorter"
    dpo = training_size._of_tool(trl(method="dpo"), {}, SimpleNamespace(initializer=trainer.Initializer(model=source)))
    assert dpo is not None and estimate(dpo).missing.keys() == {"activations", "the reference model"}


@pytest.mark.parametrize(("given", "fixed"), [(trl(), ()), (language(), ("qlora",)), (unsloth(), ("sharding",))])
def test_what_a_tool_cannot_do_is_no_hint(given: Any, fixed: tuple[str, ...]) -> None:
    found = training_size._of_tool(given, given.config, SimpleNamespace(initializer=None))
    assert found is not None and found.fixed == {*fixed}
    hints = " ".join(changes_that_fit(found, 28 * GIB))
    assert ("FSDP" in hints, "QLoRA" in hints) == ("sharding" not in fixed, "qlora" not in fixed)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x10\0\0\0\0\0\0\0" + b'{"a":{"dtype":1}}',
        b"\x40\0\0\0\0\0\0\0" + json.dumps({"w": {"dtype": "U8", "shape": [8, 8]}}).encode().ljust(64),
        b"\x40\0\0\0\0\0\0\0" + json.dumps({"w": {"dtype": "F32", "shape": [-8, 8]}}).encode().ljust(64),
        b"\x40\0\0\0\0\0\0\0" + json.dumps({"w": {"dtype": "F32", "shape": ["8"]}}).encode().ljust(64),
    ],
)  # fmt: skip
def test_files_that_state_no_size(content: bytes, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_text(
        '{"hidden_size": "64", "num_hidden_layers": true, "n_layer": 1e99, "vocab_size": -1}'
    )
    assert read_model(str(tmp_path)) == ModelSize()
    (tmp_path / "model-2.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    assert read_model(str(tmp_path)) == ModelSize(), "a part of the weights is not their number"
    (tmp_path / "model.safetensors").unlink()
    assert read_model(str(tmp_path)) == ModelSize(123_200)
    assert read_model(str(tmp_path / "none")) == ModelSize()
