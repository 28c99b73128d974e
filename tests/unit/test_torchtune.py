"""`TorchTuneTrainer`: what the plan refuses, and what the recipe gets."""

from __future__ import annotations

import re
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.args.torchtune import flat, nested
from pulumi_trainer.args.trainers import asks_for_gpu
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.fine_tuning import methods

LORA = trainer.LoraConfig(lora_rank=4, lora_alpha=8, use_dora=True)


def full(**config: Any) -> trainer.TorchTuneTrainer:
    return trainer.TorchTuneTrainer(recipe="full_finetune_distributed", base="llama3_2/1B_full", config=config)


def lora(config: Any = None, **arguments: Any) -> trainer.TorchTuneTrainer:
    named = {"lora": LORA, "base": "llama3_2/1B_lora", **arguments}
    return trainer.TorchTuneTrainer(recipe="lora_finetune_distributed", config=config or {}, **named)


def found(made: trainer.TorchTuneTrainer) -> list[str]:
    needs = made.gpu_problems(on_gpu=asks_for_gpu(made.resources_per_node))
    return [str(p) for p in [*nested_problems(made), *needs, *made.argument_problems(made.arguments())]]


def of_job(made: trainer.TorchTuneTrainer, *fetched: str, policy: Any = None, output: bool = True) -> list[str]:
    return [str(p) for p in made.job_problems(fetched, policy, output=output)]


def test_the_table_has_types_that_are_checked() -> None:
    about = table("torchtune")
    known = r'(any|bool|int|float|str|dict|list(\[(str|int|float|bool)\])?|None|"[^"]*")'
    for component, arguments in about["components"].items():
        for name, kind in arguments.items():
            assert re.fullmatch(rf"{known}( \| {known})*", kind), (component, name, kind)
    assert (
        set(about["configs"]) == set(about["methods"]) == {m.method for m in methods.METHODS if m.tool == "torchtune"}
    )
    for configs in about["configs"].values():
        for name, parts in configs.items():
            own = [each for each in parts.values() if each.startswith(("torchtune.", "torch."))]
            assert own, name
            assert not [each for each in own if each not in about["components"] and "vision" not in each], name


class TestNames:
    def test_a_recipe_and_a_configuration_are_required(self) -> None:
        assert "recipe: is required: one of full_finetune_distributed" in found(trainer.TorchTuneTrainer(config={}))[0]
        (said,) = found(trainer.TorchTuneTrainer(recipe="lora_dpo_distributed"))
        assert "base: is required: a configuration of torchtune for lora_dpo_distributed" in said
        (said,) = found(lora(base="llama3_2/1B_full", lora=None))
        assert (
            "base: must be a configuration of torchtune for lora_finetune_distributed, not 'llama3_2/1B_full'" in said
        )

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"epoch": 1}, "unknown field of full_finetune_distributed in torchtune 0.6.1. Hint: did you mean epochs?"),
            ({"kd_ratio": 0.5}, "in torchtune 0.6.1, but of knowledge_distillation_distributed"),
            ({"epochs": "1"}, 'config["epochs"]: must be a whole number, not \'1\''),
            ({"optimizer.lrr": 1e-4}, 'config["optimizer.lrr"]: unknown argument of torch.optim.AdamW in torchtune 0.6.1'),
            ({"optimizer": {"lr": "high"}}, 'config["optimizer.lr"]: must be a number'),
            (
                {"model": {"lora_rank": 4, "_component_": "torchtune.models.llama2.llama2"}},
                "did you mean torchtune.models.llama2.lora_llama2?",
            ),
            ({"loss._component_": "torchtune.modules.loss.CELoss"}, "unknown component of torchtune 0.6.1"),
            ({"tensor_parallel_plan": {"x": 1}}, 'config["tensor_parallel_plan"]: needs a _component_'),
            ({"dataset": [{"_component_": "torchtune.datasets.chat_dataset", "packed": 1}]}, "must be True or False"),
        ],
    )  # fmt: skip
    def test_what_torchtune_does_not_know(self, config: dict[str, Any], expected: str) -> None:
        said = found(full(**config))
        assert any(expected in each for each in said), said

    def test_what_it_knows(self) -> None:
        config = {
            "epochs": 2, "optimizer": {"lr": 1, "weight_decay": 0.1}, "optimizer.fused": False, "clip_grad_norm": "inf",
            "model": {"_component_": "mine.model", "anything": 1}, "dataset.split": "train", "seed": Unknown("x"),
            "dataset": {"data_files": ["a"], "_component_": "torchtune.datasets.chat_dataset"}, "max_steps_per_epoch": None,
        }  # fmt: skip
        made = full(**config)
        assert found(made) == []
        assert made.arguments()["base"] == "llama3_2/1B_full" and made.arguments()["config"]["epochs"] == 2

    def test_the_config_is_a_mapping(self) -> None:
        made = trainer.TorchTuneTrainer(recipe="full_finetune_distributed", base="llama3_2/1B_full", config=["x"])  # type: ignore[arg-type]
        assert any("config: must be a mapping, not" in each for each in found(made))
        assert full().argument_problems(Unknown("x")) == []

    def test_dotted_keys_are_nested_ones(self) -> None:
        assert nested({"a.b": 1, "a": {"c.d": 2}, "e": [3]}) == {"a": {"b": 1, "c": {"d": 2}}, "e": [3]}
        assert dict(flat({"a": {"b": 1, "c": {"d": 2}}})) == {"a.b": 1, "a.c.d": 2}


