"""UnslothTrainer: its fields, what the plan refuses, and the calls of its program. No test trains with it: it needs a GPU."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
import trainers
from pulumi_trainer.args.fine_tuning import table

from tests.unit.test_fine_tuning import ROOT, UNSLOTH, found

GPU: Any = {"resources_per_node": {"gpu": 1}}
LORA = trainer.LoraConfig(lora_rank=4, lora_alpha=8, use_dora=True)


class TestFields:
    def test_without_lora_the_whole_model_is_trained(self) -> None:
        made = trainer.UnslothTrainer(config=UNSLOTH, **GPU)
        assert found(made) == []
        assert made.arguments()["config"] == {"full_finetuning": True, "load_in_4bit": False, **UNSLOTH}

    def test_lora_has_the_names_of_get_peft_model(self) -> None:
        made = trainer.UnslothTrainer(config=UNSLOTH, lora=LORA, **GPU)
        assert found(made) == []
        lora = {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": ["q_proj", "v_proj", "o_proj"]}
        config = made.arguments()["config"]
        assert {name: value for name, value in config["lora"].items() if name in lora} == lora
        assert config["load_in_4bit"] is False, "Unsloth's default is True"

    def test_qlora_needs_no_other_package(self) -> None:
        made = trainer.UnslothTrainer(config=UNSLOTH, lora=trainer.LoraConfig(quantize_base=True), **GPU)
        assert found(made) == [] and made.arguments()["config"]["load_in_4bit"] is True

    @pytest.mark.parametrize("resources", [None, {"cpu": 4}])
    @pytest.mark.parametrize("lora", [None, trainer.LoraConfig(quantize_base=True)])
    def test_it_needs_a_gpu(self, resources: Any, lora: Any) -> None:
        (said,) = found(trainer.UnslothTrainer(config=UNSLOTH, lora=lora, resources_per_node=resources))
        assert said.startswith("resources_per_node: Unsloth needs a GPU") and '{"gpu": 1}' in said

    @pytest.mark.parametrize(
        ("config", "lora", "expected"),
        [
            ({"full_finetuning": False}, None, 'config["full_finetuning"]: is False, but the job has no lora'),
            ({"full_finetuning": True}, LORA, 'config["full_finetuning"]: is True, with which Unsloth ignores lora'),
            ({"load_in_8bit": True}, None, 'config["load_in_8bit"]: is set without lora'),
            ({"load_in_4bit": True}, LORA, 'config["load_in_4bit"]: cannot be combined with lora, which sets it'),
            ({"max_seq_lenth": 1}, LORA, "unknown field of Unsloth 2026.10.9. Hint: did you mean max_seq_length?"),
            ({"learning_rat": 1.0}, None, "unknown field of Unsloth 2026.10.9. Hint: did you mean learning_rate?"),
            ({"fast_inference": True}, LORA, "unknown field of Unsloth"),
            ({"max_seq_length": "1"}, LORA, "must be a whole number, not '1'"),
        ],
    )
    def test_what_it_cannot_do(self, config: dict[str, Any], lora: Any, expected: str) -> None:
        (said,) = found(trainer.UnslothTrainer(config={**UNSLOTH, **config}, lora=lora, **GPU))
        assert expected in said


def test_the_parameters_of_a_method_are_read_from_its_source(tmp_path: Path) -> None:
    (tmp_path / "loader.py").write_text(
        "class Other: pass\nclass Fast:\n    def load(name, a=1, b=True, c=X, d=None, *more, e=2, **rest): pass\n"
    )
    read = trainers.parameters(tmp_path / "loader.py", "Fast", "load")
    assert read == {"name": ..., "a": 1, "b": True, "c": ..., "d": None}


def test_the_program_calls_what_the_table_has() -> None:
    """The program gives `from_pretrained` what its signature has, and SFTConfig the rest."""
    fields = {**table("unsloth")["fields"], **table("unsloth")["methods"]["sft"]}
    tree = ast.parse((ROOT / "provider/pod/scripts/run_unsloth.py").read_text())
    words = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    named = {word for word in words if word.startswith(("dataset_", "model_"))}
    assert named == {
        "model_name", "dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split",
    } and named <= set(fields)  # fmt: skip
    for name in (
        "max_seq_length",
        "load_in_4bit",
        "full_finetuning",
        "use_gradient_checkpointing",
        "max_length",
        "packing",
    ):
        assert name in fields
