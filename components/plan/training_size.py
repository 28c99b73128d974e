"""The size of a job's training, from which its memory of each GPU is estimated: what trainers say, and the defaults of tools.

Defaults: TRL's ModelConfig and SFTConfig, Transformers' TrainingArguments and `from_pretrained`, the hparams of LLaMA-Factory,
and the configurations of torchtune, in the releases of `args/fields/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from pulumi_trainer.args import sources
from pulumi_trainer.args.arguments import as_mapping
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.fine_tuning import LlamaFactoryTrainer, ToolTrainer, TransformersTrainer, table
from pulumi_trainer.args.torchtune import TorchTuneTrainer, flat, nested
from pulumi_trainer.args.trainers import CustomTrainer, read_size
from pulumi_trainer.args.trl import TRLTrainer
from pulumi_trainer.args.unsloth import UnslothTrainer
from pulumi_trainer.plan.model_files import ModelSize, read_model
from pulumi_trainer.plan.tool_inputs import model_folder
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.jobs.gpu_memory import (
    Method,
    Optimizer,
    Precision,
    Range,
    Sharding,
    Training,
    parameters_in_name,
)

Fields = Mapping[str, Any]

_OPTIMIZERS: tuple[tuple[str, Optimizer], ...] = (
    (r"adamw_(torch|apex)(_(fused|xla|npu_fused))?", "adamw"),
    (r"adamw_(bnb_|torch_)?8bit", "adamw_8bit"),
    (r"sgd", "sgd"),
    (r"torch\.optim\.AdamW?", "adamw"),
    (r"torch\.optim\.SGD", "sgd"),
)
"""Pattern of a tool's name -> optimizer; others keep less, or keep it in the host's memory."""
_SHARDINGS: Mapping[Any, Sharding] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
_WITH_OTHERS = {
    "dpo": "the reference model", "kto": "the reference model", "grpo": "generation and the reference model",
    "rloo": "generation and the reference model", "distillation": "the teacher model",
    "full_dpo_distributed": "the reference model", "knowledge_distillation_distributed": "the teacher model",
}  # fmt: skip
"""Method -> what it loads beside the model that is trained."""


def read_training(args: TrainJobArgs, written: WrittenJob) -> Training | None:
    """Return the size of a job's training; None if nothing states its parameters, or if it uses the memory of the host."""
    trainer = args.trainer
    if isinstance(trainer, CustomTrainer):
        return _of_custom(trainer)
    if written.tool is not None:
        config = as_mapping(as_mapping(written.func_args.visible).get("config"))
        return _of_tool(written.tool, config, args)
    if isinstance(trainer, BuiltinTrainer):
        return _of_builtin(trainer, str(written.runtime["metadata"]["name"]))
    return None


def _of_custom(trainer: CustomTrainer) -> Training | None:
    if trainer.parameters is None:
        return None
    count = read_size(trainer.parameters)
    assert count is not None
    sharding = "zero3" if trainer.sharding == "fsdp" else trainer.sharding
    return Training(
        Range(count, count),
        f"parameters={trainer.parameters!r}",
        method=trainer.method,
        lora_rank=trainer.lora_rank,
        precision=trainer.precision,
        optimizer=trainer.optimizer,
        sharding=sharding,
        batch_size=trainer.batch_size,
        sequence_length=trainer.sequence_length,
        hidden_size=trainer.hidden_size,
        num_layers=trainer.num_layers,
        checkpointing=trainer.gradient_checkpointing,
    )


def _of_tool(trainer: ToolTrainer, config: Fields, args: TrainJobArgs) -> Training | None:
    folder = model_folder(trainer, config, args.initializer)
    files = read_model(folder) if folder else ModelSize()
    found = _parameters(trainer, config, args, files)
    settings = _TOOLS[type(trainer)](trainer, config)
    if found is None or settings is None:
        return None
    count, source = found
    others = _WITH_OTHERS.get(trainer.method_name(), "")
    if others:  # their batches have another size than the fields say
        settings["batch_size"] = None
    settings |= {"hidden_size": files.hidden_size, "num_layers": files.num_layers, "vocabulary": files.vocabulary}
    return Training(count, source, uncounted=others, **settings)


