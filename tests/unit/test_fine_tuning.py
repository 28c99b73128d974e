"""The trainers for fine-tuning: their fields, what is wrong with them, what travels, and the JobSets that they make."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
import trainers
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer import runtimes
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.args.fine_tuning import ToolTrainer, table, target_modules
from pulumi_trainer.args.trainers import asks_for_gpu
from pulumi_trainer.code import entry_source, user_code
from pulumi_trainer.plan import packages as node_packages
from pulumi_trainer.plan import tool_needs, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod.code import with_user_tracebacks
from pulumi_trainer.provider.pod.scripts import finish_tool, run_tool

from tests.documented import blocks
from tests.fine_tuning import methods, test_methods

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "recorded" / "fine-tuning"
TOOLS = ("trl", "transformers", "llamafactory", "torchtune", "unsloth")
CLUSTER = trainer.Kubernetes(context="none", namespace="ml")
BITS: Any = {"packages_to_install": ["bitsandbytes>=0.45"]}
UNSLOTH = {"model_name": "org/model", "dataset_name": "org/data", "max_steps": 10}
MODEL = {"model_name_or_path": "org/model", "dataset_name": "org/data"}


def score(completions: Any, **columns: Any) -> list[float]:
    return [float(len(each)) for each in completions]


def raises(completions: Any, **columns: Any) -> list[float]:
    return completions[len(columns) + 9]  # type: ignore[no-any-return]


def few(completions: Any) -> list[float]:
    return [1.0 for _ in completions]


async def later(completions: Any, **columns: Any) -> list[float]:
    return [1.0 for _ in completions]


def single(completion: Any, **columns: Any) -> list[float]:
    return [float(len(completion))]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plans a TrainJob for a cluster, as a component would."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(given: Any, runtime: str = "", **arguments: Any) -> Plan:
        async def planning() -> Plan:
            made = given if isinstance(given, ToolTrainer) else given()
            named = {"runtime": runtime or table(made.tool)["runtime"], "target": CLUSTER, "output": True, **arguments}
            return await trainjob_plan.plan(TrainJobArgs("job", **{**named, "trainer": made}))

        return asyncio.run(planning())

    return plan


def problems(plan: Plan) -> list[str]:
    return [str(problem) for problem in plan.problems]


def sft(**config: Any) -> trainer.TRLTrainer:
    return trainer.TRLTrainer(method="sft", config={**MODEL, **config})


def trl(config: Any, **arguments: Any) -> trainer.TRLTrainer:
    return trainer.TRLTrainer(method="sft", config={**MODEL, **config}, **arguments)


def language(config: Any, **arguments: Any) -> trainer.TransformersTrainer:
    return trainer.TransformersTrainer(config={**MODEL, **config}, **arguments)


def factory(config: Any, **arguments: Any) -> trainer.LlamaFactoryTrainer:
    named = {"model_name_or_path": "org/model", "dataset": "x", **config}
    return trainer.LlamaFactoryTrainer(stage="sft", config=named, **arguments)


def tune(config: Any, **arguments: Any) -> trainer.TorchTuneTrainer:
    named = {"checkpointer.checkpoint_dir": "/models/llama", **config}
    base = {"recipe": "full_finetune_distributed", "base": "llama3_2/1B_full"}
    return trainer.TorchTuneTrainer(**base, config=named, **arguments)


def found(made: ToolTrainer) -> list[str]:
    """The problems of a trainer by itself, of a runtime without GPUs."""
    needs = made.gpu_problems(on_gpu=asks_for_gpu(made.resources_per_node))
    return [str(p) for p in [*nested_problems(made), *needs, *made.argument_problems(made.arguments())]]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_table_has_the_packages_of_the_runtime(tool: str) -> None:
    about, folder = table(tool), ROOT / "runtimes" / table(tool)["runtime"]
    pinned = trainers.pins((folder / "requirements.txt").read_text())
    torch = (folder / "torch.txt").read_text().split()
    assert about["packages"] == [*torch, *pinned]
    assert f"{tool}=={about['release']}" in about["packages"]
    assert about["release"] in runtimes.releases(about["runtime"])
    hashed = re.findall(r"^(\S+?)==.*\\\n +--hash=sha256:[0-9a-f]{64}", (folder / "requirements.txt").read_text(), re.M)
    assert len(hashed) == len(pinned), "each package has its hash"
    assert not [name for name in hashed if name == "torch" or name.startswith(("nvidia", "cuda", "triton"))]


@pytest.mark.parametrize("tool", TOOLS)
def test_every_type_of_a_table_is_one_that_is_checked(tool: str) -> None:
    about = table(tool)
    kinds = {**about["fields"], **{n: k for fields in about["methods"].values() for n, k in fields.items()}}
    known = r'(any|bool|int|float|str|dict|list(\[(str|int|float|bool)\])?|None|"[^"]*")'
    for name, kind in kinds.items():
        assert re.fullmatch(rf"{known}( \| {known})*", kind), (name, kind)


def test_what_the_annotations_of_a_tool_mean() -> None:
    import enum
    from dataclasses import dataclass, field
    from typing import Literal

    class When(enum.Enum):
        NO = "no"
        STEPS = "steps"

    @dataclass
    class Fields:
        when: When | str = When.NO
        some: list[str] | None = None
        more: float = 0.1
        kind: Literal["a", "b"] = "a"
        any_: object = None
        picked: str = field(default="x", metadata={"choices": ["x", "y"]})
        hidden: int = field(default=0, init=False)
        late: int = None  # type: ignore[assignment]

    Fields.__annotations__.update(more=float, when=When | str, some=list[str] | None, kind=Literal["a", "b"], late=int)
    Fields.__annotations__.update(any_=object, picked=str, hidden=int)
    assert trainers.fields_of(Fields) == {
        "when": '"no" | "steps"', "some": "list[str] | None", "more": "float", "kind": '"a" | "b"', "any_": "any | None",
        "picked": '"x" | "y"', "late": "int | None",
    }  # fmt: skip


def test_the_options_of_vllm_are_read_from_its_source() -> None:
    source = """
class EngineArgs:
    max_model_len: int = 3
    other = 4

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "-tp", type=int)
        parser.add_argument(f"--{made}", *["--x"])

class Other:
    name: str
