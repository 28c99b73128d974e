"""What a training needs of the memory of a GPU: formulas, names of models, and what would fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.gpu_memory import (
    GIB,
    Range,
    Training,
    adapter_parameters,
    changes_that_fit,
    describe,
    estimate,
    parameters_in_name,
    read_parameters,
)

COUNT = 8 * 10**9
FULL = Training(Range(COUNT, COUNT), "given", precision="bf16", sharding="ddp")
LAYERS: dict[str, Any] = {"hidden_size": 4096, "num_layers": 32, "vocabulary": 128256}
BATCH: dict[str, Any] = {"batch_size": 4, "sequence_length": 2048}


def size(training: Training, part: str = "") -> tuple[float, float]:
    """The bytes of a parameter."""
    found = estimate(training)
    amount = found.parts[part] if part else found.total
    return amount.low / COUNT, amount.high / COUNT


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-8B", 8), ("meta-llama/Llama-3.1-70B-Instruct", 70), ("llama3_2/1B_full", 1), ("x/y-1.5b", 1.5),
        ("HuggingFaceTB/SmolLM2-135M", 0.135), ("hf://Qwen/Qwen2.5-7B-Instruct-1M", 7), ("Qwen/Qwen3-30B-A3B", 30),
        ("torchtune-llama3.2-1b", 1), ("mistralai/Mixtral-8x7B-v0.1", 0), ("openai-community/gpt2", 0), ("phi-4", 0),
        ("google/gemma-3n-E4B-it", 0), ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", 0), ("bigscience/bloom-7b1", 0),
        ("TheBloke/Llama-2-7B-GPTQ", 0), ("distill-70B-to-8B", 0), ("", 0), ("gpt2", 0), ("Mixtral-8x7B", 0),
        ("stabilityai/stablelm-2-1_6b", 1.6), ("internlm/internlm2_5-1_8b-chat", 1.8), ("Llama-3.1-8B", 8),
        ("internlm/internlm2_5-7b-chat", 7), ("Qwen2.5-1.5B", 1.5), ("llama_2_7b", 7), ("qwen2_5_7b", 7), ("x-2_13b", 13),
        ("meta-llama/Llama-4-Scout-17B-16E", 0), ("llama4/maverick_17B_128E_full", 0),
    ],
)  # fmt: skip
def test_the_size_in_the_name_of_a_model(name: str, billions: float) -> None:
    found = parameters_in_name(name)
    assert found == (Range(billions * 1e9 * 0.9, billions * 1e9 * 1.3) if billions else None)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("Llama-2-7b-hf", 6_738_415_616), ("gemma-7b", 8_537_680_896), ("gemma-2b", 2_506_172_416),
        ("Llama-3.2-1B", 1_235_814_400), ("opt-350m", 331_196_416), ("Qwen2.5-7B", 7_615_616_512),
        ("pythia-410m", 405_334_016), ("Meta-Llama-3-8B", 8_030_261_248),
    ],
)  # fmt: skip
def test_names_that_round(name: str, exact: int) -> None:
    found = parameters_in_name(name)
    assert found is not None and found.low <= exact <= found.high


def test_numbers_of_parameters() -> None:
    assert [read_parameters(each) for each in ("8B", "1.5b", "350M")] == [8 * 10**9, 15 * 10**8, 350 * 10**6]
    assert [read_parameters(each) for each in ("8", "8 B", "8GB", "x8B", "")] == [None] * 5


@pytest.mark.parametrize(
    ("precision", "optimizer", "low", "high"),
    [
        ("fp32", "adamw", 16, 16), ("bf16", "adamw", 8, 8), ("mixed", "adamw", 16, 18), ("fp32", "adamw_8bit", 10, 10),
        ("bf16", "sgd", 4, 6), (None, "adamw", 8, 18), ("bf16", None, 2, 8),
    ],
)  # fmt: skip
def test_bytes_of_a_parameter_on_one_gpu(precision: Any, optimizer: Any, low: float, high: float) -> None:
    """2 + 2 + 12 is the paper's: with the master copy in the optimizer, or as the weights."""
    assert size(replace(FULL, precision=precision, optimizer=optimizer)) == (low, high)