def _parameters(trainer: ToolTrainer, config: Fields, args: TrainJobArgs, files: ModelSize) -> tuple[Range, str] | None:
    """Return the number of parameters of a tool's model, and what states it."""
    given = read_size(trainer.parameters)
    if given is not None:
        return Range(given, given), f"parameters={trainer.parameters!r}"
    if files.parameters is not None:
        return Range(files.parameters, files.parameters), "its files"
    fetched = getattr(sources.parts(args.initializer).get("model"), "storage_uri", None)
    for name in (config.get(trainer.model), fetched, getattr(trainer, "base", None)):
        stated = parameters_in_name(name) if isinstance(name, str) else None
        if stated is not None:
            return stated, f"the name {name}"
    return None


def _of_builtin(trainer: BuiltinTrainer, runtime: str) -> Training | None:
    """Return the training by torchtune in Trainer's image, whose runtime is named like the model."""
    count, config = parameters_in_name(runtime), trainer.config
    if count is None or config is None:
        return None
    lora, method = config.peft_config, "full"
    precision: Any = getattr(config.dtype, "value", config.dtype) or "bf16"
    if lora is not None:
        method = "qlora" if lora.quantize_base else "lora"
    if precision not in ("bf16", "fp32"):
        return None
    return Training(
        count,
        f"the name {runtime}",
        method=cast("Method", method),
        lora_rank=_whole(lora and lora.lora_rank),
        precision=precision,
        sharding="zero3",
        batch_size=_whole(config.batch_size),
    )


def _of_trl(_: ToolTrainer, config: Fields) -> dict[str, Any] | None:
    trains_adapter = config.get("use_peft") is True
    found = _of_transformers_fields(config, "lora" if trains_adapter else "full")
    if found is None or config.get("load_in_8bit"):
        return None
    if trains_adapter:
        found["lora_rank"] = _whole(config.get("lora_r", 16))
        found["method"] = "qlora" if config.get("load_in_4bit") else "lora"
    mixed = config.get("bf16") is not False or config.get("fp16") is True
    precisions: Mapping[Any, Precision] = {"float32": "mixed" if mixed else "fp32", "bfloat16": "bf16"}
    found["precision"] = precisions.get(config.get("dtype", "float32"))
    found["checkpointing"] = config.get("gradient_checkpointing", True) is True
    return {**found, **_tokens(config, "max_length", 1024)}


def _of_transformers(_: ToolTrainer, config: Fields) -> dict[str, Any] | None:
    lora = config.get("lora")
    found = _of_transformers_fields(config, "full" if lora is None else "lora")
    if found is None:
        return None
    if lora is not None:
        found["lora_rank"] = _whole(as_mapping(lora).get("r", 8))
    found["checkpointing"] = config.get("gradient_checkpointing") is True
    return {**found, **_tokens(config, "max_length", 1024), "fixed": frozenset({"qlora"})}


def _of_llamafactory(_: ToolTrainer, config: Fields) -> dict[str, Any] | None:
    method = config.get("finetuning_type", "lora")
    found = _of_transformers_fields(config, method)
    if found is None or method not in ("full", "lora") or config.get("quantization_bit") not in (None, 4):
        return None
    if method == "lora":
        found["lora_rank"] = _whole(config.get("lora_rank", 8))
        found["method"] = "qlora" if config.get("quantization_bit") == 4 else "lora"
    in_half = config.get("bf16") is True or config.get("fp16") is True
    if config.get("pure_bf16") is True or (in_half and method == "lora"):
        found["precision"] = "bf16"
    elif in_half:
        found["precision"] = "mixed"
    found["checkpointing"] = config.get("disable_gradient_checkpointing") is not True
    return {**found, **_tokens(config, "cutoff_len", 2048)}


