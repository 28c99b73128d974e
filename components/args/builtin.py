"""`BuiltinTrainer`: fine-tuning by torchtune, whose recipes are in the runtime's image and only take parameters.

Fields and arguments are those of the Kubeflow SDK (kubeflow.trainer.types and backends/kubernetes/utils.py of
https://github.com/kubeflow/sdk/tree/0.5.0). The recipe is chosen by the pipeline, which also has Trainer's rules for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import Args
from pulumi_trainer.args.json_values import whole
from pulumi_trainer.args.trainers import Compiled, resource_problems, resource_requirements
from pulumi_trainer.provider.api import code as paths
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.api.model import shown
from pulumi_trainer.provider.kube.errors import Problem

COMMAND = ("tune", "run")
TORCHTUNE = "torchtune"
DATASET_CLASS = "torchtune.datasets.instruct_dataset"
ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")


class DataType(str, Enum):
    """Type of the model's and the optimizer's parameters."""

    BF16 = "bf16"
    FP32 = "fp32"


class Loss(str, Enum):
    """What the recipe minimises."""

    CEWithChunkedOutputLoss = "torchtune.modules.loss.CEWithChunkedOutputLoss"


class DataFormat(str, Enum):
    """Format of the dataset's files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    TEXT = "text"
    XML = "xml"


class TorchTuneInstructDataset(Args):
    """A dataset of instructions and answers (torchtune's `instruct_dataset`).

    source: format of its files. split: the part that is used, such as "train[:10%]"; default train. train_on_input:
    whether the model learns the prompt too; default false. new_system_prompt: a system message in front of each sample.
    column_map: names of the columns that hold "input" and "output".
    """

    source: pulumi.Input[DataFormat | Literal["json", "csv", "parquet", "arrow", "text", "xml"]] | None = None
    split: pulumi.Input[str] | None = None
    train_on_input: pulumi.Input[bool] | None = None
    new_system_prompt: pulumi.Input[str] | None = None
    column_map: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None

    def check(self) -> list[Problem]:
        found = super().check() + _not_one_of(self, "source", [f.value for f in DataFormat])
        found += _no_flag(self, "train_on_input") + _no_text("split", self.split)
        found += _no_text("new_system_prompt", self.new_system_prompt)
        if isinstance(self.column_map, Mapping):
            found += [
                Problem(f'column_map["{k}"]', "is no column of torchtune", 'the keys are "input" and "output"')
                for k in self.column_map
                if k not in ("input", "output")
            ]
            found += [p for k, v in self.column_map.items() for p in _no_text(f'column_map["{k}"]', v)]
        return found

    def arguments(self) -> list[Any]:
        """Overrides of torchtune's configuration."""
        fields = ("source", "split", "train_on_input", "new_system_prompt", "column_map")
        return [f"dataset={DATASET_CLASS}", *_given(self, {f: f"dataset.{f}" for f in fields})]


class LoraConfig(Args):
    """LoRA, with `quantize_base` QLoRA, with `use_dora` DoRA: small matrices are trained beside the frozen model.

    apply_lora_to_mlp, apply_lora_to_output: to the MLP of each layer, to the output projection. lora_attn_modules: the
    projections of the attention, of q_proj, k_proj, v_proj and output_proj. lora_rank: of the matrices. lora_alpha: their
    scale. lora_dropout: probability, 0 to 1. What is not given is torchtune's default for the model.
    """

    apply_lora_to_mlp: pulumi.Input[bool] | None = None
    apply_lora_to_output: pulumi.Input[bool] | None = None
    lora_attn_modules: pulumi.Input[Sequence[pulumi.Input[str]]] = ("q_proj", "v_proj", "output_proj")
    lora_rank: pulumi.Input[int] | None = None
    lora_alpha: pulumi.Input[int] | None = None
    lora_dropout: pulumi.Input[float] | None = None
    quantize_base: pulumi.Input[bool] | None = None
    use_dora: pulumi.Input[bool] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for flag in ("apply_lora_to_mlp", "apply_lora_to_output", "quantize_base", "use_dora"):
            found += _no_flag(self, flag)
        found += _too_small(self, "lora_rank") + _too_small(self, "lora_alpha")
        found += _no_share(self, "lora_dropout")
        modules = self.lora_attn_modules
        if not _later(modules):
            known = isinstance(modules, (list, tuple)) and all(_later(m) or m in ATTENTION for m in modules)
            if not known or not modules:
                why = f"must name some of {', '.join(ATTENTION)}, not {shown(modules)}"
                found.append(Problem("lora_attn_modules", why))
        return found

    def arguments(self) -> list[Any]:
        """Overrides of torchtune's configuration."""
        fields = (
            "apply_lora_to_mlp", "apply_lora_to_output", "lora_rank", "lora_alpha", "lora_dropout", "quantize_base",
            "use_dora",
        )  # fmt: skip
        modules = _argument("model.lora_attn_modules", self.lora_attn_modules, _listed)
        return [*_given(self, {f: f"model.{f}" for f in fields}), modules]