"""
    assert trainers.options(source) == {"max_model_len", "tensor_parallel_size"}
    assert table("trl")["vllm"][0].startswith("vllm==") and "max_model_len" in table("trl")["vllm_options"]


class TestFields:
    def test_a_misspelt_field_is_refused_with_the_nearest_name_and_the_release(self) -> None:
        (said,) = found(sft(learning_rat=1e-4))
        assert 'config["learning_rat"]' in said and "unknown field of sft in TRL 1.16.0" in said
        assert "did you mean learning_rate?" in said

    def test_a_field_of_another_method_is_named(self) -> None:
        (said,) = found(sft(num_generations=4))
        assert "but of grpo" in said

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"learning_rate": "1e-4"}, "must be a number, not '1e-4'"),
            ({"max_steps": 1.5}, "must be a whole number, not 1.5"),
            ({"max_steps": True}, "must be a whole number, not True"),
            ({"bf16": "yes"}, "must be True or False, not 'yes'"),
            ({"save_strategy": "step"}, "must be one of no, steps, epoch, best, not 'step'"),
            ({"lora_target_modules": [1]}, "must be a list of strings, not [1]"),
            ({"model_init_kwargs": 3}, "must be a mapping or a string, not 3"),
        ],
    )
    def test_a_value_of_another_type_is_refused(self, config: dict[str, Any], expected: str) -> None:
        (said,) = found(sft(**config))
        assert expected in said, said

    def test_values_of_the_right_type_stay_as_they_are(self) -> None:
        config = {
            "learning_rate": 1, "max_steps": 3, "save_strategy": "epoch", "bf16": None, "lora_target_modules": ["q_proj"],
            "chat_template_path": "a", "report_to": ["wandb"], "seed": 7, "model_init_kwargs": {"x": [1, None]},
        }  # fmt: skip
        made = sft(**config)
        assert found(made) == []
        assert made.arguments()["config"] == {**MODEL, **config}

    @given(
        st.dictionaries(
            st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none())
        )
    )
    def test_no_config_ends_in_an_exception(self, config: dict[str, Any]) -> None:
        made = trainer.TRLTrainer(method="dpo", config=config)
        for said in found(made):
            assert "\n" not in said

    def test_what_is_not_known_yet_is_not_checked(self) -> None:
        assert sft().argument_problems(Unknown("x")) == []
        assert sft().argument_problems({"config": {"max_steps": Unknown("x")}}) == []
        assert "config: must be a mapping, not 3" in str(sft().argument_problems({"config": 3})[0])

    def test_the_config_is_a_mapping(self) -> None:
        assert "config: must be a mapping, not list" in found(trainer.TRLTrainer(method="sft", config=["x"]))[0]


class TestLora:
    LORA = trainer.LoraConfig(lora_rank=4, lora_alpha=8, lora_dropout=0.1, use_dora=True, apply_lora_to_mlp=True)

    def test_one_class_has_the_names_of_each_tool(self) -> None:
        trl = trainer.TRLTrainer(method="sft", config={}, lora=self.LORA).arguments()["config"]
        modules = ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        assert trl == {
            "use_peft": True, "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "use_dora": True,
            "lora_target_modules": modules,
        }  # fmt: skip
        scored = trainer.TRLTrainer(method="reward", config={}, lora=self.LORA).arguments()["config"]
        assert scored["lora_task_type"] == "SEQ_CLS"
        factory = trainer.LlamaFactoryTrainer(stage="sft", config={}, lora=self.LORA).arguments()["config"]
        assert factory == {
            "finetuning_type": "lora", "lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.1, "use_dora": True,
            "lora_target": ",".join(modules),
        }  # fmt: skip
        plain = trainer.TransformersTrainer(config={}, lora=self.LORA).arguments()["config"]["lora"]
        assert plain == {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "use_dora": True, "target_modules": modules}
        for made in (
            trainer.TRLTrainer(method="sft", config={}, lora=self.LORA),
            trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "x"}, lora=self.LORA),
            trainer.TransformersTrainer(config={}, lora=self.LORA),
        ):
            assert found(made) == []

    def test_a_field_that_lora_sets_is_not_given_twice(self) -> None:
        made = trainer.TRLTrainer(method="sft", config={**MODEL, "lora_r": 8}, lora=self.LORA)
        (said,) = found(made)
        assert 'config["lora_r"]: cannot be combined with lora, which sets it' in said

    @pytest.mark.parametrize("on", [True, False])
    def test_flags_that_are_outputs_are_those_of_their_values(self, on: bool) -> None:
        names = ("apply_lora_to_mlp", "apply_lora_to_output", "quantize_base")

        def made(flag: Any) -> list[Any]:
            lora = trainer.LoraConfig(**dict.fromkeys(names, flag))
            return [
                trainer.TRLTrainer(method="sft", config={}, lora=lora).arguments()["config"],
                trainer.LlamaFactoryTrainer(stage="sft", config={}, lora=lora).arguments()["config"],
                trainer.UnslothTrainer(config={}, lora=lora).arguments()["config"],
            ]

        async def known() -> Any:
            return await pulumi.Output.all(*made(pulumi.Output.from_input(on))).future()

        later = asyncio.run(known())
        assert later[1].get("quantization_bit") == (4 if on else None)
        later[1] = {name: value for name, value in later[1].items() if value is not None}
        assert later == made(on)

    def test_one_projection_may_be_an_output(self) -> None:
        async def known() -> Any:
            lora = trainer.LoraConfig(lora_attn_modules=[pulumi.Output.from_input("output_proj")])
            return await target_modules(lora).future()

        assert asyncio.run(known()) == ["o_proj"]

    def test_trl_gets_no_single_module(self) -> None:
        """It hands PEFT a single one as a pattern of the whole path, which no module has."""

        async def known(made_by: Any) -> Any:
            lora = trainer.LoraConfig(lora_attn_modules=[made_by("q_proj")])
            made = trainer.TRLTrainer(method="sft", config={}, lora=lora).arguments()
            return await pulumi.Output.from_input(made["config"]["lora_target_modules"]).future()

        for made_by in (str, pulumi.Output.from_input):
            assert asyncio.run(known(made_by)) == ["q_proj", "q_proj"]

    def test_quantization_needs_a_package(self, planned: Any) -> None:
        given: dict[str, Any] = {"lora": trainer.LoraConfig(quantize_base=True), "resources_per_node": {"gpu": 1}}
        (said,) = problems(planned(trainer.TRLTrainer(method="sft", config=MODEL, **given)))
        assert "packages_to_install: quantization of TRL needs bitsandbytes, which is not installed" in said
        for own in (BITS, {"image": "own"}):
            assert problems(planned(trainer.TRLTrainer(method="sft", config=MODEL, **own, **given))) == []

    @pytest.mark.parametrize("cpu", [{"cpu": 4}, None])
    def test_quantization_needs_a_gpu(self, cpu: Any) -> None:
        quantized = trainer.LoraConfig(quantize_base=True)
        (said,) = found(trainer.TRLTrainer(method="sft", config=MODEL, lora=quantized, resources_per_node=cpu, **BITS))
        assert "lora.quantize_base: quantization of TRL needs a GPU" in said
        eight = {**MODEL, "load_in_8bit": True}
        (said,) = found(trainer.TRLTrainer(method="sft", config=eight, resources_per_node=cpu, **BITS))
        assert said.startswith("config: quantization")
        for gpu in ({"gpu": 1}, {"limits": {"nvidia.com/gpu": 1}}, {"mig-1g.5gb": 1}):
            made = trainer.TRLTrainer(method="sft", config=MODEL, lora=quantized, resources_per_node=gpu, **BITS)
            assert found(made) == [] and made.arguments()["config"]["load_in_4bit"] is True
        made = trainer.LlamaFactoryTrainer(
            stage="sft", config={"dataset": "x"}, lora=quantized, resources_per_node={"gpu": 1}, **BITS
        )
        assert found(made) == [] and made.arguments()["config"]["quantization_bit"] == 4


GPU: Any = {"resources_per_node": {"gpu": 2}}
NEEDS = [
    (trl, {"deepspeed": {"zero_optimization": {"stage": 2}}}, "deepspeed"),
    (trl, {"report_to": ["none", "wandb"]}, "wandb"),
    (trl, {"optim": "paged_adamw_8bit"}, "bitsandbytes"),
    (trl, {"optim": "galore_adamw"}, "galore-torch"),
    (trl, {"use_liger_kernel": True}, "liger-kernel"),
    (trl, {"attn_implementation": "flash_attention_2"}, "kernels"),
    (language, {"deepspeed": "zero.json"}, "deepspeed"),
    (language, {"report_to": "tensorboard"}, "tensorboard"),
    (factory, {"use_unsloth": True}, "unsloth"),
    (factory, {"enable_liger_kernel": True}, "liger-kernel"),
    (factory, {"report_to": "wandb"}, "wandb"),
    (tune, {"metric_logger": {"_component_": "torchtune.training.metric_logging.WandBLogger"}}, "wandb"),
    (tune, {"optimizer._component_": "bitsandbytes.optim.PagedAdamW8bit"}, "bitsandbytes"),
]


class TestNeeds:
    """Packages and GPUs that fields need."""

    @pytest.mark.parametrize(("made", "config", "package"), NEEDS)
    def test_a_package_that_the_runtime_lacks(self, planned: Any, made: Any, config: Any, package: str) -> None:
        (said,) = problems(planned(made(config, **GPU)))
        assert said.startswith("trainer.config[") and f"needs {package}" in said and "which is not installed" in said
        assert f'packages_to_install=["{package}"]' in said
        for own in ([f"{package.replace('-', '_')}>=0"], ["org-training"], ["./wheels/x.whl"], ["kernels[all]"]):
            assert problems(planned(made(config, packages_to_install=own, **GPU))) == []
        assert problems(planned(made(config, image="org/own:1", **GPU))) == []
        assert problems(planned(made(config, env={"PYTHONPATH": "/workspace/more"}, **GPU))) == []
        assert problems(planned(made(config, **GPU), runtime="unsloth")) == [], "an image of another runtime"

    def test_another_package_does_not_bring_it(self, planned: Any) -> None:
        made = trl({"report_to": "wandb"}, packages_to_install=["deepspeed"], **GPU)
        assert "needs wandb" in problems(planned(made))[0]

    @pytest.mark.parametrize(
        "config",
        [
            {"report_to": "none"}, {"report_to": "all"}, {"report_to": []}, {"deepspeed": None}, {"optim": "rmsprop"},
            {"optim": "adamw_torch_fused"}, {"use_liger_kernel": False}, {"attn_implementation": "sdpa"},
        ],
    )  # fmt: skip
    def test_what_needs_no_other_package(self, planned: Any, config: dict[str, Any]) -> None:
        assert problems(planned(trl(config, **GPU))) == []

    def test_unsloth_brings_bitsandbytes(self, planned: Any) -> None:
        made = trainer.UnslothTrainer(config={**UNSLOTH, "optim": "adamw_8bit"}, **GPU)
        assert problems(planned(made)) == []

    def test_on_this_machine_its_own_packages_count(self, planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        made = trl({"report_to": "wandb"})
        (said,) = problems(planned(made, target=trainer.Local()))
        assert "needs wandb" in said
        monkeypatch.setattr(node_packages.metadata, "distribution", lambda name: name)
        assert problems(planned(made, target=trainer.Local())) == []
        assert len(problems(planned(made))) == 1

    @pytest.mark.parametrize(
        ("made", "config", "packages"),
        [
            (trl, {"tf32": True}, []),
            (trl, {"use_liger_kernel": True}, ["liger-kernel"]),
            (trl, {"attn_implementation": "flash_attention_2"}, ["flash-attn"]),
            (factory, {"use_unsloth": True}, ["unsloth"]),
        ],
    )
    def test_a_gpu(self, planned: Any, made: Any, config: dict[str, Any], packages: list[str]) -> None:
        (said,) = problems(planned(made(config, packages_to_install=packages)))
        (field,) = config
        assert said.startswith(f'trainer.config["{field}"]: needs a GPU, but the nodes request none. Hint: ')
        for nodes in ({"gpu": 1}, {"mig-1g.5gb": 1}, {"huawei.com/Ascend910": 1}):
            assert problems(planned(made(config, packages_to_install=packages, resources_per_node=nodes))) == []

    def test_a_container_with_a_claim_may_have_one(self) -> None:
        """That of its runtime: Trainer leaves out those of `resourcesPerNode`."""
        assert tool_needs._may_have_device({"claims": [{"name": "gpu"}]})
        assert not tool_needs._may_have_device({"claims": [], "limits": {"cpu": 1}})

    def test_kernels_may_have_flash_attention_for_cpus(self, planned: Any) -> None:
        config = {"attn_implementation": "flash_attention_2"}
        assert problems(planned(trl(config, packages_to_install=["kernels"]))) == []
        assert problems(planned(trl(config, image="org/own:1"))) == []

    @pytest.mark.parametrize(
        ("made", "config"), [(trl, {"fp16": True}), (language, {"fsdp": "full_shard"}), (tune, {"device": "cuda"})]
    )
    def test_what_is_ignored_without_a_gpu(self, planned: Any, made: Any, config: dict[str, Any]) -> None:
        plan = planned(made(config))
        (field,) = config
        (said,) = [str(each) for each in plan.warnings if field in str(each)]
        assert problems(plan) == []
        assert said.startswith(f'trainer.config["{field}"]: is for GPUs, but the nodes request none')
        assert [str(each) for each in planned(made(config, **GPU)).warnings if field in str(each)] == []

    @pytest.mark.parametrize(("system", "expected"), [("linux", 1), ("darwin", 0)])
    def test_a_mac_has_an_accelerator_of_its_own(
        self, planned: Any, monkeypatch: pytest.MonkeyPatch, system: str, expected: int
    ) -> None:
        monkeypatch.setattr(tool_needs.sys, "platform", system)
        assert len(problems(planned(trl({"tf32": True}), target=trainer.Local()))) == expected


class TestDistribution:
    @pytest.mark.parametrize(("size", "expected"), [(3, 1), (2, 0), (1, 0), (4, 1)])
    def test_a_model_is_split_between_processes_of_one_size(self, planned: Any, size: int, expected: int) -> None:
        found = problems(planned(tune({"tensor_parallel_dim": size}, **GPU)))
        assert len(found) == expected
        for said in found:
            assert f'trainer.config["tensor_parallel_dim"]: is {size}, which does not divide' in said
            assert "the number of processes, 2" in said

    def test_runs_know_their_batch_where_epochs_decide_the_length(self, planned: Any) -> None:
        def batch(made: ToolTrainer) -> str | None:
            plan: Plan = planned(made)
            return plan.job.run_inputs.get("batch")

        size = {"per_device_train_batch_size": 4}
        assert batch(language(size, num_nodes=2, **GPU)) == "4 per device * 4 ranks"
        assert (
            batch(sft(gradient_accumulation_steps=8, max_steps=-1)) == "the default per device * 1 rank * 8 accumulated"
        )
        assert (
            batch(trl({"gradient_accumulation_steps": 8}, **GPU)) == "the default per device * 2 ranks * 8 accumulated"
        )
        assert batch(language({**size, "max_steps": 50}, **GPU)) is None, "the steps are the same with another batch"
        assert batch(tune({"batch_size": 4}, **GPU)) is None, "torchtune goes on at the beginning of an epoch"

    @pytest.mark.parametrize("name", ["fsdp", "deepspeed"])
    def test_unsloth_is_ddp(self, name: str) -> None:
        (said,) = found(trainer.UnslothTrainer(config={**UNSLOTH, name: "full_shard"}, **GPU))
        assert f'config["{name}"]: is not supported' in said and "(DDP)" in said
        assert found(trainer.UnslothTrainer(config={**UNSLOTH, name: None}, **GPU)) == []


class TestLlamaFactory:
    def test_an_unknown_template_has_the_nearest_name(self) -> None:
        (said,) = found(factory({"template": "qwn"}))
        assert "config[\"template\"]: must be one of the 121 names that the tool has, not 'qwn'" in said
        assert "did you mean qwen?" in said
        assert found(factory({"template": "qwen3_nothink"})) == [] == found(factory({"template": None}))

    def test_ppo_is_the_tools_and_not_this_packages(self) -> None:
        (said,) = found(trainer.LlamaFactoryTrainer(stage="ppo", config={"dataset": "x"}))  # type: ignore[arg-type]
        assert "stage: ppo is not offered: that of LLaMA-Factory 0.9.5 requires TRL 0.9.6 or older" in said


class TestMerging:
    """merge_adapter=True: what the plan refuses, and what the job does after the training."""

    LORA = trainer.LoraConfig(lora_rank=4)

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (trainer.TRLTrainer(method="sft", config=MODEL, merge_adapter=True), "the job trains no adapter"),
            (trainer.TransformersTrainer(config=MODEL, merge_adapter=True), "the job trains no adapter"),
            (
                trainer.LlamaFactoryTrainer(
                    stage="sft", config={"dataset": "x", "finetuning_type": "full"}, merge_adapter=True
                ),
                "the job trains no adapter",
            ),
            (
                trainer.LlamaFactoryTrainer(
                    stage="sft", config={"dataset": "x", "pissa_init": True}, lora=LORA, merge_adapter=True
                ),
                'config["pissa_init"] is set',
            ),
        ],
    )
    def test_nothing_that_could_be_merged(self, made: ToolTrainer, expected: str) -> None:
        (said,) = found(made)
        assert said.startswith("merge_adapter: ") and expected in said and "Hint: " in said

    @pytest.mark.parametrize(
        "made",
        [
            trainer.TRLTrainer(method="sft", config=MODEL, lora=LORA, merge_adapter=True),
            trainer.TRLTrainer(method="sft", config={**MODEL, "use_peft": True}, merge_adapter=True),
            trainer.TransformersTrainer(config=MODEL, lora=LORA, merge_adapter=True),
            trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "x"}, merge_adapter=True),
        ],
    )
    def test_the_job_is_asked_to(self, made: ToolTrainer) -> None:
        assert found(made) == [] and made.arguments()["merge"] is True
        assert "merge" not in sft().arguments(), "the digest of other jobs stays"

    def test_it_is_a_yes_or_a_no(self) -> None:
        (said,) = found(trainer.TRLTrainer(method="sft", config=MODEL, lora=self.LORA, merge_adapter="x"))  # type: ignore[arg-type]
        assert said.startswith("merge_adapter: must be")

    @pytest.fixture
    def job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The output of a training, and a program that stands for the one that merges."""
        (tmp_path / "output" / "merged").mkdir(parents=True)
        (tmp_path / "output" / "merged" / "model.safetensors").write_text("of an earlier attempt")
        (tmp_path / "output" / ".merging").mkdir()
        (tmp_path / "output" / ".merging" / "half").touch()
        monkeypatch.setattr(finish_tool, "here", str(tmp_path))
        monkeypatch.setattr(finish_tool, "check_base", lambda *_: None)
        for name, value in {"OUTPUT_DIR": str(tmp_path / "output"), "DONE_FILE": str(tmp_path / "done")}.items():
            monkeypatch.setenv(f"TRAINER_{name}", value)
        monkeypatch.setenv("RANK", "0")
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        return tmp_path

    def ends(self, job: Path, program: str) -> list[str]:
        (job / "merge_adapter.py").write_text(f"import os, sys\nos.makedirs(sys.argv[3])\n{program}")
        config = {"model_name_or_path": "base", "output_dir": ""}
        with finish_tool.result({"merge": True}, config):
            (job / "output" / "adapter_model.safetensors").touch()
        return sorted(path.name for path in (job / "output").iterdir())

    def test_the_whole_model_takes_the_place_of_that_of_an_earlier_attempt(self, job: Path) -> None:
        text = "open(sys.argv[3] + '/model.safetensors', 'w').write(sys.argv[1] + os.environ.get('RANK', ''))"
        assert self.ends(job, text) == ["adapter_model.safetensors", "merged"]
        assert (job / "output" / "merged" / "model.safetensors").read_text() == "base"
        assert not (job / "output" / "merged" / "half").exists() and (job / "done").exists()

    def test_a_merge_that_fails_leaves_what_there_was_and_says_where_the_adapter_is(self, job: Path) -> None:
        with pytest.raises(SystemExit, match=r"the adapter could not be merged .* it is in .*/output. Hint: "):
            self.ends(job, "sys.exit(3)")
        assert (job / "output" / "merged" / "model.safetensors").read_text() == "of an earlier attempt"
        assert not (job / "done").exists()

    def test_a_base_model_with_quantized_weights_is_refused_before_the_training(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = list[tuple[str, dict[str, Any]]]()

        class AutoConfig:
            @staticmethod
            def from_pretrained(base: str, **options: Any) -> Any:
                asked.append((base, options))
                return SimpleNamespace(**({"quantization_config": {"bits": 4}} if base == "small" else {}))

        monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoConfig=AutoConfig))
        finish_tool.check_base("whole", {"model_revision": "v2"})
        with pytest.raises(SystemExit, match=r"merge_adapter: the weights of small are quantized.*Hint: "):
            finish_tool.check_base("small", {})
        assert asked == [("whole", {"revision": "v2"}), ("small", {})]

    def test_other_ranks_wait_and_only_those_of_other_nodes_call_their_container_complete(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited = list[bool]()
        monkeypatch.setattr(finish_tool, "rendezvous", waited.append)
        monkeypatch.setenv("RANK", "1")
        for node, complete in (("0", False), ("1", True)):
            monkeypatch.setenv("GROUP_RANK", node)
            assert self.ends(job, "") == [".merging", "adapter_model.safetensors", "merged"]
            assert (job / "done").exists() is complete
        assert waited == [False, False]


class TestMethods:
    def test_a_method_that_the_tool_does_not_have(self) -> None:
        (said, *_) = found(trainer.TRLTrainer(method="sftt", config={}))  # type: ignore[arg-type]
        assert "method: must be one of sft, dpo, kto, reward, grpo, rloo, distillation, not 'sftt'" in said
        assert "did you mean sft?" in said
        (said, *_) = found(trainer.LlamaFactoryTrainer(stage="dp", config={}))  # type: ignore[arg-type]
        assert "stage: must be one of sft, pt, dpo, kto, rm, not 'dp'" in said
        assert any("method: is required" in each for each in found(trainer.TRLTrainer(config={})))
        assert any("stage: is required" in each for each in found(trainer.LlamaFactoryTrainer(config={})))

    def test_distillation_has_a_teacher(self) -> None:
        (said,) = found(trainer.TRLTrainer(method="distillation", config=MODEL))
        assert 'config["teacher_model_name_or_path"]: is required' in said

    def test_a_stage_names_its_dataset(self) -> None:
        (said,) = found(trainer.LlamaFactoryTrainer(stage="sft", config={}))
        assert 'config["dataset"]: is required' in said
        (said,) = found(trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "a", "do_train": False}))
        assert 'config["do_train"]: is False: the job would train nothing' in said

    def test_a_tool_has_no_command(self) -> None:
        (said,) = found(trainer.TransformersTrainer(config={}, command=["x"]))  # type: ignore[call-arg]
        assert "command: unknown field" in said