class TestLora:
    def test_it_sets_the_model(self) -> None:
        assert lora().arguments()["config"] == {
            "model.lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "model.lora_rank": 4, "model.lora_alpha": 8,
            "model.use_dora": True,
        }  # fmt: skip
        assert found(lora()) == []

    def test_it_is_not_given_twice_and_not_for_a_whole_model(self) -> None:
        (said,) = found(lora({"model": {"lora_rank": 8}}))
        assert 'config["model.lora_rank"]: cannot be combined with lora, which sets it' in said
        made = trainer.TorchTuneTrainer(recipe="qat_distributed", base="llama3/8B_qat_full", lora=LORA)
        assert any(
            "lora: the recipe qat_distributed trains the whole model, without LoRA" in each for each in found(made)
        )

    @pytest.mark.parametrize(
        "given",
        [
            {"lora": trainer.LoraConfig(quantize_base=True)},
            {"lora": None, "config": {"model": {"quantize_base": True}}},
            {"lora": None, "base": "llama2/7B_qlora"},
        ],
    )
    def test_qlora_needs_a_gpu(self, given: dict[str, Any]) -> None:
        (said,) = found(lora(**given))
        assert "quantization of torchtune needs a GPU" in said
        assert found(lora(**given, resources_per_node={"gpu": 1})) == []


class TestJob:
    def test_model_and_dataset_are_given_once(self) -> None:
        (said,) = of_job(full())
        assert 'config["checkpointer.checkpoint_dir"]: is required: the job has no model' in said
        given = full(**{"checkpointer": {"checkpoint_dir": "/m"}, "dataset.source": "org/data"})
        assert of_job(given) == []
        said_of_both = of_job(given, "model", "dataset")
        assert [
            "cannot be combined with the model" in said_of_both[0],
            "cannot be combined with the dataset" in said_of_both[1],
        ] == [True, True]
        below = full(
            **{"checkpointer.checkpoint_dir": "/workspace/model/7B", "dataset": {"source": "json", "data_files": "a"}}
        )
        assert of_job(below, "model", "dataset") == []

    def test_the_model_would_be_lost(self) -> None:
        (said,) = of_job(full(), "model", output=False)
        assert 'config["output_dir"]: is not set, and the job has no output volume' in said

    def test_distillation_has_a_teacher(self) -> None:
        base = "llama3_2/8B_to_1B_KD_lora_distributed"
        made = trainer.TorchTuneTrainer(recipe="knowledge_distillation_distributed", base=base)
        assert any('config["teacher_checkpointer.checkpoint_dir"]: is required' in each for each in found(made))

    def test_what_torchtune_would_ignore_of_a_checkpoint_policy(self) -> None:
        (said,) = of_job(full(epochs=2), "model", policy=trainer.CheckpointPolicy(steps=10))
        assert (
            "recipe: torchtune only saves checkpoints at the end of an epoch, so it would"
            " ignore steps=10 of the checkpoint policy"
        ) in said
        assert (
            "would ignore every='10m'"
            in of_job(full(epochs=2), "model", policy=trainer.CheckpointPolicy(every="10m"))[0]
        )
        (said,) = of_job(full(), "model", policy=trainer.CheckpointPolicy())
        assert 'config["epochs"]: torchtune saves no checkpoint after the last epoch' in said
        for name, value in {
            "output_dir": "/x",
            "resume_from_checkpoint": True,
            "enable_async_checkpointing": True,
        }.items():
            (said,) = of_job(full(epochs=2, **{name: value}), "model", policy=trainer.CheckpointPolicy())
            assert f'config["{name}"]: cannot be combined with checkpoint=, which sets it' in said
        assert of_job(full(epochs=2), "model", policy=trainer.CheckpointPolicy()) == []

    def test_sources_of_a_list_beside_an_initializer(self) -> None:
        sources = [{"source": "/workspace/dataset/a"}, {"source": "org/other"}, {"data_files": "x", "source": "json"}]
        (said,) = of_job(full(epochs=2, dataset=sources), "model", "dataset")
        assert said.startswith('config["dataset"][1]["source"]: cannot be combined with the dataset of initializer=')
        assert of_job(full(epochs=2, dataset=sources), "model") == []

    @pytest.mark.parametrize(
        ("dataset", "field"),
        [
            ({"source": "json", "data_files": "https://example.com/x.json"}, "data_files"),
            ({"source": "json", "data_files": {"train": ["a.json", "/data/x.json"]}}, "data_files"),
            ({"source": "org/other", "data_files": "a.json"}, "source"),
            ({"source": "json", "data_files": "/workspace/dataset/a.json"}, ""),
        ],
    )
    def test_files_elsewhere_beside_an_initializer(self, dataset: dict[str, Any], field: str) -> None:
        expected = [f'config["dataset.{field}"]: cannot be combined with the dataset of initializer=']
        found = of_job(full(epochs=2, dataset=dataset), "model", "dataset")
        assert [each.partition(";")[0].partition("initializer=")[0] + "initializer=" for each in found] == (
            expected if field else []
        )
        assert of_job(full(epochs=2, dataset=dataset), "model") == []
