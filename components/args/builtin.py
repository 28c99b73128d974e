"""`BuiltinTrainer`: fine-tuning by torchtune, whose recipes are in the runtime's image and only take parameters.

Fields and arguments are those of the Kubeflow SDK (kubeflow.trainer.types and backends/kubernetes/utils.py of
https://github.com/kubeflow/sdk/tree/0.5.0). The recipe is chosen by the pipeline, which also has Trainer's rules for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, drop_none
from pulumi_trainer.args.json_values import to_whole_number
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.trainers import resource_problems, resource_requirements
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.wording import short_repr
from pulumi_trainer.provider.pod import code as paths
from pulumi_trainer.provider.trainer.labels import FRAMEWORK

if TYPE_CHECKING:
    from pulumi_kubernetes.core.v1 import ResourceRequirementsArgs

COMMAND = ("tune", "run")
TORCHTUNE = "torchtune"
DATASET_CLASS = "torchtune.datasets.instruct_dataset"
ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")


class DataType(str, Enum):
    """Type of the model's and the optimizer's parameters."""

    BF16 = "bf16"
    FP32 = "fp32"


class Loss(str, Enum):
    """Loss function of the recipe."""

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

    Args:
        source: Format of the files; default: torchtune's.
        split: Part of the dataset, such as "train[:10%]"; default: train.
        train_on_input: Whether the model learns the prompt too; default: False.
        new_system_prompt: System message in front of each sample; default: none.
        column_map: Names of the columns with "input" and "output".
    """

    source: pulumi.Input[DataFormat | Literal["json", "csv", "parquet", "arrow", "text", "xml"]] | None = None
    split: pulumi.Input[str] | None = None
    train_on_input: pulumi.Input[bool] | None = None
    new_system_prompt: pulumi.Input[str] | None = None
    column_map: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None

    def check(self) -> list[Problem]:
        found = super().check() + _not_one_of(self, "source", DataFormat)
        found += _no_flag(self, "train_on_input") + _no_text("split", self.split)
        found += _no_text("new_system_prompt", self.new_system_prompt)
        if isinstance(self.column_map, Mapping):
            hint = 'use "input" and "output"'
            for key in self.column_map:
                if key not in ("input", "output"):
                    found.append(Problem(f'column_map["{key}"]', "unknown key of torchtune's column_map", hint))
            for key, value in self.column_map.items():
                found += _no_text(f'column_map["{key}"]', value)
        return found

    def arguments(self) -> list[Any]:
        """Return overrides of torchtune's configuration."""
        fields = ("source", "split", "train_on_input", "new_system_prompt", "column_map")
        return [f"dataset={DATASET_CLASS}", *_given(self, fields, "dataset.")]


class LoraConfig(Args):
    """LoRA: small matrices are trained beside the frozen model.

    The default of an argument is torchtune's default for the model, unless another one is named.

    Args:
        apply_lora_to_mlp: Whether to train the MLP of each layer.
        apply_lora_to_output: Whether to train the output projection.
        lora_attn_modules: Projections of the attention, of q_proj, k_proj, v_proj and output_proj; default: all but
            k_proj.
        lora_rank: Rank of the matrices, at least 1.
        lora_alpha: Scale of the matrices, at least 1.
        lora_dropout: Dropout probability, 0 to 1.
        quantize_base: Whether to quantize the frozen model (QLoRA).
        use_dora: Whether to decompose weights (DoRA).
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
        found = merge_problems(self._module_problems(), super().check())
        for flag in ("apply_lora_to_mlp", "apply_lora_to_output", "quantize_base", "use_dora"):
            found += _no_flag(self, flag)
        found += _too_small(self, "lora_rank") + _too_small(self, "lora_alpha")
        found += _unless("lora_dropout", self.lora_dropout, _is_share, "a number from 0 to 1")
        return found

    def _module_problems(self) -> list[Problem]:
        modules: Any = self.lora_attn_modules
        listed = isinstance(modules, (list, tuple)) and bool(modules)
        if _later(modules) or (listed and all(_later(m) or m in ATTENTION for m in modules)):
            return []
        return [Problem("lora_attn_modules", f"must name some of {', '.join(ATTENTION)}, not {short_repr(modules)}")]

    def arguments(self) -> list[Any]:
        """Return overrides of torchtune's configuration."""
        fields = (
            "apply_lora_to_mlp", "apply_lora_to_output", "lora_rank", "lora_alpha", "lora_dropout", "quantize_base",
            "use_dora",
        )  # fmt: skip
        modules = _argument("model.lora_attn_modules", self.lora_attn_modules, _listed)
        return [*_given(self, fields, "model."), modules]