class TorchTuneConfig(Args):
    """Parameters of torchtune.

    dtype: of the model, bf16 or fp32. batch_size: samples a step. epochs: passes over the dataset. loss: the loss
    function. num_nodes: default the runtime's; 1 with `peft_config`, and for most models. peft_config: train small
    matrices instead of the whole model. dataset_preprocess_config: how samples are read. resources_per_node: short form
    {"gpu": 2, "cpu": 3, "memory": "3Gi"}; requests equal limits.
    """

    dtype: pulumi.Input[DataType | Literal["bf16", "fp32"]] | None = None
    batch_size: pulumi.Input[int] | None = None
    epochs: pulumi.Input[int] | None = None
    loss: pulumi.Input[Loss | Literal["torchtune.modules.loss.CEWithChunkedOutputLoss"]] | None = None
    num_nodes: pulumi.Input[int] | None = None
    peft_config: LoraConfig | None = None
    dataset_preprocess_config: TorchTuneInstructDataset | None = None
    resources_per_node: pulumi.Input[Mapping[str, Any]] | None = None

    def check(self) -> list[Problem]:
        found = super().check() + _not_one_of(self, "dtype", [t.value for t in DataType])
        found += _too_small(self, "batch_size") + _too_small(self, "epochs")
        found += _not_one_of(self, "loss", [loss.value for loss in Loss])
        for field, wanted in {"peft_config": LoraConfig, "dataset_preprocess_config": TorchTuneInstructDataset}.items():
            if (value := getattr(self, field)) is not None and not isinstance(value, wanted):
                found.append(Problem(field, f"must be {wanted.__name__}(...), not {shown(value)}"))
        return found + resource_problems(self.resources_per_node)

    def arguments(self, dataset: Any) -> list[Any]:
        """`trainer.args`, in the SDK's order."""
        args = _given(self, {f: f for f in ("dtype", "batch_size", "epochs", "loss")})
        args += _dataset_argument(dataset)
        args += self.peft_config.arguments() if self.peft_config is not None else []
        preprocess = self.dataset_preprocess_config
        return args + (preprocess.arguments() if preprocess is not None else [])


class BuiltinTrainer(Args):
    """Training that the runtime brings with it: torchtune fine-tunes the runtime's model (`runtime="torchtune-llama3.2-1b"`).

    config: its parameters. A dataset of the initializer becomes torchtune's `dataset.data_dir` or `dataset.data_files`.
    """

    config: TorchTuneConfig | None = None

    def check(self) -> list[Problem]:
        if isinstance(self.config, TorchTuneConfig):
            return super().check()
        return [*super().check(), Problem("config", f"must be TorchTuneConfig(...), not {shown(self.config)}")]

    def place(self, where: str) -> str:
        if where.startswith(("args", "command")):
            return "config"
        return super().place(f"config.{where}" if where.startswith(("numNodes", "resourcesPerNode")) else where)

    def compiled(self, runtime: Mapping[str, Any], dataset: Any) -> Compiled:
        """The document, and what speaks against this runtime."""
        config = self.config
        assert config is not None
        given = {"numNodes": config.num_nodes, "resourcesPerNode": resource_requirements(config.resources_per_node)}
        document = {k: v for k, v in given.items() if v is not None}
        document |= {"command": list(COMMAND), "args": config.arguments(dataset)}
        return Compiled(document, problems=tuple(_against(runtime, config)))