def _of_unsloth(_: ToolTrainer, config: Fields) -> dict[str, Any] | None:
    lora = config.get("lora")
    found = _of_transformers_fields(config, "full" if lora is None else "lora")
    if found is None or config.get("load_in_8bit") or config.get("load_in_fp8"):
        return None
    if lora is not None:
        found["lora_rank"] = _whole(as_mapping(lora).get("r", 16))
        found["method"] = "qlora" if config.get("load_in_4bit") else "lora"
    return {**found, **_tokens(config, "max_seq_length", 2048), "fixed": frozenset({"sharding"})}


def _of_torchtune(trainer: ToolTrainer, config: Fields) -> dict[str, Any] | None:
    assert isinstance(trainer, TorchTuneTrainer)
    given, recipe = dict(flat(nested(config))), trainer.method_name()
    base = str(trainer.base)
    if given.get("fsdp_cpu_offload", base.endswith("70B_full")) or given.get("dtype", "bf16") not in ("bf16", "fp32"):
        return None  # the configurations of 70B keep weights and optimizer in the memory of the host
    method = "full"
    if recipe.startswith(("lora_", "knowledge_")):
        method = "qlora" if trainer.quantizes() else "lora"
    component = given.get("optimizer._component_") or table("torchtune")["configs"][recipe][base].get("optimizer")
    optimizer = None if given.get("optimizer_in_bwd") else _optimizer(component)
    return {
        "method": method,
        "lora_rank": _whole(given.get("model.lora_rank")),
        "precision": given.get("dtype", "bf16"),
        "optimizer": optimizer,
        "sharding": "zero3",
        "batch_size": _whole(given.get("batch_size")),
        "checkpointing": given.get("enable_activation_checkpointing"),
    }


_TOOLS: Mapping[type[ToolTrainer], Callable[[ToolTrainer, Fields], dict[str, Any] | None]] = {
    TRLTrainer: _of_trl,
    TransformersTrainer: _of_transformers,
    LlamaFactoryTrainer: _of_llamafactory,
    UnslothTrainer: _of_unsloth,
    TorchTuneTrainer: _of_torchtune,
}


def _of_transformers_fields(config: Fields, method: str) -> dict[str, Any] | None:
    """Return what fields of Transformers' TrainingArguments say; None if the host's memory is used."""
    offloads, sharding = _sharding(config)
    if offloads:
        return None
    return {"method": method, "optimizer": _optimizer(config.get("optim", "adamw_torch")), "sharding": sharding}


def _sharding(config: Fields) -> tuple[bool, Sharding | None]:
    """Return whether weights or optimizer may be in the host's memory, and what is divided among the GPUs; None if not known."""
    deepspeed, fsdp, settings = config.get("deepspeed"), config.get("fsdp"), config.get("fsdp_config")
    if deepspeed:
        stage = as_mapping(as_mapping(deepspeed).get("zero_optimization")).get("stage", 0)
        return not isinstance(deepspeed, Mapping) or "offload" in str(deepspeed), _SHARDINGS.get(stage)
    if not fsdp:
        return False, "ddp"
    offloads = "offload" in str(fsdp) or isinstance(settings, str) or bool(as_mapping(settings).get("cpu_offload"))
    if "hybrid" in str(fsdp) or "no_shard" in str(fsdp):
        return offloads, None
    gathers = "shard_grad_op" in str(fsdp) or as_mapping(settings).get("reshard_after_forward") is False
    return offloads, "zero2" if gathers else "zero3"


def _optimizer(name: Any) -> Optimizer | None:
    return next((found for pattern, found in _OPTIMIZERS if re.fullmatch(pattern, str(name))), None)


def _tokens(config: Fields, field: str, default: int) -> dict[str, Any]:
    """Return the batch of a GPU by fields of Transformers. field: That of the greatest length of a sample, with its default."""
    return {
        "batch_size": _whole(config.get("per_device_train_batch_size", 8)),
        "sequence_length": _whole(config.get(field, default)),
        "pads": config.get("packing") is not True or bool(config.get("activation_offloading")),
    }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