class TorchTuneConfig(Args):
    """Parameters of torchtune. The default of an argument is that of the runtime's recipe.

    Args:
        dtype: Data type of the model: bf16 or fp32.
        batch_size: Samples per step, at least 1.
        epochs: Passes over the dataset, at least 1.
        loss: Loss function.
        num_nodes: Number of nodes; 1 with `peft_config` and for most models.
        peft_config: LoRA instead of training the whole model.
        dataset_preprocess_config: How samples are read.
        resources_per_node: Resources of each node in the short form {"gpu": 2, "cpu": 3, "memory": "3Gi"}; requests
            equal limits.
    """

    dtype: pulumi.Input[DataType | Literal["bf16", "fp32"]] | None = None
    batch_size: pulumi.Input[int] | None = None
    epochs: pulumi.Input[int] | None = None
    loss: pulumi.Input[Loss | Literal["torchtune.modules.loss.CEWithChunkedOutputLoss"]] | None = None
    num_nodes: pulumi.Input[int] | None = None
    peft_config: LoraConfig | None = None
    dataset_preprocess_config: TorchTuneInstructDataset | None = None
    resources_per_node: pulumi.Input[ResourceRequirementsArgs | Mapping[str, Any]] | None = None

    def check(self) -> list[Problem]:
        found = super().check() + _not_one_of(self, "dtype", DataType)
        found += _too_small(self, "batch_size") + _too_small(self, "epochs")
        found += _not_one_of(self, "loss", Loss)
        for field, wanted in {"peft_config": LoraConfig, "dataset_preprocess_config": TorchTuneInstructDataset}.items():
            value = getattr(self, field)
            if value is not None and not isinstance(value, wanted):
                found.append(Problem(field, f"must be {wanted.__name__}(...), not {short_repr(value)}"))
        return found + resource_problems(self.resources_per_node)

    def arguments(self, dataset: Any) -> list[Any]:
        """Return `trainer.args`, in the SDK's order."""
        args = _given(self, ("dtype", "batch_size", "epochs", "loss"))
        args += _dataset_argument(dataset)
        if self.peft_config is not None:
            args += self.peft_config.arguments()
        if self.dataset_preprocess_config is not None:
            args += self.dataset_preprocess_config.arguments()
        return args


class BuiltinTrainer(Args):
    """Training that is built into the runtime: torchtune fine-tunes its model (`runtime="torchtune-llama3.2-1b"`).

    A dataset of the initializer becomes torchtune's `dataset.data_dir` or `dataset.data_files`.

    Args:
        config: Parameters of torchtune; required.
    """

    config: TorchTuneConfig | None = None

    def check(self) -> list[Problem]:
        if isinstance(self.config, TorchTuneConfig):
            return super().check()
        return [*super().check(), Problem("config", f"must be TorchTuneConfig(...), not {short_repr(self.config)}")]

    def place(self, where: str) -> str:
        if where.startswith(("args", "command")):
            return "config"
        if where.startswith(("numNodes", "resourcesPerNode")):
            where = f"config.{where}"
        return super().place(where)

    @property
    def own_nodes(self) -> Any:
        """The number of nodes that the program gives; None for that of the runtime."""
        return self.config.num_nodes if self.config is not None else None

    def train_job_field(self, dataset: Any) -> dict[str, Any]:
        """Return `spec.trainer`.

        Args:
            dataset: Dataset initializer of the job, whose data torchtune reads; None for none.
        """
        config = self.config
        assert config is not None
        given = {"numNodes": config.num_nodes, "resourcesPerNode": resource_requirements(config.resources_per_node)}
        document = drop_none(given)
        document |= {"command": list(COMMAND), "args": config.arguments(dataset)}
        return document

    def runtime_problems(self, runtime: Mapping[str, Any]) -> list[Problem]:
        """Return the problems of this trainer with the runtime that trains."""
        assert self.config is not None
        return _against(runtime, self.config)