def _against(runtime: Mapping[str, Any], config: TorchTuneConfig) -> list[Problem]:
    about, name = runtime.get("metadata", {}), runtime.get("metadata", {}).get("name")
    framework = about.get("labels", {}).get(FRAMEWORK)
    if framework != TORCHTUNE and not _later(framework):
        why = f"runtime {name} has no builtin trainer: its label {FRAMEWORK} is {framework or 'missing'}"
        return [Problem("", why, "use a torchtune runtime, or CustomTrainer")]
    nodes = (runtime.get("spec", {}).get("mlPolicy") or {}).get("numNodes")
    if config.num_nodes is None and config.peft_config is not None and isinstance(nodes, int) and nodes > 1:
        # Trainer looks at the TrainJob's count only, and would train the whole model without a word.
        why = f"runtime {name} trains on {nodes} nodes, and torchtune has LoRA for one node only"
        return [Problem("config.peft_config", why, "give num_nodes=1, or leave peft_config out")]
    return []


def _dataset_argument(dataset: Any) -> list[Any]:
    """Where torchtune finds what the initializer has fetched. Below an hf:// repository it is a file where the path has a
    dot, else a folder."""
    uri = getattr(dataset, "storage_uri", None)
    if uri is None or (isinstance(uri, str) and uri.startswith("cache://")):
        return []
    return [uri.apply(_dataset_place) if isinstance(uri, pulumi.Output) else _dataset_place(str(uri))]


def _dataset_place(uri: str) -> str:
    scheme, _, location = uri.partition("://")
    if scheme != "hf":
        return f"dataset.data_dir={paths.DATASET_PATH}"
    below = "/".join(location.strip("/").split("/")[2:]) or "."
    kind = "data_files" if below != "." and "." in below else "data_dir"
    return f"dataset.{kind}={posixpath.join(paths.DATASET_PATH, below)}"


def _given(args: Args, names: Mapping[str, str]) -> list[Any]:
    """Fields that were given as `name=value`."""
    values = {field: getattr(args, field) for field in names}
    return [_argument(names[field], value) for field, value in values.items() if value is not None]


def _argument(name: str, value: Any, text: Any = str) -> Any:
    """As the SDK prints it: Python's words for true, false and mappings."""
    if _holds_output(value):
        return pulumi.Output.from_input(value).apply(lambda v: f"{name}={text(_plain(whole(v)))}")
    return f"{name}={text(_plain(value))}"


def _listed(modules: Any) -> str:
    return f"[{','.join(map(str, modules))}]" if isinstance(modules, (list, tuple)) else str(modules)


def _plain(value: Any) -> Any:
    """Enums as their values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return value


def _holds_output(value: Any) -> bool:
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return _later(value) or any(_later(v) for v in inside)


def _later(value: Any) -> bool:
    return isinstance(value, pulumi.Output)


def _too_small(args: Args, field: str) -> list[Problem]:
    value = getattr(args, field)
    if value is None or _later(value) or (type(value) is int and value >= 1):
        return []
    return [Problem(field, f"must be a whole number of at least 1, not {shown(value)}")]


def _no_share(args: Args, field: str) -> list[Problem]:
    value = getattr(args, field)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or _later(value) or (number and 0 <= value <= 1):
        return []
    return [Problem(field, f"must be a number from 0 to 1, not {shown(value)}")]


def _no_text(where: str, value: Any) -> list[Problem]:
    right = value is None or _later(value) or isinstance(value, str)
    return [] if right else [Problem(where, f"must be a string, not {shown(value)}")]


def _no_flag(args: Args, field: str) -> list[Problem]:
    value = getattr(args, field)
    if value is None or _later(value) or isinstance(value, bool):
        return []
    return [Problem(field, f"must be true or false, not {shown(value)}")]


def _not_one_of(args: Args, field: str, values: list[str]) -> list[Problem]:
    value = getattr(args, field)
    if value is None or _later(value) or value in values:
        return []
    return [Problem(field, f"must be one of {', '.join(values)}, not {shown(value)}")]