@pytest.mark.parametrize(
    ("sharding", "low"), [("ddp", 16), ("zero1", 4 + 12 / 64), ("zero2", 2 + 14 / 64), ("zero3", 16 / 64)]
)
def test_zero_divides_what_its_paper_says(sharding: Any, low: float) -> None:
    """Its figure 1: of 7.5 billions on 64 GPUs 120, 31.4, 16.6 and 1.9 GB."""
    found = size(replace(FULL, precision="mixed", sharding=sharding, gpus=64))
    assert found[0] == pytest.approx(low) and found[1] >= low
    assert 7.5 * found[0] == pytest.approx({"ddp": 120, "zero1": 31.4, "zero2": 16.6, "zero3": 1.9}[sharding], rel=0.02)


def test_unknown_sharding_is_any_of_them_and_one_gpu_divides_nothing() -> None:
    assert size(replace(FULL, sharding=None, gpus=8)) == (1, 8)
    assert size(replace(FULL, sharding="zero3", gpus=1)) == size(FULL)
    assert size(replace(FULL, precision="mixed", sharding=None), "weights") == (4, 6)


def test_frozen_weights_have_no_gradients() -> None:
    lora = replace(FULL, method="lora")
    assert size(lora) == (2, 2) and estimate(lora).missing.keys() == {"activations", "the adapter"}
    assert size(replace(lora, precision="mixed")) == (4, 4)
    low, high = size(replace(lora, method="qlora"))
    assert low == pytest.approx(4.127 / 8) and high == 1
    assert size(replace(lora, sharding="zero3", gpus=4)) == (0.5, 0.5)


def test_an_adapter_of_known_layers() -> None:
    """Llama-3-8B with rank 16: 6.8 millions on queries and values, 41.9 on all matrices (PEFT counts them)."""
    lora = replace(FULL, method="lora", lora_rank=16)
    for given in (lora, replace(lora, **LAYERS)):
        found = adapter_parameters(given)
        assert found is not None and found.low <= 6_815_744 and found.high >= 41_943_040
    assert size(replace(lora, **LAYERS))[1] - 2 < 0.1


def test_activations_grow_with_the_batch_and_shrink_with_checkpoints() -> None:
    given = replace(FULL, **LAYERS, **BATCH, checkpointing=False)
    kept, twice = (estimate(each).parts["activations"] for each in (given, replace(given, batch_size=8)))
    assert twice == kept.times(2)
    tokens = 4 * 2048
    paper = 34 * tokens * 4096 * 32
    assert kept.low < paper < kept.high
    again = estimate(replace(given, checkpointing=True)).parts["activations"]
    assert again.low == 2 * tokens * 4096 * (32 + 12) and again.high < kept.high / 4
    either = estimate(replace(given, checkpointing=None)).parts["activations"]
    assert either == Range(again.low, kept.high)
    assert estimate(replace(given, pads=True)).parts["activations"] == Range(0, kept.high)


def test_gradients_and_activations_are_not_there_at_the_same_time_at_the_least() -> None:
    found = estimate(replace(FULL, **LAYERS, **BATCH, checkpointing=True))
    kept = found.parts["weights"].low + found.parts["optimizer"].low
    assert found.total.low == kept + found.parts["gradients"].low
    assert found.total.high == sum(part.high for part in found.parts.values())