def _against(runtime: Mapping[str, Any], config: TorchTuneConfig) -> list[Problem]:
    about, name = runtime.get("metadata", {}), runtime.get("metadata", {}).get("name")
    framework = about.get("labels", {}).get(FRAMEWORK)
    if framework != TORCHTUNE and not _later(framework):
        why = f"runtime {name} has no builtin trainer: its label {FRAMEWORK} is {framework or 'missing'}"
        return [Problem("", why, "use a torchtune runtime, or CustomTrainer")]
    nodes = (runtime.get("spec", {}).get("mlPolicy") or {}).get("numNodes")
    if config.num_nodes is None and config.peft_config is not None and isinstance(nodes, int) and nodes > 1:
        # Trainer only reads the TrainJob's count, and would silently train the whole model.
        why = f"runtime {name} trains on {nodes} nodes, but torchtune supports LoRA on one node only"
        return [Problem("config.peft_config", why, "give num_nodes=1, or leave peft_config out")]
    return []


def _dataset_argument(dataset: Any) -> list[Any]:
    """Return the argument with the path of the fetched dataset, a file or a folder.

    A path in an hf:// repository is a file if it has a dot, otherwise a folder.
    """
    uri = getattr(dataset, "storage_uri", None)
    if uri is None or (isinstance(uri, str) and uri.startswith("cache://")):
        return []
    if isinstance(uri, pulumi.Output):
        return [uri.apply(_dataset_place)]
    return [_dataset_place(str(uri))]


def _dataset_place(uri: str) -> str:
    scheme, _, location = uri.partition("://")
    if scheme != "hf":
        return f"dataset.data_dir={paths.DATASET_PATH}"
    below = "/".join(location.strip("/").split("/")[2:]) or "."
    kind = "data_dir"
    if below != "." and "." in below:
        kind = "data_files"
    return f"dataset.{kind}={posixpath.join(paths.DATASET_PATH, below)}"


def _given(args: Args, fields: Sequence[str], prefix: str = "") -> list[Any]:
    """Return those of the fields that have a value, as `name=value`."""
    found = []
    for field in fields:
        value = getattr(args, field)
        if value is not None:
            found.append(_argument(f"{prefix}{field}", value))
    return found


def _argument(name: str, value: Any, text: Any = str) -> Any:
    """Return `name=value` as the SDK prints it: with Python's words for true, false and mappings."""
    if _holds_output(value):
        return pulumi.Output.from_input(value).apply(lambda v: f"{name}={text(_plain(to_whole_number(v)))}")
    return f"{name}={text(_plain(value))}"


def _listed(modules: Any) -> str:
    if isinstance(modules, (list, tuple)):
        return f"[{','.join(map(str, modules))}]"
    return str(modules)


def _plain(value: Any) -> Any:
    """Return a value with enums replaced by their values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return value


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return any(map(_later, value))
    return _later(value)


def _later(value: Any) -> bool:
    return isinstance(value, pulumi.Output)


def _unless(where: str, value: Any, accepts: Callable[[Any], bool], wanted: str) -> list[Problem]:
    """Return a problem if a known value is not accepted. wanted: What is accepted, in words."""
    if value is None or _later(value) or accepts(value):
        return []
    return [Problem(where, f"must be {wanted}, not {short_repr(value)}")]


def _too_small(args: Args, field: str) -> list[Problem]:
    wanted = "a whole number of at least 1"
    return _unless(field, getattr(args, field), lambda value: type(value) is int and value >= 1, wanted)


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _no_text(where: str, value: Any) -> list[Problem]:
    return _unless(where, value, lambda value: isinstance(value, str), "a string")


def _no_flag(args: Args, field: str) -> list[Problem]:
    return _unless(field, getattr(args, field), lambda value: isinstance(value, bool), "true or false")


def _not_one_of(args: Args, field: str, kind: type[Enum]) -> list[Problem]:
    values = [each.value for each in kind]
    return _unless(field, getattr(args, field), values.__contains__, f"one of {', '.join(values)}")