class TestRewards:
    def test_completions_are_scored(self) -> None:
        (said,) = found(trainer.TRLTrainer(method="grpo", config=MODEL))
        assert "reward: is required: grpo has nothing that scores its completions" in said
        assert found(trainer.TRLTrainer(method="grpo", config=MODEL, reward=[])) == [said]
        for config in ({"reward_funcs": ["think_format_reward"]}, {"reward_model_name_or_path": "x"}):
            assert found(trainer.TRLTrainer(method="grpo", config={**MODEL, **config})) == []
        made = trainer.TRLTrainer(method="rloo", config=MODEL, reward=score)
        assert found(made) == [] and made.arguments()["rewards"] == ["score"]

    @pytest.mark.parametrize(
        ("reward", "expected"),
        [
            (few, "reward: few takes no **kwargs, but TRL also passes the columns of the dataset"),
            (later, "reward: later is an async function. Hint: def later(completions, **kwargs)"),
            (single, "reward: single takes completion, which TRL does not pass. Hint: did you mean completions"),
            (3, "reward: must be"),
            ([score, len], "reward[1]: must be a plain function, not builtin_function_or_method"),
            ([score, score], "reward[1]: a second function score"),
        ],
    )
    def test_a_function_that_trl_cannot_call(self, reward: Any, expected: str) -> None:
        said = found(trainer.TRLTrainer(method="grpo", config=MODEL, reward=reward))
        assert any(expected in each for each in said), said

    def test_only_where_completions_are_generated(self) -> None:
        (said,) = found(trainer.TRLTrainer(method="sft", config=MODEL, reward=score))
        assert "reward: scores completions, but sft generates none" in said
        made = trainer.TRLTrainer(method="grpo", config={**MODEL, "reward_funcs": ["x"]}, reward=score)
        assert 'config["reward_funcs"]: cannot be combined with reward, which sets it' in found(made)[0]

    def test_its_source_travels_and_what_would_be_lost_is_named(self, planned: Any) -> None:
        outside = 3

        def closes(completions: Any, **columns: Any) -> list[float]:
            return [outside for _ in completions]

        plan = planned(trainer.TRLTrainer(method="grpo", config=MODEL, reward=closes))
        assert any("trainer.reward: closes" in said and "outside" in said for said in problems(plan)), problems(plan)
        plan = planned(trainer.TRLTrainer(method="grpo", config=MODEL, reward=[score]))
        data = code(plan)
        assert "def score(completions: Any" in data["reward_0.py"]
        assert json.loads(data["func_args.json"]) == {"method": "grpo", "config": MODEL, "rewards": ["score"]}

    def test_a_wrong_number_of_scores_ends_the_training_with_its_name(self) -> None:
        checked = run_tool.checked(lambda completions, **_: [1.0])
        assert checked(completions=["a"], prompts=["b"]) == [1.0] and checked.__name__ == "<lambda>"
        with pytest.raises(SystemExit, match=r"returned 1 value for 2 completions"):
            checked(completions=["a", "b"])
        with pytest.raises(SystemExit, match=r"returned None for 1 completions"):
            run_tool.checked(lambda completions, **_: None)(completions=["a"])

    @pytest.mark.parametrize(
        ("scores", "expected"),
        [
            (["good", "bad"], "returned str 'good' as score 0 for 2 completions"),
            ([1.0, "1"], "returned str '1' as score 1 for 2"),
            ([None, [0.5, 1]], r"returned list \[0.5, 1\] as score 1 for 2"),
            ("ab", "returned str 'ab' for 2"),
            ({"a": 1.0, "b": 2.0}, "returned dict {'a': 1.0, 'b': 2.0} for 2"),
            (0.5, "returned float 0.5 for 2"),
            (["x" * 1000, 1.0], r"returned str 'x{99}\.\.\. as score 0 for 2"),
        ],
    )
    def test_what_is_not_a_number_for_each_completion_is_named(self, scores: Any, expected: str) -> None:
        """TRL alone says: too many dimensions 'str'."""
        hint = r"Hint: return one number for each completion, or None for one that it cannot score"
        with pytest.raises(SystemExit, match=rf"the reward function <lambda> {expected}.*{hint}"):
            run_tool.checked(lambda completions, **_: scores)(completions=["a", "b"])

    @pytest.mark.parametrize("scores", [[1, None], (True, 0.5), [Fraction(1, 2), 0], range(2)])
    def test_what_is_a_number_is_passed_on(self, scores: Any) -> None:
        assert run_tool.checked(lambda completions, **_: scores)(completions=["a", "b"]) is scores

    def test_an_exception_ends_the_training_with_its_name_and_its_line(self) -> None:
        def divides(completions: Any, **columns: Any) -> list[float]:
            return [1 / 0 for _ in completions]

        expected = (
            r"pulumi-trainer: the reward function divides raised ZeroDivisionError in line \d+, `return \[1 / 0.*`: div"
        )
        with pytest.raises(SystemExit, match=expected):
            run_tool.checked(divides)(completions=["a"])

    def test_its_traceback_names_the_file_and_the_lines_of_the_user(
        self, planned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = code(planned(trainer.TRLTrainer(method="grpo", config=MODEL, reward=[score, raises])))
        for name, text in data.items():
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(run_tool, "here", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        scores, raising = run_tool.rewards(["score", "raises"])
        assert scores(completions=["a"]) == score(completions=["a"])
        line = raises.__code__.co_firstlineno + 1
        with pytest.raises(SystemExit, match=rf"in line {line}, `return completions\[len\(columns\) \+ 9\]"):
            raising(completions=["a"])
        shown = with_user_tracebacks(capsys.readouterr().err)
        name = entry_source.file_name(Path(__file__))
        assert f'  File "{name}", line {line}, in raises\n    return completions[len(columns) + 9]' in shown


def code(plan: Plan) -> dict[str, str]:
    assert problems(plan) == []
    (found,) = [o["data"] for name, o in plan.objects.items() if name.startswith("ConfigMap/")]
    return dict(found)


class TestJob:
    def test_the_model_would_be_lost(self, planned: Any) -> None:
        said = problems(planned(sft(), output=False))
        assert any(
            'trainer.config["output_dir"]: is not set, and the job has no output volume' in each for each in said
        )

    @pytest.mark.parametrize("made", [trl, language, factory, tune])
    def test_the_folder_of_the_result_is_the_output_volume(self, planned: Any, made: Any) -> None:
        (said,) = problems(planned(made({"output_dir": "odir"})))
        assert 'trainer.config["output_dir"]: cannot be combined with output=, which sets it. Hint: leave one' in said
        assert problems(planned(made({"output_dir": "/workspace/output/run-7"}))) == []

    @pytest.mark.parametrize("made", [trl, language, factory, tune])
    @pytest.mark.parametrize("path", ["./results", "/tmp/torchtune", "/data/../results", "/scratch/results"])
    def test_a_result_outside_of_the_volumes_would_be_lost(self, planned: Any, made: Any, path: str) -> None:
        pod = trainer.PodPatch(
            volumes=[
                {"name": "team", "persistentVolumeClaim": {"claimName": "team"}}, {"name": "scratch", "emptyDir": {}},
            ],
            containers=[
                trainer.ContainerPatch(
                    name="node",
                    volume_mounts=[
                        {"name": "team", "mountPath": "/data"}, {"name": "scratch", "mountPath": "/scratch"},
                    ],
                )
            ],
        )  # fmt: skip
        jobs = [trainer.JobPatch(name="node", pod=pod)]
        patched = {"runtime_patches": [trainer.RuntimePatch(manager="program.dev/here", jobs=jobs)], "output": False}
        (said,) = problems(planned(made({"output_dir": path}), **patched))
        assert (
            f'trainer.config["output_dir"]: is {path!r}, which is on no volume that outlives the Pods of the job'
            in said
        )
        assert "give the job output=True" in said
        assert problems(planned(made({"output_dir": "/data/results"}), **patched)) == []

    def test_a_result_of_this_machine_stays_in_an_absolute_path(self, planned: Any) -> None:
        (said,) = problems(planned(sft(output_dir="results"), output=False, target=trainer.Local()))
        assert "is 'results', which is on no volume that outlives the Pods" in said
        assert problems(planned(sft(output_dir="/data/results"), output=False, target=trainer.Local())) == []

    def test_model_and_dataset_are_given_once(self, planned: Any) -> None:
        inline = trainer.Initializer(model=trainer.HuggingFaceModelInitializer(storage_uri="hf://org/model"))
        said = problems(planned(sft(), initializer=inline))
        assert any('config["model_name_or_path"]: cannot be combined with the model of initializer=' in s for s in said)
        for config in ({}, None):
            said = problems(planned(trainer.TRLTrainer(method="sft", config=config)))
            assert any('config["model_name_or_path"]: is required: the job has no model' in each for each in said)
            assert any('config["dataset_name"]: is required: the job has no dataset' in each for each in said)
        mixed = {"model_name_or_path": "m", "datasets": [{"path": "x"}]}
        assert problems(planned(trainer.TRLTrainer(method="sft", config=mixed))) == []

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("datasets", [{"path": "org/other"}]),
            ("datasets", [{"path": "/workspace/dataset/a"}, {"path": "json", "data_files": ["s3://b/x.jsonl"]}]),
            ("tokenized_path", "/data/tokenized"),
        ],
    )
    def test_what_a_tool_reads_in_place_of_its_dataset_is_given_once_too(
        self, planned: Any, field: str, value: Any
    ) -> None:
        fetched = trainer.Initializer(dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://org/data"))
        made: trainer.TRLTrainer | trainer.LlamaFactoryTrainer
        if field == "datasets":
            made = trainer.TRLTrainer(method="sft", config={"model_name_or_path": "m", field: value})
        else:
            made = trainer.LlamaFactoryTrainer(
                stage="sft", config={"model_name_or_path": "m", "dataset": "x", field: value}
            )
        (said,) = problems(planned(made, initializer=fetched))
        place = f'config["{field}"]'
        if field == "datasets":
            place += f"[{len(value) - 1}]"
        assert f"{place}: cannot be combined with the dataset of initializer=" in said
        assert "or give a path below /workspace/dataset" in said
        assert problems(planned(made)) == []

    def test_parts_of_the_initializers_dataset_may_be_mixed(self, planned: Any) -> None:
        fetched = trainer.Initializer(dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://org/data"))
        parts = [
            {"path": "/workspace/dataset/a"},
            {"path": "json", "data_files": {"train": "/workspace/dataset/b.jsonl"}},
        ]
        mixed = trainer.TRLTrainer(method="sft", config={"model_name_or_path": "m", "datasets": parts})
        said = problems(planned(mixed, initializer=fetched))
        assert [each for each in said if "must have dataset-initializer job" not in each] == []

    def test_a_checkpoint_policy_sets_what_the_tool_would(self, planned: Any) -> None:
        policy = trainer.CheckpointPolicy(steps=10)
        for name, value in {"save_steps": 5, "save_strategy": "no", "save_total_limit": 2, "output_dir": "/x"}.items():
            said = problems(planned(sft(**{name: value}), checkpoint=policy))
            assert any(
                f'config["{name}"]: cannot be combined with checkpoint=, which sets it' in each for each in said
            ), said
        assert problems(planned(sft(save_steps=5), checkpoint=trainer.CheckpointPolicy())) == []

    def test_a_runtime_of_another_framework(self, planned: Any) -> None:
        said = problems(planned(sft(), runtime="jax-distributed"))
        assert any("TRL is started by torchrun, and the framework of this runtime is jax" in each for each in said), (
            said
        )
        assert problems(planned(sft(), runtime="torch-distributed")) == []

    def test_packages_of_the_tool_come_first_and_are_not_part_of_the_digest(
        self, planned: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = trainer.TRLTrainer(method="sft", config=MODEL, packages_to_install=["wandb"])
        plan = planned(made)
        launch = json.loads(code(plan)["launch.json"])
        assert launch["install"] == [*table("trl")["packages"], "wandb"]
        assert launch["launcher"] == ["torchrun"] and "modules" in launch
        monkeypatch.setitem(table("trl"), "packages", ["trl==2"])
        again = planned(made)
        assert json.loads(code(again)["launch.json"])["install"] == ["trl==2", "wandb"]
        assert again.content == plan.content, "another release of this package starts no run"

    @pytest.mark.parametrize(
        ("field", "policy", "why"),
        [
            ("load_best_model_at_end", {"steps": 10}, "needs checkpoints after each evaluation"),
            ("load_best_model_at_end", {"every": "10m"}, "needs checkpoints after each evaluation"),
            ("load_best_model_at_end", {}, ""),
            ("push_to_hub", {}, "would upload the checkpoints of checkpoint= too"),
            ("push_to_hub", {"to": "s3://bucket/x"}, ""),
        ],
    )
    def test_fields_that_do_not_work_with_a_policy(
        self, planned: Any, field: str, policy: dict[str, Any], why: str
    ) -> None:
        said = problems(planned(sft(**{field: True}), checkpoint=trainer.CheckpointPolicy(**policy)))
        assert len(said) == bool(why) and all(f'trainer.config["{field}"]: {why}' in each for each in said), said

    @pytest.mark.parametrize(
        ("package", "why"),
        [
            ("transformers==5.20.0", "is another release than transformers 5.23.0, with which TRL is installed"),
            ("Transformers @ https://example.com/t.whl", "is another release than Transformers 5.23.0"),
            ("numpy<2", "is another release than numpy"),
            ("transformers>=5", ""),
            ("wandb", ""),
        ],
    )
    def test_packages_that_pip_could_not_install_beside_those_of_the_tool(
        self, planned: Any, package: str, why: str
    ) -> None:
        made = trainer.TRLTrainer(method="sft", config=MODEL, packages_to_install=["--pre", package])
        said = problems(planned(made))
        assert len(said) == bool(why) and all("packages_to_install[1]" in each and why in each for each in said), said

    def test_a_stage_that_llama_factory_cannot_resume(self, planned: Any) -> None:
        for stage, refused in (("rm", True), ("sft", False)):
            made = trainer.LlamaFactoryTrainer(stage=stage, config={**MODEL, "dataset": "x"})  # type: ignore[arg-type]
            said = problems(planned(made, checkpoint=trainer.CheckpointPolicy(steps=10)))
            assert any("trainer.stage: LLaMA-Factory cannot resume rm" in each for each in said) is refused, said

    @pytest.mark.parametrize(
        ("resources", "gpu"), [({"gpu": 0}, False), ({"gpu": 2}, True), ({"nvidia.com/gpu": "0"}, False)]
    )
    def test_no_gpus_are_none(self, resources: dict[str, Any], gpu: bool) -> None:
        assert asks_for_gpu(resources) is gpu and asks_for_gpu({"limits": resources}) is gpu

    def test_fields_of_an_output_are_checked_against_the_job(self, planned: Any) -> None:
        def made(**config: Any) -> Any:
            return lambda: trainer.TRLTrainer(
                method="sft", config=pulumi.Output.from_input(config), lora=trainer.LoraConfig(lora_rank=8)
            )

        assert problems(planned(made(**MODEL))) == []
        said = " ".join(problems(planned(made(dataset_name="org/data"), output=False)))
        assert 'trainer.config["model_name_or_path"]: is required: the job has no model' in said
        assert "the trained model would be lost" in said
        policy = trainer.CheckpointPolicy(steps=10)
        (said,) = problems(planned(made(**MODEL, save_steps=5), checkpoint=policy))
        assert 'trainer.config["save_steps"]: cannot be combined with checkpoint=' in said
        (said,) = problems(planned(made(**MODEL, lora_r=4)))
        assert 'trainer.config["lora_r"]: cannot be combined with lora, which sets it' in said
        needs = problems(planned(made(**MODEL, load_in_8bit=True)))
        assert "trainer.config: quantization of TRL needs a GPU" in needs[0]
        assert "trainer.packages_to_install: quantization of TRL needs bitsandbytes" in needs[1]
        secret = planned(lambda: trainer.TRLTrainer(method="sft", config=pulumi.Output.secret({**MODEL, "seed": 4711})))
        assert problems(secret) == [] and "4711" not in as_json(secret.objects)

    def test_a_folder_below_the_output_is_kept(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TRAINER_OUTPUT_DIR", str(tmp_path))
        monkeypatch.setattr(run_tool.training, "_known", {})
        monkeypatch.delenv("TRAINER_CHECKPOINT_DIR", raising=False)
        chosen = run_tool.in_output("/workspace/output/run-7")
        assert chosen == f"{tmp_path}/run-7" == run_tool.result_folder(chosen)
        for elsewhere in ("out", "/workspace/outputs", None):
            assert run_tool.in_output(elsewhere) == elsewhere
            assert run_tool.result_folder(elsewhere) == str(tmp_path), "what is outside of the volume would be lost"
        monkeypatch.setattr(run_tool.training, "_known", {})
        monkeypatch.setenv("TRAINER_CHECKPOINT_DIR", f"{tmp_path}/checkpoints")
        assert run_tool.result_folder(f"{tmp_path}/checkpoints") == str(tmp_path)

    def test_checkpoints_in_s3_are_no_place_for_the_model(self, planned: Any) -> None:
        policy = trainer.CheckpointPolicy(steps=10, to="s3://bucket/checkpoints")
        (said,) = problems(planned(sft(), output=False, checkpoint=policy))
        assert "the trained model would be lost. Hint: give the job output=True" in said
        assert problems(planned(sft(), output=True, checkpoint=policy)) == []

    def test_a_secret_field_is_in_no_object(self, planned: Any) -> None:
        plan = planned(lambda: sft(hub_token=pulumi.Output.secret("hf_" + "x" * 30)))
        assert problems(plan) == []
        assert "hf_xxx" not in as_json(plan.objects)
        assert json.loads(code(plan)["launch.json"])["secrets"] == [["config", "hub_token"]], (
            "messages hide no other field"
        )
        assert "secrets" not in json.loads(code(planned(sft()))["launch.json"])
        said = problems(planned(sft(hub_token="hf_" + "x" * 34)))
        assert any("secret" in each for each in said), said

    def test_a_secret_that_the_tool_would_print_is_refused(self, planned: Any) -> None:
        def config() -> dict[str, Any]:
            return {
                "checkpointer.checkpoint_dir": "/models/llama", "metric_logger.log_dir": pulumi.Output.secret("hush"),
            }  # fmt: skip

        (said,) = problems(
            planned(
                lambda: trainer.TorchTuneTrainer(
                    recipe="lora_finetune_distributed", base="llama3_2/1B_lora", config=config()
                )
            )
        )
        assert said == (
            "trainer.config: has a secret value, but torchtune writes its configuration into log and output. "
            "Hint: read it from a variable of env, which may be secret"
        )

    def test_a_plain_secret_is_named_by_its_field(self, planned: Any) -> None:
        (said,) = problems(planned(sft(hub_token="hf_" + "x" * 34)))
        assert said.startswith("trainer.config.hub_token: is a plain-text secret"), said

    def test_a_missing_field_and_the_misspelt_one_are_said_together(self, planned: Any) -> None:
        made = trainer.TRLTrainer(method="sft", config={"modelname_or_path": "m", "dataset_name": "d"})
        assert problems(planned(made)) == [
            'trainer.config["model_name_or_path"]: is required: the job has no model. '
            "Hint: give its name or path here, or initializer=Initializer(model=...)",
            'trainer.config["modelname_or_path"]: unknown field of sft in TRL 1.16.0. '
            "Hint: did you mean model_name_or_path?",
        ]

    def test_a_value_that_is_not_json(self, planned: Any) -> None:
        (said,) = problems(planned(sft(model_init_kwargs={"x": {1, 2}})))
        assert 'trainer.config["model_init_kwargs"]["x"]' in said and "set" in said


class TestRenderedJob:
    """What the number of processes and the volumes of a job mean for the tool's fields."""

    @pytest.mark.parametrize(
        ("method", "config", "nodes", "gpus", "expected"),
        [
            ("grpo", {"per_device_train_batch_size": 4}, 1, 1, "the generation batch (4 per device * 1 rank * 1 step)"),
            ("grpo", {"per_device_train_batch_size": 4}, 2, 8, ""),
            ("grpo", {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}, 1, 1, ""),
            ("grpo", {"per_device_train_batch_size": 2, "steps_per_generation": 3}, 1, 1, "(2 per device * 1 rank * 3 steps)"),
            ("grpo", {"generation_batch_size": 20}, 1, 2, "is 20, and the global batch size (8 per device * 2 ranks)"),
            ("grpo", {"generation_batch_size": 16, "num_generations": 3}, 1, 2, "is 3, and generation_batch_size (16) must"),
            ("grpo", {"generation_batch_size": 16, "steps_per_generation": 1}, 1, 2, "is set, and so is steps_per_generation"),
            ("rloo", {"per_device_train_batch_size": 3}, 1, 1, 'config["num_generations"]: is 2, and'),
            ("rloo", {"num_generations": 1}, 1, 1, 'config["num_generations"]: must be at least 2, not 1'),
            ("rloo", {}, 3, 3, ""),
        ],
    )  # fmt: skip
    def test_a_batch_has_all_generations_of_each_prompt(
        self, method: Any, config: dict[str, Any], nodes: int, gpus: int, expected: str, planned: Any
    ) -> None:
        resources = {"gpu": gpus}
        made = trainer.TRLTrainer(
            method=method, config={**MODEL, **config}, reward=score, num_nodes=nodes, resources_per_node=resources
        )
        said = problems(planned(made))
        assert len(said) == bool(expected) and expected in "".join(said), said

    def test_the_number_of_processes_is_that_of_the_job(self, planned: Any) -> None:
        given: dict[str, Any] = {"method": "grpo", "config": {**MODEL, "num_generations": 5}, "reward": score}
        made = trainer.TRLTrainer(**given, num_nodes=5, num_proc_per_node=3)
        assert problems(planned(made)) == []
        made = trainer.TRLTrainer(**given, num_nodes=1, resources_per_node={"cpu": 3})
        assert "(8 per device * 3 ranks * 1 step)" in problems(planned(made))[0]
        unknown = {**given, "config": {**MODEL, "per_device_train_batch_size": Unknown("x")}}
        assert problems(planned(trainer.TRLTrainer(**unknown, num_nodes=1, num_proc_per_node=3))) == []

    def test_a_path_of_this_machine_that_no_pod_has(self, planned: Any, tmp_path: Path) -> None:
        def warned(config: dict[str, Any], **arguments: Any) -> list[str]:
            plan = planned(sft(**config), **arguments)
            assert problems(plan) == []
            return [str(each) for each in plan.warnings if "is on this machine" in str(each)]

        (said,) = warned({"model_name_or_path": str(tmp_path)})
        assert said.startswith(f'trainer.config["model_name_or_path"]: {tmp_path} is on this machine, and no volume of')
        assert warned({"model_name_or_path": str(tmp_path / "absent"), "dataset_name": "tests/unit"}) == []
        assert warned({"dataset_name": str(tmp_path)}, target=trainer.Local()) == []
        absent = sft(model_name_or_path=str(tmp_path / "absent"), dataset_name="data")
        (said,) = problems(planned(absent, target=trainer.Local()))
        assert f'trainer.config["model_name_or_path"]: {tmp_path}/absent does not exist on this machine' in said
        after = pulumi.ResourceOptions(depends_on=[])
        assert problems(planned(absent, target=trainer.Local(), opts=after)) == [], "another job may write it before"
        mounted = trainer.RuntimePatch(
            manager="program.dev/here",
            jobs=[
                trainer.JobPatch(
                    name="node",
                    pod=trainer.PodPatch(
                        volumes=[{"name": "own", "emptyDir": {}}],
                        containers=[
                            trainer.ContainerPatch(
                                name="node", volume_mounts=[{"name": "own", "mountPath": str(tmp_path.parent)}]
                            )
                        ],
                    ),
                )
            ],
        )
        assert warned({"model_name_or_path": str(tmp_path)}, runtime_patches=[mounted]) == []


CASES = {
    "trl-sft": lambda **nodes: trainer.TRLTrainer(
        method="sft", config={**MODEL, "max_steps": 100}, lora=trainer.LoraConfig(lora_rank=16, lora_alpha=32), **nodes
    ),
    "trl-grpo": lambda **nodes: trainer.TRLTrainer(method="grpo", config=MODEL, reward=score, **nodes),
    "trl-grpo-server": lambda **nodes: trainer.TRLTrainer(
        method="grpo",
        config=MODEL,
        reward=score,
        generation=trainer.GenerationServer(resources_per_node=nodes["resources_per_node"]),
        **nodes,
    ),
    "transformers": lambda **nodes: trainer.TransformersTrainer(config=MODEL, **nodes),
    "llamafactory-dpo": lambda **nodes: trainer.LlamaFactoryTrainer(
        stage="dpo", config={"model_name_or_path": "org/model", "dataset": "dpo_en_demo", "template": "llama3"}, **nodes
    ),
    "torchtune-lora": lambda **nodes: trainer.TorchTuneTrainer(
        recipe="lora_finetune_distributed",
        base="llama3_2/1B_lora",
        config={"checkpointer.checkpoint_dir": "/models/llama", "epochs": 2},
        lora=trainer.LoraConfig(lora_rank=16, lora_alpha=32),
        **nodes,
    ),
    "unsloth": lambda **nodes: trainer.UnslothTrainer(config=UNSLOTH, **nodes),
    "unsloth-lora": lambda **nodes: trainer.UnslothTrainer(
        config=UNSLOTH, lora=trainer.LoraConfig(lora_rank=16), **nodes
    ),
    "unsloth-qlora": lambda **nodes: trainer.UnslothTrainer(
        config=UNSLOTH, lora=trainer.LoraConfig(quantize_base=True), merge_adapter=True, **nodes
    ),
}


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("case", CASES)
def test_the_jobset_is_the_recorded_one(case: str, gpus: int, nodes: int, planned: Any) -> None:
    """Remove a file below recorded/fine-tuning, and run this test, to record it again."""
    policy = trainer.CheckpointPolicy(steps=None if case.startswith("torchtune") else 50, grace=120)
    plan = planned(CASES[case](num_nodes=nodes, resources_per_node={"gpu": gpus}), checkpoint=policy)
    data = code(plan)
    jobset = next(o for name, o in plan.objects.items() if name.startswith("JobSet/"))
    env = {e["name"]: e.get("value") for e in _container(jobset)["env"]}
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == (str(nodes), "auto"), "one process for each GPU"
    is_recorded(
        f"{case}-{nodes}x{gpus}",
        {"jobset": jobset, "arguments": json.loads(data["func_args.json"]), "files": sorted(data)},
    )


LORA = trainer.LoraConfig(lora_rank=16, lora_alpha=32)
BUILT_IN = {
    "builtin-full": None,
    "builtin-lora": LORA,
    "builtin-qlora": trainer.LoraConfig(quantize_base=True),
    "builtin-dora": trainer.LoraConfig(use_dora=True),
}


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("case", BUILT_IN)
def test_the_jobset_of_the_image_of_torchtune_is_the_recorded_one(
    case: str, gpus: int, nodes: int, planned: Any
) -> None:
    """Trainer's webhook accepts LoRA on one node alone, and QLoRA on one GPU."""
    config = trainer.TorchTuneConfig(peft_config=BUILT_IN[case], num_nodes=nodes, resources_per_node={"gpu": gpus})
    initializer = trainer.Initializer(
        dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://org/data"),
        model=trainer.HuggingFaceModelInitializer(storage_uri="hf://org/model"),
    )
    runtime = "torchtune-llama3.3-70b" if case == "builtin-full" else "torchtune-llama3.2-1b"
    plan = planned(lambda: trainer.BuiltinTrainer(config=config), runtime=runtime, initializer=initializer)
    if (case != "builtin-full" and nodes > 1) or (case == "builtin-qlora" and gpus > 1):
        assert any("for llama3_2/1B model" in said for said in problems(plan)), problems(plan)
        return
    assert problems(plan) == []
    is_recorded(f"{case}-{nodes}x{gpus}", next(o for name, o in plan.objects.items() if name.startswith("JobSet/")))


def is_recorded(name: str, made: Any) -> None:
    file = RECORDED / f"{name}.json"
    if not file.exists():
        file.write_text(as_json(made, indent=1, sort_keys=True) + "\n")
        pytest.fail(f"{file} is recorded now: look at it, and run the test again")
    assert json.loads(as_json(made)) == json.loads(file.read_text())


def as_json(value: Any, **options: Any) -> str:
    """A document as JSON, in which an unknown value is the word that stands for it."""
    return json.dumps(value, default=lambda unknown: f"<{unknown.token}>", **options)


def _container(jobset: dict[str, Any]) -> dict[str, Any]:
    job = next(each for each in jobset["spec"]["replicatedJobs"] if each["name"] == "node")
    return dict(job["template"]["spec"]["template"]["spec"]["containers"][0])


def test_the_guide_says_what_is_tested() -> None:
    """After a change: python -m tests.fine_tuning.methods."""
    assert methods.written_table() == methods.table()
    covered = {(method.tool, method.method.partition("+")[0]) for method in methods.METHODS}
    assert {name for tool, name in covered if tool == "TRL"} == set(table("trl")["methods"])
    assert {name for tool, name in covered if tool == "LLaMA-Factory"} == set(table("llamafactory")["methods"])
    assert {name for tool, name in covered if tool == "torchtune"} == set(table("torchtune")["methods"])


def test_what_the_guide_calls_tested_is_tested() -> None:
    """tests/fine_tuning/test_methods.py trains the methods of its tools, and test_generation.py those with a server."""
    assert {method.tool for method in methods.METHODS} == set(test_methods.TOOLS)
    assert not [method for method in methods.METHODS if method.served and method.first]
    assert len({test_methods.name_of(method) for method in methods.METHODS}) == len(methods.METHODS)
    assert [method.name for method in methods.METHODS if not method.resumes] == ["llama-factory-rm-lora"]
    rendered = {name for names in methods.RENDERED.values() for name in names.values()}
    assert rendered <= {*CASES, *BUILT_IN}


def test_the_jobsets_of_each_tool_are_recorded() -> None:
    cases = {table(tool)["tool"] for tool in TOOLS}
    assert {made(num_nodes=1, resources_per_node={"gpu": 1}).tool for made in CASES.values()} == cases


def test_the_guide_shows_the_message() -> None:
    (said,) = found(sft(learning_rat=1e-4))
    (block,) = blocks("docs/guides/fine-tuning.md", __file__)
    assert block.text.endswith(f"{said}\n")


ARGS: dict[str, Any] = {
    "fp16": False, "world_size": 1, "per_device_train_batch_size": 8, "output_dir": "/out", "max_steps": -1,
    "resume_from_checkpoint": None, "learning_rate": 1e-5, "num_train_epochs": 1, "gradient_accumulation_steps": 1,
}  # fmt: skip


class Weight:
    """What is asked of a tensor of one number."""

    requires_grad = True

    def __init__(self, value: float) -> None:
        self.value = value

    def is_floating_point(self) -> bool:
        return True

    def detach(self) -> Weight:
        return self

    def isfinite(self) -> Weight:
        return self

    def all(self) -> bool:
        return math.isfinite(self.value)


class TestInTheJob:
    """What the program of a tool does before it calls the tool."""

    @pytest.fixture
    def here(self, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
        for name in list(os.environ):
            if name.startswith("TRAINER_"):
                monkeypatch.delenv(name)
        monkeypatch.setattr(run_tool, "device", lambda given: {})
        monkeypatch.setattr(run_tool.training, "_known", {})
        return monkeypatch

    @pytest.fixture
    def end(self, here: pytest.MonkeyPatch, tmp_path: Path) -> Any:
        """Trains as Transformers does, and returns what the job has said of the end."""
        module = types.ModuleType("transformers")
        module.TrainerCallback = object  # type: ignore[attr-defined]
        module.Trainer = type("Trainer", (), {"train": None})  # type: ignore[attr-defined]
        here.setitem(sys.modules, "transformers", module)
        here.setattr(run_tool.training, "callback", lambda: None)
        here.setenv("TRAINER_FINAL_FILE", str(tmp_path / "final"))

        def train(
            first: int, last: int, total: int, logs: Any = (), weight: float = 1.0, batches: int = 1, **fields: Any
        ) -> str:  # fmt: skip
            (tmp_path / "final").unlink(missing_ok=True)
            args = SimpleNamespace(**{**ARGS, **fields})
            (_, callback) = run_tool.callbacks()
            state = SimpleNamespace(global_step=first, max_steps=total, epoch=None)
            optimizer, schedule = SimpleNamespace(param_groups=[{"lr": 1e-5}]), SimpleNamespace(base_lrs=[1e-5])
            callback.on_train_begin(args, state, None, optimizer=optimizer, lr_scheduler=schedule)
            state = SimpleNamespace(global_step=last, max_steps=total)
            for each in logs:
                callback.on_log(args, state, None, logs=each)
            loader = type("Loader", (), {"dataset": range(120), "__len__": lambda _: batches})()
            model = SimpleNamespace(named_parameters=lambda: [("layer.weight", Weight(weight))])
            try:
                callback.on_train_end(args, state, None, model=model, train_dataloader=loader)
            except SystemExit as ended:
                assert (tmp_path / "final").exists(), "it is not tried again"
                return str(ended.code)
            assert not (tmp_path / "final").exists()
            return ""

        return train

    def test_a_training_without_a_step_fails(self, end: Any, capsys: pytest.CaptureFixture[str]) -> None:
        assert end(0, 4, 4) == ""
        said = end(0, 0, 4, batches=0, per_device_train_batch_size=4096, world_size=2)
        assert (
            "0 of 4 steps were done: the dataset has 120 rows, fewer than a batch of 8192 (4096 per device * 2 ranks), and "
            "dataloader_drop_last leaves them out, so the model is not trained. Hint: a smaller"
        ) in said
        assert "0 of 0 steps were done, so the model is not trained" in end(0, 0, 0)
        assert "0 of 2 steps were done" in end(2, 2, 4)
        assert "nothing was left" not in capsys.readouterr().out

    def test_a_run_that_has_nothing_left_to_do_has_not_failed(
        self, end: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert end(4, 4, 4) == end(300, 300, 120) == ""
        said = capsys.readouterr().out
        assert "nothing was left to do (0 steps): the checkpoint is of step 300 of 120" in said

    def test_transformers_does_no_step_beyond_the_last_one(self, end: Any) -> None:
        calls = list[str]()
        (_, callback) = run_tool.callbacks()
        callback.first = 12
        handler = SimpleNamespace(on_train_end=lambda *_: calls.append("end"))
        trained = SimpleNamespace(
            callback_handler=handler, args=None, control=None, state=SimpleNamespace(global_step=12)
        )
        utils = types.ModuleType("transformers.trainer_utils")
        utils.TrainOutput = lambda *given: given  # type: ignore[attr-defined]
        sys.modules["transformers.trainer_utils"] = utils

        def train(trainer: Any, total: int) -> str:
            callback.on_epoch_begin(None, SimpleNamespace(max_steps=total), None)
            return "trains"

        assert run_tool.up_to_the_last_step(train)(trained, 12) == (12, 0.0, {}) and calls == ["end"]
        assert run_tool.up_to_the_last_step(train)(trained, 13) == "trains"
        del sys.modules["transformers.trainer_utils"]

    def test_epochs_that_have_another_number_of_steps_than_the_checkpoint_fail(self) -> None:
        loader = SimpleNamespace(dataset=range(8000))

        def of(step: int, epoch: float, total: int, **fields: Any) -> str:
            args = SimpleNamespace(**{**ARGS, **fields})
            fault = run_tool.length_fault(args, SimpleNamespace(global_step=step, max_steps=total, epoch=epoch), loader)
            return " ".join(fault or ())

        assert (
            "the checkpoint of step 500 is at epoch 0.5, but with a batch of 16 (8 per device * 2 ranks) an epoch of 8000 rows"
            " has 500 steps, so the run would go on at epoch 1 of 1"
        ) in of(500, 0.5, 500, world_size=2)
        assert "a batch of 32 (8 per device * 1 rank * 4 accumulated)" in of(
            500, 0.5, 250, gradient_accumulation_steps=4
        )
        assert of(500, 0.5, 500, world_size=2, max_steps=500) == ""
        assert (
            of(500, 0.5, 1000) == of(1000, 1.0, 3000, num_train_epochs=3) == of(3, 1.5, 5, num_train_epochs=2.5) == ""
        )

    def test_the_learning_rate_is_that_of_the_job_also_after_a_checkpoint(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        groups = [{"lr": 0.05, "initial_lr": 0.1}, {"lr": 0.5, "initial_lr": 1.0}]
        schedule = SimpleNamespace(base_lrs=[0.1, 1.0])
        run_tool.set_learning_rate(0.01, [SimpleNamespace(param_groups=groups)], SimpleNamespace(scheduler=schedule))
        rates = [*groups[0].values(), *groups[1].values(), *schedule.base_lrs]
        assert rates == pytest.approx([0.005, 0.01, 0.05, 0.1, 0.01, 0.1])
        assert schedule._last_lr == pytest.approx([0.005, 0.05]), "Transformers logs them for the next step"
        assert "the learning rate is 0.01, and not that of the checkpoint, 0.1\n" in capsys.readouterr().out
        run_tool.set_learning_rate(0.01, [SimpleNamespace(param_groups=groups)], schedule)
        assert capsys.readouterr().out == ""
        alone = [SimpleNamespace(param_groups=[{"lr": 0.1}]) for _ in range(2)]
        run_tool.set_learning_rate(0.2, alone, None)
        assert [each.param_groups[0]["lr"] for each in alone] == [0.2, 0.2]
        capsys.readouterr()
        run_tool.set_learning_rate(0.3, alone, SimpleNamespace())
        assert (
            "the learning rate is that of the checkpoint, 0.2, which SimpleNamespace decides" in capsys.readouterr().out
        )

    def test_the_fields_of_adamw_are_those_of_the_job_also_after_a_checkpoint(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def resumed(optim: str = "OptimizerNames.ADAMW_TORCH", decay: float = 0.01) -> list[dict[str, Any]]:
            groups = [{"weight_decay": decay, "betas": [0.9, 0.999], "eps": 1e-8}, {"weight_decay": 0.0, "eps": 1e-8}]
            fields = {"weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-8}
            run_tool.set_adam_fields(SimpleNamespace(optim=optim, **fields), SimpleNamespace(param_groups=groups))
            return groups

        assert resumed() == [
            {"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-8},
            {"weight_decay": 0.0, "eps": 1e-8},
        ]
        said = capsys.readouterr().out
        assert "weight_decay is 0.1, and not that of the checkpoint, 0.01" in said
        assert "betas is (0.9, 0.95), and not that of the checkpoint, [0.9, 0.999]" in said and "eps" not in said
        assert [group["weight_decay"] for group in resumed("adamw_torch", 0.0)] == [0.0, 0.0]
        assert "weight_decay stays that of the checkpoint, 0, and is not 0.1" in capsys.readouterr().out
        assert resumed("OptimizerNames.ADAFACTOR")[0]["weight_decay"] == 0.01
        assert capsys.readouterr().out == ""

    def test_a_training_that_ends_with_nan_fails(self, end: Any) -> None:
        nan = float("nan")
        said = end(0, 4, 4, [{"loss": 2.0}, {"loss": nan, "grad_norm": 1.0}, {"train_runtime": 1.0}])
        assert "loss is nan at the end of the training, so the model is not usable. Hint: a lower" in said
        assert "eval_loss is inf at the end" in end(0, 4, 4, [{"loss": 1.0, "eval_loss": float("inf")}])
        assert end(0, 4, 4, [{"loss": nan}, {"loss": 1.0, "rewards/chosen": nan}]) == ""
        assert "layer.weight is not finite at the end" in end(0, 4, 4, [{"loss": 0.0}], weight=nan)

    def test_the_scaler_of_fp16_skips_some_steps_but_not_all(self, end: Any) -> None:
        nan = {"loss": 1.0, "grad_norm": float("nan")}
        assert end(0, 4, 4, [{"loss": 1.0, "grad_norm": 2.0}, nan], fp16=True) == ""
        assert "grad_norm is nan" in end(0, 4, 4, [nan, nan], fp16=True)
        assert "grad_norm is nan" in end(0, 4, 4, [{"grad_norm": 2.0}, nan])

    def test_the_job_sets_model_dataset_and_output(self, here: pytest.MonkeyPatch) -> None:
        given = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": "/mine", "disable_tqdm": False}
        alone = run_tool.config(given, "model_name_or_path", "dataset_name")
        assert alone == {**given, "logging_steps": 10}
        for kind in ("model", "dataset", "output"):
            here.setenv(f"TRAINER_{kind.upper()}_DIR", f"/local/{kind}")
        here.setenv("HF_TOKEN", "")
        assert "hub_token" not in run_tool.config({"hub_token": "hf_x"}, "model_name_or_path", "dataset_name")
        assert os.environ["HF_TOKEN"] == "hf_x", "the tools would write it into the output, with their other fields"
        made = run_tool.config({"dataset_name": "/workspace/dataset/part"}, "model_name_or_path", "dataset_name")
        assert made["model_name_or_path"] == "/local/model" and made["dataset_name"] == "/local/dataset/part"
        assert made["output_dir"] == "/local/output"

    def test_the_job_sets_the_folder_of_each_part_of_a_mixture(self, here: pytest.MonkeyPatch) -> None:
        here.setenv("TRAINER_DATASET_DIR", "/local/dataset")
        parts = [
            {"path": "json", "data_files": {"train": ["/workspace/dataset/b.jsonl"]}},
            {"path": "/workspace/dataset"},
        ]
        made = run_tool.config({"datasets": parts}, "model_name_or_path", "dataset_name")
        assert made["datasets"] == [
            {"path": "json", "data_files": {"train": ["/local/dataset/b.jsonl"]}},
            {"path": "/local/dataset"},
        ]
        assert "dataset_name" not in made, "TRL would ignore it"

    def test_each_model_is_looked_for_at_its_own_revision(self, here: pytest.MonkeyPatch) -> None:
        asked = []
        utils = types.ModuleType("transformers.utils")
        utils.cached_file = lambda name, file, revision: asked.append((name, revision))  # type: ignore[attr-defined]
        here.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
        here.setitem(sys.modules, "transformers.utils", utils)
        names = ("model_name_or_path", "teacher_model_name_or_path", "reward_model_name_or_path")
        config = {**{name: name[:3] for name in names}, "model_revision": "a1", "teacher_model_revision": "v2"}
        run_tool.check_models(config)
        run_tool.check_models({**config, "teacher_model_revision": None, "model_name_or_path": None})
        assert asked == [("mod", "a1"), ("tea", "v2"), ("rew", "a1"), ("tea", "main"), ("rew", "a1")]

    def test_unsloth_gives_the_adapter_what_it_gives_the_model(self, here: pytest.MonkeyPatch) -> None:
        given: dict[str, Any] = {}

        class FastLanguageModel:
            @staticmethod
            def from_pretrained(model_name: str, use_gradient_checkpointing: Any, random_state: int) -> Any:
                return "model", "tokenizer"

            @staticmethod
            def get_peft_model(model: Any, **options: Any) -> Any:
                given.update(options)
                raise SystemExit

        fields = {
            "model_name": "m", "dataset_name": "d", "use_gradient_checkpointing": False, "random_state": 7, "lora": {"r": 4},
        }  # fmt: skip
        here.setattr(run_tool, "job", lambda: {"config": fields})
        here.setattr(run_tool, "config", lambda *_: dict(fields))
        finish = types.ModuleType("finish_tool")
        finish.result = lambda *_: contextlib.nullcontext()  # type: ignore[attr-defined]
        here.setitem(sys.modules, "run_tool", run_tool)
        here.setitem(sys.modules, "finish_tool", finish)
        for name, values in {
            "unsloth": {"FastLanguageModel": FastLanguageModel}, "datasets": {"load_dataset": None},
            "trl": {"SFTConfig": dict, "SFTTrainer": None},
        }.items():  # fmt: skip
            module = types.ModuleType(name)
            vars(module).update(values)
            here.setitem(sys.modules, name, module)
        here.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit):
            runpy.run_path(str(Path(run_tool.__file__).with_name("run_unsloth.py")))
        assert given == {"use_gradient_checkpointing": False, "random_state": 7, "r": 4}

    def test_a_checkpoint_policy_decides(self, here: pytest.MonkeyPatch, tmp_path: Path) -> None:
        newest = tmp_path / "checkpoint-20"
        newest.mkdir()
        (newest / "trainer_state.json").write_text("{}")
        settings = {"DIR": str(tmp_path), "KEEP": "2", "STEPS": "10"}
        for name, value in settings.items():
            here.setenv(f"TRAINER_CHECKPOINT_{name}", value)
        made = run_tool.config({}, "model_name_or_path", "dataset_name")
        assert "resume_from_checkpoint" not in made
        here.setenv("TRAINER_RESUME_FROM", str(newest))
        run_tool.training._known.clear()
        made = run_tool.config({}, "model_name_or_path", "dataset_name")
        assert (made["resume_from_checkpoint"], made["output_dir"]) == (str(newest), str(tmp_path))
        assert (made["save_strategy"], made["save_total_limit"]) == ("no", 2)


def test_pip_may_change_the_packages_of_a_closed_image(tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import os, sys; print(os.environ['PIP_BREAK_SYSTEM_PACKAGES'], sys.argv[1:])"
    )
    for name, text in user_code.files("print('started')", None, ["some==1"], None, "").items():
        (tmp_path / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "PULUMI_TRAINER_LAYER"}
    argv = [sys.executable, str(tmp_path / "bootstrap.py")]
    done = subprocess.run(argv, env={**env, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.stdout == "started\n" and "1 ['install', '--no-input', 'some==1']" in done.stderr
