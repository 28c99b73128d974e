"""BuiltinTrainer: torchtune's arguments as the Kubeflow SDK writes them, and what is wrong with its parameters."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.plan.trainjob_args import TrainJobArgs

LORA = "model.lora_attn_modules=[q_proj,v_proj,output_proj]"


def torchtune(nodes: int | None = None, framework: str | None = "torchtune") -> dict[str, Any]:
    labels = {"trainer.kubeflow.org/framework": framework} if framework else {}
    policy = {"torch": {}} if nodes is None else {"torch": {}, "numNodes": nodes}
    return {"metadata": {"name": "torchtune-llama3.2-1b", "labels": labels}, "spec": {"mlPolicy": policy}}


def compiled(dataset: Any = None, **config: Any) -> dict[str, Any]:
    builtin = trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(**config))
    assert nested_problems(builtin) == []
    return builtin.train_job_field(dataset)


def test_without_parameters_the_recipe_has_its_defaults() -> None:
    assert compiled() == {"command": ["tune", "run"], "args": []}


def test_parameters_become_arguments_in_the_order_of_the_sdk() -> None:
    document = compiled(
        trainer.HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca/data"),
        dtype=trainer.DataType.BF16,
        batch_size=8,
        epochs=3,
        loss=trainer.Loss.CEWithChunkedOutputLoss,
        num_nodes=1,
        resources_per_node={"gpu": 2, "memory": "64Gi"},
        peft_config=trainer.LoraConfig(
            apply_lora_to_mlp=True,
            apply_lora_to_output=False,
            lora_attn_modules=["k_proj"],
            lora_rank=8,
            lora_alpha=16,
            lora_dropout=0.1,
            quantize_base=True,
            use_dora=False,
        ),
        dataset_preprocess_config=trainer.TorchTuneInstructDataset(
            source=trainer.DataFormat.PARQUET,
            split="train[:10%]",
            train_on_input=True,
            new_system_prompt="Be brief",
            column_map={"input": "question", "output": "answer"},
        ),
    )
    assert document == {
        "numNodes": 1,
        "resourcesPerNode": {
            "limits": {"nvidia.com/gpu": 2, "memory": "64Gi"},
            "requests": {"nvidia.com/gpu": 2, "memory": "64Gi"},
        },
        "command": ["tune", "run"],
        "args": [
            "dtype=bf16",
            "batch_size=8",
            "epochs=3",
            "loss=torchtune.modules.loss.CEWithChunkedOutputLoss",
            "dataset.data_dir=/workspace/dataset/data",
            "model.apply_lora_to_mlp=True",
            "model.apply_lora_to_output=False",
            "model.lora_rank=8",
            "model.lora_alpha=16",
            "model.lora_dropout=0.1",
            "model.quantize_base=True",
            "model.use_dora=False",
            "model.lora_attn_modules=[k_proj]",
            "dataset=torchtune.datasets.instruct_dataset",
            "dataset.source=parquet",
            "dataset.split=train[:10%]",
            "dataset.train_on_input=True",
            "dataset.new_system_prompt=Be brief",
            "dataset.column_map={'input': 'question', 'output': 'answer'}",
        ],
    }


def test_lora_has_the_defaults_of_the_sdk() -> None:
    assert compiled(peft_config=trainer.LoraConfig())["args"] == [LORA]
    preprocess = trainer.TorchTuneInstructDataset()
    assert compiled(dataset_preprocess_config=preprocess)["args"] == ["dataset=torchtune.datasets.instruct_dataset"]


def test_plain_words_do_for_enums() -> None:
    preprocess = trainer.TorchTuneInstructDataset(source="csv")
    assert compiled(dtype="fp32", dataset_preprocess_config=preprocess)["args"] == [
        "dtype=fp32",
        "dataset=torchtune.datasets.instruct_dataset",
        "dataset.source=csv",
    ]


@pytest.mark.parametrize(
    ("uri", "argument"),
    [
        ("hf://a/b", "dataset.data_dir=/workspace/dataset/."),
        ("hf://a/b@main", "dataset.data_dir=/workspace/dataset/."),
        ("hf://a/b/", "dataset.data_dir=/workspace/dataset/."),
        ("hf://a/b/data", "dataset.data_dir=/workspace/dataset/data"),
        ("hf://a/b/data/part/", "dataset.data_dir=/workspace/dataset/data/part"),
        ("hf://a/b/data/x.parquet", "dataset.data_files=/workspace/dataset/data/x.parquet"),
        ("s3://bucket/x.parquet", "dataset.data_dir=/workspace/dataset"),
        ("file:///data", "dataset.data_dir=/workspace/dataset"),
    ],
)
def test_torchtune_reads_what_the_initializer_has_fetched(uri: str, argument: str) -> None:
    assert compiled(trainer.DataSource(storage_uri=uri))["args"] == [argument]


def test_a_data_cache_is_no_folder() -> None:
    assert compiled(trainer.DataCacheInitializer(storage_uri="cache://a/b"))["args"] == []


def test_outputs_are_arguments_when_they_are_known() -> None:
    def output(value: Any) -> pulumi.Output[Any]:
        return pulumi.Output.from_input(value)

    async def args() -> list[Any]:
        document = compiled(
            trainer.DataSource(storage_uri=output("hf://a/b/data")),
            epochs=output(2.0),  # of another resource, where all numbers are floats
            peft_config=trainer.LoraConfig(lora_dropout=output(0.25), lora_attn_modules=[output("q_proj"), "k_proj"]),
            dataset_preprocess_config=trainer.TorchTuneInstructDataset(
                train_on_input=output(False), column_map={"input": output("q")}
            ),
        )
        return [await v.future() if isinstance(v, pulumi.Output) else v for v in document["args"]]

    assert asyncio.run(args()) == [
        "epochs=2",
        "dataset.data_dir=/workspace/dataset/data",
        "model.lora_dropout=0.25",
        "model.lora_attn_modules=[q_proj,k_proj]",
        "dataset=torchtune.datasets.instruct_dataset",
        "dataset.train_on_input=False",
        "dataset.column_map={'input': 'q'}",
    ]


def wrong(**config: Any) -> list[str]:
    args = TrainJobArgs("job", runtime="r", trainer=trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(**config)))
    return [str(p) for p in nested_problems(args)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"dtype": "fp16"}, "dtype: must be one of bf16, fp32, not 'fp16'"),
        ({"batch_size": 0}, "batch_size: must be a whole number of at least 1, not 0"),
        ({"batch_size": True}, "batch_size: must be a whole number of at least 1, not True"),
        ({"epochs": 1.5}, "epochs: must be a whole number of at least 1, not 1.5"),
        ({"loss": "mse"}, "loss: must be one of torchtune.modules.loss.CEWithChunkedOutputLoss, not 'mse'"),
        ({"epoch": 1}, "epoch: unknown field. Hint: did you mean epochs?"),
        ({"resources_per_node": {"gpu": "two"}}, 'resources_per_node["gpu"]: '),
        ({"resources_per_node": {"gpu": 1, "mig-1g.5gb": 1}}, "resources_per_node: requests both gpu and"),
        ({"peft_config": {"lora_rank": 8}}, "peft_config: must be LoraConfig(...), not {'lora_rank': 8}"),
        ({"dataset_preprocess_config": 1}, "dataset_preprocess_config: must be TorchTuneInstructDataset(...), not 1"),
        ({"peft_config": trainer.LoraConfig(lora_rank=0)}, "peft_config.lora_rank: must be a whole number of at least"),
        ({"peft_config": trainer.LoraConfig(lora_alpha="x")}, "peft_config.lora_alpha: must be a whole number"),
        (
            {"peft_config": trainer.LoraConfig(lora_dropout=1.1)},
            "peft_config.lora_dropout: must be a number from 0 to 1",
        ),
        ({"peft_config": trainer.LoraConfig(lora_dropout=True)}, "peft_config.lora_dropout: must be a number from 0"),
        ({"peft_config": trainer.LoraConfig(quantize_base="no")}, "peft_config.quantize_base: must be true or false"),
        ({"peft_config": trainer.LoraConfig(use_dora=1)}, "peft_config.use_dora: must be true or false, not 1"),
        ({"peft_config": trainer.LoraConfig(apply_lora_to_mlp=1)}, "peft_config.apply_lora_to_mlp: must be true or"),
        ({"peft_config": trainer.LoraConfig(apply_lora_to_output=1)}, "peft_config.apply_lora_to_output: must be true"),
        (
            {"peft_config": trainer.LoraConfig(lora_attn_modules=["q_proj", "mlp"])},
            "peft_config.lora_attn_modules: must name some of q_proj, k_proj, v_proj, output_proj, not ['q_proj', 'mlp']",
        ),
        ({"peft_config": trainer.LoraConfig(lora_attn_modules=[])}, "peft_config.lora_attn_modules: must name some of"),
        ({"peft_config": trainer.LoraConfig(lora_attn_modules="q_proj")}, "peft_config.lora_attn_modules: must name"),
        (
            {"dataset_preprocess_config": trainer.TorchTuneInstructDataset(source="parket")},
            "dataset_preprocess_config.source: must be one of json, csv, parquet, arrow, text, xml, not 'parket'",
        ),
        (
            {"dataset_preprocess_config": trainer.TorchTuneInstructDataset(train_on_input="yes")},
            "dataset_preprocess_config.train_on_input: must be true or false, not 'yes'",
        ),
        (
            {"dataset_preprocess_config": trainer.TorchTuneInstructDataset(column_map={"question": "q"})},
            'dataset_preprocess_config.column_map["question"]: unknown key of torchtune\'s column_map',
        ),
    ],
)
def test_what_is_wrong_with_the_parameters(config: dict[str, Any], says: str) -> None:
    found = wrong(**config)
    assert len(found) == 1 and found[0].startswith(f"trainer.config.{says}"), found


@pytest.mark.parametrize("config", [None, {}, "torchtune"])
def test_a_builtin_trainer_has_a_configuration(config: Any) -> None:
    found = nested_problems(trainer.BuiltinTrainer(config=config))
    assert [p.where for p in found] == ["config"] and "must be TorchTuneConfig(...)" in str(found[0])


@pytest.mark.parametrize("framework", ["torch", "deepspeed", None])
def test_only_a_torchtune_runtime_has_a_builtin_trainer(framework: str | None) -> None:
    builtin = trainer.BuiltinTrainer(config=trainer.TorchTuneConfig())
    found = builtin.runtime_problems(torchtune(framework=framework))
    assert len(found) == 1 and f"is {framework or 'missing'}. Hint: use a torchtune runtime" in str(found[0])


@pytest.mark.parametrize(
    ("nodes", "config", "refused"),
    [
        (2, {"peft_config": trainer.LoraConfig()}, True),
        (2, {"peft_config": trainer.LoraConfig(), "num_nodes": 1}, False),
        (1, {"peft_config": trainer.LoraConfig()}, False),
        (2, {}, False),
        (None, {"peft_config": trainer.LoraConfig()}, False),
    ],
)
def test_lora_on_the_nodes_of_the_runtime(nodes: int | None, config: dict[str, Any], refused: bool) -> None:
    builtin = trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(**config))
    found = builtin.runtime_problems(torchtune(nodes))
    assert [p.where for p in found] == (["config.peft_config"] if refused else [])


def test_problems_of_the_document_are_told_by_the_parameters() -> None:
    args = TrainJobArgs("job", runtime="r", trainer=trainer.BuiltinTrainer(config=trainer.TorchTuneConfig()))
    places = {
        "spec.trainer.numNodes": "trainer.config.num_nodes",
        "spec.trainer.resourcesPerNode.limits": "trainer.config.resources_per_node.limits",
        "spec.trainer.args[3]": "trainer.config",
        "written.trainer.args[0]": "trainer.config",
        "spec.trainer.command": "trainer.config",
        "spec.trainer.numProcPerNode": "trainer.num_proc_per_node",
        "spec.runtimeRef.name": "runtime",
        "spec.runtimeRef": "runtime",
    }
    assert {where: args.place(where) for where in places} == places


FLAGS = st.none() | st.booleans()


@given(
    config=st.fixed_dictionaries(
        {},
        optional={
            "dtype": st.sampled_from(trainer.DataType),
            "batch_size": st.integers(1, 64),
            "epochs": st.integers(1, 9),
            "peft_config": st.builds(
                trainer.LoraConfig,
                apply_lora_to_mlp=FLAGS,
                quantize_base=FLAGS,
                use_dora=FLAGS,
                lora_rank=st.none() | st.integers(1, 64),
                lora_dropout=st.none() | st.floats(0, 1),
            ),
        },
    )
)
def test_each_argument_is_a_name_and_a_value_and_stands_once(config: dict[str, Any]) -> None:
    args = compiled(**config)["args"]
    names = [name for name, separator, value in (a.partition("=") for a in args) if separator and value]
    assert len(names) == len(set(names)) == len(args)
    assert (LORA in args) == ("peft_config" in config)