def test_what_is_not_counted_is_named() -> None:
    assert estimate(FULL).missing == {"activations": ["batch_size", "sequence_length", "hidden_size", "num_layers"]}
    known = replace(FULL, **{**LAYERS, "vocabulary": None}, **BATCH, uncounted="the teacher model")
    found = estimate(known)
    assert found.missing == {"logits": ["vocabulary"], "the teacher model": []}
    assert "not counted: logits, the teacher model" in str(found)
    assert describe(known) == "8B parameters (given), full training in bf16 with adamw, 4 * 2048 tokens, 1 GPU"


@pytest.mark.parametrize("gigabytes", [4, 24, 40, 80])
def test_each_change_that_is_named_fits(gigabytes: int) -> None:
    given = replace(FULL, precision="mixed", **LAYERS, **BATCH, checkpointing=False)
    for change in changes_that_fit(given, gigabytes * GIB):
        most = float(change.rpartition("(")[2].removesuffix(" GiB)").rpartition(" ")[2])
        assert most <= gigabytes, change


def test_what_would_fit() -> None:
    mixed = replace(FULL, precision="mixed")
    two = "2 GPUs with FSDP or ZeRO-3 (59.6 to 67.1 GiB without activations)"
    assert changes_that_fit(mixed, 84 * GIB) == [two, *_with_lora(mixed)]
    shared = replace(mixed, gpus=4)
    four = "FSDP or ZeRO-3 on the 4 GPUs (29.8 to 33.5 GiB without activations)"
    assert changes_that_fit(shared, 80 * GIB)[0] == four
    assert changes_that_fit(replace(shared, sharding="zero3"), 21 * GIB)[0].startswith("8 GPUs with FSDP or ZeRO-3 (")
    fixed = replace(mixed, fixed=frozenset({"sharding", "qlora"}))
    assert changes_that_fit(fixed, 20 * GIB) == []
    small = Training(Range(1e9, 1e9), "given", precision="bf16", checkpointing=False, hidden_size=2048, num_layers=16,
        batch_size=64, sequence_length=2048, vocabulary=1000)  # fmt: skip
    fits = changes_that_fit(small, 80 * GIB)
    assert any(each.startswith("gradient checkpointing (") for each in fits)
    assert any(each.startswith("a batch size of 8 (") for each in fits), fits


def _with_lora(training: Training) -> list[str]:
    made = estimate(replace(training, method="lora", lora_rank=16))
    return [f"LoRA of rank 16 ({made.total} GiB without activations)"]


def test_what_is_not_counted_gets_a_margin() -> None:
    """67.1 GiB of 80 GiB would leave less than a fifth for activations."""
    mixed = replace(FULL, precision="mixed")
    assert changes_that_fit(mixed, 80 * GIB)[0] == "4 GPUs with FSDP or ZeRO-3 (29.8 to 33.5 GiB without activations)"
    assert not estimate(FULL).fits(70 * GIB) and estimate(FULL).fits(75 * GIB)
    counted = replace(FULL, **LAYERS, **BATCH, checkpointing=True)
    assert estimate(counted).fits(estimate(counted).total.high)
    logits = replace(counted, vocabulary=None, precision="mixed")
    assert "GiB without logits)" in changes_that_fit(logits, 80 * GIB)[0]


def test_sharding_is_not_proposed_to_divide_weights_of_4_bits() -> None:
    qlora = replace(FULL, method="qlora", lora_rank=16, gpus=8, checkpointing=False, **LAYERS, **BATCH)
    proposed = " ".join(changes_that_fit(qlora, 48 * GIB))
    assert "gradient checkpointing" in proposed and "a batch size of" in proposed and "GPUs" not in proposed
    assert changes_that_fit(replace(FULL, method="qlora", lora_rank=16, gpus=8), 4 * GIB) == []
    sharded = replace(FULL, method="lora", lora_rank=16, gpus=8, sharding="zero3", fixed=frozenset({"sharding"}))
    assert changes_that_fit(sharded, 16 * GIB) == []
    assert changes_that_fit(sharded, 20 * GIB) == ["QLoRA of rank 16 (3.9 to 14.6 GiB without activations)"]
